//! [`Client`]: one connection and one session, shared by the locks of a process.

mod builder;
mod config;
#[cfg(feature = "zookeeper")]
mod crate_handle;
pub(crate) mod folders;
mod look;

pub use self::builder::ClientBuilder;
pub use self::config::{AuthConfig, ClientConfig, SaslConfig, TlsConfig};
#[cfg(feature = "zookeeper")]
pub use self::crate_handle::ZooKeeperHandle;
pub use self::look::Node;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::error::{Error, Result};
#[cfg(feature = "zookeeper")]
use crate::link::Link;
use crate::session::{
    CLOSE_BOUND, ConnectionEvent, ConnectionState, Session, Stats, Waiter, found,
};
use crate::wait::limits::WaitLimits;

/// A connection to ZooKeeper, shared by every lock of a process.
///
/// Cheap to clone; all clones and all locks made with them share one session. Dropping the last of
/// them closes the session, within 2 s. Safe to use from any number of threads.
///
/// # Through trouble
/// The client keeps its session across broken connections, restarted servers and failovers for as
/// long as the servers keep it. It declares the session lost by its own clock, before the servers
/// can have expired it: no later than 31/32 of the negotiated timeout after a moment at which the
/// ensemble's *leader* provably knew of it (docs/lease.md has the argument). So a holder that is
/// cut off learns of it when 42 to 51 % of the timeout have passed, and a session survives silent
/// trouble of up to about a quarter of the timeout.
///
/// When the session is lost, every held lock is lost with it (see
/// [`MutexGuard::lost`](crate::MutexGuard::lost)). The client begins a new session by itself, and
/// threads that wait for a lock queue again within their deadlines.
///
/// # Threads
/// Two for each client, and at most four. `zklock-clock` and `zklock-down` always run.
/// `zklock-chores` starts with the first lock that is acquired. `zklock-aside` calls the
/// [`observer`](ClientBuilder::observer) and the logger, if there are any. Beside these, each
/// [`SharedCount::changes`] has a thread, and so has each host name while the system looks it up, as
/// nothing can interrupt that.
///
/// [`SharedCount::changes`]: crate::SharedCount::changes
///
/// # Fork
/// A client does not work in a forked child: every call returns an error whose
/// [`is_forked`](Error::is_forked) is true. Connect a new client there.
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// let client = zklock::Client::connect("zk1:2181,zk2:2181,zk3:2181/jobs")?;
/// let lock = zklock::Mutex::new(&client, "/nightly")?;
/// let _guard = lock.lock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

struct Handle {
    session: Arc<Session>,
    #[cfg(feature = "zookeeper")]
    link: std::sync::OnceLock<Arc<Link>>,
    #[cfg(feature = "zookeeper")]
    of_the_crate: self::crate_handle::LastHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.session.close(CLOSE_BOUND);
    }
}

impl Client {
    /// Connects with the defaults, and returns once it has a session.
    ///
    /// `servers` is ZooKeeper's connect string: `host:port,host:port/chroot`. The port defaults to
    /// 2181, IPv6 addresses are written in brackets, and with a chroot every path is below it.
    ///
    /// # Errors
    /// See [`ClientBuilder::connect`].
    pub fn connect(servers: &str) -> Result<Self> {
        Self::builder(servers).connect()
    }

