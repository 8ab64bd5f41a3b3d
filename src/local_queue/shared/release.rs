//! The way out of a group: others stay in it, it is kept with nobody inside, or it ends.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::SharedQueue;
use super::groups::{Group, State};
use crate::error::Result;
use crate::global_queue::{Contest, Departure, OthersWaiting};
use crate::local_queue::release::Parting;
use crate::local_queue::tenure_use::Others;
use crate::local_queue::thread_number::thread_number;
use crate::session::observe::say;
use crate::session::{OnWatchEvent, Wake};
use crate::sync;
use crate::tenure::{LockState, Tenure};

/// What a thread does that does not know whether a writer waits.
#[derive(Clone, Copy)]
enum InDoubt {
    Look,
    /// The watch that has fired since the look has also said so to the lock, which looks again.
    Keep,
    Leave,
}

impl From<Parting> for InDoubt {
    fn from(parting: Parting) -> Self {
        match parting {
            Parting::Looking => Self::Look,
            Parting::AtOnce => Self::Leave,
        }
    }
}

/// What the last hold of a thread leads to.
enum Next {
    /// The others of its group remove the node.
    Stay(Arc<Tenure>),
    Kept,
    /// It must be known first whether a writer waits.
    Look(Arc<Tenure>),
    Leave(Box<Group>),
}

/// The end of a thread's hold, and of what it must look for.
struct LastHold {
    group: u64,
    since: Option<Instant>,
}

impl SharedQueue {
    /// As [`SharedQueue::release`], and says if the lock was lost before; see [`LocalQueue::unlock`].
    ///
    /// [`LocalQueue::unlock`]: crate::local_queue::LocalQueue::unlock
    pub(crate) fn unlock(&self) -> Result<()> {
        self.session().refuse_child()?;
        let was_ours = self.tenure().refuse_lost();
        let released = self.release();
        was_ours.and(released)
    }

    /// Gives one hold of this thread back.
    pub(crate) fn release(&self) -> Result<()> {
        self.send_off().confirm()
    }

    /// As [`SharedQueue::release`], but does not wait for ZooKeeper to confirm it.
    pub(crate) fn send_off(&self) -> Departure {
        self.part(Parting::Looking)
    }

    /// As [`SharedQueue::send_off`], for a caller who has no time left.
    pub(crate) fn release_in_background(&self) {
        drop(self.part(Parting::AtOnce));
    }

    fn part(&self, parting: Parting) -> Departure {
        // A guard that a forked child has inherited is its parent's.
        if let Err(error) = self.session().refuse_child() {
            return Departure::over(Err(error));
        }
        let (last, mut next) = {
            let mut state = self.state.lock();
            let Some(last) = end_hold(&mut state, thread_number()) else {
                return Departure::over(Ok(()));
            };
            let next = self.settle(&mut state, last.group, parting.into());
            (last, next)
        };
        if let Next::Look(tenure) = next {
            next = self.look_and_settle(last.group, &tenure);
        }
        match next {
            Next::Look(_) => unreachable!("one look at most"),
            Next::Kept => {
                self.tell_released(last.since, true);
                Departure::over(Ok(()))
            }
            Next::Stay(tenure) => {
                // This one must know if there is nothing to remove.
                let lost = tenure.state() == LockState::Lost;
                self.tell_released(last.since, !lost);
                Departure::over(if lost { Err(tenure.loss()) } else { Ok(()) })
            }
            Next::Leave(group) => self.leave(*group, last.since),
        }
    }

    /// Decides what becomes of the group of a thread that has just given its hold back.
    fn settle(&self, state: &mut State, number: u64, in_doubt: InDoubt) -> Next {
        let may_keep = !self.linger.is_zero() && !state.closed && state.open == Some(number);
        let group = state.groups.get_mut(&number).expect("it has a member");
        if group.members > 1 {
            group.members -= 1;
            return Next::Stay(Arc::clone(&group.tenure));
        }
        let tenure = &group.tenure;
        // Whoever joins an idle group looks at the clock; here what is known will do.
        if may_keep && tenure.was_held() && !tenure.is_in_last_turn() {
            match (group.others(), in_doubt) {
                (Others::NoneWaits, _) | (Others::Unknown, InDoubt::Keep) => {
                    self.keep(state, number);
                    return Next::Kept;
                }
                // Still a member, so that nobody else ends the group meanwhile.
                (Others::Unknown, InDoubt::Look) => return Next::Look(Arc::clone(tenure)),
                (Others::Unknown, InDoubt::Leave) | (Others::SomeoneWaits, _) => {}
            }
        }
        Next::Leave(Box::new(state.take(number)))
    }

    fn look_and_settle(&self, number: u64, tenure: &Tenure) -> Next {
        let looked = self
            .session()
            .contact()
            .and_then(|contact| self.contest.look_for_others(tenure, &contact));
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
        state: &mut State,
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
            watch.notice().redirect(Wake::Lock(lock));
        }
    }

    fn leave(&self, group: Group, since: Option<Instant>) -> Departure {
        // Before the tenure ends, which was there for longer.
        let held_for = since.map(|since| sync::now().saturating_duration_since(since));
        let departure = self.contest.send_off(&group.tenure, group.news);
        let Some(held_for) = held_for else {
            return departure;
        };
        // Not the queue: the last handle of the client could go with it, on the link's thread.
        let (session, label) = (Arc::clone(self.session()), self.label.clone());
        departure.tell(move |confirmed| {
            session.observation().released(&label, held_for, confirmed);
        })
    }
}

/// Ends one hold of a thread. `None` unless it was its last.
fn end_hold(state: &mut State, thread: u64) -> Option<LastHold> {
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
