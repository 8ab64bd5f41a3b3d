//! How much of ours may stand ahead of a probe, on its way to the server.
//!
//! What the kernel has taken cannot be overtaken any more. So it is given little at a time: no more
//! than the network carries in a twelfth of the session's timeout, half of it in the kernel and
//! half in our hands. The rest waits where a probe goes before it. How fast the network is shows
//! when the kernel is full: it takes as much as goes out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// At first, and on a fast network: what a kernel keeps for a connection that is not tuned.
const MOST_BYTES: usize = 64 << 10;
/// Less would cost more in turns of threads than a probe gains.
const LEAST_BYTES: usize = 8 << 10;
/// What was measured so long ago says nothing of the network now.
const FRESH: Duration = Duration::from_secs(60);

/// See the [module](self).
pub(super) struct Ahead {
    /// A part of the session's timeout.
    share: Duration,
    bytes: AtomicUsize,
    meter: Mutex<Meter>,
}

#[derive(Default)]
struct Meter {
    /// While the kernel is full: since when, and what it had taken then.
    since: Option<(Instant, u64)>,
    /// What went out in a second, and when that was found.
    rate: Option<(u64, Instant)>,
}

impl Ahead {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            share: timeout / 24,
            bytes: AtomicUsize::new(MOST_BYTES),
            meter: Mutex::default(),
        }
    }

    /// So many in the kernel, and so many before it.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The kernel takes no more now, after so many bytes of this connection. Returns whether
    /// [`bytes`](Self::bytes) has changed.
    pub(super) fn filled(&self, taken: u64, now: Instant) -> bool {
        let mut meter = self.meter.lock();
        let Some((since, before)) = meter.since else {
            meter.since = Some((now, taken));
            return false;
        };
        let elapsed = now.saturating_duration_since(since);
        // At a standstill there is no rate; that is another matter.
        if elapsed < self.share / 2 || taken == before {
            return false;
        }
        meter.since = Some((now, taken));
        let rate = rate(taken - before, elapsed);
        meter.rate = Some((rate, now));
        let carried = u128::from(rate) * self.share.as_micros() / 1_000_000;
        let bytes = usize::try_from(carried).unwrap_or(usize::MAX);
        let bytes = bytes.clamp(LEAST_BYTES, MOST_BYTES);
        self.bytes.swap(bytes, Ordering::Relaxed) != bytes
    }

    /// The kernel has taken all that there was.
    pub(super) fn drained(&self) {
        self.meter.lock().since = None;
    }

    /// For how long so many bytes are under way, if the network is known to be so slow.
    pub(super) fn takes(&self, bytes: usize, now: Instant) -> Option<Duration> {
        if bytes <= MOST_BYTES {
            return None;
        }
        let (rate, at) = self.meter.lock().rate?;
        let is_fresh = now.saturating_duration_since(at) < FRESH;
        let millis = (bytes as u64).saturating_mul(1_000) / rate.max(1);
        is_fresh.then(|| Duration::from_millis(millis))
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
        let ahead = Ahead::new(T);
        let begun = Instant::now();
        assert_eq!(ahead.bytes(), MOST_BYTES);
        assert!(!ahead.filled(100_000, begun), "nothing is known yet");
        let later = begun + Duration::from_secs(1);
        assert!(ahead.filled(130_000, later), "30 kB a second");
        assert_eq!(ahead.bytes(), 15_000);
        assert_eq!(ahead.takes(60_000, later), None, "no more than usual");
        let minute = ahead.takes(1_800_000, later);
        assert_eq!(minute, Some(Duration::from_secs(60)));
        assert_eq!(ahead.takes(1_800_000, later + FRESH), None, "long ago");
        // It is fast again.
        let later = later + Duration::from_secs(1);
        assert!(ahead.filled(10_130_000, later));
        assert_eq!(ahead.bytes(), MOST_BYTES);
    }

    #[test]
    fn a_standstill_is_no_rate() {
        let ahead = Ahead::new(T);
        let begun = Instant::now();
        ahead.filled(1_000, begun);
        assert!(!ahead.filled(1_000, begun + T));
        assert_eq!(ahead.bytes(), MOST_BYTES);
        assert_eq!(ahead.takes(usize::MAX, begun + T), None);
        // What comes when it has been idle says nothing of the time before.
        ahead.drained();
        assert!(!ahead.filled(2_000, begun + 2 * T));
    }
}
