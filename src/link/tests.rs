//! The link between a scripted server and a crate of bare sockets: what no real server can be
//! made to do on demand.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::frame::{self, ConnectRequest, ConnectResponse};
use super::{AuthInfo, Backoff, Epoch, HostPort, Link, LinkConfig, LinkEvent, LinkObserver};

const T: Duration = Duration::from_secs(30);
const SESSION: i64 = 77;
const GET_DATA: i32 = 4;

/// Hears nothing.
pub(super) struct Deaf;

impl LinkObserver for Deaf {
    fn on_link(&self, _event: LinkEvent) {}
}

pub(super) fn config(hosts: Vec<HostPort>) -> LinkConfig {
    LinkConfig {
        hosts,
        session_timeout: T,
        auth: Vec::new(),
        backoff: Backoff {
            initial: Duration::from_millis(50),
            max: Duration::from_millis(200),
        },
    }
}

struct Ear(Sender<LinkEvent>);

impl LinkObserver for Ear {
    fn on_link(&self, event: LinkEvent) {
        let _ = self.0.send(event);
    }
}

/// A server that does what the test says, and nothing by itself.
struct Fake(TcpListener);

impl Fake {
    fn start() -> (Self, HostPort) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let host = "127.0.0.1".to_owned();
        (Self(listener), HostPort { host, port })
    }

    /// Takes the next connection and its handshake.
    fn accept(&self) -> (TcpStream, ConnectRequest) {
        let (mut stream, _) = self.0.accept().expect("it dials");
        stream.set_read_timeout(Some(T)).expect("a socket");
        let request = ConnectRequest::parse(&read(&mut stream)).expect("a handshake");
        (stream, request)
    }

    /// And grants what it asks for.
    fn welcome(&self) -> (TcpStream, ConnectRequest) {
        let (mut stream, request) = self.accept();
        let response = ConnectResponse {
            timeout_ms: request.timeout_ms,
            session_id: SESSION,
            password: vec![9; 16],
        };
        stream.write_all(&response.to_frame()).expect("read");
        (stream, request)
    }
}

/// The body of one frame.
fn read(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a frame");
    let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
    stream.read_exact(&mut body).expect("a frame");
    body
}

fn int(body: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(body[at..at + 4].try_into().expect("there"))
}

struct Bed {
    link: Link,
    events: Receiver<LinkEvent>,
    /// The crate's end.
    krate: TcpStream,
}

impl Bed {
    fn start(config: LinkConfig) -> Self {
        let (tell, events) = unbounded();
        let (link, gate) = Link::start(config, Arc::new(Ear(tell))).expect("a port");
        let mut krate = TcpStream::connect(gate.address().expect("open")).expect("it listens");
        krate.set_read_timeout(Some(T)).expect("a socket");
        let secret = i32::try_from(gate.secret_timeout().as_millis()).expect("an i32");
        let handshake = ConnectRequest {
            last_zxid_seen: 0,
            timeout_ms: secret,
            session_id: 0,
            password: vec![0; 16],
        };
        krate.write_all(&handshake.to_frame()).expect("read");
        gate.admit(Instant::now() + T).expect("the secret is right");
        read(&mut krate);
        Self {
            link,
            events,
            krate,
        }
    }

    fn event(&self) -> LinkEvent {
        self.events.recv_timeout(T).expect("an event")
    }

    fn connected(&self) -> (Arc<Epoch>, bool) {
        loop {
            match self.event() {
                LinkEvent::Connected { epoch, resumed } => return (epoch, resumed),
                LinkEvent::DialFailed(_) => {}
                other => panic!("not {other:?}"),
            }
        }
    }

    fn request(&mut self, xid: i32) {
        let request = frame::request(xid, GET_DATA);
        self.krate.write_all(&request).expect("read");
    }

    /// The number and the error of the next reply.
    fn reply(&mut self) -> (i32, i32) {
        let body = read(&mut self.krate);
        (int(&body, 0), int(&body, 12))
    }
}

fn reply_to(stream: &mut TcpStream, body: &[u8], zxid: i64) {
    let mut reply = frame::reply(int(body, 0), frame::OK);
    reply[8..16].copy_from_slice(&zxid.to_be_bytes());
    stream.write_all(&reply).expect("read");
}

#[test]
fn traffic_waits_until_it_is_let_through() {
    let (server, host) = Fake::start();
    let mut bed = Bed::start(config(vec![host]));
    let (mut stream, _) = server.welcome();
    let (epoch, resumed) = bed.connected();
    assert!(!resumed);
    assert_eq!(epoch.session_id(), SESSION);
    bed.request(1);
    assert_eq!(bed.reply(), (1, frame::ERR_CONNECTION_LOSS));
    bed.link.open(&epoch);
    bed.request(2);
    let request = read(&mut stream);
    assert_eq!(int(&request, 4), GET_DATA);
    reply_to(&mut stream, &request, 5);
    assert_eq!(bed.reply(), (2, frame::OK));
}

