//! Golden bytes, round trips, and bytes from nowhere.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::znode::children::Children;

const MOST: usize = 1000;

/// The frame of a request, without its length and number.
fn encoded(request: &Request) -> Vec<u8> {
    let mut frame = b"before".to_vec();
    let shape = request.encode(&mut frame, MOST).expect("short");
    let frame = &frame[6..];
    let length = i32::from_be_bytes(frame[..4].try_into().expect("four bytes"));
    assert_eq!(usize::try_from(length), Ok(shape.bytes));
    assert_eq!(frame.len(), 4 + shape.bytes);
    assert_eq!(frame[4..8], [0; 4], "no number yet");
    assert_eq!(frame[8..12], shape.opcode.to_be_bytes());
    frame[8..].to_vec()
}

fn node(mode: CreateMode) -> NewNode {
    NewNode {
        path: "/a".into(),
        data: b"data".to_vec(),
        acl: Arc::new([Access {
            permissions: 31,
            scheme: "world".into(),
            id: "anyone".into(),
        }]),
        mode,
    }
}

/// What `node` looks like, but for the mode.
const NODE: &[u8] =
    b"\0\0\0\x02/a\0\0\0\x04data\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone";
const PATH: &[u8] = b"\0\0\0\x02/a";
const ANY_VERSION: &[u8] = b"\xff\xff\xff\xff";

/// Every request is written as `zookeeper.jute` has it.
#[test]
fn requests_are_written_by_the_book() {
    let path = || "/a".to_owned();
    let create = |mode| Request::Create(node(mode));
    let cases: Vec<(Request, Vec<&[u8]>)> = vec![
        (
            create(CreateMode::Persistent),
            vec![b"\0\0\0\x01", NODE, b"\0\0\0\0"],
        ),
        (
            create(CreateMode::Ephemeral),
            vec![b"\0\0\0\x01", NODE, b"\0\0\0\x01"],
        ),
        (
            Request::Create2(node(CreateMode::EphemeralSequential)),
            vec![b"\0\0\0\x0f", NODE, b"\0\0\0\x03"],
        ),
        (
            Request::Delete {
                path: path(),
                version: None,
            },
            vec![b"\0\0\0\x02", PATH, ANY_VERSION],
        ),
        (
            Request::Exists {
                path: path(),
                watch: true,
            },
            vec![b"\0\0\0\x03", PATH, b"\x01"],
        ),
        (
            Request::GetData {
                path: path(),
                watch: false,
            },
            vec![b"\0\0\0\x04", PATH, b"\0"],
        ),
        (
            Request::SetData {
                path: path(),
                data: b"x".to_vec(),
                version: Some(7),
            },
            vec![b"\0\0\0\x05", PATH, b"\0\0\0\x01x", b"\0\0\0\x07"],
        ),
        (
            Request::GetChildren {
                path: path(),
                watch: true,
            },
            vec![b"\0\0\0\x08", PATH, b"\x01"],
        ),
        (Request::Sync { path: path() }, vec![b"\0\0\0\x09", PATH]),
        (
            Request::RemoveWatches {
                path: path(),
                kind: WatchKind::Children,
            },
            vec![b"\0\0\0\x12", PATH, b"\0\0\0\x01"],
        ),
        (
            Request::RemoveWatches {
                path: path(),
                kind: WatchKind::Data,
            },
            vec![b"\0\0\0\x12", PATH, b"\0\0\0\x02"],
        ),
        (
            Request::Multi(vec![
                Step::Check {
                    path: path(),
                    version: None,
                },
                Step::Delete {
                    path: path(),
                    version: Some(1),
                },
            ]),
            vec![
                b"\0\0\0\x0e",
                b"\0\0\0\x0d\0\xff\xff\xff\xff",
                PATH,
                ANY_VERSION,
                b"\0\0\0\x02\0\xff\xff\xff\xff",
                PATH,
                b"\0\0\0\x01",
                b"\xff\xff\xff\xff\x01\xff\xff\xff\xff",
            ],
        ),
    ];
    for (request, wanted) in cases {
        assert_eq!(encoded(&request), wanted.concat(), "{request:?}");
    }
}

