//! The names of nodes: what we write, and what we recognise.

use std::borrow::Cow;
use std::fmt;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::znode::node::NodeMode;
use crate::znode::sequence::Sequence;

/// The longest [`LockName`], in bytes.
const MAX_NAME_BYTES: usize = 128;

/// What Curator's protected names begin with.
const PROTECTION: &str = "_c_";

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
    /// Checks a name: 2 to 128 bytes, no `/`, nothing that ZooKeeper refuses in a path, and no
    /// `_c_` at its beginning, with which Curator marks its GUIDs. It ends in one `-` or `_`, which
    /// keeps it apart from the number: `-` in front of ten digits could be a sign, as the server's
    /// numbers become negative after 2147483647.
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
        let separated = match name.strip_suffix('-') {
            // Otherwise `a_` and `a_-` would be two names, and `a_-2147483647` a node of both.
            Some(rest) => !rest.ends_with(['-', '_']),
            None => name.ends_with('_'),
        };
        let why = if name.len() < 2 || name.len() > MAX_NAME_BYTES {
            format!("it must have 2 to {MAX_NAME_BYTES} bytes")
        } else if name.contains('/') {
            "it must not contain \"/\"".to_owned()
        } else if !separated {
            "it must end in one \"-\" or \"_\", so that the number can be told apart".to_owned()
        } else if name.starts_with(PROTECTION) {
            // Else the name `_c_<guid>-a-` without protection is `a-` with protection.
            format!("it must not begin with \"{PROTECTION}\"")
        } else if let Err(why) = crate::znode::path::check(&format!("/{name}x")) {
            why
        } else {
            return Ok(Self(name));
        };
        Err(Error::invalid(format!("lock name {name:?}: {why}")))
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
    /// A reader's place in a read-write lock's queue.
    Read,
    /// A writer's.
    Write,
    /// One lease of a semaphore.
    Lease,
    /// A member of a double barrier.
    Member,
    /// The one node that all want.
    Sole,
}

/// One contender, read from a child's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contender<'a> {
    pub(crate) name: &'a str,
    pub(crate) class: Class,
    pub(crate) sequence: Sequence,
    /// `None` for a node without protection.
    #[allow(dead_code, reason = "tests look at what was read")]
    pub(crate) guid: Option<Uuid>,
}

/// The names of one lock's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Grammar {
    dialect: Dialect,
    /// What stands between GUID and number, for each class. No two can be read in one name.
    labels: Vec<(Class, Cow<'static, str>)>,
}

impl Grammar {
    pub(crate) fn mutex(dialect: Dialect, name: Option<LockName>) -> Self {
        let label = match (name, dialect) {
            (Some(LockName(name)), _) => Cow::Owned(name),
            (None, Dialect::Curator) => Cow::Borrowed("lock-"),
            (None, Dialect::Kazoo) => Cow::Borrowed("__lock__"),
        };
        Self {
            dialect,
            labels: vec![(Class::Exclusive, label)],
        }
    }

    pub(crate) fn rw(dialect: Dialect) -> Self {
        let (read, write) = match dialect {
            Dialect::Curator => ("__READ__", "__WRIT__"),
            Dialect::Kazoo => ("__rlock__", "__lock__"),
        };
        Self {
            dialect,
            labels: vec![(Class::Read, read.into()), (Class::Write, write.into())],
        }
    }

    /// kazoo's leases are plain nodes without label and number.
    pub(crate) fn lease(dialect: Dialect) -> Self {
        let label = match dialect {
            Dialect::Curator => "lease-",
            Dialect::Kazoo => "",
        };
        Self {
            dialect,
            labels: vec![(Class::Lease, label.into())],
        }
    }

    /// Members are plain nodes, each a bare GUID.
    pub(crate) fn member(dialect: Dialect) -> Self {
        Self {
            dialect,
            labels: vec![(Class::Member, "".into())],
        }
    }

