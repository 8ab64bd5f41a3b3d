//! `zklock-down`: keeps a connection to the ensemble, and a session on it.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::opening::Redials;
use super::farewell;
use super::reading;
use super::saved_session::SavedSession;
use super::server::Server;
use super::targets::{Target, Targets};
use super::wire::{Wire, say};
use super::{Backoff, DialFailure, LinkEvent};

/// What is left from earlier connections.
pub(super) enum PreviousSession {
    None,
    /// A session to go on with.
    GoesOn(SavedSession),
    /// One that is over for us, and may live on at the servers, with its nodes.
    ToClose(SavedSession),
}

/// Why there was no connection.
pub(super) enum Failure {
    /// At this address. Another may do.
    Here(io::Error),
    /// This server refused the credentials of this scheme, which others have accepted.
    Refused(String),
    /// Anywhere: the credentials are wrong, or the client was closed.
    Final,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Here(error)
    }
}

/// A client's way to the ensemble, from connection to connection.
pub(super) struct Down<'a> {
    pub(super) wire: &'a Arc<Wire>,
    pub(super) previous: PreviousSession,
    pub(super) epochs: u64,
    pub(super) connections: u64,
    pub(super) targets: Targets,
    pub(super) redials: Redials,
    /// Whether the server at an address that hung up on us speaks TLS.
    pub(super) tls_ports: HashMap<SocketAddr, bool>,
    /// The session timeout that was warned of last.
    pub(super) doubted: Option<Duration>,
}

/// Runs until the link is closed.
pub(super) fn run(wire: &Arc<Wire>) {
    let mut down = Down {
        wire,
        previous: PreviousSession::None,
        epochs: 0,
        connections: 0,
        targets: Targets::new(&wire.config.hosts),
        redials: Redials::default(),
        tls_ports: HashMap::new(),
        doubted: None,
    };
    if catch_unwind(AssertUnwindSafe(|| down.keep_connected())).is_err() {
        wire.end_by_itself();
        // Nobody else answers what is in flight.
        let _ = catch_unwind(AssertUnwindSafe(|| wire.drop_what_is_left()));
    }
    farewell::part(wire, down.previous.saved(), &down.targets);
}

impl PreviousSession {
    pub(super) fn saved(&self) -> Option<&SavedSession> {
        match self {
            Self::None => None,
            Self::GoesOn(saved) | Self::ToClose(saved) => Some(saved),
        }
    }
}

