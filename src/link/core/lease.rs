//! The lease of a session: until when it cannot have expired. A cell of atomics, which the
//! [core](super) writes and guards read without a lock.

#[cfg(all(test, not(shuttle)))]
mod tests;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::chain::Bases;
use super::moment::{Moment, nanos_of};

/// The part of the timeout that is not used: a 32nd covers a monitor that wakes late and clocks
/// that run at different rates.
const MARGIN: u32 = 32;

/// A monitor looks at the clock at least once in so large a part of the timeout: what it waits on
/// stands still while the machine sleeps.
const BEATS: u32 = 12;

/// In the place of a base.
const SEALED: u64 = 0;

/// The life of one session, as far as this process can vouch for it.
///
/// The leader expires a session no earlier than its timeout after a *base* (see
/// [`chain`](super::chain)), so until a margin before that the session stands. There are two:
///
/// | lease   | its base was shown by | who lives by it                                          |
/// |---------|-----------------------|----------------------------------------------------------|
/// | assumed | syncs and writes      | the session while no node of ours stands                 |
/// | proven  | writes alone          | guards; the session while a node of ours stands          |
///
/// The session is over when the assumed lease lapses, or the proven one while a node of ours
/// stands, or when it is sealed. This is the one place that decides so: whoever looks first after
/// the lapse seals it, and no answer that comes later breaks the seal. A holder that was told that
/// its lock is lost is never told the opposite afterwards. (Nor may it be: once the leader has
/// begun to expire the session, touches and writes can still succeed for a while.)
///
/// While no node stands the proven lease may lapse and be extended again: nobody relied on it, and
/// a write that is answered shows that the leader, which has touched the session all the time, is
/// the one with the quorum.
///
/// Either word alone can bear the seal, and every look reads both. So from the moment at which one
/// is sealed nobody sees the session alive, whichever lapsed and whatever another thread is just
/// storing in the other. A deadline is a base and the length, and readers read them in this order:
/// the length only shrinks, and does so before any base is stored that it belongs to.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The smallest timeout ever granted, in nanoseconds.
    timeout: AtomicU64,
    /// The same, less the margin.
    length: AtomicU64,
    /// The user takes the word of what may be a deposed leader: what is assumed is proven.
    by_sync: bool,
    assumed: AtomicU64,
    /// Never later than `assumed`, except while that is being stored.
    proven: AtomicU64,
    /// Nodes of ours that give somebody a lock, or will without a further write.
    standing: AtomicU32,
    /// Waiters that are next in line, and want the proven lease.
    seeking: AtomicU32,
}

/// What one look at the two leases came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Proven,
    Assumed,
    Over,
}

fn usable(timeout: Duration) -> u64 {
    nanos_of(timeout - timeout / MARGIN)
}

impl Lease {
    /// A lease that begins with a session created by a request sent at `sent_at`: that was a
    /// write, so it is proven. With `by_sync`, what is assumed counts as proven, and probes are
    /// never writes.
    pub(in crate::link) fn new(timeout: Duration, sent_at: Moment, by_sync: bool) -> Self {
        Self {
            timeout: AtomicU64::new(nanos_of(timeout)),
            length: AtomicU64::new(usable(timeout)),
            by_sync,
            assumed: AtomicU64::new(sent_at.nanos()),
            proven: AtomicU64::new(sent_at.nanos()),
            standing: AtomicU32::new(0),
            seeking: AtomicU32::new(0),
        }
    }

