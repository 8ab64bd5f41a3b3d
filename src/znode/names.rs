//! The names of nodes: what we write, and what we recognise.

use std::borrow::Cow;

use uuid::Uuid;

use zklock_protocol::CreateMode;

use crate::znode::label::{LockName, PROTECTION, RwLabels, guid_of_length};
use crate::znode::sequence::Sequence;

/// Whose node names a lock uses. All programs that share a lock's folder must use the same: each
/// ignores the other's nodes, so mixing dialects lets two hold at once.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// use zklock::{Dialect, Semaphore};
///
/// // Shares its permits with Python's `client.Semaphore("/limits/geocoder", max_leases=4)`.
/// let workers = Semaphore::builder(&client, "/limits/geocoder")
///     .max(4)
///     .dialect(Dialect::Kazoo)
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Apache Curator's, byte for byte: `_c_<uuid>-lock-0000000001`. Programs on Curator (Java) and
    /// go-zookeeper can queue in the same folder.
    ///
    /// A bare GUID of 32 hex digits, with or without a dash after it, counts as a contender's, too:
    /// `<32 hex digits>-lock-0000000001`. So a kazoo lock whose class has both `_NODE_NAME` and
    /// `_EXCLUDE_NAMES` set to `-lock-` can queue with them. kazoo's lock as it comes cannot.
    #[default]
    Curator,
    /// kazoo's (Python): `<32 hex digits>__lock__0000000001`.
    Kazoo,
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
    /// A candidate's place in the queue of an election.
    Leader,
    /// One lease of a semaphore.
    Lease,
    /// A member of a double barrier.
    Member,
    /// The one node that everybody tries to create.
    Sole,
}

/// One contender, read from a child's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContenderName<'a> {
    pub(crate) name: &'a str,
    pub(crate) class: Class,
    pub(crate) sequence: Sequence,
    /// `None` for a node without protection.
    pub(super) guid: Option<Uuid>,
}

/// The version of a GUID that is marked. Curator and kazoo write random ones, which are version 4,
/// and read none.
const MARK: usize = 8;

/// A GUID that nobody else has. Its version tells all who read the name something of the node: in
/// a queue, that it may be kept when nobody is inside, and then gives way to whoever queues behind
/// it; of a member, that it is one of this library's.
pub(crate) fn fresh_guid(marked: bool) -> Uuid {
    let guid = Uuid::new_v4();
    if marked {
        uuid::Builder::from_custom_bytes(guid.into_bytes()).into_uuid()
    } else {
        guid
    }
}

impl ContenderName<'_> {
    /// Of a contender in a queue: whether it may be kept with nobody inside.
    pub(crate) fn may_linger(&self) -> bool {
        self.is_marked()
    }

    /// Of a member: whether it is this library's. One that is not may be, too.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_marked()
    }

    fn is_marked(&self) -> bool {
        self.guid.is_some_and(|guid| guid.get_version_num() == MARK)
    }
}

/// What comes before a contender's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// A protected GUID is written; a bare one and none at all are read as well.
    Protected,
    /// A bare GUID.
    Bare,
    /// A bare GUID is written, and anything is read.
    Any,
}

/// The names of one lock's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Grammar {
    dialect: Dialect,
    beginning: Beginning,
    /// The text between GUID and number, for each class. No name can be read in two ways.
    labels: Vec<(Class, Cow<'static, str>)>,
}

impl Grammar {
    pub(crate) fn mutex(dialect: Dialect, name: Option<LockName>) -> Self {
        let label = match (name, dialect) {
            (Some(name), _) => Cow::Owned(name.into_label()),
            (None, Dialect::Curator) => Cow::Borrowed("lock-"),
            (None, Dialect::Kazoo) => Cow::Borrowed("__lock__"),
        };
        Self::of(dialect, vec![(Class::Exclusive, label)])
    }

    /// kazoo's `Election` is a mutex of its own, by its names, too.
    pub(crate) fn election(dialect: Dialect) -> Self {
        let label = match dialect {
            Dialect::Curator => "latch-",
            Dialect::Kazoo => "__lock__",
        };
        Self::of(dialect, vec![(Class::Leader, label.into())])
    }

    pub(crate) fn rw(dialect: Dialect) -> Self {
        let (read, write) = match dialect {
            Dialect::Curator => ("__READ__", "__WRIT__"),
            Dialect::Kazoo => ("__rlock__", "__lock__"),
        };
        let labels = vec![(Class::Read, read.into()), (Class::Write, write.into())];
        Self::of(dialect, labels)
    }

    /// A read-write lock of somebody's own recipe.
    pub(crate) fn rw_labelled(RwLabels { read, write }: RwLabels) -> Self {
        let labels = vec![(Class::Read, read.into()), (Class::Write, write.into())];
        Self {
            beginning: Beginning::Any,
            ..Self::of(Dialect::default(), labels)
        }
    }

    /// kazoo's leases are plain nodes without label and number.
    pub(crate) fn lease(dialect: Dialect) -> Self {
        let label = match dialect {
            Dialect::Curator => "lease-",
            Dialect::Kazoo => "",
        };
        Self::of(dialect, vec![(Class::Lease, label.into())])
    }

    /// Members are plain nodes, each a bare GUID.
    pub(crate) fn member(dialect: Dialect) -> Self {
        Self::of(dialect, vec![(Class::Member, "".into())])
    }

