//! The session: what stands between the locks and ZooKeeper.
//!
//! It knows which [epoch](Epoch) and which connection stand, lets calls begin and end only inside
//! one epoch, wakes waiters when anything about the connection changes, tells every
//! [tenure](Tenure) when it is lost, and removes what could not be removed at once
//! ([`orphans`]).
//!
//! # Who may change what
//! All of [`State`] is under `Session::state`. No call to ZooKeeper is made and no caller's code
//! is run while it is locked; `Keeper::open`, which sets a flag of the link, is the one thing below
//! the seam that is called under it. Lock order: a lock's local queue, then `Session::state`, then
//! the locks of watches, monitor, workers, signals and the link, of which none calls back up.

pub(crate) mod acl;
mod call;
pub(crate) mod connection;
pub(crate) mod keeper;
#[cfg(all(test, shuttle))]
pub(crate) mod memory;
mod monitor;
mod orphans;
mod patrol;
mod refusal;
pub(crate) mod retry;
mod standing;
mod waiter;
pub(crate) mod watches;
mod workers;
#[cfg(not(shuttle))]
pub(crate) mod zk;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};

pub(crate) use self::call::{CallError, Step};
use self::keeper::{Keeper, WatchEvent};
use self::monitor::Monitor;
pub(crate) use self::monitor::Timed;
use self::orphans::Orphans;
pub(crate) use self::orphans::{ID, Orphan, Proof, find_created, find_plain, id_of, same_id};
pub(crate) use self::standing::Contact;
use self::standing::{NoContact, Opened, Standing};
pub(crate) use self::waiter::Waiter;
pub(crate) use self::watches::WatchGuard;
use self::watches::Watches;
use self::workers::Workers;
use crate::error::{Error, Result};
use crate::fork::ForkCheck;
use crate::link::Epoch;
use crate::session::connection::{ConnectionEvent, ConnectionState};
use crate::session::retry::RetryPolicy;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, Mutex, MutexGuard};
use crate::tenure::{LossReason, Tenure};
use crate::wait::signal::{Signal, Wakes};

/// Events kept for a receiver that does not read them.
const EVENT_BACKLOG: usize = 1024;

/// A lock object, as its session sees it.
pub(crate) trait LocalLock: Send + Sync {
    /// The client was closed: wake everybody who queues locally.
    fn closed(&self);
    /// There is contact again in the same session. On a worker thread.
    fn reconnected(&self) {}
}

/// One client's session and all that depends on it.
pub(crate) struct Session {
    /// Where to: the hosts as the user wrote them, for messages.
    target: String,
    fork: ForkCheck,
    retry: RetryPolicy,
    keeper: OnceLock<Box<dyn Keeper>>,
    state: Mutex<State>,
    /// The number of the connection that is open, 0 while none is. Written under `state`, read
    /// anywhere: a tenure is proven on one connection and suspect on any other.
    connection: AtomicU64,
    pub(crate) watches: Watches,
    workers: Workers,
    orphans: Orphans,
    monitor: Monitor,
}

struct State {
    standing: Standing,
    next_key: u64,
    /// Threads that want to know of every change of the connection.
    waiters: BTreeMap<u64, Arc<Signal>>,
    /// Tenures of the standing epoch.
    tenures: BTreeMap<u64, Weak<Tenure>>,
    /// A timer runs that will look at them; see [`patrol`].
    patrolling: bool,
    locks: BTreeMap<u64, Weak<dyn LocalLock>>,
    subscribers: Vec<Sender<ConnectionEvent>>,
    trouble: Trouble,
}

/// Why there is no connection, as far as it is known.
#[derive(Default)]
struct Trouble {
    /// The last failure at each server.
    dials: BTreeMap<String, String>,
    /// The scheme that a server refused. Nothing goes on after that.
    refused_auth: Option<String>,
}

