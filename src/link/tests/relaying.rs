//! What goes through while a connection stands.

use super::*;

#[test]
fn requests_and_replies_keep_their_order_and_numbers() {
    let server = FakeServer::start();
    let (_bench, mut caller, mut served) = Setup::default().connected(&server);
    // The crate's numbers wrap around to those that stand for events and pings.
    for xid in [5, i32::MAX, -1, -2] {
        caller.request(xid, DELETE);
    }
    let ours: Vec<_> = (0..4).map(|_| served.request()).collect();
    assert_eq!(ours, [(1, 2), (2, 2), (3, 2), (4, 2)]);
    for (xid, _) in ours {
        served.reply_with(xid, 10, b"data");
    }
    assert_eq!(caller.reply(), (5, 0));
    assert_eq!(caller.reply(), (i32::MAX, 0));
    for _ in 0..2 {
        let (number, _) = caller.reply();
        assert!(number >= 0, "{number} is an event or a ping to the crate");
    }
}

#[test]
fn frames_that_come_together_go_out_together() {
    let server = FakeServer::start();
    let (_bench, mut caller, mut served) = Setup::default().connected(&server);
    let many: Vec<u8> = (1..=1000)
        .flat_map(|xid| frame::request(xid, DELETE))
        .collect();
    // In parts that end within frames.
    for part in many.chunks(1001) {
        caller.0.send(part);
    }
    let replies: Vec<u8> = (1..=1000)
        .flat_map(|wanted| {
            let (xid, _) = served.request();
            assert_eq!(xid, wanted);
            frame::reply(xid, -101)
        })
        .collect();
    for part in replies.chunks(999) {
        served.0.send(part);
    }
    for xid in 1..=1000 {
        assert_eq!(caller.reply(), (xid, -101));
    }
}

/// Each with its number, and none to the crate, whose calls leave no watches.
#[test]
fn watch_events_are_told_in_their_order() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    caller.request(1, DELETE);
    let (xid, _) = served.request();
    let event = frame::watch_event(2, b"/a");
    let unknown = frame::watch_event(99, b"/a");
    let other = frame::watch_event(4, b"/b");
    served
        .0
        .send(&[event, unknown, frame::reply(xid, 0), other].concat());
    let told = || bench.nodes.recv_timeout(SOON).expect("an event");
    assert_eq!(told(), (EventKind::NodeDeleted, "/a".to_owned(), 1));
    assert_eq!(told(), (EventKind::NodeChildrenChanged, "/b".to_owned(), 2));
    assert_eq!(caller.reply(), (1, 0));
    caller.0.assert_silent();
}

#[test]
fn pings_and_credentials_of_the_crate_are_answered_here_when_it_is_their_turn() {
    let server = FakeServer::start();
    let (_bench, mut caller, mut served) = Setup::default().connected(&server);
    caller.request(1, DELETE);
    caller.request(-2, frame::OP_PING);
    caller.request(-4, frame::OP_AUTH);
    caller.request(2, DELETE);
    let (first, _) = served.request();
    let (second, opcode) = served.request();
    assert_eq!(opcode, DELETE, "the others are not forwarded");
    caller.0.assert_silent();
    served.reply(first, 0);
    assert_eq!(caller.reply(), (1, 0));
    assert_eq!(caller.reply(), (-2, 0));
    assert_eq!(caller.reply().1, frame::ERR_UNIMPLEMENTED);
    served.reply(second, 0);
    assert_eq!(caller.reply(), (2, 0));
}

#[test]
fn nothing_passes_before_there_is_a_session() {
    let server = FakeServer::start();
    let (bench, mut caller) = Setup::default().admitted(&[server.address]);
    caller.request(1, DELETE);
    assert_eq!(caller.reply(), (1, frame::ERR_CONNECTION_LOSS));
    let (mut served, _) = server.grant(7, LONG);
    bench.connected();
    caller.request(2, DELETE);
    let (xid, _) = served.request();
    served.reply(xid, 0);
    assert_eq!(caller.reply(), (2, 0));
}

/// The server would drop the connection, and everybody's calls with it.
#[test]
fn a_request_that_is_too_long_is_refused_here() {
    let server = FakeServer::start();
    let (_bench, mut caller, mut served) = Setup::default().connected(&server);
    let length = frame::MAX_REQUEST_BYTES + 1;
    let mut long = i32::try_from(length).expect("fits").to_be_bytes().to_vec();
    long.extend(&frame::request(2, 5)[4..]);
    long.resize(4 + length, 0);
    let (most, last) = long.split_at(length);
    caller.request(1, DELETE);
    caller.0.send(most);
    let (xid, _) = served.request();
    served.reply(xid, 0);
    assert_eq!(caller.reply(), (1, 0));
    // The crate panics when the answer comes before it has sent everything.
    caller.0.assert_silent();
    caller.0.send(last);
    assert_eq!(caller.reply(), (2, frame::ERR_BAD_ARGUMENTS));
    // The longest that the server takes goes through.
    let length = frame::MAX_REQUEST_BYTES;
    let mut longest = i32::try_from(length).expect("fits").to_be_bytes().to_vec();
    longest.extend(&frame::request(3, 5)[4..]);
    longest.resize(4 + length, 0);
    caller.0.send(&longest);
    assert_eq!(served.0.receive().map(|body| body.len()), Some(length));
}

