//! The names of nodes: what we write, and what we recognise.

use std::fmt;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::sequence::Sequence;

/// The longest [`LockName`], in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Whose node names a lock speaks. All who share a lock's folder must use the same: each ignores
/// the other's nodes, so mixing them would let two hold at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Apache Curator's, byte for byte: `_c_<uuid>-lock-0000000001`. Programs on Curator (Java) and
    /// go-zookeeper can queue in the same folder.
    #[default]
    Curator,
    /// kazoo's (Python): `<32 hex digits>__lock__0000000001`.
    Kazoo,
}

/// The part of the node names that belongs to one lock, so that several can share a folder.
///
/// With Curator's dialect a node is named `_c_<uuid>-<name><10 digits>`, with kazoo's
/// `<32 hex digits><name><10 digits>`. A name is matched as a whole: `a-` and `b-a-` are two locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockName(String);

impl LockName {
    /// Checks a name: 2 to 128 bytes, no `/`, nothing that ZooKeeper refuses in a path. It ends in
    /// one `-` or `_`, which keeps it apart from the number: `-` in front of ten digits could be a
    /// sign, as the server's numbers become negative after 2147483647.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if it is not possible.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// let orders = zklock::LockName::new("orders-")?;
    /// # let _ = orders;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let rest = name.strip_suffix(['-', '_']);
        let why = if name.len() < 2 || name.len() > MAX_NAME_BYTES {
            format!("it must have 2 to {MAX_NAME_BYTES} bytes")
        } else if name.contains('/') {
            "it must not contain \"/\"".to_owned()
        } else if rest.is_none_or(|rest| name.ends_with('-') && rest.ends_with(['-', '_'])) {
            "it must end in one \"-\" or \"_\", so that the number can be told apart".to_owned()
        } else if let Err(why) = crate::path::check(&format!("/{name}x")) {
            why
        } else {
            return Ok(Self(name));
        };
        Err(Error::invalid(format!("lock name {name:?}: {why}")))
    }

    fn fixed(name: &'static str) -> Self {
        Self(name.to_owned())
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a contender's node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// A place in a mutex's queue.
    Exclusive,
}

/// One contender, read from a child's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contender<'a> {
    pub(crate) name: &'a str,
    pub(crate) sequence: Sequence,
}

/// The names of one lock's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Grammar {
    dialect: Dialect,
    label: LockName,
}

impl Grammar {
    pub(crate) fn mutex(dialect: Dialect, name: Option<LockName>) -> Self {
        let label = name.unwrap_or_else(|| {
            LockName::fixed(match dialect {
                Dialect::Curator => "lock-",
                Dialect::Kazoo => "__lock__",
            })
        });
        Self { dialect, label }
    }

    /// The name to create a sequential node with.
    pub(crate) fn prefix(&self, guid: Uuid, class: Class) -> String {
        let Class::Exclusive = class;
        match self.dialect {
            Dialect::Curator => format!("_c_{}-{}", guid.hyphenated(), self.label),
            Dialect::Kazoo => format!("{}{}", guid.simple(), self.label),
        }
    }

    /// Reads a child's name; `None` if it is not a contender for this lock. Other people's nodes
    /// are nobody's business, so no name is an error.
    pub(crate) fn parse<'a>(&self, name: &'a str) -> Option<Contender<'a>> {
        let (guid, sequence) = Sequence::split_off(name, &self.label.0)?;
        let known = match self.dialect {
            // Without protection, as older Curators and many home-grown recipes write it.
            Dialect::Curator if guid.is_empty() => true,
            // go-zookeeper leaves out the dashes.
            Dialect::Curator => guid
                .strip_prefix("_c_")
                .and_then(|guid| guid.strip_suffix('-'))
                .is_some_and(|guid| is_dashed(guid) || is_plain(guid)),
            Dialect::Kazoo => is_plain(guid),
        };
        known.then_some(Contender { name, sequence })
    }
}