/// Everything in flight is answered, in order, before the break is reported; then the same session
/// is resumed with its password and what it has seen.
#[test]
fn a_break_is_answered_and_the_session_resumed() {
    let (server, host) = Fake::start();
    let mut bed = Bed::start(config(vec![host]));
    let (mut stream, _) = server.welcome();
    let (epoch, _) = bed.connected();
    bed.link.open(&epoch);
    bed.request(1);
    let request = read(&mut stream);
    reply_to(&mut stream, &request, 1234);
    assert_eq!(bed.reply(), (1, frame::OK));
    for xid in 2..5 {
        bed.request(xid);
        read(&mut stream);
    }
    drop(stream);
    for xid in 2..5 {
        assert_eq!(bed.reply(), (xid, frame::ERR_CONNECTION_LOSS));
    }
    assert!(matches!(bed.event(), LinkEvent::Suspended { .. }));
    let (_stream, request) = server.welcome();
    assert_eq!(request.session_id, SESSION);
    assert_eq!(request.password, [9; 16]);
    assert_eq!(request.last_zxid_seen, 1234);
    assert!(bed.connected().1);
}

#[test]
fn a_reply_out_of_order_ends_the_connection() {
    let (server, host) = Fake::start();
    let mut bed = Bed::start(config(vec![host]));
    let (mut stream, _) = server.welcome();
    let (epoch, _) = bed.connected();
    bed.link.open(&epoch);
    bed.request(1);
    bed.request(2);
    read(&mut stream);
    let second = read(&mut stream);
    reply_to(&mut stream, &second, 1);
    assert_eq!(bed.reply(), (1, frame::ERR_CONNECTION_LOSS));
    assert_eq!(bed.reply(), (2, frame::ERR_CONNECTION_LOSS));
    assert!(matches!(bed.event(), LinkEvent::Suspended { .. }));
}

/// Without a request for it, too: the crate would panic.
#[test]
fn a_reply_to_nothing_never_reaches_the_crate() {
    let (server, host) = Fake::start();
    let mut bed = Bed::start(config(vec![host]));
    let (mut stream, _) = server.welcome();
    let (epoch, _) = bed.connected();
    bed.link.open(&epoch);
    stream.write_all(&frame::reply(1, frame::OK)).expect("read");
    assert!(matches!(bed.event(), LinkEvent::Suspended { .. }));
    bed.request(7);
    assert_eq!(bed.reply(), (7, frame::ERR_CONNECTION_LOSS));
}

#[test]
fn an_expired_session_is_replaced() {
    let (server, host) = Fake::start();
    let bed = Bed::start(config(vec![host]));
    let (stream, _) = server.welcome();
    bed.connected();
    drop(stream);
    assert!(matches!(bed.event(), LinkEvent::Suspended { .. }));
    let (mut stream, request) = server.accept();
    assert_eq!(request.session_id, SESSION);
    let expired = ConnectResponse {
        timeout_ms: 0,
        session_id: 0,
        password: vec![0; 16],
    };
    stream.write_all(&expired.to_frame()).expect("read");
    assert!(matches!(bed.event(), LinkEvent::Expired { .. }));
    let (_stream, request) = server.welcome();
    assert_eq!(request.session_id, 0);
    let (epoch, resumed) = bed.connected();
    assert!(!resumed);
    assert_eq!(epoch.number(), 2);
}

/// A session that was declared lost must not come back, and its nodes should not stay until the
/// server's own clock runs out.
#[test]
fn a_lost_session_is_buried() {
    let (server, host) = Fake::start();
    let bed = Bed::start(config(vec![host]));
    let (_stream, _) = server.welcome();
    let (epoch, _) = bed.connected();
    bed.link.abandon(&epoch);
    assert!(matches!(bed.event(), LinkEvent::Suspended { .. }));
    let (mut stream, request) = server.welcome();
    assert_eq!(request.session_id, SESSION);
    assert!(matches!(bed.event(), LinkEvent::Expired { .. }));
    assert_eq!(int(&read(&mut stream), 4), frame::OP_CLOSE);
    stream.write_all(&frame::reply(1, frame::OK)).expect("read");
    let (_stream, request) = server.welcome();
    assert_eq!(request.session_id, 0);
    assert!(!bed.connected().1);
}

