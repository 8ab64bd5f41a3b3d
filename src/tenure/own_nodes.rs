//! The watch on our own nodes: how a holder learns, at once and from ZooKeeper, that somebody
//! removed its node or asks for the lock back.
//!
//! It costs a read, so it is not left for every short section: the session's patrol leaves it for
//! tenures that last (see `session::patrol`), a reconnect for all that survive it, and a revocable
//! lock from the beginning. A shorter section learns of a removal when it ends.

use std::sync::{Arc, OnceLock, Weak};

use super::{LossReason, Tenure};
use crate::session::keeper::{KeeperError, Reply, Request, WatchKind};
use crate::session::watches::{Disturbed, Wake};
use crate::session::{CallError, WatchGuard};
use crate::sync::Mutex;
use crate::wait::announcement::Announcement;

/// What somebody who wants a lock back writes into its holder's node; Curator's message.
pub(crate) const REVOKE: &[u8] = b"__REVOKE__";

/// Somebody who must know that the lock is asked for.
pub(crate) trait Recalled: Send + Sync {
    /// Called on a worker thread.
    fn recalled(&self);
}

#[derive(Default)]
pub(super) struct OwnNodes {
    state: Mutex<State>,
    recall: OnceLock<Recall>,
}

#[derive(Default)]
struct State {
    /// One for each node, or none. Never touched by the registry of watches while `state` is
    /// locked: it calls [`Tenure::disturbed`] under its own locks.
    watches: Vec<WatchGuard>,
    /// We remove the nodes ourselves; whatever their watches tell is no news.
    ending: bool,
}

/// A revocable tenure's.
struct Recall {
    asked: Announcement<()>,
    lock: Weak<dyn Recalled>,
}

impl Tenure {
    /// From now on, who writes [`REVOKE`] is heard. The read that leaves the watch is made aside,
    /// as the caller may have no time for it; it also sees what was written before.
    pub(crate) fn make_revocable(self: &Arc<Self>, lock: Weak<dyn Recalled>) {
        let recall = Recall {
            asked: Announcement::new(),
            lock,
        };
        assert!(self.own_nodes.recall.set(recall).is_ok(), "once");
        Arc::clone(self).disturbed();
    }

    /// The announcement that the lock is asked for; `None` if it is not revocable.
    pub(crate) fn asked_back(&self) -> Option<&Announcement<()>> {
        self.own_nodes.recall.get().map(|recall| &recall.asked)
    }

    /// Whether somebody has asked for the lock.
    pub(crate) fn is_asked_back(&self) -> bool {
        self.asked_back()
            .is_some_and(|asked| asked.said().is_some())
    }

    /// Takes over the watch on our node that was left by the read which proved this tenure.
    pub(crate) fn adopt(self: &Arc<Self>, watch: WatchGuard) {
        let this: Weak<Self> = Arc::downgrade(self);
        let notice = Arc::clone(watch.notice());
        self.own_nodes.state.lock().watches.push(watch);
        notice.redirect(Wake::Lock(this));
    }

    pub(crate) fn is_watched(&self) -> bool {
        !self.own_nodes.state.lock().watches.is_empty()
    }

    /// Looks at our nodes and leaves watches on them. Returns the connection on which all were
    /// seen to stand.
    pub(crate) fn watch_own_nodes(self: &Arc<Self>) -> Option<u64> {
        let mut watches = Vec::with_capacity(self.nodes.len());
        let mut seen_on = None;
        for path in &self.nodes {
            if self.own_nodes.state.lock().ending {
                return None;
            }
            let this: Weak<Self> = Arc::downgrade(self);
            let wake = Wake::Lock(this);
            let watch = WatchGuard::new(&self.session, path, WatchKind::Data, Some(wake));
            let path = path.clone();
            match self.session.call(&Request::Data { path, watch: true }) {
                Ok((Reply::Data(data, stat), contact)) if self.is_own(&stat) => {
                    watch.armed(contact.connection);
                    watches.push(watch);
                    if seen_on.is_some_and(|other| other != contact.connection) {
                        // The next reconnect looks at all of them.
                        return None;
                    }
                    seen_on = Some(contact.connection);
                    if data.starts_with(REVOKE) {
                        self.ask_back();
                    }
                }
                Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => {
                    self.removed();
                    return None;
                }
                // The reconnect verifies.
                Err(CallError::NotSent(_) | CallError::Unknown(_) | CallError::Left(_)) => {
                    return None;
                }
                Err(CallError::Refused(error)) => {
                    log::warn!("{}: cannot look at our node: {error}", self.node());
                    return None;
                }
            }
        }
        let mut state = self.own_nodes.state.lock();
        let old = if state.ending {
            watches
        } else {
            std::mem::replace(&mut state.watches, watches)
        };
        drop(state);
        drop(old);
        seen_on
    }

    /// Our nodes are about to be removed by ourselves: their watches, which will fire, are to be
    /// forgotten once that is done.
    pub(crate) fn end(&self) -> Vec<WatchGuard> {
        let watches = {
            let mut state = self.own_nodes.state.lock();
            state.ending = true;
            std::mem::take(&mut state.watches)
        };
        for watch in &watches {
            watch.notice().mute();
        }
        watches
    }

    fn removed(&self) {
        if !self.own_nodes.state.lock().ending {
            log::warn!("{}: somebody removed our node; it is lost", self.node());
            self.lose(LossReason::Removed);
        }
    }

    fn ask_back(&self) {
        let Some(recall) = self.own_nodes.recall.get() else {
            return;
        };
        log::info!("{}: somebody asks for the lock", self.node());
        recall.asked.tell(());
        if let Some(lock) = recall.lock.upgrade() {
            lock.recalled();
        }
    }
}

impl Disturbed for Tenure {
    /// One of our nodes was changed or removed. What it was is looked at on a thread that may.
    fn disturbed(self: Arc<Self>) {
        let session = Arc::clone(&self.session);
        session.submit(move || {
            self.watch_own_nodes();
        });
    }
}
