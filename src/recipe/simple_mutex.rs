//! [`SimpleMutex`]: one plain node that everybody tries to create, and its guard.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::SingleNode;
use crate::local_queue::{LocalQueue, Owned, Policy};
use crate::recipe::guard::{
    fencing_token_method, guard_traits, holding_methods, revocation_method, unlock_methods,
};
use crate::recipe::hold::Hold;
use crate::recipe::node_data::NodeData;
use crate::recipe::participant::Participant;
use crate::recipe::shown::show;
use crate::session::Session;
use crate::session::observe::observer::Label;
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};
use crate::znode::path::LockPath;

/// The unfair classic: one plain ephemeral node, and whoever creates it holds.
///
/// For peers that do just that, as many home-grown scripts do (`/exclusive_lock/lock`). Where every
/// program that takes part is your own, use [`Mutex`](crate::Mutex): it is fair, and a release
/// wakes one waiter.
///
/// # Semantics
/// - **Not fair** between processes: a release wakes all waiters, and the fastest gets the lock;
///   one that is always slower waits for ever. The threads of one process come in order.
/// - **Re-entrant** by thread, through the same `SimpleMutex` object or a clone, as
///   [`Mutex`](crate::Mutex) is.
/// - `path` is the node itself, not a folder. Its parents are created when they are missing.
/// - The node's data ends in ` id=` and a GUID. When the reply to a create is lost, the GUID tells
///   whose node it is; the name would not.
/// - **When contact or the session is lost, on panic, when the process dies**: as with
///   [`Mutex`](crate::Mutex). If somebody removes the node, its holder is told at once.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let lock = zklock::SimpleMutex::new(&client, "/exclusive_lock/lock")?;
/// let _guard = lock.lock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SimpleMutex {
    queue: Arc<Owned<LocalQueue>>,
    data: NodeData,
}

impl SimpleMutex {
    /// A lock whose node is `path`. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible.
    pub fn new(client: &Client, path: &str) -> Result<Self> {
        Self::builder(client, path).build()
    }

    /// Begins to build a lock whose node is `path`.
    pub fn builder<'a>(client: &'a Client, path: &'a str) -> SimpleMutexBuilder<'a> {
        SimpleMutexBuilder {
            client,
            path,
            reentrant: true,
            revocable: false,
            label: None,
            data: None,
        }
    }

    /// Waits until this thread holds the lock. While ZooKeeper cannot be reached it waits as long
    /// as the client's [`RetryPolicy`](crate::RetryPolicy) says. [Keep the
    /// guard](crate#keep-the-guard).
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn lock(&self) -> Result<SimpleMutexGuard> {
        self.lock_within(&WaitLimits::none(), &self.data)
    }

