//! The number that ZooKeeper gives a sequential node.

use std::cmp::Ordering;
use std::fmt;

/// A sequence number, as in `lock-0000000042`.
///
/// It is the folder's count of child creations, a signed 32-bit number. Up to 2147483646 it tells
/// the order of creation. What comes after that (24.9 days at 1,000 creates a second) tells
/// nothing: the folder's count stays at 2147483647, so creates that are made one at a time all get
/// 2147483647; creates that overtake each other go on from there to -2147483648 and up; and as
/// soon as they are done the next one gets 2147483647 again (measured on 3.8.0). So a later node
/// may have a number that is equal, smaller, or, on the circle of 32-bit numbers, one step
/// *before* a live one's. Whoever orders by these numbers, as signed numbers or by distance, lets
/// a newcomer overtake the holder. Only the transactions that made the nodes know the order then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sequence(pub(crate) i32);

impl Sequence {
    /// Which of two nodes of one folder was created first, if their numbers tell.
    ///
    /// They do not where one of them is past the end (see [`Sequence`]), nor where they are equal:
    /// Curator gives a downgraded lock's read node the number of its write node.
    pub(crate) fn order(self, other: Self) -> Option<Ordering> {
        let telling = !self.is_past_the_end() && !other.is_past_the_end() && self != other;
        telling.then(|| self.0.cmp(&other.0))
    }

    /// Whether no node of the folder can have a number between the two, if the numbers tell.
    pub(crate) fn is_next_after(self, other: Self) -> bool {
        other.order(self) == Some(Ordering::Less) && self.0 - other.0 == 1
    }

    /// Whether the folder's count had reached the end of its range.
    pub(crate) fn is_past_the_end(self) -> bool {
        self.0 < 0 || self.0 == i32::MAX
    }

    /// How many steps after `other` this number comes on the circle of 32-bit numbers; negative
    /// if before. Good enough to show a queue to people; who holds is decided by
    /// [`order`](Self::order).
    pub(super) fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0)
    }

    /// Splits a name into the part before the number, which ends in `label`, and the number:
    /// exactly what the server's `%010d` prints.
    ///
    /// The label is needed: `lock-1000000000` is number 1,000,000,000 of `lock-`, and would be
    /// number -1,000,000,000 of `lock`.
    pub(crate) fn split_off<'a>(name: &'a str, label: &str) -> Option<(&'a str, Self)> {
        // Eleven characters only for -1000000000 and below.
        [10, 11].into_iter().find_map(|width| {
            let at = name.len().checked_sub(width)?;
            let (before, number) = name.split_at_checked(at)?;
            Some((before.strip_suffix(label)?, Self::parse(number)?))
        })
    }

    /// Reads exactly what [`Display`](fmt::Display) writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number: i32 = text.parse().ok()?;
        // Ten characters, padded with zeros; eleven if the number alone is that long.
        let canonical = match text.len() {
            10 => number > -1_000_000_000 && text != "-000000000",
            11 => number <= -1_000_000_000,
            _ => false,
        };
        canonical.then_some(Self(number))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As in Java, the width counts the sign.
        write!(f, "{:010}", self.0)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn next_is_one_more_as_long_as_numbers_tell() {
        let is_next = |one, other| Sequence(one).is_next_after(Sequence(other));
        assert!(is_next(1, 0) && is_next(i32::MAX - 1, i32::MAX - 2));
        assert!(!is_next(1, 1) && !is_next(0, 1) && !is_next(2, 0));
        for (one, other) in [
            (i32::MAX, i32::MAX - 1),
            (i32::MIN, i32::MAX),
            (0, -1),
            (-4, -5),
        ] {
            assert!(!is_next(one, other), "{one} after {other}");
        }
    }

    #[test]
    fn reads_what_the_server_prints() {
        for (name, number) in [
            ("lock-0000000000", 0),
            ("lock-0000000042", 42),
            ("lock-1000000000", 1_000_000_000),
            ("lock-2147483647", i32::MAX),
            ("lock--2147483648", i32::MIN),
            ("lock--1000000000", -1_000_000_000),
            ("lock--999999999", -999_999_999),
            ("lock--000000005", -5),
        ] {
            let read = Sequence::split_off(name, "lock-");
            assert_eq!(read, Some(("", Sequence(number))), "{name}");
        }
    }

    #[test]
    fn reads_nothing_else() {
        for name in [
            "",
            "lock-",
            "lock-42",
            "lock-00000000042",
            "lock-000000004x",
            "lock-+000000042",
            "lock--000000000",
            "lock--0000000005",
            "lock--0999999999",
            "lock--00000005",
            "lock--2147483649",
            "lock-2147483648",
            "lock-9999999999",
            "lock- 000000042",
            "lock-0000000042 ",
            "ä00000042",
            "lock-٠000000042",
            "-0000000000x",
        ] {
            assert_eq!(Sequence::split_off(name, "lock-"), None, "{name}");
        }
    }

    /// What a 3.8.0 server answered, in the order of its transactions, to one create at a time
    /// and to four at once, twice. No arithmetic finds this order in the numbers.
    #[test]
    fn past_the_end_no_number_claims_an_order() {
        let created = [
            "2147483645",
            "2147483646",
            "2147483647",
            "2147483647",
            "-2147483648",
            "-2147483647",
            "2147483647",
            "-2147483648",
        ]
        .map(|text| Sequence::parse(text).expect(text));
        for (at, earlier) in created.iter().enumerate() {
            for (after, later) in created.iter().enumerate().skip(at + 1) {
                let told = (after == 1).then_some(Ordering::Less);
                assert_eq!(earlier.order(*later), told, "{earlier} {later}");
                assert_eq!(later.order(*earlier), told.map(Ordering::reverse));
            }
        }
    }

    #[test]
    fn distance_goes_on_after_the_largest() {
        let (last, next) = (Sequence(i32::MAX), Sequence(i32::MIN));
        assert_eq!(next.distance_from(last), 1);
        assert_eq!(last.distance_from(next), -1);
    }

    proptest! {
        #[test]
        fn round_trip(number: i32, before in "[a-z_]{0,8}") {
            let name = format!("{before}x-{}", Sequence(number));
            let read = Sequence::split_off(&name, "x-");
            prop_assert_eq!(read, Some((before.as_str(), Sequence(number))));
        }

        #[test]
        fn what_is_read_is_what_would_be_printed(text in "[-+ 0-9]{8,12}|[-]?0{0,3}[0-9]{7,10}") {
            if let Some(number) = Sequence::parse(&text) {
                prop_assert_eq!(number.to_string(), text);
            }
        }

        #[test]
        fn never_panics(name in any::<String>(), label in any::<String>()) {
            let _ = Sequence::split_off(&name, &label);
        }
    }
}
