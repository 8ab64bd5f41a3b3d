//! [`RwLock`]: many readers or one writer, and their guards.

mod builder;
mod candidate;
mod downgrade_error;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::builder::RwLockBuilder;
pub use self::downgrade_error::DowngradeError;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::ReleaseMode;
use crate::local_queue::{LocalQueue, Owned, SharedQueue, holds_already};
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

/// A lock that many readers or one writer can hold, over all processes that use the same path.
///
/// # Semantics
/// - **Fair**: first come, first served. A reader waits for the writers who came before it, a
///   writer for everybody who came before it. Nobody overtakes a waiting writer, so writers do not
///   starve. A release wakes only those whom it lets in.
/// - **Readers share**: the reading threads of a process have one node in ZooKeeper's queue. A
///   reader that comes while other threads of its process read joins them without asking ZooKeeper,
///   unless a writer came before it. The node can be kept when the last of them has left; see
///   [`RwLockBuilder::read_linger`].
/// - **Writers** of one process hand the lock to each other as those of a [`Mutex`](crate::Mutex)
///   do.
/// - **Re-entrant**, in both modes and by thread, through the same `RwLock` object or a clone. A
///   thread that reads can read again even when a writer waits.
/// - **Downgrade**: a thread that writes can also read, and then give the write lock back: no
///   writer gets in between. See also [`RwWriteGuard::downgrade`].
/// - **No upgrade**: a thread that reads and asks for the write lock would wait for itself. It gets
///   an error at once, whose [`is_would_deadlock`](Error::is_would_deadlock) is true.
/// - **Threads that a reader waits for** must not read by themselves: once a writer waits, they wait
///   behind it, and the writer for the reader that waits for them. Give them a
///   [view](RwReadGuard::view) of its guard.
/// - **When contact or the session is lost, on panic, when the process dies**: as with
///   [`Mutex`](crate::Mutex), with one difference: later readers of a process do not wait until
///   readers whose session was lost are gone. They queue again.
///
/// It does not exclude a [`Mutex`](crate::Mutex) at the same path. Whoever comes second there gets
/// an error ([`is_invalid`](Error::is_invalid)) that names both kinds, as far as a list shows it.
///
/// Curator's `InterProcessReadWriteLock` and kazoo's `ReadLock` and `WriteLock` can take part, see
/// [`RwLockBuilder::dialect`]; and so can recipes of one's own, see [`RwLockBuilder::node_labels`].
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let catalogue = zklock::RwLock::new(&client, "/locks/catalogue")?;
/// {
///     let _reading = catalogue.read()?; // together with other readers
/// }
/// let writing = catalogue.write()?; // alone
/// let reading = writing.downgrade()?; // nobody wrote in between
/// drop(reading);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    writers: Arc<Owned<LocalQueue>>,
    readers: Arc<Owned<SharedQueue>>,
    reentrant: bool,
    data: NodeData,
}

impl RwLock {
    /// A lock at `path` with the default settings. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible.
    pub fn new(client: &Client, path: &str) -> Result<Self> {
        Self::builder(client, path).build()
    }

    /// Begins to build a lock at `path`.
    pub fn builder<'a>(client: &'a Client, path: &'a str) -> RwLockBuilder<'a> {
        RwLockBuilder::new(client, path)
    }

    /// Waits until this thread may read. While ZooKeeper cannot be reached it waits as long as the
    /// client's [`RetryPolicy`](crate::RetryPolicy) says. [Keep the guard](crate#keep-the-guard).
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn read(&self) -> Result<RwReadGuard> {
        self.read_within(&WaitLimits::none(), &self.data)
    }