    /// Connects with settings from the environment, and returns once it has a session.
    ///
    /// | variable | what it says |
    /// |---|---|
    /// | `ZK_CONNECT` | the servers, `host:port,host:port/chroot`; must be set |
    /// | `ZK_SESSION_TIMEOUT_MS` | [`ClientBuilder::session_timeout`] |
    /// | `ZK_CONNECT_TIMEOUT_MS` | [`ClientBuilder::connect_timeout`] |
    /// | `ZK_TICK_TIME_MS` | [`ClientBuilder::tick_time`] |
    /// | `ZK_AUTH` | credentials, as `digest:user:password` |
    /// | `ZK_AUTH_FILE` | a file of credentials, see [`AuthConfig::read`](crate::AuthConfig::read) |
    /// | `ZK_SASL_USER`, `ZK_SASL_PASSWORD` | an account of SASL DIGEST-MD5 (feature `sasl`) |
    /// | `ZK_SASL_PASSWORD_FILE` | a file that has the password |
    /// | `ZK_ACL` | `open` (the default) or `creator-all` |
    /// | `ZK_TLS_CA` | TLS with servers whose CA is in this PEM file (feature `tls`) |
    /// | `ZK_TLS` | `yes`: TLS also without `ZK_TLS_CA`, with the CAs of the system; `no`: none |
    /// | `ZK_TLS_CERTIFICATE`, `ZK_TLS_KEY` | a client certificate and its key, PEM files |
    /// | `ZK_TLS_SERVER_NAME` | what the servers' certificates are made out to, if not to their hosts |
    ///
    /// An empty variable counts as not set. To change or add settings, start from
    /// [`ClientConfig::from_env`](crate::ClientConfig::from_env).
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if `ZK_CONNECT` is missing, a file of credentials cannot be
    /// read, or a variable makes no sense or asks for a feature that was not compiled in; otherwise as [`ClientBuilder::connect`].
    pub fn from_env() -> Result<Self> {
        config::ClientConfig::from_env()?.builder()?.connect()
    }

    /// Begins to build a client for `servers`; see [`Client::connect`].
    pub fn builder(servers: &str) -> ClientBuilder {
        ClientBuilder::new(servers)
    }

