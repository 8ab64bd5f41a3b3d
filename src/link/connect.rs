//! One connection, from the first byte to the server to its being handed to the core: resumes the
//! session that there was, buries one that is over, or begins a new one, and presents the credentials.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::clock::Moment;
use super::core::chain::{Opening, ProbeIntervals};
use super::core::opening::{self, FIRST_DIAL_AT_MOST, Resumption};
use super::core::{Opened, Watching};
use super::dial::Dialled;
use super::farewell;
use super::guest::Guest;
use super::saved_session::SavedSession;
use super::server::Server;
use super::server_loop::{Down, Failure, PreviousSession};
use super::targets::Target;
use super::wire::say;
use super::{AuthInfo, LinkEvent, Login};

/// One thing to be presented on a connection before anything else.
enum Credentials<'a> {
    Login(&'a Login),
    Auth(&'a AuthInfo),
}

impl Credentials<'_> {
    /// `Ok(false)`: the server refused them.
    fn present(&self, server: &mut Dialled<'_>) -> io::Result<bool> {
        match self {
            Self::Login(login) => login.present(server),
            Self::Auth(auth) => server.present(auth),
        }
    }

    fn scheme(&self) -> String {
        match self {
            Self::Login(_) => "sasl".to_owned(),
            Self::Auth(auth) => auth.scheme.clone(),
        }
    }
}

