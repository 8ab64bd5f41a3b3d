//! Servers that lie, stammer, and say what nobody asked: whoever asked is always answered, once, and
//! nothing panics.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn requests() -> Vec<Request> {
    let path = || "/a".to_owned();
    vec![
        Request::GetChildren {
            path: path(),
            watch: true,
        },
        Request::GetData {
            path: path(),
            watch: false,
        },
        Request::Multi(vec![]),
        Request::Exists {
            path: path(),
            watch: true,
        },
    ]
}

/// What a server may say instead of an answer.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let number = || prop_oneof![4 => 1_i32..12, 1 => -4_i32..0, 1 => any::<i32>()];
    let err = || prop_oneof![4 => Just(0), 1 => -130_i32..0, 1 => any::<i32>()];
    let byte = prop_oneof![Just(0_u8), Just(1), Just(0x7f), Just(0xff), any::<u8>()];
    let record = vec(byte, 0..120);
    let frame = (number(), err(), record, -3_i32..4, 0_u8..8).prop_map(
        |(number, err, record, lie, lies)| {
            let mut frame = reply_frame(number, 1, &record);
            frame[16..20].copy_from_slice(&err.to_be_bytes());
            // One in eight lies about its length.
            if lies == 0 {
                let length = int(&frame, 0) + lie;
                frame[..4].copy_from_slice(&length.to_be_bytes());
            }
            frame
        },
    );
    let bytes = vec(any::<u8>(), 0..60);
    vec(prop_oneof![6 => frame, 1 => bytes], 0..8).prop_map(|parts| parts.concat())
}

/// A request of a handle, which lists a node and leaves a watch there.
fn listing(xid: i32) -> Vec<u8> {
    let mut frame = frame::request(xid, CHILDREN);
    frame.extend(text("/a"));
    frame.push(1);
    let length = i32::try_from(frame.len() - 4).expect("short");
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// The numbers of the answers to a handle's requests, without events.
fn answers_of(mut bytes: &[u8]) -> Vec<i32> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        let (frame, rest) = bytes.split_at(4 + usize::try_from(int(bytes, 0)).expect("a length"));
        numbers.extend(Some(int(frame, 4)).filter(|number| *number >= 0));
        bytes = rest;
    }
    numbers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_is_said_everybody_is_answered_once(noise in noise(), step in 1_usize..60) {
        let mut stage = Stage::new();
        let handle = stage.core.handle_enters(1);
        let watching = (zklock_protocol::WatchKind::CHILDREN, "/a".to_owned());
        let mut all = Vec::new();
        for number in 0..3 {
            all.push(stage.say(Batching::Never, &requests()));
            let mut frame = listing(number);
            let header = frame::RequestHeader { xid: number, opcode: CHILDREN };
            let watching = Some((&watching, None));
            let now = stage.now;
            stage.core.forward(1, handle, &mut frame, header, watching, now);
        }
        stage.flush();
        for part in noise.chunks(step) {
            stage.hear(part);
        }
        stage.break_by(Ended::ByServer);
        for answers in all {
            prop_assert_eq!(told(&answers).len(), requests().len());
            prop_assert!(answers.is_empty(), "told twice");
        }
        let (mut bytes, mut piece) = (Vec::new(), Vec::new());
        while stage.core.take_for(handle, &mut piece) && !piece.is_empty() {
            bytes.extend_from_slice(&piece);
        }
        prop_assert_eq!(answers_of(&bytes), [0, 1, 2]);
        prop_assert_eq!(stage.core.unanswered(), 0);
        // The next connection is as good as ever.
        stage.reopen();
        let answers = stage.share(&[delete("/n")]);
        let (xid, _) = stage.asked(DELETE);
        stage.reply(xid, 0);
        prop_assert_eq!(told(&answers), [DONE]);
    }
}

#[test]
fn replies_that_come_twice_or_in_another_order_break_the_connection() {
    for order in [[1, 1, 2], [2, 1, 3], [1, 3, 2]] {
        let mut stage = Stage::new();
        let sync = || Request::Sync { path: "/".into() };
        let answers = stage.say(Batching::Never, &[sync(), sync(), sync()]);
        for xid in order {
            stage.reply_with(xid, 1, &text("/"));
        }
        assert!(stage.cut.is_some(), "{order:?}");
        stage.break_by(Ended::ByUs);
        let told = told(&answers);
        assert!(matches!(told[2], Err(NoReply::Lost(_))), "{order:?}");
    }
}

/// Whoever answers out of turn gives one caller's answer to another.
#[test]
fn nonsense_breaks_the_connection() {
    let nonsense: [&[u8]; 4] = [
        &frame::reply(2, 0),
        &frame::reply(99, 0),
        &(-1_i32).to_be_bytes(),
        &3_i32.to_be_bytes(),
    ];
    for bytes in nonsense {
        let mut stage = Stage::new();
        let _answers = stage.say(Batching::Never, &[delete("/a"), delete("/b")]);
        stage.hear(bytes);
        assert!(stage.cut.is_some(), "{bytes:?}");
    }
}

/// A reply to nothing must not reach a handle: the crate panics.
#[test]
fn a_reply_to_nothing_is_kept_from_handles() {
    let mut stage = Stage::new();
    let handle = stage.core.handle_enters(1);
    for xid in [frame::XID_PING, frame::XID_AUTH, 1] {
        assert_eq!(stage.cut, None);
        stage.reply(xid, 0);
    }
    assert!(stage.cut.is_some());
    let mut bytes = Vec::new();
    assert!(stage.core.take_for(handle, &mut bytes) && bytes.is_empty());
}
