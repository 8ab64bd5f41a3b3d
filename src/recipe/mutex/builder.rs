//! [`MutexBuilder`]: the settings of a [`Mutex`].

use std::sync::Arc;
use std::time::Duration;

use super::Mutex;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::{GlobalQueue, WaitStrategy};
use crate::local_queue::{LocalQueue, Owned, Policy};
use crate::recipe::node_data::NodeData;
use crate::znode::label::LockName;
use crate::znode::names::{Class, Dialect, Grammar};
use crate::znode::path::LockPath;

/// Settings of a [`Mutex`]; made by [`Mutex::builder`].
#[derive(Debug)]
#[must_use]
pub struct MutexBuilder<'a> {
    client: &'a Client,
    path: &'a str,
    dialect: Dialect,
    name: Option<LockName>,
    strategy: WaitStrategy,
    policy: Policy,
    data: Option<Vec<u8>>,
}

impl<'a> MutexBuilder<'a> {
    pub(super) fn new(client: &'a Client, path: &'a str) -> Self {
        Self {
            client,
            path,
            dialect: Dialect::default(),
            name: None,
            strategy: WaitStrategy::default(),
            policy: Policy::default(),
            data: None,
        }
    }

    /// Whose node names to use. Defaults to Curator's. All programs that share a folder must agree.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// The part of the node names that belongs to this lock, so that several locks can share one
    /// folder: children of other names are ignored. Defaults to the dialect's (`lock-` or
    /// `__lock__`).
    pub fn name(mut self, name: LockName) -> Self {
        self.name = Some(name);
        self
    }

    /// How to wait for those ahead. Defaults to [`WaitStrategy::PredecessorWatch`].
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Whether threads of this process hand the lock to each other without asking ZooKeeper, as
    /// long as no other process is known to wait. Defaults to yes.
    ///
    /// Once this process knows that another one waits, it gives the lock away at the next release,
    /// or as [`max_handoffs`](Self::max_handoffs) and [`max_tenure`](Self::max_tenure) allow. So by
    /// default a newcomer that is known here waits for at most one section of ours. Detection takes
    /// one watch event: usually well under a millisecond, some milliseconds when all processors are
    /// busy with short sections.
    pub fn local_hand_off(mut self, on: bool) -> Self {
        self.policy.hand_off = on;
        self
    }

    /// How many more times the lock changes hands inside this process once another process is known
    /// to wait. Defaults to 0, or to no limit if [`max_tenure`](Self::max_tenure) is set.
    ///
    /// A larger number gives this process more throughput and others longer waits: with `n`,
    /// another process that is known to wait waits for at most `n + 1` sections of ours.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// // While others wait: up to 65 sections of this process in a row, for up to about a second.
    /// let lock = zklock::Mutex::builder(&client, "/locks/counter")
    ///     .max_handoffs(64)
    ///     .max_tenure(std::time::Duration::from_secs(1))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_handoffs(mut self, most: u32) -> Self {
        self.policy.max_handoffs = Some(most);
        self
    }

    /// For how long the lock goes on changing hands inside this process once another process is
    /// known to wait. Defaults to no limit of time; [`max_handoffs`](Self::max_handoffs) still
    /// counts. The section that runs when the time is over is not cut short.
    pub fn max_tenure(mut self, most: Duration) -> Self {
        self.policy.max_tenure = Some(most);
        self
    }

    /// How long this process keeps the lock when none of its threads wants it, so that taking it
    /// again is a local operation. Defaults to zero: not at all.
    ///
    /// When another process queues, an idle lock is given up at once: the newcomer waits for one
    /// watch event and one delete. So it is refused beside [`WaitStrategy::Polling`]. [`Mutex::release_idle`], dropping the `Mutex` and closing the
    /// client give it up, too.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let lock = zklock::Mutex::builder(&client, "/locks/cursor")
    ///     .linger(std::time::Duration::from_secs(5))
    ///     .build()?;
    /// for _ in 0..1_000 {
    ///     let _guard = lock.lock()?; // asks ZooKeeper the first time, and after others
    /// }
    /// lock.release_idle()?; // done for now: let others in without a wait
    /// # Ok(())
    /// # }
    /// ```
    pub fn linger(mut self, linger: Duration) -> Self {
        self.policy.linger = linger;
        self
    }

    /// Whether others may ask for the lock back (see [`MutexGuard::revocation`](crate::MutexGuard::revocation)). Defaults to no.
    ///
    /// Costs one read in the background for each acquire that goes to ZooKeeper. Once somebody has
    /// asked, the lock is neither handed to another thread of this process nor kept idle.
    pub fn revocable(mut self, revocable: bool) -> Self {
        self.policy.revocable = revocable;
        self
    }

    /// Whether the thread that holds the lock can lock it again. Defaults to yes. With `false`, that
    /// thread gets an error at once, by every verb, whose
    /// [`is_would_deadlock`](Error::is_would_deadlock) is true.
    ///
    /// A hold belongs to a thread, and re-entry cannot tell a nested call from other work that
    /// happens to run on the same thread while it holds. Thread pools and executors do that: in
    /// rayon, a thread that waits in `join` or `scope` takes up other jobs; on an executor of one
    /// thread, a task that awaits while it holds lets the others run. Use `false` where sections run
    /// on such threads, and let the refused work try again later: to wait there would stop the very
    /// thread that is to give the lock back.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let lock = zklock::Mutex::builder(&client, "/locks/counter").reentrant(false).build()?;
    /// let _guard = lock.lock()?;
    /// let refused = lock.lock().expect_err("this thread is inside");
    /// assert!(refused.is_would_deadlock());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.policy.reentrant = reentrant;
        self
    }

    /// The name under which the client's [`Observer`](crate::Observer) hears of this lock. Defaults
    /// to none: a path may name a customer, and there may be millions of paths.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.policy.label = Some(label.into());
        self
    }

    /// What the contender's node holds for others to read. Defaults to who we are: host, process
    /// id, thread and time (see [`Identity`](crate::Identity)).
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Builds the lock. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path or a setting is not possible, or two
    /// settings contradict each other; [`is_forked`](Error::is_forked).
    pub fn build(self) -> Result<Mutex> {
        self.client.session().refuse_child()?;
        let folder = LockPath::parse(self.path).map_err(Error::invalid)?;
        self.policy.check(&folder, self.strategy)?;
        let data = NodeData::checked(&folder, self.data)?;
        let queue = GlobalQueue::new(
            self.client.session(),
            folder,
            Grammar::mutex(self.dialect, self.name),
            Class::Exclusive,
            self.strategy,
            !self.policy.linger.is_zero(),
        );
        Ok(Mutex {
            queue: Owned::new(LocalQueue::new(queue, self.policy), self.client.keep()),
            data,
        })
    }
}
