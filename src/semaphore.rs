//! [`Semaphore`]: so many at once, and its permits.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bound::{AcquireOptions, Bound, Patience};
use crate::client::Client;
use crate::contend::{Claim, Contest, Limit, News, Place, WaitStrategy};
use crate::error::{Error, Result};
use crate::guard::{Holding, holding_methods, log_release};
use crate::local_queue::{LocalQueue, Policy};
use crate::names::{Class, Dialect, Grammar};
use crate::node_data::NodeData;
use crate::participant::Participant;
use crate::path::LockPath;
use crate::session::{Session, Waiter};
use crate::shared_count::SharedCount;
use crate::tenure::Tenure;

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
/// - **The maximum** is either [fixed](SemaphoreBuilder::max), and then all who share the path
///   must say the same, or [shared](SemaphoreBuilder::shared_max), and then it can be changed while
///   the semaphore is in use. When it is lowered, those who hold keep their permits.
/// - When the session is lost, every permit is lost, before another process can have it; see
///   [`Permit::lost`]. Those who wait queue anew.
/// - When a process dies, its permits are free after the session timeout.
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
    inner: Arc<Inner>,
}

/// Leases, and the lock in front of them.
pub(crate) struct Inner {
    queue: Arc<LocalQueue>,
    leases: Contest,
    limit: Limit,
    home: LockPath,
    data: NodeData,
    /// Keeps the session open.
    _client: Client,
}

/// A place among the leases. Dropping it withdraws what was created and not won.
struct Attempt<'a> {
    leases: &'a Contest,
    place: Place,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.leases.withdraw(std::mem::take(&mut self.place));
    }
}

/// Gives the lock in front of the leases back, also on unwinding.
struct InFront<'a> {
    queue: &'a LocalQueue,
    bound: &'a Bound,
}

impl Drop for InFront<'_> {
    fn drop(&mut self) {
        if self.bound.is_none() {
            log_release(self.queue.release());
        } else {
            // The caller may have no time to wait for that.
            self.queue.release_aside();
        }
    }
}

impl Inner {
    pub(crate) fn new(
        settings: Settings<'_>,
        limit: impl FnOnce(&LockPath) -> Limit,
    ) -> Result<Arc<Self>> {
        let home = LockPath::parse(settings.path).map_err(Error::invalid)?;
        let data = NodeData::checked(&home, settings.data)?;
        let dialect = settings.dialect;
        let (locks, leases) = match dialect {
            Dialect::Curator => (home.child("locks"), home.child("leases")),
            Dialect::Kazoo => (format!("{home}-__lock__"), home.as_str().to_owned()),
        };
        let contest = |path: &str, grammar, class, strategy| -> Result<Contest> {
            let folder = LockPath::parse(path).map_err(Error::invalid)?;
            let session = Arc::clone(settings.client.session());
            Ok(Contest::new(session, folder, grammar, class, strategy))
        };
        let locks = contest(
            &locks,
            Grammar::mutex(dialect, None),
            Class::Exclusive,
            settings.strategy,
        )?;
        let strategy = WaitStrategy::ParentWatch;
        let leases = contest(&leases, Grammar::lease(dialect), Class::Lease, strategy)?;
        Ok(Arc::new(Self {
            queue: LocalQueue::new(locks, settings.policy),
            leases,
            limit: limit(&home),
            home,
            data,
            _client: settings.client.clone(),
        }))
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.leases.session
    }

