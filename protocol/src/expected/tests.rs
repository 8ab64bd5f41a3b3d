//! Round trips, and bytes from nowhere.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::children::Children;
use crate::jute::Writer;
use crate::records::{Acl, Stat};

/// An answer, with what was asked.
type Answered = (Expected, Reply);

fn simple(opcode: i32) -> Expected {
    Expected::of_parts(opcode, Box::default())
}

fn written(reply: &Reply) -> Vec<u8> {
    let mut writer = Writer::new();
    reply.write(&mut writer);
    writer.into_bytes()
}

fn names() -> impl Strategy<Value = Children> {
    vec("[a-zäß0-9_-]{1,12}", 0..8).prop_map(|names| names.iter().collect())
}

fn stats() -> impl Strategy<Value = Stat> {
    (any::<[i64; 6]>(), any::<[i32; 5]>()).prop_map(|(longs, ints)| Stat {
        czxid: longs[0],
        mzxid: longs[1],
        ctime: longs[2],
        mtime: longs[3],
        version: ints[0],
        cversion: ints[1],
        aversion: ints[2],
        ephemeral_owner: longs[4],
        data_length: ints[3],
        num_children: ints[4],
        pzxid: longs[5],
    })
}

/// With the number of what was asked.
fn simple_replies() -> impl Strategy<Value = (i32, Reply)> {
    let acl = Just(vec![Acl::open()]);
    prop_oneof![
        "/[a-zé]{1,20}".prop_map(|path| (opcode::CREATE, Reply::Path(path))),
        ("/[a-z]{1,20}", stats())
            .prop_map(|(path, stat)| (opcode::CREATE_2, Reply::Created { path, stat })),
        Just((opcode::DELETE, Reply::Nothing)),
        Just((opcode::REMOVE_WATCHES, Reply::Nothing)),
        stats().prop_map(|stat| (opcode::EXISTS, Reply::Stat(stat))),
        (proptest::option::of(vec(any::<u8>(), 0..50)), stats())
            .prop_map(|(data, stat)| (opcode::GET_DATA, Reply::Data { data, stat })),
        names().prop_map(|names| (opcode::GET_CHILDREN, Reply::Children(names))),
        (acl, stats()).prop_map(|(acl, stat)| (opcode::GET_ACL, Reply::Acl { acl, stat })),
        Just((opcode::SYNC, Reply::Path("/".into()))),
    ]
}

fn steps() -> impl Strategy<Value = (i32, Part)> {
    let kinds = [
        opcode::CREATE,
        opcode::CREATE_2,
        opcode::DELETE,
        opcode::SET_DATA,
    ];
    let of_steps = move |(opcode, _): &(i32, Reply)| kinds.contains(opcode);
    let set = |stat| (opcode::SET_DATA, Reply::Stat(stat));
    prop_oneof![
        simple_replies().prop_filter("no step", of_steps),
        stats().prop_map(set),
        Just((opcode::CHECK, Reply::Nothing)),
    ]
    .prop_map(|(opcode, reply)| (opcode, Part::Done(opcode, reply)))
}

fn lists() -> impl Strategy<Value = Part> {
    prop_oneof![
        names().prop_map(|names| Part::Done(opcode::GET_CHILDREN, Reply::Children(names))),
        Just(Part::Failed(ErrorCode::NO_NODE)),
    ]
}

/// The errors of all steps but this one say that another has failed.
fn aborted(step: usize) -> Answered {
    let errors = (0..=step + 1).map(|at| match at.cmp(&step) {
        std::cmp::Ordering::Less => ErrorCode::OK,
        std::cmp::Ordering::Equal => ErrorCode::NO_NODE,
        std::cmp::Ordering::Greater => ErrorCode::RUNTIME_INCONSISTENCY,
    });
    let checks = vec![opcode::CHECK; step + 2];
    let expected = Expected::of_parts(opcode::MULTI, checks.into());
    (expected, Reply::Parts(errors.map(Part::Failed).collect()))
}

