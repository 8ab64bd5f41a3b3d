//! [`Stats`]: what a client has done so far, and the cells in which it is counted.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::connection::ConnectionEvent;
use super::observer::Miss;

/// What a client and its locks have done since it was made; from
/// [`Client::stats`](crate::Client::stats).
///
/// Counts only grow, except `waiting` and `held`. They are read one after the other, so a sum over
/// several may be off by what happened meanwhile. Re-entries, and acquires of a lingering lock, are
/// not counted: they cost less than a count would.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let stats = client.stats();
/// println!("{stats}");
/// println!("{} acquires, {:?} each", stats.asked, stats.asked_time / stats.asked.max(1) as u32);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Sessions that were begun.
    pub sessions: u64,
    /// Sessions that were lost.
    pub sessions_lost: u64,
    /// Connections that resumed an earlier session.
    pub reconnects: u64,
    /// Breaks of a connection.
    pub breaks: u64,
    /// Acquires for which ZooKeeper was asked.
    pub asked: u64,
    /// How long those took together, from the call to the hold.
    pub asked_time: Duration,
    /// Acquires that another thread of this process handed over.
    pub handed_over: u64,
    /// Acquires of readers who joined those of their process, without a node of their own.
    pub shared: u64,
    /// `try_` calls that found a lock busy.
    pub busy: u64,
    /// Calls whose deadline passed.
    pub timed_out: u64,
    /// Calls whose token was cancelled.
    pub cancelled: u64,
    /// Calls that ended in another error.
    pub failed: u64,
    /// Tenures that have ended: times in which this process had a lock or permits in ZooKeeper,
    /// over all threads that took turns.
    pub tenures: u64,
    /// How long those lasted together.
    pub tenure_time: Duration,
    /// How many of those ended without ZooKeeper's confirmation: lost, or removed in the
    /// background.
    pub unconfirmed: u64,
    /// Tenures that were lost.
    pub losses: u64,
    /// Nodes that were removed in the background, because they could not be removed in time.
    pub orphans_cleaned: u64,
    /// Steps that failed with their connection and were repeated on the next.
    pub retries: u64,
    /// Requests that were put off: an overloaded server refused them for now, or answered with an
    /// error that nobody knows, or did not take bytes fast enough for them to be sent. They are made
    /// again after a pause.
    pub put_off: u64,
    /// Events and log lines that were dropped because an observer or a logger was too slow.
    pub left_out: u64,
    /// Now: threads that wait for a lock or for ZooKeeper's answer to an acquire.
    pub waiting: u64,
    /// Now: tenures; that is, locks and permits that are held, or kept for the next thread; also
    /// memberships of double barriers, and the lock in front of a semaphore's permits while it is
    /// held.
    pub held: u64,
    /// Now: for how long the session certainly stays alive if no server answers any more. `None`
    /// while there is no session.
    pub remaining_lease: Option<Duration>,
}

/// All of it on one line, for a log.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "acquires: {} asked in {:?}, {} handed over, {} shared; not: {} busy, {} timed out, \
             {} cancelled, {} failed; ",
            self.asked,
            self.asked_time,
            self.handed_over,
            self.shared,
            self.busy,
            self.timed_out,
            self.cancelled,
            self.failed,
        )?;
        write!(
            f,
            "tenures: {} in {:?}, {} unconfirmed, {} lost; sessions: {}, {} lost, {} breaks, \
             {} reconnects; {} orphans cleaned, {} retries, {} put off, {} left out; ",
            self.tenures,
            self.tenure_time,
            self.unconfirmed,
            self.losses,
            self.sessions,
            self.sessions_lost,
            self.breaks,
            self.reconnects,
            self.orphans_cleaned,
            self.retries,
            self.put_off,
            self.left_out,
        )?;
        write!(f, "now: {} wait, {} held, ", self.waiting, self.held)?;
        match self.remaining_lease {
            Some(lease) => write!(f, "sure for {lease:?}"),
            None => f.write_str("no session"),
        }
    }
}

/// See [`Stats`]. These atomics are not the explorer's of interleavings, because nothing depends on
/// a count.
#[derive(Default)]
pub(crate) struct Counts {
    sessions: AtomicU64,
    sessions_lost: AtomicU64,
    reconnects: AtomicU64,
    breaks: AtomicU64,
    asked: AtomicU64,
    asked_nanos: AtomicU64,
    handed_over: AtomicU64,
    shared: AtomicU64,
    busy: AtomicU64,
    timed_out: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    tenures: AtomicU64,
    tenure_nanos: AtomicU64,
    unconfirmed: AtomicU64,
    losses: AtomicU64,
    orphans_cleaned: AtomicU64,
    retries: AtomicU64,
    put_off: AtomicU64,
    waiting: AtomicU64,
}

