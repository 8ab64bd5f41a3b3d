//! [`Client`] and its builder: one connection and one session, shared by the locks of a process.

mod config;
#[cfg(feature = "zookeeper")]
mod crate_handle;
pub(crate) mod folders;
mod look;

pub use self::config::{AuthConfig, ClientConfig, SaslConfig, TlsConfig};
#[cfg(feature = "zookeeper")]
pub use self::crate_handle::ZooKeeperHandle;
pub use self::look::Node;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::error::{Error, Result};
use crate::link::{
    AuthInfo, Backoff, Clock, ConnectString, LONGEST_WAIT, Link, LinkConfig, Login, Tls,
};
use crate::session::Stats;
use crate::session::acl::Acl;
use crate::session::backend::Refusal;
use crate::session::connection::{ConnectionEvent, ConnectionState};
use crate::session::observe::observer::Observer;
use crate::session::retry::RetryPolicy;
use crate::session::site::Site;
use crate::session::zk::ToSession;
use crate::session::{CLOSE_BOUND, CallError, Contact, Session, Step, Waiter, found};
use crate::wait::bound::{Bound, deadline_after};

/// Longer than any session timeout: what is reckoned from it must not overflow.
const LONGEST_TICK: Duration = Duration::from_secs(24 * 60 * 60);

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
        ClientBuilder {
            servers: servers.to_owned(),
            session_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(15),
            retry: RetryPolicy::new(),
            auth: Vec::new(),
            acl: Acl::open(),
            create_chroot: false,
            tick: None,
            probe_by_sync: false,
            tls: None,
            login: None,
            observers: Vec::new(),
        }
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
    /// While ZooKeeper cannot be reached it waits as long as the client's [`RetryPolicy`] says.
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
        let bound = Bound::none();
        let waiter = Waiter::new(self.session(), &bound);
        let read = waiter.persist(path, |contact| found(contact.newest_data(path)).map(Some))?;
        Ok(read.map(|(data, stat)| (data, stat.version)))
    }

    /// A handle of the `zookeeper` crate on the session on which this client's locks live, for nodes
    /// of your own: progress beside a lock, settings, members. See [`ZooKeeperHandle`].
    ///
    /// Made at the first call, which opens a port of the loopback interface for a moment; later calls
    /// give the same handle for as long as somebody has it and its session lives. It keeps the
    /// session open, as a lock does. While ZooKeeper cannot be reached this waits as long as the
    /// client's [`RetryPolicy`] says. Locks need nothing of it, and no call of theirs goes through it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use zklock::zookeeper::{Acl, CreateMode};
    ///
    /// let client = zklock::Client::connect("localhost:2181")?;
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
        let bound = Bound::none();
        let waiter = Waiter::new(self.session(), &bound);
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

/// Settings of a [`Client`]; made by [`Client::builder`].
///
/// ```no_run
/// use std::time::Duration;
/// use zklock::{Acl, Client};
///
/// # fn main() -> zklock::Result<()> {
/// let client = Client::builder("zk1,zk2,zk3")
///     .session_timeout(Duration::from_secs(20))
///     .auth("digest", "batch:secret")
///     .acl(Acl::creator_all())
///     .connect()?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct ClientBuilder {
    servers: String,
    session_timeout: Duration,
    connect_timeout: Duration,
    retry: RetryPolicy,
    auth: Vec<AuthInfo>,
    acl: Acl,
    create_chroot: bool,
    tick: Option<Duration>,
    probe_by_sync: bool,
    tls: Option<Tls>,
    login: Option<Login>,
    observers: Vec<Box<dyn Observer>>,
}

impl ClientBuilder {
    /// The session timeout to ask for. Defaults to 10 s; 1 ms to a day.
    ///
    /// The server keeps it within its own limits, by default 2 to 20 of its ticks; see
    /// [`Client::session_timeout`]. A process that dies without closing keeps its locks for this
    /// long; a holder that is out of contact for this long has lost them.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How long [`connect`](Self::connect) waits for the first session. Defaults to 15 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How often to dial while there is no connection, and how long calls wait for one. Defaults to
    /// [`RetryPolicy::new`].
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Adds credentials, such as `("digest", "user:password")`. They are presented on every
    /// connection before anything else, and never logged. Defaults to none.
    pub fn auth(mut self, scheme: impl Into<String>, credentials: impl Into<Vec<u8>>) -> Self {
        self.auth.push(AuthInfo {
            scheme: scheme.into(),
            bytes: credentials.into(),
        });
        self
    }

