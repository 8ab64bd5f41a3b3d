//! [`SemaphoreMutex`]: one at a time, given from thread to thread.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::Result;
use crate::global_queue::{Limit, WaitStrategy};
use crate::recipe::guard::{
    fencing_token_method, guard_traits, holding_methods, transaction_method, unlock_methods,
};
use crate::recipe::participant::Participant;
use crate::recipe::permit_pool::{HeldPermits, PermitPool, Settings};
use crate::session::Session;
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};
use crate::znode::names::Dialect;

/// A mutual-exclusion lock whose guard can be sent to another thread and released there.
///
/// It is a [`Semaphore`](crate::Semaphore) of one permit, with the nodes of Curator's
/// `InterProcessSemaphoreMutex`. It does *not* exclude a [`Mutex`](crate::Mutex) at the same path:
/// all programs that share a path must use the same one of the two.
///
/// # Semantics
/// - **Fair**: processes in the order in which they came, and the threads of one process in order.
/// - **Not re-entrant**: a thread that holds it and locks it again waits. That is no error, even
///   without a deadline, because another thread may have the guard and release it. Use
///   [`Mutex`](crate::Mutex) where the same thread locks twice; it is also cheaper.
/// - **The guard is `Send`** and keeps the lock's session open.
/// - **When contact or the session is lost, on panic, when the process dies**: as with
///   [`Mutex`](crate::Mutex).
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let lock = zklock::SemaphoreMutex::new(&client, "/locks/import")?;
/// let guard = lock.lock()?;
/// std::thread::spawn(move || {
///     // goes on with the work that was begun, and ends it
///     drop(guard);
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SemaphoreMutex {
    pool: Arc<PermitPool>,
}

impl SemaphoreMutex {
    /// A lock at `path` with the default settings. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) if the path is not possible.
    pub fn new(client: &Client, path: &str) -> Result<Self> {
        Self::builder(client, path).build()
    }

    /// Begins to build a lock at `path`.
    pub fn builder<'a>(client: &'a Client, path: &'a str) -> SemaphoreMutexBuilder<'a> {
        SemaphoreMutexBuilder(Settings::new(client, path))
    }

    /// Waits for the lock. While ZooKeeper cannot be reached it waits as long as the client's
    /// [`RetryPolicy`](crate::RetryPolicy) says. [Keep the guard](crate#keep-the-guard).
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); also [`is_invalid`](crate::Error::is_invalid) if
    /// others use the path for a semaphore of several permits.
    pub fn lock(&self) -> Result<SemaphoreMutexGuard> {
        self.pool.acquire_plainly(1).map(SemaphoreMutexGuard)
    }

    /// Takes the lock if nobody holds it or waits for it; otherwise returns `None`. It writes
    /// nothing to ZooKeeper if somebody holds the lock.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub fn try_lock(&self) -> Result<Option<SemaphoreMutexGuard>> {
        Ok(self.pool.try_acquire(1)?.map(SemaphoreMutexGuard))
    }

    /// Waits for the lock for at most `timeout`; returns `None` when the time is over, even when
    /// ZooKeeper is silent. A zero timeout means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<SemaphoreMutexGuard>> {
        let lease = self.pool.attempt(1, TryOrWait::during(timeout))?;
        Ok(lease.map(SemaphoreMutexGuard))
    }

    /// Waits for the lock until `deadline`; returns `None` when it has passed. A deadline in the
    /// past means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<SemaphoreMutexGuard>> {
        let lease = self.pool.attempt(1, TryOrWait::until(deadline))?;
        Ok(lease.map(SemaphoreMutexGuard))
    }

    /// Waits for the lock with a deadline, a cancel token, node data or a report of positions for
    /// this one time. An error when the deadline passes.
    ///
    /// # Errors
    /// As [`Mutex::lock_with`](crate::Mutex::lock_with).
    pub fn lock_with(&self, options: AcquireOptions) -> Result<SemaphoreMutexGuard> {
        self.pool.acquire_with(1, options).map(SemaphoreMutexGuard)
    }

    /// As a part of a call that waits.
    pub(super) fn take(&self, limits: &WaitLimits) -> Result<SemaphoreMutexGuard> {
        self.pool.take(1, limits).map(SemaphoreMutexGuard)
    }

    /// The holder and after it the waiters, over all processes; a snapshot.
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock).
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.pool.participants()
    }

    /// Deletes a participant's node by force, and returns whether it was still there. Until its
    /// holder hears of it, two may be active; see [`Mutex::break_lock`](crate::Mutex::break_lock).
    ///
    /// # Errors
    /// As [`Mutex::revoke`](crate::Mutex::revoke).
    pub fn break_lock(&self, participant: &Participant) -> Result<bool> {
        self.pool.break_lock(participant)
    }

    /// The path, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.pool.path()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.pool.session()
    }
}

impl fmt::Debug for SemaphoreMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.show(f, "SemaphoreMutex")
    }
}

/// Settings of a [`SemaphoreMutex`]; made by [`SemaphoreMutex::builder`].
#[derive(Debug)]
#[must_use]
pub struct SemaphoreMutexBuilder<'a>(Settings<'a>);

impl SemaphoreMutexBuilder<'_> {
    /// Whose node names to use. Defaults to Curator's. In kazoo's dialect the lock is kazoo's
    /// `Semaphore` with one lease.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.0.dialect = dialect;
        self
    }

    /// How to wait for those ahead. Defaults to [`WaitStrategy::PredecessorWatch`].
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.0.strategy = strategy;
        self
    }

    /// How long this process keeps the lock in front of the one permit when none of its threads
    /// wants it. Defaults to zero: not at all. See
    /// [`SemaphoreBuilder::linger`](crate::SemaphoreBuilder::linger).
    pub fn linger(mut self, linger: Duration) -> Self {
        self.0.policy.linger = linger;
        self
    }

    /// The name under which the client's [`Observer`](crate::Observer) hears of this lock; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to none.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.0.policy.label = Some(label.into());
        self
    }

    /// What the nodes hold for others to read. Defaults to who we are: host, process id, thread and
    /// time.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.0.data = Some(data.into());
        self
    }

    /// Builds the lock. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) if the path or a setting is not possible;
    /// [`is_forked`](crate::Error::is_forked).
    pub fn build(self) -> Result<SemaphoreMutex> {
        let adopts = self.0.dialect == Dialect::Curator;
        let pool = PermitPool::new(self.0, |home| Limit::fixed(1, home.clone(), adopts))?;
        Ok(SemaphoreMutex { pool })
    }
}

/// Holds a [`SemaphoreMutex`]; dropping it, in whatever thread, gives the lock back.
///
/// Dropping never panics, and blocks for at most about a sixth of the session timeout; what
/// ZooKeeper does not confirm in that time is removed in the background.
///
/// It can travel with the work that it protects:
///
/// ```no_run
/// struct Job {
///     file: String,
///     lock: zklock::SemaphoreMutexGuard,
/// }
///
/// fn finish(jobs: &crossbeam_channel::Receiver<Job>) -> zklock::Result<()> {
///     for job in jobs {
///         println!("finishing {}", job.file);
///         job.lock.unlock()?; // locked by the thread that sent it
///     }
///     Ok(())
/// }
/// ```
#[clippy::has_significant_drop]
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct SemaphoreMutexGuard(HeldPermits);

impl SemaphoreMutexGuard {
    holding_methods!();
    fencing_token_method!();

    transaction_method!();

    unlock_methods!();
}

guard_traits!(SemaphoreMutexGuard, "SemaphoreMutexGuard");