impl Session {
    /// A session without a keeper yet: calls wait until [`Session::attach`].
    pub(crate) fn new(target: String, retry: RetryPolicy) -> Arc<Self> {
        let mut standing = Standing::new(sync::now());
        standing.hold_back();
        Arc::new(Self {
            target,
            fork: ForkCheck::new(),
            retry,
            keeper: OnceLock::new(),
            state: Mutex::new(State {
                standing,
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
            workers: Workers::default(),
            orphans: Orphans::default(),
            monitor: Monitor::default(),
        })
    }

    /// Gives the session its keeper, whose events may have begun to come already.
    pub(crate) fn attach(self: &Arc<Self>, keeper: Box<dyn Keeper>) -> Result<()> {
        if self.keeper.set(keeper).is_err() {
            unreachable!("a session is given its keeper once");
        }
        let mut state = self.state.lock();
        let opened = state.standing.answered();
        self.open(state, opened);
        self.monitor.start(self)
    }

    fn keeper(&self) -> &dyn Keeper {
        &**self
            .keeper
            .get()
            .expect("no call begins before the keeper is there")
    }

    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn fork(&self) -> &ForkCheck {
        &self.fork
    }

    pub(crate) fn state(&self) -> ConnectionState {
        if self.fork.forked() {
            return ConnectionState::Closed;
        }
        self.state.lock().standing.state()
    }

    /// The open connection's number, 0 while there is none.
    #[inline]
    pub(crate) fn connection(&self) -> u64 {
        self.connection.load(Ordering::Acquire)
    }

    pub(crate) fn epoch(&self) -> Option<Arc<Epoch>> {
        self.state.lock().standing.epoch().cloned()
    }

    /// A new receiver of connection events.
    pub(crate) fn subscribe(&self) -> Receiver<ConnectionEvent> {
        let (sender, receiver) = crossbeam_channel::bounded(EVENT_BACKLOG);
        self.state.lock().subscribers.push(sender);
        receiver
    }

    // ---- what comes up from below the seam ----

    /// A connection of `epoch` stands, and refuses traffic until it is opened.
    pub(crate) fn connected(self: &Arc<Self>, epoch: Arc<Epoch>, resumed: bool) {
        let mut state = self.state.lock();
        let before = state.standing.epoch().map(|epoch| epoch.number());
        if let Some(number) = before.filter(|number| *number != epoch.number()) {
            drop(state);
            self.lost(number, LossReason::Session);
            state = self.state.lock();
        }
        let opened = state.standing.connected(epoch, resumed);
        self.open(state, opened);
    }

    /// The connection of the epoch with this number broke. Everything in flight was answered.
    pub(crate) fn suspended(&self, number: u64) {
        let mut state = self.state.lock();
        if state.standing.suspended(number, sync::now()) {
            self.connection.store(0, Ordering::Release);
            state.publish(&ConnectionEvent::Suspended);
            state.wake_all();
            drop(state);
            log::info!("no contact with {}; the session may live on", self.target);
        }
    }

    /// The epoch with this number is over: by the server's word, or because its lease ran out.
    /// Idempotent.
    pub(crate) fn lost(&self, number: u64, reason: LossReason) {
        let mut state = self.state.lock();
        let Some(epoch) = state.standing.lost(number, sync::now()) else {
            return;
        };
        self.connection.store(0, Ordering::Release);
        let tenures = std::mem::take(&mut state.tenures);
        state.publish(&ConnectionEvent::Lost);
        state.wake_all();
        drop(state);
        log::warn!(
            "session 0x{:x} with {} is lost, and its locks with it",
            epoch.session_id(),
            self.target
        );
        for tenure in tenures.values().filter_map(Weak::upgrade) {
            tenure.lose(reason);
        }
        self.keeper().abandon(&epoch);
    }

    /// An event of a watch came.
    pub(crate) fn watch_event(&self, path: &str, event: WatchEvent) {
        self.watches.fire(path, event);
    }

    /// A server of the list could not be reached.
    pub(crate) fn dial_failed(&self, server: String, why: String) {
        self.state.lock().trouble.dials.insert(server, why);
    }

    /// The credentials were refused; no further attempt is made.
    pub(crate) fn auth_failed(&self, scheme: String) {
        log::error!(
            "{} refused the {scheme} credentials; giving up",
            self.target
        );
        let mut state = self.state.lock();
        state.trouble.refused_auth = Some(scheme);
        state.wake_all();
    }

    /// Each server that was tried, and why it failed.
    pub(crate) fn dial_failures(&self) -> String {
        let state = self.state.lock();
        let dials = state.trouble.dials.iter();
        dials
            .map(|(server, why)| format!("{server}: {why}"))
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// What lies below the seam has ended by itself: nothing works any more.
    pub(crate) fn broken(self: &Arc<Self>) {
        let session = Arc::clone(self);
        log::error!("the ZooKeeper client of {} has died; closing", self.target);
        // Not on this thread: it is one of those that `close` waits for.
        self.workers
            .submit(Box::new(move || session.shut(LossReason::Closed)));
    }

    /// Follows a step of [`Standing`] that may have opened the connection.
    fn open(self: &Arc<Self>, mut state: MutexGuard<'_, State>, opened: Option<Opened>) {
        let Some(Opened { contact, resumed }) = opened else {
            return;
        };
        self.keeper().open(&contact.epoch);
        self.connection.store(contact.connection, Ordering::Release);
        state.trouble = Trouble::default();
        let event = if resumed {
            ConnectionEvent::Reconnected
        } else {
            ConnectionEvent::Connected {
                session_id: contact.epoch.session_id(),
            }
        };
        state.publish(&event);
        state.wake_all();
        let to_verify = resumed && !state.tenures.is_empty();
        drop(state);
        log::info!("{event}: {}", self.target);
        self.monitor.nudge();
        if to_verify {
            let session = Arc::clone(self);
            self.workers
                .submit(Box::new(move || session.verify_tenures()));
        }
        self.sweep_orphans();
    }

    // ---- what the layers above register ----

    /// Adds a tenure that must hear of a loss, and be verified after a reconnect. `None` when the
    /// connection that it was proven on does not stand any more: the verification after the
    /// reconnect could have missed it.
    pub(crate) fn add_tenure(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        proven_on: u64,
    ) -> Option<u64> {
        let mut state = self.state.lock();
        let contact = state.standing.contact().ok()?;
        let stands =
            contact.connection == proven_on && contact.epoch.number() == tenure.epoch().number();
        if !stands {
            return None;
        }
        let key = state.key();
        state.tenures.insert(key, Arc::downgrade(tenure));
        let patrol = !std::mem::replace(&mut state.patrolling, true);
        drop(state);
        if patrol {
            self.patrol_later();
        }
        Some(key)
    }

    pub(crate) fn remove_tenure(&self, key: u64) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.fork.forked() {
            return;
        }
        self.state.lock().tenures.remove(&key);
    }

    /// Adds a lock whose local waiters must hear of a close.
    pub(crate) fn add_lock(&self, lock: Weak<dyn LocalLock>) -> u64 {
        let mut state = self.state.lock();
        let key = state.key();
        state.locks.insert(key, lock);
        key
    }

    pub(crate) fn remove_lock(&self, key: u64) {
        if self.fork.forked() {
            return;
        }
        self.state.lock().locks.remove(&key);
    }

    /// Runs `job` on a worker thread.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        self.workers.submit(Box::new(job));
    }

    /// Calls `timed` on a worker thread, `at` or soon after.
    pub(crate) fn at(&self, at: Instant, timed: Weak<dyn Timed>) {
        #[cfg(not(shuttle))]
        self.monitor.at(at, timed);
        // In a model, time is an event like any other.
        #[cfg(shuttle)]
        {
            let _ = at;
            self.submit(move || {
                if let Some(timed) = timed.upgrade() {
                    timed.time_is_up();
                }
            });
        }
    }

    /// The longest that a call can take on a connection that went silent, as the link cuts it.
    pub(crate) fn longest_call(&self) -> Duration {
        let state = self.state.lock();
        let timeout = state.standing.epoch().map(|epoch| epoch.timeout());
        timeout.map_or(Duration::ZERO, |timeout| timeout * 2 / 3)
    }

    // ---- the end ----

    /// Ends the session and every thread, within `bound`. Idempotent.
    pub(crate) fn close(self: &Arc<Self>, bound: Duration) {
        if self.fork.forked() {
            // None of the threads is here, and the socket is the parent's.
            return;
        }
        let deadline = sync::now() + bound;
        self.shut(LossReason::Closed);
        if let Some(keeper) = self.keeper.get() {
            keeper.close(bound);
        }
        let ended = self.workers.wait_ended(deadline) & self.monitor.wait_ended(deadline);
        if !ended {
            log::warn!(
                "{}: some threads did not end within {bound:?} of close",
                self.target
            );
        }
    }

    /// The part of closing that waits for nobody.
    fn shut(&self, reason: LossReason) {
        let mut state = self.state.lock();
        let (_, news) = state.standing.closed();
        if !news {
            return;
        }
        self.connection.store(0, Ordering::Release);
        let tenures = std::mem::take(&mut state.tenures);
        let locks = std::mem::take(&mut state.locks);
        state.publish(&ConnectionEvent::Closed);
        state.subscribers.clear();
        state.wake_all();
        drop(state);
        for tenure in tenures.values().filter_map(Weak::upgrade) {
            tenure.lose(reason);
        }
        for lock in locks.values().filter_map(Weak::upgrade) {
            lock.closed();
        }
        self.workers.close();
        self.monitor.close();
    }
}

impl State {
    fn key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    fn wake_all(&self) {
        for signal in self.waiters.values() {
            signal.raise(Wakes::SESSION);
        }
    }

    fn publish(&mut self, event: &ConnectionEvent) {
        self.subscribers
            .retain(|subscriber| match subscriber.try_send(event.clone()) {
                // One who does not read gets no more than was kept for it.
                Ok(()) | Err(TrySendError::Full(_)) => true,
                Err(TrySendError::Disconnected(_)) => false,
            });
    }
}

impl NoContact {
    pub(crate) fn into_error(self, target: &str) -> Error {
        match self {
            Self::Closed => Error::closed(),
            Self::Disconnected => Error::connection_loss(target),
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("target", &self.target)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
