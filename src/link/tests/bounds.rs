//! Limits: how often is dialled, how long a close takes.

use super::*;

/// A request of half a mebibyte: a server that does not read takes few of them.
fn large(xid: i32) -> Vec<u8> {
    let length = 1 << 19;
    let mut large = i32::try_from(length).expect("fits").to_be_bytes().to_vec();
    large.extend(&frame::request(xid, 5)[4..]);
    large.resize(4 + length, 0);
    large
}

/// A port where nobody listens.
fn dead() -> SocketAddr {
    FakeServer::start().address
}

#[test]
fn refused_dials_are_paced() {
    let setup = Setup {
        backoff: Backoff {
            initial: Duration::from_millis(20),
            max: Duration::from_millis(100),
        },
        ..Setup::default()
    };
    let (bench, _caller) = setup.admitted(&[dead()]);
    let begun = Instant::now();
    let mut failures = 0;
    while let Ok(event) = bench
        .events
        .recv_timeout(Duration::from_secs(1).saturating_sub(begun.elapsed()))
    {
        assert!(matches!(event, LinkEvent::DialFailed(_)), "{event:?}");
        failures += 1;
    }
    assert!((5..200).contains(&failures), "{failures} in a second");
}

/// It greets, and hangs up: without a pause that would be thousands of sessions a second.
#[test]
fn connections_that_break_early_are_paced() {
    let setup = Setup {
        backoff: Backoff {
            initial: Duration::from_millis(20),
            max: Duration::from_millis(100),
        },
        ..Setup::default()
    };
    let server = FakeServer::start();
    let (bench, _caller) = setup.admitted(&[server.address]);
    let begun = Instant::now();
    let mut greeted = 0;
    while begun.elapsed() < Duration::from_secs(1) {
        drop(server.grant(7, LONG));
        bench.connected();
        bench.suspended();
        greeted += 1;
    }
    assert!((5..200).contains(&greeted), "{greeted} in a second");
}

#[test]
fn closing_ends_the_session_and_the_threads() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    caller.request(1, DELETE);
    let (first, _) = served.request();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| bench.link.close(SOON));
        let (xid, opcode) = served.request();
        assert_eq!(opcode, frame::OP_CLOSE);
        assert!(!closing.is_finished(), "it waits for the answer");
        served.reply(first, 0);
        served.reply(xid, 0);
        closing.join().expect("no panic");
    });
    served.assert_cut();
    assert_eq!(caller.reply(), (1, 0));
    // What the crate still says is answered, until it says good-bye.
    caller.request(2, DELETE);
    assert_eq!(caller.reply(), (2, frame::ERR_SESSION_EXPIRED));
    bench.link.close(SOON);
    caller.request(0, frame::OP_CLOSE);
    assert_eq!(caller.reply(), (0, 0));
    assert!(bench.link.wait_ended(Instant::now() + SOON));
    let told: Vec<_> = bench.events.try_iter().collect();
    assert!(
        !told.iter().any(|event| matches!(event, LinkEvent::Closed)),
        "it did not end by itself: {told:?}"
    );
}

/// The session above has given up its lease already, and callers are in flight.
#[test]
fn the_good_bye_is_said_under_load_and_without_a_lease() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    for xid in 1..=100 {
        caller.request(xid, DELETE);
    }
    for _ in 0..100 {
        served.request();
    }
    let state = bench.link.wire.state.lock();
    let epoch = Arc::clone(&state.server.as_ref().expect("connected").epoch);
    drop(state);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| bench.link.close(SOON));
        let (last, opcode) = served.request();
        assert_eq!((last, opcode), (101, frame::OP_CLOSE));
        epoch.lease().seal();
        for xid in 1..=101 {
            served.reply(xid, 0);
        }
        closing.join().expect("no panic");
    });
    for xid in 1..=100 {
        assert_eq!(caller.reply(), (xid, 0), "answered, not lost");
    }
}

/// A rolling restart: the connection is gone, and another server can end the session.
#[test]
fn closing_ends_the_session_at_any_server() {
    let server = FakeServer::start();
    let (bench, caller, served) = Setup::default().connected(&server);
    drop(served);
    bench.suspended();
    // It is in the midst of resuming when it is closed.
    let (interrupted, _) = server.greet();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| bench.link.close(SOON));
        let (mut grave, hello) = server.grant(7, LONG);
        assert_eq!((hello.session_id, hello.password), (7, password_of(7)));
        assert_eq!(hello.last_zxid_seen, 0, "any server will do");
        // One that hangs up is not the last word.
        drop(grave);
        (grave, _) = server.grant(7, LONG);
        grave.close_session();
        closing.join().expect("no panic");
    });
    drop((interrupted, caller));
    assert!(bench.link.wait_ended(Instant::now() + SOON));
}

