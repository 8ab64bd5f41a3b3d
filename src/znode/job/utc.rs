//! Moments, and how RFC 3339 writes them.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_MS: i64 = 86_400_000;
/// From 0000-03-01 to 1970-01-01. Years are counted from a first of March, so that a leap day is the
/// last day of its year.
const DAYS_BEFORE_1970: i64 = 719_468;
/// In 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// A moment of a year from 0 to 9999, UTC, in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    since_1970_ms: i64,
}

impl Moment {
    pub(crate) const EARLIEST_MS: i64 = -62_167_219_200_000;
    pub(crate) const LATEST_MS: i64 = 253_402_300_799_999;

    /// `None` for what RFC 3339 cannot write.
    pub(crate) fn from_millis(since_1970_ms: i64) -> Option<Self> {
        let can_be_written = (Self::EARLIEST_MS..=Self::LATEST_MS).contains(&since_1970_ms);
        can_be_written.then_some(Self { since_1970_ms })
    }

    /// In whole milliseconds; `None` for what RFC 3339 cannot write.
    pub(crate) fn of(time: SystemTime) -> Option<Self> {
        let millis = |since: Duration| i64::try_from(since.as_millis()).ok();
        let since_1970_ms = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => millis(since)?,
            Err(before) => -millis(before.duration())?,
        };
        Self::from_millis(since_1970_ms)
    }

    pub(crate) fn millis(self) -> i64 {
        self.since_1970_ms
    }

    /// Later by this, or as late as can be written.
    pub(crate) fn later_by(self, by: Duration) -> Self {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        Self {
            since_1970_ms: self.since_1970_ms.saturating_add(by).min(Self::LATEST_MS),
        }
    }

    pub(crate) fn time(self) -> SystemTime {
        let distance = Duration::from_millis(self.since_1970_ms.unsigned_abs());
        let time = if self.since_1970_ms < 0 {
            UNIX_EPOCH.checked_sub(distance)
        } else {
            UNIX_EPOCH.checked_add(distance)
        };
        time.expect("a system's clock has these ten thousand years")
    }
}

/// `2026-11-22T00:00:01.123Z`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.since_1970_ms.div_euclid(DAY_MS));
        let of_day = self.since_1970_ms.rem_euclid(DAY_MS);
        let (seconds, millis) = (of_day / 1000, of_day % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
        )
    }
}

/// Reads what is written so, and nothing else.
impl FromStr for Moment {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |at: std::ops::Range<usize>| -> Result<i64, ()> {
            let digits = text.get(at).ok_or(())?;
            digits.parse().map_err(|_| ())
        };
        let day = days(number(0..4)?, number(5..7)?, number(8..10)?);
        let seconds = (number(11..13)? * 60 + number(14..16)?) * 60 + number(17..19)?;
        let millis = day * DAY_MS + seconds * 1000 + number(20..23)?;
        let moment = Self::from_millis(millis).ok_or(())?;
        // There is one way to write it: so no month has 31 days that has not.
        let is_so_written = moment.to_string() == text;
        is_so_written.then_some(moment).ok_or(())
    }
}

/// Year, month and day; `days` are counted from 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    // Less the leap days before it; the last day of an era is one that its 100th years lack.
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / (ERA_DAYS - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // From March on, five months have 153 days.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next_year, month, day)
}

/// The other way. Of numbers that are no date, some number.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = of_era / 4 - of_era / 100;
    era * ERA_DAYS + of_era * 365 + leap_days + of_year - DAYS_BEFORE_1970
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(millis: i64) -> String {
        Moment::from_millis(millis).expect("in range").to_string()
    }

    /// As `date -u -d @SECONDS` says them.
    #[test]
    fn moments_as_others_write_them() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (4_107_456_000_000, "2100-02-28T00:00:00.000Z"),
            (1_795_352_907_123, "2026-11-22T13:08:27.123Z"),
            (Moment::EARLIEST_MS, "0000-01-01T00:00:00.000Z"),
            (Moment::LATEST_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(written(millis), text);
            assert_eq!(text.parse().map(Moment::millis), Ok(millis));
        }
        assert_eq!(Moment::from_millis(Moment::EARLIEST_MS - 1), None);
        assert_eq!(Moment::from_millis(Moment::LATEST_MS + 1), None);
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "2026-11-22",
            "2026-11-22T13:08:27Z",
            "2026-11-22T13:08:27.123",
            "2026-11-22t13:08:27.123Z",
            "2026-11-22 13:08:27.123Z",
            "2026-11-22T13:08:27.123Z ",
            "2026-11-31T13:08:27.123Z",
            "2026-02-29T13:08:27.123Z",
            "2026-13-01T13:08:27.123Z",
            "2026-00-01T13:08:27.123Z",
            "2026-11-22T24:00:00.000Z",
            "2026-11-22T13:60:27.123Z",
            "2026-11-22T13:08:27.+12Z",
            "+026-11-22T13:08:27.123Z",
            "2026-11-22T13:08:27.12éZ",
        ] {
            assert_eq!(text.parse::<Moment>(), Err(()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(millis in Moment::EARLIEST_MS..=Moment::LATEST_MS) {
            let moment = Moment::from_millis(millis).expect("in range");
            prop_assert_eq!(moment.to_string().parse(), Ok(moment));
            prop_assert_eq!(Moment::of(moment.time()), Some(moment));
        }

        /// A day after another, over all leap years, is the next in the order of the texts.
        #[test]
        fn texts_are_ordered_as_moments(one in Moment::EARLIEST_MS..=Moment::LATEST_MS, by in 1..=DAY_MS) {
            if let Some(next) = Moment::from_millis(one + by) {
                prop_assert!(written(one) < next.to_string());
            }
        }

        #[test]
        fn never_panics(text: String, near in "[-+0-9TZ:.]{0,26}") {
            let _ = text.parse::<Moment>();
            let _ = near.parse::<Moment>();
        }
    }
}