/// One more thread waits, as long as this is there.
pub(crate) struct WaitingCount<'a>(&'a AtomicU64);

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub(super) fn connection(&self, event: &ConnectionEvent) {
        match event {
            ConnectionEvent::Connected { .. } => count(&self.sessions),
            ConnectionEvent::Suspended => count(&self.breaks),
            ConnectionEvent::Reconnected => count(&self.reconnects),
            ConnectionEvent::Lost => count(&self.sessions_lost),
            ConnectionEvent::Closed => {}
        }
    }

    pub(crate) fn waits(&self) -> WaitingCount<'_> {
        count(&self.waiting);
        WaitingCount(&self.waiting)
    }

    pub(super) fn asked(&self, took: Duration) {
        count(&self.asked);
        self.asked_nanos.fetch_add(nanos(took), Ordering::Relaxed);
    }

    pub(super) fn handed_over(&self) {
        count(&self.handed_over);
    }

    pub(super) fn shared(&self) {
        count(&self.shared);
    }

    pub(super) fn missed(&self, why: Miss) {
        count(match why {
            Miss::Busy => &self.busy,
            Miss::TimedOut => &self.timed_out,
            Miss::Cancelled => &self.cancelled,
            Miss::Failed => &self.failed,
        });
    }

    pub(super) fn tenure_ended(&self, lasted: Duration, confirmed: bool) {
        count(&self.tenures);
        self.tenure_nanos
            .fetch_add(nanos(lasted), Ordering::Relaxed);
        if !confirmed {
            count(&self.unconfirmed);
        }
    }

    pub(super) fn lost(&self) {
        count(&self.losses);
    }

    pub(super) fn orphan_cleaned(&self) {
        count(&self.orphans_cleaned);
    }

    pub(super) fn put_off(&self) {
        count(&self.put_off);
    }

    pub(super) fn retrying(&self) {
        count(&self.retries);
    }

    /// All that is counted here.
    pub(crate) fn stats(&self) -> Stats {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Stats {
            sessions: read(&self.sessions),
            sessions_lost: read(&self.sessions_lost),
            reconnects: read(&self.reconnects),
            breaks: read(&self.breaks),
            asked: read(&self.asked),
            asked_time: Duration::from_nanos(read(&self.asked_nanos)),
            handed_over: read(&self.handed_over),
            shared: read(&self.shared),
            busy: read(&self.busy),
            timed_out: read(&self.timed_out),
            cancelled: read(&self.cancelled),
            failed: read(&self.failed),
            tenures: read(&self.tenures),
            tenure_time: Duration::from_nanos(read(&self.tenure_nanos)),
            unconfirmed: read(&self.unconfirmed),
            losses: read(&self.losses),
            orphans_cleaned: read(&self.orphans_cleaned),
            retries: read(&self.retries),
            put_off: read(&self.put_off),
            waiting: read(&self.waiting),
            ..Stats::default()
        }
    }
}

fn count(cell: &AtomicU64) {
    cell.fetch_add(1, Ordering::Relaxed);
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn stats_are_one_line_with_every_number() {
        let mut numbers = 11..;
        let mut next = || numbers.next().expect("without end");
        let stats = Stats {
            sessions: next(),
            sessions_lost: next(),
            reconnects: next(),
            breaks: next(),
            asked: next(),
            asked_time: Duration::from_secs(next()),
            handed_over: next(),
            shared: next(),
            busy: next(),
            timed_out: next(),
            cancelled: next(),
            failed: next(),
            tenures: next(),
            tenure_time: Duration::from_secs(next()),
            unconfirmed: next(),
            losses: next(),
            orphans_cleaned: next(),
            retries: next(),
            put_off: next(),
            left_out: next(),
            waiting: next(),
            held: next(),
            remaining_lease: Some(Duration::from_secs(next())),
        };
        let line = stats.to_string();
        assert!(!line.contains('\n'));
        for number in 11..next() {
            assert!(line.contains(&number.to_string()), "{number}: {line}");
        }
        assert!(Stats::default().to_string().ends_with("no session"));
    }
}
