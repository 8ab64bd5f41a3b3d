//! Requests that share packets: which do, who is answered with what, and what is asked again.

use super::*;
use crate::link::core::waiting::LONGEST_WAIT;

const CONNECTION_LOSS: i32 = -4;
const OPERATION_TIMEOUT: i32 = -7;
const BAD_ARGUMENTS: i32 = -8;
const THROTTLED: i32 = -127;

#[test]
fn while_the_server_has_little_to_do_each_goes_at_once() {
    let mut stage = Stage::new();
    let first = stage.share(&[delete("/a")]);
    let (one, _) = stage.asked(DELETE);
    let second = stage.share(&[delete("/b")]);
    let (other, _) = stage.asked(DELETE);
    stage.reply(one, 0);
    assert_eq!(told(&first), [DONE]);
    stage.reply(other, 0);
    assert_eq!(told(&second), [DONE]);
}

/// Writes go in one packet, lists in another, and what leaves a watch by itself; each caller gets
/// its own answers.
#[test]
fn those_who_wait_share_packets() {
    let mut stage = Stage::new();
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
    stage.reply_with(writes, 9, &results(&done));
    stage.reply_with(watch, 9, &names(&["n2"]));
    assert!(first.is_empty(), "the list is to come");
    let done = [result(CHILDREN, &names(&["n1"])), error(-101)];
    stage.reply_with(lists, 9, &results(&done));

    assert_eq!(told(&first), [created("/a/n1"), listed(&["n1"])]);
    assert_eq!(told(&watched), [created("/b/n2"), listed(&["n2"])]);
    assert_eq!(told(&left), [DONE]);
    assert_eq!(told(&looked), [refused(CHILDREN, ErrorCode::NO_NODE)]);
}

/// They would have the same fencing token.
#[test]
fn two_contenders_of_one_folder_are_not_created_in_one_transaction() {
    let mut stage = Stage::new();
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
    let mut stage = Stage::new();
    let answers = stage.share(&[create("/a/n"), create("/a/m"), list("/a", false)]);
    let (writes, _) = stage.asked(MULTI);
    let (lists, _) = stage.asked(CHILDREN);
    let done = [
        result(CREATE, &text("/a/n1")),
        result(CREATE, &text("/a/m2")),
    ];
    stage.reply_with(writes, 9, &results(&done));
    stage.reply_with(lists, 9, &names(&["n1", "m2"]));
    let wanted = [created("/a/n1"), created("/a/m2"), listed(&["n1", "m2"])];
    assert_eq!(told(&answers), wanted);
}

/// A refused write costs the others a round, and no more. Lists of that round are worth nothing to
/// those who were to see their own create in them.
#[test]
fn what_was_refused_because_of_another_is_asked_again_by_itself() {
    let mut stage = Stage::new();
    let busy = stage.busy();
    let innocent = stage.share(&[create("/a/n"), list("/a", false)]);
    let culprit = stage.share(&[create("/gone/n"), list("/gone", false)]);
    let looked = stage.share(&[list("/d", false)]);
    stage.idle(&busy);
    let (writes, _) = stage.asked(MULTI);
    let (lists, _) = stage.asked(MULTI_READ);
    let refused = results(&[error(0), error(-101)]);
    stage.reply_with(writes, 9, &refused);
    let empty = result(CHILDREN, &names(&[]));
    let done = [empty.clone(), error(-101), empty];
    stage.reply_with(lists, 9, &results(&done));
    assert_eq!(told(&looked), [listed(&[])]);

    let again: Vec<_> = (0..4).map(|_| stage.request()).collect();
    let kinds: Vec<_> = again.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, [CREATE, CREATE, CHILDREN, CHILDREN]);
    stage.reply_with(again[0].0, 9, &text("/a/n1"));
    stage.reply(again[1].0, -101);
    stage.reply_with(again[2].0, 9, &names(&["n1"]));
    stage.reply(again[3].0, -101);
    assert_eq!(told(&innocent), [created("/a/n1"), listed(&["n1"])]);
    let none = |asked| super::refused(asked, ErrorCode::NO_NODE);
    assert_eq!(told(&culprit), [none(CREATE), none(CHILDREN)]);
}