    /// Takes the lock in front, creates the leases, and waits until they fit.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        count: usize,
        bound: &Bound,
        data: &NodeData,
    ) -> Result<Lease> {
        loop {
            self.queue.acquire(bound, || data.now())?;
            let in_front = InFront {
                queue: &self.queue,
                bound,
            };
            let waiter = Waiter::new(self.session(), bound);
            let claim = Claim {
                count,
                reporter: bound.reporter.as_deref(),
                ..Claim::plain(data.now())
            };
            let mut attempt = Attempt {
                leases: &self.leases,
                place: Place::Nowhere,
            };
            let (place, first) = (&mut attempt.place, self.queue.tenure());
            match self
                .leases
                .acquire_leases(place, &waiter, &claim, &self.limit, &first)
            {
                Ok(tenure) => return Ok(self.lease(tenure)),
                // The lock in front was lost: another may count now.
                Err(error) if error.is_lock_lost() => {
                    log::debug!("{}: queueing again: {error}", self.home);
                    drop(attempt);
                    drop(in_front);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes nothing if there is nothing to be had.
    pub(crate) fn try_acquire(self: &Arc<Self>, count: usize) -> Result<Option<Lease>> {
        self.session().fork().refuse_child()?;
        if !self.leases.has_free_leases(count, &self.limit)?
            || !self.queue.try_acquire(|| self.data.now())?
        {
            return Ok(None);
        }
        let bound = Bound::none();
        let _in_front = InFront {
            queue: &self.queue,
            bound: &bound,
        };
        let waiter = Waiter::new(self.session(), &bound);
        let claim = Claim {
            count,
            ..Claim::plain(self.data.now())
        };
        let mut attempt = Attempt {
            leases: &self.leases,
            place: Place::Nowhere,
        };
        let place = &mut attempt.place;
        let tenure = self
            .leases
            .try_acquire_leases(place, &waiter, &claim, &self.limit)?;
        Ok(tenure.map(|tenure| self.lease(tenure)))
    }

    fn lease(self: &Arc<Self>, tenure: Arc<Tenure>) -> Lease {
        Lease {
            inner: Arc::clone(self),
            tenure: Some(tenure),
        }
    }

    /// Who holds, in the order of their leases' numbers, and then who waits, in order. The one at
    /// the head of the queue may have a lease that does not fit yet.
    pub(crate) fn participants(&self) -> Result<Vec<Participant>> {
        let max = self.limit_now()?;
        let mut holders = self.leases.participants()?;
        for (position, holder) in (0..).zip(&mut holders) {
            holder.holds = position < max;
        }
        let mut waiters = self.queue.contest.participants()?;
        for waiter in &mut waiters {
            waiter.holds = false;
        }
        holders.extend(waiters);
        let mut own = self.session().own_nodes();
        own.extend(self.queue.own_node());
        let idle = self.queue.idle_node();
        Ok(Participant::all(holders, &own, idle.as_deref()))
    }

    pub(crate) fn limit_now(&self) -> Result<u32> {
        self.leases.limit_now(&self.limit)
    }

    /// The queue that a participant's node stands in: the leases', or that of the lock in front.
    fn contest_of(&self, participant: &Participant) -> &Contest {
        let (folder, _) = crate::path::split(participant.path());
        if folder == self.queue.contest.folder.as_str() {
            &self.queue.contest
        } else {
            &self.leases
        }
    }

    pub(crate) fn break_lock(&self, participant: &Participant) -> Result<bool> {
        let contest = self.contest_of(participant);
        contest.break_lock(participant.path())
    }

    pub(crate) fn path(&self) -> &str {
        self.home.as_str()
    }

    pub(crate) fn attempt(
        self: &Arc<Self>,
        count: usize,
        patience: Patience,
    ) -> Result<Option<Lease>> {
        let wait = |bound: &Bound| self.acquire(count, bound, &self.data);
        patience.attempt(|| self.try_acquire(count), wait)
    }

    pub(crate) fn acquire_with(
        self: &Arc<Self>,
        count: usize,
        options: AcquireOptions,
    ) -> Result<Lease> {
        let AcquireOptions { bound, data } = options;
        let data = self.data.or(&self.home, data)?;
        self.acquire(count, &bound, &data)
    }

    pub(crate) fn acquire_plainly(self: &Arc<Self>, count: usize) -> Result<Lease> {
        self.acquire(count, &Bound::none(), &self.data)
    }
}

/// What semaphores are built with.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) client: &'a Client,
    pub(crate) path: &'a str,
    pub(crate) dialect: Dialect,
    pub(crate) strategy: WaitStrategy,
    pub(crate) policy: Policy,
    pub(crate) data: Option<Vec<u8>>,
}

impl<'a> Settings<'a> {
    pub(crate) fn new(client: &'a Client, path: &'a str) -> Self {
        Self {
            client,
            path,
            dialect: Dialect::default(),
            strategy: WaitStrategy::default(),
            policy: Policy::default(),
            data: None,
        }
    }
}

/// Leases that are ours until this is dropped.
pub(crate) struct Lease {
    inner: Arc<Inner>,
    /// Empty once released.
    tenure: Option<Arc<Tenure>>,
}

impl Lease {
    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        self.tenure.as_ref().expect("not released yet")
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.inner.session()
    }

    pub(crate) fn release(mut self) -> Result<()> {
        let tenure = self.tenure.take();
        tenure.map_or(Ok(()), |tenure| self.give_back(&tenure))
    }

    /// As [`Lease::release`], in the background.
    pub(crate) fn abandon(mut self) {
        if let Some(tenure) = self.tenure.take() {
            self.inner.leases.abandon(&tenure, News::Unknown(None));
        }
    }

    fn give_back(&self, tenure: &Tenure) -> Result<()> {
        self.session().fork().refuse_child()?;
        self.inner.leases.leave(tenure, News::Unknown(None))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(tenure) = self.tenure.take() {
            log_release(self.give_back(&tenure));
        }
    }
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
    /// # Errors
    /// As [`acquire`](Self::acquire); also [`is_invalid`](Error::is_invalid) if `count` is 0, or
    /// more than the maximum, also if that is lowered while it waits.
    pub fn acquire_many(&self, count: u32) -> Result<Permit> {
        let count = at_least_one(count)?;
        self.inner.acquire_plainly(count).map(Permit)
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
        Ok(self.inner.try_acquire(count)?.map(Permit))
    }

    /// As [`acquire`](Self::acquire), for `timeout` at the most; `None` when it is over.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_for(&self, timeout: Duration) -> Result<Option<Permit>> {
        Ok(self
            .inner
            .attempt(1, Patience::during(timeout))?
            .map(Permit))
    }

    /// As [`acquire`](Self::acquire), until `deadline`; `None` when it is over.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_until(&self, deadline: Instant) -> Result<Option<Permit>> {
        Ok(self
            .inner
            .attempt(1, Patience::until(deadline))?
            .map(Permit))
    }

    /// As [`acquire`](Self::acquire), with a deadline, a cancel token, node data or a report of
    /// positions for this one time.
    ///
    /// # Errors
    /// As [`Mutex::lock_with`](crate::Mutex::lock_with) and [`acquire`](Self::acquire).
    pub fn acquire_with(&self, options: AcquireOptions) -> Result<Permit> {
        self.inner.acquire_with(1, options).map(Permit)
    }

    /// As [`acquire_many`](Self::acquire_many), with options.
    ///
    /// # Errors
    /// As [`acquire_with`](Self::acquire_with) and [`acquire_many`](Self::acquire_many).
    pub fn acquire_many_with(&self, count: u32, options: AcquireOptions) -> Result<Permit> {
        let count = at_least_one(count)?;
        self.inner.acquire_with(count, options).map(Permit)
    }

    /// The maximum at this moment. Asks ZooKeeper if it is shared, or has not been agreed on yet.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn max(&self) -> Result<u32> {
        self.inner.limit_now()
    }

    /// How many permits are free, as a snapshot. Somebody who waits for the last of many may have
    /// them all.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn available(&self) -> Result<u32> {
        let max = self.inner.limit_now()?;
        Ok(max.saturating_sub(self.inner.leases.leases_taken()?))
    }

    /// Who has permits (one entry for each), and after them who waits, over all processes; a
    /// snapshot.
    ///
    /// Costs two requests and one more for each participant.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.inner.participants()
    }

    /// Deletes a participant's node by force; see [`Mutex::break_lock`](crate::Mutex::break_lock).
    /// If it is one of several that make up a permit, the whole permit is lost.
    ///
    /// # Errors
    /// As [`Mutex::revoke`](crate::Mutex::revoke).
    pub fn break_lock(&self, participant: &Participant) -> Result<bool> {
        self.inner.break_lock(participant)
    }

    /// The path, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.inner.path()
    }
}

