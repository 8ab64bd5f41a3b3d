//! Permits, and the lock in front of them: what [`Semaphore`](crate::Semaphore) and
//! [`SemaphoreMutex`](crate::SemaphoreMutex) are both made of.

use crate::session::observe::say;
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::{
    AcquireRequest, GlobalQueue, Limit, PendingRelease, PermitFolder, QueuedNode, ReleaseMode,
    WaitStrategy,
};
use crate::local_queue::{LocalQueue, Owned, Policy};
use crate::recipe::guard::log_release;
use crate::recipe::hold::OwnHold;
use crate::recipe::node_data::NodeData;
use crate::recipe::participant::Participant;
use crate::recipe::shown::show;
use crate::session::observe::observer::{Label, Miss, Way};
use crate::session::{Session, Waiter};
use crate::sync;
use crate::tenure::Tenure;
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};
use crate::znode::identity::Identity;
use crate::znode::names::{Class, Dialect, Grammar};
use crate::znode::path::{LockPath, split};

/// Permits, and the lock in front of them.
pub(super) struct PermitPool {
    queue: Arc<Owned<LocalQueue>>,
    permits: PermitFolder,
    home: LockPath,
    data: NodeData,
    label: Label,
}

/// Gives the lock in front of the permits back, also on unwinding.
struct InFront<'a> {
    queue: &'a LocalQueue,
    limits: &'a WaitLimits,
}

impl Drop for InFront<'_> {
    fn drop(&mut self) {
        // Nobody relies on its end.
        let mode = ReleaseMode::of_caller(self.limits);
        drop(self.queue.start_release(mode));
    }
}

impl PermitPool {
    pub(crate) fn new(
        settings: Settings<'_>,
        limit: impl FnOnce(&LockPath) -> Limit,
    ) -> Result<Arc<Self>> {
        settings.client.session().refuse_child()?;
        let home = LockPath::parse(settings.path).map_err(Error::invalid)?;
        settings.policy.check(&home, settings.strategy)?;
        let data = NodeData::checked(&home, settings.data)?;
        let dialect = settings.dialect;
        let (locks, leases) = match dialect {
            Dialect::Curator => (home.child("locks"), home.child("leases")),
            Dialect::Kazoo => (format!("{home}-__lock__"), home.as_str().to_owned()),
        };
        let parse = |path: &str| LockPath::parse(path).map_err(Error::invalid);
        let session = settings.client.session();
        let locks = GlobalQueue::new(
            session,
            parse(&locks)?,
            Grammar::mutex(dialect, None),
            Class::Exclusive,
            settings.strategy,
            !settings.policy.linger.is_zero(),
        );
        let limit = limit(&home);
        let mut policy = settings.policy;
        policy.is_part = true;
        let label = policy.label.clone();
        let permits = PermitFolder::new(session, parse(&leases)?, Grammar::lease(dialect), limit);
        Ok(Arc::new(Self {
            queue: Owned::new(LocalQueue::new(locks, policy), settings.client.keep()),
            permits,
            home,
            data,
            label,
        }))
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.permits.session()
    }

