//! [`Semaphore`]: at most N at once, and its permits.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::{Limit, PendingRelease, ReleaseMode, WaitStrategy};
use crate::link::ConnectString;
use crate::recipe::guard::{guard_traits, holding_methods};
use crate::recipe::participant::Participant;
use crate::recipe::permit_pool::{HeldPermits, PermitPool, Settings};
use crate::recipe::shared_count::SharedCount;
use crate::session::Session;
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};
use crate::znode::names::Dialect;
use crate::znode::path::LockPath;

/// At most N permits at once, over all processes that use the same path.
///
/// # Semantics
/// - **Fair**: waiters are served in the order in which they came, by the lock in front of the
///   permits. It is as fair as a [`Mutex`](crate::Mutex): processes in order, and the threads of
///   one process in order. A caller that asks for many is not overtaken by those that ask for few.
/// - **Permits** are values: they can be sent to another thread and released there. The same
///   thread can have several. Dropping one releases it.
/// - **Many at once** are given [together or not at all](Self::acquire_many), so two callers that
///   ask for many cannot each hold what the other needs.
/// - **The maximum** is either [fixed](SemaphoreBuilder::max) or
///   [shared](SemaphoreBuilder::shared_max). All programs that use the path at the same time must
///   agree on a fixed one. A shared one can be changed while the semaphore is in use; 0 is a pause.
///   When a maximum is lowered, holders keep their permits. See also [`set_max`](Self::set_max).
/// - **When the session is lost**, every permit is lost before another process can have it; see
///   [`Permit::lost`]. Waiters queue again.
/// - **When a process dies**, its permits are free after the session timeout.
///
/// Curator takes several leases one by one. So a Java program that asks for many at once and one
/// that [does so here](Self::acquire_many) can wait for each other for ever: let Java ask for one
/// at a time.
///
/// Curator's `InterProcessSemaphoreV2` can take part, or kazoo's `Semaphore`; see
/// [`SemaphoreBuilder::dialect`].
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let workers = zklock::Semaphore::new(&client, "/limits/geocoder", 4)?;
/// let permit = workers.acquire()?;
/// std::thread::spawn(move || {
///     // One of at most four, over all machines.
///     drop(permit);
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    pool: Arc<PermitPool>,
}

impl Semaphore {
    /// A semaphore at `path` of at most `max` permits. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible, or `max` is 0.
    pub fn new(client: &Client, path: &str, max: u32) -> Result<Self> {
        Self::builder(client, path).max(max).build()
    }

    /// Begins to build a semaphore at `path`. The maximum must be set.
    pub fn builder<'a>(client: &'a Client, path: &'a str) -> SemaphoreBuilder<'a> {
        SemaphoreBuilder {
            settings: Settings::new(client, path),
            max: None,
        }
    }

    /// Waits for a permit. While ZooKeeper cannot be reached it waits as long as the client's
    /// [`RetryPolicy`](crate::RetryPolicy) says. [Keep it](crate#keep-the-guard): `_` is no name.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); also [`is_invalid`](Error::is_invalid) if others use
    /// this semaphore with another fixed maximum: the text names both.
    pub fn acquire(&self) -> Result<Permit> {
        self.acquire_many(1)
    }

    /// Waits for `count` permits, all or none, and returns them in one value.
    ///
    /// While it waits for the last of them, later callers wait behind it, even if what they ask for
    /// is free.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let memory = zklock::Semaphore::new(&client, "/limits/gigabytes", 64)?;
    /// let permit = memory.acquire_many(16)?;
    /// assert_eq!(permit.count(), 16);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); also [`is_invalid`](Error::is_invalid) if `count` is 0, or
    /// more than the maximum, even one that is lowered during the wait (but not to 0, which is a
    /// pause).
    pub fn acquire_many(&self, count: u32) -> Result<Permit> {
        let count = at_least_one(count)?;
        self.pool.acquire_plainly(count).map(Permit)
    }