    /// Reads if no writer holds the lock or waits for it; otherwise returns `None` and writes
    /// nothing to ZooKeeper. Waits for ZooKeeper's answers and for nothing else.
    ///
    /// With one exception, as [`Mutex::try_lock`](crate::Mutex::try_lock) has it: if the only writer
    /// was built to [linger](RwLockBuilder::linger), this call queues for up to 200 ms.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub fn try_read(&self) -> Result<Option<RwReadGuard>> {
        self.try_read_within(&self.data)
    }

    fn try_read_within(&self, data: &NodeData) -> Result<Option<RwReadGuard>> {
        self.refuse_reentry()?;
        self.session().refuse_child()?;
        if let Some(writing) = self.write_on()? {
            self.readers
                .try_acquire_under(writing.tenure(), &data.now())?;
            return Ok(Some(RwReadGuard(Hold::new(&self.readers))));
        }
        // An idle write lock of ours would keep us out.
        self.writers.end_idle()?;
        let held = self.readers.try_acquire(|| data.now())?;
        Ok(held.then(|| RwReadGuard(Hold::new(&self.readers))))
    }

    /// Waits for at most `timeout` until this thread may read; returns `None` when the time is
    /// over, even when ZooKeeper is silent. A zero timeout means [`try_read`](Self::try_read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn try_read_for(&self, timeout: Duration) -> Result<Option<RwReadGuard>> {
        self.attempt_to_read(TryOrWait::during(timeout))
    }

    /// Waits until this thread may read, but not beyond `deadline`; `None` when that has passed. A
    /// deadline in the past means [`try_read`](Self::try_read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn try_read_until(&self, deadline: Instant) -> Result<Option<RwReadGuard>> {
        self.attempt_to_read(TryOrWait::until(deadline))
    }

    fn attempt_to_read(&self, try_or_wait: TryOrWait) -> Result<Option<RwReadGuard>> {
        let wait = |limits: &WaitLimits| self.read_within(limits, &self.data);
        try_or_wait.attempt(|| self.try_read(), wait)
    }

    /// Waits until this thread may read, with a deadline, a cancel token, node data or a report of
    /// positions for this one time. An error when the deadline passes.
    ///
    /// # Errors
    /// As [`Mutex::lock_with`](crate::Mutex::lock_with).
    pub fn read_with(&self, options: AcquireOptions) -> Result<RwReadGuard> {
        let (try_or_wait, data) = options
            .begin()
            .map_err(|error| error.context(self.path()))?;
        let data = self.data.or(self.writers.path(), data)?;
        try_or_wait.insist(
            self.path(),
            || self.try_read_within(&data),
            |limits| self.read_within(limits, &data),
        )
    }

    /// As a part of a call that waits.
    pub(super) fn take_to_read(&self, limits: &WaitLimits) -> Result<RwReadGuard> {
        self.read_within(limits, &self.data)
    }

    fn read_within(&self, limits: &WaitLimits, data: &NodeData) -> Result<RwReadGuard> {
        self.refuse_reentry()?;
        self.read_anyhow(limits, data)
    }

    /// Also as a re-entry that others are refused: a writer becomes a reader.
    fn read_anyhow(&self, limits: &WaitLimits, data: &NodeData) -> Result<RwReadGuard> {
        self.session().refuse_child()?;
        if let Some(writing) = self.write_on()? {
            let writing = writing.tenure();
            self.readers.acquire_under(writing, limits, &data.now())?;
        } else {
            self.readers.acquire(limits, || data.now())?;
        }
        Ok(RwReadGuard(Hold::new(&self.readers)))
    }

    /// If this thread has the write lock, and does not read yet: one more hold of it, for as long as
    /// the reader needs the writer's place. What this thread has is not enough if it is an error's:
    /// another thread may drop that meanwhile.
    fn write_on(&self) -> Result<Option<Hold<LocalQueue>>> {
        let writes_on = self.readers.depth() == 0 && self.writers.hold_on()?;
        Ok(writes_on.then(|| Hold::new(&self.writers)))
    }

    /// Waits until this thread may write. While ZooKeeper cannot be reached it waits as long as the
    /// client's [`RetryPolicy`](crate::RetryPolicy) says. [Keep the guard](crate#keep-the-guard).
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock), and
    /// [`is_would_deadlock`](Error::is_would_deadlock) if this thread reads.
    pub fn write(&self) -> Result<RwWriteGuard> {
        self.write_within(&WaitLimits::none(), &self.data)
    }

    /// Takes the write lock if nobody reads, writes or waits; otherwise returns `None` and writes
    /// nothing to ZooKeeper. Waits for ZooKeeper's answers and for nothing else.
    ///
    /// With one exception, as [`Mutex::try_lock`](crate::Mutex::try_lock) has it: if all who are
    /// there were built to linger ([one writer](RwLockBuilder::linger) alone, or
    /// [readers](RwLockBuilder::read_linger)), this call queues for up to 200 ms. That ends what is
    /// only kept. Readers who come in that time wait behind it.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock), and
    /// [`is_would_deadlock`](Error::is_would_deadlock) if this thread reads.
    pub fn try_write(&self) -> Result<Option<RwWriteGuard>> {
        self.try_write_within(&self.data)
    }

    fn try_write_within(&self, data: &NodeData) -> Result<Option<RwWriteGuard>> {
        if !self.write_again()? {
            // Readers of ours who only linger would keep us out.
            self.readers.end_idle()?;
            if !self.writers.try_acquire(|| data.now())? {
                return Ok(None);
            }
        }
        Ok(Some(RwWriteGuard(Hold::new(&self.writers), self.clone())))
    }

    /// Waits for at most `timeout` until this thread may write; returns `None` when the time is
    /// over, even when ZooKeeper is silent. A zero timeout means [`try_write`](Self::try_write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn try_write_for(&self, timeout: Duration) -> Result<Option<RwWriteGuard>> {
        self.attempt_to_write(TryOrWait::during(timeout))
    }

    /// Waits until this thread may write, but not beyond `deadline`; `None` when that has passed. A
    /// deadline in the past means [`try_write`](Self::try_write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn try_write_until(&self, deadline: Instant) -> Result<Option<RwWriteGuard>> {
        self.attempt_to_write(TryOrWait::until(deadline))
    }

    fn attempt_to_write(&self, try_or_wait: TryOrWait) -> Result<Option<RwWriteGuard>> {
        let wait = |limits: &WaitLimits| self.write_within(limits, &self.data);
        try_or_wait.attempt(|| self.try_write(), wait)
    }

    /// Waits until this thread may write, with a deadline, a cancel token, node data or a report of
    /// positions for this one time. An error when the deadline passes.
    ///
    /// # Errors
    /// As [`write`](Self::write) and [`Mutex::lock_with`](crate::Mutex::lock_with).
    pub fn write_with(&self, options: AcquireOptions) -> Result<RwWriteGuard> {
        let (try_or_wait, data) = options
            .begin()
            .map_err(|error| error.context(self.path()))?;
        let data = self.data.or(self.writers.path(), data)?;
        try_or_wait.insist(
            self.path(),
            || self.try_write_within(&data),
            |limits| self.write_within(limits, &data),
        )
    }

    /// As a part of a call that waits.
    pub(super) fn take_to_write(&self, limits: &WaitLimits) -> Result<RwWriteGuard> {
        self.write_within(limits, &self.data)
    }

    fn write_within(&self, limits: &WaitLimits, data: &NodeData) -> Result<RwWriteGuard> {
        if !self.write_again()? {
            // On the connection of the delete our create comes after it.
            drop(self.readers.start_idle_release());
            self.writers.acquire(limits, || data.now())?;
        }
        Ok(RwWriteGuard(Hold::new(&self.writers), self.clone()))
    }

    fn refuse_reentry(&self) -> Result<()> {
        if self.reentrant {
            return Ok(());
        }
        // Before the queues: in a forked child their locks may be held for ever.
        self.session().refuse_child()?;
        if self.writers.is_owner() || self.readers.depth() > 0 {
            return Err(holds_already(self.writers.path()));
        }
        Ok(())
    }

    /// Whether a thread that reads writes once more, as it writes already: in one step, as another
    /// thread may drop the last hold of the write lock, an error's, and this one would then wait for
    /// itself. No for a thread that does not read; an error for one that reads and does not write.
    fn write_again(&self) -> Result<bool> {
        // Before any of our locks: in a forked child it may be held by a thread that is not there.
        self.session().refuse_child()?;
        let reads = self.readers.depth() > 0;
        if !reads || self.writers.is_owner() {
            self.refuse_reentry()?;
        }
        if !reads {
            return Ok(false);
        }
        if self.writers.reenter()? {
            return Ok(true);
        }
        let path = self.path();
        Err(Error::would_deadlock(format!(
            "{path}: this thread reads, and asks to write; give the read lock back first, \
             or begin with the write lock"
        )))
    }

    /// How many read guards of this lock the calling thread has.
    #[must_use]
    pub fn read_hold_count(&self) -> u32 {
        self.readers.depth()
    }

    /// How many write guards of this lock the calling thread has, those in a [`DowngradeError`]
    /// included.
    #[must_use]
    pub fn write_hold_count(&self) -> u32 {
        self.writers.depth()
    }

    /// Whether a thread of this process reads or writes through this object or a clone of it.
    #[must_use]
    pub fn is_held_in_this_process(&self) -> bool {
        self.writers.is_held() || self.readers.is_held()
    }

    /// Whether the calling thread holds the write lock. Looks at this object only.
    #[must_use]
    pub fn is_write_held_by_current_thread(&self) -> bool {
        self.writers.is_owner()
    }

    /// The holders and the waiters, in order, over all processes. A snapshot: it may be out of date
    /// when it arrives. The reading threads of a process are usually one participant.
    ///
    /// Costs one request and one more for each participant.
    ///
    /// # Errors
    /// As [`try_read`](Self::try_read).
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.session().refuse_child()?;
        let idle = [self.writers.idle_node(), self.readers.idle_node()];
        let idle: Vec<_> = idle.into_iter().flatten().collect();
        let mut own = self.readers.own_nodes();
        own.extend(self.writers.own_node());
        let queued = self.writers.participants()?;
        Ok(Participant::all(queued, &own, &idle))
    }

    /// Asks a participant to give the lock back, and returns whether its node was still there; see
    /// [`Mutex::revoke`](crate::Mutex::revoke).
    ///
    /// # Errors
    /// As [`Mutex::revoke`](crate::Mutex::revoke).
    pub fn revoke(&self, participant: &Participant) -> Result<bool> {
        self.writers.revoke(participant.path())
    }

    /// Deletes a participant's node by force, and returns whether it was still there. Until its
    /// holder hears of it, two may be active; see [`Mutex::break_lock`](crate::Mutex::break_lock).
    ///
    /// # Errors
    /// As [`Mutex::revoke`](crate::Mutex::revoke).
    pub fn break_lock(&self, participant: &Participant) -> Result<bool> {
        self.writers.break_lock(participant.path())
    }

    /// Gives back at once what this process keeps with no thread inside (see
    /// [`RwLockBuilder::linger`] and [`RwLockBuilder::read_linger`]).
    ///
    /// # Errors
    /// [`is_connection_loss`](Error::is_connection_loss) if ZooKeeper has not confirmed it yet; the
    /// release goes on in the background.
    pub fn release_idle(&self) -> Result<()> {
        self.session().refuse_child()?;
        self.readers.end_idle().and(self.writers.end_idle())
    }

    /// The folder in which contenders queue, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.writers.path().as_str()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.writers.session()
    }

    /// What tells it from other locks in its folder.
    pub(super) fn name(&self) -> String {
        self.writers.own_labels()
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, "RwLock", self.path(), self.session(), |shown| {
            shown
                .field("label", &self.writers.label())
                .field("writers_here", &self.writers.debug_state())
                .field("readers_here", &self.readers.debug_state());
        })
    }
}

