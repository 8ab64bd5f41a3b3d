//! What is done to connections, by bytes and times alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use zklock_protocol::{
    ConnectRequest, ErrorCode, Frames, Reader, ReplyHeader, Request, RequestHeader, Writer,
};

use super::*;
use crate::op::Op;

const MS: Duration = Duration::from_millis(1);
const NOW: Duration = Duration::ZERO;

fn machine() -> (Machine, ConnectionId, i64) {
    let mut machine = Machine::new(Settings {
        line: crate::core::Line::V3_8,
        server_id: 1,
        tick: MS * 100,
        min_session_timeout: MS * 200,
        max_session_timeout: MS * 60_000,
        max_frame: 1000,
        container_check: MS * 60_000,
        epoch_ms: 0,
        secret: 0,
    });
    let (id, session) = open(&mut machine);
    (machine, id, session)
}

fn open(machine: &mut Machine) -> (ConnectionId, i64) {
    let id = machine.accept(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    let hello = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 1000,
        session_id: 0,
        password: Vec::new(),
        read_only: None,
    };
    machine.receive(id, &Writer::frame(|writer| hello.write(writer)), NOW);
    assert_eq!(machine.take_acts().len(), 1);
    let session = machine.core.connections[&id].session;
    (id, session.expect("it was granted"))
}

fn sync(number: i32) -> Vec<u8> {
    let request = Request::Sync {
        path: "/".to_owned(),
    };
    let header = RequestHeader {
        xid: number,
        opcode: request.opcode(),
    };
    Writer::frame(|writer| {
        header.write(writer);
        request.write(writer);
    })
}

/// The numbers and errors of the answers that were written since the last look, then the end, if
/// there was one.
fn answers(machine: &mut Machine) -> (Vec<(i32, ErrorCode)>, Option<Act>) {
    let mut frames = Frames::new(1000);
    let mut end = None;
    for (_, act) in machine.take_acts() {
        match act {
            Act::Write(bytes) => frames.push(&bytes),
            other => end = Some(other),
        }
    }
    let mut answers = Vec::new();
    while let Some(frame) = frames.next_frame().expect("well-formed") {
        let header = ReplyHeader::read(&mut Reader::new(&frame)).expect("well-formed");
        answers.push((header.xid, header.error));
    }
    (answers, end)
}

fn numbers(machine: &mut Machine) -> Vec<i32> {
    let (answers, end) = answers(machine);
    assert_eq!(end, None);
    answers.into_iter().map(|(number, _)| number).collect()
}

#[test]
fn frames_are_put_together_from_pieces() {
    let (mut machine, id, _) = machine();
    let bytes = [sync(1), sync(2)].concat();
    for byte in &bytes[..bytes.len() - 1] {
        machine.receive(id, &[*byte], NOW);
    }
    assert_eq!(numbers(&mut machine), [1]);
    machine.receive(id, &bytes[bytes.len() - 1..], NOW);
    assert_eq!(numbers(&mut machine), [2]);
}

#[test]
fn a_length_that_is_none_ends_the_connection_after_what_was_good() {
    let (mut machine, id, _) = machine();
    machine.receive(id, &[sync(1), vec![0xff; 4]].concat(), NOW);
    assert_eq!(
        answers(&mut machine),
        (vec![(1, ErrorCode::OK)], Some(Act::Finish))
    );
}

#[test]
fn delays_keep_the_order_and_a_shorter_one_overtakes_nothing() {
    let (mut machine, id, _) = machine();
    machine.change(Whom::All, NOW, |regime| regime.delay = MS * 10);
    machine.receive(id, &sync(1), NOW);
    machine.change(Whom::All, NOW, |regime| regime.delay = MS);
    machine.receive(id, &sync(2), NOW);
    assert_eq!(machine.deadline(), Some(MS * 10));
    machine.advance(MS * 10);
    assert!(numbers(&mut machine).is_empty());
    machine.advance(MS * 11);
    assert_eq!(numbers(&mut machine), [1, 2]);
}

