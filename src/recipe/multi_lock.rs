//! [`MultiLock`]: several locks as one.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::error::{Error, Result};
use crate::global_queue::Departure;
use crate::recipe::guard::log_release;
use crate::recipe::hold::{Holding, OwnHold, least_sure};
use crate::recipe::mutex::{Mutex, MutexGuard};
use crate::recipe::rw_lock::{RwLock, RwReadGuard, RwWriteGuard};
use crate::recipe::semaphore::{Permit, Semaphore};
use crate::recipe::semaphore_mutex::{SemaphoreMutex, SemaphoreMutexGuard};
use crate::recipe::simple_mutex::{SimpleMutex, SimpleMutexGuard};
use crate::recipe::transaction::Transaction;
use crate::recipe::view::HoldView;
use crate::session::{LossReason, Session};
use crate::tenure::{LockState, Tenure};
use crate::wait::bound::{AcquireOptions, Bound, Patience};
use crate::znode::fencing::FencingToken;

/// A part of a [`MultiLock`]: a [`Mutex`], a [`SemaphoreMutex`], a [`SimpleMutex`], one
/// [side](RwLock::read_side) of a [`RwLock`], or [permits](Semaphore::permits) of a [`Semaphore`].
pub struct Lockable(Box<dyn Part>);

trait Part: Send + Sync {
    fn place(&self) -> Place;
    fn take(&self, bound: &Bound) -> Result<Box<dyn Guard>>;
    fn try_take(&self) -> Result<Option<Box<dyn Guard>>>;
}

impl fmt::Debug for Lockable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lockable")
            .field(&self.0.place().path)
            .finish()
    }
}

/// A lock's place in the canonical order: by its path from the root of the ensemble, whatever
/// chroot it is reached through. Then by the ensemble.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    path: String,
    ensemble: String,
}

impl Place {
    fn of(session: &Session, path: &str) -> Self {
        let (hosts, chroot) = match session.target().split_once('/') {
            Some((hosts, chroot)) => (hosts, format!("/{chroot}")),
            None => (session.target(), String::new()),
        };
        // Two clients may name the same servers in another order.
        let mut hosts: Vec<_> = hosts.split(',').collect();
        hosts.sort_unstable();
        Self {
            path: format!("{chroot}{path}"),
            ensemble: hosts.join(","),
        }
    }
}

/// A guard of any kind.
trait Guard: Holding {
    /// Begins to give it back.
    fn send_off(self: Box<Self>) -> Departure;
    /// In the background.
    fn give_up(self: Box<Self>);
}

macro_rules! guards {
    ($($guard:ty;)*) => {$(
        impl Guard for $guard {
            fn send_off(self: Box<Self>) -> Departure {
                (*self).send_off()
            }
            fn give_up(self: Box<Self>) {
                self.abandon();
            }
        }
    )*};
}

guards! {
    MutexGuard;
    SimpleMutexGuard;
    SemaphoreMutexGuard;
    RwReadGuard;
    RwWriteGuard;
}

impl Guard for Permit {
    fn send_off(self: Box<Self>) -> Departure {
        (*self).send_off()
    }
    fn give_up(self: Box<Self>) {
        drop((*self).send_off());
    }
}

/// The reading side of a [`RwLock`], as a part of a [`MultiLock`].
#[derive(Clone, Debug)]
pub struct ReadSide(RwLock);

/// The writing side of a [`RwLock`], as a part of a [`MultiLock`].
#[derive(Clone, Debug)]
pub struct WriteSide(RwLock);

/// Permits of a [`Semaphore`], as a part of a [`MultiLock`].
#[derive(Clone, Debug)]
pub struct Permits {
    semaphore: Semaphore,
    count: u32,
}

impl RwLock {
    /// The reading side, as a part of a [`MultiLock`].
    #[must_use]
    pub fn read_side(&self) -> ReadSide {
        ReadSide(self.clone())
    }

    /// The writing side, as a part of a [`MultiLock`].
    #[must_use]
    pub fn write_side(&self) -> WriteSide {
        WriteSide(self.clone())
    }
}

impl Semaphore {
    /// So many permits at once, as a part of a [`MultiLock`].
    #[must_use]
    pub fn permits(&self, count: u32) -> Permits {
        Permits {
            semaphore: self.clone(),
            count,
        }
    }
}

