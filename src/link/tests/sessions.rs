//! Sessions that end, and what comes before the first request of a connection.

use super::*;

fn credentials(scheme: &str, secret: &str) -> Setup {
    Setup {
        auth: vec![AuthInfo {
            scheme: scheme.into(),
            bytes: secret.into(),
        }],
        ..Setup::default()
    }
}

#[test]
fn credentials_are_not_shown() {
    let auth = format!("{:?}", credentials("digest", "me:secret").auth);
    assert!(auth.contains("digest"), "{auth}");
    for shown in ["me:secret".to_owned(), format!("{:?}", b"me:secret")] {
        assert!(!auth.contains(&shown), "{auth}");
    }
}

#[test]
fn credentials_come_first_on_every_connection() {
    let server = FakeServer::start();
    let (bench, mut caller) = credentials("digest", "me:secret").admitted(&[server.address]);
    for number in 1..=3 {
        let (mut served, _) = server.grant(7, LONG);
        let auth = served.0.receive().expect("credentials");
        let wanted = frame::auth_request("digest", b"me:secret");
        assert_eq!(auth, wanted[4..]);
        // Nothing is told, and nothing passes, before they are accepted.
        caller.request(1, DELETE);
        assert_eq!(caller.reply(), (1, frame::ERR_CONNECTION_LOSS));
        assert!(bench.events.is_empty());
        served.reply(frame::XID_AUTH, 0);
        let (_, resumed) = bench.connected();
        assert_eq!(resumed, number > 1);
        caller.request(2, DELETE);
        let (xid, _) = served.request();
        served.reply(xid, 0);
        assert_eq!(caller.reply(), (2, 0));
        drop(served);
        bench.suspended();
    }
}

#[test]
fn refused_credentials_are_told_and_not_tried_again() {
    let server = FakeServer::start();
    let (bench, mut caller) = credentials("digest", "me:wrong").admitted(&[server.address]);
    let (mut served, _) = server.grant(7, LONG);
    served.0.receive().expect("credentials");
    served.reply(frame::XID_AUTH, -115);
    match bench.event() {
        LinkEvent::AuthFailed { scheme } => assert_eq!(scheme, "digest"),
        other => panic!("{other:?}"),
    }
    caller.request(1, DELETE);
    assert_eq!(caller.reply(), (1, frame::ERR_CONNECTION_LOSS));
    assert!(bench.events.is_empty());
    bench.link.close(Duration::from_millis(100));
    drop(caller);
    assert!(bench.link.wait_ended(Instant::now() + SOON));
}

/// The connection of a new session breaks while the credentials are presented: nobody has heard of
/// the session yet, so going on with it is no resumption.
#[test]
fn a_session_is_new_until_it_has_been_announced() {
    let server = FakeServer::start();
    let (bench, _caller) = credentials("digest", "me:secret").admitted(&[server.address]);
    drop(server.grant(7, LONG));
    let (mut served, hello) = server.grant(7, LONG);
    assert_eq!(hello.session_id, 7, "no session is left behind");
    served.0.receive().expect("credentials");
    served.reply(frame::XID_AUTH, 0);
    let (epoch, resumed) = bench.connected();
    assert!(!resumed);
    assert_eq!((epoch.number(), epoch.session_id()), (1, 7));
}

#[test]
fn a_session_that_the_server_has_expired_is_followed_by_a_new_one() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    caller.request(1, DELETE);
    let (xid, _) = served.request();
    served.reply_with(xid, 42, b"");
    assert_eq!(caller.reply(), (1, 0));
    drop(served);
    bench.suspended();
    let (mut served, hello) = server.greet();
    assert_eq!(hello.session_id, 7);
    served.refuse_session();
    let over = bench.expired();
    assert_eq!((over.number(), over.lease().ends()), (1, None));
    let (_served, hello) = server.grant(8, LONG);
    assert_eq!(hello.session_id, 0);
    assert_eq!(hello.last_zxid_seen, 0, "a new session has seen nothing");
    let (epoch, resumed) = bench.connected();
    assert!(!resumed);
    assert_eq!((epoch.number(), epoch.session_id()), (2, 8));
}

#[test]
fn an_abandoned_session_is_closed_at_the_server_and_never_resumed() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    let (_, epoch) = {
        caller.request(1, DELETE);
        served.request();
        let state = bench.link.wire.state.lock();
        let server = state.server.as_ref().expect("connected");
        ((), Arc::clone(&server.epoch))
    };
    bench.link.abandon(&epoch);
    assert_eq!(caller.reply(), (1, frame::ERR_CONNECTION_LOSS));
    assert_eq!(bench.suspended().number(), 1);
    assert_eq!(bench.expired().number(), 1);
    served.assert_cut();
    let (mut grave, hello) = server.grant(7, LONG);
    assert_eq!((hello.session_id, hello.password), (7, password_of(7)));
    grave.close_session();
    let (_served, hello) = server.grant(8, LONG);
    assert_eq!(hello.session_id, 0);
    let (epoch, resumed) = bench.connected();
    assert!(!resumed);
    assert_eq!(epoch.number(), 2);
}

