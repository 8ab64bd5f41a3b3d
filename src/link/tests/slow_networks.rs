//! A slow network is no silent server: what takes long to be sent is on its way.
//!
//! Requests once counted as overdue from the moment at which they were queued. A node's data of a
//! megabyte over 4 Mbit/s, with a timeout of 10 s, broke every connection that it was sent on.

use std::os::fd::AsFd;

use super::sharing::soon;
use super::*;
use crate::link::core::tests::{Answers, CREATE, create, created, text};

const T: Duration = Duration::from_secs(3);
/// A server that is silent for a sixth of the timeout is given up.
const PATIENCE: Duration = Duration::from_millis(500);
const LARGE: usize = 900 << 10;
/// What the network carries at once.
const SIP: usize = 8 << 10;

/// A server at the end of a network that keeps little.
pub(super) fn behind_a_narrow_network() -> FakeServer {
    let server = FakeServer::start();
    let few = rustix::net::sockopt::set_socket_recv_buffer_size(server.listener.as_fd(), SIP);
    few.expect("a socket");
    server
}

struct Stage {
    bench: Bench,
    _caller: Caller,
    served: Served,
    connection: u64,
}

struct Inbox(Sender<(Vec<Told>, Vec<u64>)>);

impl Completion for Inbox {
    fn completed(&self, answers: Vec<Answer>) {
        let (answers, events_before) = apart(answers);
        let _ = self.0.send((answers, events_before));
    }
}

impl Stage {
    fn new(server: &FakeServer, timeout: Duration) -> Self {
        let setup = Setup {
            timeout,
            ..Setup::default()
        };
        let (bench, loopback) = setup.start(&[server.address]);
        let caller = Caller::enter(loopback);
        let (served, _) = server.grant(7, timeout);
        let connection = bench.opened();
        Self {
            bench,
            _caller: caller,
            served,
            connection,
        }
    }

    fn ask(&self, request: Request) -> Result<Answers, NotSent> {
        let (sender, answers) = unbounded();
        let slot = Arc::new(Inbox(sender));
        let link = &self.bench.link;
        link.submit(self.connection, &[request], Batching::Never, slot)?;
        Ok(answers)
    }

    /// The next frame, as the network brings it: so many bytes a second.
    fn receive_slowly(&mut self, rate: usize) -> Vec<u8> {
        let mut length = [0; 4];
        self.served.0.0.read_exact(&mut length).expect("a frame");
        let length = usize::try_from(u32::from_be_bytes(length)).expect("small");
        let mut body = vec![0; length];
        let begun = Instant::now();
        let mut read = 0;
        while read < length {
            let end = length.min(read + SIP);
            self.served
                .0
                .0
                .read_exact(&mut body[read..end])
                .expect("more");
            read = end;
            // The network's own time, not a wait for anything.
            let due = Duration::from_micros((read * 1_000_000 / rate) as u64);
            while let Some(left) = due.checked_sub(begun.elapsed()) {
                std::thread::park_timeout(left);
            }
        }
        body
    }

    /// Answers a probe, which must be what came.
    fn answer_probe(&mut self, body: &[u8]) {
        assert_eq!(int(body, 4), SYNC);
        self.served.reply_with(int(body, 0), 1, &synced());
    }
}

fn large() -> Request {
    new_node("/a/n", vec![7; LARGE], CreateMode::EPHEMERAL_SEQUENTIAL)
}

/// It takes twice as long as a silent server would be waited for. Others ask meanwhile.
#[test]
fn a_large_request_on_a_slow_network_breaks_nothing() {
    let server = behind_a_narrow_network();
    let mut stage = Stage::new(&server, T);
    let large = stage.ask(large()).expect("sent");
    let small = stage.ask(create("/b/n")).expect("sent");
    let rate = LARGE * 1_000 / (2 * PATIENCE.as_millis() as usize);
    loop {
        let body = stage.receive_slowly(rate);
        if int(&body, 4) == CREATE {
            assert!(body.len() > LARGE, "in their order");
            stage.served.reply_with(int(&body, 0), 9, &text("/a/n1"));
            break;
        }
        stage.answer_probe(&body);
    }
    assert_eq!(soon(&large), [created("/a/n1")]);
    loop {
        let body = stage.receive_slowly(rate);
        if int(&body, 4) == CREATE {
            stage.served.reply_with(int(&body, 0), 9, &text("/b/n1"));
            break;
        }
        stage.answer_probe(&body);
    }
    assert_eq!(soon(&small), [created("/b/n1")]);
    assert!(stage.bench.events.is_empty(), "no break");
}