    /// The state of the connection now. Looks at memory and sends nothing.
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        self.session().state()
    }

    /// The session timeout that the servers granted, the smallest if they differ; `None` while
    /// there is no session.
    #[must_use]
    pub fn session_timeout(&self) -> Option<Duration> {
        self.session().epoch().map(|epoch| epoch.lease().timeout())
    }

    /// The number of the present session; `None` while there is none.
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.session().epoch().map(|epoch| epoch.session_id())
    }

    /// A receiver of every change of the connection from now on.
    ///
    /// Each call makes a receiver of its own. It keeps up to 1,024 unread events and leaves out
    /// those that come after. It disconnects when the client is closed, and at once in a forked
    /// child. Make one and keep it: one that was dropped takes a little memory until the next event.
    #[must_use]
    pub fn events(&self) -> Receiver<ConnectionEvent> {
        self.session().subscribe()
    }

    /// Counts of what this client and its locks have done so far, and how many they hold now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.session().stats()
    }

    /// Removes the folders of locks that nobody uses any more, in the whole tree below `root` (not
    /// `root` itself). Returns how many were removed.
    ///
    /// Safe while others use the locks: the server deletes a folder only if it is empty at that
    /// moment, and the next acquire makes it again. It removes only folders that this library made,
    /// and none of locks in kazoo's dialect, because kazoo makes a folder once and never again. It
    /// keeps every node that never had children (such as a closed [`Barrier`](crate::Barrier)),
    /// that has data, or that this client may not delete.
    ///
    /// Costs two or three requests for each node in the tree.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible; otherwise as
    /// [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub fn remove_empty_lock_folders(&self, root: &str) -> Result<usize> {
        let root = crate::znode::path::LockPath::parse(root).map_err(Error::invalid)?;
        crate::client::folders::remove_unused_below(self.session(), root.as_str())
    }

    /// The names of a node's children, in no order; `None` if there is no such node. A snapshot,
    /// for tools that look around; `/` is the root.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible; otherwise as
    /// [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let servers = server.connect_string();
    /// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
    /// for name in client.children("/locks")?.unwrap_or_default() {
    ///     println!("/locks/{name}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn children(&self, path: &str) -> Result<Option<Vec<String>>> {
        look::children(self.session(), path)
    }

    /// A node's data and the session that it belongs to; `None` if there is no such node. For
    /// tools: it leads from a participant's path to the session that the servers' logs and `cons`
    /// show.
    ///
    /// # Errors
    /// As [`children`](Self::children).
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let servers = server.connect_string();
    /// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
    /// for one in zklock::Mutex::new(&client, "/locks/nightly")?.participants()? {
    ///     if let Some(session) = client.node(one.path())?.and_then(|node| node.session_id()) {
    ///         println!("{one}, session 0x{session:x}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn node(&self, path: &str) -> Result<Option<Node>> {
        look::node(self.session(), path)
    }

    /// The folders that [`remove_empty_lock_folders`](Self::remove_empty_lock_folders) would remove
    /// now, in that order. Removes nothing.
    ///
    /// # Errors
    /// As [`remove_empty_lock_folders`](Self::remove_empty_lock_folders).
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let servers = server.connect_string();
    /// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
    /// let unused = client.empty_lock_folders("/locks")?;
    /// println!("removing {unused:?}");
    /// client.remove_empty_lock_folders("/locks")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn empty_lock_folders(&self, root: &str) -> Result<Vec<String>> {
        let root = crate::znode::path::LockPath::parse(root).map_err(Error::invalid)?;
        crate::client::folders::unused_below(self.session(), root.as_str())
    }

    /// The data of a node and its version, for the steps of a [`Transaction`](crate::Transaction);
    /// `None` if there is no such node.
    ///
    /// The answer is at least as new as every write that any client got an answer to before, and as
    /// our own writes whose answers were lost: the server first catches up with its leader. That
    /// costs no write, but a round trip to the leader.
    ///
    /// While ZooKeeper cannot be reached it waits as long as the client's
    /// [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// if let Some((data, version)) = client.read("/ledger/balance")? {
    ///     println!("version {version}: {}", String::from_utf8_lossy(&data));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible; otherwise as
    /// [`Mutex::lock`](crate::Mutex::lock).
    pub fn read(&self, path: &str) -> Result<Option<(Vec<u8>, i32)>> {
        crate::znode::path::check_any(path).map_err(Error::invalid)?;
        let limits = WaitLimits::none();
        let waiter = Waiter::new(self.session(), &limits);
        let read = waiter.retry(path, |contact| found(contact.newest_data(path)).map(Some))?;
        Ok(read.map(|(data, stat)| (data, stat.version)))
    }

    /// A handle of the `zookeeper` crate on the session on which this client's locks live, for nodes
    /// of your own: progress beside a lock, settings, members. See [`ZooKeeperHandle`].
    ///
    /// Made at the first call, which opens a port of the loopback interface for a moment; later calls
    /// give the same handle for as long as somebody has it and its session lives. It keeps the
    /// session open, as a lock does. While ZooKeeper cannot be reached this waits as long as the
    /// client's [`RetryPolicy`](crate::RetryPolicy) says. Locks need nothing of it, and no call of theirs
    /// goes through it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// use zklock::zookeeper::{Acl, CreateMode};
    ///
    /// let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// let _guard = lock.lock()?;
    /// // Goes when the lock does: with the session.
    /// let zookeeper = client.zookeeper()?;
    /// let acl = Acl::open_unsafe().clone();
    /// zookeeper.create("/running", b"nightly".to_vec(), acl, CreateMode::Ephemeral)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_connection_loss`](Error::is_connection_loss) if there is no session in that time, no
    /// port can be opened, or the crate does not come to it; [`is_closed`](Error::is_closed) after
    /// [`close`](Self::close).
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper(&self) -> Result<ZooKeeperHandle> {
        self.session().refuse_child()?;
        let limits = WaitLimits::none();
        let waiter = Waiter::new(self.session(), &limits);
        let epoch = Arc::clone(waiter.contact(0)?.epoch());
        let link = self.handle.link.get();
        let link = link.expect("set before there is a contact");
        self.handle.of_the_crate.on(link, &epoch, self)
    }

    /// Ends the session now, for all clones.
    ///
    /// Every lock that is held through this client is lost, and the servers remove its nodes. Every
    /// thread that waits, and every later call, gets an error whose [`is_closed`](Error::is_closed)
    /// is true. Returns within 2 s, even when no server answers. Closing again does nothing.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// let waiter = std::thread::spawn(move || match lock.lock() {
    ///     Err(error) if error.is_closed() => println!("the program ends"),
    ///     other => drop(other),
    /// });
    /// client.close();
    /// waiter.join().expect("no panic");
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(&self) {
        self.session().close(CLOSE_BOUND);
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.handle.session
    }

    /// Keeps the session open for as long as it lives.
    pub(crate) fn keep(&self) -> Box<dyn std::any::Any + Send + Sync> {
        Box::new(self.clone())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("session", self.session())
            .field("session_timeout", &self.session_timeout())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
