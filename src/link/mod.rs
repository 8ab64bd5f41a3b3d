//! Our own end of the wire: keeps a session through trouble.
//!
//! It knows frames, not locks.
//!
//! ```text
//!  callers -> Link::submit -------------------+--> outgoing --> server
//!  callers <-----------------------.          |
//!   handle <--loopback-- zklock-down <--------+----------------'
//!   handle --loopback--> zklock-door ---------'
//! ```
//!
//! - **To the ensemble** it dials all addresses with time limits and back-off, shakes hands with
//!   the true timeout, resumes the session elsewhere when a connection breaks, presents the
//!   credentials before anything else, and probes. It gives a connection up when a request that was
//!   sent was not answered for a sixth of the timeout, or the server took nothing of what was to be
//!   sent for as long. Little is ahead of a probe.
//! - **To the session** it reports connections, breaks and ends, and keeps the
//!   [lease](Epoch::lease).
//! - **To callers** ([`answer`](core::answer)): [`Link::submit`] sends requests on exactly the
//!   connection that they are about. All requests are in one queue, in the order of their numbers,
//!   which is that of their bytes. What many threads ask at the same time [waits](core::waiting) for
//!   a moment and shares [packets](core::batch).
//! - **To a handle of the `zookeeper` crate** it is a server that never goes away, behind a
//!   loopback port that is open for this handle alone ([`loopback`]). When the connection to the
//!   ensemble breaks, the link answers `ConnectionLoss` to what was in flight, and to what comes
//!   until there is another. The crate never reconnects, so none of its faults at a reconnect can
//!   happen. It gets no reply that it could not digest. What becomes of it is its own matter.
//!
//! # The core and its driver
//!
//! What is decided is decided in the [core], which is pure. The files beside it drive it: they have
//! the sockets, TLS, the clock and the threads, bring bytes and the time, send what comes out, and
//! tell what is to be told.
//!
//! # Threads
//!
//! Two, and whoever calls. `zklock-clock` looks at the clock for the session above. `zklock-down`
//! dials, reads replies and events, brings the time, cuts silent connections,
//! and at the end says good-bye. Bytes for the server are queued under the lock of the
//! [state](wire::State), and sent without waiting by whoever gets the right to send, for all; what
//! the socket does not take then, `zklock-down` sends. So no caller, and neither thread, ever waits
//! for a server's window. A caller is told by `zklock-down`. Each handle of the crate has a
//! `zklock-door`, which reads what it sends.
//!
//! # Locks
//!
//! In this order: the right to send to a server or to a handle, then the state of the wire, which has
//! the core. Only the second is ever waited for, and only a flush takes the first: it looks again
//! after letting go of it. Under the state nothing is sent, sealed, cut, told or logged, nobody is
//! woken, and the clock is not read. What callers ask is encoded before, and their answers are decoded
//! after; three things are written under it, because only the core knows what they say: packets
//! that several share, probes, and watches that are left again. And an answer to a handle of the crate is
//! looked through there, before it is among what goes out: the handle would panic at one that it cannot
//! digest. What TLS keeps has a lock of its own, beside that of the state.
//!
//! What is in flight is added to under the state's lock by whoever asks, and taken off under it by
//! `zklock-down`. Connections begin and end on
//! `zklock-down` alone; anybody may cut one, and it then finds it cut.

mod alarm;
mod clock;
mod connect;
mod core;
mod dial;
mod epoch;
mod farewell;
mod from_crate;
mod guest;
mod hosts;
#[cfg_attr(
    not(feature = "zookeeper"),
    allow(dead_code, reason = "no port is opened without the feature")
)]
mod loopback;
mod reading;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(not(feature = "sasl"))]
#[path = "no_sasl.rs"]
mod sasl;
mod saved_session;
mod sending;
mod server;
mod server_loop;
mod stream;
mod submit;
mod targets;
#[cfg(all(test, not(shuttle)))]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod wakeup;
mod wire;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zklock_protocol::{EventKind, WatchKind};

