//! Requests that share packets: which do, who is answered with what, and what is asked again.

use super::*;

pub(super) const CREATE: i32 = 1;
const CHILDREN: i32 = 8;
const MULTI_READ: i32 = 22;
const CONNECTION_LOSS: i32 = -4;
const OPERATION_TIMEOUT: i32 = -7;
const BAD_ARGUMENTS: i32 = -8;
const THROTTLED: i32 = -127;
/// So many packets are in flight before others wait.
const BUSY: usize = 3;

struct Inbox(Sender<(Vec<Told>, Vec<u64>)>);

impl Completion for Inbox {
    fn completed(&self, answers: Vec<Answer>) {
        let (answers, events_before) = apart(answers);
        // Nobody may wait for them.
        let _ = self.0.send((answers, events_before));
    }
}

pub(super) type Answers = Receiver<(Vec<Told>, Vec<u64>)>;

pub(super) fn soon(answers: &Answers) -> Vec<Told> {
    answers.recv_timeout(SOON).expect("an answer").0
}

/// A server of which nothing is known but what it is sent.
pub(super) struct Stage {
    pub(super) bench: Bench,
    _loopback: LoopbackListener,
    pub(super) served: Served,
    pub(super) connection: u64,
}

impl Stage {
    /// Who waits goes when there is room, and not by the clock.
    pub(super) fn new(server: &FakeServer) -> Self {
        Self::with(server, LONG)
    }

    pub(super) fn with(server: &FakeServer, longest_wait: Duration) -> Self {
        let setup = Setup {
            longest_wait,
            ..Setup::default()
        };
        let (bench, loopback) = setup.start(&[server.address]);
        let (served, _) = server.grant(7, LONG);
        let connection = bench.opened();
        Self {
            bench,
            _loopback: loopback,
            served,
            connection,
        }
    }

    pub(super) fn say(&self, batching: Batching, requests: &[Request]) -> Answers {
        let (sender, answers) = unbounded();
        let slot = Arc::new(Inbox(sender));
        let said = self
            .bench
            .link
            .submit(self.connection, requests, batching, slot);
        said.expect("open");
        answers
    }

    pub(super) fn share(&self, requests: &[Request]) -> Answers {
        self.say(Batching::Allowed, requests)
    }

    /// The server has this to do, and its number is returned; who comes now waits.
    pub(super) fn busy(&mut self) -> Vec<i32> {
        let all = (0..BUSY).map(|_| self.share(&[delete("/busy")]));
        let _answers: Vec<_> = all.collect();
        let numbers = (0..BUSY).map(|_| {
            let (number, opcode) = self.served.request();
            assert_eq!(opcode, DELETE);
            number
        });
        numbers.collect()
    }

    /// Answers what made it busy.
    pub(super) fn idle(&mut self, busy: &[i32]) {
        for number in busy {
            self.served.reply(*number, 0);
        }
    }

    /// The next request must be of this kind: its number, and what is asked.
    pub(super) fn asked(&mut self, opcode: i32) -> (i32, Vec<u8>) {
        let body = self.served.0.receive().expect("a request");
        assert_eq!(int(&body, 4), opcode);
        (int(&body, 0), body[8..].to_vec())
    }
}

pub(super) fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.into(),
        version: ANY_VERSION,
    }
}

pub(super) fn create(path: &str) -> Request {
    new_node(path, Vec::new(), CreateMode::EPHEMERAL_SEQUENTIAL)
}

pub(super) fn list(path: &str, watch: bool) -> Request {
    Request::GetChildren {
        path: path.into(),
        watch,
    }
}

pub(super) fn created(path: &str) -> Told {
    Ok(Reply::Path(path.into()))
}

pub(super) fn listed(names: &[&str]) -> Told {
    let names = names.iter().map(|name| (*name).to_owned());
    Ok(Reply::Children(names.collect()))
}

pub(super) const DONE: Told = Ok(Reply::Nothing);

pub(super) fn text(text: &str) -> Vec<u8> {
    let length = i32::try_from(text.len()).expect("short");
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

pub(super) fn names(names: &[&str]) -> Vec<u8> {
    let count = i32::try_from(names.len()).expect("few");
    let names = names.iter().flat_map(|name| text(name));
    count.to_be_bytes().into_iter().chain(names).collect()
}

pub(super) fn result(kind: i32, record: &[u8]) -> Vec<u8> {
    let header = [&kind.to_be_bytes()[..], &[0], &0_i32.to_be_bytes()].concat();
    [&header[..], record].concat()
}

pub(super) fn error(err: i32) -> Vec<u8> {
    result(-1, &err.to_be_bytes())
}

pub(super) fn results(each: &[Vec<u8>]) -> Vec<u8> {
    let end = [255, 255, 255, 255, 1, 255, 255, 255, 255];
    [&each.concat()[..], &end].concat()
}

#[test]
fn while_the_server_has_little_to_do_each_goes_at_once() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let first = stage.share(&[delete("/a")]);
    let (one, _) = stage.asked(DELETE);
    let second = stage.share(&[delete("/b")]);
    let (other, _) = stage.asked(DELETE);
    stage.served.reply(one, 0);
    assert_eq!(soon(&first), [DONE]);
    stage.served.reply(other, 0);
    assert_eq!(soon(&second), [DONE]);
}