/// Writes that share a packet are a multi, and lists are what the book calls a multi read.
#[test]
fn packed_requests_are_written_by_the_book() {
    let packed = |kind, requests: &[Request]| {
        let encoded: Vec<_> = requests.iter().map(encoded).collect();
        let record = |one: &'static [u8]| {
            let opcode = i32::from_be_bytes(one[..4].try_into().expect("four bytes"));
            (opcode, &one[4..])
        };
        let leaked = encoded.into_iter().map(|one| record(one.leak()));
        let mut frame = b"before".to_vec();
        let (shape, _) = pack(kind, leaked, &mut frame);
        let frame = &frame[6..];
        let length = i32::from_be_bytes(frame[..4].try_into().expect("four bytes"));
        assert_eq!(usize::try_from(length), Ok(frame.len() - 4));
        assert_eq!(frame[4..8], [0; 4], "no number yet");
        assert_eq!(frame[8..12], shape.opcode.to_be_bytes());
        frame[8..].to_vec()
    };
    let delete = Request::Delete {
        path: "/a".into(),
        version: Some(1),
    };
    let created = node(CreateMode::EphemeralSequential);
    let steps = vec![
        Step::Create2(created.clone()),
        Step::Delete {
            path: "/a".into(),
            version: Some(1),
        },
    ];
    let multi = encoded(&Request::Multi(steps));
    assert_eq!(
        packed(Pack::Write, &[Request::Create2(created), delete]),
        multi
    );
    let list = Request::GetChildren {
        path: "/a".into(),
        watch: false,
    };
    let each: &[&[u8]] = &[b"\0\0\0\x08\0\xff\xff\xff\xff", PATH, b"\0"];
    let end: &[&[u8]] = &[b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"];
    let wanted = [&[&b"\0\0\0\x16"[..]], each, each, end].concat().concat();
    assert_eq!(packed(Pack::List, &[list.clone(), list]), wanted);
}

#[test]
fn a_request_over_the_limit_leaves_no_trace() {
    let request = |bytes| Request::SetData {
        path: "/a".into(),
        data: vec![1; bytes],
        version: None,
    };
    let around = 4 + 4 + 6 + 4 + 4;
    let mut frames = b"before".to_vec();
    let most = MOST - around;
    assert!(request(most).encode(&mut frames, MOST).is_ok());
    let before = frames.clone();
    let refused = request(most + 1).encode(&mut frames, MOST);
    assert_eq!(refused, Err(TooLarge { bytes: MOST + 1 }));
    assert_eq!(frames, before);
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("short");
    [&length.to_be_bytes(), bytes].concat()
}

fn stat_bytes(stat: &Stat) -> Vec<u8> {
    [
        &stat.czxid.to_be_bytes()[..],
        &stat.mzxid.to_be_bytes(),
        &stat.ctime.to_be_bytes(),
        &[7; 8],
        &stat.version.to_be_bytes(),
        &stat.cversion.to_be_bytes(),
        &[7; 4],
        &stat.ephemeral_owner.to_be_bytes(),
        &stat.data_length.to_be_bytes(),
        &stat.num_children.to_be_bytes(),
        &stat.pzxid.to_be_bytes(),
    ]
    .concat()
}

fn names_bytes(names: &Children) -> Vec<u8> {
    let count = i32::try_from(names.len()).expect("few");
    let names = names.iter().flat_map(|name| buffer(name.as_bytes()));
    count.to_be_bytes().into_iter().chain(names).collect()
}

fn header(kind: i32, done: bool, err: i32) -> Vec<u8> {
    [
        &kind.to_be_bytes()[..],
        &[u8::from(done)],
        &err.to_be_bytes(),
    ]
    .concat()
}

fn step_bytes(step: &StepReply) -> Vec<u8> {
    let (kind, record) = match step {
        StepReply::Created(path) => (1, buffer(path.as_bytes())),
        StepReply::CreatedWithStat(path, stat) => {
            (15, [buffer(path.as_bytes()), stat_bytes(stat)].concat())
        }
        StepReply::Done => (2, Vec::new()),
        StepReply::Stat(stat) => (5, stat_bytes(stat)),
    };
    [header(kind, false, 0), record].concat()
}

