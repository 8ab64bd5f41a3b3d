//! What can be done to a server: each verb has taken effect when it returns.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use zklock_protocol::{Acl, Create, CreateForm, CreateMode, Reply, Request};
use zklock_test::{ErrorCode, Loss, Op, Server, WatchKind};

use crate::wire::{Answer, Wire};

const T: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(30);

fn start() -> Server {
    Server::start().expect("loopback has a free port")
}

fn open(server: &Server) -> Wire {
    Wire::open(server.address(), T).expect("it serves")
}

fn resume(server: &Server, wire: &Wire) -> Wire {
    let session = &wire.session;
    Wire::resume(server.address(), T, session.session_id, &session.password).expect("it serves")
}

fn create(path: &str, flags: i32) -> Request {
    Request::Create(Create {
        form: CreateForm::Create,
        path: path.to_owned(),
        data: Some(Vec::new()),
        acl: [Acl::open()].into(),
        mode: CreateMode(flags),
        ttl_ms: -1,
    })
}

fn get(path: &str, watch: bool) -> Request {
    Request::GetData {
        path: path.to_owned(),
        watch,
    }
}

#[track_caller]
fn ask(wire: &mut Wire, request: &Request) -> Result<Reply, ErrorCode> {
    match wire.ask(request).expect("an answer") {
        Answer::Reply {
            error: ErrorCode::OK,
            reply,
            ..
        } => Ok(reply),
        Answer::Reply { error, .. } => Err(error),
        Answer::End => panic!("the connection has ended"),
    }
}

#[test]
fn expiring_a_session_deletes_its_nodes_and_ends_its_connection() {
    let server = start();
    let (mut holder, mut other) = (open(&server), open(&server));
    ask(&mut holder, &create("/e", 1)).expect("it is created");
    ask(&mut other, &get("/e", true)).expect("it is there");
    assert!(server.expire(holder.session.session_id));
    assert!(server.node("/e").is_none());
    assert_eq!(holder.ask(&get("/", false)).expect("no error"), Answer::End);
    ask(&mut other, &get("/", false)).expect("it serves");
    assert_eq!(other.events.len(), 1, "{:?}", other.events);
    assert!(
        !server.expire(holder.session.session_id),
        "there is none any more"
    );
    assert_eq!(resume(&server, &holder).session.session_id, 0);
}

#[test]
fn a_session_survives_a_cut_and_expires_without_a_word() {
    let server = start();
    let mut wire = open(&server);
    ask(&mut wire, &create("/e", 1)).expect("it is created");
    server.connections().cut();
    assert!(
        wire.ask(&get("/e", false))
            .map_or(true, |answer| answer == Answer::End)
    );
    let mut wire = resume(&server, &wire);
    ask(&mut wire, &get("/e", false)).expect("it is there");
    server.connections().hold();
    server.advance_clock(T + Duration::from_secs(1));
    assert!(server.node("/e").is_none());
    assert_eq!(server.sessions(), []);
}

#[test]
fn a_deaf_server_does_nothing_and_a_mute_one_does_not_say_so() {
    let server = start();
    let mut wire = open(&server);
    let one = server.connection_of(wire.session.session_id);
    one.deafen();
    let number = wire.send(&create("/late", 0)).expect("it is open");
    // Others are heard.
    ask(&mut open(&server), &create("/other", 0)).expect("it is created");
    assert_eq!(server.nodes(), ["/other"]);
    one.heal();
    assert!(matches!(wire.answer(1, number), Ok(Answer::Reply { .. })));
    assert_eq!(server.nodes(), ["/late", "/other"]);

    one.mute();
    let number = wire.send(&create("/unsaid", 0)).expect("it is open");
    assert!(server.wait_until(SOON, |server| server.node("/unsaid").is_some()));
    server.heal();
    assert!(matches!(wire.answer(1, number), Ok(Answer::Reply { .. })));
}

#[test]
fn slow_connections_take_their_time_both_ways() {
    const DELAY: Duration = Duration::from_millis(60);
    let server = start();
    let mut wire = open(&server);
    server.connections().slow(DELAY);
    let begun = Instant::now();
    ask(&mut wire, &create("/a", 0)).expect("it is created");
    assert!(begun.elapsed() >= 2 * DELAY);
    let begun = Instant::now();
    let numbers: Vec<_> = (0..20)
        .map(|_| wire.send(&get("/a", false)).expect("open"))
        .collect();
    for number in numbers {
        assert!(matches!(wire.answer(4, number), Ok(Answer::Reply { .. })));
    }
    // Latency, not a limit to the rate.
    assert!(begun.elapsed() >= 2 * DELAY && begun.elapsed() < 20 * DELAY);
}

