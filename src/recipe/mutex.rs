//! [`Mutex`]: the fair, re-entrant lock, and its guard.

mod builder;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::builder::MutexBuilder;
use crate::client::Client;
use crate::error::Result;
use crate::local_queue::{Candidate, LocalQueue, Owned};
use crate::recipe::guard::{
    fencing_token_method, guard_traits, holding_methods, revocation_method, transaction_method,
    unlock_methods,
};
use crate::recipe::hold::Hold;
use crate::recipe::node_data::NodeData;
use crate::recipe::participant::Participant;
use crate::recipe::shown::show;
use crate::session::Session;
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};

/// A mutual-exclusion lock over all processes that use the same path.
///
/// # Semantics
/// - **Fair**: processes get the lock in the order in which they asked for it, and so do the
///   threads of one process. Inside a process threads hand the lock to each other as long as no
///   other process waits (see [`MutexBuilder::local_hand_off`]).
/// - **Re-entrant**: a thread that holds it can lock it again through the same `Mutex` object or a
///   clone; it is free once all those guards are dropped. Two objects built for one path are two
///   contenders, and a thread that locks both waits for itself. Share one object: it is `Sync`.
///   All work on the thread that holds gets in, also unrelated work that a thread pool or an
///   executor runs there meanwhile; see [`MutexBuilder::reentrant`].
/// - **When contact is lost** the guard is [`Suspect`](crate::LockState::Suspect); waiting threads
///   go on waiting, within their deadlines.
/// - **When the session is lost** the guard is [`Lost`](crate::LockState::Lost), before any other
///   process can have the lock; see [`MutexGuard::lost`]. Waiting threads queue again. The other
///   threads of this process still wait until the lost guard is dropped.
/// - **When a thread panics** its guards are dropped and the lock is free; there is no poisoning.
/// - **When the process dies** the lock is free after the session timeout.
///
/// Holding a lock is not proof that nobody else acts: see [`FencingToken`](crate::FencingToken).
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
/// {
///     let _guard = lock.lock()?;
///     // one thread of one process at a time
/// }
/// if let Some(guard) = lock.try_lock()? {
///     guard.unlock()?; // as dropping it, but says whether it went well
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mutex {
    queue: Arc<Owned<LocalQueue>>,
    data: NodeData,
}