impl Down<'_> {
    fn keep_connected(&mut self) {
        while !self.wire.is_closing() {
            self.end_lost_session();
            if let Some((target, server)) = self.round() {
                self.serve(&target, &server);
            } else {
                let Backoff { initial, max } = self.wire.config.backoff;
                let longest = self.redials.round_failed(initial, max);
                self.pause(longest);
            }
        }
    }

    /// Tries every address once, until one of them is connected.
    fn round(&mut self) -> Option<(Target, Arc<Server>)> {
        let wire = self.wire;
        let limit = self.dial_limit();
        let round = self.targets.round(limit, || wire.is_closing());
        for (host, why) in round.unknown {
            self.failed(host, None, why);
        }
        for (host, why) in round.not_fresh {
            say!(
                wire,
                Debug,
                "{host}: {why}; trying its last known addresses"
            );
        }
        let limit = self.dial_limit();
        let mut refusals = Vec::new();
        let servers = round.targets.len();
        for target in round.targets {
            if wire.is_closing() {
                return None;
            }
            self.wire.tell(LinkEvent::Dialling(target.to_string()));
            say!(self.wire, Debug, "dialling {target}, for at most {limit:?}");
            match self.attempt(&target, limit) {
                Ok(server) => return Some((target, server)),
                Err(Failure::Here(error)) => {
                    self.targets.failed_last = Some(target.address);
                    self.failed(target.host, Some(target.address), error.to_string());
                }
                Err(Failure::Refused(scheme)) => {
                    let why = format!("it refused the credentials of scheme {scheme}");
                    self.targets.failed_last = Some(target.address);
                    self.failed(target.host, Some(target.address), why);
                    refusals.push(scheme);
                }
                Err(Failure::Final) => return None,
            }
        }
        if refusals.len() == servers
            && let Some(scheme) = refusals.pop()
        {
            self.give_up(scheme);
        }
        None
    }

    /// The credentials are wrong.
    pub(super) fn give_up(&self, scheme: String) {
        let what = format!("the credentials of scheme {scheme} were refused; giving up");
        self.wire.tell(LinkEvent::AuthFailed { scheme });
        say!(self.wire, Error, "{what}");
        self.wire.wait_until_closing();
    }

    fn failed(&self, host: String, address: Option<SocketAddr>, why: String) {
        if self.wire.is_closing() {
            return;
        }
        let failure = DialFailure { host, address, why };
        let what = format!("{failure}: {}; trying on", failure.why);
        self.wire.tell(LinkEvent::DialFailed(failure));
        say!(self.wire, Debug, "{what}");
    }

    fn dial_limit(&self) -> Duration {
        let servers = self.targets.count();
        match &self.previous {
            PreviousSession::GoesOn(saved) => {
                let timeout = saved.epoch.lease().timeout();
                self.redials.dial_limit(timeout, true, servers)
            }
            _ => {
                let timeout = self.wire.config.session_timeout;
                self.redials.dial_limit(timeout, false, servers)
            }
        }
    }

    /// Notices when the lease has run out, or was sealed by the session above.
    pub(super) fn end_lost_session(&mut self) {
        if let PreviousSession::GoesOn(saved) = &self.previous
            && !saved.epoch.is_alive()
        {
            self.session_over("no server was reached before its lease ran out");
        }
    }

    pub(super) fn session_over(&mut self, why: &str) {
        let PreviousSession::GoesOn(saved) =
            std::mem::replace(&mut self.previous, PreviousSession::None)
        else {
            return;
        };
        let epoch = Arc::clone(&saved.epoch);
        epoch.lease().seal();
        let announced = saved.announced;
        self.previous = PreviousSession::ToClose(saved);
        let session_id = epoch.session_id();
        if announced {
            self.wire.tell(LinkEvent::Expired { epoch });
        }
        self.wire.expire_guests();
        say!(self.wire, Info, "session 0x{session_id:x} is over: {why}");
    }

    /// Brings replies to the crate until the connection ends. The next dial follows at once, unless
    /// connections break again and again as soon as they are made.
    fn serve(&mut self, target: &Target, server: &Server) {
        let begun = Instant::now();
        let why = reading::relay(self.wire, server);
        self.targets.failed_last = Some(target.address);
        self.wire.drop_connection(server);
        // Told first, logged last: a logger may block.
        if !self.wire.is_closing() {
            say!(
                self.wire,
                Info,
                "{target}: the connection of session 0x{:x} broke: {why}; connecting again",
                server.epoch.session_id()
            );
        }
        let Backoff { initial, max } = self.wire.config.backoff;
        if let Some(longest) = self.redials.broke(begun.elapsed(), initial, max) {
            self.pause(longest);
        }
    }

    /// A random time up to a limit, so that many clients do not come back at once.
    fn pause(&mut self, longest: Duration) {
        let until = Instant::now() + longest.mul_f64(random_fraction());
        loop {
            self.end_lost_session();
            let session = match &self.previous {
                PreviousSession::GoesOn(saved) => Some(Arc::clone(&saved.epoch)),
                _ => None,
            };
            let now = Instant::now();
            let session = session.map(|epoch| (epoch.now(), epoch));
            let mut state = self.wire.state.lock();
            if state.core.is_closing() || now >= until {
                return;
            }
            let wake = match &session {
                // Looked at again under the lock, as `abandon` seals first and notifies then.
                Some((then, epoch)) => match epoch.lease().next_look(*then) {
                    Some(look) if epoch.lease().alive(*then) => until.min(now + look),
                    _ => continue,
                },
                None => until,
            };
            self.wire.changed.wait_until(&mut state, wake);
        }
    }
}

/// From 0 to 1.
fn random_fraction() -> f64 {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    f64::from(u32::try_from(random >> 32).expect("32 bits")) / f64::from(u32::MAX)
}