#[test]
fn a_lost_request_is_not_done_and_a_lost_reply_is() {
    let server = start();
    let mut wire = open(&server);
    let requests = server.lose_request(Op::Create.nth(2), Loss::Silent);
    let replies = server.lose_reply(Op::Create.nth(1).with_path_containing("said"), Loss::Cut);
    ask(&mut wire, &create("/one", 0)).expect("the first passes");
    wire.send(&create("/two", 0)).expect("it is open");
    ask(&mut wire, &get("/one", false)).expect("the connection goes on");
    assert_eq!((requests.times_sprung(), replies.times_sprung()), (1, 0));
    assert!(server.node("/two").is_none());
    assert_eq!(
        wire.ask(&create("/unsaid", 0)).expect("no error"),
        Answer::End
    );
    replies.wait_until_sprung(SOON);
    assert!(server.node("/unsaid").is_some());
}

#[test]
fn what_hangs_stays_silent_until_it_is_healed() {
    let server = start();
    let mut wire = open(&server);
    let trap = server.lose_reply(Op::Create, Loss::Hang);
    wire.send(&create("/a", 0)).expect("it is open");
    trap.wait_until_sprung(SOON);
    let number = wire.send(&create("/b", 0)).expect("it is open");
    ask(&mut open(&server), &get("/a", false)).expect("others are served");
    assert!(server.node("/b").is_none());
    server.heal();
    // The reply to the first is lost; that to the second is the next.
    assert!(matches!(wire.answer(1, number), Ok(Answer::Reply { .. })));
}

#[test]
fn what_is_held_goes_on_when_it_is_released() {
    let server = start();
    let mut wire = open(&server);
    let hold = server.hold_request(Op::Create);
    let number = wire.send(&create("/a", 0)).expect("it is open");
    hold.wait_until_held(SOON);
    assert!(hold.is_held() && server.node("/a").is_none());
    hold.release();
    assert!(matches!(wire.answer(1, number), Ok(Answer::Reply { .. })));

    let hold = server.hold_reply(Op::Create);
    let first = wire.send(&create("/b", 0)).expect("it is open");
    hold.wait_until_held(SOON);
    assert!(server.node("/b").is_some());
    let second = wire.send(&get("/b", false)).expect("it is open");
    assert!(server.wait_until(SOON, |server| server.count(Op::GetData) == 1));
    hold.release();
    assert!(matches!(wire.answer(1, first), Ok(Answer::Reply { .. })));
    assert!(matches!(wire.answer(4, second), Ok(Answer::Reply { .. })));
}

#[test]
fn a_request_is_answered_with_an_error_in_place_of_being_done() {
    let server = start();
    let mut wire = open(&server);
    let trap = server.answer(Op::Create.every(), ErrorCode::THROTTLED_OP);
    for _ in 0..2 {
        assert_eq!(
            ask(&mut wire, &create("/a", 0)),
            Err(ErrorCode::THROTTLED_OP)
        );
    }
    trap.disarm();
    assert_eq!(
        ask(&mut wire, &create("/a", 0)),
        Ok(Reply::Path("/a".to_owned()))
    );
    assert_eq!(trap.times_sprung(), 2);
}

/// Whoever loses a create need not know whether it travels in a multi.
#[test]
#[should_panic(expected = "a handshake takes no error")]
fn a_handshake_is_not_answered_with_an_error() {
    start().answer(Op::Connect.every(), ErrorCode::NO_AUTH);
}

#[test]
fn the_parts_of_a_multi_count_as_what_they_are() {
    let server = start();
    let mut wire = open(&server);
    let trap = server.answer(
        Op::Create.nth(1).with_path_containing("/b"),
        ErrorCode::NO_AUTH,
    );
    let multi = Request::Multi(vec![create("/a", 0), create("/b", 0)]);
    assert_eq!(ask(&mut wire, &multi), Err(ErrorCode::NO_AUTH));
    assert_eq!(
        (
            trap.times_sprung(),
            server.count(Op::Create),
            server.count(Op::Multi)
        ),
        (1, 1, 1)
    );
}

#[test]
fn a_paused_server_goes_on_where_it_was_but_for_sessions_whose_time_is_over() {
    let server = start();
    let mut wire = open(&server);
    server.pause();
    // The system accepts it; nobody answers.
    let number = wire.send(&create("/a", 1)).expect("it is open");
    assert!(server.nodes().is_empty());
    server.resume();
    assert!(matches!(wire.answer(1, number), Ok(Answer::Reply { .. })));
    server.pause();
    wire.send(&create("/b", 0)).expect("it is open");
    server.advance_clock(T * 2);
    server.resume();
    assert!(matches!(wire.answer(1, 0), Ok(Answer::End)));
    assert!(server.nodes().is_empty(), "{:?}", server.nodes());
}

#[test]
fn times_without_an_end_end_nothing() {
    let server = start();
    assert!(server.wait_until(Duration::MAX, |_| true));
    let mut wire = open(&server);
    server.connections().slow(Duration::MAX);
    wire.send(&create("/never", 0)).expect("it is open");
    assert_eq!(server.asked().len(), 1);
    server.heal();
    server.advance_clock(Duration::MAX);
    server.advance_clock(Duration::MAX);
    assert_eq!(server.sessions(), []);
    ask(&mut open(&server), &create("/zookeeper-locks", 1)).expect("it serves");
    assert_eq!(server.nodes(), ["/zookeeper-locks"], "a user's own");
}