#[test]
fn whoever_is_deaf_or_mute_catches_up_later() {
    let (mut machine, id, session) = machine();
    let whom = Whom::Session(session);
    machine.change(whom, NOW, |regime| regime.deaf = true);
    machine.receive(id, &sync(1), NOW);
    machine.end(id, NOW);
    assert_eq!(
        (numbers(&mut machine), machine.seen.asked.len()),
        (vec![], 1)
    );
    machine.change(whom, NOW, |regime| {
        (regime.deaf, regime.mute) = (false, true);
    });
    assert_eq!(machine.seen.asked.len(), 2);
    // Its end was heard as well. What was answered before goes out first.
    assert_eq!(answers(&mut machine), (vec![], None));
    machine.heal(NOW);
    assert_eq!(
        answers(&mut machine),
        (vec![(1, ErrorCode::OK)], Some(Act::Finish))
    );
}

#[test]
fn connections_to_come_suffer_what_all_do() {
    let (mut machine, _, _) = machine();
    machine.change(Whom::All, NOW, |regime| regime.mute = true);
    let id = machine.accept(SocketAddr::from((Ipv4Addr::LOCALHOST, 2)));
    machine.receive(id, b"ruok", NOW);
    assert_eq!(machine.take_acts(), []);
    machine.heal(NOW);
    let expected = [(id, Act::Write(b"imok".to_vec())), (id, Act::Finish)];
    assert_eq!(machine.take_acts(), expected);
}

#[test]
fn the_oldest_of_several_rules_has_its_way_and_all_count() {
    let (mut machine, id, _) = machine();
    let code = |code| Effect::Answer(code);
    let first = machine.add_rule(Phase::Request, Op::Sync.nth(2), code(ErrorCode::NO_AUTH));
    let every = machine.add_rule(Phase::Request, Op::Sync.every(), code(ErrorCode::NO_NODE));
    for number in 1..=3 {
        machine.receive(id, &sync(number), NOW);
    }
    let expected = [
        (1, ErrorCode::NO_NODE),
        (2, ErrorCode::NO_AUTH),
        (3, ErrorCode::NO_NODE),
    ];
    assert_eq!(answers(&mut machine), (expected.to_vec(), None));
    assert_eq!(
        (machine.times_struck(first), machine.times_struck(every)),
        (1, 2)
    );
}

#[test]
fn what_is_held_holds_what_follows_and_is_counted_once() {
    let (mut machine, id, _) = machine();
    let request = machine.add_rule(Phase::Request, Op::Sync.nth(1), Effect::Hold);
    let reply = machine.add_rule(Phase::Reply, Op::Sync.nth(1), Effect::Hold);
    machine.receive(id, &[sync(1), sync(2)].concat(), NOW);
    assert_eq!(
        (numbers(&mut machine), machine.times_struck(request)),
        (vec![], 1)
    );
    machine.remove_rule(request, NOW);
    // The reply to the same request is held then, and that to the next behind it.
    assert_eq!(
        (numbers(&mut machine), machine.times_struck(reply)),
        (vec![], 1)
    );
    assert_eq!(machine.seen.asked.len(), 3);
    machine.remove_rule(reply, NOW);
    assert_eq!(numbers(&mut machine), [1, 2]);
}

#[test]
fn a_lost_reply_cuts_after_what_was_before_it() {
    let (mut machine, id, _) = machine();
    machine.add_rule(Phase::Reply, Op::Sync.nth(2), Effect::Lose(Loss::Cut));
    machine.receive(id, &[sync(1), sync(2), sync(3)].concat(), NOW);
    assert_eq!(
        answers(&mut machine),
        (vec![(1, ErrorCode::OK)], Some(Act::Reset))
    );
    assert_eq!(
        machine.deadline(),
        Some(MS * 1100),
        "only the session is left"
    );
}