    /// Takes a permit if one is free and nobody waits for one; otherwise returns `None`. It writes
    /// nothing to ZooKeeper if none is free, except the maximum, once, for others to agree on.
    ///
    /// It also returns `None` while somebody else is just taking a permit: the lock in front is
    /// taken then, and this call waits for ZooKeeper's answers and for nothing else.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock) and [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1)
    }

    /// Takes `count` permits, all or none, if that many are free and nobody waits; otherwise
    /// returns `None`. See [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_many`](Self::acquire_many).
    pub fn try_acquire_many(&self, count: u32) -> Result<Option<Permit>> {
        let count = at_least_one(count)?;
        Ok(self.pool.try_acquire(count)?.map(Permit))
    }

    /// Waits for `count` permits for at most `timeout`; returns `None` when the time is over, even
    /// when ZooKeeper is silent. A zero timeout means [`try_acquire_many`](Self::try_acquire_many).
    ///
    /// # Errors
    /// As [`acquire_many`](Self::acquire_many).
    pub fn try_acquire_many_for(&self, count: u32, timeout: Duration) -> Result<Option<Permit>> {
        let count = at_least_one(count)?;
        let lease = self.pool.attempt(count, TryOrWait::during(timeout))?;
        Ok(lease.map(Permit))
    }

    /// Waits for `count` permits until `deadline`; returns `None` when it has passed. A deadline in
    /// the past means [`try_acquire_many`](Self::try_acquire_many).
    ///
    /// # Errors
    /// As [`acquire_many`](Self::acquire_many).
    pub fn try_acquire_many_until(&self, count: u32, deadline: Instant) -> Result<Option<Permit>> {
        let count = at_least_one(count)?;
        let lease = self.pool.attempt(count, TryOrWait::until(deadline))?;
        Ok(lease.map(Permit))
    }

    /// Waits for a permit for at most `timeout`; returns `None` when the time is over, even when
    /// ZooKeeper is silent. A zero timeout means [`try_acquire`](Self::try_acquire).
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let calls = zklock::Semaphore::new(&client, "/limits/geocoder", 4)?;
    /// use std::time::Duration;
    ///
    /// match calls.try_acquire_for(Duration::from_millis(200))? {
    ///     Some(_permit) => println!("asking the geocoder"),
    ///     None => println!("answering from the cache: {} are busy", calls.max()?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_for(&self, timeout: Duration) -> Result<Option<Permit>> {
        Ok(self
            .pool
            .attempt(1, TryOrWait::during(timeout))?
            .map(Permit))
    }

    /// Waits for a permit until `deadline`; returns `None` when it has passed. A deadline in the
    /// past means [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_until(&self, deadline: Instant) -> Result<Option<Permit>> {
        Ok(self
            .pool
            .attempt(1, TryOrWait::until(deadline))?
            .map(Permit))
    }

    /// Waits for a permit with a deadline, a cancel token, node data or a report of positions for
    /// this one time. An error when the deadline passes.
    ///
    /// # Errors
    /// As [`Mutex::lock_with`](crate::Mutex::lock_with) and [`acquire`](Self::acquire).
    pub fn acquire_with(&self, options: AcquireOptions) -> Result<Permit> {
        self.pool.acquire_with(1, options).map(Permit)
    }

    /// Waits for `count` permits, all or none, with a deadline, a cancel token, node data or a
    /// report of positions for this one time. An error when the deadline passes.
    ///
    /// # Errors
    /// As [`acquire_with`](Self::acquire_with) and [`acquire_many`](Self::acquire_many).
    pub fn acquire_many_with(&self, count: u32, options: AcquireOptions) -> Result<Permit> {
        let count = at_least_one(count)?;
        self.pool.acquire_with(count, options).map(Permit)
    }

    /// As a part of a call that waits.
    pub(super) fn take(&self, count: u32, limits: &WaitLimits) -> Result<Permit> {
        let count = at_least_one(count)?;
        self.pool.take(count, limits).map(Permit)
    }

    /// Changes the maximum while the semaphore is in use, for this object, its clones, and
    /// everybody who shares the count with it. Holders keep their permits, and waiters hear of it
    /// at once.
    ///
    /// A fixed maximum is written into the semaphore's node. Objects that were built with another
    /// maximum get an error from then on, until they are built again (kazoo's look at it only
    /// once). A [shared](SemaphoreBuilder::shared_max) maximum is [set](SharedCount::set).
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let workers = zklock::Semaphore::new(&client, "/limits/geocoder", 4)?;
    /// workers.set_max(8)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a fixed maximum of 0, a shared one that is more than a
    /// [`SharedCount`] can say, or a node that holds somebody's own data; otherwise as [`Mutex::lock`](crate::Mutex::lock). After
    /// [`is_connection_loss`](Error::is_connection_loss) it may have been changed or not.
    pub fn set_max(&self, max: u32) -> Result<()> {
        self.pool.change_limit(max)
    }

    /// The maximum at this moment. Queries ZooKeeper when the maximum is shared or not agreed on
    /// yet.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn max(&self) -> Result<u32> {
        self.pool.limit_now()
    }

    /// How many permits are free; a snapshot. All of them may be reserved for a waiter in front
    /// that needs more than these.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn available(&self) -> Result<u32> {
        let max = self.pool.limit_now()?;
        Ok(max.saturating_sub(self.pool.taken()?))
    }

    /// The holders (one entry for each permit) and after them the waiters, over all processes; a
    /// snapshot.
    ///
    /// Costs two requests and one more for each participant.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let workers = zklock::Semaphore::new(&client, "/limits/geocoder", 4)?;
    /// let (holders, waiters): (Vec<_>, Vec<_>) =
    ///     workers.participants()?.into_iter().partition(|one| one.is_holder());
    /// println!("{} permits in use, {} processes wait", holders.len(), waiters.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.pool.participants()
    }

    /// Deletes a participant's node by force, and returns whether it was still there; see
    /// [`Mutex::break_lock`](crate::Mutex::break_lock). If it is one of several nodes of one
    /// [`Permit`], the whole `Permit` is lost.
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