/// Writes go in one packet, lists in another, and what leaves a watch by itself; each caller gets
/// its own answers.
#[test]
fn those_who_wait_share_packets() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let busy = stage.busy();
    let first = stage.share(&[create("/a/n"), list("/a", false)]);
    let watched = stage.share(&[create("/b/n"), list("/b", true)]);
    let left = stage.share(&[delete("/c/n")]);
    let looked = stage.share(&[list("/d", false)]);
    stage.idle(&busy);

    let (writes, asked) = stage.asked(MULTI);
    let kinds = [result(CREATE, &[]), result(DELETE, &[])];
    assert_eq!(asked[..4], kinds[0][..4]);
    let (watch, asked) = stage.asked(CHILDREN);
    assert_eq!(asked, [&text("/b")[..], &[1]].concat());
    let (lists, _) = stage.asked(MULTI_READ);
    let done = [
        result(CREATE, &text("/a/n1")),
        result(CREATE, &text("/b/n2")),
        result(DELETE, &[]),
    ];
    stage.served.reply_with(writes, 9, &results(&done));
    stage.served.reply_with(watch, 9, &names(&["n2"]));
    assert!(first.is_empty(), "the list is to come");
    let done = [result(CHILDREN, &names(&["n1"])), error(-101)];
    stage.served.reply_with(lists, 9, &results(&done));

    assert_eq!(soon(&first), [created("/a/n1"), listed(&["n1"])]);
    assert_eq!(soon(&watched), [created("/b/n2"), listed(&["n2"])]);
    assert_eq!(soon(&left), [DONE]);
    assert_eq!(soon(&looked), [refused(CHILDREN, ErrorCode::NO_NODE)]);
}

/// They would have the same fencing token.
#[test]
fn two_contenders_of_one_folder_are_not_created_in_one_transaction() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let busy = stage.busy();
    let paths = ["/a/n", "/b/n", "/a/m", "/b/m", "/c/n"];
    let _answers: Vec<_> = paths
        .iter()
        .map(|path| stage.share(&[create(path)]))
        .collect();
    stage.idle(&busy);
    let contains = |packet: &[u8], path: &str| {
        let path = text(path);
        packet.windows(path.len()).any(|bytes| bytes == path)
    };
    let (_, first) = stage.asked(MULTI);
    let (_, second) = stage.asked(MULTI);
    let in_first = paths.map(|path| contains(&first, path));
    assert_eq!(in_first, [true, true, false, false, false]);
    let in_second = paths.map(|path| contains(&second, path));
    assert_eq!(in_second, [false, false, true, true, true]);
}

/// One caller with several nodes needs no company to share a packet.
#[test]
fn what_one_caller_says_shares_packets_too() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let answers = stage.share(&[create("/a/n"), create("/a/m"), list("/a", false)]);
    let (writes, _) = stage.asked(MULTI);
    let (lists, _) = stage.asked(CHILDREN);
    let done = [
        result(CREATE, &text("/a/n1")),
        result(CREATE, &text("/a/m2")),
    ];
    stage.served.reply_with(writes, 9, &results(&done));
    stage.served.reply_with(lists, 9, &names(&["n1", "m2"]));
    let wanted = [created("/a/n1"), created("/a/m2"), listed(&["n1", "m2"])];
    assert_eq!(soon(&answers), wanted);
}