    /// Logs in to an account of the servers by SASL DIGEST-MD5, on every connection before anything
    /// else. The account is this client's identity in the scheme `sasl`. The password is never
    /// logged and never sent; without TLS, whoever reads the traffic can try guesses against it.
    ///
    /// Kerberos (GSSAPI) is not supported.
    #[cfg(feature = "sasl")]
    pub fn sasl_digest_md5(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some(Login {
            user: user.into(),
            password: password.into(),
        });
        self
    }

    /// Who may touch the nodes that are made through this client. Defaults to [`Acl::open`]. Lists of
    /// the `zookeeper` crate are taken, too (feature `zookeeper`).
    pub fn acl(mut self, acl: impl Into<Acl>) -> Self {
        self.acl = acl.into();
        self
    }

    /// Whether to create the chroot of the connect string if it is missing. Defaults to no: a
    /// missing chroot is more often a typing error than a new installation.
    pub fn create_chroot(mut self, create: bool) -> Self {
        self.create_chroot = create;
        self
    }

    /// The `tickTime` of the servers, from their configuration. Not known by default.
    ///
    /// The tick says how often a leader hears of the sessions on its followers. Where it is known
    /// and short beside the session timeout, a lock is sure for longer at a time
    /// ([`MutexGuard::remaining`](crate::MutexGuard::remaining)), and sessions survive longer
    /// trouble. **Never give less than the true tick**: with a tick that is too short, a holder
    /// whose server has lost its leader may hear of its loss too late.
    ///
    /// Where it is not known, the session timeout must be two ticks at least, or a holder may hear
    /// of its loss too late in the same way. Servers grant no less unless their `minSessionTimeout`
    /// was lowered; a granted timeout below 4 s, two ticks of the usual 2 s, is logged as a warning.
    /// With a known tick any timeout is sound.
    pub fn tick_time(mut self, tick: Duration) -> Self {
        self.tick = Some(tick);
        self
    }

    /// Whether to prove that the session is alive by requests that write nothing, even while
    /// something is held. Defaults to no.
    ///
    /// While something is held (one lock or thousands), the client has the servers commit a
    /// transaction that changes nothing, about 11 times in each session timeout if it writes
    /// nothing else. Only a committed write proves that the server's leader still leads. With
    /// `true` the client sends `sync` instead, as idle clients do; this is for ensembles whose log
    /// has no room for the writes. A leader that was cut off, while the others have elected a new
    /// one, is then believed until it notices (`syncLimit` ticks), and two can hold for that long.
    pub fn probe_by_sync(mut self, by_sync: bool) -> Self {
        self.probe_by_sync = by_sync;
        self
    }

