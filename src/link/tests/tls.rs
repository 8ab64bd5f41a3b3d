//! TLS with servers that are not as they should be, and with one that does not read.

use super::super::Tls;
use super::*;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use testbed::certificates::{Authority, Certified};
use testbed::terminator::Terminator;

const LOOPBACK: &[&str] = &["127.0.0.1"];

fn trusting(authority: &Authority) -> Tls {
    Tls::pem(authority.file()).expect("a good file")
}

fn by(tls: Tls) -> Setup {
    Setup {
        tls: Some(tls),
        ..Setup::default()
    }
}

/// The server, with this certificate before it.
fn behind(server: &FakeServer, certified: &Certified) -> SocketAddr {
    Terminator::start(server.address, &certified.certificate, &certified.key).addr()
}

/// What a link says of a server with this certificate.
fn refusal(tls: Tls, certified: &Certified) -> String {
    let server = FakeServer::start();
    let address = behind(&server, certified);
    let (bench, _loopback) = by(tls).start(&[address]);
    let text = bench.failure();
    assert!(text.starts_with(&address.to_string()), "{text}");
    text
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

#[test]
fn a_certificate_that_cannot_be_accepted_is_told() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let file = ours.file().display().to_string();

    let text = refusal(trusting(&ours), &other.certify("server", LOOPBACK));
    assert_says(&text, &["certificate is not signed by any CA of", &file]);

    let text = refusal(trusting(&ours), &ours.certify_long_ago("server", LOOPBACK));
    assert_says(&text, &["certificate", "has expired", "days ago"]);

    let elsewhere = ours.certify("server", &["zk1.example", "10.0.0.1"]);
    let text = refusal(trusting(&ours), &elsewhere);
    let wanted = [
        "not for 127.0.0.1",
        "names zk1.example, 10.0.0.1:",
        "Tls::server_name",
    ];
    assert_says(&text, &wanted);
    let text = refusal(trusting(&ours).server_name("zk2.example"), &elsewhere);
    assert_says(&text, &["not for zk2.example", "zk1.example"]);

    // As people make them in one step, trusted as what they are.
    let text = refusal(trusting(&ours), &ours.certify_a_ca("server", LOOPBACK));
    assert_says(&text, &["CA:TRUE", "have it sign one for the server"]);

    let text = refusal(
        trusting(&ours),
        &ours.certify_for_clients("server", LOOPBACK),
    );
    assert_says(&text, &["not made for servers", "serverAuth"]);
}

/// Another name is asked for, or none: the certificate must be of our CA and not expired all the
/// same.
#[test]
fn the_name_can_be_another_and_its_check_left_out_but_nothing_else() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let elsewhere = ours.certify("server", &["zk1.example"]);
    for tls in [
        trusting(&ours).server_name("zk1.example"),
        trusting(&ours).dangerously_skip_host_name_check(),
    ] {
        let server = FakeServer::start();
        let (bench, _caller) = by(tls).admitted(&[behind(&server, &elsewhere)]);
        let _served = server.grant(7, LONG);
        bench.connected();
    }
    let careless = || trusting(&ours).dangerously_skip_host_name_check();
    let text = refusal(careless(), &other.certify("server", LOOPBACK));
    assert_says(&text, &["not signed"]);
    let text = refusal(careless(), &ours.certify_long_ago("server", LOOPBACK));
    assert_says(&text, &["expired"]);
}

#[test]
fn a_server_after_a_bad_one_is_taken() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let (bad, good) = (FakeServer::start(), FakeServer::start());
    let hosts = [
        behind(&bad, &other.certify("bad", LOOPBACK)),
        behind(&good, &ours.certify("good", LOOPBACK)),
    ];
    let (bench, _caller) = by(trusting(&ours)).admitted(&hosts);
    let _served = good.grant(7, LONG);
    bench.connected();
}

/// A byte now and then is no progress: the whole handshake has one limit.
#[test]
fn a_handshake_that_drips_ends_in_time() {
    let ours = Authority::new("ours");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it dials");
        // The beginning of a long record; then a part of it at a time, until it hangs up.
        let mut next: &[u8] = &[22, 3, 3, 0x3f, 0xff];
        while stream.write_all(next).is_ok() {
            next = &[2];
            std::thread::park_timeout(Duration::from_millis(10));
        }
    });
    let setup = Setup {
        timeout: Duration::from_secs(1),
        ..by(trusting(&ours))
    };
    let begun = Instant::now();
    let (bench, _loopback) = setup.start(&[address]);
    assert_says(&bench.failure(), &["no answer in time"]);
    assert!(begun.elapsed() < SOON);
}

