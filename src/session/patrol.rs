//! The patrol: looks at our own nodes where their removal could go unnoticed.
//!
//! A short section learns at its end that its node was removed. A long one must not go on for
//! minutes after an administrator, or somebody who broke the lock, has deleted its node: after
//! [`PATROL_AFTER`] a watch is left on the node, which costs one read. After a reconnect every node
//! is looked at, as all watches were lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::epoch_bound::EpochBound;
use super::{OnTimer, Session};
use crate::sync;

/// So many tenures are looked at in one job of the worker.
const SLICE: usize = 64;

/// How old a tenure must be to have its nodes watched. A cold acquire takes half a millisecond, so
/// this is two hundred of them: the extra read is lost in what the section itself takes.
const PATROL_AFTER: Duration = Duration::from_millis(100);

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
            let mut tenures = session.tenures();
            tenures.retain(|tenure| tenure.nodes().contains(&path));
            session.verify(tenures);
        });
    }

    /// After a reconnect: are our nodes still there? And do the locks know what they must?
    pub(super) fn verify_tenures(self: &Arc<Self>) {
        self.verify_in_slices(self.tenures(), |session| {
            let locks: Vec<_> = session.state.lock().locks.values().cloned().collect();
            for lock in locks {
                session.submit(move || {
                    if let Some(lock) = lock.upgrade() {
                        lock.reconnected();
                    }
                });
            }
        });
    }

    /// Looks at the nodes of all these, and then does the rest. Between two slices the worker does
    /// what else it has to do.
    fn verify_in_slices(
        self: &Arc<Self>,
        mut tenures: Vec<Arc<dyn EpochBound>>,
        then: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let left = tenures.split_off(SLICE.min(tenures.len()));
        self.verify(tenures);
        if left.is_empty() {
            return then(self);
        }
        // What ends meanwhile need not be kept.
        let left: Vec<_> = left.iter().map(Arc::downgrade).collect();
        let session = Arc::clone(self);
        self.submit(move || {
            let left = left.iter().filter_map(Weak::upgrade).collect();
            session.verify_in_slices(left, then);
        });
    }

    /// Looks at the nodes of all these at once. What fails is looked at after the next reconnect, or
    /// ends with its session.
    pub(crate) fn verify(self: &Arc<Self>, tenures: Vec<Arc<dyn EpochBound>>) {
        let Ok(contact) = self.contact() else {
            return;
        };
        let (mut watches, mut counts) = (Vec::new(), Vec::with_capacity(tenures.len()));
        for tenure in &tenures {
            let own = Arc::clone(tenure).begin_look(&contact);
            counts.push(own.len());
            watches.extend(own);
        }
        let Ok(seen) = contact.watch_data_of(&watches) else {
            return;
        };
        let (mut watches, mut seen) = (watches.into_iter(), seen.into_iter());
        for (tenure, count) in tenures.into_iter().zip(counts) {
            let watches = watches.by_ref().take(count).collect();
            let seen = seen.by_ref().take(count).collect();
            tenure.looked(&contact, watches, seen);
        }
    }
}

impl OnTimer for Session {
    fn on_timer(self: Arc<Self>) {
        let now = sync::now();
        let is_young = move |tenure: &dyn EpochBound| {
            let since = tenure.unwatched_since();
            since.is_some_and(|since| now.saturating_duration_since(since) < PATROL_AFTER)
        };
        let mut due = self.tenures();
        due.retain(|tenure| tenure.unwatched_since().is_some() && !is_young(&**tenure));
        self.verify_in_slices(due, move |session| {
            // Before the look, so that whoever adds a tenure after it starts the patrol again.
            session.state.lock().patrolling = false;
            let young = session.tenures().iter().any(|tenure| is_young(&**tenure));
            if young && !std::mem::replace(&mut session.state.lock().patrolling, true) {
                session.patrol_later();
            }
        });
    }
}