/// The lease runs out while no server answers: that is told then and not when a server is back.
#[test]
fn the_end_of_the_lease_is_told_while_there_is_no_server() {
    let timeout = Duration::from_millis(300);
    let server = FakeServer::start();
    let setup = Setup {
        timeout,
        ..Setup::default()
    };
    let (bench, _caller, served) = setup.connected(&server);
    let FakeServer { listener, address } = server;
    drop((listener, served));
    bench.suspended();
    let epoch = bench.expired();
    assert_eq!(epoch.lease().ends(), None);
    // It is not resumed when the server is back, although that would.
    let server = FakeServer::over(TcpListener::bind(address).expect("was ours"));
    let (mut grave, hello) = server.grant(7, timeout);
    assert_eq!(hello.session_id, 7);
    grave.close_session();
    let (_served, hello) = server.grant(8, timeout);
    assert_eq!(hello.session_id, 0);
    assert_eq!(bench.connected().0.number(), 2);
}

/// The resuming handshake is under way when the lease runs out.
#[test]
fn a_handshake_that_comes_too_late_does_not_bring_the_session_back() {
    let server = FakeServer::start();
    let (bench, _caller, served) = Setup::default().connected(&server);
    drop(served);
    let epoch = bench.suspended();
    let (mut late, _) = server.greet();
    epoch.lease().seal();
    late.grant(7, LONG);
    assert_eq!(bench.expired().number(), 1);
    late.close_session();
    let (_served, hello) = server.grant(8, LONG);
    assert_eq!(hello.session_id, 0);
    assert_eq!(bench.connected().0.number(), 2);
}

/// A grave that keeps silent must not keep the next session waiting for longer than one dial.
#[test]
fn a_session_that_cannot_be_closed_does_not_hold_up_the_next() {
    let server = FakeServer::start();
    let (bench, _caller, served) = Setup::default().connected(&server);
    drop(served);
    let epoch = bench.suspended();
    let (refuser, _) = server.greet();
    bench.link.abandon(&epoch);
    drop(refuser);
    bench.expired();
    // An address that hangs up is dialled again, until somebody can say what is with the session.
    for _ in 0..3 {
        let (_, hello) = server.greet();
        assert_eq!(hello.session_id, 7);
    }
    let (_silent, hello) = server.greet();
    assert_eq!(hello.session_id, 7);
    let (_served, hello) = server.grant(8, LONG);
    assert_eq!(hello.session_id, 0);
    assert_eq!(bench.connected().0.number(), 2);
}

/// The server expires the session after what it has granted last: the lease is as short from then
/// on, and the next resume asks for no more.
#[test]
fn a_session_with_a_shorter_timeout_goes_on_with_a_shorter_lease() {
    let server = FakeServer::start();
    let (bench, _caller, served) = Setup::default().connected(&server);
    drop(served);
    bench.suspended();
    let (shorter, _) = server.grant(7, LONG / 2);
    let (epoch, resumed) = bench.connected();
    assert!(resumed);
    assert_eq!(epoch.lease().timeout(), LONG / 2);
    let lease = epoch.lease();
    assert!(lease.ends().expect("alive").since(epoch.now()) < LONG / 2);
    drop(shorter);
    let (_served, hello) = server.grant(7, LONG / 2);
    assert_eq!(i64::from(hello.timeout_ms), 30_000);
}

/// An answer that says that the session is over proves nothing for the lease.
#[test]
fn an_expired_session_renews_no_lease() {
    for err in [frame::ERR_SESSION_EXPIRED, frame::ERR_SESSION_MOVED] {
        let server = FakeServer::start();
        let (bench, mut caller, mut served) = Setup::default().connected(&server);
        let state = bench.link.wire.state.lock();
        let epoch = Arc::clone(&state.server.as_ref().expect("connected").epoch);
        drop(state);
        let before = epoch.lease().ends();
        caller.request(1, DELETE);
        let (xid, _) = served.request();
        served.reply(xid, err);
        assert_eq!(caller.reply(), (1, err));
        bench.suspended();
        assert_eq!(epoch.lease().ends(), before);
        // The next handshake tells what is with it.
        let (_served, hello) = server.grant(7, LONG);
        assert_eq!(hello.session_id, 7);
        assert!(bench.connected().1);
    }
}