/// Neither a server that is silent in the handshake nor one that has no TLS holds up a close.
#[test]
fn a_close_ends_a_handshake() {
    let silent = FakeServer::start();
    let ours = Authority::new("ours");
    let (bench, loopback) = by(trusting(&ours)).start(&[silent.address]);
    let deadline = Instant::now() + SOON;
    let _dialled = loop {
        if let Some(dialled) = silent.try_accept() {
            break dialled;
        }
        assert!(Instant::now() < deadline, "nobody dials");
        std::thread::park_timeout(Duration::from_millis(1));
    };
    let begun = Instant::now();
    drop(loopback);
    bench.link.close(Duration::from_secs(2));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

struct Inbox(Sender<Vec<Told>>);

impl Completion for Inbox {
    fn completed(&self, answers: Vec<Answer>) {
        let (answers, _) = apart(answers);
        // The test may have ended.
        let _ = self.0.send(answers);
    }
}

/// The server does not read. What it says is heard, and once it reads it gets everything, in order.
#[test]
fn a_full_send_window_stops_no_reader() {
    const LARGE: usize = 1 << 19;
    // More than the sockets of both sides and what stands between keep.
    const MANY: i32 = 15;
    let ours = Authority::new("ours");
    let server = FakeServer::start();
    set_socket_recv_buffer_size(&server.listener, 1 << 17).expect("a socket");
    let (bench, mut caller) =
        by(trusting(&ours)).admitted(&[behind(&server, &ours.certify("server", LOOPBACK))]);
    let (mut served, _) = server.grant(7, LONG);
    let connection = bench.opened();
    caller.request(1, DELETE);
    let (xid, _) = served.request();
    let say = || {
        let (sender, answers) = unbounded();
        let create = new_node("/a", vec![7; LARGE], CreateMode::EPHEMERAL);
        let slot = Arc::new(Inbox(sender));
        bench
            .link
            .submit(connection, &[create], Batching::Never, slot)
            .expect("open");
        answers
    };
    let all: Vec<_> = (0..MANY).map(|_| say()).collect();
    let full = || {
        let state = bench.link.wire.state.lock();
        let server = state.server.as_ref().expect("connected");
        server.full.load(std::sync::atomic::Ordering::Acquire)
    };
    // What stands between takes its time to fill.
    let deadline = Instant::now() + SOON;
    while !full() {
        assert!(Instant::now() < deadline, "all of it was taken");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    served.reply(xid, frame::OK);
    assert_eq!(caller.reply(), (1, frame::OK));
    assert!(full(), "or this proves nothing");
    for number in 1..=MANY {
        let body = served.0.receive().expect("a request");
        assert_eq!(int(&body, 0), xid + number);
        // Two bytes of path and their length, and the length of the data.
        assert!(body[18..18 + LARGE].iter().all(|byte| *byte == 7));
        served.reply_with(xid + number, 1, &[0, 0, 0, 2, b'/', b'a']);
    }
    for answers in all {
        answers.recv_timeout(SOON).expect("an answer");
    }
}

/// More than one read of the socket, and than one record, holds.
#[test]
fn replies_come_whole_and_in_order() {
    let ours = Authority::new("ours");
    let server = FakeServer::start();
    let (bench, mut caller) =
        by(trusting(&ours)).admitted(&[behind(&server, &ours.certify("server", LOOPBACK))]);
    let (mut served, _) = server.grant(7, LONG);
    bench.opened();
    for number in 0..200 {
        caller.request(number, DELETE);
        let (xid, _) = served.request();
        let body = vec![7; 1 << (number % 20)];
        served.reply_with(xid, 1, &body);
        let reply = caller.0.receive().expect("a reply");
        assert_eq!(int(&reply, 0), number);
        assert_eq!(reply.len(), frame::REPLY_HEADER_BYTES + body.len());
    }
}
