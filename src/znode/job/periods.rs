//! Periods of one length, counted from a moment.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::utc::Moment;

/// 100 years of 365.25 days: what is longer is a mistake.
const LONGEST_MS: i64 = 3_155_760_000_000;

/// Which periods there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Periods {
    every_ms: i64,
    anchor: Moment,
}

impl Periods {
    /// The error says what is wrong.
    pub(crate) fn new(every: Duration, anchor: SystemTime) -> Result<Self, String> {
        let whole = every.subsec_nanos().is_multiple_of(1_000_000);
        let every_ms = i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
        let anchor = Moment::of(anchor).ok_or("an anchor is in a year from 0 to 9999")?;
        Self::from_millis(every_ms, anchor)
            .filter(|_| whole)
            .ok_or_else(|| {
                format!("a period of {every:?}; it has whole milliseconds, from 1 to 100 years")
            })
    }

    pub(super) fn from_millis(every_ms: i64, anchor: Moment) -> Option<Self> {
        let possible = (1..=LONGEST_MS).contains(&every_ms);
        possible.then_some(Self { every_ms, anchor })
    }

    pub(crate) fn every_ms(self) -> i64 {
        self.every_ms
    }

    pub(crate) fn anchor(self) -> Moment {
        self.anchor
    }

    /// The number of the period that a moment is in. 0 is that which begins with the anchor.
    pub(crate) fn number_at(self, moment: Moment) -> i64 {
        (moment.millis() - self.anchor.millis()).div_euclid(self.every_ms)
    }

    /// Those that begin and end at moments which can be written.
    pub(crate) fn period(self, number: i64) -> Option<Period> {
        let begin_ms = number
            .checked_mul(self.every_ms)?
            .checked_add(self.anchor.millis())?;
        Some(Period {
            number,
            begin: Moment::from_millis(begin_ms)?,
            end: Moment::from_millis(begin_ms.checked_add(self.every_ms)?)?,
        })
    }
}

/// The length and, if it is not 1970, the anchor.
impl fmt::Display for Periods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let every = u64::try_from(self.every_ms).map_or(Duration::ZERO, Duration::from_millis);
        write!(f, "periods of {every:?} from {}", self.anchor)
    }
}

/// One period of a job; see [`OncePer`](crate::OncePer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    number: i64,
    begin: Moment,
    end: Moment,
}

impl Period {
    /// Its number: 0 is the period that begins with the anchor, and the next is one more.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Its first moment.
    #[must_use]
    pub fn begin(&self) -> SystemTime {
        self.begin.time()
    }

    /// The first moment of the next one.
    #[must_use]
    pub fn end(&self) -> SystemTime {
        self.end.time()
    }
}

/// When it begins, as RFC 3339 has it.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.begin.fmt(f)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_day_is_a_day_of_utc() {
        let days = Periods::new(DAY, UNIX_EPOCH).expect("possible");
        let moment = "2026-11-22T23:59:59.999Z".parse().expect("a moment");
        let period = days.period(days.number_at(moment)).expect("can be written");
        assert_eq!(period.to_string(), "2026-11-22T00:00:00.000Z");
        assert_eq!(period.end(), UNIX_EPOCH + DAY * 20_780);
        assert_eq!(period.number(), 20_779);
        // Before the anchor, too.
        let moment = "1969-12-31T23:59:59.999Z".parse().expect("a moment");
        assert_eq!(days.number_at(moment), -1);
    }

    #[test]
    fn a_length_has_whole_milliseconds() {
        for every in [
            Duration::ZERO,
            Duration::from_micros(999),
            Duration::from_micros(1_500),
            DAY * 36_526,
        ] {
            assert!(Periods::new(every, UNIX_EPOCH).is_err(), "{every:?}");
        }
        assert!(Periods::new(DAY * 36_525, UNIX_EPOCH).is_ok());
        assert!(Periods::new(Duration::from_millis(1), UNIX_EPOCH).is_ok());
    }

    proptest! {
        #[test]
        fn each_moment_is_in_its_period(
            every in 1..=LONGEST_MS,
            anchor in Moment::EARLIEST_MS..=Moment::LATEST_MS,
            moment in Moment::EARLIEST_MS..=Moment::LATEST_MS,
        ) {
            let at = |millis| Moment::from_millis(millis).expect("in range");
            let periods = Periods::from_millis(every, at(anchor)).expect("possible");
            let number = periods.number_at(at(moment));
            if let Some(period) = periods.period(number) {
                prop_assert!(period.begin <= at(moment) && at(moment) < period.end);
                prop_assert_eq!(periods.number_at(period.end), number + 1);
            }
        }
    }
}
