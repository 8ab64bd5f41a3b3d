//! Handles of the crate over breaks: their watches, and what breaks connections.

use std::collections::HashSet;

use zklock_protocol::{Reader, SetWatches};

use super::probes::{checked, epoch_of, next_check, stands};
use super::slow_networks::behind_a_narrow_network;
use super::*;
use crate::link::core::packet;

/// Of the transaction that the session has seen when the watches were left.
const SEEN: i64 = 10;
/// Of a later one.
const LATER: i64 = 20;
const SET_DATA: i32 = 5;

impl Caller {
    fn ask(&mut self, xid: i32, request: &Request) {
        let mut frame = Vec::new();
        packet::encode(request, &mut frame, frame::MAX_REQUEST_BYTES).expect("short");
        frame::set_xid(&mut frame, xid);
        self.0.send(&frame);
    }

    /// Looks at a node that is not there.
    pub(super) fn watch(&mut self, served: &mut Served, path: &str) {
        let path = path.to_owned();
        self.ask(1, &Request::Exists { path, watch: true });
        let (xid, _) = next(served);
        let mut reply = reply_frame(xid, SEEN, b"");
        reply[16..20].copy_from_slice(&ErrorCode::NO_NODE.0.to_be_bytes());
        served.0.send(&reply);
        assert_eq!(self.reply(), (1, ErrorCode::NO_NODE.0));
    }

    /// The path of the next event, by which the handle looks at its data.
    fn changed(&mut self) -> String {
        let body = self.0.receive().expect("an event");
        assert_eq!(int(&body, 0), frame::XID_WATCH);
        let (event, path) = frame::node_event(&body).expect("of a node");
        assert_eq!(event, EventKind::NodeDataChanged);
        path.to_owned()
    }
}

/// The number and the body of the next request that is no probe.
fn next(served: &mut Served) -> (i32, Vec<u8>) {
    loop {
        let body = served.0.receive().expect("a request");
        let (xid, record) = match int(&body, 4) {
            MULTI => (int(&body, 0), checked(0)),
            SYNC => (int(&body, 0), synced()),
            _ => return (int(&body, 0), body),
        };
        served.reply_with(xid, LATER, &record);
    }
}

/// The next request that is no probe: it leaves watches again.
fn left_again(served: &mut Served) -> (i32, SetWatches) {
    let (xid, body) = next(served);
    (xid, watches_in(&body))
}

fn watches_in(body: &[u8]) -> SetWatches {
    match Request::read(int(body, 4), &mut Reader::new(&body[8..])) {
        Ok(Request::SetWatches(watches)) => watches,
        other => panic!("watches expected, got {other:?}"),
    }
}

/// The link has seen this transaction.
fn wait_for(bench: &Bench, zxid: i64) {
    let deadline = Instant::now() + SOON;
    while bench.link.wire.state.lock().core.last_zxid() != zxid {
        assert!(Instant::now() < deadline, "not seen");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// As one with a small `jute.maxbuffer` does. If the request were repeated on every connection, the
/// session would be lost, and all locks with it.
#[test]
fn what_a_server_hangs_up_on_is_not_left_again_but_told() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    let _node = stands(&epoch_of(&bench), "/held");
    for round in 1..=4 {
        caller.watch(&mut served, "/a");
        drop(served);
        bench.suspended();
        // Not at all, when three such have been in vain in a row.
        if round <= 3 {
            let (mut again, _) = server.grant(7, LONG);
            bench.connected();
            let (_, watches) = left_again(&mut again);
            assert_eq!(watches.exist, ["/a"]);
            // Perhaps before it has answered the probe.
            wait_for(&bench, LATER);
            caller.0.assert_silent();
            drop(again);
            bench.suspended();
        }
        (served, _) = server.grant(7, LONG);
        bench.connected();
        assert_eq!(caller.changed(), "/a");
    }
    // What it hangs up on is not held against others.
    caller.watch(&mut served, "/other");
    drop(served);
    bench.suspended();
    let (mut served, _) = server.grant(7, LONG);
    bench.connected();
    let (xid, watches) = left_again(&mut served);
    assert_eq!(watches.exist, ["/other"]);
    assert_eq!(watches.relative_zxid, LATER);
    served.reply_with(xid, LATER, b"");
    caller.0.assert_silent();
}

/// All at once they would be more than a megabyte ahead of the next probe. The server answers the first
/// probe, and so has seen more than when the nodes may have changed, and hangs up before it has been
/// sent all of the watches.
#[test]
fn many_watches_are_left_again_bit_by_bit_and_each_or_its_change_is_told() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    let paths: HashSet<_> = (0..160).map(|one| format!("/{one:08000}")).collect();
    for path in &paths {
        caller.watch(&mut served, path);
    }
    let _node = stands(&epoch_of(&bench), "/held");
    drop(served);
    bench.suspended();
    let (mut served, _) = server.grant(7, LONG);
    bench.connected();
    let waits = || bench.link.wire.state.lock().core.holds_any();
    assert!(waits(), "the server takes nothing yet");
    let (xid, _) = next_check(&mut served);
    served.reply_with(xid, LATER, &checked(0));
    wait_for(&bench, LATER);
    assert!(waits(), "the server has taken the probe alone");
    drop(served);
    bench.suspended();
    let (mut served, _) = server.grant(7, LONG);
    bench.connected();
    // Behind them.
    caller.request(1, DELETE);
    let mut left = HashSet::new();
    loop {
        let (xid, body) = next(&mut served);
        served.reply_with(xid, LATER, b"");
        if int(&body, 4) == DELETE {
            break;
        }
        assert!(body.len() < 17 << 10, "{}", body.len());
        let watches = watches_in(&body);
        assert_eq!(watches.relative_zxid, SEEN);
        left.extend(watches.exist);
    }
    let mut told = HashSet::new();
    loop {
        let body = caller.0.receive().expect("a frame");
        match frame::node_event(&body) {
            Some((_, path)) if int(&body, 0) == frame::XID_WATCH => told.insert(path.to_owned()),
            _ => break,
        };
    }
    assert!(!left.is_empty() && !told.is_empty());
    assert!(left.is_disjoint(&told));
    assert_eq!(&left | &told, paths);
}