/// The server of the connection is stuck: half of the time is for the others.
#[test]
fn a_good_bye_that_is_not_answered_is_said_elsewhere() {
    let server = FakeServer::start();
    let (bench, _caller, mut served) = Setup::default().connected(&server);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| bench.link.close(Duration::from_secs(2)));
        assert_eq!(served.request().1, frame::OP_CLOSE);
        let (mut grave, hello) = server.grant(7, LONG);
        assert_eq!(hello.session_id, 7);
        grave.close_session();
        closing.join().expect("no panic");
    });
}

#[test]
fn closing_while_no_server_is_there_is_bounded() {
    let server = FakeServer::start();
    let (bench, caller, served) = Setup::default().connected(&server);
    drop((server, served));
    bench.suspended();
    let begun = Instant::now();
    bench.link.close(Duration::from_millis(300));
    let elapsed = begun.elapsed();
    assert!(elapsed >= Duration::from_millis(300), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    drop(caller);
    assert!(bench.link.wait_ended(Instant::now() + SOON));
}

#[test]
fn closing_does_not_wait_for_a_silent_server() {
    let server = FakeServer::start();
    let (bench, caller, _served) = Setup::default().connected(&server);
    let begun = Instant::now();
    bench.link.close(Duration::from_millis(100));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    drop(caller);
    assert!(
        bench
            .link
            .wait_ended(Instant::now() + Duration::from_secs(1))
    );
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

/// A write is stuck, as the server has stopped to read: close must not get stuck behind it.
#[test]
fn closing_does_not_wait_for_a_stuck_write() {
    let server = FakeServer::start();
    let (bench, caller, _served) = Setup::default().connected(&server);
    let Caller(Frames(mut loopback)) = caller;
    for xid in 0..14 {
        loopback.write_all(&large(xid)).expect("taken");
    }
    let begun = Instant::now();
    bench.link.close(Duration::from_millis(100));
    drop(loopback);
    assert!(
        bench
            .link
            .wait_ended(Instant::now() + Duration::from_secs(1))
    );
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

/// Servers that take connections and say nothing, or break at once.
#[test]
fn closing_while_dialling_is_bounded() {
    for silent in [true, false] {
        let server = FakeServer::start();
        let address = if silent { server.address } else { dead() };
        let (bench, caller) = Setup::default().admitted(&[address]);
        let _greeted = silent.then(|| server.greet());
        let begun = Instant::now();
        bench.link.close(SOON);
        drop(caller);
        assert!(
            bench
                .link
                .wait_ended(Instant::now() + Duration::from_secs(1))
        );
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
    }
}

/// The handshake is answered while the link is being closed: the session is not left behind.
#[test]
fn a_session_that_begins_during_close_is_closed() {
    let server = FakeServer::start();
    let auth = vec![AuthInfo {
        scheme: "digest".into(),
        bytes: b"me:secret".to_vec(),
    }];
    let setup = Setup {
        auth,
        ..Setup::default()
    };
    let (bench, loopback) = setup.start(&[server.address]);
    let (mut served, _) = server.grant(7, LONG);
    served.0.receive().expect("credentials");
    // Either the wait for the answer notices, or what follows it does; only then is there an answer.
    bench.link.wire.state.lock().core.close();
    bench.link.wire.alarm.ring();
    served.reply(frame::XID_AUTH, 0);
    drop(loopback);
    assert!(bench.link.wait_ended(Instant::now() + SOON));
    assert!(bench.events.is_empty(), "{:?}", bench.event());
}

#[test]
fn dropping_a_link_ends_it() {
    let server = FakeServer::start();
    let (bench, caller, mut served) = Setup::default().connected(&server);
    let wire = Arc::clone(&bench.link.wire);
    drop((bench, caller));
    served.assert_cut();
    let deadline = Instant::now() + SOON;
    let mut state = wire.state.lock();
    while state.threads > 0 {
        assert!(!wire.changed.wait_until(&mut state, deadline).timed_out());
    }
}

/// Somebody makes a handle of the crate just then: it must find somebody who answers its good-bye.
#[test]
fn a_loopback_of_a_closed_link_lets_in_and_go() {
    let (bench, loopback) = Setup::default().start(&[dead()]);
    let address = loopback.address().expect("bound");
    bench.link.close(SOON);
    let mut late = Caller::enter(loopback);
    late.request(1, DELETE);
    assert_eq!(late.reply(), (1, frame::ERR_SESSION_EXPIRED));
    late.request(2, frame::OP_CLOSE);
    assert_eq!(late.reply(), (2, 0));
    assert!(bench.link.wait_ended(Instant::now() + SOON));
    TcpStream::connect(address).expect_err("nobody listens");
}
