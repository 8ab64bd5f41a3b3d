//! Requests of our own: who is answered, with what, in which order, and what is never sent.

use super::*;

/// A slot that keeps what it is told.
struct Inbox(Sender<Vec<Told>>);

impl Completion for Inbox {
    fn completed(&self, answers: Vec<Answer>) {
        let (answers, _) = apart(answers);
        self.0.send(answers).expect("waited for");
    }
}

fn inbox() -> (Arc<dyn Completion>, Receiver<Vec<Told>>) {
    let (sender, answers) = unbounded();
    (Arc::new(Inbox(sender)), answers)
}

impl Bench {
    /// Says it, and returns where the answers will be.
    pub(super) fn say(&self, connection: u64, requests: &[Request]) -> Receiver<Vec<Told>> {
        let (slot, answers) = inbox();
        self.link
            .submit(connection, requests, Batching::Never, slot)
            .expect("open");
        answers
    }
}

impl Bench {
    /// Whether the server's socket takes no more.
    fn is_full(&self) -> bool {
        let state = self.link.wire.state.lock();
        let server = state.server.as_ref().expect("connected");
        server.full.load(std::sync::atomic::Ordering::Acquire)
    }
}

/// A link that is connected and open, and the number of that connection.
fn speaking(server: &FakeServer) -> (Bench, LoopbackListener, Served, u64) {
    let (bench, loopback) = Setup::default().start(&[server.address]);
    let (served, _) = server.grant(7, LONG);
    let connection = bench.opened();
    (bench, loopback, served, connection)
}

fn sync() -> Request {
    Request::Sync { path: "/".into() }
}

fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.into(),
        version: ANY_VERSION,
    }
}

fn create(data: usize) -> Request {
    new_node("/a", vec![0; data], CreateMode::EPHEMERAL_SEQUENTIAL)
}

fn children() -> Request {
    Request::GetChildren {
        path: "/".into(),
        watch: true,
    }
}

