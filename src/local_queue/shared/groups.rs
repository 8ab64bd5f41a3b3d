//! The groups, who is in which, and who sleeps.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use crate::global_queue::{Acquisition, OthersWaiting};
use crate::local_queue::tenure_use::{Others, others};
use crate::local_queue::wait_queue::{Offer, WaitQueue};
use crate::session::observe::observer::Way;
use crate::tenure::Tenure;

/// The groups and the sleepers, under [`SharedQueue::state`](super::SharedQueue).
#[derive(Default)]
pub(super) struct Readers {
    pub(super) leading: bool,
    /// The leader's node, once it is in the global queue.
    pub(super) led: Option<String>,
    pub(super) wait_queue: WaitQueue,
    pub(super) groups: BTreeMap<u64, ReaderGroup>,
    next_group: u64,
    /// The newest group.
    pub(super) open: Option<u64>,
    /// By thread.
    pub(super) holds: HashMap<u64, ReadHold>,
    /// A timer runs that will look at an idle group.
    pub(super) timed: bool,
    pub(super) closed: bool,
}

pub(super) struct ReaderGroup {
    pub(super) tenure: Arc<Tenure>,
    pub(super) news: OthersWaiting,
    /// None if it is idle, which only the open group ever is. A thread whose release has yet to find
    /// out whether a writer waits counts.
    pub(super) members: usize,
    /// Since when it is idle, if it is.
    pub(super) idle_since: Option<Instant>,
}

pub(super) struct ReadHold {
    pub(super) group: u64,
    pub(super) depth: u32,
    /// Since when, if somebody observes.
    pub(super) since: Option<Instant>,
}

impl ReaderGroup {
    /// Whether a thread may enter without asking ZooKeeper.
    pub(super) fn can_be_joined(&self) -> bool {
        self.is_good() && matches!(self.others(), Others::NoneWaits)
    }

    pub(super) fn is_good(&self) -> bool {
        self.tenure.is_held() && !self.tenure.is_revocation_requested()
    }

    /// Whether writers wait.
    pub(super) fn others(&self) -> Others {
        others(&self.news)
    }
}

impl Readers {
    pub(super) fn open_group(&mut self) -> Option<(u64, &mut ReaderGroup)> {
        let number = self.open?;
        Some((number, self.groups.get_mut(&number)?))
    }

    /// The group that is kept with nobody inside.
    pub(super) fn idle_group(&mut self) -> Option<(u64, &mut ReaderGroup)> {
        let open = self.open_group()?;
        (open.1.members == 0).then_some(open)
    }

    /// Takes an idle group out, to be ended.
    pub(super) fn take_idle(&mut self) -> Option<ReaderGroup> {
        let (number, _) = self.idle_group()?;
        Some(self.take(number))
    }

    /// Takes a group without members out, to be ended.
    pub(super) fn take(&mut self, number: u64) -> ReaderGroup {
        if self.open == Some(number) {
            self.open = None;
        }
        self.groups.remove(&number).expect("looked up before")
    }

    /// Makes a group of this thread alone. An idle one that was open until now is to be ended.
    pub(super) fn found(&mut self, thread: u64, acquired: Acquisition) -> Option<ReaderGroup> {
        let superseded = self.take_idle();
        let number = self.next_group;
        self.next_group += 1;
        let group = ReaderGroup {
            tenure: acquired.tenure,
            news: acquired.news,
            members: 0,
            idle_since: None,
        };
        self.groups.insert(number, group);
        self.open = Some(number);
        self.join(thread, number);
        superseded
    }

    /// Returns how the thread came in.
    pub(super) fn join(&mut self, thread: u64, number: u64) -> Way {
        let group = self.groups.get_mut(&number).expect("looked up before");
        group.members += 1;
        let by = match group.idle_since.take() {
            Some(_) => Way::Lingering,
            None => Way::Shared,
        };
        let hold = ReadHold {
            group: number,
            depth: 1,
            since: None,
        };
        let before = self.holds.insert(thread, hold);
        debug_assert!(before.is_none(), "a thread that holds enters again");
        by
    }

    /// Lets sleeping threads into the open group, from the first on: all of them if no writer is
    /// behind it, else those who came before that writer.
    pub(super) fn admit(&mut self) {
        let Some((number, group)) = self.open_group() else {
            return;
        };
        if !group.is_good() {
            return;
        }
        let alone = group.can_be_joined();
        while self
            .wait_queue
            .first()
            .is_some_and(|parked| alone || parked.came_first())
        {
            let parked = self.wait_queue.pop().expect("there is a first");
            // Before the offer: the thread may run, and release, at once. One that has left takes
            // `state` before it goes on, so it never sees itself inside here.
            self.join(parked.thread, number);
            if parked.offer(Offer::Granted).is_err() {
                self.holds.remove(&parked.thread);
                let group = self.groups.get_mut(&number).expect("joined above");
                group.members -= 1;
            }
        }
    }
}
