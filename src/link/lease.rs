//! Epochs and their leases: until when a session cannot have expired.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The part of the timeout that is not used: a 32nd covers a monitor that wakes late and clocks
/// that run at different rates.
const MARGIN: u32 = 32;

const SEALED: u64 = 0;

/// The life of one session, as far as this process can vouch for it.
///
/// A server expires a session no earlier than its timeout after it last *received* something from
/// us. So until the timeout after the *sending* of the last request that was answered, the session
/// stands. The lease ends a margin before that.
///
/// This is the one place that decides between "answered in time" and "lost": whoever looks first
/// after the deadline seals it, and no answer that comes later can break the seal. A holder that
/// was told that its lock is lost is never told the opposite afterwards.
#[derive(Debug)]
pub(crate) struct Lease {
    length: Duration,
    /// Nanoseconds on [`clock_zero`]'s clock, or [`SEALED`].
    deadline: AtomicU64,
}

/// Where the process's count of nanoseconds begins. In the past of the first use, so that no
/// deadline is 0.
fn clock_zero() -> Instant {
    static ZERO: OnceLock<Instant> = OnceLock::new();
    *ZERO.get_or_init(|| {
        let now = Instant::now();
        now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
    })
}

fn nanos(at: Instant) -> u64 {
    // 584 years fit.
    let nanos = at.saturating_duration_since(clock_zero()).as_nanos();
    u64::try_from(nanos).unwrap_or(u64::MAX).max(1)
}

impl Lease {
    /// A lease that begins with a handshake sent at `sent_at`.
    fn new(timeout: Duration, sent_at: Instant) -> Self {
        let length = timeout - timeout / MARGIN;
        Self {
            length,
            deadline: AtomicU64::new(nanos(sent_at + length)),
        }
    }

    /// A request or ping that was sent at `sent_at` has been answered. Returns whether the lease
    /// goes on.
    pub(crate) fn renew(&self, sent_at: Instant) -> bool {
        if !self.alive(Instant::now()) {
            return false;
        }
        let longer = nanos(sent_at + self.length);
        let mut current = self.deadline.load(Ordering::Acquire);
        while current != SEALED && current < longer {
            // Between the look above and here another thread may have sealed it: the exchange
            // then fails, and the seal stays.
            match self.deadline.compare_exchange_weak(
                current,
                longer,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => current = now,
            }
        }
        current != SEALED
    }

    /// Whether the session cannot have expired at `now`. The first look after the deadline seals
    /// the lease.
    #[inline]
    pub(crate) fn alive(&self, now: Instant) -> bool {
        nanos(now) < self.deadline.load(Ordering::Acquire) || self.alive_after_all(now)
    }

    /// The deadline that was read is over: seals the lease, unless a renewal that looked at the
    /// clock in time was faster and the new deadline is not over.
    #[cold]
    fn alive_after_all(&self, now: Instant) -> bool {
        let now = nanos(now);
        let mut deadline = self.deadline.load(Ordering::Acquire);
        while deadline != SEALED && deadline <= now {
            match self.deadline.compare_exchange_weak(
                deadline,
                SEALED,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return false,
                Err(moved) => deadline = moved,
            }
        }
        deadline != SEALED
    }

    /// Ends the lease for good.
    pub(crate) fn seal(&self) {
        self.deadline.store(SEALED, Ordering::Release);
    }

    /// When the lease ends, if nothing is answered until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.deadline.load(Ordering::Acquire) {
            SEALED => None,
            nanos => Some(clock_zero() + Duration::from_nanos(nanos)),
        }
    }
}

/// The life of one ZooKeeper session. Nothing that a session made survives it.
#[derive(Debug)]
pub(crate) struct Epoch {
    number: u64,
    session_id: i64,
    timeout: Duration,
    lease: Lease,
}

impl Epoch {
    /// A session whose handshake was sent at `sent_at`.
    pub(crate) fn begun(number: u64, session_id: i64, timeout: Duration, sent_at: Instant) -> Self {
        Self {
            number,
            session_id,
            timeout,
            lease: Lease::new(timeout, sent_at),
        }
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn new(number: u64, session_id: i64, timeout: Duration) -> Self {
        Self::begun(number, session_id, timeout, Instant::now())
    }

    /// Counts the sessions of one client, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The server's number of the session: `ephemeral_owner` of its nodes.
    pub(crate) fn session_id(&self) -> i64 {
        self.session_id
    }

    /// The timeout that the server granted.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    #[inline]
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(32);

    #[test]
    fn ends_a_margin_before_the_timeout() {
        let sent_at = Instant::now();
        let lease = Lease::new(T, sent_at);
        assert!(lease.alive(sent_at + Duration::from_secs(31) - Duration::from_nanos(1)));
        assert!(!lease.alive(sent_at + Duration::from_secs(31)));
    }

    #[test]
    fn an_answer_extends_it_from_the_sending() {
        let sent_at = Instant::now();
        let lease = Lease::new(T, sent_at);
        let later = sent_at + Duration::from_secs(5);
        assert!(lease.renew(later));
        assert!(lease.alive(later + Duration::from_secs(30)));
        // One that was sent earlier and answered later takes nothing away.
        assert!(lease.renew(sent_at));
        assert!(lease.alive(later + Duration::from_secs(30)));
    }

    #[test]
    fn a_late_answer_does_not_break_the_seal() {
        let sent_at = Instant::now();
        let lease = Lease::new(T, sent_at);
        assert!(!lease.alive(sent_at + T));
        assert!(!lease.renew(sent_at + T));
        assert!(!lease.alive(sent_at));
        assert_eq!(lease.deadline(), None);
    }

    #[test]
    fn an_answer_after_the_deadline_seals_it() {
        let Some(long_ago) = Instant::now().checked_sub(T * 2) else {
            return;
        };
        let lease = Lease::new(T, long_ago);
        assert!(!lease.renew(Instant::now()));
        assert_eq!(lease.deadline(), None);
    }

    #[test]
    fn what_is_sealed_stays_sealed() {
        let now = Instant::now();
        let lease = Lease::new(T, now);
        lease.seal();
        assert!(!lease.renew(now + T));
        assert!(!lease.alive(now));
    }

    /// One thread renews, one seals when it sees the deadline over. Whatever the interleaving, what
    /// anybody has seen sealed is never seen alive again.
    #[test]
    fn nobody_sees_it_alive_after_somebody_saw_it_sealed() {
        const ROUNDS: u32 = 100;
        let short = Duration::from_millis(1);
        for round in 0..ROUNDS {
            let lease = Lease::new(short, Instant::now());
            let sealed = AtomicU64::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // Answers that come too late, more and more often.
                    while lease.renew(Instant::now()) {
                        let until = Instant::now() + short * round / 50;
                        while Instant::now() < until {
                            std::hint::spin_loop();
                        }
                    }
                    sealed.store(1, Ordering::SeqCst);
                });
                scope.spawn(|| {
                    let end = Instant::now() + short * 10;
                    while Instant::now() < end {
                        let before = sealed.load(Ordering::SeqCst);
                        let alive = lease.alive(Instant::now());
                        assert!(!(alive && before == 1), "round {round}");
                        if !alive {
                            assert!(!lease.renew(Instant::now()), "round {round}");
                            return;
                        }
                    }
                    lease.seal();
                });
            });
        }
    }
}