fn answers() -> impl Strategy<Value = Answered> {
    prop_oneof![
        8 => simple_replies().prop_map(|(opcode, reply)| (simple(opcode), reply)),
        1 => vec(steps(), 0..5).prop_map(|steps| {
            let (kinds, parts): (Vec<_>, _) = steps.into_iter().unzip();
            let expected = Expected::of_parts(opcode::MULTI, kinds.into());
            (expected, Reply::Parts(parts))
        }),
        1 => vec(lists(), 0..4).prop_map(|lists| {
            let kinds = vec![opcode::GET_CHILDREN; lists.len()];
            let expected = Expected::of_parts(opcode::MULTI_READ, kinds.into());
            (expected, Reply::Parts(lists))
        }),
        1 => (0_usize..4).prop_map(aborted),
    ]
}

/// How much memory a reply keeps, but for itself.
fn kept(reply: &Reply) -> usize {
    match reply {
        Reply::Path(path) | Reply::Created { path, .. } => path.capacity(),
        Reply::Data { data, .. } => data.as_ref().map_or(0, Vec::capacity),
        Reply::Children(names) => names.kept_bytes(),
        Reply::Parts(parts) => {
            let each = parts.iter().map(|part| match part {
                Part::Done(_, reply) => kept(reply),
                Part::Failed(_) => 0,
            });
            size_of_val(parts.as_slice()) + each.sum::<usize>()
        }
        _ => 0,
    }
}

const SIMPLE: [i32; 10] = [
    opcode::CREATE,
    opcode::CREATE_2,
    opcode::DELETE,
    opcode::EXISTS,
    opcode::GET_DATA,
    opcode::SET_DATA,
    opcode::GET_ACL,
    opcode::GET_CHILDREN,
    opcode::SYNC,
    opcode::REMOVE_WATCHES,
];

proptest! {
    #[test]
    fn replies_round_trip((expected, reply) in answers()) {
        let record = written(&reply);
        prop_assert_eq!(expected.read(ErrorCode::OK, &record), Ok(Ok(reply)));
    }

    /// One byte less or more is no reply.
    #[test]
    fn every_byte_counts((expected, reply) in answers(), spare in any::<u8>()) {
        let mut record = written(&reply);
        for short in 0..record.len() {
            let read = expected.read(ErrorCode::OK, &record[..short]);
            prop_assert!(read.is_err(), "{} bytes", short);
        }
        record.push(spare);
        prop_assert!(expected.read(ErrorCode::OK, &record).is_err());
    }

    /// Whatever comes: no panic, and no more memory than a small multiple of it.
    #[test]
    fn bytes_from_nowhere_do_no_harm(
        record in vec(prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()], 0..200),
        kinds in vec(prop_oneof![Just(1), Just(2), Just(5), Just(13), Just(15)], 0..4),
        error in prop_oneof![Just(0), any::<i32>()],
    ) {
        let lists = vec![opcode::GET_CHILDREN; kinds.len()];
        let several = [
            Expected::of_parts(opcode::MULTI, kinds.into()),
            Expected::of_parts(opcode::MULTI_READ, lists.into()),
        ];
        for expected in SIMPLE.map(simple).iter().chain(&several) {
            if let Ok(Ok(reply)) = expected.read(ErrorCode(error), &record) {
                prop_assert!(kept(&reply) <= 12 * record.len());
            }
        }
    }

    /// A reply with a few bytes changed.
    #[test]
    fn a_spoilt_reply_does_no_harm(
        (expected, reply) in answers(),
        spoilt in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut record = written(&reply);
        for (at, byte) in spoilt {
            if !record.is_empty() {
                let at = at.index(record.len());
                record[at] = byte;
            }
        }
        let _ = expected.read(ErrorCode::OK, &record);
    }

    #[test]
    fn every_error_number_means_something(number in any::<i32>()) {
        let answer = simple(opcode::EXISTS).read(ErrorCode(number), &[]);
        if number == 0 {
            prop_assert!(answer.is_err(), "a stat is missing");
        } else {
            prop_assert_eq!(answer, Ok(Err(ErrorCode(number))));
        }
    }
}