/// It was told so, and asks again all the same.
#[test]
fn what_broke_three_connections_is_not_sent_again() {
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    for breaks in 1..=3 {
        caller.request(breaks, DELETE);
        assert_eq!(served.request().1, DELETE);
        drop(served);
        let told = match breaks {
            3 => frame::ERR_MARSHALLING,
            _ => frame::ERR_CONNECTION_LOSS,
        };
        assert_eq!(caller.reply(), (breaks, told));
        bench.suspended();
        (served, _) = server.grant(7, LONG);
        bench.connected();
    }
    caller.request(4, DELETE);
    caller.request(5, SET_DATA);
    let (xid, opcode) = served.request();
    assert_eq!(opcode, SET_DATA, "what is refused here goes nowhere");
    served.reply(xid, ErrorCode::NO_NODE.0);
    assert_eq!(caller.reply(), (4, frame::ERR_MARSHALLING));
    assert_eq!(caller.reply(), (5, ErrorCode::NO_NODE.0));
    // Nor is it sent when a connection has broken for another reason.
    drop(served);
    bench.suspended();
    let (mut served, _) = server.grant(7, LONG);
    bench.connected();
    caller.request(6, DELETE);
    assert_eq!(caller.reply(), (6, frame::ERR_MARSHALLING));
    served.0.assert_silent();
}

/// It was hung up on once there were 64 MiB, kept another 64 beside them, and dialled the closed port
/// without a pause, for an hour at the least.
#[test]
fn what_a_handle_does_not_take_is_bounded_and_each_call_is_answered_in_its_turn() {
    const CALLS: i32 = 14;
    let server = FakeServer::start();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    let long = vec![7; 8 << 20];
    for xid in 1..=CALLS {
        caller.request(xid, DELETE);
        let (number, _) = served.request();
        served.reply_with(number, SEEN, &long);
    }
    // The last of them has come to the link.
    caller.request(CALLS + 1, DELETE);
    let (number, _) = served.request();
    served.reply_with(number, LATER, b"");
    wait_for(&bench, LATER);
    let (mut whole, mut bare) = (0, 0);
    for xid in 1..=CALLS {
        let body = caller.0.receive().expect("an answer");
        assert_eq!(int(&body, 0), xid);
        if body.len() > long.len() {
            assert_eq!(int(&body, 12), frame::OK);
            whole += 1;
        } else {
            // What became of it is not known.
            assert_eq!(int(&body, 12), frame::ERR_CONNECTION_LOSS);
            bare += 1;
        }
    }
    assert!(whole >= 7 && bare >= 1, "{whole} whole, {bare} bare");
    assert_eq!(caller.reply(), (CALLS + 1, frame::OK));
    // And it goes on.
    caller.request(CALLS + 2, DELETE);
    let (number, _) = served.request();
    served.reply_with(number, LATER, &long);
    let body = caller.0.receive().expect("an answer");
    assert!(body.len() > long.len());
}

/// What a program writes into its own nodes must not keep its locks from being asked for: it has half of
/// what may wait for a server.
#[test]
fn what_a_handle_asks_leaves_room_for_requests_of_locks() {
    const EACH: usize = 900 << 10;
    const MANY: i32 = 12;
    let server = behind_a_narrow_network();
    let (bench, mut caller, mut served) = Setup::default().connected(&server);
    let large = Request::SetData {
        path: "/a".into(),
        data: Some(vec![7; EACH]),
        version: ANY_VERSION,
    };
    for xid in 1..=MANY {
        caller.ask(xid, &large);
    }
    let deadline = Instant::now() + SOON;
    let unanswered = || bench.link.wire.state.lock().core.unanswered();
    while unanswered() < usize::try_from(MANY).expect("few") {
        assert!(Instant::now() < deadline, "all have come");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let request = Request::Delete {
        path: "/lock".into(),
        version: ANY_VERSION,
    };
    let completion: Arc<dyn Completion> = Arc::new(Unheard);
    let link = &bench.link;
    let sent = link.submit(1, &[request], Batching::Never, completion);
    sent.expect("there is room");
    let mut forwarded = 0;
    loop {
        let (xid, body) = next(&mut served);
        served.reply_with(xid, LATER, &[0; 80]);
        match int(&body, 4) {
            SET_DATA => forwarded += 1,
            opcode => break assert_eq!(opcode, DELETE),
        }
    }
    // The narrow network has taken one at the most.
    assert!((2..=5).contains(&forwarded), "{forwarded} were sent");
    for xid in 1..=MANY {
        let err = if xid <= forwarded {
            frame::OK
        } else {
            frame::ERR_OPERATION_TIMEOUT
        };
        assert_eq!(caller.reply(), (xid, err));
    }
}

struct Unheard;

impl Completion for Unheard {
    fn completed(&self, _answers: Vec<Answer>) {}
}