fn at_least_one(count: u32) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Error::invalid("0 permits were asked for")),
    }
}

/// The chroot of a session's connect string.
fn chroot_of(session: &Session) -> Option<String> {
    let to = session.target().parse::<ConnectString>();
    to.ok().and_then(|to| to.chroot)
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.show(f, "Semaphore")
    }
}

/// Settings of a [`Semaphore`]; made by [`Semaphore::builder`].
#[derive(Debug)]
#[must_use]
pub struct SemaphoreBuilder<'a> {
    settings: Settings<'a>,
    max: Option<Max>,
}

#[derive(Debug)]
enum Max {
    Fixed(u32),
    /// The node, what it begins with, and the chroot that its path is below.
    Shared(LockPath, i32, Option<String>),
}

impl SemaphoreBuilder<'_> {
    /// How many permits there are; at least 1. All programs that use the path at the same time must
    /// agree: the first one writes its maximum into the semaphore's node, and one with another
    /// maximum gets an error that names both, for as long as somebody has a permit. Once nobody
    /// has, the next program's maximum takes its place (not in kazoo's dialect: kazoo looks only
    /// once).
    pub fn max(mut self, max: u32) -> Self {
        self.max = Some(Max::Fixed(max));
        self
    }

    /// Takes the number of permits from `count`, at any time. While it is 0 or negative, everybody
    /// waits. Waiters hear at once when it is raised.
    ///
    /// The semaphore reads the count through its own client, so both clients must have the same
    /// ensemble and the same chroot.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let max = zklock::SharedCount::new(&client, "/limits/api", 10)?;
    /// let api = zklock::Semaphore::builder(&client, "/pools/api").shared_max(&max).build()?;
    /// let before = max.get()?;
    /// max.set(0)?; // a pause: those who hold go on, nobody else gets in
    /// max.set(before)?; // all who wait hear of it at once
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared_max(mut self, count: &SharedCount) -> Self {
        let chroot = chroot_of(count.client.session());
        self.max = Some(Max::Shared(count.path.clone(), count.initial, chroot));
        self
    }

    /// Whose node names to use. Defaults to Curator's. All programs that share a path must agree.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = dialect;
        self
    }

    /// How to wait for those ahead in the queue. Defaults to [`WaitStrategy::PredecessorWatch`].
    /// The first in the queue watches the folder of permits, whatever is set here.
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.settings.strategy = strategy;
        self
    }

    /// How long this process keeps the lock in front of the permits when none of its threads wants
    /// it. Defaults to zero: not at all. It saves two writes for each acquire as long as no other
    /// process wants a permit; see [`MutexBuilder::linger`](crate::MutexBuilder::linger).
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.policy.linger = linger;
        self
    }

    /// The name under which the client's [`Observer`](crate::Observer) hears of this semaphore; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to none.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.settings.policy.label = Some(label.into());
        self
    }

    /// What the nodes hold for others to read. Defaults to who we are: host, process id, thread and
    /// time.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.settings.data = Some(data.into());
        self
    }

    /// Builds the semaphore. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path or a setting is not possible, or no maximum
    /// is set; [`is_forked`](Error::is_forked).
    pub fn build(self) -> Result<Semaphore> {
        let path = self.settings.path;
        let pool = match self.max {
            None => {
                return Err(Error::invalid(format!(
                    "{path}: a semaphore needs a maximum"
                )));
            }
            Some(Max::Fixed(0)) => {
                return Err(Error::invalid(format!("{path}: a maximum of 0 permits")));
            }
            Some(Max::Fixed(max)) => {
                let adopts = self.settings.dialect == Dialect::Curator;
                PermitPool::new(self.settings, |home| {
                    Limit::fixed(max, home.clone(), adopts)
                })?
            }
            Some(Max::Shared(count, initial, chroot)) => {
                let ours = chroot_of(self.settings.client.session());
                if chroot != ours {
                    let (theirs, ours) = (chroot.unwrap_or_default(), ours.unwrap_or_default());
                    return Err(Error::invalid(format!(
                        "{path}: the client of the count {count} has the chroot {theirs:?}, \
                         and that of the semaphore {ours:?}"
                    )));
                }
                PermitPool::new(self.settings, |_| Limit::shared(count, initial))?
            }
        };
        Ok(Semaphore { pool })
    }
}