macro_rules! lockables {
    ($($lock:ty, $this:ident => $inner:expr, $acquire:expr, $try:expr;)*) => {$(
        impl From<$lock> for Lockable {
            fn from(lock: $lock) -> Self {
                Self(Box::new(lock))
            }
        }

        impl From<&$lock> for Lockable {
            fn from(lock: &$lock) -> Self {
                Self(Box::new(lock.clone()))
            }
        }

        impl Part for $lock {
            fn place(&self) -> Place {
                let $this = self;
                Place::of($inner.session(), $inner.path())
            }
            fn take(&self, bound: &Bound) -> Result<Box<dyn Guard>> {
                let guard = $acquire(self, AcquireOptions::bounded(bound))?;
                Ok(Box::new(guard))
            }
            fn try_take(&self) -> Result<Option<Box<dyn Guard>>> {
                let guard = $try(self)?;
                Ok(guard.map(|guard| Box::new(guard) as Box<dyn Guard>))
            }
        }
    )*};
}

lockables! {
    Mutex, this => this, Self::lock_with, Self::try_lock;
    SemaphoreMutex, this => this, Self::lock_with, Self::try_lock;
    SimpleMutex, this => this, Self::lock_with, Self::try_lock;
    ReadSide, this => this.0,
        |side: &Self, options| side.0.read_with(options), |side: &Self| side.0.try_read();
    WriteSide, this => this.0,
        |side: &Self, options| side.0.write_with(options), |side: &Self| side.0.try_write();
    Permits, this => this.semaphore,
        |some: &Self, options| some.semaphore.acquire_many_with(some.count, options),
        |some: &Self| some.semaphore.try_acquire_many(some.count);
}

/// Several locks, taken as one: all or none.
///
/// # Semantics
/// - **In a canonical order**: the locks are taken one after the other, in the order of their paths
///   (with chroot), whatever order they were given in. So two `MultiLock`s over the same locks, in
///   whatever process, never wait for each other in a circle. They are given back in reverse.
/// - **One deadline** for the whole. When it is over, or anything fails, what was taken is given
///   back.
/// - **If one is lost** during the wait for the others, all are given back and the whole begins
///   again.
/// - **Re-entrant** where its parts are.
/// - A thread that already holds one of the locks on its own, and then takes a `MultiLock` with
///   that one and smaller paths, breaks the order and can wait in a circle: take all at once.
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// let client = zklock::Client::connect("localhost:2181")?;
/// let from = zklock::Mutex::new(&client, "/accounts/17")?;
/// let to = zklock::Mutex::new(&client, "/accounts/4")?;
/// let rates = zklock::RwLock::new(&client, "/rates")?;
/// let transfer = zklock::MultiLock::builder()
///     .with(&from)
///     .with(&to)
///     .with(rates.read_side())
///     .build()?;
/// let _all = transfer.lock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MultiLock {
    /// In canonical order.
    locks: Arc<[(Place, Lockable)]>,
}

impl MultiLock {
    /// Begins to build a multi-lock; add each lock by [`with`](MultiLockBuilder::with).
    pub fn builder() -> MultiLockBuilder {
        MultiLockBuilder { locks: Vec::new() }
    }

    /// Waits until this thread holds all the locks, one after the other in their order.
    ///
    /// # Errors
    /// Those of the parts' `lock`. Nothing is held then.
    pub fn lock(&self) -> Result<MultiLockGuard> {
        self.lock_within(&Bound::none())
    }

