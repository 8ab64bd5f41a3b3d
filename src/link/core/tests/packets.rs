//! No packet is longer than a server may like, whoever fills it.
//!
//! One caller's own creates once went into one multi of any size: sixteen permits with 100 kB of
//! data each made the server hang up, under every lock of the client, and twice.

use super::*;
use crate::link::core::batch::{MOST_BYTES, MOST_PARTS};

const DATA: usize = 100 << 10;

fn large(path: &str) -> Request {
    new_node(path, vec![7; DATA], CreateMode::EPHEMERAL_SEQUENTIAL)
}

/// How many there are in a multi.
fn parts(packet: &[u8]) -> usize {
    let deletion = text("/n");
    let here = packet.windows(deletion.len());
    here.filter(|bytes| *bytes == deletion).count()
}

#[test]
fn what_one_caller_says_fills_no_packet_beyond_the_limit() {
    let mut stage = Stage::new();
    let mut asked: Vec<_> = (0..16).map(|_| large("/a/n")).collect();
    asked.push(list("/a", false));
    let answers = stage.share(&asked);
    let mut wanted = Vec::new();
    for number in 0..16 {
        let body = stage.receive().expect("a request");
        assert!(body.len() < 2 * DATA, "{} bytes in one packet", body.len());
        let name = format!("/a/n{number}");
        stage.reply_with(int(&body, 0), 9, &text(&name));
        wanted.push(created(&name));
    }
    let (lists, _) = stage.asked(CHILDREN);
    stage.reply_with(lists, 9, &names(&["n0"]));
    wanted.push(listed(&["n0"]));
    assert_eq!(told(&answers), wanted);
}

#[test]
fn many_small_writes_of_one_caller_go_in_several_packets() {
    const MANY: usize = 3_000;
    let mut stage = Stage::new();
    let answers = stage.share(&vec![delete("/n"); MANY]);
    let (mut seen, mut packets) = (0, 0);
    while seen < MANY {
        let body = stage.receive().expect("a request");
        assert_eq!(int(&body, 4), MULTI);
        assert!(body.len() <= MOST_BYTES, "{} bytes", body.len());
        let here = parts(&body);
        assert!((2..=MOST_PARTS).contains(&here), "{here} in one");
        let done = vec![result(DELETE, &[]); here];
        stage.reply_with(int(&body, 0), 9, &results(&done));
        seen += here;
        packets += 1;
    }
    assert!(packets < MANY / 20, "{packets} packets");
    assert_eq!(told(&answers), vec![DONE; MANY]);
}

/// Three packets of one caller, of which the second is refused: what the first and the third did
/// is done, and is not asked again. The list is, as it has not seen all.
#[test]
fn a_refused_packet_undoes_no_other() {
    let mut stage = Stage::new();
    let count = 2 * MOST_PARTS + 2;
    let mut asked = vec![create("/a/n"); count];
    asked.push(list("/a", false));
    let answers: Answers = stage.share(&asked);
    let mut wanted = Vec::new();
    let mut refused = 0;
    for packet in 0..3 {
        let body = stage.asked(MULTI);
        let here = body
            .1
            .windows(8)
            .filter(|at| **at == text("/a/n")[..])
            .count();
        if packet == 1 {
            refused = here;
            let undone: Vec<_> = (0..here).map(|_| error(-101)).collect();
            stage.reply_with(body.0, 9, &results(&undone));
            wanted.extend(vec![super::refused(CREATE, ErrorCode::NO_NODE); here]);
        } else {
            let done = vec![result(CREATE, &text("/a/n1")); here];
            stage.reply_with(body.0, 9, &results(&done));
            wanted.extend(vec![created("/a/n1"); here]);
        }
    }
    assert_eq!(wanted.len(), count);
    let (early, _) = stage.asked(CHILDREN);
    stage.reply_with(early, 9, &names(&["early"]));
    for _ in 0..refused {
        let (number, _) = stage.asked(CREATE);
        stage.reply(number, -101);
    }
    let (late, _) = stage.asked(CHILDREN);
    stage.reply_with(late, 9, &names(&["late"]));
    wanted.push(listed(&["late"]));
    assert_eq!(told(&answers), wanted);
}
