//! The link between a crate and servers that the tests play by hand, frame by frame.
//!
//! A test is the crate ([`Caller`]), the ensemble ([`FakeServer`]) and the session above
//! ([`Bench::event`]) in one thread, so that the order of things is what it writes down. Every
//! wait has the deadline [`SOON`].

mod bounds;
mod breaks;
mod handles;
mod hostile;
mod kept;
mod own_end;
mod probes;
mod relaying;
mod sessions;
mod sharing;
mod slow_networks;
mod submitting;
mod through_the_crate;
#[cfg(feature = "tls")]
mod tls;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use zklock_protocol::{ANY_VERSION, CreateMode, ErrorCode, EventKind, Reply, Request, Stat};

use super::core::answer::{Answer, Batching, Completion, Lost, NoReply, NotSent};
use super::core::frame::{self, ConnectRequest, ConnectResponse};
use super::core::tests::{DELETE, MULTI, SYNC, Told, int, new_node, refused, reply_frame};
use super::{
    AuthInfo, Backoff, Clock, Epoch, HostPort, LONGEST_WAIT, Link, LinkConfig, LinkEvent,
    LinkObserver, LoopbackListener,
};

/// Much longer than anything here takes.
const SOON: Duration = Duration::from_secs(10);
/// A session timeout that plays no role.
const LONG: Duration = Duration::from_secs(60);
/// What requests came to, and how many events there were before each answer.
fn apart(answers: Vec<Answer>) -> (Vec<Told>, Vec<u64>) {
    let each = answers.into_iter();
    each.map(|answer| (answer.result, answer.events_before))
        .unzip()
}

/// What the answer to a sync of the root says.
fn at_the_root() -> Reply {
    Reply::Path("/".to_owned())
}

/// Hears nothing.
pub(super) struct Deaf;

impl LinkObserver for Deaf {
    fn on_link(&self, _event: LinkEvent) {}
}

/// Without credentials.
pub(super) fn config(hosts: Vec<HostPort>) -> LinkConfig {
    LinkConfig {
        hosts,
        session_timeout: LONG,
        auth: Vec::new(),
        backoff: Backoff {
            initial: Duration::from_millis(1),
            max: Duration::from_millis(20),
        },
        chroot: String::new(),
        tick: None,
        probe_by_sync: false,
        longest_wait: LONGEST_WAIT,
        clock: Clock::default(),
        tls: None,
        login: None,
    }
}

struct Events {
    link: Sender<LinkEvent>,
    nodes: Sender<NodeNews>,
}

/// What a watch told, of which path, and the number of that event.
type NodeNews = (EventKind, String, u64);

impl LinkObserver for Events {
    fn on_link(&self, event: LinkEvent) {
        // What becomes of it follows.
        if let LinkEvent::Dialling(_) = event {
            return;
        }
        // The test may have ended.
        let _ = self.link.send(event);
    }

    fn on_event(&self, event: EventKind, path: &str, number: u64) {
        let _ = self.nodes.send((event, path.to_owned(), number));
    }
}

/// A link, and the events that it tells.
struct Bench {
    link: Link,
    events: Receiver<LinkEvent>,
    nodes: Receiver<NodeNews>,
}

/// What tests vary of the settings.
struct Setup {
    timeout: Duration,
    auth: Vec<AuthInfo>,
    backoff: Backoff,
    by_sync: bool,
    longest_wait: Duration,
    tick: Option<Duration>,
    clock: Clock,
    tls: Option<super::Tls>,
}

impl Default for Setup {
    fn default() -> Self {
        let LinkConfig {
            session_timeout: timeout,
            auth,
            backoff,
            tls,
            ..
        } = config(Vec::new());
        Self {
            timeout,
            auth,
            backoff,
            by_sync: false,
            longest_wait: LONGEST_WAIT,
            tick: None,
            clock: Clock::default(),
            tls,
        }
    }
}