    /// Takes all the locks if all are free; otherwise gives back what it took and returns `None`.
    /// Waits for ZooKeeper's answers and for nothing else.
    ///
    /// # Errors
    /// Those of the parts' `try_lock`.
    pub fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        let mut held = Held::default();
        for (_, lock) in &*self.locks {
            match lock.0.try_take()? {
                Some(guard) => held.0.push(guard),
                None => return Ok(None),
            }
        }
        Ok(Some(MultiLockGuard::new(held)))
    }

    /// Waits for all the locks for at most `timeout` in all; returns `None` when the time is over,
    /// and gives back what it took. A zero timeout means [`try_lock`](Self::try_lock).
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// use std::time::Duration;
    /// use zklock::{MultiLock, Mutex, Semaphore};
    ///
    /// let table = Mutex::new(&client, "/locks/table")?;
    /// let workers = Semaphore::new(&client, "/limits/exports", 8)?;
    /// let export = MultiLock::builder().with(&table).with(workers.permits(2)).build()?;
    /// match export.try_lock_for(Duration::from_secs(60))? {
    ///     Some(_all) => println!("the table, and two of the eight"),
    ///     None => println!("nothing is held"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<MultiLockGuard>> {
        self.attempt(Patience::during(timeout))
    }

    /// Waits for all the locks until `deadline`; returns `None` when it has passed, and gives back
    /// what it took. A deadline in the past means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<MultiLockGuard>> {
        self.attempt(Patience::until(deadline))
    }

    fn attempt(&self, patience: Patience) -> Result<Option<MultiLockGuard>> {
        patience.attempt(|| self.try_lock(), |bound| self.lock_within(bound))
    }

    /// Waits for all the locks with one deadline and cancel token for the whole, and a report of
    /// positions for each lock in its turn. Node data is not used: each lock writes its own.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); also [`is_timeout`](Error::is_timeout) and
    /// [`is_cancelled`](Error::is_cancelled).
    pub fn lock_with(&self, options: AcquireOptions) -> Result<MultiLockGuard> {
        let AcquireOptions { bound, .. } = options;
        self.lock_within(&bound)
    }

    fn lock_within(&self, bound: &Bound) -> Result<MultiLockGuard> {
        let mut lost_before: Option<Arc<Tenure>> = None;
        loop {
            let mut held = Held::default();
            for (_, lock) in &*self.locks {
                match lock.0.take(bound) {
                    Ok(guard) => held.0.push(guard),
                    Err(error) => {
                        held.give_up(bound);
                        return Err(error);
                    }
                }
            }
            let mut tenures = held.0.iter().map(|guard| guard.tenure());
            let Some(lost) = tenures.find(|tenure| tenure.state() == LockState::Lost) else {
                return Ok(MultiLockGuard::new(held));
            };
            let lost = Arc::clone(lost);
            // A lock that this thread also holds by another guard stays lost.
            if lost_before.is_some_and(|before| Arc::ptr_eq(&before, &lost)) {
                held.give_up(bound);
                return Err(lost.loss());
            }
            log::debug!("a lock was lost while others were waited for; taking all again");
            lost_before = Some(lost);
            held.give_up(bound);
        }
    }

    /// The paths of the locks, without their chroots, in the order in which they are taken.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(|(place, _)| place.path.as_str())
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLock")
            .field(&self.paths().collect::<Vec<_>>())
            .finish()
    }
}

/// Collects the locks of a [`MultiLock`]; made by [`MultiLock::builder`].
#[must_use]
pub struct MultiLockBuilder {
    locks: Vec<(Place, Lockable)>,
}

impl MultiLockBuilder {
    /// Adds a lock.
    pub fn with(mut self, lock: impl Into<Lockable>) -> Self {
        let lock = lock.into();
        self.locks.push((lock.0.place(), lock));
        self
    }

    /// Builds the multi-lock. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if there are no locks, or two at the same path: one would
    /// wait for the other.
    pub fn build(mut self) -> Result<MultiLock> {
        self.locks.sort_by(|(a, _), (b, _)| a.cmp(b));
        if self.locks.is_empty() {
            return Err(Error::invalid("a multi-lock needs at least one lock"));
        }
        if let Some(twice) = self.locks.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let path = &twice[0].0.path;
            return Err(Error::invalid(format!("{path} is twice in one multi-lock")));
        }
        Ok(MultiLock {
            locks: self.locks.into(),
        })
    }
}

impl fmt::Debug for MultiLockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = self.locks.iter().map(|(place, _)| &place.path);
        f.debug_list().entries(paths).finish()
    }
}

/// Guards, given back in the reverse order in which they were taken, one right after the other: what
/// ZooKeeper says of each is waited for at the end.
#[derive(Default)]
struct Held(Vec<Box<dyn Guard>>);

impl Held {
    /// Gives all back; in the background if the caller may have no time left.
    fn give_up(mut self, bound: &Bound) {
        if bound.is_none() {
            return;
        }
        while let Some(guard) = self.0.pop() {
            guard.give_up();
        }
    }

    fn send_off(&mut self) -> Vec<Departure> {
        let last_first = std::mem::take(&mut self.0).into_iter().rev();
        last_first.map(Guard::send_off).collect()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for departure in self.send_off() {
            log_release(departure.confirm());
        }
    }
}

/// Holds a [`MultiLock`]; dropping it gives all locks back, the last taken first.
///
/// It belongs to its thread. Dropping never panics, and blocks for each lock as the drop of that
/// lock's own guard does.
#[must_use = "the locks are given back as soon as the guard is dropped"]
pub struct MultiLockGuard {
    held: Held,
    own: Arc<OwnHold>,
}

