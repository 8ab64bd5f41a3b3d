//! What the link asks by itself, and when it gives a connection up.

use super::*;
use crate::link::core::ahead::MOST_BYTES;

/// So that a 12th, an 11th and a sixth are plain numbers.
const T: Duration = Duration::from_secs(132);
/// A probe goes out when nothing of its kind was sent for so long.
const Q: Duration = Duration::from_secs(12);
/// A server that is silent for so long is given up.
const PATIENCE: Duration = Duration::from_secs(22);
const MILLISECOND: Duration = Duration::from_millis(1);
const NO_NODE: i32 = -101;
const NO_AUTH: i32 = -102;
const THROTTLED: i32 = -127;
const NODE: Option<(u64, &str)> = Some((1, "/a"));

fn stage() -> Stage {
    Stage::with(T, LONG)
}

/// The answer to a multi of one check.
fn checked(err: i32) -> Vec<u8> {
    results(&[match err {
        0 => result(13, &[]),
        err => error(err),
    }])
}

/// The number of the next request, which is a multi, and the path of its one check.
fn next_check(stage: &mut Stage) -> (i32, Option<String>) {
    let (xid, body) = stage.asked(MULTI);
    if int(&body, 0) == -1 {
        return (xid, None);
    }
    assert_eq!(int(&body, 0), 13);
    let length = usize::try_from(int(&body, 9)).expect("a length");
    let path = body[13..13 + length].to_vec();
    (xid, Some(String::from_utf8(path).expect("a path")))
}

/// Exactly when it is due, and not twice.
#[test]
fn a_sync_goes_out_in_each_interval_while_nothing_stands() {
    let mut stage = stage();
    for _ in 0..20 {
        stage.pass(Q - MILLISECOND, None);
        assert_eq!(stage.receive(), None);
        stage.pass(MILLISECOND, None);
        let (xid, _) = stage.asked(SYNC);
        assert_eq!(stage.receive(), None);
        stage.reply_with(xid, 1, &text("/"));
        assert_eq!(stage.core.is_too_slow(None, false, stage.now), None);
    }
    assert!(stage.lease.alive(stage.now));
}

/// The clock is looked at a 12th of the timeout later at the latest: what is wanted may change.
#[test]
fn nobody_sleeps_past_what_is_due() {
    let mut stage = stage();
    assert_eq!(stage.pass(Duration::ZERO, None).wait, T / 12);
    assert_eq!(stage.pass(Q - MILLISECOND, None).wait, MILLISECOND);
    stage.pass(MILLISECOND, None);
    stage.asked(SYNC);
    // Whatever is due: its answer, before the next probe.
    assert_eq!(stage.pass(Q - MILLISECOND, None).wait, MILLISECOND);
}

/// One committed check of one node, whatever else is held; a `sync` once nothing is.
#[test]
fn probes_are_writes_while_a_node_stands() {
    let mut stage = stage();
    stage.lease.stands();
    for (number, path) in [(1, "/a"), (2, "/b")] {
        stage.pass(Q, Some((number, path)));
        let (xid, asked) = next_check(&mut stage);
        assert_eq!(asked.as_deref(), Some(path));
        assert_eq!(stage.core.last_node(), number);
        let before = stage.lease.remaining(stage.now);
        stage.reply_with(xid, 1, &checked(0));
        assert!(stage.lease.remaining(stage.now) >= before);
    }
    stage.lease.falls();
    // A sync is due when nothing of its kind was sent, and a write is one.
    stage.pass(Q, NODE);
    stage.asked(SYNC);
}

/// A busy connection needs none.
#[test]
fn ordinary_traffic_counts_as_probes() {
    let mut stage = stage();
    for _ in 0..20 {
        stage.pass(Q / 2, None);
        let _answers = stage.share(&[delete("/n")]);
        let (xid, _) = stage.asked(DELETE);
        stage.reply(xid, 0);
    }
    assert_eq!(stage.receive(), None);
    assert!(stage.lease.proven(stage.now));
}

/// It has proved nothing; the next node is asked for at once.
#[test]
fn a_node_that_is_gone_proves_nothing() {
    let mut stage = stage();
    stage.lease.stands();
    stage.pass(Q, NODE);
    let (xid, _) = next_check(&mut stage);
    let before = stage.lease.ends();
    stage.reply_with(xid, 1, &checked(NO_NODE));
    assert_eq!(stage.gone, [1]);
    assert_eq!(stage.lease.ends(), before);
    stage.pass(Duration::ZERO, Some((2, "/b")));
    assert_eq!(next_check(&mut stage).1.as_deref(), Some("/b"));
    stage.pass(Duration::ZERO, Some((2, "/b")));
    assert_eq!(stage.receive(), None, "once");
}

/// A server that will not tell us of our node is asked to commit nothing at all.
#[test]
fn a_check_that_is_refused_is_followed_by_an_empty_write() {
    let mut stage = stage();
    stage.lease.stands();
    stage.pass(Q, NODE);
    let (xid, _) = next_check(&mut stage);
    stage.reply_with(xid, 1, &checked(NO_AUTH));
    stage.pass(Duration::ZERO, NODE);
    assert_eq!(next_check(&mut stage).1, None);
}

