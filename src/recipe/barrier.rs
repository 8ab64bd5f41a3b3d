//! [`Barrier`]: a gate that one party closes, and that all others wait for.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zklock_protocol::WatchKind;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::make_node;
use crate::recipe::node_data::NodeData;
use crate::recipe::shown::show;
use crate::session::{Contact, Session, Step, Waiter, Wake, Watch, found, gone};
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};
use crate::znode::path::LockPath;

/// A gate for all processes that use the same path: closed while the node at that path exists.
///
/// # Semantics
/// - [`set`](Self::set) closes it, [`remove`](Self::remove) opens it. Anybody can do either, any
///   number of times. When it is opened, all waiters go on, and so do later callers.
/// - The node is persistent: the gate stays closed when the process that closed it dies.
/// - A waiter keeps waiting over broken connections and lost sessions. It also goes on if the gate
///   was opened and closed again meanwhile.
///
/// It has the layout of Curator's `DistributedBarrier` and kazoo's `Barrier`.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let maintenance = zklock::Barrier::new(&client, "/gates/maintenance")?;
/// maintenance.wait()?; // at once if the gate is open
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Barrier {
    client: Client,
    path: LockPath,
}

impl Barrier {
    /// A barrier at `path`. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible.
    pub fn new(client: &Client, path: &str) -> Result<Self> {
        Ok(Self {
            client: client.clone(),
            path: LockPath::parse(path).map_err(Error::invalid)?,
        })
    }

    /// Closes the gate if it is open. The node says who did it.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn set(&self) -> Result<()> {
        let data = NodeData::default().now();
        self.retry(&WaitLimits::none(), |contact| {
            make_node(contact, self.path(), &data)?;
            Ok(Some(()))
        })
    }

    /// Opens the gate if it is closed.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let maintenance = zklock::Barrier::new(&client, "/gates/maintenance")?;
    /// maintenance.set()?; // stays closed if we die half-way
    /// println!("migrating");
    /// maintenance.remove()?; // all who wait go on
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn remove(&self) -> Result<()> {
        self.retry(&WaitLimits::none(), |contact| {
            gone(contact.delete(self.path(), None))?;
            Ok(Some(()))
        })
    }

    /// Whether the gate is closed.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn is_set(&self) -> Result<bool> {
        self.retry(&WaitLimits::none(), |contact| {
            Ok(Some(contact.stat(self.path())?.is_some()))
        })
    }

    /// Waits until the gate is open. While ZooKeeper cannot be reached it waits as long as the
    /// client's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn wait(&self) -> Result<()> {
        self.wait_within(&WaitLimits::none())
    }

    /// Waits for at most `timeout` until the gate is open. Returns whether it is; with a zero
    /// timeout after one look.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let maintenance = zklock::Barrier::new(&client, "/gates/maintenance")?;
    /// while !maintenance.wait_for(std::time::Duration::from_secs(60))? {
    ///     println!("still in maintenance");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&self, timeout: Duration) -> Result<bool> {
        self.attempt(TryOrWait::during(timeout))
    }

    /// Waits until the gate is open, but not beyond `deadline`. Returns whether it is open; with a
    /// deadline in the past after one look.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(&self, deadline: Instant) -> Result<bool> {
        self.attempt(TryOrWait::until(deadline))
    }

    fn attempt(&self, try_or_wait: TryOrWait) -> Result<bool> {
        let open = try_or_wait.attempt(|| self.look(), |limits| self.wait_within(limits))?;
        Ok(open.is_some())
    }

    /// Whether the gate is open now.
    fn look(&self) -> Result<Option<()>> {
        let contact = self.session().contact();
        match contact.and_then(|contact| contact.stat(self.path())) {
            Ok(stat) => Ok(stat.is_none().then_some(())),
            Err(error) => Err(error.into_error(self.session().target(), self.path())),
        }
    }

    /// Waits until the gate is open, with a deadline or a cancel token. Data and positions are
    /// ignored: a waiter has no node, and there is no queue.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); also [`is_timeout`](Error::is_timeout) and
    /// [`is_cancelled`](Error::is_cancelled).
    pub fn wait_with(&self, options: AcquireOptions) -> Result<()> {
        let (try_or_wait, _) = options
            .begin()
            .map_err(|error| error.context(self.path()))?;
        try_or_wait.insist(
            self.path(),
            || self.look(),
            |limits| self.wait_within(limits),
        )
    }

    fn wait_within(&self, limits: &WaitLimits) -> Result<()> {
        // The node for which we wait: one that was made after it says that the gate was open.
        let mut closed_by: Option<i64> = None;
        let mut watching = None;
        self.retry(limits, |contact| {
            let wake = Wake::Signal(Arc::clone(contact.signal()));
            let watch = Watch::new(contact, self.path(), WatchKind::DATA, Some(wake));
            let watch = watching.insert(watch);
            let Some((_, stat)) = found(contact.watch_data(watch))? else {
                return Ok(Some(()));
            };
            if *closed_by.get_or_insert(stat.czxid) != stat.czxid {
                return Ok(Some(()));
            }
            contact.sleep_until_any(&[watch])?;
            Ok(None)
        })
    }

    /// The path, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_str()
    }

    fn session(&self) -> &Arc<Session> {
        self.client.session()
    }

    fn retry<T>(
        &self,
        limits: &WaitLimits,
        step: impl FnMut(&Contact<'_>) -> Step<Option<T>>,
    ) -> Result<T> {
        let waiter = Waiter::new(self.session(), limits);
        waiter.retry(self.path(), step)
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, "Barrier", self.path(), self.session(), |_| {})
    }
}