#[test]
fn a_stop_ends_connections_and_keeps_sessions() {
    let (mut machine, id, session) = machine();
    machine.stop(NOW);
    assert_eq!(machine.take_acts(), [(id, Act::Reset)]);
    machine.start(MS * 5000);
    machine.advance(MS * 6000);
    assert!(machine.core.sessions.contains(session));
    machine.advance(MS * 6100);
    assert!(!machine.core.sessions.contains(session));
}

#[test]
fn no_session_ends_while_the_server_is_stopped() {
    let (mut machine, _, session) = machine();
    machine.stop(NOW);
    assert_eq!(machine.deadline(), None);
    machine.advance(MS * 5000);
    machine.heal(MS * 5000);
    assert!(machine.core.sessions.contains(session));
    machine.start(MS * 6000);
    assert_eq!(machine.deadline(), Some(MS * 7100), "its whole time again");
}

#[test]
fn a_silence_that_waits_for_its_turn_is_healed_as_well() {
    let (mut machine, id, _) = machine();
    machine.change(Whom::All, NOW, |regime| regime.delay = MS * 10);
    machine.add_rule(Phase::Reply, Op::Sync.nth(1), Effect::Lose(Loss::Hang));
    machine.receive(id, &sync(1), NOW);
    machine.advance(MS * 10);
    machine.heal(MS * 10);
    machine.receive(id, &sync(2), MS * 10);
    machine.advance(MS * 20);
    assert_eq!(numbers(&mut machine), [2]);
}

#[test]
fn what_is_held_is_not_lost_by_a_rule_that_is_gone() {
    let (mut machine, id, _) = machine();
    machine.add_rule(Phase::Request, Op::Sync.nth(1), Effect::Hold);
    machine.add_rule(Phase::Reply, Op::Sync.nth(1), Effect::Lose(Loss::Hang));
    machine.receive(id, &sync(1), NOW);
    machine.heal(NOW);
    machine.receive(id, &sync(2), NOW);
    assert_eq!(numbers(&mut machine), [1, 2]);
}

#[test]
fn what_is_answered_in_place_of_being_done_keeps_its_session_alive() {
    let (mut machine, id, session) = machine();
    machine.add_rule(
        Phase::Request,
        Op::Sync.every(),
        Effect::Answer(ErrorCode::NO_AUTH),
    );
    machine.receive(id, &sync(1), MS * 900);
    machine.advance(MS * 1500);
    assert!(machine.core.sessions.contains(session));
}

#[test]
fn a_paused_server_says_nothing_whatever_is_done_to_it() {
    let (mut machine, id, session) = machine();
    let rule = machine.add_rule(Phase::Reply, Op::Sync.nth(1), Effect::Hold);
    machine.receive(id, &[sync(1), sync(2)].concat(), NOW);
    machine.pause();
    machine.remove_rule(rule, NOW);
    machine.heal(NOW);
    machine.advance(MS * 5000);
    assert_eq!((machine.take_acts(), machine.deadline()), (vec![], None));
    assert!(machine.core.sessions.contains(session));
    assert!(machine.expire(session, NOW), "verbs work");
    assert_eq!(machine.take_acts(), []);
    machine.wake();
    machine.advance(NOW);
    let said = vec![(1, ErrorCode::OK), (2, ErrorCode::OK)];
    assert_eq!(answers(&mut machine), (said, Some(Act::Finish)));
}

#[test]
fn what_is_forgotten_still_counts() {
    let (mut machine, _, session) = machine();
    let request = Request::Sync {
        path: "x".repeat(1024 * 1024),
    };
    for _ in 0..100 {
        machine.remember(Asked::new(session, request.opcode(), Some(&request)));
    }
    assert_eq!(machine.seen.asked.len(), 63, "their memory is bounded");
    assert_eq!(machine.seen.counts[&Op::Sync], 100);
}