/// One or more permits of a [`Semaphore`]; dropping it gives them back.
///
/// It has no fencing token: a store that has seen the token of a later permit would refuse an
/// earlier one, which is just as good.
///
/// ```compile_fail
/// # fn show(permit: &zklock::Permit) {
/// let token = permit.fencing_token();
/// # }
/// ```
///
/// It can be sent to another thread and dropped there. Dropping never panics, and blocks for at
/// most about a sixth of the session timeout; what ZooKeeper does not confirm in that time is
/// removed in the background.
#[clippy::has_significant_drop]
#[must_use = "the permit is given back as soon as it is dropped"]
pub struct Permit(HeldPermits);

impl Permit {
    holding_methods!();

    /// Gives it back, and does not wait for ZooKeeper to confirm it.
    pub(crate) fn start_release(&mut self, mode: ReleaseMode) -> PendingRelease {
        self.0.start_release(mode)
    }

    /// How many permits these are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.tenure().nodes().len()
    }

    /// Gives the permit back, as dropping it does, and says whether that went well.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let workers = zklock::Semaphore::new(&client, "/limits/geocoder", 4)?;
    /// let permit = workers.acquire()?;
    /// match permit.release() {
    ///     Err(error) if error.is_lock_lost() => println!("five may have been at work: {error}"),
    ///     other => other?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    pub fn release(self) -> Result<()> {
        self.0.unlock()
    }
}

guard_traits!(Permit, "Permit");
