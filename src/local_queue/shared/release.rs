//! The way out of a group: others stay in it, it is kept with nobody inside, or it ends.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::SharedQueue;
use super::groups::{ReaderGroup, Readers};
use crate::global_queue::{LockProtocol, OthersWaiting, PendingRelease, ReleaseMode};
use crate::local_queue::tenure_use::Others;
use crate::local_queue::thread_number::thread_number;
use crate::session::observe::say;
use crate::session::{OnWatchEvent, Wake};
use crate::sync;
use crate::tenure::{LockState, Tenure};

/// How a thread goes on that does not know whether a writer waits.
#[derive(Clone, Copy)]
enum InDoubt {
    Look,
    /// The watch that has fired since the look has also said so to the lock, which looks again.
    Keep,
    Leave,
}

impl From<ReleaseMode> for InDoubt {
    fn from(mode: ReleaseMode) -> Self {
        match mode {
            ReleaseMode::Foreground => Self::Look,
            ReleaseMode::Background => Self::Leave,
        }
    }
}

/// The consequence of a thread's last release.
enum AfterHold {
    /// The others of its group remove the node.
    Stay(Arc<Tenure>),
    Kept,
    /// It must be known first whether a writer waits.
    Look(Arc<Tenure>),
    Leave(Box<ReaderGroup>),
}

/// The end of a thread's hold, and of what it must look for.
struct LastHold {
    group: u64,
    since: Option<Instant>,
}

impl SharedQueue {
    /// Begins to give one hold of this thread back.
    pub(crate) fn start_release(&self, mode: ReleaseMode) -> PendingRelease {
        // A guard that a forked child has inherited is its parent's.
        if let Err(error) = self.session().refuse_child() {
            return PendingRelease::over(Err(error));
        }
        let (last, mut next) = {
            let mut state = self.state.lock();
            let Some(last) = end_hold(&mut state, thread_number()) else {
                return PendingRelease::over(Ok(()));
            };
            let next = self.settle(&mut state, last.group, mode.into());
            (last, next)
        };
        if let AfterHold::Look(tenure) = next {
            next = self.look_and_settle(last.group, &tenure);
        }
        match next {
            AfterHold::Look(_) => unreachable!("one look at most"),
            AfterHold::Kept => {
                self.tell_released(last.since, true);
                PendingRelease::over(Ok(()))
            }
            AfterHold::Stay(tenure) => {
                // This one must know if there is nothing to remove.
                let lost = tenure.state() == LockState::Lost;
                self.tell_released(last.since, !lost);
                PendingRelease::over(if lost { Err(tenure.loss()) } else { Ok(()) })
            }
            AfterHold::Leave(group) => {
                // Before the tenure ends, which was there for longer.
                let held_for = last
                    .since
                    .map(|since| sync::now().saturating_duration_since(since));
                let release = self.start_end(*group);
                release.tell_released(self.session(), &self.label, held_for)
            }
        }
    }

    /// Decides what becomes of the group of a thread that has just given its hold back.
    fn settle(&self, state: &mut Readers, number: u64, in_doubt: InDoubt) -> AfterHold {
        let may_keep = !self.linger.is_zero() && !state.closed && state.open == Some(number);
        let group = state.groups.get_mut(&number).expect("it has a member");
        if group.members > 1 {
            group.members -= 1;
            return AfterHold::Stay(Arc::clone(&group.tenure));
        }
        let tenure = &group.tenure;
        // Whoever joins an idle group looks at the clock; here what is known will do.
        if may_keep && tenure.was_held() && !tenure.is_in_last_turn() {
            match (group.others(), in_doubt) {
                (Others::NoneWaits, _) | (Others::Unknown, InDoubt::Keep) => {
                    self.keep(state, number);
                    return AfterHold::Kept;
                }
                // Still a member, so that nobody else ends the group meanwhile.
                (Others::Unknown, InDoubt::Look) => return AfterHold::Look(Arc::clone(tenure)),
                (Others::Unknown, InDoubt::Leave) | (Others::SomeoneWaits, _) => {}
            }
        }
        AfterHold::Leave(Box::new(state.take(number)))
    }

    fn look_and_settle(&self, number: u64, tenure: &Tenure) -> AfterHold {
        let looked = self
            .session()
            .contact()
            .and_then(|contact| self.protocol.look_for_others(tenure, &contact));
        let mut state = self.state.lock();
        let (before, in_doubt) = match looked {
            Ok(news) => (Some(self.note(&mut state, number, news)), InDoubt::Keep),
            Err(error) => {
                say!(
                    self.session(),
                    Debug,
                    "a group ends, as nobody knows whether others wait: {error:?}"
                );
                (None, InDoubt::Leave)
            }
        };
        let next = self.settle(&mut state, number, in_doubt);
        drop(state);
        drop(before);
        next
    }

    /// Takes note of fresh news of a group that is there. Returns what was known before, to be
    /// dropped without the lock: a watch is taken off the server.
    pub(super) fn note(
        &self,
        state: &mut Readers,
        number: u64,
        news: OthersWaiting,
    ) -> OthersWaiting {
        self.hear(&news);
        let group = state.groups.get_mut(&number).expect("looked up before");
        std::mem::replace(&mut group.news, news)
    }

    /// From now on a watch that tells of others speaks to the lock, no longer to the thread that
    /// waited. Before the group can be idle: it may fire at any moment.
    pub(super) fn hear(&self, news: &OthersWaiting) {
        if let OthersWaiting::No(watch) = news
            && !self.linger.is_zero()
        {
            let lock: Weak<dyn OnWatchEvent> = self.this.clone();
            watch.state().redirect(Wake::Lock(lock));
        }
    }
}

/// Ends one hold of a thread. `None` unless it was its last.
fn end_hold(state: &mut Readers, thread: u64) -> Option<LastHold> {
    let hold = state
        .holds
        .get_mut(&thread)
        .expect("released by its holder");
    hold.depth -= 1;
    if hold.depth > 0 {
        return None;
    }
    let (group, since) = (hold.group, hold.since);
    state.holds.remove(&thread);
    Some(LastHold { group, since })
}
