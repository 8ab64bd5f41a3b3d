//! Connections that break: who is answered, what is told, and when.

use super::*;

#[test]
fn everything_in_flight_is_answered_before_the_break_is_told() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    caller.request(1, DELETE);
    caller.request(-2, frame::OP_PING);
    caller.request(2, DELETE);
    for _ in 0..2 {
        served.request();
    }
    drop(served);
    bench.suspended();
    // All is there already: this thread was told last.
    caller.0.0.set_nonblocking(true).expect("a socket");
    assert_eq!(caller.reply(), (1, frame::ERR_CONNECTION_LOSS));
    assert_eq!(caller.reply(), (-2, 0));
    assert_eq!(caller.reply(), (2, frame::ERR_CONNECTION_LOSS));
    caller.0.0.set_nonblocking(false).expect("a socket");
    caller.request(3, DELETE);
    assert_eq!(caller.reply(), (3, frame::ERR_CONNECTION_LOSS));
}

#[test]
fn the_session_goes_on_with_another_connection() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    for zxid in [40, 42, 41] {
        caller.request(1, DELETE);
        let (xid, _) = served.request();
        served.reply_with(xid, zxid, b"");
        assert_eq!(caller.reply(), (1, 0));
    }
    drop(served);
    let epoch = bench.suspended();
    let (mut served, hello) = server.grant(7, LONG);
    assert_eq!(hello.session_id, 7);
    assert_eq!(hello.password, password_of(7));
    assert_eq!(
        hello.last_zxid_seen, 42,
        "a server that lags behind must refuse"
    );
    let (again, resumed) = bench.connected();
    assert!(resumed && Arc::ptr_eq(&epoch, &again));
    caller.request(3, DELETE);
    let (xid, _) = served.request();
    served.reply(xid, 0);
    assert_eq!(caller.reply(), (3, 0));
}

#[test]
fn another_server_is_tried_before_the_one_that_broke() {
    let servers = [
        FakeServer::start(),
        FakeServer::start(),
        FakeServer::start(),
    ];
    let next = |except: Option<usize>| {
        let deadline = Instant::now() + SOON;
        loop {
            for (index, server) in servers.iter().enumerate() {
                if let Some(frames) = server.try_accept() {
                    assert_ne!(Some(index), except, "the one that broke comes last");
                    let mut served = Served(frames);
                    served.0.receive().expect("a handshake");
                    served.grant(7, LONG);
                    return (index, served);
                }
            }
            assert!(Instant::now() < deadline, "nobody dials");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    };
    let addresses = servers.each_ref().map(|server| server.address);
    let (bench, _caller) = Setup::default().admitted(&addresses);
    let (mut current, mut served) = next(None);
    for _ in 0..10 {
        bench.connected();
        drop(served);
        bench.suspended();
        (current, served) = next(Some(current));
    }
}

#[test]
fn a_server_that_is_silent_is_given_up_in_time() {
    let timeout = Duration::from_millis(600);
    let server = FakeServer::start();
    let setup = Setup {
        timeout,
        ..Setup::default()
    };
    let (bench, mut caller, mut served) = setup.connected(&server);
    let begun = Instant::now();
    // The link probes; this server does not answer.
    caller.request(1, DELETE);
    served.request();
    assert_eq!(served.request().1, SYNC);
    assert_eq!(caller.reply(), (1, frame::ERR_CONNECTION_LOSS));
    bench.suspended();
    served.assert_cut();
    let elapsed = begun.elapsed();
    assert!(elapsed >= timeout / 6, "{elapsed:?} is too early");
    assert!(
        elapsed < timeout,
        "{elapsed:?} is too late to find another server"
    );
}

#[test]
fn probes_keep_an_idle_connection() {
    let timeout = Duration::from_secs(4);
    let server = FakeServer::start();
    let setup = Setup {
        timeout,
        ..Setup::default()
    };
    let (bench, _caller, mut served) = setup.connected(&server);
    let begun = Instant::now();
    while begun.elapsed() < timeout * 3 / 2 {
        let (xid, opcode) = served.request();
        assert_eq!(opcode, SYNC, "nothing stands");
        served.reply_with(xid, 1, &synced());
    }
    assert!(bench.events.is_empty(), "{:?}", bench.event());
}

/// Whoever answers out of turn gives one caller's answer to another.
#[test]
fn nonsense_breaks_the_connection() {
    let nonsense: [&[u8]; 4] = [
        &frame::reply(2, 0),
        &frame::reply(99, 0),
        &(-1_i32).to_be_bytes(),
        &3_i32.to_be_bytes(),
    ];
    for bytes in nonsense {
        let server = FakeServer::start();
        let (bench, mut caller, mut served) = Setup::default().connected(&server);
        caller.request(1, DELETE);
        caller.request(2, DELETE);
        for _ in 0..2 {
            served.request();
        }
        served.0.send(bytes);
        assert_eq!(caller.reply(), (1, frame::ERR_CONNECTION_LOSS));
        assert_eq!(caller.reply(), (2, frame::ERR_CONNECTION_LOSS));
        bench.suspended();
        served.assert_cut();
    }
}

/// A reply to nothing must not reach the crate: it panics.
#[test]
fn a_reply_to_nothing_is_kept_from_the_crate() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    served.reply(frame::XID_PING, 0);
    served.reply(frame::XID_AUTH, 0);
    served.reply(1, 0);
    bench.suspended();
    caller.0.assert_silent();
}

#[test]
fn a_server_that_does_not_serve_is_passed_over() {
    let servers = [FakeServer::start(), FakeServer::start()];
    let addresses = servers.each_ref().map(|server| server.address);
    let (bench, _caller) = Setup::default().admitted(&addresses[..1]);
    // It accepts, and closes at once.
    drop(servers[0].greet());
    let failure = bench.failure();
    assert!(failure.contains(&addresses[0].to_string()), "{failure}");
    assert!(failure.contains("quorum"), "{failure}");
    // One that speaks another protocol.
    let (mut served, _) = servers[0].greet();
    served.0.send(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let failure = bench.failure();
    assert!(failure.contains("protocol"), "{failure}");
    let _ = servers[0].grant(7, LONG);
    bench.connected();
}
