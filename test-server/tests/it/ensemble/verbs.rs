//! What can be done to an ensemble, by its users' verbs and on real sockets.

use std::time::{Duration, Instant};

use zklock::{Client, Mutex};
use zklock_protocol::{Acl, Create, CreateForm, CreateMode, Reply, Request};
use zklock_test::{Ensemble, ErrorCode, Loss, Op, Server};

use crate::wire::{Answer, Wire};

const T: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(30);

fn start() -> Ensemble {
    Ensemble::start(3).expect("loopback has free ports")
}

fn open(ensemble: &Ensemble, at: usize) -> Wire {
    Wire::open(ensemble.server(at).address(), T).expect("it serves")
}

fn create(path: &str) -> Request {
    Request::Create(Create {
        form: CreateForm::Create,
        path: path.to_owned(),
        data: Some(Vec::new()),
        acl: [Acl::open()].into(),
        mode: CreateMode(0),
        ttl_ms: -1,
    })
}

#[track_caller]
fn ask(wire: &mut Wire, request: &Request) -> Result<Reply, ErrorCode> {
    match wire.ask(request).expect("an answer") {
        Answer::Reply {
            error: ErrorCode::OK,
            reply,
            ..
        } => Ok(reply),
        Answer::Reply { error, .. } => Err(error),
        Answer::End => panic!("the connection has ended"),
    }
}

fn others(ensemble: &Ensemble, than: usize) -> Vec<usize> {
    (0..ensemble.size())
        .filter(|index| *index != than)
        .collect()
}

#[test]
fn a_lock_outlives_each_of_its_servers() {
    let ensemble = start();
    let client = Client::connect(&ensemble.connect_string()).expect("they serve");
    let guard = Mutex::new(&client, "/m")
        .expect("a path")
        .lock()
        .expect("free");
    for index in 0..3 {
        ensemble.kill(index);
        ensemble.restart(index).expect("its port was kept");
    }
    let is_held = |_: &Ensemble| guard.is_held();
    assert!(ensemble.wait_until(SOON, is_held), "{:?}", guard.state());
    guard.unlock().expect("it is held");
    assert!(ensemble.wait_until(SOON, |ensemble| {
        (0..3).all(|index| ensemble.server(index).nodes().len() <= 1)
    }));
}

#[test]
fn a_server_that_was_killed_follows_who_was_elected_without_it() {
    let ensemble = start();
    let old = ensemble.leader();
    let begun = Instant::now();
    ensemble.kill(old);
    let new = ensemble.leader();
    assert!(new != old && begun.elapsed() >= Duration::from_millis(50));
    ensemble.restart(old).expect("its port was kept");
    assert!(ensemble.serves(old));
    assert_eq!(ensemble.leader(), new);
}

#[test]
fn a_server_that_is_cut_off_hangs_up_until_it_is_healed() {
    let ensemble = start();
    let (leader, alone) = (ensemble.leader(), ensemble.follower());
    let mut wire = open(&ensemble, alone);
    ensemble.isolate(alone);
    assert!(ensemble.wait_until(SOON, |ensemble| !ensemble.serves(alone)));
    assert_eq!(wire.ask(&Request::Ping).ok(), Some(Answer::End));
    assert!(Wire::open(ensemble.server(alone).address(), T).is_err());
    assert_eq!(ensemble.leader(), leader);
    ask(&mut open(&ensemble, leader), &create("/a")).expect("most are there");
    assert!(ensemble.server(alone).node("/a").is_none());
    ensemble.heal();
    assert!(ensemble.wait_until(SOON, |ensemble| ensemble.serves(alone)));
    assert!(ensemble.server(alone).node("/a").is_some());
}

#[test]
fn each_way_can_be_cut_alone() {
    let ensemble = start();
    let (leader, follower) = (ensemble.leader(), ensemble.follower());
    let mut wire = open(&ensemble, follower);
    // Its leader is not heard: what is written comes to pass, and nobody here says so.
    ensemble.cut(leader, follower);
    wire.send(&create("/a")).expect("it is open");
    assert!(ensemble.wait_until(SOON, |ensemble| {
        ensemble.server(leader).node("/a").is_some()
    }));
    assert!(ensemble.server(follower).node("/a").is_none());
    ensemble.join(leader, follower);
    assert!(ensemble.server(follower).node("/a").is_some());
    // It is not heard: nothing comes to pass.
    ensemble.cut(follower, leader);
    wire.send(&create("/b")).expect("it is open");
    assert!(
        ensemble.wait_until(SOON, |ensemble| ensemble.server(follower).count(Op::Create)
            == 2)
    );
    assert!(ensemble.server(leader).node("/b").is_none());
}

