//! The clock under the lease: one that goes on while the machine sleeps, and that a test can set.

#[cfg(test)]
use std::time::Duration;

pub(crate) use super::core::moment::Moment;
#[cfg(test)]
use super::core::moment::nanos_of;

/// Tells the present [`Moment`]. Cheap to clone; clones tell the same time.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    /// Linux: `CLOCK_BOOTTIME`. Elsewhere what `Instant` is, and whether that goes on during
    /// sleep is up to the system.
    ///
    /// No clock of a guest sees that its virtual machine was paused. Against that only fencing
    /// tokens help.
    #[default]
    System,
    /// Stands still until a test moves it.
    #[cfg(test)]
    Manual(ManualClock),
}

impl Clock {
    #[inline]
    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::System => system_now(),
            #[cfg(test)]
            Self::Manual(clock) => clock.now(),
        }
    }
}

#[cfg(target_os = "linux")]
#[inline]
fn system_now() -> Moment {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    // Time since the machine started is not negative, and 2^64 ns are 584 years.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Counts from its first use, and from a second then, so that what lies just before can be told.
#[cfg(not(target_os = "linux"))]
fn system_now() -> Moment {
    use std::time::Instant;

    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let first = FIRST.get_or_init(Instant::now);
    Moment::from_nanos(1_000_000_000).plus(first.elapsed())
}

/// A clock that a test moves by hand, also as a sleep of the machine would.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct ManualClock(std::sync::Arc<std::sync::atomic::AtomicU64>);

#[cfg(test)]
impl ManualClock {
    pub(crate) fn at(moment: Moment) -> Self {
        Self(std::sync::Arc::new(moment.nanos().into()))
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, by: Duration) {
        let by = nanos_of(by);
        self.0.fetch_add(by, std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_system_clock_goes_on_and_never_back() {
        let clock = Clock::default();
        // Its own looks lie around those of `Instant`, so delays of this thread only add to it.
        let (first, begun) = (clock.now(), Instant::now());
        let mut last = first;
        while begun.elapsed() < Duration::from_millis(20) {
            let now = clock.now();
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
        }
        assert!(clock.now().since(first) >= Duration::from_millis(19));
    }

    /// Linux counts from the start of the machine, sleep included; /proc/uptime is the same count.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_clock_counts_sleep() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").expect("Linux has it");
            let seconds = text.split(' ').next().and_then(|word| word.parse().ok());
            Duration::from_secs_f64(seconds.expect("seconds come first"))
        };
        let hundredth = Duration::from_millis(10);
        let before = uptime();
        let now = Duration::from_nanos(Clock::System.now().nanos());
        let after = uptime();
        assert!(before.saturating_sub(hundredth) <= now && now <= after + hundredth);
    }

    #[test]
    fn a_manual_clock_moves_for_all_its_clones() {
        let manual = ManualClock::at(Moment::from_nanos(7));
        let clock = Clock::Manual(manual.clone());
        manual.advance(Duration::from_nanos(5));
        assert_eq!(clock.now(), Moment::from_nanos(12));
    }

    /// `cargo test --release --lib what_a_look -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn what_a_look_at_the_clock_costs() {
        const LOOKS: u32 = 5_000_000;
        fn each(name: &str, mut look: impl FnMut()) {
            let begun = Instant::now();
            for _ in 0..LOOKS {
                look();
            }
            let each = begun.elapsed() / LOOKS;
            println!("{name}: {each:?}");
        }
        let clock = Clock::default();
        each("the clock under the lease", || {
            std::hint::black_box(clock.now());
        });
        each("Instant::now", || {
            std::hint::black_box(Instant::now());
        });
    }
}