pub(crate) use self::clock::Clock;
pub(crate) use self::core::answer::{Answer, Batching, Completion, Lost, NoReply, NotSent};
pub(crate) use self::core::waiting::LONGEST_WAIT;
pub(crate) use self::core::{Interest, Known};
pub(crate) use self::epoch::{Epoch, RelyOnLease, WantProof};
pub(crate) use self::guest::TakenOff;
pub(crate) use self::hosts::{ConnectString, HostPort};
#[cfg(feature = "zookeeper")]
pub(crate) use self::loopback::Admitted;
use self::loopback::LoopbackListener;
pub(crate) use self::sasl::Login;
#[cfg(not(feature = "tls"))]
pub(crate) use self::tls::Tls;
#[cfg(feature = "tls")]
pub use self::tls::Tls;
use self::wire::Wire;

/// Where and how to connect.
#[derive(Debug)]
pub(crate) struct LinkConfig {
    pub(crate) hosts: Vec<HostPort>,
    /// In front of the paths that the session above knows. Empty: none.
    pub(crate) chroot: String,
    /// To ask for; the server may grant another.
    pub(crate) session_timeout: Duration,
    /// An account, logged in to first on every connection.
    pub(crate) login: Option<Login>,
    pub(crate) auth: Vec<AuthInfo>,
    pub(crate) backoff: Backoff,
    /// The servers' `tickTime`, if it is known.
    pub(crate) tick: Option<Duration>,
    /// Probes are never writes: a leader that has been deposed, and does not know, is believed.
    pub(crate) probe_by_sync: bool,
    /// How long a request waits for others to share its packet, at the most: see [`core::waiting`].
    pub(crate) longest_wait: Duration,
    /// Under the lease.
    pub(crate) clock: Clock,
    /// Every connection is made so, or none is.
    pub(crate) tls: Option<Tls>,
}

/// Pauses between rounds of dialling.
#[derive(Debug)]
pub(crate) struct Backoff {
    pub(crate) initial: Duration,
    pub(crate) max: Duration,
}

/// Credentials.
pub(crate) struct AuthInfo {
    pub(crate) scheme: String,
    pub(crate) bytes: Vec<u8>,
}

impl fmt::Debug for AuthInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthInfo")
            .field("scheme", &self.scheme)
            .field("bytes", &"(secret)")
            .finish()
    }
}

/// Hears what happens to the connection, on the link's threads: may only signal.
pub(crate) trait LinkObserver: Send + Sync {
    fn on_link(&self, event: LinkEvent);
    /// A watch fired, on the node at this path: of all events of watches that servers have sent,
    /// over the life of the link, the one with this number.
    fn on_event(&self, _event: EventKind, _path: &str, _number: u64) {}
    /// A handle of the crate leaves a watch of this kind on the node at this path, on this
    /// connection. Until what is returned is dropped, nobody else takes it off; `taken_off` is called
    /// if somebody may have. Called without locks. `None`: nobody else leaves watches.
    fn observe(
        &self,
        _kind: WatchKind,
        _path: &str,
        _connection: u64,
        _taken_off: TakenOff,
    ) -> Option<Arc<dyn Interest>> {
        None
    }
    /// Interests of a handle that looks at nothing any more, perhaps many. Called without locks.
    fn let_go(&self, _interests: Vec<Arc<dyn Interest>>) {}
    /// What is over by the clock may be declared over. Returns for how long the clock need not be
    /// looked at, unless [`Link::look_soon`] is called; `None`: for ever. Called on `zklock-clock`,
    /// which nothing holds up.
    fn on_clock(&self) -> Option<Duration> {
        None
    }
    /// Has a line logged, where a logger that is stuck holds up nobody.
    fn log(&self, _level: log::Level, _target: &'static str, _line: String) {}
}

/// What happens to the connection.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// There is a connection, and the credentials were presented.
    Connected {
        epoch: Arc<Epoch>,
        resumed: bool,
        /// Counts the connections of one link, from 1.
        connection: u64,
    },
    /// The connection broke. All that was in flight has been answered.
    Suspended {
        #[allow(dead_code, reason = "the tests tell sessions apart by it")]
        epoch: Arc<Epoch>,
        connection: u64,
    },
    /// The session is over.
    Expired { epoch: Arc<Epoch> },
    /// A probe found a node of ours, at this path without the chroot, gone.
    NodeGone { epoch: Arc<Epoch>, path: String },
    /// An attempt at this server begins: at this host, and this address if that is not the same.
    Dialling(String),
    /// One attempt at one server failed.
    DialFailed(DialFailure),
    /// A server refused the credentials; no other attempt is made.
    AuthFailed { scheme: String },
    /// The link ends, though nobody closed it: a thread of it has panicked. The session is closed
    /// next.
    Closed,
}

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct DialFailure {
    /// As the connect string has it.
    pub(crate) host: String,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) why: String,
}