fn text(text: &str) -> Vec<u8> {
    let length = i32::try_from(text.len()).expect("short");
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

fn soon(answers: &Receiver<Vec<Told>>) -> Vec<Told> {
    answers.recv_timeout(SOON).expect("an answer")
}

#[test]
fn what_is_said_together_is_answered_together() {
    let server = FakeServer::start();
    let (bench, _loopback, mut served, connection) = speaking(&server);
    assert_eq!(connection, 1);
    let answers = bench.say(connection, &[create(3), children(), delete("/b")]);
    let asked: Vec<_> = (0..3).map(|_| served.request()).collect();
    assert_eq!(asked, [(1, 1), (2, 8), (3, 2)]);
    served.reply_with(1, 10, &text("/a0000000001"));
    let list = [&2_i32.to_be_bytes()[..], &text("x"), &text("y")].concat();
    served.reply_with(2, 10, &list);
    assert!(answers.is_empty(), "not before the last has its answer");
    served.reply(3, -101);
    assert_eq!(
        soon(&answers),
        [
            Ok(Reply::Path("/a0000000001".into())),
            Ok(Reply::Children(["x", "y"].iter().collect())),
            refused(DELETE, ErrorCode::NO_NODE),
        ]
    );
}

#[test]
fn they_stand_in_one_order_with_those_of_the_crate() {
    let server = FakeServer::start();
    let (bench, loopback, mut served, connection) = speaking(&server);
    let mut caller = Caller::enter(loopback);
    let first = bench.say(connection, &[sync()]);
    served.request();
    caller.request(70, DELETE);
    served.request();
    caller.request(-2, frame::OP_PING);
    let second = bench.say(connection, &[delete("/b")]);
    served.request();
    served.reply_with(1, 1, &text("/"));
    served.reply(2, 0);
    served.reply(3, 0);
    assert_eq!(soon(&first), [Ok(at_the_root())]);
    assert_eq!(caller.reply(), (70, 0));
    assert_eq!(caller.reply(), (-2, 0));
    assert_eq!(soon(&second), [Ok(Reply::Nothing)]);
}

/// A ping of the crate stands behind a request of ours: our reply lets it through.
#[test]
fn an_answer_of_ours_lets_the_next_of_the_crate_through() {
    let server = FakeServer::start();
    let (bench, loopback, mut served, connection) = speaking(&server);
    let mut caller = Caller::enter(loopback);
    let answers = bench.say(connection, &[sync()]);
    served.request();
    caller.request(-2, frame::OP_PING);
    caller.0.assert_silent();
    served.reply_with(1, 1, &text("/"));
    assert_eq!(caller.reply(), (-2, 0));
    assert_eq!(soon(&answers), [Ok(at_the_root())]);
}

#[test]
fn nothing_is_sent_on_another_connection_than_it_is_about() {
    let server = FakeServer::start();
    let (bench, _loopback) = Setup::default().start(&[server.address]);
    let refused = |connection| {
        let (slot, answers) = inbox();
        let sent = bench
            .link
            .submit(connection, &[sync()], Batching::Never, slot);
        assert_eq!(sent, Err(NotSent::NotOpen));
        // The slot is gone, so nobody can call it.
        assert!(answers.recv_timeout(SOON).is_err());
    };
    refused(1);
    let (served, _) = server.grant(7, LONG);
    bench.connected();
    refused(2);
    drop(served);
    bench.suspended();
    refused(1);
    let (mut served, _) = server.grant(7, LONG);
    assert_eq!(bench.opened(), 2);
    refused(1);
    bench.say(2, &[sync()]);
    assert_eq!(served.request().1, 9);
    bench.link.close(Duration::ZERO);
    refused(2);
}

#[test]
fn a_break_answers_them_all_before_it_is_told() {
    let server = FakeServer::start();
    let (bench, _loopback, mut served, connection) = speaking(&server);
    let one = bench.say(connection, &[sync(), delete("/b"), sync()]);
    let other = bench.say(connection, &[sync()]);
    for _ in 0..4 {
        served.request();
    }
    served.reply_with(1, 1, &text("/"));
    drop(served);
    bench.suspended();
    let lost = |bytes| {
        Err(NoReply::Lost(Lost {
            bytes,
            breaks: 1,
            by_server: true,
        }))
    };
    let told = one.try_recv().expect("told already");
    assert_eq!(told, [Ok(at_the_root()), lost(18), lost(13)]);
    assert_eq!(other.try_recv(), Ok(vec![lost(13)]));
}

/// Whoever asked waits for the next connection, which must come.
#[test]
fn a_server_that_cannot_say_what_became_of_a_request_is_left() {
    for err in [frame::ERR_CONNECTION_LOSS, frame::ERR_OPERATION_TIMEOUT] {
        let server = FakeServer::start();
        let (bench, _loopback, mut served, connection) = speaking(&server);
        let one = bench.say(connection, &[delete("/a")]);
        let other = bench.say(connection, &[delete("/b")]);
        for _ in 0..2 {
            served.request();
        }
        served.reply(1, err);
        for answers in [one, other] {
            let [Err(NoReply::Lost(Lost { breaks: 0, .. }))] = soon(&answers)[..] else {
                panic!("{err}: unknown, and no sign against either");
            };
        }
        bench.suspended();
        served.assert_cut();
        server.grant(7, LONG);
        bench.opened();
    }
}

#[test]
fn a_reply_of_another_kind_breaks_the_connection() {
    let stat = vec![0; 68];
    let lies: [(Request, Vec<u8>); 5] = [
        (sync(), Vec::new()),
        (delete("/b"), text("/b")),
        (children(), i32::MAX.to_be_bytes().to_vec()),
        (children(), (-1_i32).to_be_bytes().to_vec()),
        (create(0), [text("/a"), stat].concat()),
    ];
    for (request, record) in lies {
        let server = FakeServer::start();
        let (bench, _loopback, mut served, connection) = speaking(&server);
        let lied_to = bench.say(connection, &[request]);
        let behind = bench.say(connection, &[sync()]);
        served.request();
        served.request();
        served.reply_with(1, 1, &record);
        assert!(matches!(soon(&lied_to)[..], [Err(NoReply::Lost(_))]));
        assert!(matches!(soon(&behind)[..], [Err(NoReply::Lost(_))]));
        bench.suspended();
        served.assert_cut();
    }
}

#[test]
fn a_request_that_no_server_takes_is_not_sent() {
    let server = FakeServer::start();
    let (bench, _loopback, mut served, connection) = speaking(&server);
    let (slot, answers) = inbox();
    let most = frame::MAX_REQUEST_BYTES;
    let around = 8 + 6 + 4 + 4 + 4;
    let too_large = [sync(), create(most - around + 1)];
    let sent = bench
        .link
        .submit(connection, &too_large, Batching::Never, slot);
    let bytes = most + 1;
    assert_eq!(sent, Err(NotSent::TooLarge { bytes, most }));
    assert!(answers.recv_timeout(SOON).is_err());
    let _answers = bench.say(connection, &[create(most - around)]);
    let body = served.0.receive().expect("the longest goes");
    assert_eq!((int(&body, 0), body.len()), (1, most));
}

#[test]
fn a_stat_says_what_it_says() {
    let server = FakeServer::start();
    let (bench, _loopback, mut served, connection) = speaking(&server);
    let answers = bench.say(
        connection,
        &[Request::Exists {
            path: "/a".into(),
            watch: false,
        }],
    );
    served.request();
    let mut stat = Vec::new();
    for long in [1_i64, 2, 3, 4] {
        stat.extend(long.to_be_bytes());
    }
    for int in [5_i32, 6, 7] {
        stat.extend(int.to_be_bytes());
    }
    stat.extend(8_i64.to_be_bytes());
    for int in [9_i32, 10] {
        stat.extend(int.to_be_bytes());
    }
    stat.extend(11_i64.to_be_bytes());
    served.reply_with(1, 1, &stat);
    let wanted = Stat {
        czxid: 1,
        mzxid: 2,
        ctime: 3,
        mtime: 4,
        version: 5,
        cversion: 6,
        aversion: 7,
        ephemeral_owner: 8,
        data_length: 9,
        num_children: 10,
        pzxid: 11,
    };
    assert_eq!(soon(&answers), [Ok(Reply::Stat(wanted))]);
}

/// The send window is full: nobody who asks waits for it, what was said before is heard, and when
/// the server reads again it gets everything.
#[test]
fn a_full_send_window_stops_nobody() {
    let server = FakeServer::start();
    let (bench, _loopback, mut served, connection) = speaking(&server);
    let begun = Instant::now();
    let first = bench.say(connection, &[sync()]);
    let all: Vec<_> = (0..15)
        .map(|_| bench.say(connection, &[create(1 << 19)]))
        .collect();
    let last = bench.say(connection, &[sync()]);
    assert!(begun.elapsed() < SOON);
    assert!(bench.is_full(), "or this proves nothing");
    // The reader is not stopped by it.
    served.reply_with(1, 1, &text("/"));
    assert_eq!(soon(&first), [Ok(at_the_root())]);
    for xid in 1..=17 {
        let body = served.0.receive().expect("a request");
        assert_eq!(int(&body, 0), xid);
    }
    for xid in 2..=16 {
        served.reply_with(xid, 1, &text("/a"));
    }
    served.reply_with(17, 1, &text("/"));
    for answers in all {
        assert_eq!(soon(&answers), [Ok(Reply::Path("/a".into()))]);
    }
    assert_eq!(soon(&last), [Ok(at_the_root())]);
    assert!(!bench.is_full());
}

#[test]
fn what_a_server_did_not_take_goes_as_soon_as_it_does() {
    let server = FakeServer::start();
    let (bench, _loopback, mut served, connection) = speaking(&server);
    let begun = Instant::now();
    let _all: Vec<_> = (0..15)
        .map(|_| bench.say(connection, &[create(1 << 19)]))
        .collect();
    assert!(bench.is_full(), "or this proves nothing");
    for xid in 1..=15 {
        let body = served.0.receive().expect("a request");
        assert_eq!(int(&body, 0), xid);
    }
    // Not at the next look at the clock.
    assert!(begun.elapsed() < LONG / 12);
}

/// What a server does not take is kept up to a limit; what is over it is not said at all.
#[test]
fn what_is_kept_for_a_server_is_bounded() {
    let server = FakeServer::start();
    let (bench, _loopback, mut served, connection) = speaking(&server);
    let mut said = 0;
    let refused = loop {
        let (slot, _) = inbox();
        match bench
            .link
            .submit(connection, &[create(1 << 19)], Batching::Never, slot)
        {
            Ok(()) => said += 1,
            Err(refused) => break refused,
        }
        assert!(said < 100, "50 MiB");
    };
    assert!(matches!(refused, NotSent::Backlogged { .. }), "{refused}");
    for xid in 1..=said {
        let body = served.0.receive().expect("a request");
        assert_eq!(int(&body, 0), xid);
    }
}

#[test]
fn a_server_that_takes_nothing_is_given_up() {
    let timeout = Duration::from_secs(3);
    let server = FakeServer::start();
    let setup = Setup {
        timeout,
        ..Setup::default()
    };
    let (bench, _loopback) = setup.start(&[server.address]);
    let (mut served, _) = server.grant(7, timeout);
    let connection = bench.opened();
    let begun = Instant::now();
    let all: Vec<_> = (0..15)
        .map(|_| bench.say(connection, &[create(1 << 19)]))
        .collect();
    // It still talks: it is not silence that ends the connection.
    served.0.0.set_nonblocking(true).expect("a socket");
    let lost = loop {
        if let Ok(lost) = all[0].recv_timeout(timeout / 12) {
            break lost;
        }
        let event = frame::watch_event(2, b"/a");
        let _ = served.0.0.write_all(&event);
        assert!(begun.elapsed() < SOON, "it goes on for ever");
    };
    assert!(
        matches!(lost[..], [Err(NoReply::Lost(Lost { breaks: 1, .. }))]),
        "it may be too long for the network"
    );
    assert!(begun.elapsed() >= timeout / 6);
    assert!(begun.elapsed() < timeout * 5 / 6, "that was the lease");
    bench.suspended();
}

/// Two threads speak at once, again and again, and wait for each other: their numbers are in the
/// order of their bytes, and nothing stays behind unsent when one has sent for both.
#[test]
fn nothing_that_is_said_at_once_is_left_behind() {
    const ROUNDS: usize = 2000;
    let server = FakeServer::start();
    let (bench, _loopback, mut served, connection) = speaking(&server);
    let round = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    round.wait();
                    let answers = bench.say(connection, &[sync(), delete("/b")]);
                    assert_eq!(soon(&answers).len(), 2);
                }
            });
        }
        for xid in (1..).take(ROUNDS * 4) {
            let (number, opcode) = served.request();
            assert_eq!(number, xid);
            match opcode {
                9 => served.reply_with(xid, 1, &text("/")),
                _ => served.reply(xid, 0),
            }
        }
    });
}

