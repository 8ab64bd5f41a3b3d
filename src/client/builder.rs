//! [`ClientBuilder`]: a client's settings, and how it is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Client, Handle};
use crate::error::{Error, Result};
use crate::link::{
    AuthInfo, Backoff, Clock, ConnectString, LONGEST_WAIT, Link, LinkConfig, Login, Tls,
};
use crate::session::observe::observer::Observer;
use crate::session::{
    Acl, CallError, Contact, Refusal, RetryPolicy, Session, Site, Step, ToSession, Waiter,
};
use crate::wait::limits::{WaitLimits, deadline_after};

/// Longer than any session timeout: what is reckoned from it must not overflow.
const LONGEST_TICK: Duration = Duration::from_secs(24 * 60 * 60);

/// Settings of a [`Client`]; made by [`Client::builder`].
///
/// ```
/// use std::time::Duration;
/// use zklock::{Acl, Client};
///
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = Client::builder(&servers)
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
    pub(super) fn new(servers: &str) -> Self {
        Self {
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
        let limits = WaitLimits::until(deadline_after(self.connect_timeout));
        let waiter = Waiter::new(&session, &limits);
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
    waiter.retry(servers, |contact| {
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
