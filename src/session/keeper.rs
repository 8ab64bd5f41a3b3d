//! The seam: the few operations that the engine asks of ZooKeeper.
//!
//! Above it stand the session and the locks, below it the `zookeeper` crate and the link
//! ([`super::zk`]) or, in tests that need thousands of interleavings, a store in memory
//! ([`super::memory`]).

use std::sync::Arc;
use std::time::Duration;

use crate::link::Epoch;

/// What an operation came to, when it did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeeperError {
    /// The connection broke before the answer came: it may have been done or not.
    #[error("the connection was lost before ZooKeeper answered")]
    ConnectionLoss,
    #[error("no such node")]
    NoNode,
    #[error("the node exists already")]
    NodeExists,
    #[error("the node has children")]
    NotEmpty,
    #[error("an ephemeral node cannot have children")]
    EphemeralParent,
    #[error("access refused")]
    NoAuth,
    #[error("credentials refused")]
    AuthFailed,
    #[error("invalid ACL")]
    InvalidAcl,
    #[error("the server refused the request as malformed or too large")]
    BadArguments,
    #[error("the node was changed meanwhile")]
    BadVersion,
    #[error("no such watch")]
    NoWatch,
    #[error("{0}")]
    Other(String),
}

/// The answer to an operation.
pub(crate) type Answer<T> = Result<T, KeeperError>;

/// What kind of node to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeMode {
    Persistent,
    Ephemeral,
    EphemeralSequential,
}

/// What the engine needs to know of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeStat {
    /// The transaction that created the node.
    pub(crate) czxid: i64,
    /// The session that the node lives with; 0 for a persistent one.
    pub(crate) ephemeral_owner: i64,
    /// Counts changes of the data.
    pub(crate) version: i32,
    /// Counts children that came or went.
    pub(crate) child_changes: i32,
    pub(crate) children: i32,
    pub(crate) data_bytes: i32,
}

/// The two kinds of one-shot watches that a read can leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WatchKind {
    /// Left by `data` and `stat`: fires when the node is deleted or its data set; left by `stat`
    /// on a missing node, when it is created.
    Data,
    /// Left by `children`: fires when a child comes or goes, or the node is deleted.
    Children,
}

/// What a watch told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchEvent {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
    /// The watch was taken off the server on behalf of somebody else: read again.
    Removed,
}

/// ZooKeeper, as the engine sees it. Every call blocks its thread until it is answered, and is
/// answered in bounded time: when the connection breaks, with [`KeeperError::ConnectionLoss`].
///
/// Paths are absolute and without chroot. Every node gets the client's ACL.
pub(crate) trait Keeper: Send + Sync {
    /// Creates a node and returns its path, with the number that a sequential one was given.
    fn create(&self, path: &str, data: &[u8], mode: NodeMode) -> Answer<String>;
    /// With a version, only if the data has it still.
    fn delete(&self, path: &str, version: Option<i32>) -> Answer<()>;
    /// Names of the children. With `watch`, a [`WatchKind::Children`] is left (not on `NoNode`).
    fn children(&self, path: &str, watch: bool) -> Answer<Vec<String>>;
    /// The data. With `watch`, a [`WatchKind::Data`] is left (not on `NoNode`).
    fn data(&self, path: &str, watch: bool) -> Answer<(Vec<u8>, NodeStat)>;
    /// Replaces the data; with a version, only if it has it still.
    fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Answer<NodeStat>;
    /// The stat. With `watch`, a [`WatchKind::Data`] is left, *also on a missing node*.
    fn stat(&self, path: &str, watch: bool) -> Answer<Option<NodeStat>>;
    /// Creates the chroot, if there is one and it is missing.
    fn make_root(&self) -> Answer<()>;
    /// Takes off the server what `children` or `data` left.
    fn unwatch(&self, path: &str, kind: WatchKind) -> Answer<()>;

    /// Lets calls through on the connection that was announced for `epoch`.
    fn open(&self, epoch: &Epoch);
    /// Ends a session that we do not believe in any more; a new one is made.
    fn abandon(&self, epoch: &Epoch);
    /// Ends the session and every thread below the seam, within `bound`.
    fn close(&self, bound: Duration);
}

/// One operation as a value, so that it can be carried to another thread.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Create {
        path: String,
        data: Arc<[u8]>,
        mode: NodeMode,
    },
    Delete {
        path: String,
        version: Option<i32>,
    },
    Children {
        path: String,
        watch: bool,
    },
    Data {
        path: String,
        watch: bool,
    },
    Set {
        path: String,
        data: Arc<[u8]>,
        version: Option<i32>,
    },
    Stat {
        path: String,
        watch: bool,
    },
    Unwatch {
        path: String,
        kind: WatchKind,
    },
    MakeRoot,
}

/// What a [`Request`] came to.
#[derive(Debug)]
pub(crate) enum Reply {
    Path(String),
    Done,
    Children(Vec<String>),
    Data(Vec<u8>, NodeStat),
    Stat(Option<NodeStat>),
}

impl Request {
    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::Delete {
            path: path.into(),
            version: None,
        }
    }

    pub(crate) fn stat(path: impl Into<String>) -> Self {
        Self::Stat {
            path: path.into(),
            watch: false,
        }
    }

    pub(crate) fn run(&self, keeper: &dyn Keeper) -> Answer<Reply> {
        match self {
            Self::Create { path, data, mode } => keeper.create(path, data, *mode).map(Reply::Path),
            Self::Delete { path, version } => keeper.delete(path, *version).map(|()| Reply::Done),
            Self::Children { path, watch } => keeper.children(path, *watch).map(Reply::Children),
            Self::Data { path, watch } => keeper
                .data(path, *watch)
                .map(|(data, stat)| Reply::Data(data, stat)),
            Self::Set {
                path,
                data,
                version,
            } => keeper
                .set(path, data, *version)
                .map(|stat| Reply::Stat(Some(stat))),
            Self::Stat { path, watch } => keeper.stat(path, *watch).map(Reply::Stat),
            Self::Unwatch { path, kind } => keeper.unwatch(path, *kind).map(|()| Reply::Done),
            Self::MakeRoot => keeper.make_root().map(|()| Reply::Done),
        }
    }
}
