//! How a thread comes to hold: by what it holds already, an idle tenure, its turn, or the lead.

use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::lead::{Lead, TurnOutcome, wait_for_turn};
use super::tenure_use::TenureUse;
use super::thread_number::thread_number;
use super::wait_queue::ParkedThread;
use super::{Local, LocalQueue, Turn, holds_already, too_deep};
use crate::error::{Error, Result};
use crate::global_queue::{AcquireRequest, Acquisition, OthersWaiting, ReleaseMode};
use crate::session::observe::observer::Way;
use crate::session::observe::say;
use crate::session::{OnWatchEvent, Waiter, Wake};
use crate::sync::atomic::Ordering;
use crate::sync::{self, MutexGuard};
use crate::tenure::OnRevoke;
use crate::wait::limits::WaitLimits;

impl LocalQueue {
    /// Acquires, or says why not. Afterwards this thread holds once more than before.
    #[inline]
    pub(crate) fn acquire(
        &self,
        limits: &WaitLimits,
        data: impl FnOnce() -> Arc<[u8]>,
    ) -> Result<()> {
        self.session.refuse_child()?;
        let me = thread_number();
        if self.enter_again(me)? || self.take_idle(me) {
            return Ok(());
        }
        self.acquire_slowly(me, limits, data)
    }

    /// Acquires if that needs no waiting.
    #[inline]
    pub(crate) fn try_acquire(&self, data: impl FnOnce() -> Arc<[u8]>) -> Result<bool> {
        self.session.refuse_child()?;
        let me = thread_number();
        if self.enter_again(me)? || self.take_idle(me) {
            return Ok(true);
        }
        self.try_slowly(me, data)
    }

    /// Acquires if this thread holds already.
    pub(crate) fn reenter(&self) -> Result<bool> {
        self.session.refuse_child()?;
        self.enter_again(thread_number())
    }

    /// Re-entry. Refused once the lock is lost: the inner section would run without the lock.
    #[inline]
    fn enter_again(&self, me: u64) -> Result<bool> {
        let Some(local) = self.lock_as_owner(me) else {
            return Ok(false);
        };
        if !self.policy.reentrant {
            return Err(holds_already(self.path()));
        }
        if let Turn::Held(tenure_use) = &local.turn {
            tenure_use.tenure.refuse_lost()?;
        }
        self.deepen(&local)?;
        Ok(true)
    }

    /// One hold more if this thread is the owner, also of what is lost or refuses re-entry: for a
    /// call that relies on the hold until it returns.
    pub(crate) fn hold_on(&self) -> Result<bool> {
        let Some(local) = self.lock_as_owner(thread_number()) else {
            return Ok(false);
        };
        self.deepen(&local)?;
        Ok(true)
    }