/// A process that was stopped goes on: the connection is fine, the session was declared lost.
#[test]
fn a_sealed_lease_wins_over_a_connection_that_stands() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    let state = bench.link.wire.state.lock();
    let epoch = Arc::clone(&state.server.as_ref().expect("connected").epoch);
    drop(state);
    caller.request(1, DELETE);
    let (xid, _) = served.request();
    epoch.lease().seal();
    served.reply(xid, 0);
    assert_eq!(caller.reply(), (1, 0));
    bench.suspended();
    bench.expired();
    served.assert_cut();
}

/// ClickHouse Keeper does not resume: it grants a new session instead. Its nodes are not ours.
#[test]
fn another_session_than_ours_is_never_taken_for_ours() {
    let server = FakeServer::start();
    let (bench, _caller, served) = Setup::default().connected(&server);
    drop(served);
    bench.suspended();
    let (mut stranger, hello) = server.grant(8, LONG);
    assert_eq!(hello.session_id, 7);
    let over = bench.expired();
    assert_eq!((over.session_id(), over.lease().ends()), (7, None));
    // Nobody wants that one: it is closed, not left behind.
    stranger.close_session();
    let (_served, hello) = server.grant(9, LONG);
    assert_eq!(hello.session_id, 0);
    let (epoch, resumed) = bench.connected();
    assert!(!resumed);
    assert_eq!((epoch.number(), epoch.session_id()), (2, 9));
}

/// ClickHouse Keeper refuses a connection with version 42, and with what would mean in version 0
/// that the session has expired.
#[test]
fn an_unknown_protocol_says_nothing_about_the_session() {
    let server = FakeServer::start();
    let (bench, _caller, served) = Setup::default().connected(&server);
    drop(served);
    bench.suspended();
    let (mut refusing, _) = server.greet();
    let refusal = ConnectResponse {
        protocol: 42,
        timeout_ms: 0,
        session_id: 0,
        password: vec![0; 16],
    };
    refusing.0.send(&refusal.to_frame());
    let failure = bench.failure();
    assert!(failure.contains("42"), "{failure}");
    let (_served, hello) = server.grant(7, LONG);
    assert_eq!(hello.session_id, 7, "the session goes on");
    assert!(bench.connected().1);
}

#[test]
fn a_session_without_a_number_is_none() {
    let server = FakeServer::start();
    let (bench, _loopback) = Setup::default().start(&[server.address]);
    let _nobody = server.grant(0, LONG);
    let failure = bench.failure();
    assert!(failure.contains("without a number"), "{failure}");
    let _served = server.grant(7, LONG);
    assert_eq!(bench.connected().0.session_id(), 7);
}

/// The next server to be dialled, which grants session 7 and answers the credentials so.
fn present(servers: &[FakeServer], err: i32) -> (&FakeServer, Served) {
    let deadline = Instant::now() + SOON;
    loop {
        for server in servers {
            if let Some(frames) = server.try_accept() {
                let mut served = Served(frames);
                served.0.receive().expect("a handshake");
                served.grant(7, LONG);
                served.0.receive().expect("credentials");
                served.reply(frame::XID_AUTH, err);
                return (server, served);
            }
        }
        assert!(Instant::now() < deadline, "nobody dials");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// One of the servers has lost the credentials' scheme from its configuration.
#[test]
fn credentials_that_one_server_refuses_are_tried_at_the_others() {
    let servers = [FakeServer::start(), FakeServer::start()];
    let addresses = servers.each_ref().map(|server| server.address);
    let (bench, _caller) = credentials("digest", "me:secret").admitted(&addresses);
    let (first, served) = present(&servers, 0);
    bench.connected();
    drop(served);
    bench.suspended();
    let (second, _refused) = present(&servers, frame::ERR_AUTH_FAILED);
    assert_ne!(first.address, second.address);
    let failure = bench.failure();
    assert!(failure.contains("refused the credentials"), "{failure}");
    let (third, _served) = present(&servers, 0);
    assert_eq!(first.address, third.address);
    assert!(bench.connected().1);
}

#[test]
fn credentials_that_all_servers_refuse_are_wrong() {
    let server = FakeServer::start();
    let (bench, _caller) = credentials("digest", "me:secret").admitted(&[server.address]);
    let present = |err| {
        let (mut served, hello) = server.grant(7, LONG);
        served.0.receive().expect("credentials");
        served.reply(frame::XID_AUTH, err);
        (served, hello)
    };
    let (served, _) = present(0);
    bench.connected();
    drop(served);
    bench.suspended();
    // It is the only server.
    let _refused = present(-115);
    let failure = bench.failure();
    assert!(failure.contains("refused the credentials"), "{failure}");
    assert!(matches!(bench.event(), LinkEvent::AuthFailed { .. }));
}
