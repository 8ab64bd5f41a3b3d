//! A group that is kept with nobody inside: what ends it when no reader comes.
//!
//! A writer must not wait for it for longer than it takes to hear of that writer. Of one in this
//! process the queue is told before the writer asks ZooKeeper. Of all others the watch on the folder
//! tells, which fires for readers, too: so a look says whom it was about. No reader joins between the
//! event and that look, unless it has looked itself.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::SharedQueue;
use super::groups::{ReaderGroup, Readers};
use crate::error::Result;
use crate::global_queue::{LockProtocol, PendingRelease, ReleaseMode};
use crate::local_queue::tenure_use::Others;
use crate::session::observe::say;
use crate::session::{LocalLock, OnTimer, OnWatchEvent};
use crate::sync;
use crate::tenure::OnRevoke;

impl SharedQueue {
    /// Keeps the group that its last member leaves.
    pub(super) fn keep(&self, state: &mut Readers, number: u64) {
        let now = sync::now();
        let group = state.groups.get_mut(&number).expect("looked up before");
        group.members = 0;
        group.idle_since = Some(now);
        if !std::mem::replace(&mut state.timed, true) {
            self.look_again_at(now.checked_add(self.linger));
        }
    }

    fn look_again_at(&self, at: Option<Instant>) {
        // Beyond the clock's range is never.
        if let Some(at) = at {
            let timed: Weak<dyn OnTimer> = self.this.clone();
            self.session().at(at, timed);
        }
    }

    /// Begins to end an idle group, if there is one.
    pub(crate) fn start_idle_release(&self) -> PendingRelease {
        let group = self.state.lock().take_idle();
        group.map_or_else(
            || PendingRelease::over(Ok(())),
            |group| self.start_end(group),
        )
    }

    /// Begins to end a group that nobody is in any more. Nothing of that takes the caller's time.
    pub(super) fn start_end(&self, group: ReaderGroup) -> PendingRelease {
        let ReaderGroup { tenure, news, .. } = group;
        self.protocol
            .start_release(&tenure, news, ReleaseMode::Background)
    }

    /// Ends an idle group, if there is one. One that was lost has ended.
    pub(crate) fn end_idle(&self) -> Result<()> {
        match self.start_idle_release().confirm() {
            Err(error) if error.is_lock_lost() => Ok(()),
            ended => ended,
        }
    }

    /// Something has happened in the folder: an idle group ends, unless a look shows no writer.
    fn mind_idle(&self) {
        let idle = {
            let mut state = self.state.lock();
            let idle = state
                .idle_group()
                .filter(|(_, group)| !group.can_be_joined());
            idle.map(|(number, group)| (number, Arc::clone(&group.tenure)))
        };
        let Some((number, tenure)) = idle else {
            return;
        };
        let looked = self
            .session()
            .contact()
            .and_then(|contact| self.protocol.look_for_others(&tenure, &contact));
        let (before, ended) = {
            let mut state = self.state.lock();
            // Readers who came meanwhile have looked for themselves.
            if state.idle_group().is_none_or(|(idle, _)| idle != number) {
                return;
            }
            let (before, is_known) = match looked {
                Ok(news) => (Some(self.note(&mut state, number, news)), true),
                Err(error) => {
                    say!(
                        self.session(),
                        Debug,
                        "an idle group ends, as nobody knows whether others wait: {error:?}"
                    );
                    (None, false)
                }
            };
            // A watch that has fired since has also said so, and there will be another look.
            let group = &state.groups[&number];
            let stays =
                is_known && group.is_good() && !matches!(group.others(), Others::SomeoneWaits);
            let ended = if stays { None } else { state.take_idle() };
            (before, ended)
        };
        drop(before);
        if let Some(group) = ended {
            drop(self.start_end(group));
        }
    }
}

impl OnWatchEvent for SharedQueue {
    /// A child of the folder came or went. If the group has members, the last one's release will
    /// see that the watch has fired; an idle group must be looked after by somebody.
    fn on_watch_event(self: Arc<Self>) {
        let this = self.this.clone();
        self.session().submit(move || {
            if let Some(queue) = this.upgrade() {
                queue.mind_idle();
            }
        });
    }
}

impl OnRevoke for SharedQueue {
    /// The members decide, and nobody joins any more; an idle group ends. This comes late: a next
    /// group may be idle already, of which nobody has asked anything.
    fn on_revoke(&self) {
        let asked = {
            let mut state = self.state.lock();
            let is_asked = state
                .idle_group()
                .is_some_and(|(_, group)| !group.is_good());
            is_asked.then(|| state.take_idle()).flatten()
        };
        if let Some(group) = asked {
            drop(self.start_end(group));
        }
    }
}

impl OnTimer for SharedQueue {
    fn on_timer(self: Arc<Self>) {
        let now = sync::now();
        let mut state = self.state.lock();
        let is_deserted = state.groups.is_empty();
        let since = match state.idle_group() {
            Some((_, group)) => group.idle_since,
            // The next one to be idle need not set a timer.
            None => (!is_deserted).then_some(now),
        };
        let over = since.and_then(|since| since.checked_add(self.linger));
        let again = over.filter(|over| cfg!(not(shuttle)) && *over > now);
        state.timed = again.is_some();
        let ended = if state.timed { None } else { state.take_idle() };
        drop(state);
        self.look_again_at(again);
        if let Some(group) = ended {
            drop(self.start_end(group));
        }
    }
}

impl LocalLock for SharedQueue {
    fn reconnected(&self) {
        // A writer who came while there was no contact was not seen, and the watch is gone.
        drop(self.start_idle_release());
    }

    fn closed(&self) {
        let (tell, idle) = {
            let mut state = self.state.lock();
            state.closed = true;
            let idle = state.take_idle();
            (state.wait_queue.close(), idle)
        };
        tell();
        // The session's end removes the node.
        drop(idle);
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // A forked child has a copy of what is its parent's.
        if self.session().is_forked() {
            return;
        }
        self.session().remove_lock(self.key);
        // No guard is left, so the only group there can be is an idle one.
        drop(self.start_idle_release());
    }
}
