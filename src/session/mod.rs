//! The session, between the locks and ZooKeeper.
//!
//! It knows the present [epoch](crate::link::Epoch) and connection, lets a call be made only on the
//! connection that it is about ([`contact`]), wakes waiters when anything about the connection
//! changes, tells everything that depends on an epoch when that is lost, and removes what could not
//! be removed at once ([`orphans`]).
//!
//! # You may stop reading here
//! Locks see of the session what is re-exported below, and no more:
//!
//! | what | for |
//! |---|---|
//! | [`Session`] | what a client has: its state, its jobs and timers, what stands and falls with it |
//! | [`Waiter`] | a thread that waits: for a contact, within its limits, and over broken connections |
//! | [`Contact`] | one connection of one epoch, and the [verbs] by which ZooKeeper is asked |
//! | [`CallError`], [`Refusal`] | why a verb has no answer, and what that means |
//! | [`Watch`] | an interest in a node, and the proof that lies in its silence |
//! | [`Orphan`], [`Proof`], [`PendingCall`] | our own nodes that must go, now or when they can |
//! | [`EpochBound`], [`LocalLock`], [`OnTimer`], [`OnWatchEvent`] | what the session calls above |
//!
//! All else is private to this folder: how a call travels and who waits for it ([`own_call`]), the
//! registry of [watches], the [phases](phase), the [clean-up](sweep), and the [seam](backend) to
//! the link, which is another reader's story.
//!
//! # Who may change what
//! `Session::state` guards all of [`SessionState`]. While it is locked, no call to ZooKeeper is made,
//! nothing is logged, no caller's code runs, and nothing below the seam is called. Lock order: a
//! lock's local queue, then `Session::state`, then the locks of watches, the job queues, signals and
//! the link, of which none calls back up.
//!
//! Whoever must hear of something is told before it is logged: a logger is somebody else's code,
//! and may block or panic.

mod acl;
mod backend;
mod call_error;
mod connection;
mod contact;
mod created;
mod departures;
mod epoch_bound;
mod loss;
#[cfg(all(test, shuttle))]
pub(crate) mod memory;
pub(crate) mod observe;
mod orphan;
mod orphans;
mod own_call;
mod patrol;
mod pending_call;
mod phase;
mod refusal;
mod retry;
mod retry_policy;
#[cfg(all(test, not(shuttle)))]
pub(crate) mod scripted;
mod site;
mod sweep;
mod together;
mod transitions;
mod trouble;
mod verbs;
mod waiter;
mod watch_state;
mod watches;
#[cfg(not(shuttle))]
mod zk;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

pub use self::acl::{Acl, Permissions};
use self::backend::Backend;
pub(crate) use self::backend::{Batching, Created};
pub(crate) use self::call_error::{CallError, Step};
pub use self::connection::{ConnectionEvent, ConnectionState};
pub(crate) use self::contact::Contact;
pub(crate) use self::created::{find_all_created, find_plain};
use self::departures::Departures;
pub(crate) use self::epoch_bound::EpochBound;
pub use self::loss::LossReason;
use self::observe::observer::Observer;
pub(crate) use self::observe::{Observation, Stats};
pub(crate) use self::orphan::{ID, Orphan, Proof};
use self::orphans::Orphans;
pub(crate) use self::pending_call::PendingCall;
use self::phase::{Connection, NoContact, SessionPhase};
pub(crate) use self::refusal::Refusal;
pub use self::retry_policy::RetryPolicy;
pub(crate) use self::site::{Site, new_node};
pub(crate) use self::together::{ChangedAndListed, Listing};
use self::trouble::Trouble;
pub(crate) use self::verbs::{Changes, Seen, found, gone};
pub(crate) use self::waiter::Waiter;
use self::watches::Watches;
pub(crate) use self::watches::{OnWatchEvent, Wake, Watch};
#[cfg(not(shuttle))]
pub(crate) use self::zk::ToSession;
use crate::error::{Error, Result};
use crate::fork::ForkCheck;
use crate::job_queue::JobQueue;
use crate::link::Epoch;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, Mutex};
use crate::wait::signal::Signal;