    /// The smallest timeout that the session was ever granted.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout.load(Ordering::Acquire))
    }

    /// Whether the session cannot have expired at `now`, as far as is assumed; proven, while a
    /// node stands. The first look after the lapse seals it.
    #[inline]
    pub(crate) fn alive(&self, now: Moment) -> bool {
        self.is_proven(now) || self.look(now) != Look::Over
    }

    /// Whether it is proven that the session cannot have expired at `now`: what guards are given
    /// out and judged by. `false` is final for a holder, as its node stands.
    #[inline]
    pub(crate) fn proven(&self, now: Moment) -> bool {
        self.is_proven(now) || self.look(now) == Look::Proven
    }

    /// For how long from `now` it is proven that the session cannot expire, as known now. Zero
    /// when it is over. More may be proven meanwhile.
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        if !self.proven(now) {
            return Duration::ZERO;
        }
        // Sealed since: then it was alive at `now` all the same, but that helps nobody.
        self.end_of(&self.proven)
            .map_or(Duration::ZERO, |end| end.since(now))
    }

    /// The fast path. The assumed lease, which lasts as long as the proven one at least, can only
    /// be over by a seal.
    #[inline]
    fn is_proven(&self, now: Moment) -> bool {
        self.assumed.load(Ordering::Acquire) != SEALED
            && self.end_of(&self.proven).is_some_and(|end| now < end)
    }

    /// `None`: sealed.
    #[inline]
    fn end_of(&self, base: &AtomicU64) -> Option<Moment> {
        let base = base.load(Ordering::Acquire);
        self.end(base)
    }

    #[inline]
    fn end(&self, base: u64) -> Option<Moment> {
        let length = self.length.load(Ordering::Acquire);
        (base != SEALED).then(|| Moment::from_nanos(base.saturating_add(length)))
    }

    /// Looks at both, and seals what is over.
    #[cold]
    fn look(&self, now: Moment) -> Look {
        if !self.stands_at(&self.assumed, now) {
            self.seal();
            return Look::Over;
        }
        let is_proven = if self.standing.load(Ordering::Acquire) > 0 {
            if !self.stands_at(&self.proven, now) {
                self.seal();
                return Look::Over;
            }
            true
        } else {
            match self.end_of(&self.proven) {
                None => return Look::Over,
                Some(end) => now < end,
            }
        };
        // The other word may have been sealed since it was read.
        if self.assumed.load(Ordering::Acquire) == SEALED {
            return Look::Over;
        }
        if is_proven {
            Look::Proven
        } else {
            Look::Assumed
        }
    }

    /// Seals `base` if it has lapsed at `now`, unless a renewal that looked at the clock in time
    /// was faster and the new one has not lapsed. Returns whether it stands.
    fn stands_at(&self, base: &AtomicU64, now: Moment) -> bool {
        let mut current = base.load(Ordering::Acquire);
        while self.end(current).is_some_and(|end| end <= now) {
            match base.compare_exchange_weak(current, SEALED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return false,
                Err(moved) => current = moved,
            }
        }
        current != SEALED
    }

    /// An answer that came at `now` has shown these bases. Returns whether the session goes on.
    ///
    /// To be called before anybody hears of the answer: the create of a node proves the lease that
    /// the node is to stand by.
    pub(crate) fn renewed(&self, bases: Bases, now: Moment) -> bool {
        if !self.alive(now) {
            return false;
        }
        // What is assumed first, so that it is never behind what is proven.
        let assumed = bases.assumed.is_none_or(|base| raise(&self.assumed, base));
        let proven = if self.by_sync {
            bases.assumed
        } else {
            bases.proven
        };
        assumed && proven.is_none_or(|base| raise(&self.proven, base))
    }

    /// The session came to a connection by a handshake that was sent at `sent_at` and answered at
    /// `now` with `timeout`. Returns whether the session goes on.
    ///
    /// At once it may be over: with a smaller timeout granted, the leader counts on from then on.
    pub(crate) fn resumed(&self, timeout: Duration, sent_at: Moment, now: Moment) -> bool {
        // Not after it has lapsed by the timeout that held when this was on its way.
        if !self.alive(now) {
            return false;
        }
        self.timeout.fetch_min(nanos_of(timeout), Ordering::AcqRel);
        self.length.fetch_min(usable(timeout), Ordering::AcqRel);
        // What was proven may lapse by that while nothing stands; the base that is assumed is new.
        if !raise(&self.assumed, sent_at) || self.by_sync && !raise(&self.proven, sent_at) {
            return false;
        }
        self.alive(now)
    }

    /// Ends the session for good.
    pub(crate) fn seal(&self) {
        self.assumed.store(SEALED, Ordering::Release);
        self.proven.store(SEALED, Ordering::Release);
    }

    /// When the session is over, if nothing is answered until then. `None`: it is over.
    pub(crate) fn ends(&self) -> Option<Moment> {
        let assumed = self.end_of(&self.assumed)?;
        let proven = self.end_of(&self.proven)?;
        let stands = self.standing.load(Ordering::Acquire) > 0;
        Some(if stands { proven.min(assumed) } else { assumed })
    }

    /// For how long a monitor may sleep from `now` on before it looks again. `None`: it is over.
    ///
    /// No longer than a beat, a 12th of the timeout, as the sleep does not end earlier when the
    /// machine sleeps meanwhile.
    pub(crate) fn next_look(&self, now: Moment) -> Option<Duration> {
        let beat = Duration::from_nanos(self.length.load(Ordering::Acquire)) / BEATS;
        self.ends().map(|end| end.since(now).min(beat))
    }

    /// Whether the session is over sooner than a monitor may look again.
    pub(crate) fn ends_within_a_beat(&self, now: Moment) -> bool {
        let beat = Duration::from_nanos(self.length.load(Ordering::Acquire)) / BEATS;
        self.ends().is_none_or(|end| end.since(now) < beat)
    }

    /// A node of ours stands from now on, until [`falls`](Self::falls).
    pub(in crate::link) fn stands(&self) {
        self.standing.fetch_add(1, Ordering::AcqRel);
    }

    pub(in crate::link) fn falls(&self) {
        self.standing.fetch_sub(1, Ordering::AcqRel);
    }

    /// Somebody wants proof from now on, until [`no_longer_wants_proof`](Self::no_longer_wants_proof).
    pub(in crate::link) fn wants_proof(&self) {
        self.seeking.fetch_add(1, Ordering::AcqRel);
    }

    pub(in crate::link) fn no_longer_wants_proof(&self) {
        self.seeking.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether nodes of ours stand, or one may come to: somebody would lose something with the session.
    pub(crate) fn is_relied_on(&self) -> bool {
        self.standing.load(Ordering::Acquire) > 0 || self.seeking.load(Ordering::Acquire) > 0
    }

    /// Whether probes must be writes: a node of ours stands, or is next in line.
    pub(crate) fn wants_writes(&self) -> bool {
        !self.by_sync
            && (self.standing.load(Ordering::Acquire) > 0
                || self.seeking.load(Ordering::Acquire) > 0)
    }
}

/// Moves a base ahead, unless it is sealed: between the look at the clock and here another thread
/// may have done so. The exchange then fails, and the seal stays. Returns whether it is not sealed.
fn raise(base: &AtomicU64, to: Moment) -> bool {
    let mut current = base.load(Ordering::Acquire);
    while current != SEALED && current < to.nanos() {
        match base.compare_exchange_weak(current, to.nanos(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(now) => current = now,
        }
    }
    current != SEALED
}
