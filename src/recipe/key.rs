//! Keys of any text as one segment of a path.

use std::fmt::Write;

/// Writes `key` so that it is one segment of a path that ZooKeeper takes, and no other key is the
/// same segment.
///
/// The escape is that of URLs, `%` and two hexadecimal digits for each byte, for everything that
/// ZooKeeper refuses, for `/` and `%`, and for the dots of `.` and `..`. The empty key is a single
/// `%`, which no other key gives.
pub(crate) fn escape(key: &str) -> String {
    if key.is_empty() {
        return "%".to_owned();
    }
    let dots = matches!(key, "." | "..");
    let mut segment = String::with_capacity(key.len());
    for c in key.chars() {
        if c == '/' || c == '%' || (c == '.' && dots) || crate::znode::path::is_refused(c) {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                write!(segment, "%{byte:02X}").expect("a String takes all");
            }
        } else {
            segment.push(c);
        }
    }
    segment
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::znode::path::LockPath;

    #[test]
    fn plain_keys_stay_readable() {
        for (key, segment) in [
            ("order-17", "order-17"),
            ("Müller & Söhne", "Müller & Söhne"),
            ("a/b", "a%2Fb"),
            ("100 %", "100 %25"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("...", "..."),
            ("a.b", "a.b"),
            ("", "%"),
            ("\n", "%0A"),
            ("\0", "%00"),
            ("😀", "%F0%9F%98%80"),
            ("\u{FFFD}", "%EF%BF%BD"),
            ("zookeeper", "zookeeper"),
        ] {
            assert_eq!(escape(key), segment);
        }
    }

    proptest! {
        #[test]
        fn any_key_is_one_segment(key: String) {
            let path = format!("/root/{}", escape(&key));
            prop_assert!(LockPath::parse(&path).is_ok(), "{path:?}");
            prop_assert_eq!(path.matches('/').count(), 2);
        }

        #[test]
        fn two_keys_never_share_a_segment(a in "[%/.a2E5]{0,6}", b in "[%/.a2E5]{0,6}") {
            prop_assert_eq!(a == b, escape(&a) == escape(&b));
        }
    }
}