#[test]
fn both_sides_of_a_partition_know_who_they_are() {
    let ensemble = start();
    let old = ensemble.leader();
    let rest = others(&ensemble, old);
    ensemble.partition(&[old], &rest);
    assert!(ensemble.serves(old), "it does not know yet");
    assert!(ensemble.wait_until(SOON, |ensemble| {
        !ensemble.serves(old) && rest.iter().all(|index| ensemble.serves(*index))
    }));
    assert!(rest.contains(&ensemble.leader()));
}

#[test]
fn a_reply_that_took_the_leader_is_lost_at_the_follower() {
    let ensemble = start();
    let follower = ensemble.follower();
    let server = ensemble.server(follower);
    let trap = server.lose_reply(Op::Create.nth(2), Loss::Silent);
    let hold = server.hold_reply(Op::Create.nth(3));
    let refuse = server.answer(Op::Create.nth(4), ErrorCode::THROTTLED_OP);
    ensemble.lag(follower, Duration::from_millis(10));
    let mut wire = open(&ensemble, follower);
    let numbers = ["/a", "/b", "/c", "/d"].map(|path| {
        let number = wire.send(&create(path)).expect("it is open");
        (path, number)
    });
    assert!(matches!(
        wire.answer(1, numbers[0].1),
        Ok(Answer::Reply { .. })
    ));
    hold.wait_until_held(SOON);
    assert_eq!((trap.times_sprung(), refuse.times_sprung()), (1, 1));
    assert!(server.node("/b").is_some() && server.node("/c").is_some());
    hold.release();
    assert!(matches!(
        wire.answer(1, numbers[2].1),
        Ok(Answer::Reply { .. })
    ));
    // In its turn, behind the others.
    let refused = wire.answer(1, numbers[3].1).expect("an answer");
    assert!(matches!(
        refused,
        Answer::Reply {
            error: ErrorCode::THROTTLED_OP,
            ..
        }
    ));
    assert!(server.node("/d").is_none());
}

#[test]
fn a_session_is_ended_by_the_leader_whoever_is_asked() {
    let ensemble = start();
    let [one, other] = [0, 1].map(|index| others(&ensemble, ensemble.leader())[index]);
    let wire = open(&ensemble, one);
    assert!(ensemble.server(other).expire(wire.session.session_id));
    assert!((0..3).all(|index| ensemble.server(index).sessions().is_empty()));
    assert!(!ensemble.server(one).expire(wire.session.session_id));
}

#[test]
fn a_leader_can_be_chosen() {
    let ensemble = start();
    for next in [1, 0, 2] {
        assert!(ensemble.elect(next));
        assert_eq!(ensemble.leader(), next);
        ask(
            &mut open(&ensemble, (next + 1) % 3),
            &create(&format!("/{next}")),
        )
        .expect("it leads");
    }
    ensemble.isolate(1);
    assert!(!ensemble.elect(1), "nobody hears it");
    ensemble.kill(0);
    assert!(!ensemble.elect(0), "it does not run");
}

#[test]
fn ensembles_of_other_sizes_have_leaders() {
    for size in [1, 2, 5] {
        let ensemble = Ensemble::start(size).expect("loopback has free ports");
        let leader = ensemble.leader();
        ask(&mut open(&ensemble, leader), &create("/a")).expect("it serves");
        for index in others(&ensemble, leader) {
            assert!(ensemble.server(index).node("/a").is_some());
        }
    }
}

#[test]
fn a_session_lives_for_its_time_and_ends_at_all() {
    let ensemble = Ensemble::builder(3)
        .servers(Server::builder().tick(Duration::from_millis(20)))
        .start()
        .expect("loopback has free ports");
    let wire = open(&ensemble, ensemble.follower());
    let begun = Instant::now();
    drop(wire.into_stream());
    assert!(ensemble.wait_until(SOON, |ensemble| {
        (0..3).all(|index| ensemble.server(index).sessions().is_empty())
    }));
    assert!(
        begun.elapsed() >= T - Duration::from_millis(50),
        "{:?}",
        begun.elapsed()
    );
}