impl Setup {
    fn start(self, servers: &[SocketAddr]) -> (Bench, LoopbackListener) {
        let hosts = servers.iter().map(|server| {
            let host = server.to_string();
            host.parse().expect("an address is a host")
        });
        let config = LinkConfig {
            hosts: hosts.collect(),
            session_timeout: self.timeout,
            auth: self.auth,
            backoff: self.backoff,
            probe_by_sync: self.by_sync,
            longest_wait: self.longest_wait,
            tick: self.tick,
            clock: self.clock,
            tls: self.tls,
            ..config(Vec::new())
        };
        let (link, events) = unbounded();
        let (node, nodes) = unbounded();
        let observer = Events { link, nodes: node };
        let link = Link::new(config, Arc::new(observer));
        link.start().expect("threads");
        let loopback = loopback_of(&link);
        let bench = Bench {
            link,
            events,
            nodes,
        };
        (bench, loopback)
    }

    /// With the crate let in.
    fn admitted(self, servers: &[SocketAddr]) -> (Bench, Caller) {
        let (bench, loopback) = self.start(servers);
        let caller = Caller::enter(loopback);
        (bench, caller)
    }

    /// With a session on one connection of `server`.
    fn connected(self, server: &FakeServer) -> (Bench, Caller, Served) {
        let timeout = self.timeout;
        let (bench, caller) = self.admitted(&[server.address]);
        let (served, _) = server.grant(7, timeout);
        let (_, resumed) = bench.connected();
        assert!(!resumed);
        (bench, caller, served)
    }
}

impl Bench {
    /// The next event but failed dials.
    fn event(&self) -> LinkEvent {
        loop {
            match self.events.recv_timeout(SOON).expect("an event") {
                LinkEvent::DialFailed(_) => {}
                event => return event,
            }
        }
    }

    fn connected(&self) -> (Arc<Epoch>, bool) {
        match self.event() {
            LinkEvent::Connected { epoch, resumed, .. } => (epoch, resumed),
            other => panic!("connected expected, got {other:?}"),
        }
    }

    /// The number of the next connection.
    fn opened(&self) -> u64 {
        match self.event() {
            LinkEvent::Connected { connection, .. } => connection,
            other => panic!("connected expected, got {other:?}"),
        }
    }

    fn suspended(&self) -> Arc<Epoch> {
        match self.event() {
            LinkEvent::Suspended { epoch, .. } => epoch,
            other => panic!("suspended expected, got {other:?}"),
        }
    }

    fn expired(&self) -> Arc<Epoch> {
        match self.event() {
            LinkEvent::Expired { epoch } => epoch,
            other => panic!("expired expected, got {other:?}"),
        }
    }

    fn failure(&self) -> String {
        match self.events.recv_timeout(SOON).expect("an event") {
            LinkEvent::DialFailed(failure) => format!("{failure}: {}", failure.why),
            other => panic!("a failed dial expected, got {other:?}"),
        }
    }
}

/// One end of a stream of frames.
struct Frames(TcpStream);

impl Frames {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(SOON)).expect("a socket");
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("connected");
    }

    /// The body of the next frame; `None` at the end of the stream.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        match self.0.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if is_gone(error.kind()) => return None,
            Err(error) => panic!("no frame: {error}"),
        }
        let length = u32::from_be_bytes(length);
        let mut body = vec![0; usize::try_from(length).expect("small")];
        self.0.read_exact(&mut body).expect("all of the frame");
        Some(body)
    }

    fn begins_with(&self, byte: u8) -> bool {
        let mut first = [0];
        self.0.peek(&mut first).is_ok_and(|read| read == 1) && first == [byte]
    }

    /// Asserts that nothing comes for a moment.
    fn assert_silent(&mut self) {
        let moment = Duration::from_millis(50);
        self.0.set_read_timeout(Some(moment)).expect("a socket");
        let error = self.0.read_exact(&mut [0]).expect_err("silence");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        self.0.set_read_timeout(Some(SOON)).expect("a socket");
    }
}

fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

/// The crate's place.
struct Caller(Frames);

impl Caller {
    fn enter(loopback: LoopbackListener) -> Self {
        let mut frames =
            Frames::new(TcpStream::connect(loopback.address().expect("bound")).expect("up"));
        frames.send(&hello(loopback.secret_timeout()));
        loopback
            .admit(Instant::now() + SOON)
            .expect("knows the secret");
        let granted = frames.receive().expect("an answer");
        let granted = ConnectResponse::parse(&granted).expect("a handshake");
        assert!(granted.timeout_ms > 0);
        Self(frames)
    }

    fn request(&mut self, xid: i32, opcode: i32) {
        self.0.send(&frame::request(xid, opcode));
    }

