//! [`MultiLock`]: several locks as one.

use crate::session::observe::say;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::error::{Error, Result};
use crate::global_queue::{PendingRelease, ReleaseMode};
use crate::recipe::guard::log_release;
use crate::recipe::hold::{OwnHold, least_sure};
use crate::recipe::lockable::{Guard, LockOrder, Lockable};
use crate::recipe::together::Parts;
use crate::recipe::transaction::Transaction;
use crate::recipe::view::HoldView;
use crate::session::observe::observer::{Label, Miss, Way};
use crate::session::{LossReason, Session};
use crate::sync;
use crate::tenure::{LockState, Tenure};
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};
use crate::znode::fencing::FencingToken;

/// Several locks, taken as one: all or none.
///
/// # Semantics
/// - **In a canonical order**: the order of their paths (with chroot), whatever order they were
///   given in; in one folder, that of their names. Locks of one path in several ensembles go by the
///   servers that their clients name: name those of one ensemble in the same way everywhere. So two `MultiLock`s over the same locks, in whatever process, never wait for each
///   other in a circle, nor for those who take the locks one by one in that order. They are given
///   back in reverse.
/// - **At once, if they are free**: mutexes and sides of read-write locks of one client are asked
///   for in one transaction. If somebody is ahead at one of them, this waits there with its node,
///   holds those before it, and has taken back its nodes at those after it. Each other part is
///   taken by itself, in its turn.
/// - **One deadline** for the whole. When it is over, or anything fails, what was taken is given
///   back.
/// - **If one is lost** during the wait for the others, all are given back and the whole begins
///   again.
/// - **Re-entrant** where its parts are.
/// - A thread that already holds one of the locks on its own, and then takes a `MultiLock` with
///   that one and smaller paths, breaks the order and can wait in a circle: take all at once.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
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
    parts: Arc<Parts>,
    label: Label,
}

impl MultiLock {
    /// Begins to build a multi-lock; add each lock by [`with`](MultiLockBuilder::with).
    pub fn builder() -> MultiLockBuilder {
        MultiLockBuilder {
            locks: Vec::new(),
            label: None,
        }
    }

    /// Waits until this thread holds all the locks: for one after the other, in their order.
    ///
    /// # Errors
    /// Those of the parts' `lock`. Nothing is held then.
    pub fn lock(&self) -> Result<MultiLockGuard> {
        self.lock_within(&WaitLimits::none())
    }

