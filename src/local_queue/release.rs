//! The end of a section: the next thread, an idle tenure, or leaving the global queue.

use crate::session::observe::say;
use std::sync::Weak;
use std::time::Instant;

use super::tenure_use::{Others, TenureUse};
use super::wait_queue::Offer;
use super::{Local, LocalQueue, Turn};
use crate::error::Result;
use crate::global_queue::{Contender, PendingRelease, ReleaseMode};
use crate::session::OnTimer;
use crate::sync;
use crate::sync::atomic::Ordering;

/// The consequence of a release.
pub(super) enum Next {
    /// The lock is somebody's again, or idle.
    Settled,
    /// It must be known first whether others wait.
    Look(Box<TenureUse>),
    /// The tenure is over.
    Leave(Box<TenureUse>),
}

impl LocalQueue {
    /// Begins to give one hold of this thread back. Called by the owner only.
    #[inline]
    pub(crate) fn start_release(&self, mode: ReleaseMode) -> PendingRelease {
        match self.end_turn() {
            Ok(Next::Settled) => PendingRelease::over(Ok(())),
            Ok(Next::Leave(tenure_use)) => self.leave(*tenure_use, mode),
            Ok(next) => self.release_slowly(next, mode),
            Err(error) => PendingRelease::over(Err(error)),
        }
    }

    #[inline]
    fn end_turn(&self) -> Result<Next> {
        // A guard that a forked child has inherited is its parent's.
        self.session.refuse_child()?;
        let depth = self.depth.load(Ordering::Relaxed);
        if depth > 1 {
            self.depth.store(depth - 1, Ordering::Relaxed);
            return Ok(Next::Settled);
        }
        let mut local = self.state.lock();
        self.depth.store(0, Ordering::Relaxed);
        Ok(self.end_turn_without_holds(&mut local))
    }

    /// Ends the turn, if that was the last hold.
    #[inline]
    pub(super) fn end_turn_without_holds(&self, local: &mut Local) -> Next {
        if local.detached > 0 || self.depth.load(Ordering::Relaxed) > 0 {
            return Next::Settled;
        }
        self.owner.store(0, Ordering::Relaxed);
        let Turn::Held(tenure_use) = std::mem::replace(&mut local.turn, Turn::Between) else {
            unreachable!("what has holds is held");
        };
        self.settle(local, tenure_use)
    }

    /// Decides what comes after a release, and does what can be done without ZooKeeper. The turn
    /// is `Between`.
    #[inline]
    pub(super) fn settle(&self, local: &mut Local, tenure_use: Box<TenureUse>) -> Next {
        let nobody_here = local.wait_queue.is_empty();
        if local.closed
            || (nobody_here && self.policy.linger.is_zero())
            || tenure_use.tenure.is_in_last_turn()
        {
            return Next::Leave(tenure_use);
        }
        if nobody_here {
            self.keep_or_leave(local, tenure_use)
        } else {
            self.hand_over_or_leave(local, tenure_use)
        }
    }

    fn keep_or_leave(&self, local: &mut Local, tenure_use: Box<TenureUse>) -> Next {
        // Whoever takes an idle tenure looks at the clock; here what is known will do.
        match tenure_use.others() {
            _ if !tenure_use.tenure.was_held() => Next::Leave(tenure_use),
            Others::NoneWaits => {
                self.idle(local, tenure_use);
                Next::Settled
            }
            Others::Unknown => Next::Look(tenure_use),
            Others::SomeoneWaits => Next::Leave(tenure_use),
        }
    }

    fn hand_over_or_leave(&self, local: &mut Local, tenure_use: Box<TenureUse>) -> Next {
        if !self.policy.hand_off || !tenure_use.tenure.is_held() {
            return Next::Leave(tenure_use);
        }
        match tenure_use.others() {
            Others::NoneWaits => self.hand_over(local, tenure_use),
            // As long as the policy allows more turns in any case, nobody need know who waits.
            Others::Unknown | Others::SomeoneWaits if self.policy.has_turns_left(&tenure_use) => {
                let mut tenure_use = tenure_use;
                tenure_use.handoffs += 1;
                tenure_use.others_wait_since.get_or_insert_with(sync::now);
                self.hand_over(local, tenure_use)
            }
            Others::Unknown => Next::Look(tenure_use),
            Others::SomeoneWaits => Next::Leave(tenure_use),
        }
    }