/// A server older than 3.6 hears of it once.
#[test]
fn lists_share_no_packet_where_a_server_does_not_know_it() {
    let mut stage = Stage::new();
    for round in 0..2 {
        let busy = stage.busy();
        let all = ["/a", "/b"].map(|path| stage.share(&[list(path, false)]));
        stage.idle(&busy);
        if round == 0 {
            let (lists, _) = stage.asked(MULTI_READ);
            stage.reply(lists, -6);
        }
        for _ in 0..2 {
            let (number, _) = stage.asked(CHILDREN);
            stage.reply_with(number, 9, &names(&["x"]));
        }
        all.iter()
            .for_each(|answers| assert_eq!(told(answers), [listed(&["x"])]));
    }
}

/// A list that is asked again by itself does not bring its create with it.
#[test]
fn what_was_done_is_not_asked_again() {
    let mut stage = Stage::new();
    let busy = stage.busy();
    let mine = stage.share(&[create("/a/n"), list("/a", false), list("/b", false)]);
    stage.idle(&busy);
    let (write, _) = stage.asked(CREATE);
    let (lists, _) = stage.asked(MULTI_READ);
    stage.reply_with(write, 9, &text("/a/n1"));
    stage.reply(lists, -6);
    for name in ["n1", "x"] {
        let (number, _) = stage.asked(CHILDREN);
        stage.reply_with(number, 9, &names(&[name]));
    }
    let wanted = [created("/a/n1"), listed(&["n1"]), listed(&["x"])];
    assert_eq!(told(&mine), wanted);
}

/// Some server refuses every multi: it is not asked for ever. With an error that nobody knows, it may
/// have done it all the same, so that is the answer to each.
#[test]
fn after_some_refusals_in_a_row_each_goes_by_itself() {
    for (err, is_known) in [(BAD_ARGUMENTS, true), (-6000, false)] {
        let mut stage = Stage::new();
        let mut round = |shared| {
            let busy = stage.busy();
            let all = ["/a", "/b"].map(|path| stage.share(&[delete(path)]));
            stage.idle(&busy);
            if shared {
                let (writes, _) = stage.asked(MULTI);
                stage.reply(writes, err);
            }
            let done = is_known || !shared;
            if done {
                for _ in 0..2 {
                    let (number, _) = stage.asked(DELETE);
                    stage.reply(number, 0);
                }
            }
            for answers in &all {
                let unclear = refused(DELETE, ErrorCode(err));
                assert_eq!(told(answers), [if done { DONE } else { unclear }]);
            }
        };
        (0..3).for_each(|_| round(true));
        round(false);
    }
}

/// Each waits by itself before it asks again; together they would ask three times as much as before.
#[test]
fn a_busy_servers_answer_to_all_is_that_to_each() {
    let mut stage = Stage::new();
    let throttled = |asked| refused(asked, ErrorCode::THROTTLED_OP);
    for _ in 0..5 {
        let busy = stage.busy();
        let all = ["/a", "/b"].map(|path| stage.share(&[delete(path), list(path, false)]));
        stage.idle(&busy);
        let (writes, _) = stage.asked(MULTI);
        let (lists, _) = stage.asked(MULTI_READ);
        for number in [writes, lists] {
            stage.reply(number, THROTTLED);
        }
        for answers in all {
            assert_eq!(told(&answers), [throttled(DELETE), throttled(CHILDREN)]);
        }
    }
}

/// It was asked again, and done twice.
#[test]
fn a_server_that_cannot_say_what_became_of_all_is_left() {
    for err in [CONNECTION_LOSS, OPERATION_TIMEOUT] {
        let mut stage = Stage::new();
        let busy = stage.busy();
        let all = ["/a", "/b"].map(|path| stage.share(&[create(&format!("{path}/n"))]));
        stage.idle(&busy);
        let (writes, _) = stage.asked(MULTI);
        stage.reply(writes, err);
        for answers in all {
            assert!(
                matches!(told(&answers)[..], [Err(NoReply::Lost(_))]),
                "{err}"
            );
        }
        assert!(stage.cut.is_some(), "{err}");
        assert!(stage.receive().is_none(), "nothing is asked again");
    }
}

/// The same where a server hangs up on it.
#[test]
fn packets_that_servers_choke_on_are_not_sent_for_ever() {
    let mut stage = Stage::new();
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
        stage.break_by(Ended::ByServer);
        stage.reopen();
        for answers in all {
            // Not a sign against the delete itself.
            let [Err(NoReply::Lost(Lost { breaks: 0, .. }))] = told(&answers)[..] else {
                panic!("lost");
            };
        }
    }
}