impl MultiLockGuard {
    fn new(held: Held) -> Self {
        let tenures = held.0.iter().map(|guard| Arc::clone(guard.tenure()));
        let own = OwnHold::of(tenures, false);
        Self { held, own }
    }

    /// How sure this holder can be of its locks: the state of the least sure of them. Looks at the
    /// clock and at memory, and sends nothing.
    #[must_use]
    pub fn state(&self) -> LockState {
        if self.held.0.iter().any(|guard| guard.session().is_forked()) {
            return LockState::Lost;
        }
        least_sure(self.own.tenures())
    }

    /// A view of this hold for other threads. It says [`Lost`](LockState::Lost) once this guard has
    /// been given back.
    #[must_use]
    pub fn view(&self) -> HoldView {
        HoldView::of(&self.own)
    }

    /// Whether [`state`](Self::state) is [`LockState::Held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state() == LockState::Held
    }

    /// For how long from now no loss of a session can let anybody else into any of the locks; see
    /// [`MutexGuard::remaining`](crate::MutexGuard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let each = self.held.0.iter().map(|guard| {
            if guard.session().is_forked() {
                return Duration::ZERO;
            }
            guard.tenure().remaining()
        });
        each.min().unwrap_or_default()
    }

    /// Checks whether a step that takes at most `needed` may begin: `Ok` means that no loss of a
    /// session can let anybody else into any of the locks before it ends. See
    /// [`MutexGuard::ensure_for`](crate::MutexGuard::ensure_for).
    ///
    /// # Errors
    /// Those of the first lock that is not surely held for that long:
    /// [`is_lease_short`](Error::is_lease_short), or [`is_lock_lost`](Error::is_lock_lost).
    pub fn ensure_for(&self, needed: Duration) -> Result<()> {
        self.held.0.iter().try_for_each(|guard| {
            guard.session().refuse_child()?;
            guard.tenure().ensure_for(needed)
        })
    }

    /// A channel that delivers the reason when any of the locks is lost; see
    /// [`MutexGuard::lost`](crate::MutexGuard::lost).
    #[must_use]
    pub fn lost(&self) -> &Receiver<LossReason> {
        self.own.lost()
    }

    /// The fencing tokens, in the order of [`MultiLock::paths`]. `None` for a part whose holders do
    /// not exclude each other, the reading side of a lock or permits: such a token would have a
    /// store refuse others who hold as well.
    ///
    /// # Errors
    /// As [`MutexGuard::fencing_token`](crate::MutexGuard::fencing_token).
    pub fn fencing_tokens(&self) -> Result<Vec<Option<FencingToken>>> {
        let guards = self.held.0.iter();
        let exclusive = guards.map(|guard| guard.own().tenure_of_token());
        exclusive
            .map(|tenure| tenure.map(|tenure| tenure.fencing_token()).transpose())
            .collect()
    }

    /// Begins a set of writes to ZooKeeper, which the servers execute together and only if all of
    /// these locks are ours at that moment; see [`Transaction`](crate::Transaction).
    ///
    /// `commit` refuses it if the locks were taken through several clients, or if one of them is a
    /// [`SimpleMutex`].
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// # let from = zklock::Mutex::new(&client, "/locks/accounts/17")?;
    /// # let to = zklock::Mutex::new(&client, "/locks/accounts/4")?;
    /// # let both = zklock::MultiLock::builder().with(&from).with(&to).build()?;
    /// let all = both.lock()?;
    /// all.transaction()
    ///     .set("/accounts/17", "90", None)
    ///     .set("/accounts/4", "110", None)
    ///     .commit()?; // both, and only if both locks are ours at that moment
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self) -> Transaction<'_> {
        let guards = self.held.0.iter();
        Transaction::fenced_by(guards.map(|guard| guard.tenure().as_ref()).collect())
    }

    /// Gives all locks back, as dropping the guard does, and says whether that went well.
    ///
    /// # Errors
    /// The first error; the other locks are given back all the same. See
    /// [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    pub fn unlock(mut self) -> Result<()> {
        self.own.release();
        let mut result = Ok(());
        for departure in self.held.send_off() {
            result = result.and(departure.confirm());
        }
        result
    }
}

impl Drop for MultiLockGuard {
    /// The locks themselves are given back by what is dropped next.
    fn drop(&mut self) {
        self.own.release();
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self
            .held
            .0
            .iter()
            .map(|guard| guard.tenure().node())
            .collect();
        f.debug_struct("MultiLockGuard")
            .field("nodes", &nodes)
            .field("state", &self.state())
            .finish()
    }
}