    /// Takes the lock if nobody holds it; otherwise returns `None` and writes nothing to ZooKeeper.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let lock = zklock::SimpleMutex::new(&client, "/exclusive_lock/lock")?;
    /// let Some(_guard) = lock.try_lock()? else {
    ///     for holder in lock.participants()? {
    ///         println!("busy: {holder}"); // or whatever a script wrote into the node
    ///     }
    ///     return Ok(());
    /// };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub fn try_lock(&self) -> Result<Option<SimpleMutexGuard>> {
        self.try_within(&self.data)
    }

    fn try_within(&self, data: &NodeData) -> Result<Option<SimpleMutexGuard>> {
        let held = self.queue.try_acquire(|| data.now())?;
        Ok(held.then(|| SimpleMutexGuard(Hold::new(&self.queue))))
    }

    /// Waits for the lock for at most `timeout`; returns `None` when the time is over, even when
    /// ZooKeeper is silent. A zero timeout means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<SimpleMutexGuard>> {
        self.attempt(TryOrWait::during(timeout))
    }

    /// Waits for the lock until `deadline`; returns `None` when it has passed. A deadline in the
    /// past means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<SimpleMutexGuard>> {
        self.attempt(TryOrWait::until(deadline))
    }

    fn attempt(&self, try_or_wait: TryOrWait) -> Result<Option<SimpleMutexGuard>> {
        let wait = |limits: &WaitLimits| self.lock_within(limits, &self.data);
        try_or_wait.attempt(|| self.try_lock(), wait)
    }

    #[inline]
    fn lock_within(&self, limits: &WaitLimits, data: &NodeData) -> Result<SimpleMutexGuard> {
        self.queue.acquire(limits, || data.now())?;
        Ok(SimpleMutexGuard(Hold::new(&self.queue)))
    }

    /// As a part of a call that waits.
    pub(super) fn take(&self, limits: &WaitLimits) -> Result<SimpleMutexGuard> {
        self.lock_within(limits, &self.data)
    }

    /// Waits for the lock with a deadline, a cancel token, node data or a report of positions for
    /// this one time. An error when the deadline passes.
    ///
    /// # Errors
    /// As [`Mutex::lock_with`](crate::Mutex::lock_with).
    pub fn lock_with(&self, options: AcquireOptions) -> Result<SimpleMutexGuard> {
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

    /// Whether the calling thread holds this lock. Looks at this object only.
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

    /// The holder; nobody can know who waits. A snapshot, at the cost of one request.
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock).
    pub fn participants(&self) -> Result<Vec<Participant>> {
        let own: Vec<_> = self.queue.own_node().into_iter().collect();
        Ok(Participant::all(self.queue.participants()?, &own, &[]))
    }

    /// Asks the holder to give the lock back, and returns whether the node was still there; see
    /// [`Mutex::revoke`](crate::Mutex::revoke).
    ///
    /// # Errors
    /// As [`Mutex::revoke`](crate::Mutex::revoke).
    pub fn revoke(&self, participant: &Participant) -> Result<bool> {
        self.queue.revoke(participant.path())
    }

    /// Deletes the node by force, whoever holds the lock by now, and returns whether it was still
    /// there; see [`Mutex::break_lock`](crate::Mutex::break_lock).
    ///
    /// The next holder's node has the same path and the same version, and no check of the server's
    /// can tell the two apart. So a holder that releases at the very moment at which its lock is
    /// broken can delete the next holder's node, who is then told of the loss.
    ///
    /// # Errors
    /// As [`Mutex::revoke`](crate::Mutex::revoke).
    pub fn break_lock(&self, participant: &Participant) -> Result<bool> {
        self.queue.break_lock(participant.path())
    }

    /// The path of the node, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.queue.path().as_str()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.queue.session()
    }
}

impl fmt::Debug for SimpleMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, "SimpleMutex", self.path(), self.session(), |shown| {
            shown
                .field("label", &self.queue.label())
                .field("here", &self.queue.debug_state());
        })
    }
}

/// Settings of a [`SimpleMutex`]; made by [`SimpleMutex::builder`].
#[derive(Debug)]
#[must_use]
pub struct SimpleMutexBuilder<'a> {
    client: &'a Client,
    path: &'a str,
    reentrant: bool,
    revocable: bool,
    label: Label,
    data: Option<Vec<u8>>,
}

impl SimpleMutexBuilder<'_> {
    /// Whether others may ask for the lock back; see
    /// [`MutexBuilder::revocable`](crate::MutexBuilder::revocable). Defaults to no.
    pub fn revocable(mut self, revocable: bool) -> Self {
        self.revocable = revocable;
        self
    }

    /// Whether the thread that holds the lock can lock it again; see
    /// [`MutexBuilder::reentrant`](crate::MutexBuilder::reentrant). Defaults to yes.
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = reentrant;
        self
    }

    /// The name under which the client's [`Observer`](crate::Observer) hears of this lock; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to none.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// What the node holds for others to read, before its id. Defaults to who we are: host, process
    /// id, thread and time.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Builds the lock. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path or a setting is not possible;
    /// [`is_forked`](Error::is_forked).
    pub fn build(self) -> Result<SimpleMutex> {
        self.client.session().refuse_child()?;
        let path = LockPath::parse(self.path).map_err(Error::invalid)?;
        let data = NodeData::checked(&path, self.data)?;
        let node = SingleNode::new(self.client.session(), path);
        let policy = Policy {
            // Waiters leave no node, so nobody would ever be known to wait.
            hand_off: false,
            reentrant: self.reentrant,
            revocable: self.revocable,
            label: self.label,
            ..Policy::default()
        };
        Ok(SimpleMutex {
            queue: Owned::new(LocalQueue::new(node, policy), self.client.keep()),
            data,
        })
    }
}

/// Holds a [`SimpleMutex`]; dropping it gives the lock back.
///
/// It belongs to its thread. Dropping never panics, and blocks for at most about a sixth of the
/// session timeout; see [`MutexGuard`](crate::MutexGuard).
#[clippy::has_significant_drop]
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct SimpleMutexGuard(Hold<LocalQueue>);

impl SimpleMutexGuard {
    holding_methods!();
    fencing_token_method!();
    revocation_method!();

    unlock_methods!();
}

guard_traits!(SimpleMutexGuard, "SimpleMutexGuard");
