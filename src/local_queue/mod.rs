//! The local queue: the threads of this process, first come first served. One of them goes to the
//! global queue for all, and inside a tenure they hand the lock to each other.
//!
//! # Who may change what
//!
//! [`LocalQueue::state`] guards [`Local`]; nothing is called under it that blocks or calls back.
//! `turn` says who is responsible for the lock in this process:
//!
//! | `turn`       | who                              | ends when                                   |
//! |--------------|----------------------------------|---------------------------------------------|
//! | `Free`       | nobody                           | a thread comes: it leads                     |
//! | `Leading`    | the thread that holds a [`Lead`] | it wins (`Held`), or passes the lead on      |
//! | `Held`       | the thread in `owner`            | it releases                                  |
//! | `Between`    | the thread that released         | it has looked for others, or left the queue  |
//! | `Idle`       | nobody; the tenure is kept       | a thread comes, another process does, or time|
//!
//! A thread that finds the turn taken sleeps in the queue, as a [`ParkedThread`]. Whoever ends a turn
//! offers what comes next to the first of them, under `state`; it takes that, or has left: one
//! transition, under its own lock, so that a thread at its deadline and the one who serves it agree
//! on who was first.
//!
//! # Holds
//!
//! `depth` counts the holds that stay with the owner's thread: its guards. `Local::detached` counts
//! those that may go to another thread: a guard inside an error. The turn lasts until both are zero;
//! whoever gives the last one back ends it, on any thread, and the owner is the owner until then.
//! Only it takes holds, detaches them and takes them back, so a hold that was sent away gives nobody
//! else a way in.
//!
//! - `owner` is written under `state`: by whoever makes a thread the holder, before that thread can
//!   see it, and by whoever ends the turn. It is read without only by a thread that looks whether it
//!   is the owner itself. "No" is true: nobody makes a thread the owner while that thread looks.
//!   "Yes" may be over, if all of its holds were detached, and is asked again under `state` by whoever
//!   relies on it; but a thread that has a guard is the owner for as long.
//! - `depth` is written by the owner alone while it is one. It comes from 0 to 1 and from 1 to 0
//!   under `state`, so whoever gives a detached hold back sees there whether it is 0. Between 1 and
//!   more no lock is needed: what others may read meanwhile is never 0.

mod candidate;
mod detached;
#[cfg(not(shuttle))]
mod glance;
mod idle;
mod lead;
mod owned;
mod release;
mod shared;
mod telling;
mod tenure_use;
mod thread_number;
mod wait_queue;

use crate::session::observe::say;
use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub(crate) use self::candidate::{Candidate, Candidates, take_together, try_together};
use self::lead::{Entry, Lead, Leads, wait_for_turn};
pub(crate) use self::owned::Owned;
pub(crate) use self::shared::SharedQueue;
pub(crate) use self::tenure_use::Policy;
use self::tenure_use::TenureUse;
use self::thread_number::thread_number;
use self::wait_queue::{ParkedThread, WaitQueue};
use crate::error::{Error, Result};
#[cfg(not(shuttle))]
use crate::global_queue::GlobalQueue;
use crate::global_queue::{Claim, Contest, OthersWaiting, Place, Queued, Won};
use crate::session::observe::observer::{Label, Way};
use crate::session::{LocalLock, OnWatchEvent, Session, Waiter, Wake};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{self, Mutex, MutexGuard};
use crate::tenure::{OnRevoke, Tenure};
use crate::wait::bound::Bound;
use crate::znode::path::LockPath;

/// The threads of this process at one lock.
pub(crate) struct LocalQueue {
    session: Arc<Session>,
    contest: Box<dyn Contest>,
    policy: Policy,
    /// The number of the thread that holds, 0 for none.
    owner: AtomicU64,
    /// How many guards the owner has; see [Holds](self#holds).
    depth: AtomicU32,
    state: Mutex<Local>,
    this: Weak<Self>,
    key: u64,
}

