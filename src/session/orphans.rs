//! What was left behind in ZooKeeper and must still go: the reaper.
//!
//! Nodes whose delete was not confirmed, nodes that a lost create may have made, watches nobody
//! waits for any more. Each is tried until the server has confirmed it or its epoch has ended, in
//! which case the server removes it together with the session.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Session;
use super::call::CallError;
use super::keeper::{KeeperError, Reply, Request, WatchEvent, WatchKind};
use super::standing::Contact;
use crate::link::Epoch;
use crate::sync::{self, Mutex};
use crate::znode::path;

/// One thing to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Orphan {
    /// A node of ours.
    Node { path: String },
    /// What a create may have made: a child of `folder` whose name begins with `prefix`, which
    /// holds the GUID of that one create.
    Created { folder: String, prefix: String },
    /// A node of ours whose name is not: others use the same.
    Plain { path: String, proof: Proof },
    /// A watch on the server.
    Watch { path: String, kind: WatchKind },
}

/// By what a node of ours is told from others of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Its data, which holds a GUID.
    Data(Arc<[u8]>),
    /// The transaction that created it.
    Made(i64),
}

impl Orphan {
    /// For a sequential create at `path`.
    pub(super) fn created(path: &str) -> Self {
        let (folder, prefix) = path::split(path);
        Self::Created {
            folder: folder.to_owned(),
            prefix: prefix.to_owned(),
        }
    }
}

#[derive(Default)]
pub(super) struct Orphans {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Orphan, Arc<Epoch>)>,
    /// A worker is at it. Set and cleared together with the look at the queue, so that whoever
    /// adds an orphan either is seen by that worker or starts the next one.
    sweeping: bool,
    /// A reason to look again came while `sweeping`.
    again: bool,
}

impl Session {
    /// Takes over the removal of `orphan`, which belongs to `epoch`.
    pub(crate) fn reap(self: &Arc<Self>, orphan: Orphan, epoch: &Arc<Epoch>) {
        self.orphans
            .state
            .lock()
            .queue
            .push_back((orphan, Arc::clone(epoch)));
        self.sweep_orphans();
    }

    /// Starts a sweep, or has the one that is on its way not stop before it has looked again.
    pub(super) fn sweep_orphans(self: &Arc<Self>) {
        let mut state = self.orphans.state.lock();
        // Before the look at the queue: the sweep may have taken the last orphan out, and be about
        // to put it back.
        if state.sweeping {
            state.again = true;
            return;
        }
        if state.queue.is_empty() {
            return;
        }
        state.sweeping = true;
        drop(state);
        let session = Arc::clone(self);
        self.workers.submit(Box::new(move || session.sweep()));
    }

    fn sweep(self: &Arc<Self>) {
        loop {
            let (orphan, epoch) = {
                let mut state = self.orphans.state.lock();
                let Some(next) = state.queue.pop_front() else {
                    state.sweeping = false;
                    return;
                };
                next
            };
            if !epoch.lease().alive(sync::now()) {
                continue;
            }
            match self.remove(&orphan, &epoch) {
                Ok(()) => {}
                Err(CallError::Refused(error)) => log::warn!(
                    "{}: cannot remove {orphan:?}: {error}; it stays until the session ends",
                    self.target()
                ),
                Err(CallError::NotSent(_) | CallError::Unknown(_) | CallError::Left(_)) => {
                    let mut state = self.orphans.state.lock();
                    state.queue.push_front((orphan, epoch));
                    // Opening a connection sweeps. If that happened between our failed call and
                    // here, it left word in `again`.
                    if !std::mem::take(&mut state.again) {
                        state.sweeping = false;
                        return;
                    }
                }
            }
        }
    }

    fn remove(self: &Arc<Self>, orphan: &Orphan, epoch: &Arc<Epoch>) -> Result<(), CallError> {
        match orphan {
            Orphan::Node { path } => self.remove_node(path),
            Orphan::Created { folder, prefix } => {
                match find_created(|request| self.call(&request), folder, prefix, epoch)? {
                    Some(name) => self.remove_node(&format!("{folder}/{name}")),
                    None => Ok(()),
                }
            }
            Orphan::Plain { path, proof } => {
                if find_plain(|request| self.call(&request), path, proof, epoch)? {
                    self.remove_node(path)?;
                }
                Ok(())
            }
            Orphan::Watch { path, kind } => self.remove_watch(path, *kind),
        }
    }