    /// Takes all the locks if all are free; otherwise returns `None`. Waits for ZooKeeper's answers
    /// and for nothing else.
    ///
    /// If all can be asked for at once, it looks at all of them first, and writes nothing to
    /// ZooKeeper when somebody is there. Otherwise it tries one after the other, and gives back what
    /// it took.
    ///
    /// # Errors
    /// Those of the parts' `try_lock`.
    pub fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        let began = self.begin_to_tell();
        match self.try_to_take_all() {
            Ok(Some(held)) => Ok(Some(self.guard(held, began))),
            Ok(None) => {
                self.tell_missed(began, Miss::Busy);
                Ok(None)
            }
            Err(error) => {
                self.tell_missed(began, Miss::of(&error));
                Err(error)
            }
        }
    }

    fn try_to_take_all(&self) -> Result<Option<HeldParts>> {
        let mut held = HeldParts::default();
        if let Some(all) = self.parts.try_all(&mut held.0)? {
            return Ok(all.then_some(held));
        }
        for (_, lock) in self.parts.iter() {
            match lock.0.try_take()? {
                Some(guard) => held.0.push(guard),
                None => return Ok(None),
            }
        }
        Ok(Some(held))
    }

    /// Waits for all the locks for at most `timeout` in all; returns `None` when the time is over,
    /// and gives back what it took. A zero timeout means [`try_lock`](Self::try_lock).
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
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
        self.attempt(TryOrWait::during(timeout))
    }

    /// Waits for all the locks until `deadline`; returns `None` when it has passed, and gives back
    /// what it took. A deadline in the past means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<MultiLockGuard>> {
        self.attempt(TryOrWait::until(deadline))
    }

    fn attempt(&self, try_or_wait: TryOrWait) -> Result<Option<MultiLockGuard>> {
        try_or_wait.attempt(|| self.try_lock(), |limits| self.lock_within(limits))
    }

    /// Waits for all the locks with one deadline and cancel token for the whole, and a report of
    /// positions for each lock in its turn. Node data is not used: each lock writes its own.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); also [`is_timeout`](Error::is_timeout) and
    /// [`is_cancelled`](Error::is_cancelled).
    pub fn lock_with(&self, options: AcquireOptions) -> Result<MultiLockGuard> {
        let (try_or_wait, _) = options.begin()?;
        let first = self.paths().next().unwrap_or_default();
        try_or_wait.insist(first, || self.try_lock(), |limits| self.lock_within(limits))
    }

    fn lock_within(&self, limits: &WaitLimits) -> Result<MultiLockGuard> {
        let began = self.begin_to_tell();
        match self.take_all(limits) {
            Ok(held) => Ok(self.guard(held, began)),
            Err(error) => {
                self.tell_missed(began, Miss::of(&error));
                Err(error)
            }
        }
    }

    fn take_all(&self, limits: &WaitLimits) -> Result<HeldParts> {
        let mut lost_before: Option<Arc<Tenure>> = None;
        loop {
            let mut held = HeldParts::default();
            if let Err(error) = self.parts.take_all(limits, &mut held.0) {
                held.give_up(limits);
                return Err(error);
            }
            let mut tenures = held.0.iter().map(|guard| guard.tenure());
            let Some(lost) = tenures.find(|tenure| tenure.state() == LockState::Lost) else {
                drop(tenures);
                return Ok(held);
            };
            let lost = Arc::clone(lost);
            // A lock that this thread also holds by another guard stays lost.
            if lost_before.is_some_and(|before| Arc::ptr_eq(&before, &lost)) {
                held.give_up(limits);
                return Err(lost.loss());
            }
            say!(
                lost.session(),
                Debug,
                "a lock was lost while others were waited for; taking all again"
            );
            lost_before = Some(lost);
            held.give_up(limits);
        }
    }

    // ---- what is told of the whole, if it has a name ----

    /// Whose observers hear of the whole.
    fn session(&self) -> &Arc<Session> {
        self.parts.session()
    }

    /// The time, if anybody wants to hear of this call.
    fn begin_to_tell(&self) -> Option<Instant> {
        (self.label.is_some() && self.session().observation().is_on()).then(sync::now)
    }

    fn tell_missed(&self, began: Option<Instant>, why: Miss) {
        if let Some(began) = began {
            let waited = sync::now().saturating_duration_since(began);
            let observation = self.session().observation();
            observation.missed_whole(&self.label, waited, why);
        }
    }

    fn guard(&self, held: HeldParts, began: Option<Instant>) -> MultiLockGuard {
        let tenures = held.0.iter().map(|guard| Arc::clone(guard.tenure()));
        let own = OwnHold::of(tenures, false);
        let whole = began.map(|began| {
            let (session, since) = (Arc::clone(self.session()), sync::now());
            let waited = since.saturating_duration_since(began);
            session
                .observation()
                .acquired(&self.label, waited, Way::Parts);
            let label = self.label.clone();
            Whole {
                session,
                label,
                since,
            }
        });
        MultiLockGuard { held, own, whole }
    }

    /// The paths of the locks, without their chroots, in the order in which they are taken.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(order, _)| order.path.as_str())
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks: Vec<_> = self.parts.iter().map(|(_, lock)| lock).collect();
        f.debug_struct("MultiLock")
            .field("label", &self.label)
            .field("locks", &locks)
            .finish()
    }
}

/// Collects the locks of a [`MultiLock`]; made by [`MultiLock::builder`].
#[must_use]
pub struct MultiLockBuilder {
    locks: Vec<(LockOrder, Lockable)>,
    label: Label,
}

impl MultiLockBuilder {
    /// Adds a lock.
    pub fn with(mut self, lock: impl Into<Lockable>) -> Self {
        let lock = lock.into();
        self.locks.push((lock.0.order(), lock));
        self
    }

    /// What an [`Observer`](crate::Observer) is told that the whole is called. Defaults to nothing:
    /// then only its parts are reported.
    ///
    /// With it, each attempt to acquire the whole, and each release, is reported beside
    /// the reports of the parts: how long it took for all of them together. It is the observers of
    /// the client of the first of [`paths`](MultiLock::paths) that hear it.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Builds the multi-lock. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if there are no locks, or two at the same path and of the
    /// same [name](crate::MutexBuilder::name): one would wait for the other.
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
            parts: Arc::new(Parts::new(self.locks)),
            label: self.label,
        })
    }
}

impl fmt::Debug for MultiLockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.locks.iter().map(|(order, _)| &order.path).collect();
        f.debug_struct("MultiLockBuilder")
            .field("label", &self.label)
            .field("paths", &paths)
            .finish()
    }
}