    /// Makes the first thread in the queue the holder.
    pub(super) fn hand_over(&self, local: &mut Local, mut tenure_use: Box<TenureUse>) -> Next {
        self.tell_released(&mut tenure_use, true);
        tenure_use.held_since = self.begin_hold();
        local.turn = Turn::Held(tenure_use);
        while let Some(parked) = local.wait_queue.pop() {
            // Before the offer: the thread may run, and release, at once. A thread that has left
            // takes `state` before it goes on, so it never sees itself as the owner here.
            self.make_owner(parked.thread);
            if parked.offer(Offer::Granted).is_ok() {
                return Next::Settled;
            }
        }
        // All have left meanwhile.
        self.owner.store(0, Ordering::Relaxed);
        let Turn::Held(mut tenure_use) = std::mem::replace(&mut local.turn, Turn::Between) else {
            unreachable!("set above, under the same lock");
        };
        tenure_use.held_since = None;
        self.settle(local, tenure_use)
    }

    pub(super) fn idle(&self, local: &mut Local, mut tenure_use: Box<TenureUse>) {
        self.tell_released(&mut tenure_use, true);
        let now = sync::now();
        local.turn = Turn::Idle {
            tenure_use,
            since: now,
        };
        if !local.timed {
            local.timed = true;
            self.look_again_at(now.checked_add(self.policy.linger));
        }
    }

    pub(super) fn look_again_at(&self, at: Option<Instant>) {
        // Beyond the clock's range is never.
        if let Some(at) = at {
            let timed: Weak<dyn OnTimer> = self.this.clone();
            self.session.at(at, timed);
        }
    }

    #[cold]
    pub(super) fn release_slowly(&self, mut next: Next, mode: ReleaseMode) -> PendingRelease {
        loop {
            match next {
                Next::Settled => return PendingRelease::over(Ok(())),
                Next::Look(tenure_use) if mode == ReleaseMode::Background => {
                    next = Next::Leave(tenure_use);
                }
                Next::Look(mut tenure_use) => {
                    let looked = self.session.contact().and_then(|contact| {
                        self.protocol.look_for_others(&tenure_use.tenure, &contact)
                    });
                    let mut local = self.state.lock();
                    next = match looked {
                        Ok(news) => {
                            self.note(&mut tenure_use, news);
                            self.settle(&mut local, tenure_use)
                        }
                        Err(error) => {
                            say!(
                                self.session,
                                Debug,
                                "a tenure ends, as nobody knows whether others wait: {error:?}"
                            );
                            Next::Leave(tenure_use)
                        }
                    };
                }
                Next::Leave(tenure_use) => return self.leave(*tenure_use, mode),
            }
        }
    }

    /// The next thread goes on as soon as the delete is sent: on the same connection its create
    /// comes after it; on another, it finds an old node ahead, which goes in the background.
    fn leave(&self, tenure_use: TenureUse, mode: ReleaseMode) -> PendingRelease {
        // Also when this panics: the others must not wait for this thread.
        let _lead = self.lead();
        // Before the tenure ends, which was there for longer.
        let held_for = tenure_use
            .held_since
            .map(|since| sync::now().saturating_duration_since(since));
        let TenureUse { tenure, news, .. } = tenure_use;
        let release = self.protocol.start_release(&tenure, news, mode);
        release.tell_released(&self.session, &self.policy.label, held_for)
    }

    /// Ends a lead that was not won: the next thread goes on with `contender`.
    pub(super) fn pass_lead_on(&self, contender: Contender) {
        let mut local = self.state.lock();
        // Before the offer: the thread may win at once.
        local.turn = Turn::Leading;
        if let Err(contender) = local.wait_queue.offer_lead(contender) {
            local.turn = Turn::Free;
            drop(local);
            // Leaves the global queue.
            drop(contender);
        }
    }
}