fn at_least_one(count: u32) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Error::invalid("a permit of 0 leases")),
    }
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
    Shared(LockPath, i32),
}

impl SemaphoreBuilder<'_> {
    /// At most so many permits at once. All who share the path must say the same: the first writes
    /// it into the semaphore's node, and those who say something else get an error that names both.
    pub fn max(mut self, max: u32) -> Self {
        self.max = Some(Max::Fixed(max));
        self
    }

    /// At most so many permits at once as `count` says, at any time; nothing, if it is negative.
    /// Who waits hears at once when it is raised.
    pub fn shared_max(mut self, count: &SharedCount) -> Self {
        self.max = Some(Max::Shared(count.path.clone(), count.initial));
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
        let inner = match self.max {
            None => {
                return Err(Error::invalid(format!(
                    "{path}: a semaphore needs a maximum"
                )));
            }
            Some(Max::Fixed(0)) => {
                return Err(Error::invalid(format!("{path}: a maximum of 0 permits")));
            }
            Some(Max::Fixed(max)) => {
                Inner::new(self.settings, |home| Limit::fixed(max, home.clone()))?
            }
            Some(Max::Shared(count, initial)) => {
                Inner::new(self.settings, |_| Limit::shared(count, initial))?
            }
        };
        Ok(Semaphore { inner })
    }
}

/// One or more permits of a [`Semaphore`]; dropping it gives them back.
///
/// It can be sent to another thread, and dropped there. Dropping never panics, and blocks for 2/3
/// of the session timeout at the most for each permit; what ZooKeeper does not confirm is removed
/// in the background.
#[must_use = "the permit is given back as soon as it is dropped"]
pub struct Permit(Lease);

impl Permit {
    holding_methods!();

    /// How many permits this is.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.tenure().nodes().len()
    }

    /// Gives the permit back, as dropping it does, and says whether that went well.
    ///
    /// # Errors
    /// As [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    pub fn release(self) -> Result<()> {
        self.0.release()
    }
}

impl Holding for Permit {
    fn tenure(&self) -> &Arc<Tenure> {
        self.0.tenure()
    }

    fn session(&self) -> &Arc<Session> {
        self.0.session()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("node", &self.path())
            .field("count", &self.count())
            .field("state", &self.state())
            .finish()
    }
}