/// A refused write costs the others a round, and no more. Lists of that round are worth nothing to
/// those who were to see their own create in them.
#[test]
fn what_was_refused_because_of_another_is_asked_again_by_itself() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let busy = stage.busy();
    let innocent = stage.share(&[create("/a/n"), list("/a", false)]);
    let culprit = stage.share(&[create("/gone/n"), list("/gone", false)]);
    let looked = stage.share(&[list("/d", false)]);
    stage.idle(&busy);
    let (writes, _) = stage.asked(MULTI);
    let (lists, _) = stage.asked(MULTI_READ);
    let refused = results(&[error(0), error(-101)]);
    stage.served.reply_with(writes, 9, &refused);
    let empty = result(CHILDREN, &names(&[]));
    let done = [empty.clone(), error(-101), empty];
    stage.served.reply_with(lists, 9, &results(&done));
    assert_eq!(soon(&looked), [listed(&[])]);

    let again: Vec<_> = (0..4).map(|_| stage.served.request()).collect();
    let kinds: Vec<_> = again.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, [CREATE, CREATE, CHILDREN, CHILDREN]);
    stage.served.reply_with(again[0].0, 9, &text("/a/n1"));
    stage.served.reply(again[1].0, -101);
    stage.served.reply_with(again[2].0, 9, &names(&["n1"]));
    stage.served.reply(again[3].0, -101);
    assert_eq!(soon(&innocent), [created("/a/n1"), listed(&["n1"])]);
    let none = |asked| super::refused(asked, ErrorCode::NO_NODE);
    assert_eq!(soon(&culprit), [none(CREATE), none(CHILDREN)]);
}

/// A server older than 3.6 hears of it once.
#[test]
fn lists_share_no_packet_where_a_server_does_not_know_it() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    for round in 0..2 {
        let busy = stage.busy();
        let all = ["/a", "/b"].map(|path| stage.share(&[list(path, false)]));
        stage.idle(&busy);
        if round == 0 {
            let (lists, _) = stage.asked(MULTI_READ);
            stage.served.reply(lists, -6);
        }
        for _ in 0..2 {
            let (number, _) = stage.asked(CHILDREN);
            stage.served.reply_with(number, 9, &names(&["x"]));
        }
        all.iter()
            .for_each(|answers| assert_eq!(soon(answers), [listed(&["x"])]));
    }
}

/// A list that is asked again by itself does not bring its create with it.
#[test]
fn what_was_done_is_not_asked_again() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let busy = stage.busy();
    let mine = stage.share(&[create("/a/n"), list("/a", false), list("/b", false)]);
    stage.idle(&busy);
    let (write, _) = stage.asked(CREATE);
    let (lists, _) = stage.asked(MULTI_READ);
    stage.served.reply_with(write, 9, &text("/a/n1"));
    stage.served.reply(lists, -6);
    for name in ["n1", "x"] {
        let (number, _) = stage.asked(CHILDREN);
        stage.served.reply_with(number, 9, &names(&[name]));
    }
    let wanted = [created("/a/n1"), listed(&["n1"]), listed(&["x"])];
    assert_eq!(soon(&mine), wanted);
}

/// Some server refuses every multi: it is not asked for ever. With an error that nobody knows, it may
/// have done it all the same, so that is the answer to each.
#[test]
fn after_some_refusals_in_a_row_each_goes_by_itself() {
    for (err, is_known) in [(BAD_ARGUMENTS, true), (-6000, false)] {
        let server = FakeServer::start();
        let mut stage = Stage::new(&server);
        let mut round = |shared| {
            let busy = stage.busy();
            let all = ["/a", "/b"].map(|path| stage.share(&[delete(path)]));
            stage.idle(&busy);
            if shared {
                let (writes, _) = stage.asked(MULTI);
                stage.served.reply(writes, err);
            }
            let done = is_known || !shared;
            if done {
                for _ in 0..2 {
                    let (number, _) = stage.asked(DELETE);
                    stage.served.reply(number, 0);
                }
            }
            for answers in &all {
                let unclear = refused(DELETE, ErrorCode(err));
                assert_eq!(soon(answers), [if done { DONE } else { unclear }]);
            }
        };
        (0..3).for_each(|_| round(true));
        round(false);
    }
}

/// Each waits by itself before it asks again; together they would ask three times as much as before.
#[test]
fn a_busy_servers_answer_to_all_is_that_to_each() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let throttled = |asked| refused(asked, ErrorCode::THROTTLED_OP);
    for _ in 0..5 {
        let busy = stage.busy();
        let all = ["/a", "/b"].map(|path| stage.share(&[delete(path), list(path, false)]));
        stage.idle(&busy);
        let (writes, _) = stage.asked(MULTI);
        let (lists, _) = stage.asked(MULTI_READ);
        for number in [writes, lists] {
            stage.served.reply(number, THROTTLED);
        }
        for answers in all {
            assert_eq!(soon(&answers), [throttled(DELETE), throttled(CHILDREN)]);
        }
    }
}

/// It was asked again, and done twice.
#[test]
fn a_server_that_cannot_say_what_became_of_all_is_left() {
    for err in [CONNECTION_LOSS, OPERATION_TIMEOUT] {
        let server = FakeServer::start();
        let mut stage = Stage::new(&server);
        let busy = stage.busy();
        let all = ["/a", "/b"].map(|path| stage.share(&[create(&format!("{path}/n"))]));
        stage.idle(&busy);
        let (writes, _) = stage.asked(MULTI);
        stage.served.reply(writes, err);
        for answers in all {
            assert!(
                matches!(soon(&answers)[..], [Err(NoReply::Lost(_))]),
                "{err}"
            );
        }
        stage.bench.suspended();
        assert!(stage.served.0.receive().is_none(), "nothing is asked again");
    }
}

