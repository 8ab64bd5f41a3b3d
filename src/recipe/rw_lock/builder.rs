//! [`RwLockBuilder`]: the settings of a [`RwLock`].

use std::sync::Arc;
use std::time::Duration;

use super::RwLock;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::{GlobalQueue, WaitStrategy};
use crate::local_queue::{LocalQueue, Owned, Policy, SharedQueue};
use crate::recipe::node_data::NodeData;
use crate::znode::label::RwLabels;
use crate::znode::names::{Class, Dialect, Grammar};
use crate::znode::path::LockPath;

/// Settings of a [`RwLock`]; made by [`RwLock::builder`].
#[derive(Debug)]
#[must_use]
pub struct RwLockBuilder<'a> {
    client: &'a Client,
    path: &'a str,
    dialect: Dialect,
    labels: Option<(String, String)>,
    strategy: WaitStrategy,
    policy: Policy,
    reentrant: bool,
    data: Option<Vec<u8>>,
}

impl<'a> RwLockBuilder<'a> {
    pub(super) fn new(client: &'a Client, path: &'a str) -> Self {
        Self {
            client,
            path,
            dialect: Dialect::default(),
            labels: None,
            strategy: WaitStrategy::default(),
            policy: Policy::default(),
            reentrant: true,
            data: None,
        }
    }

    /// Whose node names to use. Defaults to Curator's. All programs that share a folder must agree.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Queues with a read-write recipe of your own, which tells readers from writers by a label in
    /// front of the number, whatever comes before the label: `[host]-R-0000000001` and
    /// `[host]-W-0000000002` have the labels `-R-` and `-W-`. Takes the place of the
    /// [`dialect`](Self::dialect).
    ///
    /// Our own nodes are named `<32 hex digits><label><10 digits>`, so the other programs must
    /// accept any prefix, too. They must order by the number; their readers must wait for the
    /// writers ahead, and their writers for everybody ahead. Every node whose name ends in a label
    /// and a number counts as a contender. A [downgrade](crate::RwWriteGuard::downgrade) makes a reader's
    /// node with the writer's number.
    ///
    /// A label has 2 to 128 bytes, contains no `/`, and ends in one `-` or `_`, which separates it
    /// from the number. Neither label may end in the other. [`build`](Self::build) checks this.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let catalogue = zklock::RwLock::builder(&client, "/locks/catalogue")
    ///     .node_labels("-R-", "-W-")
    ///     .build()?;
    /// let reading = catalogue.read()?; // ...-R-0000000001
    /// # drop(reading);
    /// # Ok(())
    /// # }
    /// ```
    pub fn node_labels(mut self, read: impl Into<String>, write: impl Into<String>) -> Self {
        self.labels = Some((read.into(), write.into()));
        self
    }

    /// The former name of [`node_labels`](Self::node_labels), one letter from that of the
    /// [`label`](Self::label) that observers hear.
    #[doc(hidden)]
    #[deprecated(note = "renamed to `node_labels`")]
    pub fn labels(self, read: impl Into<String>, write: impl Into<String>) -> Self {
        self.node_labels(read, write)
    }

    /// How to wait for those ahead. Defaults to [`WaitStrategy::PredecessorWatch`].
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Whether writing threads of this process hand the lock to each other without asking
    /// ZooKeeper; see [`MutexBuilder::local_hand_off`](crate::MutexBuilder::local_hand_off).
    /// Defaults to yes. A waiting reader ends it, even one of this process.
    pub fn local_hand_off(mut self, on: bool) -> Self {
        self.policy.hand_off = on;
        self
    }

    /// How long this process keeps the write lock when none of its threads wants it; see
    /// [`MutexBuilder::linger`](crate::MutexBuilder::linger). Defaults to zero: not at all. A
    /// reader ends it, even one of this process. Of the readers, see
    /// [`read_linger`](Self::read_linger).
    pub fn linger(mut self, linger: Duration) -> Self {
        self.policy.linger = linger;
        self
    }