    /// No names but that of the one node, which is the lock's path.
    pub(crate) fn sole() -> Self {
        Self::of(Dialect::Curator, Vec::new())
    }

    fn of(dialect: Dialect, labels: Vec<(Class, Cow<'static, str>)>) -> Self {
        let beginning = match dialect {
            Dialect::Curator => Beginning::Protected,
            Dialect::Kazoo => Beginning::Bare,
        };
        Self {
            dialect,
            beginning,
            labels,
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// What tells this lock from others in its folder; nothing if it has the names of its dialect.
    #[cfg(not(shuttle))]
    pub(crate) fn own_labels(&self) -> String {
        let labels = self.labels.iter().map(|(_, label)| match label {
            Cow::Borrowed(_) => "",
            Cow::Owned(label) if self.is_default(label) => "",
            Cow::Owned(label) => label.as_str(),
        });
        // No label has a slash.
        labels
            .filter(|label| !label.is_empty())
            .collect::<Vec<_>>()
            .join("/")
    }

    /// The names of the other kind of lock that may be in the same folder by mistake: of a mutex, a
    /// read-write lock's; of that, a mutex's; of an election, those of Curator's `LeaderSelector`,
    /// which is a mutex. Not of locks whose names are their users' own, which share folders on
    /// purpose.
    pub(crate) fn of_other_kind(&self) -> Option<Self> {
        let (class, _) = self.labels.first()?;
        let is_own = |label: &Cow<'_, str>| matches!(label, Cow::Owned(_));
        if self.labels.iter().any(|(_, label)| is_own(label)) {
            return None;
        }
        match (class, self.dialect) {
            (Class::Exclusive, _) | (Class::Leader, Dialect::Kazoo) => Some(Self::rw(self.dialect)),
            (Class::Read | Class::Write, _) | (Class::Leader, Dialect::Curator) => {
                Some(Self::mutex(self.dialect, None))
            }
            (Class::Lease | Class::Member | Class::Sole, _) => None,
        }
    }

    /// What people call a lock with these names.
    pub(crate) fn kind(&self) -> &'static str {
        match self.labels.first() {
            Some((Class::Exclusive, _)) => "a mutex",
            Some((Class::Read | Class::Write, _)) => "a read-write lock",
            Some((Class::Leader, _)) => "an election",
            _ => "another lock",
        }
    }

    #[cfg(not(shuttle))]
    fn is_default(&self, label: &str) -> bool {
        let of_dialect = Self::mutex(self.dialect, None);
        self.beginning != Beginning::Any && of_dialect.labels.iter().any(|(_, own)| own == label)
    }

    /// The kind of node that a contender of this class is.
    pub(crate) fn mode(&self, class: Class) -> CreateMode {
        match (class, self.dialect) {
            (Class::Lease, Dialect::Kazoo) | (Class::Member | Class::Sole, _) => {
                CreateMode::EPHEMERAL
            }
            _ => CreateMode::EPHEMERAL_SEQUENTIAL,
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
        match self.beginning {
            Beginning::Protected if class == Class::Member => guid.hyphenated().to_string(),
            Beginning::Protected => format!("{PROTECTION}{}-{label}", guid.hyphenated()),
            Beginning::Bare | Beginning::Any => format!("{}{label}", guid.simple()),
        }
    }

    /// Reads a child's name; `None` if it is not a contender for this lock. Other people's nodes
    /// are nobody's business, so no name is an error.
    pub(crate) fn parse<'a>(&self, name: &'a str) -> Option<ContenderName<'a>> {
        self.labels.iter().find_map(|(class, label)| {
            if *class == Class::Member {
                return Some(ContenderName {
                    name,
                    class: *class,
                    sequence: Sequence(0),
                    guid: Some(guid_of_length(name, &[36, 32])?),
                });
            }
            let (guid, sequence) = match self.mode(*class) {
                CreateMode::EPHEMERAL_SEQUENTIAL => Sequence::split_off(name, label)?,
                _ => (name, Sequence(0)),
            };
            Some(ContenderName {
                name,
                class: *class,
                sequence,
                guid: self.parse_guid(guid)?,
            })
        })
    }

    /// The number of a sequential node, if its name ends as a contender's does. What comes before
    /// the label may still make it another's.
    pub(crate) fn number(&self, name: &str) -> Option<Sequence> {
        let number = |label: &str| Sequence::split_off(name, label).map(|(_, number)| number);
        self.labels.iter().find_map(|(_, label)| number(label))
    }

    /// Reads everything before the label: `Some(None)` if there is rightly no GUID.
    fn parse_guid(&self, text: &str) -> Option<Option<Uuid>> {
        match self.beginning {
            // Without protection, as older Curators and many home-grown recipes write it.
            Beginning::Protected if text.is_empty() => Some(None),
            Beginning::Protected => {
                let (guid, lengths) = match text.strip_prefix(PROTECTION) {
                    // go-zookeeper leaves out the dashes.
                    Some(protected) => (protected.strip_suffix('-')?, [36, 32].as_slice()),
                    // kazoo writes no dash after it, but its label may begin with one.
                    None => (text.strip_suffix('-').unwrap_or(text), [32].as_slice()),
                };
                guid_of_length(guid, lengths).map(Some)
            }
            Beginning::Bare => guid_of_length(text, &[32]).map(Some),
            Beginning::Any => Some(guid_of_length(text, &[32])),
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
