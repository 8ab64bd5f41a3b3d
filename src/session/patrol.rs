//! The patrol: looks at our own nodes where their removal could go unnoticed.
//!
//! A short section learns at its end that its node was removed. A long one must not go on for
//! minutes after an administrator, or somebody who broke the lock, has deleted its node: after
//! [`PATROL_AFTER`] a watch is left on the node, which costs one read. After a reconnect every node
//! is looked at, as all watches were lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::loss::EpochBound;
use super::{OnTimer, Session};
use crate::sync;

/// How old a tenure must be to have its nodes watched. A cold acquire takes half a millisecond, so
/// this is two hundred of them: the extra read is lost in what the section itself takes.
pub(crate) const PATROL_AFTER: Duration = Duration::from_millis(100);

impl Session {
    /// There is a tenure that is not watched.
    pub(super) fn patrol_later(self: &Arc<Self>) {
        // In a model it would be one more thing at every step; removals by hand are explored
        // without it.
        if cfg!(shuttle) {
            return;
        }
        let session: Weak<Self> = Arc::downgrade(self);
        if let Some(at) = sync::now().checked_add(PATROL_AFTER) {
            self.at(at, session);
        }
    }

    fn tenures(&self) -> Vec<Arc<dyn EpochBound>> {
        let state = self.state.lock();
        state.tenures.values().filter_map(Weak::upgrade).collect()
    }

    /// The nodes of all tenures.
    pub(crate) fn own_nodes(&self) -> Vec<String> {
        let tenures = self.tenures();
        let nodes = tenures.iter().flat_map(|tenure| tenure.nodes().to_vec());
        nodes.collect()
    }

    /// A probe of the link found the node of ours at `path` gone.
    pub(crate) fn node_gone(self: &Arc<Self>, epoch: u64, path: String) {
        if self.epoch().is_none_or(|now| now.number() != epoch) {
            return;
        }
        let session = Arc::clone(self);
        self.submit(move || {
            for tenure in session.tenures() {
                if tenure.nodes().contains(&path) {
                    tenure.verify();
                }
            }
        });
    }

    /// After a reconnect: are our nodes still there? And do the locks know what they must?
    pub(super) fn verify_tenures(self: &Arc<Self>) {
        for tenure in self.tenures() {
            tenure.verify();
        }
        let locks: Vec<_> = {
            let state = self.state.lock();
            state.locks.values().filter_map(Weak::upgrade).collect()
        };
        for lock in locks {
            lock.reconnected();
        }
    }
}

impl OnTimer for Session {
    fn on_timer(self: Arc<Self>) {
        // Before the look, so that whoever adds a tenure after it starts the patrol again.
        self.state.lock().patrolling = false;
        let now = sync::now();
        let mut young = false;
        for tenure in self.tenures() {
            young |= tenure.patrol(now);
        }
        if young && !std::mem::replace(&mut self.state.lock().patrolling, true) {
            self.patrol_later();
        }
    }
}
