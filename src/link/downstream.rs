//! `zklock-down`: keeps a connection to the ensemble, and brings the server's replies to the crate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::dial::{Greeting, bury, greet, present};
use super::frame::{self, ConnectRequest, FrameBuffer, Next, ReplyHeader};
use super::lease::Epoch;
use super::upstream::is_timeout;
use super::wire::{Server, State, Wire};
use super::{DialFailure, LinkEvent};

/// A dial is given this long at the least, and at first no longer than [`FIRST_DIAL_AT_MOST`].
const FIRST_DIAL_AT_LEAST: Duration = Duration::from_millis(250);
const FIRST_DIAL_AT_MOST: Duration = Duration::from_secs(2);

/// What it takes to go on with a session on another connection.
struct Ticket {
    epoch: Arc<Epoch>,
    password: Vec<u8>,
}

struct Down<'a> {
    wire: &'a Arc<Wire>,
    ticket: Option<Ticket>,
    epochs: u64,
    /// The address that failed last: it is tried last.
    avoid: Option<SocketAddr>,
}

/// Runs until the link is closed.
pub(super) fn run(wire: &Arc<Wire>) {
    let mut down = Down {
        wire,
        ticket: None,
        epochs: 0,
        avoid: None,
    };
    let mut failed_rounds = 0;
    while !wire.is_closing() {
        if down.round(failed_rounds) {
            failed_rounds = 0;
        } else {
            down.pause(failed_rounds);
            failed_rounds += 1;
        }
    }
}

