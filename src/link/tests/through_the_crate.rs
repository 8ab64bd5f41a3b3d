//! The real crate, over a link, to a server played by a thread.

use zookeeper::{WatchedEvent, ZkError, ZkState, ZooKeeper};

use super::*;

const GET_DATA: i32 = 4;

/// This path's data are too long to pass.
const TOO_LONG: &[u8] = b"/too-long";
/// These are long, and pass.
const LONG_DATA: &[u8] = b"/long";
/// At this request the server hangs up.
const NEVER: &[u8] = b"/never";

fn connect(loopback: LoopbackListener) -> ZooKeeper {
    let address = loopback.address().expect("bound").to_string();
    let timeout = loopback.secret_timeout();
    let handle = ZooKeeper::connect(&address, timeout, |_: WatchedEvent| {});
    loopback
        .admit(Instant::now() + SOON)
        .expect("it knows the secret");
    handle.expect("threads")
}

/// Plays the server until it has to hang up.
fn play(mut served: Served) {
    let contains = |body: &[u8], path: &[u8]| body.windows(path.len()).any(|part| part == path);
    while let Some(request) = served.0.receive() {
        let (xid, opcode) = (int(&request, 0), int(&request, 4));
        if opcode == GET_DATA && contains(&request, NEVER) {
            return;
        }
        let data = match opcode {
            GET_DATA if contains(&request, TOO_LONG) => vec![1; frame::MAX_REPLY_BYTES],
            GET_DATA if contains(&request, LONG_DATA) => vec![1; 3 << 20],
            GET_DATA => b"data".to_vec(),
            frame::OP_PING | frame::OP_CLOSE => {
                served.reply(xid, frame::OK);
                continue;
            }
            opcode => panic!("{opcode} was not asked"),
        };
        served.0.send(&frame::watch_event(2, b"/gone"));
        let mut body = i32::try_from(data.len())
            .expect("fits")
            .to_be_bytes()
            .to_vec();
        body.extend(data);
        body.resize(body.len() + 80, 0);
        served.reply_with(xid, 1, &body);
    }
}

#[test]
fn it_gets_all_its_answers_over_breaks_and_excesses() {
    let server = FakeServer::start();
    let (bench, loopback) = Setup::default().start(&[server.address]);
    let handle = connect(loopback);
    let get = |path: &str| handle.get_data(path, false).map(|(data, _)| data);
    for round in 0..3 {
        let (served, hello) = server.grant(7, LONG);
        assert_eq!(hello.session_id, if round == 0 { 0 } else { 7 });
        bench.connected();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || play(served));
            assert_eq!(get("/a"), Ok(b"data".to_vec()));
            assert!(bench.nodes.recv_timeout(SOON).is_ok(), "an event");
            assert_eq!(get("/long").map(|data| data.len()), Ok(3 << 20));
            assert_eq!(get("/too-long"), Err(ZkError::MarshallingError));
            let large = handle.set_data("/a", vec![0; 3 << 20], None);
            assert_eq!(large.err(), Some(ZkError::BadArguments));
            assert_eq!(get("/a"), Ok(b"data".to_vec()));
            // The connection breaks under a dozen calls.
            let callers: Vec<_> = (0..12).map(|_| scope.spawn(|| get("/never"))).collect();
            let answers: Vec<_> = callers
                .into_iter()
                .map(|caller| caller.join().expect("no panic").expect_err("it hangs up"))
                .collect();
            // After three in a row, whoever is on the way is told not to repeat it. Who asks only
            // when it has broken hears just that.
            let is_poison = |error: &ZkError| *error == ZkError::MarshallingError;
            assert_eq!(answers.iter().any(is_poison), round == 2, "{answers:?}");
            let is_break = |error: &ZkError| *error == ZkError::ConnectionLoss;
            let told = answers
                .iter()
                .all(|error| is_break(error) || is_poison(error));
            assert!(told, "{answers:?}");
            server.join().expect("no panic");
        });
        bench.suspended();
        assert_eq!(get("/a"), Err(ZkError::ConnectionLoss));
    }
    bench.link.close(Duration::from_millis(100));
    // Its good-bye is answered, so dropping the handle does not hang.
    drop(handle);
    assert!(bench.link.wait_ended(Instant::now() + SOON));
}

/// It dials its closed port without a pause. It did so for an hour at the least, after the drop of the
/// handle as well.
#[test]
fn when_it_is_hung_up_on_its_thread_ends() {
    let server = FakeServer::start();
    let (bench, loopback) = Setup::default().start(&[server.address]);
    let handle = connect(loopback);
    let (_served, _) = server.grant(7, LONG);
    bench.connected();
    let (tell, told) = unbounded();
    handle.add_listener(move |state| {
        let _ = tell.send(state);
    });
    let guests = bench.link.wire.state.lock().guests.clone();
    for guest in guests {
        drop(bench.link.wire.state.lock().core.handle_leaves(guest.id));
        guest.hang_up();
    }
    while told.recv_timeout(SOON).expect("it is over") != ZkState::Closed {}
    let asked = handle.exists("/", false);
    assert_eq!(asked.err(), Some(ZkError::ConnectionLoss));
}