/// How long the end of a session may take.
pub(crate) const CLOSE_BOUND: Duration = Duration::from_secs(2);
/// Events kept for a receiver that does not read them.
const EVENT_BACKLOG: usize = 1024;

/// A lock object, as its session sees it.
pub(crate) trait LocalLock: Send + Sync {
    /// The client was closed: wake everybody who queues locally.
    fn closed(&self);
    /// There is contact again in the same session. On `zklock-chores`.
    fn reconnected(&self) {}
}

/// Something to be called at a time.
pub(crate) trait OnTimer: Send + Sync {
    /// Called on `zklock-chores`.
    fn on_timer(self: Arc<Self>);
}

/// One client's session and all that depends on it.
pub(crate) struct Session {
    /// Where to: the hosts as the user wrote them, for messages.
    target: String,
    fork: ForkCheck,
    retry: RetryPolicy,
    backend: OnceLock<Arc<dyn Backend>>,
    site: Site,
    state: Mutex<SessionState>,
    /// The number of the connection that is open, 0 while none is. Written under `state`, read
    /// anywhere: a tenure is proven on one connection and suspect on any other.
    connection: AtomicU64,
    watches: Watches,
    /// Requests that nobody waits for: orphans to remove, tenures to look at after a reconnect,
    /// idle tenures to end. While it is stuck on a silent connection, until the link has cut that,
    /// further jobs wait: nothing that a holder must be told depends on them.
    background: JobQueue,
    departures: Arc<Departures>,
    orphans: Orphans,
    observation: Observation,
}

struct SessionState {
    phase: SessionPhase,
    next_key: u64,
    /// Threads that want to know of every change of the connection.
    waiters: BTreeMap<u64, Arc<Signal>>,
    /// Stand and fall with the epoch.
    tenures: BTreeMap<u64, Weak<dyn EpochBound>>,
    /// A timer runs that will look at them; see [`patrol`].
    patrolling: bool,
    locks: BTreeMap<u64, Weak<dyn LocalLock>>,
    subscribers: Vec<Sender<ConnectionEvent>>,
    trouble: Trouble,
}