/// The same where a server hangs up on it.
#[test]
fn packets_that_servers_choke_on_are_not_sent_for_ever() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    for round in 1..=3 {
        let busy = stage.busy();
        let all = ["/a", "/b"].map(|path| stage.share(&[delete(path)]));
        stage.idle(&busy);
        if round == 3 {
            stage.asked(DELETE);
            stage.asked(DELETE);
            return;
        }
        stage.asked(MULTI);
        let (served, _) = {
            stage
                .served
                .0
                .0
                .shutdown(std::net::Shutdown::Both)
                .expect("up");
            server.grant(7, LONG)
        };
        stage.served = served;
        stage.bench.suspended();
        stage.connection = stage.bench.opened();
        for answers in all {
            // Not a sign against the delete itself.
            let [Err(NoReply::Lost(Lost { breaks: 0, .. }))] = soon(&answers)[..] else {
                panic!("lost");
            };
        }
    }
}

/// Servers that are restarted hang up on what they know as well. It was never asked again.
#[test]
fn packets_that_were_answered_before_are_sent_after_ordinary_breaks() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    for round in 0..3 {
        let busy = stage.busy();
        let all = ["/a", "/b"].map(|path| stage.share(&[delete(path)]));
        stage.idle(&busy);
        let (writes, _) = stage.asked(MULTI);
        if round == 0 {
            let done = [result(DELETE, &[]), result(DELETE, &[])];
            stage.served.reply_with(writes, 9, &results(&done));
            for answers in all {
                assert_eq!(soon(&answers), [DONE]);
            }
            let busy = stage.busy();
            let _all = ["/a", "/b"].map(|path| stage.share(&[delete(path)]));
            stage.idle(&busy);
            stage.asked(MULTI);
        }
        let both = std::net::Shutdown::Both;
        stage.served.0.0.shutdown(both).expect("up");
        let (served, _) = server.grant(7, LONG);
        stage.served = served;
        stage.bench.suspended();
        stage.connection = stage.bench.opened();
    }
}

/// Whoever waits is told before the break is.
#[test]
fn a_break_answers_those_who_wait() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    stage.busy();
    let waiting = stage.share(&[delete("/a")]);
    let Stage { bench, served, .. } = stage;
    drop(served);
    bench.suspended();
    let (answers, _) = waiting.try_recv().expect("told already");
    assert!(matches!(
        answers[..],
        [Err(NoReply::Lost(Lost { breaks: 0, .. }))]
    ));
}

/// A server that takes long to answer holds up nobody.
#[test]
fn nobody_waits_for_answers_that_take_long() {
    let server = FakeServer::start();
    let mut stage = Stage::with(&server, LONGEST_WAIT);
    stage.busy();
    let _answers = stage.share(&[delete("/a")]);
    let (_, asked) = stage.asked(DELETE);
    assert!(asked.starts_with(&text("/a")));
}

/// What is said alone goes at once, and what was said before it goes before it.
#[test]
fn nothing_is_overtaken() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    stage.busy();
    let _shared = stage.share(&[delete("/a")]);
    let _alone = stage.say(Batching::Never, &[delete("/b")]);
    let (_, first) = stage.asked(DELETE);
    let (_, second) = stage.asked(DELETE);
    assert!(first.starts_with(&text("/a")) && second.starts_with(&text("/b")));
}

/// A client that is closed says what waits before its good-bye.
#[test]
fn the_good_bye_comes_last() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    stage.busy();
    let _waiting = stage.share(&[delete("/a")]);
    stage.bench.link.close(Duration::ZERO);
    stage.asked(DELETE);
    stage.asked(frame::OP_CLOSE);
}

#[test]
fn a_malformed_answer_for_several_breaks_the_connection() {
    let server = FakeServer::start();
    let mut stage = Stage::new(&server);
    let busy = stage.busy();
    let all = ["/a", "/b"].map(|path| stage.share(&[delete(path)]));
    stage.idle(&busy);
    let (writes, _) = stage.asked(MULTI);
    let one = [result(DELETE, &[])];
    stage.served.reply_with(writes, 9, &results(&one));
    for answers in all {
        assert!(matches!(soon(&answers)[..], [Err(NoReply::Lost(_))]));
    }
    stage.bench.suspended();
    stage.served.assert_cut();
}