/// It has said nothing of our node, and is asked for it the next time.
#[test]
fn a_check_that_is_put_off_is_made_again() {
    let mut stage = stage();
    stage.lease.stands();
    let before = stage.lease.ends();
    for _ in 0..2 {
        stage.pass(Q, NODE);
        let (xid, path) = next_check(&mut stage);
        assert_eq!(path.as_deref(), Some("/a"));
        stage.reply(xid, THROTTLED);
        stage.pass(Duration::ZERO, NODE);
        assert_eq!(stage.receive(), None, "not at once");
    }
    assert_eq!(stage.lease.ends(), before);
}

/// Where the user has said so, holders do with what idle clients do with.
#[test]
fn probes_write_nothing_if_they_are_not_to() {
    let mut stage = stage();
    stage.lease = Arc::new(Lease::new(T, stage.now, true));
    stage.lease.stands();
    stage.reopen();
    for _ in 0..20 {
        stage.pass(Q, NODE);
        let (xid, _) = stage.asked(SYNC);
        stage.reply_with(xid, 1, &text("/"));
        assert!(stage.lease.proven(stage.now));
    }
}

/// A resume may have been granted by a leader that has been deposed.
#[test]
fn a_probe_goes_first_on_a_connection_that_resumes_what_is_held() {
    let mut stage = stage();
    stage.lease.stands();
    stage.break_by(Ended::ByServer);
    stage.reopen();
    stage.core.probe(Some((1, "/a".into())), stage.now);
    let _answers = stage.share(&[delete("/n")]);
    assert_eq!(next_check(&mut stage).1.as_deref(), Some("/a"));
    stage.asked(DELETE);
}

#[test]
fn a_silent_server_is_given_up_in_time_and_not_before() {
    let mut stage = stage();
    let _answers = stage.share(&[delete("/n")]);
    stage.now = stage.now.plus(PATIENCE - MILLISECOND);
    assert_eq!(stage.core.is_too_slow(None, false, stage.now), None);
    stage.now = stage.now.plus(MILLISECOND);
    // What came meanwhile is read first, by a process that was stopped.
    assert_eq!(stage.core.is_too_slow(None, true, stage.now), None);
    let silent = stage.core.is_too_slow(None, false, stage.now);
    assert_eq!(silent, Some(TooSlow::Silent(PATIENCE)));
}

/// Bytes that the kernel still has to take are no silence of the server, as long as it takes some.
#[test]
fn a_request_that_is_on_its_way_is_waited_for() {
    let mut stage = stage();
    let (sender, _answers) = unbounded();
    let group = Group::encode(&[delete("/n")], Arc::new(Inbox(sender))).expect("short");
    let submitted = stage
        .core
        .submit(1, Box::new(group), Batching::Never, stage.now);
    assert!(submitted.is_ok());
    // The kernel has taken nothing of it.
    assert!(stage.core.take(1, &mut ToSend::default(), stage.now));
    stage.now = stage.now.plus(2 * PATIENCE);
    let is_too_slow = |stuck| stage.core.is_too_slow(Some(stuck), false, stage.now);
    assert_eq!(is_too_slow(PATIENCE - MILLISECOND), None);
    assert_eq!(is_too_slow(PATIENCE), Some(TooSlow::Silent(PATIENCE)));
    let stuck = stage
        .core
        .is_too_slow(Some(T / 3 + MILLISECOND), true, stage.now);
    assert_eq!(stuck, Some(TooSlow::Stuck(T / 3)));
}

/// What is given up because the session is over; not while its good-bye is under way.
#[test]
fn a_connection_ends_with_its_lease() {
    let mut stage = stage();
    stage.lease.seal();
    let lapsed = stage.core.is_too_slow(None, true, stage.now);
    assert_eq!(lapsed, Some(TooSlow::Lapsed));
    stage.core.close();
    assert_eq!(stage.core.is_too_slow(None, true, stage.now), None);
}

/// More than may be ahead of a probe is kept back, and the probe goes before it.
#[test]
fn a_probe_overtakes_what_is_kept_back() {
    let mut stage = stage();
    let large = new_node("/n", vec![7; MOST_BYTES], CreateMode::EPHEMERAL_SEQUENTIAL);
    let mut answers = Vec::new();
    for _ in 0..3 {
        let (sender, answer) = unbounded();
        let group = Group::encode(std::slice::from_ref(&large), Arc::new(Inbox(sender)));
        let group = Box::new(group.expect("short enough"));
        let submitted = stage.core.submit(1, group, Batching::Never, stage.now);
        assert!(submitted.is_ok());
        answers.push(answer);
    }
    assert!(stage.core.holds_any());
    stage.now = stage.now.plus(Q);
    stage.core.probe(None, stage.now);
    stage.flush();
    let kinds = [CREATE, SYNC, CREATE, CREATE].map(|kind| stage.asked(kind).0);
    assert!(kinds.is_sorted(), "numbered in the order of their bytes");
    assert!(!stage.core.holds_any());
}