#[test]
fn a_reply_that_is_too_long_is_an_error_for_its_caller_alone() {
    let server = FakeServer::start();
    let (_bench, mut caller, mut served) = Setup::default().connected(&server);
    for xid in 1..=3 {
        caller.request(xid, DELETE);
    }
    let ours: Vec<_> = (0..3).map(|_| served.request().0).collect();
    served.reply_with(ours[0], 1, &vec![0; 1 << 20]);
    served.reply_with(ours[1], 2, &vec![0; frame::MAX_REPLY_BYTES]);
    served.reply_with(ours[2], 3, b"");
    assert_eq!(caller.reply(), (1, 0));
    assert_eq!(caller.reply(), (2, frame::ERR_MARSHALLING));
    assert_eq!(caller.reply(), (3, 0));
}

/// Once the session was closed with it.
#[test]
fn the_end_of_the_crate_is_its_own() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    // A panic of its thread closes the stream, with a request that is still to be answered.
    caller.request(1, DELETE);
    let (first, _) = served.request();
    drop(caller);
    let answers = bench.say(1, &[Request::Sync { path: "/".into() }]);
    let (second, _) = served.request();
    served.reply(first, 0);
    served.reply_with(second, 1, &synced());
    let answers = answers.recv_timeout(SOON).expect("told");
    assert!(matches!(answers[..], [Ok(_)]), "{answers:?}");
    assert!(bench.events.is_empty(), "{:?}", bench.event());
}

/// Once it took everybody's answers along.
#[test]
fn the_good_bye_of_the_crate_is_its_own() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    let answers = bench.say(1, &[Request::Sync { path: "/".into() }]);
    caller.request(1, frame::OP_CLOSE);
    let (xid, _) = served.request();
    caller.0.assert_silent();
    served.reply_with(xid, 1, &synced());
    assert_eq!(caller.reply(), (1, 0));
    let answers = answers.recv_timeout(SOON).expect("told");
    assert!(matches!(answers[..], [Ok(_)]), "{answers:?}");
    served.0.assert_silent();
}

/// Not that of an overloaded server, by which the crate would hear that it was not done.
#[test]
fn a_request_of_which_a_server_has_lost_track_is_lost() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    caller.request(1, DELETE);
    caller.request(2, DELETE);
    let (xid, _) = served.request();
    served.request();
    served.reply(xid, frame::ERR_OPERATION_TIMEOUT);
    for number in [1, 2] {
        assert_eq!(caller.reply(), (number, frame::ERR_CONNECTION_LOSS));
    }
    bench.suspended();
}

/// An overloaded server's refusal; the crate would call it unimplemented.
#[test]
fn a_refusal_for_overload_has_a_word_that_the_crate_knows() {
    let server = FakeServer::start();
    let (_bench, mut caller, mut served) = Setup::default().connected(&server);
    caller.request(1, DELETE);
    let (xid, _) = served.request();
    served.reply(xid, frame::ERR_THROTTLED);
    assert_eq!(caller.reply(), (1, frame::ERR_OPERATION_TIMEOUT));
}

/// A server that does not read must not keep the crate from being read: what its loopback stream
/// does not take at once, the crate drops.
#[test]
fn the_crate_is_read_though_the_server_does_not_read() {
    let server = FakeServer::start();
    let (bench, mut caller, served) = Setup::default().connected(&server);
    let length = 1 << 19;
    let mut large = i32::try_from(length).expect("fits").to_be_bytes().to_vec();
    large.extend(&frame::request(1, 5)[4..]);
    large.resize(4 + length, 0);
    caller.0.0.set_write_timeout(Some(SOON)).expect("a socket");
    for _ in 0..15 {
        caller.0.send(&large);
    }
    // Its good-bye comes last.
    caller.request(2, frame::OP_CLOSE);
    let deadline = Instant::now() + SOON;
    while bench.link.wire.state.lock().core.unanswered() < 16 {
        assert!(Instant::now() < deadline, "it is not read");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    drop(served);
    // What was more than a handle may have waiting was not sent.
    let mut not_sent = 0;
    for _ in 0..15 {
        match caller.reply() {
            (1, frame::ERR_CONNECTION_LOSS) => {}
            (1, frame::ERR_OPERATION_TIMEOUT) => not_sent += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!((1..15).contains(&not_sent), "{not_sent}");
    assert_eq!(caller.reply(), (2, 0));
}

/// The crate's socket holds the second request back until the first is acknowledged, and the server
/// answers neither yet.
#[test]
#[cfg(target_os = "linux")]
fn a_request_does_not_wait_for_the_acknowledgement_of_the_one_before() {
    const ROUNDS: i32 = 100;
    /// What the kernel puts an acknowledgement off for.
    const DELAY: Duration = Duration::from_millis(40);
    let server = FakeServer::start();
    let (_bench, mut caller, mut served) = Setup::default().connected(&server);
    caller.0.0.set_nodelay(false).expect("a socket");
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let numbers = [2 * round + 1, 2 * round + 2];
        for number in numbers {
            caller.request(number, DELETE);
        }
        for number in numbers {
            assert_eq!(served.request().0, number);
        }
        for number in numbers {
            served.reply(number, 0);
            assert_eq!(caller.reply(), (number, 0));
        }
    }
    let elapsed = begun.elapsed();
    assert!(elapsed < DELAY * ROUNDS.unsigned_abs() / 2, "{elapsed:?}");
}
