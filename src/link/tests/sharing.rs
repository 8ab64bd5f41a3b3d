//! Requests that share packets, over a socket. `src/link/core/tests/sharing.rs` has which do, who is
//! answered with what, and what is asked again.

use super::*;
use crate::link::core::tests::{
    Answers, BUSY, CHILDREN, CREATE, DONE, Inbox, MULTI_READ, create, created, delete, error, list,
    listed, names, result, results, text,
};

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