/// As a server writes it, and what it was asked.
fn written(reply: &Reply) -> (Expected, Vec<u8>) {
    match reply {
        Reply::Created(path) => (Expected::Created, buffer(path.as_bytes())),
        Reply::CreatedWithStat(path, stat) => (
            Expected::CreatedWithStat,
            [buffer(path.as_bytes()), stat_bytes(stat)].concat(),
        ),
        Reply::Done => (Expected::Nothing, Vec::new()),
        Reply::Stat(stat) => (Expected::Stat, stat_bytes(stat)),
        Reply::Data(data, stat) => (Expected::Data, [buffer(data), stat_bytes(stat)].concat()),
        Reply::Children(names) => (Expected::Children, names_bytes(names)),
        Reply::Synced => (Expected::Synced, buffer(b"/")),
        Reply::Multi(steps) => {
            let kinds = steps.iter().map(|step| match step {
                StepReply::Created(_) => opcode::CREATE,
                StepReply::CreatedWithStat(..) => opcode::CREATE_2,
                StepReply::Done => opcode::DELETE,
                StepReply::Stat(_) => opcode::SET_DATA,
            });
            let results = steps.iter().flat_map(step_bytes);
            let record = results.chain(header(-1, true, -1)).collect();
            (Expected::Multi(kinds.collect()), record)
        }
        Reply::Aborted { step, .. } => {
            let errors = (0..=step + 1).map(|at| match at.cmp(step) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => -101_i32,
                std::cmp::Ordering::Greater => -2,
            });
            let failed = |err: i32| [header(-1, false, err), err.to_be_bytes().to_vec()].concat();
            let record = errors.flat_map(failed).chain(header(-1, true, -1));
            let kinds = vec![opcode::CHECK; step + 2].into_boxed_slice();
            (Expected::Multi(kinds), record.collect())
        }
        Reply::Lists(lists) => {
            let each = lists.iter().flat_map(|list| match list {
                Ok(names) => [header(8, false, 0), names_bytes(names)].concat(),
                Err(_) => [header(-1, false, -101), (-101_i32).to_be_bytes().to_vec()].concat(),
            });
            let record = each.chain(header(-1, true, -1)).collect();
            (Expected::Lists(lists.len()), record)
        }
    }
}

fn names() -> impl Strategy<Value = Children> {
    vec("[a-zäß0-9_-]{1,12}", 0..8).prop_map(|names| names.iter().collect())
}

fn stats() -> impl Strategy<Value = Stat> {
    let longs = any::<[i64; 5]>();
    (longs, any::<[i32; 4]>()).prop_map(|(longs, ints)| Stat {
        czxid: longs[0],
        mzxid: longs[1],
        ctime: longs[4],
        version: ints[0],
        cversion: ints[1],
        ephemeral_owner: longs[2],
        data_length: ints[2],
        num_children: ints[3],
        pzxid: longs[3],
    })
}

fn step_replies() -> impl Strategy<Value = StepReply> {
    prop_oneof![
        "/[a-z]{1,9}".prop_map(StepReply::Created),
        ("/[a-z]{1,9}", stats()).prop_map(|(path, stat)| StepReply::CreatedWithStat(path, stat)),
        Just(StepReply::Done),
        stats().prop_map(StepReply::Stat),
    ]
}

fn lists() -> impl Strategy<Value = Result<Children, ServerError>> {
    prop_oneof![names().prop_map(Ok), Just(Err(ServerError::NoNode))]
}

fn replies() -> impl Strategy<Value = Reply> {
    prop_oneof![
        "/[a-zé]{1,20}".prop_map(Reply::Created),
        ("/[a-z]{1,20}", stats()).prop_map(|(path, stat)| Reply::CreatedWithStat(path, stat)),
        Just(Reply::Done),
        stats().prop_map(Reply::Stat),
        (vec(any::<u8>(), 0..50), stats()).prop_map(|(data, stat)| Reply::Data(data, stat)),
        names().prop_map(Reply::Children),
        Just(Reply::Synced),
        vec(step_replies(), 0..5).prop_map(Reply::Multi),
        vec(lists(), 0..4).prop_map(Reply::Lists),
        (0_usize..4).prop_map(|step| Reply::Aborted {
            step,
            error: ServerError::NoNode
        }),
    ]
}

const ALL_EXPECTED: [Expected; 7] = [
    Expected::Created,
    Expected::CreatedWithStat,
    Expected::Nothing,
    Expected::Stat,
    Expected::Data,
    Expected::Children,
    Expected::Synced,
];

/// How much memory a reply keeps, but for itself.
fn kept(reply: &Reply) -> usize {
    match reply {
        Reply::Created(path) | Reply::CreatedWithStat(path, _) => path.capacity(),
        Reply::Data(data, _) => data.capacity(),
        Reply::Children(names) => names.kept_bytes(),
        Reply::Lists(lists) => {
            let names = lists.iter().flatten();
            size_of_val(lists.as_slice()) + names.map(Children::kept_bytes).sum::<usize>()
        }
        _ => 0,
    }
}

