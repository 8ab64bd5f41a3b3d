//! Servers that lie, stammer, and say what nobody asked: the one who asked is always answered, once,
//! nothing panics, and the next connection is as good as ever.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use zookeeper::{WatchedEvent, ZkError, ZooKeeper};

use super::*;

/// Counts how often it is called.
struct Once {
    calls: AtomicUsize,
    answers: Sender<Vec<Told>>,
}

impl Completion for Once {
    fn completed(&self, answers: Vec<Answer>) {
        let (answers, _) = apart(answers);
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.answers.send(answers).expect("waited for");
    }
}

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn whatever_is_said_everybody_is_answered_once(noise in noise(), step in 1_usize..60) {
        let server = FakeServer::start();
        let (bench, loopback) = Setup::default().start(&[server.address]);
        let mut caller = Caller::enter(loopback);
        let (mut served, _) = server.grant(7, LONG);
        let connection = bench.opened();
        let mut slots = Vec::new();
        for number in 0..3 {
            let (answers, told) = unbounded();
            let slot = Arc::new(Once { calls: AtomicUsize::new(0), answers });
            let said = Arc::clone(&slot);
            bench.link.submit(connection, &requests(), Batching::Never, said).expect("open");
            slots.push((slot, told));
            caller.request(number, 8);
        }
        for part in noise.chunks(step) {
            // It may have been cut by now.
            if served.0.0.write_all(part).is_err() {
                break;
            }
        }
        drop(served);
        prop_assert_eq!(bench.suspended().session_id(), 7);
        for (slot, told) in slots {
            let answers = told.try_recv().expect("told before the break was");
            prop_assert_eq!(answers.len(), requests().len());
            prop_assert_eq!(slot.calls.load(Ordering::SeqCst), 1);
        }
        // Every request of the crate has its answer, whatever else was passed on to it.
        let mut open = 3;
        while open > 0 {
            open -= i32::from(caller.reply().0 >= 0);
        }
        let (_served, hello) = server.grant(7, LONG);
        prop_assert_eq!(hello.session_id, 7);
        prop_assert_eq!(bench.opened(), 2);
    }
}

/// Each is followed by a dial that is treated like the first.
#[test]
fn handshakes_from_nowhere_begin_nothing() {
    let good = ConnectResponse {
        protocol: frame::PROTOCOL,
        timeout_ms: 10_000,
        session_id: 9,
        password: password_of(9),
    }
    .to_frame();
    let spoilt = |at: usize, value: i32| {
        let mut frame = good.clone();
        frame[at..at + 4].copy_from_slice(&value.to_be_bytes());
        frame
    };
    let hostile: [Vec<u8>; 9] = [
        Vec::new(),
        good[..good.len() - 1].to_vec(),
        spoilt(0, -1),
        spoilt(0, i32::MAX),
        spoilt(0, 3),
        spoilt(4, 1),        // the protocol
        spoilt(8, 0),        // the timeout
        spoilt(8, -5),       // and less than none
        spoilt(20, 1 << 30), // the password's length
    ];
    let server = FakeServer::start();
    let (bench, _loopback) = Setup::default().start(&[server.address]);
    for bytes in hostile {
        let (mut served, hello) = server.greet();
        assert_eq!(hello.session_id, 0);
        served.0.send(&bytes);
        drop(served);
        bench.failure();
    }
    let _served = server.grant(7, LONG);
    assert_eq!(bench.connected().0.session_id(), 7);
}

/// The crate would allocate two gigabytes, or panic on the thread that serves everybody.
#[test]
fn the_crate_is_not_told_lies() {
    const CHILDREN: i32 = 8;
    let lies: [&[u8]; 4] = [
        &i32::MAX.to_be_bytes(),
        &(-1_i32).to_be_bytes(),
        b"\0\0\0\x01\0\0\0\x01\xff",
        b"",
    ];
    let server = FakeServer::start();
    let (bench, loopback) = Setup::default().start(&[server.address]);
    let address = loopback.address().expect("bound").to_string();
    let nobody = |_: WatchedEvent| {};
    let handle = ZooKeeper::connect(&address, loopback.secret_timeout(), nobody);
    loopback.admit(Instant::now() + SOON).expect("it knows");
    let handle = handle.expect("threads");
    for lie in lies {
        let (mut served, _) = server.grant(7, LONG);
        bench.opened();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| handle.get_children("/a", false));
            let (xid, opcode) = served.request();
            assert_eq!(opcode, CHILDREN);
            served.reply_with(xid, 1, lie);
            let answer = asking.join().expect("no panic");
            assert_eq!(answer, Err(ZkError::ConnectionLoss));
        });
        bench.suspended();
    }
    let (mut served, _) = server.grant(7, LONG);
    bench.opened();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| handle.get_children("/a", false));
        let (xid, _) = served.request();
        served.reply_with(xid, 1, b"\0\0\0\x01\0\0\0\x01b");
        assert_eq!(asking.join().expect("no panic"), Ok(vec!["b".into()]));
    });
    bench.link.close(Duration::ZERO);
}