fn is_plain(guid: &str) -> bool {
    guid.len() == 32 && guid.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_dashed(guid: &str) -> bool {
    guid.len() == 36
        && guid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GUID: Uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

    #[test]
    fn golden_names() {
        let curator = Grammar::mutex(Dialect::Curator, None);
        let kazoo = Grammar::mutex(Dialect::Kazoo, None);
        assert_eq!(
            curator.prefix(GUID, Class::Exclusive),
            "_c_01234567-89ab-cdef-0123-456789abcdef-lock-"
        );
        assert_eq!(
            kazoo.prefix(GUID, Class::Exclusive),
            "0123456789abcdef0123456789abcdef__lock__"
        );
        let named = LockName::new("orders-").expect("good");
        assert_eq!(
            Grammar::mutex(Dialect::Curator, Some(named)).prefix(GUID, Class::Exclusive),
            "_c_01234567-89ab-cdef-0123-456789abcdef-orders-"
        );
    }

    #[test]
    fn reads_its_relatives() {
        let curator = Grammar::mutex(Dialect::Curator, None);
        for name in [
            "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000007",
            "_c_0123456789abcdef0123456789abcdef-lock-0000000007",
            "lock-0000000007",
        ] {
            assert_eq!(curator.parse(name).expect(name).sequence, Sequence(7));
        }
        let kazoo = Grammar::mutex(Dialect::Kazoo, None);
        let name = "0123456789abcdef0123456789abcdef__lock__-2147483648";
        assert_eq!(kazoo.parse(name).expect(name).sequence, Sequence(i32::MIN));
    }

    #[test]
    fn ignores_strangers() {
        let curator = Grammar::mutex(Dialect::Curator, None);
        for name in [
            "hello",
            "",
            "lock-",
            "lock-7",
            "b-lock-0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-b-lock-0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-lock-000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000007",
            "_c_0123456789ab-cdef-0123-456789abcdef01-lock-0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdefäx-lock-0000000007",
            "0123456789abcdef0123456789abcdef__lock__0000000007",
            "x-72057594037927936-0000000007",
        ] {
            assert_eq!(curator.parse(name), None, "{name}");
        }
    }

    #[test]
    fn refuses_names_that_could_not_be_told_apart() {
        let long = "x".repeat(128) + "-";
        for bad in [
            "", "-", "a", "a/b-", "a1", "a--", "a_-", "a\n-", "😀-", "😀", &long,
        ] {
            assert!(LockName::new(bad).expect_err(bad).is_invalid());
        }
    }

    fn any_name() -> impl Strategy<Value = LockName> {
        "[a-zA-Z0-9_.-]{0,10}[a-zA-Z0-9.][-_]".prop_map(|name| LockName::new(name).expect("good"))
    }

    fn any_dialect() -> impl Strategy<Value = Dialect> {
        prop_oneof![Just(Dialect::Curator), Just(Dialect::Kazoo)]
    }

    proptest! {
        #[test]
        fn round_trip(dialect in any_dialect(), name in any_name(), guid: u128, number: i32) {
            let grammar = Grammar::mutex(dialect, Some(name));
            let prefix = grammar.prefix(Uuid::from_u128(guid), Class::Exclusive);
            let child = format!("{prefix}{}", Sequence(number));
            let read = grammar.parse(&child).expect("our own");
            prop_assert_eq!(read.sequence, Sequence(number));
        }

        #[test]
        fn two_names_never_share_a_node(
            dialect in any_dialect(), a in any_name(), b in any_name(), guid: u128, number: i32,
        ) {
            prop_assume!(a != b);
            let written = Grammar::mutex(dialect, Some(a));
            let prefix = written.prefix(Uuid::from_u128(guid), Class::Exclusive);
            let child = format!("{prefix}{}", Sequence(number));
            prop_assert_eq!(Grammar::mutex(dialect, Some(b)).parse(&child), None);
        }

        #[test]
        fn no_name_is_an_error(dialect in any_dialect(), name in "\\PC*") {
            let _ = Grammar::mutex(dialect, None).parse(&name);
        }
    }
}