struct Local {
    turn: Turn,
    /// How many holds may be on any thread. Each is a value in memory, so the count does not
    /// overflow.
    detached: usize,
    wait_queue: WaitQueue,
    /// A timer runs that will look at an idle tenure.
    timed: bool,
    closed: bool,
}

/// In boxes: what is passed from turn to turn moves often.
enum Turn {
    Free,
    Leading,
    Held(Box<TenureUse>),
    Between,
    Idle {
        tenure_use: Box<TenureUse>,
        since: Instant,
    },
}

impl LocalQueue {
    pub(crate) fn new(contest: impl Contest + 'static, policy: Policy) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let lock: Weak<dyn LocalLock> = this.clone();
            let session = Arc::clone(contest.session());
            Self {
                key: session.add_lock(lock),
                session,
                contest: Box::new(contest),
                policy,
                owner: AtomicU64::new(0),
                depth: AtomicU32::new(0),
                state: Mutex::new(Local {
                    turn: Turn::Free,
                    detached: 0,
                    wait_queue: WaitQueue::default(),
                    timed: false,
                    closed: false,
                }),
                this: this.clone(),
            }
        })
    }

    /// Acquires, or says why not. Afterwards this thread holds once more than before.
    #[inline]
    pub(crate) fn acquire(&self, bound: &Bound, data: impl FnOnce() -> Arc<[u8]>) -> Result<()> {
        self.session.refuse_child()?;
        let me = thread_number();
        if self.enter_again(me)? || self.take_idle(me) {
            return Ok(());
        }
        self.acquire_slowly(me, bound, data)
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
    fn lock_as_owner(&self, me: u64) -> Option<MutexGuard<'_, Local>> {
        if self.owner.load(Ordering::Relaxed) != me {
            return None;
        }
        let local = self.state.lock();
        (self.owner.load(Ordering::Relaxed) == me).then_some(local)
    }

    /// One guard more of this thread, the owner.
    #[inline]
    fn deepen(&self, _: &Local) -> Result<()> {
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
    fn make_owner(&self, thread: u64) {
        self.depth.store(1, Ordering::Relaxed);
        self.owner.store(thread, Ordering::Relaxed);
    }

    #[cold]
    fn acquire_slowly(
        &self,
        me: u64,
        bound: &Bound,
        data: impl FnOnce() -> Arc<[u8]>,
    ) -> Result<()> {
        let began = sync::now();
        let _waits = self.session.observation().waits();
        let result = match self.come_to_turn(me, bound, began) {
            Ok(Entry::Held) => Ok(()),
            Ok(Entry::Lead(lead)) => self.contend(lead, me, bound, data(), began).map(drop),
            Err(error) => Err(error),
        };
        result.inspect_err(|error| self.tell_failed(error, began))
    }

    /// Waits until this thread holds, or leads.
    fn come_to_turn(&self, me: u64, bound: &Bound, began: Instant) -> Result<Entry<'_, Self>> {
        let mut local = self.state.lock();
        if local.closed {
            return Err(Error::closed());
        }
        if self.take_idle_locked(&mut local, me) {
            return Ok(Entry::Held);
        }
        if let Some(tenure_use) = local.begin_lead() {
            drop(local);
            return Ok(Entry::Lead(self.lead_after(tenure_use, bound)));
        }
        let parked = ParkedThread::new(me, bound);
        local.wait_queue.push(Arc::clone(&parked));
        drop(local);
        self.tell_queued();
        let entry = wait_for_turn(self, &parked)?;
        if let Entry::Held = entry {
            let waited = sync::now().saturating_duration_since(began);
            self.tell_acquired(waited, Way::HandedOver);
        }
        Ok(entry)
    }

    /// This thread leads from now on; an idle tenure that is not good any more ends first.
    fn lead_after(&self, tenure_use: Option<Box<TenureUse>>, bound: &Bound) -> Lead<'_, Self> {
        let lead = self.lead();
        match tenure_use {
            None => {}
            Some(tenure_use) if bound.is_none() => {
                let departure = self.contest.send_off(&tenure_use.tenure, tenure_use.news);
                if let Err(error) = departure.confirm() {
                    say!(self.session, Debug, "an idle tenure ended: {error}");
                }
            }
            // This caller may have no time for the delete. It is done in the background, and until
            // then the old node is just another one ahead.
            Some(tenure_use) => self.contest.abandon(&tenure_use.tenure, tenure_use.news),
        }
        lead
    }

    fn lead(&self) -> Lead<'_, Self> {
        Lead::new(self, self.contest.begin())
    }

    /// Queues in the global queue for all threads of this process. Returns whether others were seen
    /// ahead there.
    fn contend(
        &self,
        mut lead: Lead<'_, Self>,
        me: u64,
        bound: &Bound,
        data: Arc<[u8]>,
        began: Instant,
    ) -> Result<bool> {
        let waiter = Waiter::new(&self.session, bound).since(began);
        let told = Cell::new(false);
        let behind = || {
            if !told.replace(true) {
                self.tell_queued();
            }
        };
        let claim = Claim {
            behind: &behind,
            wants_news: self.wants_news(),
            reporter: bound.reporter.as_deref(),
            ..Claim::plain(data)
        };
        let won = self.contest.acquire(lead.place(), &waiter, &claim)?;
        self.hold(lead, me, won, began);
        Ok(told.get())
    }

    /// Whether news of others will be wanted at the release.
    fn wants_news(&self) -> bool {
        !self.policy.linger.is_zero()
            || (self.policy.hand_off && !self.state.lock().wait_queue.is_empty())
    }

    fn hold(&self, lead: Lead<'_, Self>, me: u64, won: Won, began: Instant) {
        lead.won();
        if self.policy.revocable {
            let lock: Weak<dyn OnRevoke> = self.this.clone();
            won.tenure.make_revocable(lock);
        }
        if !self.policy.is_part {
            won.tenure.tell_as(&self.policy.label);
        }
        let mut tenure_use = self.tenure_use(won);
        tenure_use.held_since = self.begin_hold();
        let mut local = self.state.lock();
        local.turn = Turn::Held(tenure_use);
        self.make_owner(me);
        drop(local);
        let waited = sync::now().saturating_duration_since(began);
        self.tell_acquired(waited, Way::Asked);
    }

    fn tenure_use(&self, won: Won) -> Box<TenureUse> {
        let mut tenure_use = Box::new(TenureUse {
            tenure: won.tenure,
            news: OthersWaiting::Unknown(None),
            handoffs: 0,
            others_wait_since: None,
            held_since: None,
        });
        self.note(&mut tenure_use, won.news);
        tenure_use
    }

    /// Takes note of fresh news.
    fn note(&self, tenure_use: &mut TenureUse, news: OthersWaiting) {
        match &news {
            OthersWaiting::No(watch) => {
                // From now on the watch speaks to the lock, no longer to the thread that waited.
                let lock: Weak<dyn OnWatchEvent> = self.this.clone();
                watch.notice().redirect(Wake::Lock(lock));
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
        let bound = Bound::none();
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
            self.lead_after(tenure_use, &bound)
        };
        let waiter = Waiter::new(&self.session, &bound);
        let claim = Claim {
            wants_news: self.wants_news(),
            ..Claim::plain(data())
        };
        match self.contest.try_acquire(&waiter, &claim)? {
            Some(won) => {
                self.hold(lead, me, won, began);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    // ---- what the lock's users can see ----

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn path(&self) -> &LockPath {
        self.contest.path()
    }

    /// What observers are told that the lock is called.
    #[cfg(not(shuttle))]
    pub(crate) fn label(&self) -> &Label {
        &self.policy.label
    }

    /// The contenders in the global queue, in order.
    pub(crate) fn participants(&self) -> Result<Vec<Queued>> {
        self.contest.participants()
    }

    /// Asks for the lock back. Returns whether the node was still there.
    pub(crate) fn revoke(&self, path: &str) -> Result<bool> {
        self.contest.revoke(path)
    }

    /// Deletes a contender's node. Returns whether it was still there.
    pub(crate) fn break_lock(&self, path: &str) -> Result<bool> {
        self.contest.break_lock(path)
    }

    pub(crate) fn is_owner(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == thread_number()
    }

    /// What tells the lock from others in its folder.
    #[cfg(not(shuttle))]
    pub(crate) fn own_labels(&self) -> String {
        let queue = self.contest.as_queue();
        queue.map_or_else(String::new, GlobalQueue::folder_labels)
    }

    // In a forked child the lock may be held by a thread that is not there.

    /// Whether any thread of this process holds.
    pub(crate) fn is_held(&self) -> bool {
        !self.session.is_forked() && matches!(self.state.lock().turn, Turn::Held(_))
    }

    /// How many holds this thread took and nobody has given back.
    pub(crate) fn depth(&self) -> u32 {
        if self.session.is_forked() {
            return 0;
        }
        let local = self.lock_as_owner(thread_number());
        local.map_or(0, |local| self.holds(&local))
    }

    /// How many holds there are.
    fn holds(&self, local: &Local) -> u32 {
        let detached = u32::try_from(local.detached).unwrap_or(u32::MAX);
        self.depth.load(Ordering::Relaxed).saturating_add(detached)
    }

    /// The tenure in which this thread holds. Called for one of its holds.
    pub(crate) fn tenure(&self) -> Arc<Tenure> {
        match &self.state.lock().turn {
            Turn::Held(tenure_use) => Arc::clone(&tenure_use.tenure),
            _ => unreachable!("asked for a hold"),
        }
    }

    /// How many threads sleep in the local queue.
    #[cfg(all(test, shuttle))]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().wait_queue.len()
    }

    /// Our node at the head of the queue.
    pub(crate) fn own_node(&self) -> Option<String> {
        if self.session.is_forked() {
            return None;
        }
        match &self.state.lock().turn {
            Turn::Held(tenure_use) | Turn::Idle { tenure_use, .. } => {
                Some(tenure_use.tenure.node().to_owned())
            }
            _ => None,
        }
    }

    /// The node of a tenure that is kept with nobody inside.
    pub(crate) fn idle_node(&self) -> Option<String> {
        if self.session.is_forked() {
            return None;
        }
        match &self.state.lock().turn {
            Turn::Idle { tenure_use, .. } => Some(tenure_use.tenure.node().to_owned()),
            _ => None,
        }
    }
}

impl Leads for LocalQueue {
    fn pass_on(&self, place: Place) {
        self.pass_lead_on(place);
    }

    fn vacate(&self, parked: &Arc<ParkedThread>) {
        self.state.lock().wait_queue.remove(parked);
    }

    fn name(&self) -> &str {
        self.path().as_str()
    }
}

impl Local {
    /// Begins a lead if nobody is responsible for the lock. An idle tenure, which the caller could
    /// not take, is given back to be ended.
    #[expect(
        clippy::option_option,
        reason = "outer: whether; inner: what to end first"
    )]
    fn begin_lead(&mut self) -> Option<Option<Box<TenureUse>>> {
        match std::mem::replace(&mut self.turn, Turn::Leading) {
            Turn::Free => Some(None),
            Turn::Idle { tenure_use, .. } => Some(Some(tenure_use)),
            turn => {
                self.turn = turn;
                None
            }
        }
    }
}

impl Drop for LocalQueue {
    fn drop(&mut self) {
        // A forked child has a copy of what is its parent's.
        if self.session.is_forked() {
            return;
        }
        self.session.remove_lock(self.key);
        // No guard is left, so the only tenure there can be is an idle one.
        let mut local = self.state.lock();
        if let Turn::Idle { tenure_use, .. } = std::mem::replace(&mut local.turn, Turn::Free) {
            drop(local);
            self.contest.abandon(&tenure_use.tenure, tenure_use.news);
        }
    }
}

/// The refusal of a re-entry by a lock that was built without.
#[cold]
pub(crate) fn holds_already(path: &LockPath) -> Error {
    Error::would_deadlock(format!(
        "{path}: this thread holds it already, and it was built with reentrant(false)"
    ))
}

fn too_deep() -> Error {
    Error::invalid("the lock is held 4,294,967,295 times by this thread already")
}
