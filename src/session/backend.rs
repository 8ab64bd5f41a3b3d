//! The seam: the few operations that the engine asks of ZooKeeper.
//!
//! Above it are the session and the locks. Below it is the link ([`super::zk`]) or, in tests that
//! need thousands of interleavings, a store in memory ([`super::memory`]).

use std::sync::Arc;
use std::time::Duration;

#[cfg(not(shuttle))]
use zklock_protocol::ErrorCode;
use zklock_protocol::{Children, CreateMode, Stat, WatchKind};

#[cfg(not(shuttle))]
use super::refusal::{Asked, meaning};
pub(crate) use super::refusal::{NotNow, Refusal};
use crate::link::Epoch;
pub(crate) use crate::link::voice::Company;

/// The result of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// The server refused it: it was not done, and would not be the next time.
    Refused(Refusal),
    /// The next time it may be.
    NotNow(NotNow),
    /// The connection broke before the answer came: it may have been done or not.
    Lost,
    /// `breaks` connections in a row broke while they carried this request of `bytes` bytes, and
    /// none answered it. To repeat it would break the next one, for everybody.
    Poison { bytes: usize, breaks: u32 },
}

#[cfg(not(shuttle))]
impl NoReply {
    /// A server's error, to whoever has `asked`.
    pub(super) fn of(asked: Asked, error: ErrorCode) -> Self {
        match meaning(asked, error) {
            Ok(refusal) => Self::Refused(refusal),
            Err(not_now) => Self::NotNow(not_now),
        }
    }
}

/// The answer to one request, and its place in what the server said on this connection.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<Reply, NoReply>,
    /// How many events of watches the server had sent before this answer, over the life of the
    /// backend. A caller looks at its answer on its own thread, so an event that came after it may
    /// be handled before it; by this number, and the events' own, their order on the server is
    /// known all the same.
    pub(crate) events_before: u64,
}

impl Answer {
    pub(crate) fn lost() -> Self {
        Self {
            result: Err(NoReply::Lost),
            events_before: 0,
        }
    }
}

/// Waits for the answers to what was sent together.
pub(crate) trait Slot: Send + Sync {
    /// Called exactly once, with one answer for each request, on a thread of the backend or the
    /// one that breaks the connection: may only signal.
    fn answered(&self, answers: Vec<Answer>);
}

/// The connection was not open: nothing was sent, and the slot is never called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotOpen;

/// ZooKeeper, as the engine sees it. Paths are absolute and without chroot; every node gets the
/// client's ACL. Every request is answered in bounded time: when the connection breaks, as lost.
pub(crate) trait Backend: Send + Sync {
    /// Sends `requests` in one write, in this order, if exactly this connection is open. Does not
    /// block.
    fn submit(
        &self,
        connection: u64,
        requests: &[Request],
        company: Company,
        slot: Arc<dyn Slot>,
    ) -> Result<(), NotOpen>;

    /// Whether the ACL of the nodes that we make lets anybody read them, as a check of one asks.
    fn makes_readable_nodes(&self) -> bool;

    /// Has somebody look at the clock of the lease, now or soon after; see
    /// [`LinkObserver::on_clock`](crate::link::LinkObserver::on_clock).
    fn look_soon(&self) {}

    /// Ends a session that we do not believe in any more; a new one is made.
    fn abandon(&self, epoch: &Epoch);
    /// Ends the session and every thread below the seam, within `bound`.
    fn close(&self, bound: Duration);
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Is answered with the node's path, with the number that a sequential one was given, and with
    /// its stat where the server tells it.
    Create {
        path: String,
        data: Arc<[u8]>,
        mode: CreateMode,
    },
    /// With a version, only if the data has it still.
    Delete { path: String, version: Option<i32> },
    /// Names of the children. With `watch`, a [`WatchKind::CHILDREN`] is left (not on `NoNode`).
    Children { path: String, watch: bool },
    /// The data. With `watch`, a [`WatchKind::DATA`] is left (not on `NoNode`).
    Data { path: String, watch: bool },
    /// Replaces the data; with a version, only if it has it still.
    Set {
        path: String,
        data: Arc<[u8]>,
        version: Option<i32>,
    },
    /// The stat. With `watch`, a [`WatchKind::DATA`] is left, *also on a missing node*.
    Stat { path: String, watch: bool },
    /// Takes the watch that `Children` or `Data` left off the server.
    Unwatch { path: String, kind: WatchKind },
    /// All of it or nothing.
    Multi(Vec<Change>),
    /// Answered when the server has caught up with its leader.
    Sync { path: String },
    /// Creates a node of the chroot, at a path from the root of the ensemble.
    MakeRoot { path: String },
}

/// A part of a [`Request::Multi`].
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Create {
        path: String,
        data: Arc<[u8]>,
        mode: CreateMode,
    },
    Delete {
        path: String,
        version: Option<i32>,
    },
    Set {
        path: String,
        data: Arc<[u8]>,
        version: Option<i32>,
    },
    /// The node exists, and with a version, its data has that version.
    Check {
        path: String,
        version: Option<i32>,
    },
}

/// A node that was made.
#[derive(Clone, Debug)]
pub(crate) struct Created {
    pub(crate) path: String,
    /// The transaction that made it, if the server has told.
    pub(crate) czxid: Option<i64>,
}

/// What a [`Request`] came to.
#[derive(Debug)]
pub(crate) enum Reply {
    Created(Created),
    Done,
    Children(Children),
    Data(Vec<u8>, Stat),
    Stat(Option<Stat>),
    /// All changes were made.
    Multi(Vec<Changed>),
    /// None was, as this one was refused.
    Aborted {
        index: usize,
        refusal: Refusal,
    },
}

impl Change {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::Set { path, .. }
            | Self::Check { path, .. } => path,
        }
    }
}

/// What a [`Change`] came to.
#[derive(Debug)]
pub(crate) enum Changed {
    Created(Created),
    /// Deleted, or checked.
    Done,
    Set(Stat),
}

impl Changed {
    /// The node that it made, if it made one.
    pub(crate) fn created(self) -> Option<Created> {
        match self {
            Self::Created(created) => Some(created),
            Self::Done | Self::Set(_) => None,
        }
    }
}

impl Request {
    pub(crate) fn stat(path: impl Into<String>) -> Self {
        Self::Stat {
            path: path.into(),
            watch: false,
        }
    }

    pub(crate) fn children(path: impl Into<String>) -> Self {
        Self::Children {
            path: path.into(),
            watch: false,
        }
    }

    /// What is asked, as far as the meaning of a no depends on it.
    #[cfg(not(shuttle))]
    pub(super) fn asked(&self) -> Asked {
        match self {
            Self::Create { .. } | Self::MakeRoot { .. } => Asked::Create,
            Self::Delete { .. } => Asked::Delete,
            Self::Set { .. } => Asked::Set,
            Self::Data { .. } | Self::Stat { .. } => Asked::Look,
            Self::Children { .. } => Asked::List,
            Self::Unwatch { .. } => Asked::Unwatch,
            Self::Multi(_) => Asked::Changes,
            Self::Sync { .. } => Asked::Sync,
        }
    }

    /// The watch that this request leaves, if it succeeds.
    pub(crate) fn watch(&self) -> Option<(&str, WatchKind)> {
        match self {
            Self::Children { path, watch: true } => Some((path, WatchKind::CHILDREN)),
            Self::Data { path, watch: true } | Self::Stat { path, watch: true } => {
                Some((path, WatchKind::DATA))
            }
            _ => None,
        }
    }
}