/// Guards, given back in the reverse order in which they were taken, one right after the other: what
/// ZooKeeper says of each is waited for at the end.
#[derive(Default)]
struct HeldParts(Vec<Box<dyn Guard>>);

impl HeldParts {
    /// Gives all back; in the background if the caller may have no time left.
    fn give_up(mut self, limits: &WaitLimits) {
        if !limits.is_none() {
            drop(self.start_release(ReleaseMode::Background));
        }
    }

    /// The guards stay until what this returns has been confirmed: with the last handle of a
    /// client its session goes, and an answer that comes after that is none.
    fn start_release(&mut self, mode: ReleaseMode) -> Vec<PendingRelease> {
        let last_first = self.0.iter_mut().rev();
        last_first.map(|guard| guard.start_release(mode)).collect()
    }
}

impl Drop for HeldParts {
    fn drop(&mut self) {
        let Some(guard) = self.0.first() else {
            return;
        };
        // Not by its tenure: a permit that was sent off before has none.
        let session = Arc::clone(guard.session());
        for release in self.start_release(ReleaseMode::Foreground) {
            log_release(&session, release.confirm());
        }
    }
}

/// Holds a [`MultiLock`]; dropping it gives all locks back, the last taken first.
///
/// It belongs to its thread. Dropping never panics, and blocks for each lock as the drop of that
/// lock's own guard does.
#[clippy::has_significant_drop]
#[must_use = "the locks are given back as soon as the guard is dropped"]
pub struct MultiLockGuard {
    held: HeldParts,
    own: Arc<OwnHold>,
    /// If the whole is told of, until it was told that it was given back.
    whole: Option<Whole>,
}

/// A hold of the whole, as it is told of.
struct Whole {
    session: Arc<Session>,
    label: Label,
    since: Instant,
}

impl MultiLockGuard {
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

    /// Stepping down: from now on every view of this hold says [`Lost`](LockState::Lost), and the
    /// locks stay ours until this guard is dropped; see
    /// [`MutexGuard::retire`](crate::MutexGuard::retire).
    pub fn retire(&self) {
        self.own.release();
    }

    /// Whether [`state`](Self::state) is [`LockState::Held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state() == LockState::Held
    }

    /// How long all of the locks are certainly ours, counted from now; see
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

    /// Checks whether a step that takes at most `needed` may begin: `Ok` means that all of
    /// the locks are certainly ours until it ends. See
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
    /// store refuse others who hold as well. ZooKeeper is asked once for each that did not come with
    /// the answer to the acquire, as when several locks were taken at once.
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
    /// [`SimpleMutex`](crate::SimpleMutex).
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let from = zklock::Mutex::new(&client, "/locks/accounts/17")?;
    /// # let to = zklock::Mutex::new(&client, "/locks/accounts/4")?;
    /// # let both = zklock::MultiLock::builder().with(&from).with(&to).build()?;
    /// let all = both.lock()?;
    /// # all.transaction().put("/accounts/17", "100").put("/accounts/4", "100").commit()?;
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
        // What is kept or entered again is given back without a word of ZooKeeper's.
        let mut result = self.held.0.iter().try_for_each(|guard| {
            guard.session().refuse_child()?;
            guard.tenure().refuse_lost()
        });
        self.give_back(|each| {
            if result.is_ok() {
                result = each;
            }
        });
        result
    }

    /// Gives all back, the last taken first, and hands over how each of that went.
    fn give_back(&mut self, mut each: impl FnMut(Result<()>)) {
        self.own.release();
        let whole = self.whole.take();
        // Before the tenures end, which were there for longer.
        let whole = whole.map(|whole| {
            let held_for = sync::now().saturating_duration_since(whole.since);
            (whole, held_for)
        });
        let mut confirmed = true;
        for release in self.held.start_release(ReleaseMode::Foreground) {
            let given_back = release.confirm();
            confirmed &= given_back.is_ok();
            each(given_back);
        }
        if let Some((whole, held_for)) = whole {
            let observation = whole.session.observation();
            observation.released(&whole.label, held_for, confirmed);
        }
    }
}

impl Drop for MultiLockGuard {
    fn drop(&mut self) {
        let session = Arc::clone(self.own.session());
        self.give_back(|released| log_release(&session, released));
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenures = self.own.tenures().iter();
        let nodes: Vec<_> = tenures.map(|tenure| tenure.node()).collect();
        f.debug_struct("MultiLockGuard")
            .field("nodes", &nodes)
            .field("state", &self.state())
            .finish()
    }
}