proptest! {
    #[test]
    fn replies_round_trip(reply in replies()) {
        let (expected, record) = written(&reply);
        prop_assert_eq!(expected.decode(0, &record), Ok(Ok(reply)));
    }

    /// One byte less or more is no reply.
    #[test]
    fn every_byte_counts(reply in replies(), spare in any::<u8>()) {
        let (expected, mut record) = written(&reply);
        for short in 0..record.len() {
            prop_assert!(expected.decode(0, &record[..short]).is_err(), "{} bytes", short);
        }
        record.push(spare);
        prop_assert!(expected.decode(0, &record).is_err());
    }

    /// Whatever comes: no panic, and no more memory than a small multiple of it.
    #[test]
    fn bytes_from_nowhere_do_no_harm(
        record in vec(prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()], 0..200),
        kinds in vec(prop_oneof![Just(1), Just(2), Just(5), Just(13), Just(15)], 0..4),
        err in prop_oneof![Just(0), any::<i32>()],
        opcode in -11_i32..24,
    ) {
        let kinds_too = kinds.len();
        let multi = Expected::Multi(kinds.into_boxed_slice());
        let lists = Expected::Lists(kinds_too);
        for expected in ALL_EXPECTED.iter().chain([&multi, &lists]) {
            if let Ok(Ok(reply)) = expected.decode(err, &record) {
                prop_assert!(kept(&reply) <= 6 * record.len());
            }
        }
        let _ = digestible(opcode, &record);
    }

    /// A reply with a few bytes changed.
    #[test]
    fn a_spoilt_reply_does_no_harm(
        reply in replies(),
        spoilt in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (expected, mut record) = written(&reply);
        for (at, byte) in spoilt {
            if !record.is_empty() {
                let at = at.index(record.len());
                record[at] = byte;
            }
        }
        let _ = expected.decode(0, &record);
        for opcode in 0..20 {
            let _ = digestible(opcode, &record);
        }
    }

    #[test]
    fn every_error_number_means_something(number in any::<i32>()) {
        let answer = Expected::Stat.decode(number, &[]);
        if number == 0 {
            prop_assert!(answer.is_err(), "a stat is missing");
        } else {
            prop_assert!(matches!(answer, Ok(Err(_))));
        }
    }
}

#[test]
fn errors_are_known_by_their_numbers() {
    let numbered = |number| ServerError::numbered(number);
    assert_eq!(numbered(0), None);
    assert_eq!(numbered(-101), Some(ServerError::NoNode));
    assert_eq!(numbered(-127), Some(ServerError::Throttled));
    assert_eq!(numbered(-9999), Some(ServerError::Other(-9999)));
    let throttled = ServerError::Throttled.to_string();
    assert!(throttled.contains("overloaded"), "{throttled}");
}

/// What would make the crate allocate gigabytes, or panic.
#[test]
fn lies_are_kept_from_the_crate() {
    let huge = i32::MAX.to_be_bytes();
    let minus = (-2_i32).to_be_bytes();
    for opcode in [
        opcode::CREATE,
        opcode::GET_DATA,
        opcode::GET_CHILDREN,
        opcode::GET_ACL,
    ] {
        for lie in [&huge[..], &minus[..], &[], &huge[..3]] {
            assert!(digestible(opcode, lie).is_err(), "{opcode} {lie:?}");
        }
    }
    let not_text = [&1_i32.to_be_bytes()[..], &buffer(b"\xff")].concat();
    assert!(digestible(opcode::GET_CHILDREN, &not_text).is_err());
    assert!(digestible(opcode::CREATE, &not_text[4..]).is_err());
    assert!(digestible(opcode::EXISTS, &[0; 67]).is_err());
    for opcode in [opcode::EXISTS, opcode::SET_DATA, opcode::SET_ACL] {
        assert_eq!(digestible(opcode, &[0; 68]), Ok(()));
    }
    assert_eq!(
        digestible(opcode::GET_CHILDREN, &names_bytes(&["a"].iter().collect())),
        Ok(())
    );
}

#[test]
fn a_create2_within_a_multi_may_be_answered_without_its_stat() {
    let expected = Expected::Multi(vec![opcode::CREATE_2].into_boxed_slice());
    let plain = StepReply::Created("/a".into());
    let record = [step_bytes(&plain), header(-1, true, -1)].concat();
    let answer = expected.decode(0, &record);
    assert_eq!(answer, Ok(Ok(Reply::Multi(vec![plain]))));
}

/// A multi is done, or not done: nothing in between is believed.
#[test]
fn a_multi_that_was_done_in_part_is_no_reply() {
    let done = header(opcode::CHECK, false, 0);
    let failed = [header(-1, false, -101), (-101_i32).to_be_bytes().to_vec()].concat();
    let end = header(-1, true, -1);
    let expected = Expected::Multi(vec![opcode::CHECK; 2].into_boxed_slice());
    let decode = |parts: &[&[u8]]| expected.decode(0, &parts.concat());
    assert!(decode(&[&done, &done, &end]).is_ok());
    assert!(decode(&[&failed, &failed, &end]).is_ok());
    assert!(decode(&[&done, &failed, &end]).is_err());
    assert!(decode(&[&done, &end]).is_err());
    assert!(decode(&[&done, &done, &done, &end]).is_err());
    let other = header(opcode::DELETE, false, 0);
    assert!(decode(&[&done, &other, &end]).is_err());
}