impl Down<'_> {
    /// Tries every address once, and serves the first connection to its end. Returns whether there
    /// was one.
    fn round(&mut self, failed_rounds: u32) -> bool {
        let hosts = self.wire.config.hosts.len();
        let limit = self.dial_limit(hosts, failed_rounds);
        let mut targets = self.resolve(limit);
        let limit = self.dial_limit(targets.len(), failed_rounds);
        shuffle(&mut targets);
        targets.sort_by_key(|(_, address)| Some(*address) == self.avoid);
        for (host, address) in targets {
            if self.wire.is_closing() {
                return false;
            }
            log::debug!("dialling {host} at {address}, for {limit:?} at the most");
            match self.attempt(address, limit) {
                Ok(Some(server)) => {
                    self.avoid = Some(address);
                    self.serve(&server);
                    return true;
                }
                Ok(None) => return false,
                Err(error) => self.failed(host, Some(address), &error.to_string()),
            }
        }
        false
    }

    fn failed(&self, host: String, address: Option<SocketAddr>, why: &str) {
        if self.wire.is_closing() {
            return;
        }
        let why = why.to_owned();
        let failure = DialFailure { host, address, why };
        log::debug!("{failure}: {}", failure.why);
        self.wire.tell(LinkEvent::DialFailed(failure));
    }

    /// Enough to ask every server within the third of the timeout that is left when a silent
    /// connection has been given up; doubled after each round, for servers that are slow.
    fn dial_limit(&self, servers: usize, failed_rounds: u32) -> Duration {
        let timeout = self.timeout();
        let servers = u32::try_from(servers).unwrap_or(u32::MAX).max(1);
        let first = (timeout / 3 / servers).clamp(FIRST_DIAL_AT_LEAST, FIRST_DIAL_AT_MOST);
        let most = (timeout * 2 / 3).max(FIRST_DIAL_AT_LEAST);
        first.saturating_mul(1 << failed_rounds.min(8)).min(most)
    }

    fn timeout(&self) -> Duration {
        self.ticket
            .as_ref()
            .map_or(self.wire.config.session_timeout, |ticket| {
                ticket.epoch.timeout()
            })
    }

    /// All addresses of all hosts. Names are asked for at the same time.
    fn resolve(&self, limit: Duration) -> Vec<(String, SocketAddr)> {
        let deadline = Instant::now() + limit;
        let hosts = &self.wire.config.hosts;
        let asked: Vec<_> = hosts.iter().map(|host| (host, host.resolve())).collect();
        let mut targets = Vec::new();
        for (host, resolving) in asked {
            match resolving.wait(deadline) {
                Ok(found) => targets.extend(found.into_iter().map(|one| (host.to_string(), one))),
                Err(why) => self.failed(host.to_string(), None, &why),
            }
        }
        targets
    }

    /// Resumes the session at `address`, or makes a new one there. `None`: there is nothing more
    /// to try.
    fn attempt(&mut self, address: SocketAddr, limit: Duration) -> io::Result<Option<Arc<Server>>> {
        let last_zxid_seen = self.wire.state.lock().last_zxid;
        if let Some(ticket) = &self.ticket {
            let request = ConnectRequest {
                last_zxid_seen,
                timeout_ms: millis(ticket.epoch.timeout()),
                session_id: ticket.epoch.session_id(),
                password: ticket.password.clone(),
            };
            let deadline = Instant::now() + limit;
            let mut greeting = greet(self.wire, address, &request, deadline)?;
            let epoch = Arc::clone(&ticket.epoch);
            if greeting.response.timeout_ms <= 0 {
                self.expired("the server has expired it");
            } else if epoch.lease().renew(greeting.sent_at) {
                return self.established(greeting, epoch, address, true);
            } else {
                // The session was declared lost, and its locks with it; it must not come back.
                self.expired("its lease ran out before a server was reached");
                bury(self.wire, &mut greeting.stream, deadline);
            }
        }
        let request = ConnectRequest {
            last_zxid_seen,
            timeout_ms: millis(self.wire.config.session_timeout),
            session_id: 0,
            password: vec![0; 16],
        };
        let greeting = greet(self.wire, address, &request, Instant::now() + limit)?;
        if greeting.response.timeout_ms <= 0 {
            return Err(io::Error::other("it refused a new session"));
        }
        self.epochs += 1;
        let epoch = Arc::new(Epoch::begun(
            self.epochs,
            greeting.response.session_id,
            greeting.response.timeout(),
            greeting.sent_at,
        ));
        self.ticket = Some(Ticket {
            epoch: Arc::clone(&epoch),
            password: greeting.response.password.clone(),
        });
        self.established(greeting, epoch, address, false)
    }

    fn expired(&mut self, why: &str) {
        if let Some(Ticket { epoch, .. }) = self.ticket.take() {
            epoch.lease().seal();
            log::info!("session 0x{:x} is over: {why}", epoch.session_id());
            self.wire.tell(LinkEvent::Expired { epoch });
        }
    }

    /// Presents the credentials, before anything else can be sent, and announces the connection.
    fn established(
        &self,
        greeting: Greeting,
        epoch: Arc<Epoch>,
        address: SocketAddr,
        resumed: bool,
    ) -> io::Result<Option<Arc<Server>>> {
        let mut stream = greeting.stream;
        for auth in &self.wire.config.auth {
            let deadline = Instant::now() + epoch.timeout() / 3;
            if !present(self.wire, &mut stream, &auth.scheme, &auth.bytes, deadline)? {
                let scheme = auth.scheme.clone();
                self.wire.tell(LinkEvent::AuthFailed { scheme });
                self.wait_for_close();
                return Ok(None);
            }
        }
        stream.set_read_timeout(Some(Wire::tick(epoch.timeout())))?;
        let server = Arc::new(Server {
            stream,
            epoch: Arc::clone(&epoch),
            writing: parking_lot::Mutex::new(()),
        });
        {
            let mut state = self.wire.state.lock();
            if state.closing {
                return Ok(None);
            }
            state.server = Some(Arc::clone(&server));
            state.last_sent = Instant::now();
        }
        log::info!(
            "{address}: session 0x{:x} {}, timeout {:?}",
            epoch.session_id(),
            if resumed { "resumed" } else { "begun" },
            epoch.timeout()
        );
        self.wire.tell(LinkEvent::Connected { epoch, resumed });
        Ok(Some(server))
    }

    /// Nothing can be done any more: the credentials are wrong.
    fn wait_for_close(&self) {
        let mut state = self.wire.state.lock();
        while !state.closing {
            self.wire.changed.wait(&mut state);
        }
    }

    /// Between rounds: a random time up to a limit that doubles, so that many clients do not come
    /// back at once.
    fn pause(&self, failed_rounds: u32) {
        let backoff = &self.wire.config.backoff;
        let doubled = backoff.initial.saturating_mul(1 << failed_rounds.min(16));
        let longest = doubled.min(backoff.max.max(backoff.initial));
        let until = Instant::now() + longest.mul_f64(random_fraction());
        let mut state = self.wire.state.lock();
        while !state.closing {
            if self.wire.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// Brings replies to the crate until the connection ends.
    fn serve(&self, server: &Arc<Server>) {
        let why = self.read_replies(server);
        log::debug!("the connection ended: {why}");
        self.wire.drop_connection(server);
    }

    fn read_replies(&self, server: &Server) -> String {
        let mut buffer = FrameBuffer::new(frame::REPLY_HEADER_BYTES, frame::MAX_REPLY_BYTES);
        let mut out = Vec::new();
        let patience = server.epoch.timeout() * 2 / 3;
        let mut last_heard = Instant::now();
        loop {
            match buffer.fill(&mut &server.stream) {
                Ok(0) => return "closed by the server, or by us".into(),
                Ok(_) => {
                    last_heard = Instant::now();
                    if let Some(why) = self.deliver(server, &mut buffer, &mut out) {
                        return why;
                    }
                }
                // Looked at only when there was nothing to read: a process that was stopped for
                // long reads first what came meanwhile.
                Err(error) if is_timeout(&error) => {
                    if last_heard.elapsed() > patience {
                        return format!("nothing was heard for {patience:?}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Sends on all that is in the buffer, in one write. Returns why the connection must end.
    fn deliver(
        &self,
        server: &Server,
        buffer: &mut FrameBuffer,
        out: &mut Vec<u8>,
    ) -> Option<String> {
        out.clear();
        let mut state = self.wire.state.lock();
        let mut why = None;
        while why.is_none() {
            match buffer.next() {
                Next::Frame(mut reply) => {
                    let header = reply.reply_header();
                    if header.xid == frame::XID_WATCH {
                        out.extend_from_slice(reply.bytes());
                        continue;
                    }
                    match note(&mut state, server, header) {
                        Ok(Some(theirs)) => {
                            reply.set_xid(theirs);
                            out.extend_from_slice(reply.bytes());
                            state.take_due(out);
                        }
                        Ok(None) => {}
                        Err(reason) => why = Some(reason),
                    }
                    if matches!(
                        header.err,
                        frame::ERR_SESSION_EXPIRED | frame::ERR_SESSION_MOVED
                    ) {
                        why = Some(format!("the server ended the session ({})", header.err));
                    }
                }
                Next::TooLong(reply) => match note(&mut state, server, reply.reply_header()) {
                    Ok(Some(theirs)) => {
                        let most = frame::MAX_REPLY_BYTES;
                        log::warn!("left out a reply of more than {most} bytes");
                        out.extend(frame::reply(theirs, frame::ERR_MARSHALLING));
                        state.take_due(out);
                    }
                    Ok(None) => {}
                    Err(reason) => why = Some(reason),
                },
                Next::Incomplete => break,
                Next::Malformed => why = Some("the server sent something that is no reply".into()),
            }
        }
        state.write(out);
        if state.session_closed {
            self.wire.changed.notify_all();
        }
        why
    }
}

/// Takes note of a reply. Returns the number under which the crate waits for it, if it does.
fn note(state: &mut State, server: &Server, header: ReplyHeader) -> Result<Option<i32>, String> {
    state.last_zxid = state.last_zxid.max(header.zxid);
    let (sent_at, theirs) = match header.xid {
        frame::XID_PING => (state.ping_answered(), None),
        frame::XID_AUTH => (None, None),
        xid => state
            .answered(xid)
            .map_err(|_| format!("the server answered request {xid} out of order"))?,
    };
    if let Some(sent_at) = sent_at {
        server.epoch.lease().renew(sent_at);
    }
    Ok(theirs)
}

fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

/// From 0 to 1.
fn random_fraction() -> f64 {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    f64::from(u32::try_from(random >> 32).expect("32 bits")) / f64::from(u32::MAX)
}

fn shuffle<T>(items: &mut [T]) {
    for last in (1..items.len()).rev() {
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let other = random % (u64::try_from(last).expect("small") + 1);
        items.swap(last, usize::try_from(other).expect("small"));
    }
}
