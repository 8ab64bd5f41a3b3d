//! A folder of nodes, as the recipes see it: a small client that knows paths and names, and no
//! rule.

use std::sync::Arc;

use zklock_protocol::{Children, CreateMode, Stat, WatchKind};

use crate::error::{Error, Result};
use crate::session::{
    Batching, CallError, Contact, Created, Refusal, Session, Step, Waiter, Wake, Watch,
    find_all_created, found,
};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::znode::names::{Class, Dialect, Grammar, fresh_guid};
use crate::znode::path::{LockPath, split};

/// So many creates go by themselves in a folder that has refused one for another reason than that it
/// was missing. Where a quota is nearly used up, every other create may be refused.
const APART: u32 = 1_000;

/// See the [module](self).
pub(crate) struct Folder {
    session: Arc<Session>,
    path: LockPath,
    grammar: Grammar,
    /// The names of our nodes bear a mark; see [`fresh_guid`].
    marks: bool,
    /// So many creates in it must be done before the next one is as good as certain to be done, too.
    unsure: AtomicU32,
}

impl Folder {
    pub(crate) fn new(session: &Arc<Session>, path: LockPath, grammar: Grammar) -> Arc<Self> {
        Self::of_marked_nodes(session, path, grammar, false)
    }

    /// With nodes whose names bear a mark, or not; see [`fresh_guid`].
    pub(super) fn of_marked_nodes(
        session: &Arc<Session>,
        path: LockPath,
        grammar: Grammar,
        marks: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            session: Arc::clone(session),
            path,
            grammar,
            marks,
            unsure: AtomicU32::new(1),
        })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    pub(crate) fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    pub(crate) fn child(&self, name: &str) -> String {
        self.path.child(name)
    }

    /// Repeats a step until it has a result, over broken connections and lost sessions.
    pub(crate) fn retry<T>(
        &self,
        waiter: &Waiter<'_>,
        step: impl FnMut(&Contact<'_>) -> Step<Option<T>>,
    ) -> Result<T> {
        waiter.retry(self.path.as_str(), step)
    }

    /// One look on the connection that is open now, for people and tools.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Contact<'_>) -> Step<T>) -> Result<T> {
        let looked = self.session.contact().and_then(|contact| look(&contact));
        looked.map_err(|error| self.failure(error))
    }

    /// The error of a call that is not tried again.
    pub(crate) fn failure(&self, error: CallError) -> Error {
        error.into_error(self.session.target(), self.path.as_str())
    }

    /// ZooKeeper's refusal, with the place and what to do.
    pub(crate) fn refusal(&self, error: Refusal) -> Error {
        error.at(self.path.as_str())
    }

    /// A create in it was done, or refused as it was missing.
    pub(super) fn seen(&self, stands: bool) {
        let unsure = self.unsure.load(Ordering::Relaxed);
        let now = if stands {
            unsure.saturating_sub(1)
        } else {
            unsure.max(1)
        };
        // Two at once may count as one.
        if now != unsure {
            self.unsure.store(now, Ordering::Relaxed);
        }
    }

    /// As the result of a create in it: one that was refused, for its quota or by an ACL, is not
    /// soon followed by others that are sure to be done.
    pub(super) fn failed(&self, error: CallError) -> CallError {
        if let CallError::Refused(_) = error {
            self.unsure.store(APART, Ordering::Relaxed);
        }
        error
    }

    /// A create that was refused would have all that shares its packet asked again.
    pub(super) fn batching(&self) -> Batching {
        if self.unsure.load(Ordering::Relaxed) == 0 {
            Batching::Allowed
        } else {
            Batching::Never
        }
    }

    // ---- steps ----

    /// A name that nobody else has: a fresh GUID for each create, so that a node found by it can
    /// only be that create's.
    pub(super) fn fresh_name(&self, class: Class) -> String {
        self.grammar.prefix(fresh_guid(self.marks), class)
    }

    /// Finds out what became of creates of these names that were not answered: those that were done.
    pub(super) fn find_all(&self, contact: &Contact<'_>, names: &[&str]) -> Step<Vec<Created>> {
        find_all_created(contact, self.path.as_str(), names, contact.epoch())
    }

    /// How many creates with so much data are sent at once, so that what one caller asks for never
    /// fills a connection for long, and others' requests come in between.
    pub(super) fn creates_at_once(&self, data_bytes: usize) -> usize {
        /// Of all that is sent at once.
        const MOST_BYTES: usize = 512 << 10;
        /// A name, an access list, lengths.
        const OVERHEAD: usize = 256;
        /// In a folder that may be missing: then all are refused.
        const FIRST: usize = 16;
        if self.batching() == Batching::Never {
            return FIRST;
        }
        let each = self.path.as_str().len() + data_bytes + OVERHEAD;
        (MOST_BYTES / each).max(1)
    }

    /// Creates the folder, and before it what is missing above it.
    pub(crate) fn make(&self, contact: &Contact<'_>) -> Step<()> {
        // kazoo makes a folder once and never again: nobody may take it for one that can go.
        let marked = self.grammar.dialect() == Dialect::Curator;
        make_missing(contact, self.path.as_str(), &Arc::from([]), marked)
    }

    /// The names in the folder; `None` if it does not exist.
    pub(crate) fn list(&self, contact: &Contact<'_>) -> Step<Option<Children>> {
        found(contact.children(self.path.as_str()))
    }

    /// As [`Folder::list`]; leaves `watch`, which is on this folder.
    pub(super) fn list_and_watch(
        &self,
        contact: &Contact<'_>,
        watch: &Watch,
    ) -> Step<Option<Children>> {
        found(contact.watch_children(watch))
    }

    pub(crate) fn stat(&self, contact: &Contact<'_>, name: &str) -> Step<Option<Stat>> {
        contact.stat(&self.child(name))
    }

    /// An interest in the folder's children.
    pub(crate) fn watch(&self, contact: &Contact<'_>, wake: Option<Wake>) -> Watch {
        Watch::new(contact, self.path.as_str(), WatchKind::CHILDREN, wake)
    }
}

/// Creates a persistent node, and first the folders that are missing above it. It may exist
/// already. It begins with the node itself, so that folders which exist are never written to: their
/// parents' ACLs may forbid it.
pub(crate) fn make_node(contact: &Contact<'_>, path: &str, data: &Arc<[u8]>) -> Step<()> {
    make_missing(contact, path, data, false)
}

/// As [`make_node`]. If `marked`, each folder that is made has its data set once: nobody who reads
/// it sees a difference, but its version says to a clean-up that it is one of ours.
fn make_missing(contact: &Contact<'_>, path: &str, data: &Arc<[u8]>, marked: bool) -> Step<()> {
    let nothing: Arc<[u8]> = Arc::from([]);
    let mut missing = vec![path];
    while let Some(path) = missing.last().copied() {
        let data = if missing.len() == 1 { data } else { &nothing };
        match contact.create(path, data, CreateMode::PERSISTENT) {
            Ok(_) => {
                if marked {
                    mark(contact, path)?;
                }
                missing.pop();
            }
            Err(CallError::Refused(Refusal::NodeExists)) => {
                missing.pop();
            }
            Err(CallError::Refused(Refusal::NoNode)) => match split(path) {
                // Only a missing chroot leaves the root without a parent.
                ("", _) => return Err(CallError::Refused(Refusal::NoNode)),
                (parent, _) => missing.push(parent),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A folder without its mark is never removed.
fn mark(contact: &Contact<'_>, path: &str) -> Step<()> {
    match contact.set(path, &[], Some(0)) {
        Ok(_) | Err(CallError::Refused(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