/// What would have a reader allocate gigabytes, or show names that are none.
#[test]
fn lies_are_no_replies() {
    let huge = i32::MAX.to_be_bytes();
    let minus = (-2_i32).to_be_bytes();
    for opcode in [
        opcode::CREATE,
        opcode::GET_DATA,
        opcode::GET_CHILDREN,
        opcode::GET_ACL,
    ] {
        for lie in [&huge[..], &minus[..], &[], &huge[..3]] {
            let read = simple(opcode).read(ErrorCode::OK, lie);
            assert!(read.is_err(), "{opcode} {lie:?}");
        }
    }
    let read = |opcode, record: &[u8]| simple(opcode).read(ErrorCode::OK, record);
    let not_text = b"\0\0\0\x01\0\0\0\x01\xff";
    assert!(read(opcode::GET_CHILDREN, not_text).is_err());
    assert!(read(opcode::CREATE, &not_text[4..]).is_err());
    assert!(read(opcode::CREATE, &[0; 4]).is_err(), "no name");
    assert!(read(opcode::EXISTS, &[0; 67]).is_err());
    assert!(read(opcode::EXISTS, &[0; 68]).is_ok());
}

#[test]
fn a_create2_within_a_multi_may_be_answered_without_its_stat() {
    let expected = Expected::of_parts(opcode::MULTI, [opcode::CREATE_2].into());
    let plain = Part::Done(opcode::CREATE, Reply::Path("/a".into()));
    let reply = Reply::Parts(vec![plain]);
    assert_eq!(
        expected.read(ErrorCode::OK, &written(&reply)),
        Ok(Ok(reply))
    );
}

/// A multi is done, or not done: nothing in between is believed.
#[test]
fn a_multi_that_was_done_in_part_is_no_reply() {
    let done = Part::Done(opcode::CHECK, Reply::Nothing);
    let failed = Part::Failed(ErrorCode::NO_NODE);
    let expected = Expected::of_parts(opcode::MULTI, [opcode::CHECK; 2].into());
    let read = |parts: &[&Part]| {
        let parts = parts.iter().map(|part| (*part).clone()).collect();
        expected.read(ErrorCode::OK, &written(&Reply::Parts(parts)))
    };
    assert!(read(&[&done, &done]).is_ok());
    assert!(read(&[&failed, &failed]).is_ok());
    assert!(read(&[&done, &failed]).is_err());
    assert!(read(&[&done]).is_err());
    assert!(read(&[&done, &done, &done]).is_err());
    let other = Part::Done(opcode::DELETE, Reply::Nothing);
    assert!(read(&[&done, &other]).is_err());
    let unsaid = Part::Failed(ErrorCode::OK);
    assert!(read(&[&unsaid, &unsaid]).is_err(), "without an error");
}

#[test]
fn of_a_multi_the_step_that_failed_by_itself_is_told() {
    let failed = |errors: &[i32]| {
        let parts: Vec<_> = errors
            .iter()
            .map(|error| Part::Failed(ErrorCode(*error)))
            .collect();
        Part::refused(&parts)
    };
    assert_eq!(failed(&[0, -101, -2]), Some((1, ErrorCode::NO_NODE)));
    assert_eq!(failed(&[-2, -2, -102]), Some((2, ErrorCode::NO_AUTH)));
    let unclear = Some((0, ErrorCode::RUNTIME_INCONSISTENCY));
    assert_eq!(failed(&[-2, -2]), unclear);
    assert_eq!(failed(&[]), None);
}

#[test]
fn errors_are_known_by_their_numbers() {
    assert_eq!(ErrorCode(-101), ErrorCode::NO_NODE);
    assert_eq!(ErrorCode(-9999).to_string(), "the server's error -9999");
    let throttled = ErrorCode(-127).to_string();
    assert!(throttled.contains("overloaded"), "{throttled}");
}