impl Session {
    /// A session without a backend yet: nothing happens to it before [`Session::attach`].
    pub(crate) fn new(
        target: String,
        retry: RetryPolicy,
        observers: Vec<Box<dyn Observer>>,
        site: Site,
    ) -> Arc<Self> {
        let phase = SessionPhase::new(sync::now());
        let fork = ForkCheck::new();
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            target,
            fork: fork.clone(),
            retry,
            backend: OnceLock::new(),
            site,
            state: Mutex::new(SessionState {
                phase,
                next_key: 0,
                waiters: BTreeMap::new(),
                tenures: BTreeMap::new(),
                patrolling: false,
                locks: BTreeMap::new(),
                subscribers: Vec::new(),
                trouble: Trouble::default(),
            }),
            connection: AtomicU64::new(0),
            watches: Watches::default(),
            background: JobQueue::new("zklock-chores", usize::MAX, {
                let this = Weak::clone(this);
                move || {
                    if let Some(session) = this.upgrade() {
                        session.background_panicked();
                    }
                }
            }),
            departures: Departures::new(),
            orphans: Orphans::default(),
            observation: Observation::new(observers, fork),
        })
    }

    /// Gives the session its backend, before that has told of anything.
    pub(crate) fn attach(&self, backend: Arc<dyn Backend>) {
        if self.backend.set(backend).is_err() {
            unreachable!("a session is given its backend once");
        }
    }

    fn backend(&self) -> &dyn Backend {
        &**self
            .backend
            .get()
            .expect("no call begins before the backend is there")
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Whether the ACL of the nodes that we make lets anybody read them.
    pub(crate) fn makes_readable_nodes(&self) -> bool {
        self.site.makes_readable_nodes()
    }

    /// Tells observers, loggers and counters what goes on.
    #[inline]
    pub(crate) fn observation(&self) -> &Observation {
        &self.observation
    }

    /// The counts so far, and what stands now.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.observation.stats();
        if !self.is_forked() {
            let state = self.state.lock();
            stats.held = state.tenures.len() as u64;
            let epoch = state.phase.epoch();
            stats.remaining_lease = epoch.map(|epoch| epoch.lease().remaining(epoch.now()));
        }
        stats
    }

    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Whether this is the child of a fork, in which nothing of this session works.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.fork.forked()
    }

    #[inline]
    pub(crate) fn refuse_child(&self) -> Result<()> {
        self.fork.refuse_child()
    }

    pub(crate) fn state(&self) -> ConnectionState {
        if self.is_forked() {
            return ConnectionState::Closed;
        }
        self.state.lock().phase.state()
    }

    fn is_closed(&self) -> bool {
        self.state.lock().phase.is_closed()
    }

    pub(crate) fn refuse_closed(&self) -> Result<()> {
        self.refuse_child()?;
        match self.is_closed() {
            true => Err(NoContact::Closed.into_error(self.target())),
            false => Ok(()),
        }
    }

    /// The open connection's number, 0 while there is none.
    #[inline]
    pub(crate) fn connection(&self) -> u64 {
        self.connection.load(Ordering::Acquire)
    }

    /// The connection that is open, unless its lease has run out. Whoever finds that first declares
    /// the session lost, so that there is one moment from which contact counts as gone: after the
    /// process was stopped, a caller can come here before the thread with the clock has looked.
    fn open_connection(&self) -> std::result::Result<Connection, NoContact> {
        // In a forked child the lock may be held by a thread that is not there.
        if self.is_forked() {
            return Err(NoContact::Forked);
        }
        let state = self.state.lock();
        let open = state.phase.open().cloned();
        let lapsed = state.phase.lapsed().cloned();
        drop(state);
        if let (Err(_), Some(epoch)) = (&open, lapsed) {
            self.lapsed(&epoch);
        }
        open
    }

    /// The session that stands; none in a forked child.
    pub(crate) fn epoch(&self) -> Option<Arc<Epoch>> {
        // There the lock may be held by a thread that is not there.
        if self.is_forked() {
            return None;
        }
        self.state.lock().phase.epoch().cloned()
    }

    /// A new receiver of connection events; in a forked child one at its end.
    pub(crate) fn subscribe(&self) -> Receiver<ConnectionEvent> {
        // Without a bound of its own it has no room yet: until the next event nobody knows whether
        // the receiver is there still.
        let (sender, receiver) = crossbeam_channel::unbounded();
        if !self.is_forked() {
            self.state.lock().subscribers.push(sender);
        }
        receiver
    }

    /// Why there is no connection to any of these hosts.
    pub(crate) fn trouble_with_each(&self, hosts: &[String]) -> String {
        self.state.lock().trouble.of_each(hosts)
    }

    /// When a caller without contact, whose call began then, stops waiting for it; an error if there
    /// is none to come.
    ///
    /// From the loss of contact alone, a call in a long outage would fail as soon as it is made, and
    /// a caller who asks again after each failure would never sleep.
    fn when_to_give_up(&self, began: Option<Instant>) -> Result<Option<Instant>> {
        let state = self.state.lock();
        if let Some(scheme) = &state.trouble.refused_auth {
            let target = &self.target;
            return Err(Error::auth_failed(format!("{target}, scheme {scheme}")));
        }
        let since = began.map(|began| state.phase.out_of_contact_since().max(began));
        let limit = self.retry.give_up_after;
        Ok(since
            .zip(limit)
            .and_then(|(since, limit)| since.checked_add(limit)))
    }

    fn gave_up(&self) -> Error {
        let (target, limit) = (&self.target, self.retry.give_up_after.unwrap_or_default());
        let why = self.state.lock().trouble.known();
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        Error::connection_loss(format!(
            "{target}, while this call waited {limit:?} for one{why}"
        ))
    }

    // ---- what the layers above register ----

    fn add_waiter(&self, signal: &Arc<Signal>) -> u64 {
        if self.is_forked() {
            return 0;
        }
        let mut state = self.state.lock();
        let key = state.key();
        state.waiters.insert(key, Arc::clone(signal));
        key
    }

    fn remove_waiter(&self, key: u64) {
        if !self.is_forked() {
            self.state.lock().waiters.remove(&key);
        }
    }

    /// Adds what stands with the epoch of `contact`: it hears of a loss, and is verified after a
    /// reconnect. `None` when that connection does not stand any more: the verification after the
    /// reconnect could have missed it.
    pub(crate) fn add_tenure(
        self: &Arc<Self>,
        tenure: Weak<dyn EpochBound>,
        contact: &Contact<'_>,
    ) -> Option<u64> {
        let mut state = self.state.lock();
        let open = state.phase.open().ok()?;
        if open.number != contact.number() {
            return None;
        }
        let key = state.key();
        state.tenures.insert(key, tenure);
        let patrol = !std::mem::replace(&mut state.patrolling, true);
        drop(state);
        // The next look may be as late as the lease of a session in which nothing stood.
        let epoch = contact.epoch();
        if epoch.lease().ends_within_a_beat(epoch.now()) {
            self.backend().look_soon();
        }
        if patrol {
            self.patrol_later();
        }
        Some(key)
    }

    pub(crate) fn remove_tenure(&self, key: u64) {
        // In a forked child the lock may be held by a thread that is not there.
        if !self.is_forked() {
            self.state.lock().tenures.remove(&key);
        }
    }

    /// Adds a lock whose local waiters must hear of a close.
    pub(crate) fn add_lock(&self, lock: Weak<dyn LocalLock>) -> u64 {
        if self.is_forked() {
            return 0;
        }
        let mut state = self.state.lock();
        let key = state.key();
        state.locks.insert(key, lock);
        key
    }

    pub(crate) fn remove_lock(&self, key: u64) {
        if !self.is_forked() {
            self.state.lock().locks.remove(&key);
        }
    }

    /// Runs `job` on `zklock-chores`. Not after the end.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        self.background.run(job);
    }

    /// As [`submit`](Self::submit), and the end waits for it, for half of its bound.
    pub(crate) fn submit_departure(&self, job: impl FnOnce() + Send + 'static) {
        let under_way = self.departures.begin();
        self.submit(move || {
            job();
            drop(under_way);
        });
    }

    /// Calls `timer` on `zklock-chores`, `at` or soon after. Not after the end.
    pub(crate) fn at(&self, at: Instant, timer: Weak<dyn OnTimer>) {
        let call = move || {
            if let Some(timer) = timer.upgrade() {
                timer.on_timer();
            }
        };
        // In a model, time is an event like any other.
        if cfg!(shuttle) {
            self.background.run(call);
        } else {
            self.background.run_at(at, call);
        }
    }

    /// Runs `job` on `zklock-chores` when what was refused for now, so many times in a row before,
    /// may be asked again. Not after the end, so it must not be what keeps a session from its end.
    pub(crate) fn after_pause(&self, times: u32, job: impl FnOnce() + Send + 'static) {
        let at = sync::now().checked_add(self.retry.pause(times));
        match at.filter(|_| !cfg!(shuttle)) {
            Some(at) => self.background.run_at(at, job),
            None => self.background.run(job),
        }
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn watched_paths(&self) -> usize {
        self.watches.len()
    }
}

impl SessionState {
    fn key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Session");
        shown.field("servers", &self.target);
        if self.is_forked() {
            return shown.field("is_forked", &true).finish_non_exhaustive();
        }
        shown.field("state", &self.state());
        if let Some(epoch) = self.epoch() {
            shown.field("id", &format_args!("0x{:x}", epoch.session_id()));
        }
        shown.finish_non_exhaustive()
    }
}