    fn remove_node(self: &Arc<Self>, path: &str) -> Result<(), CallError> {
        match self.call(&Request::delete(path)) {
            Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn remove_watch(self: &Arc<Self>, path: &str, kind: WatchKind) -> Result<(), CallError> {
        // One watch on the server serves all who wait for it in this session.
        if self.watches.entrust(path, kind, self.connection()) {
            return Ok(());
        }
        let request = Request::Unwatch {
            path: path.to_owned(),
            kind,
        };
        let result = match self.call(&request) {
            Ok(_) | Err(CallError::Refused(KeeperError::NoWatch | KeeperError::NoNode)) => Ok(()),
            Err(error) => Err(error),
        };
        // Somebody may have added an interest and set the watch between the look and the removal,
        // which took it off again. They were added before they read, so they are found now; those
        // who come later read after the removal.
        self.watches.fire_kind(path, kind, WatchEvent::Removed);
        result
    }
}

/// Looks for what a create, whose reply was lost, may have made: a child of `folder` that begins
/// with `prefix` and lives with the session of `epoch`.
///
/// A list may come from a server that lags behind the one that took the create. So a write is made
/// first (a delete of a node that cannot exist, refused with `NoNode`): once it is answered, this
/// connection's server has seen everything that was committed before.
///
/// That the node's owner is checked is not a formality: a name can be found that a dying session
/// made, and counting it as ours let two hold at once in Curator (CURATOR-498).
pub(crate) fn find_created(
    mut call: impl FnMut(Request) -> Result<(Reply, Contact), CallError>,
    folder: &str,
    prefix: &str,
    epoch: &Epoch,
) -> Result<Option<String>, CallError> {
    flush(&mut call, &format!("{folder}/{prefix}flush"))?;
    let request = Request::Children {
        path: folder.to_owned(),
        watch: false,
    };
    let children = match call(request) {
        Ok((Reply::Children(children), _)) => children,
        Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => return Ok(None),
        Err(error) => return Err(error),
    };
    for name in children.into_iter().filter(|name| name.starts_with(prefix)) {
        let request = Request::stat(format!("{folder}/{name}"));
        if let (Reply::Stat(Some(stat)), _) = call(request)?
            && stat.ephemeral_owner == epoch.session_id()
        {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Looks whether the node at `path` is the one that was created in the session of `epoch` and is
/// known by `proof`, though others create nodes of the same name.
///
/// The write that comes first does more here than in [`find_created`]: an earlier delete of ours
/// may still be on its way through the server that we were connected to before. Once a write on
/// this connection is answered, that delete is done or will never be. Without it: we see our node,
/// the old delete is done, somebody else creates the node anew, and we delete it.
pub(crate) fn find_plain(
    mut call: impl FnMut(Request) -> Result<(Reply, Contact), CallError>,
    path: &str,
    proof: &Proof,
    epoch: &Epoch,
) -> Result<bool, CallError> {
    flush(&mut call, &format!("{path}/flush"))?;
    let request = Request::Data {
        path: path.to_owned(),
        watch: false,
    };
    match call(request) {
        Ok((Reply::Data(found, stat), _)) => {
            let known = match proof {
                Proof::Data(data) => same_id(&found, data),
                Proof::Made(czxid) => stat.czxid == *czxid,
            };
            Ok(known && stat.ephemeral_owner == epoch.session_id())
        }
        Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// In front of the GUID in a node's data.
pub(crate) const ID: &str = " id=";

/// The end of a node's data that holds a GUID, if it does.
pub(crate) fn id_of(data: &[u8]) -> Option<&[u8]> {
    const GUID_DIGITS: usize = 32;
    let at = data.len().checked_sub(ID.len() + GUID_DIGITS)?;
    let id = &data[at..];
    id.starts_with(ID.as_bytes()).then_some(id)
}

/// Whether what is found is what was written, or what was written over by somebody who wants the
/// lock back, which keeps the id.
pub(crate) fn same_id(found: &[u8], written: &[u8]) -> bool {
    found == written || id_of(written).is_some_and(|id| id_of(found) == Some(id))
}

/// Makes a write that changes nothing: once it is answered, this connection's server has seen
/// everything that was committed before. `path` must not exist.
fn flush(
    call: &mut impl FnMut(Request) -> Result<(Reply, Contact), CallError>,
    path: &str,
) -> Result<(), CallError> {
    match call(Request::delete(path)) {
        Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => Ok(()),
        Err(error) => Err(error),
    }
}
