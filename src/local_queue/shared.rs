//! The local queue of readers: the threads of this process that hold together.
//!
//! # Groups
//! Readers who entered by one node are a *group*: the first one queued for all, and the last one
//! removes the node. A reader that comes while a group is inside joins it, unless a writer queued
//! before: the group's news say so, or a look does. Otherwise it leads, and a new group forms
//! behind the writer. So several groups can be inside; only the newest is *open*. A writer that
//! became a reader is a group of its own.
//!
//! A group that its last member has left may be kept with nobody inside (`linger`): it is *idle*.
//! Only the open one can be. It ends when a writer of this process comes, or anything happens in the
//! folder and a look shows a writer there, or when time is over: see [`idle`].
//!
//! # Who may change what
//! [`SharedQueue::state`] guards [`Readers`]; nothing is called under it that blocks or calls back.
//! `leading` is set while one thread has the [`Lead`]: it looks whether the open group can be
//! joined, or queues in the global queue. Threads that come meanwhile sleep in the queue. When the
//! leader wins, the sleepers who came before any writer behind its node go in with it; the others
//! go on behind that writer, led by the first of them.
//!
//! A hold belongs to its thread: only that thread changes its depth, or ends it.

mod candidate;
mod groups;
mod idle;
mod release;

use crate::session::observe::say;
use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use self::groups::Readers;
use super::lead::{Lead, Leads, TurnOutcome, wait_for_turn};
use super::tenure_use::{Others, Policy};
use super::thread_number::thread_number;
use super::too_deep;
use super::wait_queue::ParkedThread;
use crate::error::{Error, Result};
use crate::global_queue::{AcquireRequest, Acquisition, Contender, GlobalQueue, LockProtocol};
use crate::session::observe::observer::{Label, Way};
use crate::session::{LocalLock, Session, Waiter};
use crate::sync::{self, Mutex, MutexGuard};
use crate::tenure::{OnRevoke, Tenure};
use crate::wait::limits::WaitLimits;

/// The reading threads of this process at one lock.
pub(crate) struct SharedQueue {
    protocol: GlobalQueue,
    revocable: bool,
    /// How long an idle group is kept.
    linger: Duration,
    pub(super) label: Label,
    state: Mutex<Readers>,
    this: Weak<Self>,
    key: u64,
}

impl Leads for SharedQueue {
    fn pass_on(&self, contender: Contender) {
        let mut state = self.state.lock();
        if contender.is_not_created() {
            state.led = None;
        }
        if let Err(contender) = state.wait_queue.offer_lead(contender) {
            state.leading = false;
            state.led = None;
            drop(state);
            // Leaves the global queue.
            drop(contender);
        }
    }

    fn vacate(&self, parked: &Arc<ParkedThread>) {
        self.state.lock().wait_queue.remove(parked);
    }

    fn name(&self) -> &str {
        self.protocol.path().as_str()
    }
}