    /// No names but that of the one node, which is the lock's path.
    pub(crate) fn sole() -> Self {
        Self {
            dialect: Dialect::Curator,
            labels: Vec::new(),
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The kind of node that a contender of this class is.
    pub(crate) fn mode(&self, class: Class) -> NodeMode {
        match (class, self.dialect) {
            (Class::Lease, Dialect::Kazoo) | (Class::Member | Class::Sole, _) => {
                NodeMode::Ephemeral
            }
            _ => NodeMode::EphemeralSequential,
        }
    }

    /// The name to create a sequential node with.
    ///
    /// # Panics
    /// If this lock has no nodes of that class.
    pub(crate) fn prefix(&self, guid: Uuid, class: Class) -> String {
        let (_, label) = self
            .labels
            .iter()
            .find(|(labelled, _)| *labelled == class)
            .expect("a recipe asks only for the classes that it built its grammar with");
        match self.dialect {
            Dialect::Curator if class == Class::Member => guid.hyphenated().to_string(),
            Dialect::Curator => format!("{PROTECTION}{}-{label}", guid.hyphenated()),
            Dialect::Kazoo => format!("{}{label}", guid.simple()),
        }
    }

    /// Reads a child's name; `None` if it is not a contender for this lock. Other people's nodes
    /// are nobody's business, so no name is an error.
    pub(crate) fn parse<'a>(&self, name: &'a str) -> Option<Contender<'a>> {
        self.labels.iter().find_map(|(class, label)| {
            if *class == Class::Member {
                return Some(Contender {
                    name,
                    class: *class,
                    sequence: Sequence(0),
                    guid: Some(guid_of_length(name, &[36, 32])?),
                });
            }
            let (guid, sequence) = match self.mode(*class) {
                NodeMode::EphemeralSequential => Sequence::split_off(name, label)?,
                _ => (name, Sequence(0)),
            };
            Some(Contender {
                name,
                class: *class,
                sequence,
                guid: self.parse_guid(guid)?,
            })
        })
    }

    /// Reads all that stands before the label: `Some(None)` if that is rightly nothing.
    fn parse_guid(&self, text: &str) -> Option<Option<Uuid>> {
        match self.dialect {
            // Without protection, as older Curators and many home-grown recipes write it.
            Dialect::Curator if text.is_empty() => Some(None),
            Dialect::Curator => {
                let guid = text.strip_prefix(PROTECTION)?.strip_suffix('-')?;
                // go-zookeeper leaves out the dashes.
                guid_of_length(guid, &[36, 32]).map(Some)
            }
            Dialect::Kazoo => guid_of_length(text, &[32]).map(Some),
        }
    }
}

