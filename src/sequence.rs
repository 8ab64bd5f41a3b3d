//! The number that ZooKeeper gives a sequential node.

use std::fmt;

/// A sequence number, as in `lock-0000000042`.
///
/// It is the folder's count of child creations, a signed 32-bit number that wraps. After
/// 2147483647 the server gives 2147483647 again and again as long as one create is made at a
/// time, and -2147483648 and up to creates that overtake each other (measured on 3.8.0; at 1,000
/// creates a second that is 24.9 days). Compared as signed numbers, a newcomer would overtake the
/// holder. So numbers have no order of their own here: there is the distance from one's own, which
/// is right as long as no two live contenders are 2^31 creates apart. Equal numbers are told apart
/// by the transactions that made the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sequence(pub(crate) i32);

impl Sequence {
    /// How many creates after `other` this one came; negative if before.
    pub(crate) fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0)
    }

    /// Splits a name into what stands before the number, which ends in `label`, and the number:
    /// exactly what the server's `%010d` prints.
    ///
    /// The label is needed: `lock-1000000000` is number 1,000,000,000 of `lock-`, and would be
    /// number -1,000,000,000 of `lock`.
    pub(crate) fn split_off<'a>(name: &'a str, label: &str) -> Option<(&'a str, Self)> {
        // Eleven characters only for -1000000000 and below.
        [10, 11].into_iter().find_map(|width| {
            let at = name.len().checked_sub(width)?;
            if !name.is_char_boundary(at) {
                return None;
            }
            let (before, number) = name.split_at(at);
            Some((before.strip_suffix(label)?, Self::parse(number)?))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = Self(text.parse().ok()?);
        (number.to_string() == text).then_some(number)
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
    fn reads_what_the_server_prints() {
        for (name, number) in [
            ("lock-0000000000", 0),
            ("lock-0000000042", 42),
            ("lock-1000000000", 1_000_000_000),
            ("lock--1000000000", -1_000_000_000),
            ("lock-2147483647", i32::MAX),
            ("lock--2147483648", i32::MIN),
            ("lock--000000005", -5),
        ] {
            let read = Sequence::split_off(name, "lock-");
            assert_eq!(read, Some(("", Sequence(number))));
        }
    }

    #[test]
    fn reads_nothing_else() {
        for name in [
            "",
            "lock-",
            "lock-42",
            "lock-000000004x",
            "lock-+000000042",
            "ä00000042",
            "lock-9999999999",
            "-0000000000x",
            "lock-٠000000042",
        ] {
            assert_eq!(Sequence::split_off(name, "lock-"), None, "{name}");
        }
    }

    #[test]
    fn goes_on_after_the_largest() {
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
        fn never_panics(name in "\\PC*") {
            let _ = Sequence::split_off(&name, "");
        }
    }
}