impl fmt::Display for DialFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) if address.to_string() != self.host => {
                write!(f, "{} ({address})", self.host)
            }
            _ => f.write_str(&self.host),
        }
    }
}

/// See the [module](self).
pub(crate) struct Link {
    wire: Arc<Wire>,
}

impl Link {
    /// Does nothing yet, but can be told to already.
    pub(crate) fn new(config: LinkConfig, observer: Arc<dyn LinkObserver>) -> Self {
        Self {
            wire: Wire::new(config, observer),
        }
    }

    /// Begins to dial.
    pub(crate) fn start(&self) -> io::Result<()> {
        let clock = self.wire.spawn("zklock-clock", Wire::watch_clock);
        let started = clock.and_then(|()| self.wire.spawn("zklock-down", server_loop::run));
        if started.is_err() {
            // Nobody is there who would say good-bye.
            self.wire.state.lock().parted = true;
        }
        started
    }

    /// In front of the paths that the session above knows.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn chroot(&self) -> &str {
        &self.wire.config.chroot
    }

    /// Opens a door for one handle of the `zookeeper` crate.
    /// The handle is on this session.
    #[cfg_attr(
        not(feature = "zookeeper"),
        allow(dead_code, reason = "no port is opened without the feature")
    )]
    pub(crate) fn listen(&self, epoch: Arc<Epoch>) -> io::Result<LoopbackListener> {
        LoopbackListener::open(Arc::clone(&self.wire), epoch)
    }

    /// Whether the end of this connection would cost nobody a lock.
    pub(crate) fn is_harmless(&self, connection: u64) -> bool {
        self.wire.state.lock().core.is_harmless(connection)
    }

    /// Has `zklock-clock` look at the clock, now or soon after.
    pub(crate) fn look_soon(&self) {
        self.wire.alarm.ring();
    }

    /// Drops the connection of a session whose lease is over. It is not resumed.
    pub(crate) fn abandon(&self, epoch: &Epoch) {
        epoch.lease().seal();
        let server = self.wire.state.lock().server.clone();
        if let Some(server) = server
            && server.epoch.number() == epoch.number()
        {
            server.cut_as_too_slow();
        }
        self.wire.changed.notify_all();
        self.wire.expire_guests();
    }

    /// Has a line logged, as the link's own lines are.
    pub(crate) fn warn(&self, line: &str) {
        self.wire
            .log(log::Level::Warn, module_path!(), line.to_owned());
    }

    /// Waits until the link's threads have ended, until `deadline` at most. Returns whether they
    /// have.
    pub(crate) fn wait_ended(&self, deadline: Instant) -> bool {
        let mut state = self.wire.state.lock();
        while state.threads > 0 {
            if self
                .wire
                .changed
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                return state.threads == 0;
            }
        }
        true
    }
}

impl Drop for Link {
    /// For a link that was never closed.
    fn drop(&mut self) {
        let mut state = self.wire.state.lock();
        state.core.close();
        let server = state.server.clone();
        drop(state);
        if let Some(server) = server {
            server.cut();
        }
        self.wire.changed.notify_all();
        self.wire.alarm.ring();
    }
}