impl SharedQueue {
    /// Of the policy, what is about readers.
    pub(crate) fn new(protocol: GlobalQueue, policy: Policy) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let lock: Weak<dyn LocalLock> = this.clone();
            Self {
                key: protocol.session().add_lock(lock),
                protocol,
                revocable: policy.revocable,
                linger: policy.read_linger,
                label: policy.label,
                state: Mutex::new(Readers::default()),
                this: this.clone(),
            }
        })
    }

    /// Acquires, or says why not. Afterwards this thread holds once more than before.
    pub(crate) fn acquire(
        &self,
        limits: &WaitLimits,
        data: impl FnOnce() -> Arc<[u8]>,
    ) -> Result<()> {
        self.session().refuse_child()?;
        let me = thread_number();
        let mut state = self.state.lock();
        if self.enter_at_once(&mut state, me)? {
            return Ok(());
        }
        let began = sync::now();
        let _waits = self.session().observation().waits();
        let result = self.acquire_slowly(state, me, limits, data, began);
        result.inspect_err(|error| self.tell_failed(error, began))
    }

    fn acquire_slowly(
        &self,
        mut state: MutexGuard<'_, Readers>,
        me: u64,
        limits: &WaitLimits,
        data: impl FnOnce() -> Arc<[u8]>,
        began: Instant,
    ) -> Result<()> {
        if !std::mem::replace(&mut state.leading, true) {
            drop(state);
            let proceeded = self.proceed(self.lead(), me, limits, data(), began);
            return proceeded.map(drop);
        }
        let parked = ParkedThread::new(me, limits);
        // A node that is not there yet is created behind any writer that is there now.
        let led = state.led.clone();
        if led.is_none() {
            parked.comes_first();
        }
        state.wait_queue.push(Arc::clone(&parked));
        drop(state);
        self.session().observation().queued(&self.label);
        if let Some(led) = led {
            self.see_whether_first(&parked, &led, limits);
        }
        match wait_for_turn(self, &parked)? {
            TurnOutcome::Held => {
                self.tell_joined(&mut self.state.lock(), me, Way::Shared, Some(began));
                Ok(())
            }
            TurnOutcome::Lead(lead) => self.proceed(lead, me, limits, data(), began).map(drop),
        }
    }

    /// Acquires if that needs no waiting.
    pub(crate) fn try_acquire(&self, data: impl FnOnce() -> Arc<[u8]>) -> Result<bool> {
        self.session().refuse_child()?;
        let began = sync::now();
        let held = self.try_at_once(thread_number(), data, began);
        self.tell_outcome(&held, began);
        held
    }

    fn try_at_once(
        &self,
        me: u64,
        data: impl FnOnce() -> Arc<[u8]>,
        began: Instant,
    ) -> Result<bool> {
        let lead = {
            let mut state = self.state.lock();
            if self.enter_at_once(&mut state, me)? {
                return Ok(true);
            }
            // While another leads, who may be waiting for a writer that came after us, this
            // thread tries for itself.
            (!std::mem::replace(&mut state.leading, true)).then(|| self.lead())
        };
        let limits = WaitLimits::none();
        let waiter = Waiter::new(self.session(), &limits);
        if lead.is_some() && self.join_after_a_look(me, &waiter, began) {
            return Ok(true);
        }
        let request = AcquireRequest {
            wants_news: true,
            ..AcquireRequest::plain(data())
        };
        let Some(acquired) = self.protocol.try_acquire(&waiter, &request)? else {
            return Ok(false);
        };
        self.hold(me, acquired, began);
        Ok(true)
    }

    /// Acquires for a thread that holds the write lock, and does not read yet: it need not wait.
    pub(crate) fn acquire_under(
        &self,
        writing: &Tenure,
        limits: &WaitLimits,
        data: &Arc<[u8]>,
    ) -> Result<()> {
        self.session().refuse_child()?;
        // A writer who has lost its lock need not wait for contact to be told so.
        let still_writes = || {
            if writing.is_lost() {
                return Err(writing.loss());
            }
            Ok(())
        };
        let began = sync::now();
        let _waits = self.session().observation().waits();
        let waiter = Waiter::new(self.session(), limits).only_while(&still_writes);
        let acquired = self.protocol.stand_in_for(writing, &waiter, data);
        let acquired = acquired.inspect_err(|error| self.tell_failed(error, began))?;
        self.hold(thread_number(), acquired, began);
        Ok(())
    }

    /// As [`SharedQueue::acquire_under`], without waiting for a connection.
    pub(crate) fn try_acquire_under(&self, writing: &Tenure, data: &Arc<[u8]>) -> Result<()> {
        self.session().refuse_child()?;
        let began = sync::now();
        let limits = WaitLimits::none();
        let waiter = Waiter::new(self.session(), &limits);
        let acquired = self.protocol.try_to_stand_in_for(writing, &waiter, data);
        let acquired = acquired.inspect_err(|error| self.tell_failed(error, began))?;
        self.hold(thread_number(), acquired, began);
        Ok(())
    }

    /// Gives this thread, which has just seen that it may read, a group of its own.
    fn hold(&self, me: u64, acquired: Acquisition, began: Instant) {
        if self.revocable {
            let lock: Weak<dyn OnRevoke> = self.this.clone();
            acquired.tenure.make_revocable(lock);
        }
        acquired.tenure.tell_as(&self.label);
        self.hear(&acquired.news);
        let waited = sync::now().saturating_duration_since(began);
        let mut state = self.state.lock();
        let superseded = state.found(me, acquired);
        self.tell_acquired(&mut state, me, waited, Way::Asked);
        drop(state);
        if let Some(group) = superseded {
            drop(self.start_end(group));
        }
    }

    /// This thread has come into a group that was there, by a call that began to wait then.
    fn tell_joined(&self, state: &mut Readers, me: u64, by: Way, began: Option<Instant>) {
        let waited = began.map(|began| sync::now().saturating_duration_since(began));
        self.tell_acquired(state, me, waited.unwrap_or_default(), by);
    }

    /// Tells of a hold that is new: not of a re-entry.
    fn tell_acquired(&self, state: &mut Readers, me: u64, waited: Duration, by: Way) {
        let observation = self.session().observation();
        if let Some(hold) = state.holds.get_mut(&me).filter(|hold| hold.depth == 1) {
            hold.since = observation.is_on().then(sync::now);
            observation.acquired(&self.label, waited, by);
        }
    }

    fn lead(&self) -> Lead<'_, Self> {
        Lead::new(self, self.protocol.begin())
    }

    /// Re-entry, or the open group, idle or not. A thread that already holds enters even if a writer
    /// waits: that writer waits for this very thread, and both would wait for ever.
    fn enter_at_once(&self, state: &mut Readers, me: u64) -> Result<bool> {
        if state.closed {
            return Err(Error::closed());
        }
        if let Some(hold) = state.holds.get_mut(&me) {
            if let Some(group) = state.groups.get(&hold.group) {
                group.tenure.refuse_lost()?;
            }
            hold.depth = hold.depth.checked_add(1).ok_or_else(too_deep)?;
            return Ok(true);
        }
        // The sleepers came first.
        if !state.wait_queue.is_empty() {
            return Ok(false);
        }
        let Some((number, group)) = state.open_group() else {
            return Ok(false);
        };
        if !group.can_be_joined() {
            return Ok(false);
        }
        let by = state.join(me, number);
        self.tell_joined(state, me, by, None);
        Ok(true)
    }

    /// Looks whether a writer is behind the leader's node. If none is, this thread came before any
    /// later writer.
    fn see_whether_first(&self, parked: &ParkedThread, led: &str, limits: &WaitLimits) {
        let waiter = Waiter::new(self.session(), limits);
        if let Ok(true) = self.protocol.nobody_waits_for(led, &waiter) {
            parked.comes_first();
        }
        // Else it is as if one did. Limits that are over end the sleep that follows.
    }

    /// Joins the open group if a look allows it, or queues in the global queue for all.
    /// Returns whether others were seen ahead there.
    fn proceed(
        &self,
        mut lead: Lead<'_, Self>,
        me: u64,
        limits: &WaitLimits,
        data: Arc<[u8]>,
        began: Instant,
    ) -> Result<bool> {
        let waiter = Waiter::new(self.session(), limits).since(began);
        if lead.contender().is_not_created() && self.join_after_a_look(me, &waiter, began) {
            return Ok(false);
        }
        let entered = |name: &str| self.state.lock().led = Some(name.to_owned());
        let told = Cell::new(false);
        let behind = || {
            if !told.replace(true) {
                self.session().observation().queued(&self.label);
            }
        };
        let request = AcquireRequest {
            wants_news: true,
            reporter: limits.reporter.as_deref(),
            entered: &entered,
            behind: &behind,
            ..AcquireRequest::plain(data)
        };
        let acquired = self.protocol.acquire(lead.contender(), &waiter, &request)?;
        self.hold(me, acquired, began);
        // Those who lead win for others, too. Not those who keep a writer's place: they still
        // write.
        self.state.lock().admit();
        Ok(told.get())
    }

    /// Finds out whether a writer waits for the open group; if not, this thread and all who sleep
    /// join it. If it does not come to that, an idle group ends. Called with the lead.
    fn join_after_a_look(&self, me: u64, waiter: &Waiter<'_>, began: Instant) -> bool {
        let joins = self.look_and_join(me, waiter, began);
        if !joins {
            // It would be behind the group that is to come, and nobody's.
            drop(self.start_idle_release());
        }
        joins
    }

    fn look_and_join(&self, me: u64, waiter: &Waiter<'_>, began: Instant) -> bool {
        let open = {
            let mut state = self.state.lock();
            state.open_group().and_then(|(number, group)| {
                let worth_a_look =
                    group.is_good() && !matches!(group.others(), Others::SomeoneWaits);
                worth_a_look.then(|| (number, Arc::clone(&group.tenure)))
            })
        };
        let Some((number, tenure)) = open else {
            return false;
        };
        let looked = waiter
            .contact_now()
            .and_then(|contact| self.protocol.look_for_others(&tenure, &contact));
        let news = match looked {
            Ok(news) => news,
            Err(error) => {
                say!(
                    self.session(),
                    Debug,
                    "a group is not joined, as nobody knows whether others wait: {error:?}"
                );
                return false;
            }
        };
        let mut state = self.state.lock();
        // Its last member may have left meanwhile.
        if state.open != Some(number) {
            return false;
        }
        let before = self.note(&mut state, number, news);
        let joins = state.groups[&number].can_be_joined();
        if joins {
            let by = state.join(me, number);
            self.tell_joined(&mut state, me, by, Some(began));
            state.admit();
        }
        drop(state);
        drop(before);
        joins
    }

    // ---- what the lock's users can see ----

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.protocol.session()
    }

    // In a forked child the lock may be held by a thread that is not there.

    /// Whether any thread of this process holds.
    pub(crate) fn is_held(&self) -> bool {
        !self.session().is_forked() && !self.state.lock().holds.is_empty()
    }

    /// How often this thread holds.
    pub(crate) fn depth(&self) -> u32 {
        if self.session().is_forked() {
            return 0;
        }
        let state = self.state.lock();
        state
            .holds
            .get(&thread_number())
            .map_or(0, |hold| hold.depth)
    }

    /// The tenure in which this thread holds.
    pub(crate) fn tenure(&self) -> Arc<Tenure> {
        let state = self.state.lock();
        let hold = state.holds.get(&thread_number());
        let group = hold.and_then(|hold| state.groups.get(&hold.group));
        Arc::clone(&group.expect("asked by a guard of this thread").tenure)
    }

    /// The node that is kept with nobody inside.
    pub(crate) fn idle_node(&self) -> Option<String> {
        if self.session().is_forked() {
            return None;
        }
        let mut state = self.state.lock();
        let (_, group) = state.idle_group()?;
        Some(group.tenure.node().to_owned())
    }

    /// The tenure that is kept with nobody inside, and since when.
    #[cfg(not(shuttle))]
    pub(super) fn kept(&self) -> Option<(Arc<Tenure>, Instant)> {
        let mut state = self.state.lock();
        let (_, group) = state.idle_group()?;
        Some((Arc::clone(&group.tenure), group.idle_since?))
    }

    /// The threads that hold, how often, and by what; and how many wait.
    #[cfg(not(shuttle))]
    pub(super) fn holders(&self) -> (Vec<(u64, u32, Arc<Tenure>)>, usize) {
        let state = self.state.lock();
        let holders = state.holds.iter().filter_map(|(thread, hold)| {
            let group = state.groups.get(&hold.group)?;
            Some((*thread, hold.depth, Arc::clone(&group.tenure)))
        });
        let waiting = state.wait_queue.len() + usize::from(state.leading);
        (holders.collect(), waiting)
    }

    /// Our nodes.
    pub(crate) fn own_nodes(&self) -> Vec<String> {
        if self.session().is_forked() {
            return Vec::new();
        }
        let state = self.state.lock();
        let groups = state.groups.values();
        groups.map(|group| group.tenure.node().to_owned()).collect()
    }

    /// How many threads sleep in the queue, and know that they came before any writer behind them.
    #[cfg(all(test, shuttle))]
    pub(crate) fn sleeping_first(&self) -> usize {
        self.state.lock().wait_queue.first_comers()
    }
}