#[test]
fn a_multi_is_where_its_parts_are() {
    let server = start();
    let mut wire = open(&server);
    let multi = || Request::Multi([create("/a", 0), create("/b", 0)].into());
    let elsewhere = Op::Multi.every().with_path_containing("/c");
    let elsewhere = server.answer(elsewhere, ErrorCode::NO_AUTH);
    let here = Op::Multi.every().with_path_containing("/b");
    server.answer(here, ErrorCode::NO_NODE);
    assert_eq!(ask(&mut wire, &multi()), Err(ErrorCode::NO_NODE));
    assert_eq!(elsewhere.times_sprung(), 0);
}

#[test]
fn what_was_committed_survives_a_stop() {
    let server = start();
    let mut wire = open(&server);
    ask(&mut wire, &create("/kept", 0)).expect("it is created");
    ask(&mut wire, &create("/mine", 1)).expect("it is created");
    ask(&mut wire, &get("/kept", true)).expect("it is there");
    server.stop();
    let refused = TcpStream::connect(server.address()).expect_err("nobody listens");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    // Time goes on, but not for sessions: they have all of it again.
    server.restart().expect("the port was kept");
    assert_eq!(server.nodes(), ["/kept", "/mine"]);
    assert_eq!(server.watches(), []);
    let mut wire = resume(&server, &wire);
    ask(&mut wire, &get("/mine", false)).expect("the session lives");
    server.restart().expect("it is stopped first");
    assert_ne!(resume(&server, &wire).session.session_id, 0);
}

#[test]
fn a_test_can_see_everything() {
    let server = start();
    let mut wire = open(&server);
    ask(&mut wire, &create("/a", 0)).expect("it is created");
    ask(&mut wire, &create("/a/e", 1)).expect("it is created");
    ask(&mut wire, &get("/a/e", true)).expect("it is there");
    let id = wire.session.session_id;
    let node = server.node("/a/e").expect("it is there");
    assert_eq!((node.stat.ephemeral_owner, node.stat.czxid), (id, 3));
    assert_eq!(server.node("/a").expect("it is there").children, ["e"]);
    let sessions = server.sessions();
    assert_eq!(
        (sessions.len(), sessions[0].id, sessions[0].timeout),
        (1, id, T)
    );
    assert!(sessions[0].is_connected && sessions[0].left <= T + Duration::from_millis(100));
    assert_eq!(sessions[0].ephemerals, ["/a/e"]);
    let watches = server.watches();
    assert_eq!(
        (watches.len(), &*watches[0].path, watches[0].session_id),
        (1, "/a/e", id)
    );
    assert_eq!(
        (watches[0].kind, watches[0].is_persistent),
        (WatchKind::Data, false)
    );
    let asked = server.asked();
    let ops: Vec<_> = asked.iter().map(zklock_test::Asked::op).collect();
    assert_eq!(ops, [Op::Connect, Op::Create, Op::Create, Op::GetData]);
    assert_eq!((asked[2].path(), asked[2].session_id()), ("/a/e", id));
}

/// Its own thread ends with it, and its port is free.
#[test]
fn a_dropped_server_leaves_nothing() {
    let server = start();
    let address = server.address();
    let mut wire = open(&server);
    drop(server);
    assert!(
        wire.ask(&get("/", false))
            .map_or(true, |answer| answer == Answer::End)
    );
    let again = Server::builder()
        .port(address.port())
        .start()
        .expect("the port is free");
    assert_eq!(again.address(), address);
    let taken = Server::builder().port(address.port()).start();
    assert_eq!(
        taken.expect_err("it listens").kind(),
        io::ErrorKind::AddrInUse
    );
}

#[test]
fn containers_go_when_they_were_used_and_are_empty() {
    let server = start();
    let mut wire = open(&server);
    for path in ["/used", "/unused"] {
        let container = Create {
            form: CreateForm::Container,
            path: path.to_owned(),
            data: Some(Vec::new()),
            acl: [Acl::open()].into(),
            mode: CreateMode::CONTAINER,
            ttl_ms: -1,
        };
        ask(&mut wire, &Request::Create(container)).expect("it is created");
    }
    ask(&mut wire, &create("/used/a", 0)).expect("it is created");
    let minute = Duration::from_secs(60);
    server.advance_clock(minute);
    assert_eq!(server.nodes(), ["/unused", "/used", "/used/a"]);
    let mut wire = open(&server);
    let delete = Request::Delete {
        path: "/used/a".to_owned(),
        version: -1,
    };
    ask(&mut wire, &delete).expect("it is deleted");
    server.advance_clock(minute);
    assert_eq!(server.nodes(), ["/unused"]);
}