    /// The number and the error of the next reply.
    fn reply(&mut self) -> (i32, i32) {
        let body = self.0.receive().expect("a reply");
        (int(&body, 0), int(&body, 12))
    }
}

/// For a handle on the first session of a link, also before that has begun.
fn loopback_of(link: &Link) -> LoopbackListener {
    let epoch = Epoch::new(1, 7, Duration::from_secs(3600));
    link.listen(Arc::new(epoch)).expect("a port")
}

/// The crate's handshake.
fn hello(timeout: Duration) -> Vec<u8> {
    ConnectRequest {
        last_zxid_seen: 0,
        timeout_ms: i32::try_from(timeout.as_millis()).expect("fits the wire"),
        session_id: 0,
        password: vec![0; 16],
    }
    .to_frame()
}

/// A server's place.
struct FakeServer {
    listener: TcpListener,
    address: SocketAddr,
}

/// A connection that a [`FakeServer`] has taken.
struct Served(Frames);

impl FakeServer {
    /// At an address of its own. The port of a server that has gone may be given to the next one, and a
    /// link that ends by itself still dials the old one for a while, to close its session.
    fn start() -> Self {
        static STARTED: AtomicU16 = AtomicU16::new(1);
        let [high, low] = STARTED.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let [.., process] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, process, high, low);
        let listener = TcpListener::bind((address, 0)).expect("a port");
        Self::over(listener)
    }

    fn over(listener: TcpListener) -> Self {
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        Self { listener, address }
    }

    /// The next connection, if there is one already.
    fn try_accept(&self) -> Option<Frames> {
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("a socket");
                Some(Frames::new(stream))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("no connection: {error}"),
        }
    }

    /// The next connection, and what it says first.
    fn greet(&self) -> (Served, ConnectRequest) {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(mut frames) = self.try_accept() {
                // The link asks a server that has hung up on it whether it speaks TLS.
                if frames.begins_with(22) {
                    continue;
                }
                let hello = frames.receive().expect("a handshake");
                let hello = ConnectRequest::parse(&hello).expect("a handshake");
                return (Served(frames), hello);
            }
            assert!(Instant::now() < deadline, "nobody dials");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// The next connection, with a session granted to it.
    fn grant(&self, session_id: i64, timeout: Duration) -> (Served, ConnectRequest) {
        let (mut served, hello) = self.greet();
        served.grant(session_id, timeout);
        (served, hello)
    }
}

impl Served {
    fn grant(&mut self, session_id: i64, timeout: Duration) {
        let response = ConnectResponse {
            protocol: frame::PROTOCOL,
            timeout_ms: i32::try_from(timeout.as_millis()).expect("fits the wire"),
            session_id,
            password: password_of(session_id),
        };
        self.0.send(&response.to_frame());
    }

    /// Says that the session has expired.
    fn refuse_session(&mut self) {
        let response = ConnectResponse {
            protocol: frame::PROTOCOL,
            timeout_ms: 0,
            session_id: 0,
            password: vec![0; 16],
        };
        self.0.send(&response.to_frame());
    }

    /// The number and the kind of the next request.
    fn request(&mut self) -> (i32, i32) {
        let body = self.0.receive().expect("a request");
        (int(&body, 0), int(&body, 4))
    }

    fn reply(&mut self, xid: i32, err: i32) {
        self.0.send(&frame::reply(xid, err));
    }

    fn reply_with(&mut self, xid: i32, zxid: i64, body: &[u8]) {
        self.0.send(&reply_frame(xid, zxid, body));
    }

    /// Answers the request to close the session, which must come next.
    fn close_session(&mut self) {
        let (xid, opcode) = self.request();
        assert_eq!(opcode, frame::OP_CLOSE);
        self.reply(xid, frame::OK);
    }

    /// Asserts that the link hangs up; probes may come before.
    fn assert_cut(&mut self) {
        while let Some(body) = self.0.receive() {
            assert_eq!(int(&body, 4), SYNC);
        }
    }
}

/// The record that answers a sync.
fn synced() -> Vec<u8> {
    [&1_i32.to_be_bytes()[..], b"/"].concat()
}

fn password_of(session_id: i64) -> Vec<u8> {
    [session_id.to_be_bytes(), session_id.to_le_bytes()].concat()
}