/// A server that takes all and says nothing is as silent as ever.
#[test]
fn a_server_that_took_a_large_request_and_is_silent_is_given_up() {
    let server = behind_a_narrow_network();
    let mut stage = Stage::new(&server, T);
    let answers = stage.ask(large()).expect("sent");
    while int(&stage.receive_slowly(LARGE * 4), 4) != CREATE {}
    let taken = Instant::now();
    stage.bench.suspended();
    assert!(taken.elapsed() > PATIENCE / 2, "{:?}", taken.elapsed());
    assert!(matches!(soon(&answers)[..], [Err(NoReply::Lost(_))]));
}

/// Four megabytes wait, and the server reads none of it when a probe is due.
#[test]
fn a_probe_goes_before_what_waits() {
    const EACH: usize = 40 << 10;
    const MANY: usize = 100;
    let server = behind_a_narrow_network();
    let mut stage = Stage::new(&server, 4 * T);
    let some = || new_node("/a/n", vec![7; EACH], CreateMode::EPHEMERAL_SEQUENTIAL);
    let all: Vec<_> = (0..MANY)
        .map(|_| stage.ask(some()).expect("sent"))
        .collect();
    let deadline = Instant::now() + SOON;
    let wire = Arc::clone(&stage.bench.link.wire);
    while !wire.state.lock().core.has_probe() {
        assert!(Instant::now() < deadline, "one is due");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let mut ahead = 0;
    let mut seen = 0;
    while seen < MANY {
        let body = stage.served.0.receive().expect("a request");
        if int(&body, 4) == SYNC {
            stage.answer_probe(&body);
            continue;
        }
        if stage.bench.link.wire.state.lock().core.has_probe() {
            ahead += body.len();
        }
        seen += 1;
        stage.served.reply_with(int(&body, 0), 9, &text("/a/n1"));
    }
    assert!(ahead < 1 << 20, "{ahead} bytes before the probe");
    for answers in all {
        assert_eq!(soon(&answers), [created("/a/n1")]);
    }
    assert!(stage.bench.events.is_empty(), "no break");
}

/// When it is known how slow the network is, nothing is begun that would take too long.
#[test]
fn what_would_take_too_long_is_refused_with_its_size() {
    let server = behind_a_narrow_network();
    let mut stage = Stage::new(&server, T);
    let rate = LARGE * 2 / 3;
    let first = new_node("/a/n", vec![7; LARGE / 2], CreateMode::EPHEMERAL_SEQUENTIAL);
    let first = stage.ask(first).expect("nothing is known yet");
    loop {
        let body = stage.receive_slowly(rate);
        if int(&body, 4) == CREATE {
            stage.served.reply_with(int(&body, 0), 9, &text("/a/n1"));
            break;
        }
        stage.answer_probe(&body);
    }
    assert_eq!(soon(&first), [created("/a/n1")]);
    let Err(refused) = stage.ask(large()) else {
        panic!("refused");
    };
    let NotSent::TooSlow { bytes, takes, most } = refused else {
        panic!("{refused}");
    };
    assert!(bytes > LARGE && takes > most, "{refused}");
    // What is short goes as ever.
    drop(stage.ask(create("/a/n")).expect("sent"));
    loop {
        let body = stage.served.0.receive().expect("a request");
        if int(&body, 4) == CREATE {
            break;
        }
        stage.answer_probe(&body);
    }
}

/// One that no connection lives long enough for is found out, and not sent for ever.
#[test]
fn what_breaks_connections_while_it_is_sent_is_poison() {
    let server = behind_a_narrow_network();
    let mut stage = Stage::new(&server, T);
    let mut breaks = 0;
    while breaks < 3 {
        let answers = stage.ask(large()).expect("sent");
        // The network stands still.
        let (served, _) = server.grant(7, T);
        stage.bench.suspended();
        stage.connection = stage.bench.opened();
        stage.served = served;
        let [
            Err(NoReply::Lost(Lost {
                breaks: counted,
                bytes,
                by_server: false,
            })),
        ] = soon(&answers)[..]
        else {
            panic!("lost");
        };
        assert!(bytes > LARGE);
        breaks += 1;
        assert_eq!(counted, breaks);
    }
}