    /// `state`, if this thread is the owner, which it stays for as long: another thread that gives
    /// the last hold back, a detached one, needs `state`.
    #[inline]
    pub(super) fn lock_as_owner(&self, me: u64) -> Option<MutexGuard<'_, Local>> {
        if self.owner.load(Ordering::Relaxed) != me {
            return None;
        }
        let local = self.state.lock();
        (self.owner.load(Ordering::Relaxed) == me).then_some(local)
    }

    /// One guard more of this thread, the owner.
    #[inline]
    pub(super) fn deepen(&self, _: &Local) -> Result<()> {
        let depth = self.depth.load(Ordering::Relaxed);
        let deeper = depth.checked_add(1).ok_or_else(too_deep)?;
        self.depth.store(deeper, Ordering::Relaxed);
        Ok(())
    }

    /// The fast path of a lingering lock: no thread holds or leads, and the tenure is good.
    #[inline]
    fn take_idle(&self, me: u64) -> bool {
        if self.policy.linger.is_zero() {
            return false;
        }
        let mut local = self.state.lock();
        self.take_idle_locked(&mut local, me)
    }

    #[inline]
    fn take_idle_locked(&self, local: &mut Local, me: u64) -> bool {
        match &local.turn {
            Turn::Idle { tenure_use, .. } if tenure_use.is_good() => {}
            _ => return false,
        }
        let Turn::Idle { mut tenure_use, .. } = std::mem::replace(&mut local.turn, Turn::Between)
        else {
            unreachable!("looked at under the same lock");
        };
        tenure_use.held_since = self.begin_hold();
        if tenure_use.held_since.is_some() {
            self.tell_acquired(Duration::ZERO, Way::Lingering);
        }
        local.turn = Turn::Held(tenure_use);
        self.make_owner(me);
        true
    }

    /// Called under `state`.
    pub(super) fn make_owner(&self, thread: u64) {
        self.depth.store(1, Ordering::Relaxed);
        self.owner.store(thread, Ordering::Relaxed);
    }

    #[cold]
    fn acquire_slowly(
        &self,
        me: u64,
        limits: &WaitLimits,
        data: impl FnOnce() -> Arc<[u8]>,
    ) -> Result<()> {
        let began = sync::now();
        let _waits = self.session.observation().waits();
        let result = match self.come_to_turn(me, limits, began) {
            Ok(TurnOutcome::Held) => Ok(()),
            Ok(TurnOutcome::Lead(lead)) => self.contend(lead, me, limits, data(), began).map(drop),
            Err(error) => Err(error),
        };
        result.inspect_err(|error| self.tell_failed(error, began))
    }

    /// Waits until this thread holds, or leads.
    fn come_to_turn(
        &self,
        me: u64,
        limits: &WaitLimits,
        began: Instant,
    ) -> Result<TurnOutcome<'_, Self>> {
        let mut local = self.state.lock();
        if local.closed {
            return Err(Error::closed());
        }
        if let Turn::Idle { .. } = local.turn
            && self.take_idle_locked(&mut local, me)
        {
            return Ok(TurnOutcome::Held);
        }
        match local.begin_lead() {
            Some(tenure_use) => {
                drop(local);
                Ok(TurnOutcome::Lead(self.lead_after(tenure_use, limits)))
            }
            None => self.wait_in_line(local, me, limits, began),
        }
    }

    fn wait_in_line(
        &self,
        mut local: MutexGuard<'_, Local>,
        me: u64,
        limits: &WaitLimits,
        began: Instant,
    ) -> Result<TurnOutcome<'_, Self>> {
        let parked = ParkedThread::new(me, limits);
        local.wait_queue.push(Arc::clone(&parked));
        drop(local);
        self.tell_queued();
        let outcome = wait_for_turn(self, &parked)?;
        if let TurnOutcome::Held = outcome {
            let waited = sync::now().saturating_duration_since(began);
            self.tell_acquired(waited, Way::HandedOver);
        }
        Ok(outcome)
    }

    /// This thread leads from now on; an idle tenure that is not good any more ends first.
    fn lead_after(
        &self,
        tenure_use: Option<Box<TenureUse>>,
        limits: &WaitLimits,
    ) -> Lead<'_, Self> {
        let lead = self.lead();
        if let Some(tenure_use) = tenure_use {
            self.end_before_lead(*tenure_use, limits);
        }
        lead
    }

    fn end_before_lead(&self, tenure_use: TenureUse, limits: &WaitLimits) {
        let mode = ReleaseMode::of_caller(limits);
        let TenureUse { tenure, news, .. } = tenure_use;
        let release = self.protocol.start_release(&tenure, news, mode);
        // In the background, the old node is just another one ahead until it is gone.
        if mode == ReleaseMode::Foreground
            && let Err(error) = release.confirm()
        {
            say!(self.session, Debug, "an idle tenure ended: {error}");
        }
    }

    pub(super) fn lead(&self) -> Lead<'_, Self> {
        Lead::new(self, self.protocol.begin())
    }

    /// Queues in the global queue for all threads of this process. Returns whether others were seen
    /// ahead there.
    pub(super) fn contend(
        &self,
        mut lead: Lead<'_, Self>,
        me: u64,
        limits: &WaitLimits,
        data: Arc<[u8]>,
        began: Instant,
    ) -> Result<bool> {
        let waiter = Waiter::new(&self.session, limits).since(began);
        let told = Cell::new(false);
        let behind = || {
            if !told.replace(true) {
                self.tell_queued();
            }
        };
        let request = AcquireRequest {
            behind: &behind,
            wants_news: self.wants_news(),
            reporter: limits.reporter.as_deref(),
            ..AcquireRequest::plain(data)
        };
        let acquired = self.protocol.acquire(lead.contender(), &waiter, &request)?;
        self.hold(lead, me, acquired, began);
        Ok(told.get())
    }

    /// Whether news of others will be wanted at the release.
    pub(super) fn wants_news(&self) -> bool {
        !self.policy.linger.is_zero()
            || (self.policy.hand_off && !self.state.lock().wait_queue.is_empty())
    }

    pub(super) fn hold(
        &self,
        lead: Lead<'_, Self>,
        me: u64,
        acquired: Acquisition,
        began: Instant,
    ) {
        lead.acquired();
        if self.policy.revocable {
            let lock: Weak<dyn OnRevoke> = self.this.clone();
            acquired.tenure.make_revocable(lock);
        }
        if !self.policy.is_part {
            acquired.tenure.tell_as(&self.policy.label);
        }
        let mut tenure_use = self.tenure_use(acquired);
        tenure_use.held_since = self.begin_hold();
        let mut local = self.state.lock();
        local.turn = Turn::Held(tenure_use);
        self.make_owner(me);
        drop(local);
        let waited = sync::now().saturating_duration_since(began);
        self.tell_acquired(waited, Way::Asked);
    }

    fn tenure_use(&self, acquired: Acquisition) -> Box<TenureUse> {
        let mut tenure_use = Box::new(TenureUse {
            tenure: acquired.tenure,
            news: OthersWaiting::Unknown(None),
            handoffs: 0,
            others_wait_since: None,
            held_since: None,
        });
        self.note(&mut tenure_use, acquired.news);
        tenure_use
    }

    /// Takes note of fresh news.
    pub(super) fn note(&self, tenure_use: &mut TenureUse, news: OthersWaiting) {
        match &news {
            OthersWaiting::No(watch) => {
                // From now on the watch speaks to the lock, no longer to the thread that waited.
                let lock: Weak<dyn OnWatchEvent> = self.this.clone();
                watch.state().redirect(Wake::Lock(lock));
                tenure_use.handoffs = 0;
                tenure_use.others_wait_since = None;
            }
            OthersWaiting::Yes(_) => {
                tenure_use.others_wait_since.get_or_insert_with(sync::now);
            }
            OthersWaiting::Unknown(_) => {}
        }
        tenure_use.news = news;
    }

    #[cold]
    fn try_slowly(&self, me: u64, data: impl FnOnce() -> Arc<[u8]>) -> Result<bool> {
        let began = sync::now();
        let held = self.try_at_once(me, data, began);
        self.tell_outcome(&held, began);
        held
    }

    fn try_at_once(
        &self,
        me: u64,
        data: impl FnOnce() -> Arc<[u8]>,
        began: Instant,
    ) -> Result<bool> {
        let limits = WaitLimits::none();
        let lead = {
            let mut local = self.state.lock();
            if local.closed {
                return Err(Error::closed());
            }
            if self.take_idle_locked(&mut local, me) {
                return Ok(true);
            }
            let Some(tenure_use) = local.begin_lead() else {
                return Ok(false);
            };
            drop(local);
            self.lead_after(tenure_use, &limits)
        };
        let waiter = Waiter::new(&self.session, &limits);
        let request = AcquireRequest {
            wants_news: self.wants_news(),
            ..AcquireRequest::plain(data())
        };
        match self.protocol.try_acquire(&waiter, &request)? {
            Some(acquired) => {
                self.hold(lead, me, acquired, began);
                Ok(true)
            }
            None => Ok(false),
        }
    }
}