/// A server with a smaller `jute.maxbuffer` hangs up on a request that others take.
#[test]
fn a_request_that_servers_choke_on_is_suspected() {
    let server = FakeServer::start();
    let (bench, _loopback) = Setup::default().start(&[server.address]);
    let poison = create(100_000);
    for round in 1..=3 {
        let (mut served, _) = server.grant(7, LONG);
        let connection = bench.opened();
        let innocent = bench.say(connection, &[sync()]);
        let answers = bench.say(connection, std::slice::from_ref(&poison));
        let beside = bench.say(connection, &[sync()]);
        served.request();
        served.reply_with(2 + 3 * (round - 1) - 1, 1, &text("/"));
        assert_eq!(soon(&innocent), [Ok(at_the_root())]);
        served.request();
        drop(served);
        let [Err(NoReply::Lost(lost))] = soon(&answers)[..] else {
            panic!("lost");
        };
        assert_eq!(lost.breaks, u32::try_from(round).expect("small"));
        assert!(lost.bytes > 100_000);
        // One of this kind was answered in between.
        let [Err(NoReply::Lost(lost))] = soon(&beside)[..] else {
            panic!("lost");
        };
        assert_eq!(lost.breaks, 1);
        bench.suspended();
    }
}

/// A break that is our own doing is no sign against what was in flight.
#[test]
fn nothing_is_suspected_of_a_break_of_our_own() {
    let server = FakeServer::start();
    let (bench, _loopback) = Setup::default().start(&[server.address]);
    let (_served, _) = server.grant(7, LONG);
    let (epoch, _) = bench.connected();
    let answers = bench.say(1, &[sync()]);
    bench.link.abandon(&epoch);
    let lost = Lost::by_us(13);
    assert_eq!(soon(&answers), [Err(NoReply::Lost(lost))]);
}