#[test]
fn credentials_come_before_anything_else_on_every_connection() {
    let (server, host) = Fake::start();
    let mut config = config(vec![host]);
    config.auth.push(AuthInfo {
        scheme: "digest".into(),
        bytes: b"user:secret".to_vec(),
    });
    assert!(!format!("{config:?}").contains("secret\""), "{config:?}");
    let mut bed = Bed::start(config);
    for round in 0..2 {
        let (mut stream, _) = server.welcome();
        let auth = read(&mut stream);
        assert_eq!(
            (int(&auth, 0), int(&auth, 4)),
            (frame::XID_AUTH, frame::OP_AUTH)
        );
        assert!(
            bed.events.is_empty(),
            "announced before its credentials were accepted"
        );
        let accepted = frame::reply(frame::XID_AUTH, frame::OK);
        stream.write_all(&accepted).expect("read");
        let (epoch, resumed) = bed.connected();
        assert_eq!(resumed, round > 0);
        bed.link.open(&epoch);
        bed.request(1);
        assert_eq!(int(&read(&mut stream), 4), GET_DATA);
        drop(stream);
        assert_eq!(bed.reply().1, frame::ERR_CONNECTION_LOSS);
        assert!(matches!(bed.event(), LinkEvent::Suspended { .. }));
    }
}

#[test]
fn what_is_too_long_is_refused_and_the_rest_goes_on() {
    let (server, host) = Fake::start();
    let mut bed = Bed::start(config(vec![host]));
    let (mut stream, _) = server.welcome();
    let (epoch, _) = bed.connected();
    bed.link.open(&epoch);
    let mut long = frame::request(1, GET_DATA);
    long.resize(4 + (1 << 20), 0);
    let length = i32::try_from(long.len() - 4).expect("small");
    long[..4].copy_from_slice(&length.to_be_bytes());
    bed.krate.write_all(&long).expect("read");
    assert_eq!(bed.reply(), (1, frame::ERR_BAD_ARGUMENTS));
    bed.request(2);
    let request = read(&mut stream);
    let mut reply = frame::reply(int(&request, 0), frame::OK);
    reply.resize(4 + frame::MAX_REPLY_BYTES + 1, 0);
    let length = i32::try_from(reply.len() - 4).expect("small");
    reply[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&reply).expect("read");
    assert_eq!(bed.reply(), (2, frame::ERR_MARSHALLING));
    bed.request(3);
    let request = read(&mut stream);
    reply_to(&mut stream, &request, 3);
    assert_eq!(bed.reply(), (3, frame::OK));
}

/// The crate's own pings are answered here, in their turn.
#[test]
fn pings_of_the_crate_are_answered_in_order() {
    let (server, host) = Fake::start();
    let mut bed = Bed::start(config(vec![host]));
    let (mut stream, _) = server.welcome();
    let (epoch, _) = bed.connected();
    bed.link.open(&epoch);
    bed.request(1);
    let ping = frame::request(frame::XID_PING, frame::OP_PING);
    bed.krate.write_all(&ping).expect("read");
    let request = read(&mut stream);
    reply_to(&mut stream, &request, 1);
    assert_eq!(bed.reply(), (1, frame::OK));
    assert_eq!(bed.reply(), (frame::XID_PING, frame::OK));
}

#[test]
fn closing_says_good_bye_and_ends_the_threads() {
    let (server, host) = Fake::start();
    let mut bed = Bed::start(config(vec![host]));
    let (mut stream, _) = server.welcome();
    bed.connected();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let farewell = read(&mut stream);
            assert_eq!(int(&farewell, 4), frame::OP_CLOSE);
            reply_to(&mut stream, &farewell, 1);
        });
        bed.link.close(T);
    });
    bed.request(1);
    assert_eq!(bed.reply(), (1, frame::ERR_CONNECTION_LOSS));
    let farewell = frame::request(0, frame::OP_CLOSE);
    bed.krate.write_all(&farewell).expect("read");
    assert_eq!(bed.reply(), (0, frame::OK));
    assert!(bed.link.wait_ended(Instant::now() + T));
}

/// A refused port was tried 50,000 times a second by the crate.
#[test]
fn a_refused_port_is_not_dialled_without_pause() {
    let (server, host) = Fake::start();
    drop(server);
    let bed = Bed::start(config(vec![host]));
    let begun = Instant::now();
    let mut tries = 0;
    while begun.elapsed() < Duration::from_secs(1) {
        if bed.events.recv_timeout(Duration::from_secs(1)).is_ok() {
            tries += 1;
        }
    }
    // Pauses of 100 ms on the average, after a few shorter ones.
    assert!((2..100).contains(&tries), "{tries} tries in a second");
}
