//! [`Semaphore`]: so many at once, and its permits.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::{Departure, Limit, WaitStrategy};
use crate::link::ConnectString;
use crate::recipe::guard::{guard_traits, holding_methods};
use crate::recipe::leasing::{Lease, Leasing, Settings};
use crate::recipe::participant::Participant;
use crate::recipe::shared_count::SharedCount;
use crate::session::Session;
use crate::wait::bound::{AcquireOptions, Patience};
use crate::znode::names::Dialect;
use crate::znode::path::LockPath;

/// At most so many permits at once, over all processes that use the same path.
///
/// # Semantics
/// - **Fair**: who waits is served first come, first served, by the lock in front of the permits,
///   whose fairness is that of [`Mutex`](crate::Mutex): processes in order, and the threads of one
///   process in order. Who asks for many is not overtaken by those who ask for few.
/// - **Permits** are values: they can be sent to another thread and released there. The same
///   thread can have several. Dropping one releases it.
/// - **Many at once** are given [together or not at all](Self::acquire_many), so two who ask for
///   many cannot each hold what the other needs.
/// - **The maximum** is either [fixed](SemaphoreBuilder::max), and then all who use the path at the
///   same time must say the same, or [shared](SemaphoreBuilder::shared_max), and then it can be
///   changed while the semaphore is in use; 0 is a pause. When it is lowered, those who hold keep
///   their permits. See also [`set_max`](Self::set_max).
/// - When the session is lost, every permit is lost, before another process can have it; see
///   [`Permit::lost`]. Those who wait queue anew.
/// - When a process dies, its permits are free after the session timeout.
///
/// Curator takes several leases one by one, so a Java program that asks for many at once can wait for
/// ever for one that [does so here](Self::acquire_many), and that for it: let Java ask for one at a
/// time.
///
/// Curator's `InterProcessSemaphoreV2` can take part, or kazoo's `Semaphore`; see
/// [`SemaphoreBuilder::dialect`].
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// let client = zklock::Client::connect("localhost:2181")?;
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
    leasing: Arc<Leasing>,
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

    /// Waits for a permit.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); also [`is_invalid`](Error::is_invalid) if others use
    /// this semaphore with another fixed maximum: the text names both.
    pub fn acquire(&self) -> Result<Permit> {
        self.acquire_many(1)
    }

    /// Waits for `count` permits, in one value: all or none.
    ///
    /// While it waits for the last of them, those who came later wait behind it, also if what they
    /// ask for is free.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// let memory = zklock::Semaphore::new(&client, "/limits/gigabytes", 64)?;
    /// let permit = memory.acquire_many(16)?;
    /// assert_eq!(permit.count(), 16);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); also [`is_invalid`](Error::is_invalid) if `count` is 0, or
    /// more than the maximum, also if that is lowered while it waits (but not to 0, which is a
    /// pause).
    pub fn acquire_many(&self, count: u32) -> Result<Permit> {
        let count = at_least_one(count)?;
        self.leasing.acquire_plainly(count).map(Permit)
    }

    /// Takes a permit if one is free and nobody waits for one. Writes nothing to ZooKeeper if none
    /// is free, but for what it may write once: the maximum, for others to agree on.
    ///
    /// Also `None` while somebody else is just taking one: the lock in front is taken, and this
    /// call waits for nobody.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock) and [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1)
    }

    /// Takes `count` permits, all or none, as [`try_acquire`](Self::try_acquire) takes one.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_many`](Self::acquire_many).
    pub fn try_acquire_many(&self, count: u32) -> Result<Option<Permit>> {
        let count = at_least_one(count)?;
        Ok(self.leasing.try_acquire(count)?.map(Permit))
    }

    /// As [`acquire_many`](Self::acquire_many), for `timeout` at the most; `None` when it is over.
    ///
    /// # Errors
    /// As [`acquire_many`](Self::acquire_many).
    pub fn try_acquire_many_for(&self, count: u32, timeout: Duration) -> Result<Option<Permit>> {
        let count = at_least_one(count)?;
        let lease = self.leasing.attempt(count, Patience::during(timeout))?;
        Ok(lease.map(Permit))
    }

    /// As [`acquire_many`](Self::acquire_many), until `deadline`; `None` when it is over.
    ///
    /// # Errors
    /// As [`acquire_many`](Self::acquire_many).
    pub fn try_acquire_many_until(&self, count: u32, deadline: Instant) -> Result<Option<Permit>> {
        let count = at_least_one(count)?;
        let lease = self.leasing.attempt(count, Patience::until(deadline))?;
        Ok(lease.map(Permit))
    }

    /// As [`acquire`](Self::acquire), for `timeout` at the most; `None` when it is over.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
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
            .leasing
            .attempt(1, Patience::during(timeout))?
            .map(Permit))
    }

    /// As [`acquire`](Self::acquire), until `deadline`; `None` when it is over.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_until(&self, deadline: Instant) -> Result<Option<Permit>> {
        Ok(self
            .leasing
            .attempt(1, Patience::until(deadline))?
            .map(Permit))
    }

    /// As [`acquire`](Self::acquire), with a deadline, a cancel token, node data or a report of
    /// positions for this one time.
    ///
    /// # Errors
    /// As [`Mutex::lock_with`](crate::Mutex::lock_with) and [`acquire`](Self::acquire).
    pub fn acquire_with(&self, options: AcquireOptions) -> Result<Permit> {
        self.leasing.acquire_with(1, options).map(Permit)
    }

    /// As [`acquire_many`](Self::acquire_many), with options.
    ///
    /// # Errors
    /// As [`acquire_with`](Self::acquire_with) and [`acquire_many`](Self::acquire_many).
    pub fn acquire_many_with(&self, count: u32, options: AcquireOptions) -> Result<Permit> {
        let count = at_least_one(count)?;
        self.leasing.acquire_with(count, options).map(Permit)
    }

    /// Changes the maximum while the semaphore is in use, for this object, its clones, and all who
    /// share a count with it. Those who hold keep their permits, and who waits hears at once.
    ///
    /// A fixed maximum is written into the semaphore's node; others that were built for another one
    /// get an error from then on, until they are built anew (kazoo's look at it only once). A
    /// [shared](SemaphoreBuilder::shared_max) one is [set](SharedCount::set).
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// let workers = zklock::Semaphore::new(&client, "/limits/geocoder", 4)?;
    /// workers.set_max(8)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a fixed maximum of 0, or a shared one that is more than
    /// a [`SharedCount`] can say; otherwise as [`Mutex::lock`](crate::Mutex::lock). After
    /// [`is_connection_loss`](Error::is_connection_loss) it may have been changed or not.
    pub fn set_max(&self, max: u32) -> Result<()> {
        self.leasing.change_limit(max)
    }

    /// The maximum at this moment. Asks ZooKeeper.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn max(&self) -> Result<u32> {
        self.leasing.limit_now()
    }

    /// How many permits are free, as a snapshot. Somebody who waits for the last of many may have
    /// them all.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn available(&self) -> Result<u32> {
        let max = self.leasing.limit_now()?;
        Ok(max.saturating_sub(self.leasing.taken()?))
    }

    /// Who has permits (one entry for each), and after them who waits, over all processes; a
    /// snapshot.
    ///
    /// Costs two requests and one more for each participant.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
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
        self.leasing.participants()
    }

    /// Deletes a participant's node by force; see [`Mutex::break_lock`](crate::Mutex::break_lock).
    /// If it is one of several that make up a permit, the whole permit is lost.
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