impl Mutex {
    /// A lock at `path` with the default settings. Nothing is asked of ZooKeeper yet.
    ///
    /// `path` is the folder in which contenders queue. It is created when it is first needed, with
    /// the folders above it.
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) if the path is not possible.
    pub fn new(client: &Client, path: &str) -> Result<Self> {
        Self::builder(client, path).build()
    }

    /// Begins to build a lock at `path`.
    pub fn builder<'a>(client: &'a Client, path: &'a str) -> MutexBuilder<'a> {
        MutexBuilder::new(client, path)
    }

    /// Waits until this thread holds the lock.
    ///
    /// While ZooKeeper cannot be reached it waits as long as the client's
    /// [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// Keep the guard: `let _guard = lock.lock()?` holds to the end of the block, and
    /// `let _ = lock.lock()?` gives the lock back at once; see
    /// [the crate's page](crate#keep-the-guard).
    ///
    /// Re-entrant: the thread that holds it goes in again. It is free once both guards are gone.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// let outer = lock.lock()?;
    /// let inner = lock.lock()?; // does not wait, and asks ZooKeeper nothing
    /// assert_eq!(lock.hold_count(), 2);
    /// drop(outer);
    /// assert!(lock.is_held_by_current_thread());
    /// drop(inner); // this gives the lock back
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_connection_loss`](crate::Error::is_connection_loss), [`is_no_auth`](crate::Error::is_no_auth),
    /// [`is_closed`](crate::Error::is_closed), [`is_forked`](crate::Error::is_forked), or a refusal by the
    /// server. [`is_invalid`](crate::Error::is_invalid) if a list shows that a [`RwLock`](crate::RwLock)
    /// is in use at this path: the two do not exclude each other. Nothing is left behind in
    /// ZooKeeper.
    #[inline]
    pub fn lock(&self) -> Result<MutexGuard> {
        self.lock_within(&WaitLimits::none(), &self.data)
    }

    /// Takes the lock if nobody holds it or waits for it, in this process or another; otherwise
    /// returns `None` without writing to ZooKeeper. There is one exception: when the only contender
    /// was built to [linger](MutexBuilder::linger), its lock may be idle. Then this call queues for
    /// up to 200 ms, in which the other process gives an idle lock up.
    ///
    /// It waits for ZooKeeper's answers and for nothing else: on a connection that went silent, for
    /// at most about a sixth of the session timeout.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// # fn make_the_report() {}
    /// match lock.try_lock()? {
    ///     Some(_guard) => make_the_report(), // held to the end of this line
    ///     None => println!("somebody is at it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// - **Keep the guard.** In `if lock.try_lock()?.is_some() { .. }` it is dropped before the
    ///   block, which runs without the lock; so is that of `lock.try_lock()?;`. See
    ///   [the crate's page](crate#keep-the-guard).
    /// - **It says that nobody is at it now**, not that nobody did it before. Whoever comes when the
    ///   first one is done takes the lock and does it again. A job that is to run once, for each
    ///   night say, needs a record of what is done, which is read and written under the lock: by a
    ///   [`transaction`](MutexGuard::transaction), or in the store that the job writes to.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); [`is_connection_loss`](crate::Error::is_connection_loss) at once when
    /// there is no connection.
    #[inline]
    pub fn try_lock(&self) -> Result<Option<MutexGuard>> {
        self.try_within(&self.data)
    }

    fn try_within(&self, data: &NodeData) -> Result<Option<MutexGuard>> {
        let held = self.queue.try_acquire(|| data.now())?;
        Ok(held.then(|| MutexGuard(Hold::new(&self.queue))))
    }

    /// Waits for the lock for at most `timeout`; returns `None` when the time is over. A zero
    /// timeout means [`try_lock`](Self::try_lock); one too large for the clock means no deadline.
    ///
    /// It returns at its deadline even when ZooKeeper is silent. What is left of the attempt is
    /// then removed in the background.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// use std::time::Duration;
    ///
    /// let Some(_guard) = lock.try_lock_for(Duration::from_secs(30))? else {
    ///     println!("still busy after 30 s");
    ///     return Ok(());
    /// };
    /// // Holds from here on.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<MutexGuard>> {
        self.attempt(TryOrWait::during(timeout))
    }

    /// Waits for the lock until `deadline`; returns `None` when it has passed, even when ZooKeeper
    /// is silent. A deadline in the past means [`try_lock`](Self::try_lock).
    ///
    /// One deadline for several waits:
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// # let archive = zklock::Mutex::new(&client, "/locks/archive")?;
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(10);
    /// let Some(_report) = lock.try_lock_until(deadline)? else { return Ok(()) };
    /// let Some(_archive) = archive.try_lock_until(deadline)? else { return Ok(()) };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<MutexGuard>> {
        self.attempt(TryOrWait::until(deadline))
    }

    fn attempt(&self, try_or_wait: TryOrWait) -> Result<Option<MutexGuard>> {
        let wait = |limits: &WaitLimits| self.lock_within(limits, &self.data);
        try_or_wait.attempt(|| self.try_lock(), wait)
    }

    #[inline]
    fn lock_within(&self, limits: &WaitLimits, data: &NodeData) -> Result<MutexGuard> {
        self.queue.acquire(limits, || data.now())?;
        Ok(MutexGuard(Hold::new(&self.queue)))
    }

    /// As a part of a call that waits.
    pub(super) fn take(&self, limits: &WaitLimits) -> Result<MutexGuard> {
        self.lock_within(limits, &self.data)
    }

    /// Waits for the lock with a deadline, a cancel token, node data or a report of positions for
    /// this one time. Unlike [`try_lock_for`](Self::try_lock_for), it returns an error when the
    /// deadline passes; like it, it tries once if there is no time at all.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// use std::time::Duration;
    /// use zklock::{AcquireOptions, CancelToken};
    ///
    /// let stop = CancelToken::new();
    /// # let on_signal = stop.clone();
    /// // on_signal.cancel(), in any other thread, ends the wait.
    /// let options = AcquireOptions::new().timeout(Duration::from_secs(60)).cancel(&stop);
    /// match lock.lock_with(options) {
    ///     Ok(_guard) => println!("it is ours"),
    ///     Err(error) if error.is_cancelled() => println!("we are to stop"),
    ///     Err(error) if error.is_timeout() => println!("a minute was not enough"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock); also [`is_timeout`](crate::Error::is_timeout),
    /// [`is_cancelled`](crate::Error::is_cancelled), and [`is_invalid`](crate::Error::is_invalid) for data
    /// that ZooKeeper would not take.
    pub fn lock_with(&self, options: AcquireOptions) -> Result<MutexGuard> {
        let (try_or_wait, data) = options
            .begin()
            .map_err(|error| error.context(self.path()))?;
        let data = self.data.or(self.queue.path(), data)?;
        try_or_wait.insist(
            self.path(),
            || self.try_within(&data),
            |limits| self.lock_within(limits, &data),
        )
    }

    /// Whether the calling thread holds this lock. Looks at this object only; ask the guard's
    /// [`state`](MutexGuard::state) whether the hold is still good.
    #[must_use]
    pub fn is_held_by_current_thread(&self) -> bool {
        self.queue.is_owner()
    }

    /// Whether a thread of this process holds the lock through this object or a clone of it.
    #[must_use]
    pub fn is_held_in_this_process(&self) -> bool {
        self.queue.is_held()
    }

    /// How many guards of this lock the calling thread has.
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.queue.depth()
    }

    /// The holder and the waiters, in order, over all processes. A snapshot: it may be out of date
    /// when it arrives.
    ///
    /// Costs one request and one more for each participant.
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock).
    pub fn participants(&self) -> Result<Vec<Participant>> {
        let idle = self.queue.idle_node();
        let own: Vec<_> = self.queue.own_node().into_iter().collect();
        let queued = self.queue.participants()?;
        Ok(Participant::all(queued, &own, idle.as_slice()))
    }

    /// Asks a participant to give the lock back, by the message that Curator uses: `__REVOKE__` in
    /// its node. Returns whether that node was still there.
    ///
    /// A holder whose lock was built [`revocable`](MutexBuilder::revocable) hears of it through
    /// [`MutexGuard::revocation`] and decides what to do. Other holders do not listen.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// for holder in lock.participants()?.iter().filter(|one| one.is_holder()) {
    ///     if lock.revoke(holder)? {
    ///         println!("asked {holder}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) if it is a participant of another lock; otherwise as
    /// [`try_lock`](Self::try_lock).
    pub fn revoke(&self, participant: &Participant) -> Result<bool> {
        self.queue.revoke(participant.path())
    }

    /// Deletes a participant's node by force. If it holds, the next in the queue gets the lock at
    /// once. Returns whether the node was still there.
    ///
    /// A holder that uses this library learns that its lock is [`Lost`](crate::LockState::Lost): at
    /// once if it has held the lock for 200 ms, otherwise when it has. Until then two holders may
    /// be active. A waiter whose node is deleted queues again, at the end.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// // A holder that is stuck: its session lives, but its work does not move.
    /// let hours_ago = SystemTime::now() - Duration::from_secs(6 * 60 * 60);
    /// for one in lock.participants()? {
    ///     if one.is_holder() && one.created() < hours_ago {
    ///         eprintln!("breaking {one}");
    ///         lock.break_lock(&one)?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`revoke`](Self::revoke).
    pub fn break_lock(&self, participant: &Participant) -> Result<bool> {
        self.queue.break_lock(participant.path())
    }

    /// Gives the lock back at once if this process keeps it idle (see [`MutexBuilder::linger`]).
    ///
    /// # Errors
    /// [`is_connection_loss`](crate::Error::is_connection_loss) if ZooKeeper has not confirmed it yet; the
    /// release goes on in the background.
    pub fn release_idle(&self) -> Result<()> {
        self.queue.session().refuse_child()?;
        self.queue.end_idle()
    }

    /// The folder in which contenders queue, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.queue.path().as_str()
    }

    /// Whether anything else shares this lock's state: a clone of it, or a guard.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.queue) > 1
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.queue.session()
    }

    /// What tells it from other locks in its folder.
    pub(super) fn name(&self) -> String {
        self.queue.own_labels()
    }

    pub(super) fn stand(&self) -> Option<Box<dyn Candidate + '_>> {
        self.queue.stand(|| self.data.now())
    }

    /// The guard of a candidate that has won.
    pub(super) fn won(&self) -> MutexGuard {
        MutexGuard(Hold::new(&self.queue))
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, "Mutex", self.path(), self.session(), |shown| {
            shown
                .field("label", &self.queue.label())
                .field("here", &self.queue.debug_state());
        })
    }
}

/// Holds a [`Mutex`]; dropping it gives the lock back.
///
/// It belongs to its thread and cannot be sent to another, as with Java's `ReentrantLock`.
///
/// Dropping never panics, and blocks for at most about a sixth of the session timeout. If ZooKeeper
/// does not confirm the release in that time, the drop logs it, and the node is removed in the
/// background once there is a connection again, or by the servers when the session ends.
/// [`unlock`](Self::unlock) returns an error instead. The guards of one thread may be dropped in
/// any order: the last one gives the lock back.
///
/// It has no lifetime, so a struct can own it beside its lock:
///
/// ```no_run
/// struct Leader {
///     lock: zklock::Mutex,
///     guard: Option<zklock::MutexGuard>,
/// }
///
/// impl Leader {
///     fn is_leader(&self) -> bool {
///         self.guard.as_ref().is_some_and(zklock::MutexGuard::is_held)
///     }
///
///     fn step_down(&mut self) {
///         self.guard = None; // gives the lock back; `retire` first if other threads have views
///     }
/// }
/// ```
#[clippy::has_significant_drop]
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct MutexGuard(Hold<LocalQueue>);

impl MutexGuard {
    holding_methods!();
    fencing_token_method!();
    revocation_method!();

    transaction_method!();

    unlock_methods!();
}

guard_traits!(MutexGuard, "MutexGuard");