    /// How long this process keeps its place among the readers when its last reading thread has
    /// left, so that reading again is a local operation. Defaults to zero: not at all. For locks
    /// that are read often and seldom written.
    ///
    /// A writer ends it, and no reader overtakes a writer whom this process has heard of:
    ///
    /// - A writer of this process, through the same `RwLock` or a clone, has the node deleted before
    ///   it queues.
    /// - Any other writer waits, beyond the readers who are inside, for one watch event to reach this
    ///   process, one list (the event does not tell writers from readers) and one delete. Until the
    ///   event is there, readers go on joining, as they join those who are inside. A server that is
    ///   late with the event delays the writer by as much; when contact is lost, nobody joins, and
    ///   with the next contact the place is given up.
    /// - A [`try_write`](RwLock::try_write) queues for up to 200 ms to find out.
    ///
    /// [`RwLock::release_idle`], dropping the `RwLock` and closing the client end it, too. While it
    /// is kept, the client proves its session by writes, as it does for any lock that is held.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let catalogue = zklock::RwLock::builder(&client, "/locks/catalogue")
    ///     .read_linger(std::time::Duration::from_secs(5))
    ///     .build()?;
    /// for _ in 0..1_000 {
    ///     let _reading = catalogue.read()?; // asks ZooKeeper the first time, and after writers
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_linger(mut self, linger: Duration) -> Self {
        self.policy.read_linger = linger;
        self
    }

    /// For how long the write lock goes on changing hands inside this process once others wait; see
    /// [`MutexBuilder::max_tenure`](crate::MutexBuilder::max_tenure).
    pub fn max_tenure(mut self, most: Duration) -> Self {
        self.policy.max_tenure = Some(most);
        self
    }

    /// How many more times the write lock changes hands inside this process once others wait;
    /// see [`MutexBuilder::max_handoffs`](crate::MutexBuilder::max_handoffs).
    pub fn max_handoffs(mut self, most: u32) -> Self {
        self.policy.max_handoffs = Some(most);
        self
    }

    /// Whether others may ask for the lock back; see
    /// [`MutexBuilder::revocable`](crate::MutexBuilder::revocable). Defaults to no. Once somebody
    /// has asked, no other thread joins the readers who are inside.
    pub fn revocable(mut self, revocable: bool) -> Self {
        self.policy.revocable = revocable;
        self
    }

    /// Whether a thread that reads or writes can do so again, and a thread that writes can also
    /// read. Defaults to yes. With `false` it gets an error at once, by every verb, whose
    /// [`is_would_deadlock`](Error::is_would_deadlock) is true; see
    /// [`MutexBuilder::reentrant`](crate::MutexBuilder::reentrant) for when to want that.
    /// [`downgrade`](crate::RwWriteGuard::downgrade) works all the same.
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = reentrant;
        self
    }

    /// The name under which the client's [`Observer`](crate::Observer) hears of this lock; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to none.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.policy.label = Some(label.into());
        self
    }

    /// What the contenders' nodes hold for others to read. Defaults to who we are: host, process
    /// id, thread and time.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Builds the lock. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path or a setting is not possible, or two
    /// settings contradict each other; [`is_forked`](Error::is_forked).
    pub fn build(self) -> Result<RwLock> {
        self.client.session().refuse_child()?;
        let folder = LockPath::parse(self.path).map_err(Error::invalid)?;
        self.policy.check(&folder, self.strategy)?;
        let data = NodeData::checked(&folder, self.data)?;
        let grammar = match self.labels {
            Some((read, write)) => Grammar::rw_labelled(RwLabels::new(read, write)?),
            None => Grammar::rw(self.dialect),
        };
        let queue = |class| {
            GlobalQueue::new(
                self.client.session(),
                folder.clone(),
                grammar.clone(),
                class,
                self.strategy,
                match class {
                    Class::Read => !self.policy.read_linger.is_zero(),
                    _ => !self.policy.linger.is_zero(),
                },
            )
        };
        Ok(RwLock {
            readers: Owned::new(
                SharedQueue::new(queue(Class::Read), self.policy.clone()),
                self.client.keep(),
            ),
            reentrant: self.reentrant,
            writers: Owned::new(
                LocalQueue::new(queue(Class::Write), self.policy),
                self.client.keep(),
            ),
            data,
        })
    }
}
