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
use crate::recipe::leasing::{Lease, Leasing, Settings};
use crate::recipe::participant::Participant;
use crate::session::Session;
use crate::wait::bound::{AcquireOptions, Patience};
use crate::znode::names::Dialect;

/// A mutual-exclusion lock whose guard can be sent to another thread and released there.
///
/// It is a [`Semaphore`](crate::Semaphore) of one permit, with the nodes of Curator's
/// `InterProcessSemaphoreMutex`; that does *not* exclude a [`Mutex`](crate::Mutex) at the same
/// path, so all who share a path must use the same of the two.
///
/// # Semantics
/// - **Fair**, as [`Semaphore`](crate::Semaphore) is.
/// - **Not re-entrant**: a thread that holds it and locks it again waits. That is no error, even
///   without a deadline, as another thread may have been given the guard. Use
///   [`Mutex`](crate::Mutex) where the same thread locks twice; it is also cheaper.
/// - **The guard is `Send`** and keeps the lock's session open.
/// - What is lost when contact or session is lost, and what happens on panic, is as with
///   [`Mutex`](crate::Mutex).
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// let client = zklock::Client::connect("localhost:2181")?;
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
    leasing: Arc<Leasing>,
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

    /// Waits for the lock.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); also [`is_invalid`](crate::Error::is_invalid) if
    /// others use the path for a semaphore of several permits.
    pub fn lock(&self) -> Result<SemaphoreMutexGuard> {
        self.leasing.acquire_plainly(1).map(SemaphoreMutexGuard)
    }

    /// Takes the lock if nobody holds it or waits for it. Writes nothing to ZooKeeper if somebody
    /// holds it.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub fn try_lock(&self) -> Result<Option<SemaphoreMutexGuard>> {
        Ok(self.leasing.try_acquire(1)?.map(SemaphoreMutexGuard))
    }

    /// As [`lock`](Self::lock), for `timeout` at the most; `None` when it is over.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<SemaphoreMutexGuard>> {
        let lease = self.leasing.attempt(1, Patience::during(timeout))?;
        Ok(lease.map(SemaphoreMutexGuard))
    }

    /// As [`lock`](Self::lock), until `deadline`; `None` when it is over.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<SemaphoreMutexGuard>> {
        let lease = self.leasing.attempt(1, Patience::until(deadline))?;
        Ok(lease.map(SemaphoreMutexGuard))
    }

    /// As [`lock`](Self::lock), with a deadline, a cancel token, node data or a report of positions
    /// for this one time.
    ///
    /// # Errors
    /// As [`Mutex::lock_with`](crate::Mutex::lock_with).
    pub fn lock_with(&self, options: AcquireOptions) -> Result<SemaphoreMutexGuard> {
        self.leasing
            .acquire_with(1, options)
            .map(SemaphoreMutexGuard)
    }

    /// Who holds the lock, and after that who waits, over all processes; a snapshot.
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock).
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.leasing.participants()
    }

    /// Deletes a participant's node by force; see [`Mutex::break_lock`](crate::Mutex::break_lock).
    ///
    /// # Errors
    /// As [`Mutex::revoke`](crate::Mutex::revoke).
    pub fn break_lock(&self, participant: &Participant) -> Result<bool> {
        self.leasing.break_lock(participant)
    }

    /// The path, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.leasing.path()
    }

    pub(crate) fn session(&self) -> &Session {
        self.leasing.session()
    }
}

impl fmt::Debug for SemaphoreMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreMutex")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

/// Settings of a [`SemaphoreMutex`]; made by [`SemaphoreMutex::builder`].
#[derive(Debug)]
#[must_use]
pub struct SemaphoreMutexBuilder<'a>(Settings<'a>);

impl SemaphoreMutexBuilder<'_> {
    /// Whose node names to speak. Defaults to Curator's. In kazoo's dialect this is its `Semaphore`
    /// with one lease.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.0.dialect = dialect;
        self
    }

    /// How to wait for those who came before; see [`WaitStrategy`].
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.0.strategy = strategy;
        self
    }

    /// How long the inner lock is kept when nobody of this process wants it; see
    /// [`SemaphoreBuilder::linger`](crate::SemaphoreBuilder::linger).
    pub fn linger(mut self, linger: Duration) -> Self {
        self.0.policy.linger = linger;
        self
    }

    /// What a client's [`Observer`](crate::Observer) is told that this lock is called; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to nothing.
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
    /// [`is_invalid`](crate::Error::is_invalid) if the path or a setting is not possible.
    pub fn build(self) -> Result<SemaphoreMutex> {
        let adopts = self.0.dialect == Dialect::Curator;
        let leasing = Leasing::new(self.0, |home| Limit::fixed(1, home.clone(), adopts))?;
        Ok(SemaphoreMutex { leasing })
    }
}

/// Holds a [`SemaphoreMutex`]; dropping it, in whatever thread, gives the lock back.
///
/// Dropping never panics, and blocks for about a sixth of the session timeout at most; what
/// ZooKeeper does not confirm is removed in the background.
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
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct SemaphoreMutexGuard(Lease);

impl SemaphoreMutexGuard {
    holding_methods!();
    fencing_token_method!();

    transaction_method!();

    unlock_methods!();
}

guard_traits!(SemaphoreMutexGuard, "SemaphoreMutexGuard");