fn at_least_one(count: u32) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Error::invalid("a permit of 0 leases")),
    }
}

/// The chroot of a session's connect string.
fn chroot_of(session: &Session) -> Option<String> {
    let to = session.target().parse::<ConnectString>();
    to.ok().and_then(|to| to.chroot)
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("path", &self.path())
            .finish_non_exhaustive()
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
    /// At most so many permits at once; at least 1. All who use the path at the same time must say
    /// the same: the first writes it into the semaphore's node, and those who say something else
    /// get an error that names both, for as long as somebody has a permit. Once nobody has, the
    /// next one's maximum takes its place (not in kazoo's dialect, as kazoo looks at it only once).
    pub fn max(mut self, max: u32) -> Self {
        self.max = Some(Max::Fixed(max));
        self
    }

    /// At most so many permits at once as `count` says, at any time; none, if it is 0 or negative:
    /// then everybody waits. Who waits hears at once when it is raised.
    ///
    /// The count is looked at through the semaphore's own client; so it must be of the same
    /// ensemble, and its client of the same chroot.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
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

    /// Whose node names to speak. Defaults to Curator's. All who share a path must agree.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = dialect;
        self
    }

    /// How to wait for those who came before; see [`WaitStrategy`]. For a free permit, the first of
    /// those who wait watches the folder of permits, whatever this says.
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.settings.strategy = strategy;
        self
    }

    /// How long the lock in front of the permits is kept when nobody of this process wants it.
    /// Defaults to zero. With it, an acquire costs two writes less as long as no other process
    /// wants a permit; see [`MutexBuilder::linger`](crate::MutexBuilder::linger).
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.policy.linger = linger;
        self
    }

    /// What a client's [`Observer`](crate::Observer) is told that this semaphore is called; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to nothing.
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
    /// is set.
    pub fn build(self) -> Result<Semaphore> {
        let path = self.settings.path;
        let leasing = match self.max {
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
                Leasing::new(self.settings, |home| {
                    Limit::fixed(max, home.clone(), adopts)
                })?
            }
            Some(Max::Shared(count, initial, chroot)) => {
                let ours = chroot_of(self.settings.client.session());
                if chroot != ours {
                    let (theirs, ours) = (chroot.unwrap_or_default(), ours.unwrap_or_default());
                    return Err(Error::invalid(format!(
                        "{path}: the count {count} is that of a client with the chroot                          \"{theirs}\", and the semaphore's has \"{ours}\""
                    )));
                }
                Leasing::new(self.settings, |_| Limit::shared(count, initial))?
            }
        };
        Ok(Semaphore { leasing })
    }
}

/// One or more permits of a [`Semaphore`]; dropping it gives them back.
///
/// It has no fencing token: a store that has seen a later one would refuse an earlier holder, who
/// holds as well.
///
/// ```compile_fail
/// # fn show(permit: &zklock::Permit) {
/// let token = permit.fencing_token();
/// # }
/// ```
///
/// It can be sent to another thread, and dropped there. Dropping never panics, and blocks for
/// about a sixth of the session timeout at most; what ZooKeeper does not confirm is removed in
/// the background.
#[must_use = "the permit is given back as soon as it is dropped"]
pub struct Permit(Lease);

impl Permit {
    holding_methods!();

    /// As dropping it, but does not wait for ZooKeeper to confirm it.
    pub(crate) fn send_off(self) -> Departure {
        self.0.send_off()
    }

    /// How many permits this is.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.tenure().nodes().len()
    }

    /// Gives the permit back, as dropping it does, and says whether that went well.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
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