/// Reads under a [`RwLock`]; dropping it gives the read lock back.
///
/// It has no fencing token, as other readers hold as well; see [`Permit`](crate::Permit).
///
/// It belongs to its thread. Dropping never panics, and blocks for at most about a sixth of the
/// session timeout; see [`MutexGuard`](crate::MutexGuard).
#[clippy::has_significant_drop]
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct RwReadGuard(Hold<SharedQueue>);

impl RwReadGuard {
    holding_methods!();
    revocation_method!();

    unlock_methods!();
}

guard_traits!(RwReadGuard, "RwReadGuard");

/// Writes under a [`RwLock`]; dropping it gives the write lock back.
///
/// It belongs to its thread. Dropping never panics, and blocks for at most about a sixth of the
/// session timeout; see [`MutexGuard`](crate::MutexGuard).
#[clippy::has_significant_drop]
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct RwWriteGuard(Hold<LocalQueue>, RwLock);

impl RwWriteGuard {
    holding_methods!();
    fencing_token_method!();
    revocation_method!();

    /// Turns this writer into a reader in the writer's place in the queue: no other writer gets in
    /// between, and readers who wait for this writer get in. If this thread has other write guards,
    /// it goes on writing as well.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let catalogue = zklock::RwLock::new(&client, "/locks/catalogue")?;
    /// let reading = catalogue.write()?.downgrade()?; // on an error `?` gives the lock back
    /// # drop(reading);
    /// match catalogue.write()?.downgrade() {
    ///     Ok(reading) => drop(reading),
    ///     Err(failed) if failed.error().is_lock_lost() => return Err(failed.into()),
    ///     Err(failed) => drop(failed.into_guard()), // still the writer: go on alone
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The write guard comes back inside the error, which is one of [`RwLock::read`]'s, or says
    /// that the write lock was lost, or that the folder's sequence numbers are almost used up (from
    /// 2,000,000,000 on), where no reader can keep a writer's place.
    pub fn downgrade(mut self) -> std::result::Result<RwReadGuard, DowngradeError> {
        match self.1.read_anyhow(&WaitLimits::none(), &self.1.data) {
            Ok(reading) => {
                // The reader stands in its place; nobody relies on its end.
                drop(self.start_release(ReleaseMode::Foreground));
                Ok(reading)
            }
            Err(error) => Err(DowngradeError::new(self, error)),
        }
    }

    transaction_method!();

    unlock_methods!();
}

guard_traits!(RwWriteGuard, "RwWriteGuard");