/// Servers that are restarted hang up on what they know as well. It was never asked again.
#[test]
fn packets_that_were_answered_before_are_sent_after_ordinary_breaks() {
    let mut stage = Stage::new();
    for round in 0..3 {
        let busy = stage.busy();
        let all = ["/a", "/b"].map(|path| stage.share(&[delete(path)]));
        stage.idle(&busy);
        let (writes, _) = stage.asked(MULTI);
        if round == 0 {
            let done = [result(DELETE, &[]), result(DELETE, &[])];
            stage.reply_with(writes, 9, &results(&done));
            for answers in all {
                assert_eq!(told(&answers), [DONE]);
            }
            let busy = stage.busy();
            let _all = ["/a", "/b"].map(|path| stage.share(&[delete(path)]));
            stage.idle(&busy);
            stage.asked(MULTI);
        }
        stage.break_by(Ended::ByServer);
        stage.reopen();
    }
}

/// Whoever waits is told before the break is.
#[test]
fn a_break_answers_those_who_wait() {
    let mut stage = Stage::new();
    stage.busy();
    let waiting = stage.share(&[delete("/a")]);
    stage.break_by(Ended::ByServer);
    assert!(matches!(
        told(&waiting)[..],
        [Err(NoReply::Lost(Lost { breaks: 0, .. }))]
    ));
}

/// What is said alone goes at once, and what was said before it goes before it.
#[test]
fn nothing_is_overtaken() {
    let mut stage = Stage::new();
    stage.busy();
    let _shared = stage.share(&[delete("/a")]);
    let _alone = stage.say(Batching::Never, &[delete("/b")]);
    let (_, first) = stage.asked(DELETE);
    let (_, second) = stage.asked(DELETE);
    assert!(first.starts_with(&text("/a")) && second.starts_with(&text("/b")));
}

#[test]
fn a_malformed_answer_for_several_breaks_the_connection() {
    let mut stage = Stage::new();
    let busy = stage.busy();
    let all = ["/a", "/b"].map(|path| stage.share(&[delete(path)]));
    stage.idle(&busy);
    let (writes, _) = stage.asked(MULTI);
    let one = [result(DELETE, &[])];
    stage.reply_with(writes, 9, &results(&one));
    for answers in all {
        assert!(matches!(told(&answers)[..], [Err(NoReply::Lost(_))]));
    }
    assert!(stage.cut.is_some());
}

/// Who waits for others is sent by the clock at the latest: an answer that takes long holds up nobody.
#[test]
fn who_waits_goes_after_the_longest_wait() {
    let mut stage = Stage::with(LONG, LONGEST_WAIT);
    stage.busy();
    let (_, first) = stage
        .submit(Batching::Allowed, &[delete("/a")])
        .expect("open");
    assert_eq!(first, Submitted::WaitAndTick);
    let (_, second) = stage
        .submit(Batching::Allowed, &[delete("/b")])
        .expect("open");
    assert_eq!(second, Submitted::Wait, "the tick is on its way");
    let tick = stage.pass(LONGEST_WAIT / 2, None);
    assert_eq!(tick.wait, LONGEST_WAIT / 2);
    assert!(stage.receive().is_none());
    stage.pass(LONGEST_WAIT / 2 + Duration::from_nanos(1), None);
    let (_, both) = stage.asked(MULTI);
    assert!(both.windows(2).any(|bytes| bytes == b"/a"));
    assert!(both.windows(2).any(|bytes| bytes == b"/b"));
}

/// A client that is closed sends what waits before its good-bye, and takes nothing more.
#[test]
fn the_good_bye_comes_last() {
    let mut stage = Stage::new();
    stage.busy();
    let waiting = stage.share(&[delete("/a")]);
    assert!(stage.core.close() && !stage.core.close());
    stage.core.say_goodbye(stage.now);
    stage.flush();
    stage.asked(DELETE);
    let (goodbye, _) = stage.asked(frame::OP_CLOSE);
    let late = stage.submit(Batching::Allowed, &[delete("/late")]);
    assert_eq!(late.map(|_| ()), Err(NotSent::NotOpen));
    for xid in 1..goodbye {
        stage.reply(xid, 0);
    }
    assert_eq!(told(&waiting), [DONE]);
    assert!(!stage.core.is_session_closed());
    stage.reply(goodbye, 0);
    assert!(stage.core.is_session_closed());
}
