//! Epochs: the sessions of a client, each with its lease, its clock, and the nodes that somebody
//! relies on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::clock::{Clock, Moment};
use super::core::lease::Lease;

/// The life of one ZooKeeper session. Nothing that a session made survives it.
#[derive(Debug)]
pub(crate) struct Epoch {
    number: u64,
    session_id: i64,
    timeout: Duration,
    clock: Clock,
    lease: Arc<Lease>,
    nodes: Mutex<Nodes>,
}

/// What a server has granted.
#[derive(Clone, Copy)]
pub(super) struct Granted {
    pub(super) session_id: i64,
    pub(super) timeout: Duration,
    /// When it was asked for.
    pub(super) sent_at: Moment,
}

/// The nodes of ours that somebody relies on, or is about to: any of them can be asked for by the
/// probe for all.
#[derive(Debug, Default)]
struct Nodes {
    paths: BTreeMap<u64, Arc<str>>,
    next: u64,
}

impl Epoch {
    /// A session whose handshake was sent at `sent_at`, on the system's clock.
    #[cfg(test)]
    pub(crate) fn new(number: u64, session_id: i64, timeout: Duration) -> Self {
        let clock = Clock::default();
        let granted = Granted {
            session_id,
            timeout,
            sent_at: clock.now(),
        };
        Self::begun(number, granted, clock, false)
    }

    /// A session on this clock. With `by_sync`, what is assumed of it counts as proven.
    pub(super) fn begun(number: u64, granted: Granted, clock: Clock, by_sync: bool) -> Self {
        let Granted {
            session_id,
            timeout,
            sent_at,
        } = granted;
        Self {
            number,
            session_id,
            timeout,
            clock,
            lease: Arc::new(Lease::new(timeout, sent_at, by_sync)),
            nodes: Mutex::default(),
        }
    }

    /// Counts the sessions of one client, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The server's number of the session: `ephemeral_owner` of its nodes.
    pub(crate) fn session_id(&self) -> i64 {
        self.session_id
    }

    /// The timeout that the server granted when the session began.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    #[inline]
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The cell that the core writes.
    pub(super) fn cell(&self) -> Arc<Lease> {
        Arc::clone(&self.lease)
    }

    /// The present moment on the clock under the lease.
    #[inline]
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// As [`Lease::alive`], now.
    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.lease.alive(self.now())
    }

    /// The node of ours at `path`, without the chroot, stands from now on, until what is returned
    /// is dropped: to be called when its create was answered, before a lock is given out for it,
    /// and to be dropped when nobody relies on it any more.
    ///
    /// `None` when the proven lease has lapsed, or all is over. Right after a write of ours that
    /// was answered on a connection with a live chain, only the latter is possible: the answer has
    /// proved all that was assumed when the write was sent. A waiter who has been further back,
    /// for whom only syncs were sent, makes a write first.
    ///
    /// Nothing is lost between the look and the count: should the proven lease lapse in between,
    /// the next look finds a node that stands without it, and ends the session. That is right, as
    /// it stood by that lease when it began.
    pub(crate) fn node_stands(self: &Arc<Self>, path: &str, now: Moment) -> Option<RelyOnLease> {
        self.lease.proven(now).then(|| {
            self.lease.stands();
            RelyOnLease(Entry::of(self, path))
        })
    }

    /// Has the probes be writes until what is returned is dropped, while the node of ours at
    /// `path` does not stand yet.
    pub(crate) fn want_proof(self: &Arc<Self>, path: &str) -> WantProof {
        self.lease.wants_proof();
        WantProof(Entry::of(self, path))
    }

    /// A node to ask for: the next after the one that was asked for last, with its number. `None`:
    /// there is none.
    pub(in crate::link) fn node_after(&self, number: u64) -> Option<(u64, Arc<str>)> {
        let nodes = self.nodes.lock();
        let mut after = nodes.paths.range(number.saturating_add(1)..);
        let next = after.next().or_else(|| nodes.paths.first_key_value());
        next.map(|(number, path)| (*number, Arc::clone(path)))
    }

    /// The node with this number is gone: it is not asked for again.
    pub(in crate::link) fn node_gone(&self, number: u64) -> Option<Arc<str>> {
        self.nodes.lock().paths.remove(&number)
    }
}

/// A node among those that can be asked for.
#[derive(Debug)]
struct Entry {
    epoch: Arc<Epoch>,
    number: u64,
}

impl Entry {
    fn of(epoch: &Arc<Epoch>, path: &str) -> Self {
        let mut nodes = epoch.nodes.lock();
        nodes.next += 1;
        let number = nodes.next;
        nodes.paths.insert(number, path.into());
        drop(nodes);
        Self {
            epoch: Arc::clone(epoch),
            number,
        }
    }

    fn lease(&self) -> &Lease {
        &self.epoch.lease
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.epoch.nodes.lock().paths.remove(&self.number);
    }
}

/// While it lives, a node of ours stands, and the session lives by the proven lease.
#[derive(Debug)]
#[must_use = "the node stands for as long as this lives"]
pub(crate) struct RelyOnLease(Entry);

impl Drop for RelyOnLease {
    fn drop(&mut self) {
        self.0.lease().falls();
    }
}

/// While it lives, probes are writes.
#[derive(Debug)]
#[must_use = "writes are wanted for as long as this lives"]
pub(crate) struct WantProof(Entry);

impl Drop for WantProof {
    fn drop(&mut self) {
        self.0.lease().no_longer_wants_proof();
    }
}
