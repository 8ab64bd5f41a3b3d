//! How much of ours may stand ahead of a probe, on its way to the server.
//!
//! What the kernel has taken cannot be overtaken any more. So it is given little at a time: no more
//! than the network carries in a twelfth of the session's timeout, half of it in the kernel and
//! half in our hands. The rest waits where a probe goes before it. How fast the network is shows
//! when the kernel is full: it takes as much as goes out.
//!
//! What was measured ends with its connection. The next one leads to another server, as a rule, over
//! another path; it measures its own within a 24th of the timeout of being full, and what it knows
//! nothing of costs it one kernel's buffer at the most. A rate that outlived its path would have large
//! requests refused on a fast one, and as they would not be tried, nothing would show that it is fast.

use std::time::Duration;

use super::moment::Moment;

/// At first, and on a fast network: what a kernel keeps for a connection that is not tuned.
pub(in crate::link) const MOST_BYTES: usize = 64 << 10;
/// Less would cost more in turns of threads than a probe gains.
const LEAST_BYTES: usize = 8 << 10;
/// What was measured so long ago says nothing of the network now.
const FRESH: Duration = Duration::from_secs(60);
/// Nothing is refused because of fewer findings.
const ENOUGH_FINDINGS: u32 = 2;

/// See the [module](self).
pub(super) struct Ahead {
    /// A part of the session's timeout.
    share: Duration,
    bytes: usize,
    /// While the kernel is full: since when, and what it had taken then.
    since: Option<(Moment, u64)>,
    best: Option<Best>,
}

/// The most that went out in a second, as far as that is known. Any one finding may be too small: a server
/// that stood still for a moment, or a thread of ours that came late, looks like a slow network.
#[derive(Clone, Copy)]
struct Best {
    rate: u64,
    at: Moment,
    /// Since the one before it was too old, this one included.
    findings: u32,
}

impl Best {
    /// With one more finding. What is too old is forgotten.
    fn with(before: Option<Best>, rate: u64, now: Moment) -> Best {
        let before = before.filter(|best| best.is_fresh(now));
        let findings = 1 + before.map_or(0, |best| best.findings);
        match before {
            Some(best) if best.rate > rate => Best { findings, ..best },
            _ => Best {
                rate,
                at: now,
                findings,
            },
        }
    }

    fn is_fresh(&self, now: Moment) -> bool {
        now.since(self.at) < FRESH
    }
}

impl Ahead {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            share: timeout / 24,
            bytes: MOST_BYTES,
            since: None,
            best: None,
        }
    }

    /// So many in the kernel, and so many before it.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The kernel takes no more now, after so many bytes of this connection. Returns whether
    /// [`bytes`](Self::bytes) has changed.
    pub(super) fn filled(&mut self, taken: u64, now: Moment) -> bool {
        let Some((since, before)) = self.since else {
            self.since = Some((now, taken));
            return false;
        };
        let elapsed = now.since(since);
        // At a standstill there is no rate; that is another matter.
        if elapsed < self.share / 2 || taken == before {
            return false;
        }
        self.since = Some((now, taken));
        let rate = rate(taken - before, elapsed);
        self.best = Some(Best::with(self.best, rate, now));
        let carried = u128::from(rate) * self.share.as_micros() / 1_000_000;
        let bytes = usize::try_from(carried).unwrap_or(usize::MAX);
        let bytes = bytes.clamp(LEAST_BYTES, MOST_BYTES);
        std::mem::replace(&mut self.bytes, bytes) != bytes
    }

    /// The kernel has taken all that there was.
    pub(super) fn drained(&mut self) {
        self.since = None;
    }

    /// For how long so many bytes are under way at the best rate of late, if the network is known to be so
    /// slow.
    pub(super) fn takes(&self, bytes: usize, now: Moment) -> Option<Duration> {
        if bytes <= MOST_BYTES {
            return None;
        }
        let best = self.best?;
        let is_known = best.is_fresh(now) && best.findings >= ENOUGH_FINDINGS;
        let millis = (bytes as u64).saturating_mul(1_000) / best.rate.max(1);
        is_known.then(|| Duration::from_millis(millis))
    }
}

/// In a second.
fn rate(bytes: u64, elapsed: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000 / elapsed.as_micros().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(12);

    /// 4 Mbit/s, of which the kernel is full for a second.
    #[test]
    fn what_a_probe_stands_behind_takes_a_twelfth_of_the_timeout() {
        let mut ahead = Ahead::new(T);
        let begun = Moment::from_nanos(1_000_000_000);
        assert_eq!(ahead.bytes(), MOST_BYTES);
        assert!(!ahead.filled(100_000, begun), "nothing is known yet");
        let later = begun.plus(Duration::from_secs(1));
        assert!(ahead.filled(130_000, later), "30 kB a second");
        assert_eq!(ahead.bytes(), 15_000);
        assert_eq!(ahead.takes(1_800_000, later), None, "found once only");
        let later = later.plus(Duration::from_secs(1));
        assert!(!ahead.filled(160_000, later), "30 kB a second");
        assert_eq!(ahead.takes(60_000, later), None, "no more than usual");
        let minute = ahead.takes(1_800_000, later);
        assert_eq!(minute, Some(Duration::from_secs(60)));
        assert_eq!(ahead.takes(1_800_000, later.plus(FRESH)), None, "long ago");
        // It is fast again.
        let later = later.plus(Duration::from_secs(1));
        assert!(ahead.filled(10_130_000, later));
        assert_eq!(ahead.bytes(), MOST_BYTES);
    }

    /// A server that stands still for five seconds, twice, on a network that carries a megabyte a second.
    #[test]
    fn a_server_that_stood_still_is_no_slow_network() {
        let mut ahead = Ahead::new(T);
        let mut now = Moment::from_nanos(1_000_000_000);
        let mut taken = 0;
        ahead.filled(taken, now);
        for (seconds, bytes) in [(5, 20_000), (1, 1_000_000), (5, 20_000)] {
            now = now.plus(Duration::from_secs(seconds));
            taken += bytes;
            ahead.filled(taken, now);
        }
        assert_eq!(
            ahead.takes(1_000_000, now),
            Some(Duration::from_secs(1)),
            "as fast as it was between"
        );
    }

    #[test]
    fn a_standstill_is_no_rate() {
        let mut ahead = Ahead::new(T);
        let begun = Moment::from_nanos(1_000_000_000);
        ahead.filled(1_000, begun);
        assert!(!ahead.filled(1_000, begun.plus(T)));
        assert_eq!(ahead.bytes(), MOST_BYTES);
        assert_eq!(ahead.takes(usize::MAX, begun.plus(T)), None);
        // What comes when it has been idle says nothing of the time before.
        ahead.drained();
        assert!(!ahead.filled(2_000, begun.plus(2 * T)));
    }
}