/// The length tells the form: 32 is bare hexadecimal, 36 has the four dashes. The others that the
/// `uuid` crate knows, in braces or as a URN, are longer.
fn guid_of_length(text: &str, lengths: &[usize]) -> Option<Uuid> {
    lengths
        .contains(&text.len())
        .then(|| Uuid::try_parse(text).ok())
        .flatten()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const GUID: Uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    const DASHED: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const PLAIN: &str = "0123456789abcdef0123456789abcdef";

    fn named(name: &str) -> Grammar {
        Grammar::mutex(Dialect::Curator, Some(LockName::new(name).expect("good")))
    }

    /// The bytes that Curator, kazoo and go-zookeeper put into ZooKeeper.
    #[test]
    fn golden_names() {
        let (curator, kazoo) = (Dialect::Curator, Dialect::Kazoo);
        let lease = Grammar::lease(curator);
        for (grammar, class, prefix) in [
            (
                Grammar::mutex(curator, None),
                Class::Exclusive,
                format!("_c_{DASHED}-lock-"),
            ),
            (
                named("orders-"),
                Class::Exclusive,
                format!("_c_{DASHED}-orders-"),
            ),
            (
                Grammar::rw(curator),
                Class::Read,
                format!("_c_{DASHED}-__READ__"),
            ),
            (
                Grammar::rw(curator),
                Class::Write,
                format!("_c_{DASHED}-__WRIT__"),
            ),
            (lease.clone(), Class::Lease, format!("_c_{DASHED}-lease-")),
            (
                Grammar::mutex(kazoo, None),
                Class::Exclusive,
                format!("{PLAIN}__lock__"),
            ),
            (Grammar::rw(kazoo), Class::Read, format!("{PLAIN}__rlock__")),
            (Grammar::rw(kazoo), Class::Write, format!("{PLAIN}__lock__")),
        ] {
            assert_eq!(grammar.prefix(GUID, class), prefix);
            let name = format!("{prefix}0000000007");
            let read = Contender {
                name: &name,
                class,
                sequence: Sequence(7),
                guid: Some(GUID),
            };
            assert_eq!(grammar.parse(&name), Some(read));
        }
        let lease = Grammar::lease(kazoo);
        assert_eq!(lease.prefix(GUID, Class::Lease), PLAIN);
        assert!(lease.parse(PLAIN).is_some());
        assert_eq!(lease.parse("__lock__"), None);
    }

    #[test]
    fn reads_its_relatives() {
        let curator = Grammar::mutex(Dialect::Curator, None);
        for (name, guid) in [
            (format!("_c_{DASHED}-lock-0000000007"), Some(GUID)),
            (format!("_c_{PLAIN}-lock-0000000007"), Some(GUID)),
            ("lock-0000000007".to_owned(), None),
        ] {
            let read = curator.parse(&name).expect(&name);
            assert_eq!((read.sequence, read.guid), (Sequence(7), guid));
        }
        let kazoo = Grammar::mutex(Dialect::Kazoo, None);
        let name = format!("{PLAIN}__lock__-2147483648");
        let read = kazoo.parse(&name).expect("past the end");
        assert_eq!(read.sequence, Sequence(i32::MIN));
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
            "-lock-0000000007",
            "_c_-lock-0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-b-lock-0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-lock-000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-lease-0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-block-0000000007",
            "_c_0123456789ab-cdef-0123-456789abcdef01-lock-0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdefäx-lock-0000000007",
            "_c_{01234567-89ab-cdef-0123-456789abcdef}-lock-0000000007",
            "0123456789abcdef0123456789abcdef__lock__0000000007",
            "x-72057594037927936-0000000007",
        ] {
            assert_eq!(curator.parse(name), None, "{name}");
        }
        let kazoo = Grammar::rw(Dialect::Kazoo);
        for name in [
            "__lock__0000000007",
            "0123456789abcdef0123456789abcde__lock__0000000007",
            "01234567-89ab-cdef-0123-456789abcdef__lock__0000000007",
            "0123456789abcdef0123456789abcdef__xlock__0000000007",
            // A lease of kazoo's semaphore.
            "0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(kazoo.parse(name), None, "{name}");
        }
    }

    #[test]
    fn refuses_names_that_could_not_be_told_apart() {
        let long = format!("{}-", "x".repeat(MAX_NAME_BYTES));
        for bad in [
            "", "-", "_", "a", "a/b-", "a1", "a--", "a_-", "a\n-", "😀-", "é", "_c_a-", &long,
        ] {
            assert!(LockName::new(bad).expect_err(bad).is_invalid());
        }
        for good in ["lock-", "__lock__", "shard-7-", "é_", "a b-", &long[1..]] {
            assert_eq!(LockName::new(good).expect(good).to_string(), good);
        }
    }

    /// Had `a` been a name beside `a-`, number -2147483647 of the one would have been number
    /// 2147483647 of the other, just where the numbers run out.
    #[test]
    fn a_sign_is_never_taken_for_a_separator() {
        let name = "a_-2147483647";
        assert_eq!(named("a_").parse(name).expect(name).sequence.0, -i32::MAX);
        assert_eq!(
            named("a-").parse("a-2147483647").map(|c| c.sequence.0),
            Some(i32::MAX)
        );
    }

    fn any_name() -> impl Strategy<Value = LockName> {
        // Short ones from few letters, so that two of them are often related.
        let name = prop_oneof!["[ab_.-]{0,3}[ab1][-_]", "[a-zA-Z_.-]{0,10}[a-zA-Z.][-_]"];
        name.prop_filter_map("a mark of Curator's", |name| LockName::new(name).ok())
    }

    fn any_dialect() -> impl Strategy<Value = Dialect> {
        prop_oneof![Just(Dialect::Curator), Just(Dialect::Kazoo)]
    }

    /// Also with numbers near the ends and near where they get longer.
    fn any_number() -> impl Strategy<Value = i32> {
        let near = |at: i32| (-3..=3).prop_map(move |step| at.wrapping_add(step));
        prop_oneof![
            any::<i32>(),
            near(0),
            near(i32::MAX),
            near(1_000_000_000),
            near(-1_000_000_000),
        ]
    }

    proptest! {
        #[test]
        fn round_trip(
            dialect in any_dialect(),
            name in any_name(),
            kind in 0..4_u8,
            guid: u128,
            number in any_number(),
        ) {
            let (grammar, class) = match (kind, dialect) {
                (0, _) => (Grammar::rw(dialect), Class::Read),
                (1, _) => (Grammar::rw(dialect), Class::Write),
                // kazoo's have no number.
                (2, Dialect::Curator) => (Grammar::lease(dialect), Class::Lease),
                _ => (Grammar::mutex(dialect, Some(name)), Class::Exclusive),
            };
            let guid = Uuid::from_u128(guid);
            let name = format!("{}{}", grammar.prefix(guid, class), Sequence(number));
            let sequence = Sequence(number);
            let read = Contender { name: &name, class, sequence, guid: Some(guid) };
            prop_assert_eq!(grammar.parse(&name), Some(read));
        }

        #[test]
        fn two_names_never_share_a_node(
            dialect in any_dialect(),
            a in any_name(),
            b in any_name(),
            guid: u128,
            number in any_number(),
            protected: bool,
        ) {
            prop_assume!(a != b);
            let prefix = if protected || dialect == Dialect::Kazoo {
                Grammar::mutex(dialect, Some(a)).prefix(Uuid::from_u128(guid), Class::Exclusive)
            } else {
                a.to_string()
            };
            let child = format!("{prefix}{}", Sequence(number));
            prop_assert_eq!(Grammar::mutex(dialect, Some(b)).parse(&child), None);
        }

        /// Whatever is read can be written again, so nothing is read that is not a contender.
        #[test]
        fn strangers_are_never_contenders(
            dialect in any_dialect(),
            name in prop_oneof![
                any::<String>(),
                "(_c_)?[0-9a-f-]{30,40}(__)?[lockrREADWIT-]{2,6}(__)?-?[0-9]{8,11}",
            ],
        ) {
            for grammar in [Grammar::mutex(dialect, None), Grammar::rw(dialect)] {
                let Some(read) = grammar.parse(&name) else { continue };
                let known: Vec<String> = match read.guid {
                    Some(guid) => {
                        let written = grammar.prefix(guid, read.class);
                        let plain = written.replace(&guid.to_string(), &guid.simple().to_string());
                        vec![written, plain]
                    }
                    None => grammar.labels.iter().map(|(_, label)| label.to_string()).collect(),
                };
                let number = read.sequence;
                let written = known.iter().any(|prefix| name == format!("{prefix}{number}"));
                prop_assert!(written, "{name}");
            }
        }

        /// One character more or less makes a stranger of a contender; another one makes a
        /// stranger or another contender.
        #[test]
        fn matching_is_exact(dialect in any_dialect(), guid: u128, at: Index, c: char) {
            let grammar = Grammar::mutex(dialect, None);
            let prefix = grammar.prefix(Uuid::from_u128(guid), Class::Exclusive);
            let name = format!("{prefix}0000000007");
            let at = at.index(name.len());
            let (before, after) = (&name[..at], &name[at + 1..]);
            let longer = format!("{before}{c}{}", &name[at..]);
            let shorter = format!("{before}{after}");
            prop_assert_eq!(grammar.parse(&longer), None);
            prop_assert_eq!(grammar.parse(&shorter), None);
            let other = format!("{before}{c}{after}");
            // The GUID's digits may have any case.
            if !other.eq_ignore_ascii_case(&name) {
                let read = |name| grammar.parse(name).map(|read| (read.guid, read.sequence));
                prop_assert_ne!(read(&other), read(&name));
            }
        }
    }
}