impl Down<'_> {
    /// Connects to `target`, with the session that there was or else with a new one.
    pub(super) fn attempt(
        &mut self,
        target: &Target,
        limit: Duration,
    ) -> Result<Arc<Server>, Failure> {
        self.end_lost_session();
        if let PreviousSession::GoesOn(_) = self.previous
            && let Some(server) = self.resume(target, limit)?
        {
            return Ok(server);
        }
        self.bury(target, limit)?;
        self.begin(target, limit)
    }

    /// Goes on with the session. `Ok(None)`: it is over.
    fn resume(&mut self, target: &Target, limit: Duration) -> Result<Option<Arc<Server>>, Failure> {
        let PreviousSession::GoesOn(saved) = &self.previous else {
            return Ok(None);
        };
        let epoch = Arc::clone(&saved.epoch);
        // An answer after the lease has run out is of no use.
        let lease = epoch.lease();
        let left = lease
            .ends()
            .map_or(Duration::ZERO, |ends| ends.since(epoch.now()));
        let mut server = Dialled::connect(self.wire, target, limit.min(left))?;
        let last_zxid_seen = self.wire.state.lock().core.last_zxid();
        let (response, sent_at) = server.shake_hands(&saved.request(last_zxid_seen))?;
        let now = epoch.now();
        match opening::resumed(epoch.session_id(), lease, &response, sent_at, now) {
            Resumption::GoesOn => {
                let opening = Opening::Resumed;
                self.establish(target, server, opening, sent_at).map(Some)
            }
            Resumption::Expired => {
                self.session_over("the server has expired it");
                self.previous = PreviousSession::None;
                Ok(None)
            }
            Resumption::ToClose(why) => {
                self.session_over(why);
                server.allow(limit);
                self.close_remains(&mut server);
                Ok(None)
            }
        }
    }

    /// Closes what is left of a session that is over, so that its nodes go now and not after its
    /// timeout. An address that cannot be talked to has failed, as for any other purpose; one that
    /// keeps silent must not cost the next session more than this one time.
    fn bury(&mut self, target: &Target, limit: Duration) -> Result<(), Failure> {
        let PreviousSession::ToClose(saved) = &self.previous else {
            return Ok(());
        };
        let limit = limit.min(FIRST_DIAL_AT_MOST);
        let mut server = Dialled::connect(self.wire, target, limit)?;
        // Any server will do, however far it lags.
        match server.shake_hands(&saved.request(0)) {
            Ok((response, _)) if response.timeout_ms <= 0 => self.previous = PreviousSession::None,
            Ok(_) => self.close_remains(&mut server),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                say!(
                    self.wire,
                    Debug,
                    "closing the lost session: {error}; it goes when it expires"
                );
                self.previous = PreviousSession::None;
            }
            Err(error) => return Err(Failure::Here(error)),
        }
        Ok(())
    }

    fn close_remains(&mut self, server: &mut Dialled<'_>) {
        if let Err(error) = server.close_session() {
            say!(
                self.wire,
                Debug,
                "closing the lost session: {error}; it goes when it expires"
            );
        }
        self.previous = PreviousSession::None;
    }

    /// Makes a new session.
    fn begin(&mut self, target: &Target, limit: Duration) -> Result<Arc<Server>, Failure> {
        let mut server = Dialled::connect(self.wire, target, limit)?;
        let request = opening::new_session(self.wire.config.session_timeout);
        let greeted = server.shake_hands(&request);
        let (response, sent_at) =
            greeted.map_err(|error| self.unless_it_speaks_tls(target, limit, error))?;
        opening::granted(&response).map_err(io::Error::other)?;
        self.wire.state.lock().core.session_begins();
        self.epochs += 1;
        let saved = SavedSession::new(self.wire, self.epochs, response, sent_at);
        self.previous = PreviousSession::GoesOn(saved);
        self.establish(target, server, Opening::Created, sent_at)
    }

    /// Why a server has not taken our handshake: `error`, or that it speaks TLS, if this client does
    /// not. A server hangs up on it there as one does that has no quorum. Asked once for each
    /// address, and only as long as nothing has worked.
    fn unless_it_speaks_tls(
        &mut self,
        target: &Target,
        limit: Duration,
        error: io::Error,
    ) -> io::Error {
        let is_odd = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::InvalidData
        );
        if self.connections > 0 || self.wire.config.tls.is_some() || !is_odd {
            return error;
        }
        let wire = self.wire;
        let known = self.tls_ports.entry(target.address);
        if !*known.or_insert_with(|| Dialled::speaks_tls(wire, target, limit).unwrap_or(false)) {
            return error;
        }
        io::Error::new(
            io::ErrorKind::InvalidData,
            "it speaks TLS on this port, and this client was not told to: set up TLS, or give the \
             server's plain clientPort",
        )
    }

    /// Presents the credentials, before anything else can be sent, and announces the connection.
    fn establish(
        &mut self,
        target: &Target,
        mut server: Dialled<'_>,
        opening: Opening,
        sent_at: Moment,
    ) -> Result<Arc<Server>, Failure> {
        let Some(saved) = self.previous.saved() else {
            unreachable!("called with a session");
        };
        let epoch = Arc::clone(&saved.epoch);
        let config = &self.wire.config;
        let login = config.login.iter().map(Credentials::Login);
        for credentials in login.chain(config.auth.iter().map(Credentials::Auth)) {
            server.allow(epoch.lease().timeout() / 6);
            if !credentials.present(&mut server)? {
                let scheme = credentials.scheme();
                // Where they were accepted before, this server may be the one that is wrong.
                if self.connections > 0 {
                    return Err(Failure::Refused(scheme));
                }
                self.give_up(scheme);
                return Err(Failure::Final);
            }
        }
        // Either `close` sees this connection, or we see that it was called: now, or when it is handed
        // to the core.
        let state = self.wire.state.lock();
        let (is_closing, close_by) = (state.core.is_closing(), state.close_by);
        drop(state);
        if is_closing {
            farewell::on(self.wire, server, close_by);
            return Err(Failure::Final);
        }
        let stream = server.into_stream()?;
        self.connections += 1;
        let connection = self.connections;
        let server = Arc::new(Server::new(stream, Arc::clone(&epoch), connection));
        if !self.open(&server, opening, sent_at) {
            // Its good-bye goes to another server.
            return Err(Failure::Final);
        }
        let resumed = match &mut self.previous {
            PreviousSession::GoesOn(saved) => std::mem::replace(&mut saved.announced, true),
            _ => false,
        };
        if resumed {
            self.wire.state.lock().core.session_survived();
        }
        self.redials.connected();
        let timeout = epoch.lease().timeout();
        self.wire.tell(LinkEvent::Connected {
            epoch: Arc::clone(&epoch),
            resumed,
            connection,
        });
        say!(
            self.wire,
            Info,
            "{target}: session 0x{:x} {}, timeout {:?}",
            epoch.session_id(),
            if resumed { "resumed" } else { "begun" },
            epoch.timeout()
        );
        if self.doubted != Some(timeout)
            && let Some(doubt) = ProbeIntervals::doubt(timeout, config.tick)
        {
            self.doubted = Some(timeout);
            say!(self.wire, Warn, "{target}: {doubt}");
        }
        Ok(server)
    }

    /// Hands a connection to the core, with the probe and the watches of handles that go before
    /// anything else. Returns whether the client was not closed meanwhile.
    fn open(&self, server: &Arc<Server>, opening: Opening, sent_at: Moment) -> bool {
        let wire = self.wire;
        let to_leave = self.watches_of_guests(server);
        let epoch = &server.epoch;
        let now = epoch.now();
        let mut state = wire.state.lock();
        if state.core.is_closing() {
            return false;
        }
        state.server = Some(Arc::clone(server));
        state.core.opened(Opened {
            number: server.connection,
            lease: epoch.cell(),
            intervals: ProbeIntervals::of(epoch.lease().timeout(), wire.config.tick),
            opening,
            sent_at,
        });
        // With a node that stands, before what the session will repeat.
        let node = epoch.node_after(state.core.last_node());
        state.core.probe(node, now);
        let mut over = Vec::new();
        for (guest, watches) in &to_leave {
            over.extend(state.core.leave_again(guest.id, watches, now));
        }
        drop(state);
        wire.flush(server);
        drop(over);
        to_leave
            .iter()
            .for_each(|(guest, _)| wire.flush_guest(guest));
        true
    }

    /// What handles of the crate watched on the last connection of this session, with the session
    /// above told that they will on this one.
    fn watches_of_guests(&self, server: &Server) -> Vec<(Arc<Guest>, Vec<Watching>)> {
        let state = self.wire.state.lock();
        let to_leave = state.core.to_leave_again(server.epoch.number());
        let of_guest = |(id, watches)| {
            let guest = state.guests.iter().find(|guest| guest.id == id);
            guest.map(|guest| (Arc::clone(guest), watches))
        };
        let to_leave: Vec<_> = to_leave.into_iter().filter_map(of_guest).collect();
        drop(state);
        for (guest, watches) in &to_leave {
            for watching in watches {
                let interest = self.wire.interest(guest, watching, server);
                let mut state = self.wire.state.lock();
                let over = state.core.renews(guest.id, watching, interest);
                drop(state);
                drop(over);
            }
        }
        to_leave
    }
}