    /// Speaks TLS with every server, and never without. Defaults to plain TCP.
    ///
    /// When TLS fails with one server, the next one is tried; the error of
    /// [`connect`](Self::connect) names each server and what went wrong there.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Adds an [`Observer`] that hears what the client and its locks do. Defaults to none.
    ///
    /// Several hear each event one after the other, in the order in which they were added, on one
    /// thread: one that blocks holds up the others. An observer that owns a handle of this client
    /// keeps the session open: call [`Client::close`].
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Connects, and returns once it has a session.
    ///
    /// All addresses of all hosts are tried in random order, so a dead, silent or unknown host
    /// among good ones costs seconds at most.
    ///
    /// # Errors
    /// - [`is_invalid`](Error::is_invalid): the connect string or a setting is not possible.
    /// - [`is_connection_loss`](Error::is_connection_loss): no session within the connect
    ///   timeout; the text has a reason for each server.
    /// - [`is_no_auth`](Error::is_no_auth): the credentials were refused.
    /// - any other: the chroot does not exist, or could not be created.
    pub fn connect(self) -> Result<Client> {
        let to: ConnectString = self.servers.parse().map_err(Error::invalid)?;
        if self.session_timeout < Duration::from_millis(1)
            || self.session_timeout > Duration::from_secs(24 * 60 * 60)
        {
            let asked = self.session_timeout;
            return Err(Error::invalid(format!(
                "a session timeout of {asked:?}; it must be from 1 ms to a day"
            )));
        }
        if let Some(tick) = self.tick
            && (tick.is_zero() || tick > LONGEST_TICK)
        {
            return Err(Error::invalid(format!(
                "a tickTime of {tick:?}; it must be above zero, and a day at the most"
            )));
        }
        if let Some(tls) = &self.tls {
            tls.check().map_err(Error::invalid)?;
        }
        let chroot = to.chroot.clone().unwrap_or_default();
        let site = Site::new(chroot.clone(), &self.acl);
        let (servers, retry) = (self.servers.clone(), self.retry.clone());
        let session = Session::new(servers, retry, self.observers, site);
        // From here on the session is closed when this function fails.
        let client = Client {
            handle: Arc::new(Handle {
                session: Arc::clone(&session),
                #[cfg(feature = "zookeeper")]
                link: std::sync::OnceLock::new(),
                #[cfg(feature = "zookeeper")]
                of_the_crate: Default::default(),
            }),
        };
        let hosts: Vec<String> = to.hosts.iter().map(ToString::to_string).collect();
        let config = LinkConfig {
            hosts: to.hosts,
            session_timeout: self.session_timeout,
            auth: self.auth,
            backoff: Backoff {
                initial: self.retry.initial,
                max: self.retry.max,
            },
            chroot,
            tick: self.tick,
            probe_by_sync: self.probe_by_sync,
            longest_wait: LONGEST_WAIT,
            clock: Clock::default(),
            tls: self.tls,
            login: self.login,
        };
        let observer = Arc::new(ToSession {
            session: Arc::downgrade(&session),
        });
        let link = Arc::new(Link::new(config, observer));
        session.attach(link.clone());
        #[cfg(feature = "zookeeper")]
        let _ = client.handle.link.set(Arc::clone(&link));
        link.start()
            .map_err(|error| Error::connect_failed("the client's threads").source(error))?;
        let bound = Bound::until(deadline_after(self.connect_timeout));
        let waiter = Waiter::new(&session, &bound);
        waiter.contact(0).map_err(|error| {
            if error.is_timeout() || error.is_connection_loss() {
                let (within, why) = (self.connect_timeout, session.trouble_with_each(&hosts));
                Error::connect_failed(format!("{} within {within:?}: {why}", self.servers))
            } else {
                error
            }
        })?;
        if let Some(chroot) = &to.chroot {
            find_chroot(&waiter, chroot, self.create_chroot, &self.servers)?;
        }
        Ok(client)
    }
}

/// Makes sure that the chroot exists.
fn find_chroot(waiter: &Waiter<'_>, chroot: &str, create: bool, servers: &str) -> Result<()> {
    let refused = |refusal: Refusal| {
        let context = format!("{servers}: chroot {chroot}");
        CallError::Left(match refusal {
            Refusal::NoAuth => Error::no_auth().context(context),
            refusal => Error::refused(context).source(refusal),
        })
    };
    waiter.persist(servers, |contact| {
        // A server that lags may show none where there is one: then it is found to exist.
        let found = match contact.stat("/") {
            Ok(None) if create => make_root(contact, chroot).map(|()| true),
            seen => seen.map(|stat| stat.is_some()),
        };
        match found {
            Ok(true) => Ok(Some(())),
            Ok(false) => Err(CallError::Left(Error::refused(format!(
                "{servers}: the chroot {chroot} does not exist; \
                 create it, or build the client with create_chroot(true)"
            )))),
            Err(CallError::Refused(refusal)) => Err(refused(refusal)),
            Err(error) => Err(error),
        }
    })
}

/// Creates the chroot and the nodes above it, as far as they are missing.
fn make_root(contact: &Contact<'_>, chroot: &str) -> Step<()> {
    let ends = chroot.match_indices('/').map(|(at, _)| at).skip(1);
    for end in ends.chain([chroot.len()]) {
        match contact.create_above(&chroot[..end]) {
            Ok(()) | Err(CallError::Refused(Refusal::NodeExists)) => {}
            // A folder above may exist although its ACL keeps us out.
            Err(CallError::Refused(Refusal::NoAuth)) if end < chroot.len() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `auth` and `login` keep their secrets by themselves.
        f.debug_struct("ClientBuilder")
            .field("servers", &self.servers)
            .field("session_timeout", &self.session_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("retry", &self.retry)
            .field("auth", &self.auth)
            .field("acl", &self.acl)
            .field("create_chroot", &self.create_chroot)
            .field("tls", &self.tls)
            .field("login", &self.login)
            .field("observers", &self.observers.len())
            .finish()
    }
}