    /// Takes the lock in front, creates the permits, and waits until they fit.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        count: usize,
        limits: &WaitLimits,
        data: &NodeData,
    ) -> Result<HeldPermits> {
        let began = sync::now();
        let observation = self.session().observation();
        let _waits = observation.waits();
        let waited = || sync::now().saturating_duration_since(began);
        match self.take_in_turn(count, limits, data) {
            Ok(tenure) => Ok(self.lease(tenure, waited())),
            Err(error) => {
                observation.failed(&self.label, waited(), &error);
                Err(error)
            }
        }
    }

    fn take_in_turn(
        &self,
        count: usize,
        limits: &WaitLimits,
        data: &NodeData,
    ) -> Result<Arc<Tenure>> {
        loop {
            self.queue.acquire(limits, || data.now())?;
            let in_front = InFront {
                queue: &self.queue,
                limits,
            };
            let waiter = Waiter::new(self.session(), limits);
            let told = Cell::new(false);
            let behind = || {
                if !told.replace(true) {
                    self.session().observation().queued(&self.label);
                }
            };
            let request = AcquireRequest {
                count,
                behind: &behind,
                reporter: limits.reporter.as_deref(),
                ..AcquireRequest::plain(data.now())
            };
            let first = self.queue.tenure();
            match self.permits.acquire(&waiter, &request, &first) {
                Ok(tenure) => return Ok(tenure),
                // The lock in front was lost: another may count now.
                Err(error) if error.is_lock_lost() => {
                    say!(
                        self.session(),
                        Debug,
                        "{}: queueing again: {error}",
                        self.home
                    );
                    drop(in_front);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes nothing if there is nothing to be had.
    pub(crate) fn try_acquire(self: &Arc<Self>, count: usize) -> Result<Option<HeldPermits>> {
        self.try_within(count, &self.data)
    }

    fn try_within(self: &Arc<Self>, count: usize, data: &NodeData) -> Result<Option<HeldPermits>> {
        let began = sync::now();
        let observation = self.session().observation();
        let waited = || sync::now().saturating_duration_since(began);
        match self.try_to_take(count, data) {
            Ok(Some(tenure)) => Ok(Some(self.lease(tenure, waited()))),
            Ok(None) => {
                observation.missed(&self.label, waited(), Miss::Busy);
                Ok(None)
            }
            Err(error) => {
                observation.failed(&self.label, waited(), &error);
                Err(error)
            }
        }
    }

    fn try_to_take(&self, count: usize, data: &NodeData) -> Result<Option<Arc<Tenure>>> {
        if !self.permits.has_free(count)? || !self.queue.try_acquire(|| data.now())? {
            return Ok(None);
        }
        let limits = WaitLimits::none();
        let _in_front = InFront {
            queue: &self.queue,
            limits: &limits,
        };
        let waiter = Waiter::new(self.session(), &limits);
        let request = AcquireRequest {
            count,
            ..AcquireRequest::plain(data.now())
        };
        self.permits.try_acquire(&waiter, &request)
    }

    fn lease(self: &Arc<Self>, tenure: Arc<Tenure>, waited: Duration) -> HeldPermits {
        tenure.tell_as(&self.label);
        let observation = self.session().observation();
        observation.acquired(&self.label, waited, Way::Asked);
        HeldPermits {
            held_since: observation.is_on().then(sync::now),
            pool: Arc::clone(self),
            tenure: Some(tenure),
            own: OnceLock::new(),
        }
    }

    /// The holders, in the order of their leases' numbers, and then the waiters, in order. The one
    /// at the head of the queue may have a lease that does not fit yet.
    pub(crate) fn participants(&self) -> Result<Vec<Participant>> {
        let max = self.limit_now()?;
        // First those who wait: whose lease comes later is not taken for one that does not fit.
        let mut waiters = self.queue.participants()?;
        for waiter in &mut waiters {
            waiter.holds = false;
        }
        let mut holders = self.permits.participants()?;
        let tenures = self.session().own_nodes();
        say_who_holds(&mut holders, waiters.first(), max, &tenures);
        holders.extend(waiters);
        let mut own = self.session().own_nodes();
        own.extend(self.queue.own_node());
        let idle = self.queue.idle_node();
        Ok(Participant::all(holders, &own, idle.as_slice()))
    }

    /// How many leases there are now.
    pub(crate) fn taken(&self) -> Result<u32> {
        self.permits.taken()
    }

    pub(crate) fn limit_now(&self) -> Result<u32> {
        self.permits.limit_now()
    }

    pub(crate) fn change_limit(&self, max: u32) -> Result<()> {
        self.permits.change_limit(max)
    }

    pub(crate) fn break_lock(&self, participant: &Participant) -> Result<bool> {
        let path = participant.path();
        let (folder, _) = split(path);
        // The one in front is the one that waits.
        if folder == self.queue.path().as_str() {
            self.queue.break_lock(path)
        } else {
            self.permits.break_lock(path)
        }
    }

    pub(crate) fn path(&self) -> &str {
        self.home.as_str()
    }

    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>, recipe: &str) -> fmt::Result {
        show(f, recipe, self.path(), self.session(), |shown| {
            let mut permits = self.session().own_nodes();
            permits.retain(|node| split(node).0 == self.permits.path());
            shown
                .field("label", &self.label)
                .field("permits_here", &permits)
                .field("in_front", &self.queue.debug_state());
        })
    }

    pub(crate) fn attempt(
        self: &Arc<Self>,
        count: usize,
        try_or_wait: TryOrWait,
    ) -> Result<Option<HeldPermits>> {
        let wait = |limits: &WaitLimits| self.acquire(count, limits, &self.data);
        try_or_wait.attempt(|| self.try_acquire(count), wait)
    }

    pub(super) fn acquire_with(
        self: &Arc<Self>,
        count: usize,
        options: AcquireOptions,
    ) -> Result<HeldPermits> {
        let (try_or_wait, data) = options
            .begin()
            .map_err(|error| error.context(self.path()))?;
        let data = self.data.or(&self.home, data)?;
        try_or_wait.insist(
            self.path(),
            || self.try_within(count, &data),
            |limits| self.acquire(count, limits, &data),
        )
    }

    /// As a part of a call that waits.
    pub(crate) fn take(self: &Arc<Self>, count: usize, limits: &WaitLimits) -> Result<HeldPermits> {
        self.acquire(count, limits, &self.data)
    }

    pub(super) fn acquire_plainly(self: &Arc<Self>, count: usize) -> Result<HeldPermits> {
        self.take(count, &WaitLimits::none())
    }
}

/// Of leases, says which are held and which wait, and puts them in the order of their creation.
///
/// Only the one in front, `first`, can have leases that wait: its newest, made after it came to the
/// front. Of our own session we know which are held (`tenures`). Of another, those wait that do not
/// fit, and those of the same acquire, which hold the same identity. A maximum that was lowered
/// makes nobody a waiter.
fn say_who_holds(
    leases: &mut [QueuedNode],
    first: Option<&QueuedNode>,
    max: u32,
    tenures: &[String],
) {
    leases.sort_by_key(|lease| lease.stat.czxid);
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let over = leases.len().saturating_sub(max);
    let mut waiting = 0;
    let mut newest: Option<Vec<u8>> = None;
    for lease in leases.iter_mut().rev() {
        let of_first = first.is_some_and(|first| {
            first.stat.ephemeral_owner == lease.stat.ephemeral_owner
                && first.stat.czxid < lease.stat.czxid
        });
        if lease.ours {
            lease.holds = tenures.contains(&lease.path);
        } else if of_first && over > 0 {
            let of_same_acquire = newest.get_or_insert_with(|| lease.data.clone()) == &lease.data
                && Identity::parse(&lease.data).is_some();
            lease.holds = !(waiting < over || of_same_acquire);
        } else {
            lease.holds = true;
        }
        waiting += usize::from(!lease.holds);
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
pub(super) struct HeldPermits {
    pool: Arc<PermitPool>,
    /// Empty once released.
    tenure: Option<Arc<Tenure>>,
    own: OnceLock<Arc<OwnHold>>,
    /// If somebody observes.
    held_since: Option<Instant>,
}

impl HeldPermits {
    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        self.tenure.as_ref().expect("not released yet")
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.pool.session()
    }

    pub(crate) fn own(&self) -> &Arc<OwnHold> {
        let is_exclusive = self.pool.permits.admits_one();
        let of_this = || OwnHold::of([Arc::clone(self.tenure())], is_exclusive);
        self.own.get_or_init(of_this)
    }

    /// What is to be released, once.
    fn let_go(&mut self) -> Option<Arc<Tenure>> {
        let tenure = self.tenure.take()?;
        if let Some(own) = self.own.get() {
            own.release();
        }
        Some(tenure)
    }

    /// As dropping them, but says whether that went well. The pool stays until then: with it the
    /// last handle of the client could go, and the session before the answer.
    pub(crate) fn unlock(mut self) -> Result<()> {
        self.start_release(ReleaseMode::Foreground).confirm()
    }

    /// Gives them back, and does not wait for ZooKeeper to confirm it: in neither mode for anything.
    pub(crate) fn start_release(&mut self, _: ReleaseMode) -> PendingRelease {
        let tenure = self.let_go();
        tenure.map_or_else(
            || PendingRelease::over(Ok(())),
            |tenure| self.give_back(&tenure),
        )
    }

    fn give_back(&self, tenure: &Arc<Tenure>) -> PendingRelease {
        // Before the tenure ends, which was there for longer.
        let held_for = self
            .held_since
            .map(|since| sync::now().saturating_duration_since(since));
        let release = self.pool.permits.start_release(tenure);
        release.tell_released(self.session(), &self.pool.label, held_for)
    }
}

impl Drop for HeldPermits {
    fn drop(&mut self) {
        if let Some(tenure) = self.let_go() {
            let released = self.give_back(&tenure).confirm();
            log_release(self.session(), released);
        }
    }
}
