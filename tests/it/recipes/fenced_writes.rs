//! Writes that carry the proof: whoever has lost the lock writes nothing, whatever it believes.
//!
//! A holder that is told of its loss does not even send. So what is sent is held back on the way,
//! and the loss happens meanwhile: then only the server's own check is between two writers.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use testbed::raw::Flags;
use testbed::{Action, Matcher, Proxy, opcode, process, wait_until};
use zklock::{
    Acl, Client, FailedStep, LockState, MultiLock, Outcome, Permissions, RwLock, SemaphoreMutex,
    SimpleMutex, StepRefusal, Transaction,
};

use crate::fixtures::{SOON, client, client_at, mutex, raw, server, wait_for_children};
use crate::puppet;

/// A persistent node; and those above it.
fn make(path: &str, data: &str) {
    let mut raw = raw(server());
    for (at, _) in path.match_indices('/').skip(1) {
        // Another test may have made it.
        let _ = raw.create(&path[..at], b"", Flags::Persistent);
    }
    let made = raw.create(path, data.as_bytes(), Flags::Persistent);
    made.expect("nobody made it before");
}

fn data_of(path: &str) -> String {
    let data = raw(server()).data(path).expect("it stands");
    String::from_utf8(data).expect("text")
}

fn proxied() -> (Proxy, Client) {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    (proxy, client)
}

#[test]
fn all_is_done_and_told() {
    make("/fenced/told/old", "");
    let servers = format!("{}/fenced/told", server().connect_string());
    let client = client_at(&servers);
    let lock = mutex(&client, "/lock");
    let guard = lock.lock().expect("free");
    let done = guard
        .transaction()
        .create("/new", "a")
        .create("/new/child", vec![1, 2])
        .set("/new", "b", Some(0))
        .check("/new", Some(1))
        .delete("/old", None)
        .commit()
        .expect("held");
    let created = |path: &str| Outcome::Created { path: path.into() };
    assert_eq!(
        done,
        [
            created("/new"),
            created("/new/child"),
            Outcome::Set { version: 1 },
            Outcome::Checked,
            Outcome::Deleted
        ]
    );
    assert_eq!(data_of("/fenced/told/new"), "b");
    let read = |path| client.read(path).expect("answers");
    assert_eq!(read("/new"), Some((b"b".to_vec(), 1)));
    assert_eq!(read("/new/child"), Some((vec![1, 2], 0)));
    assert_eq!(read("/old"), None);
    assert_eq!(guard.transaction().commit().expect("held"), []);
    guard.unlock().expect("held");
}

/// On a fresh ensemble a transaction failed for want of the nodes above, and nothing made them.
#[test]
fn nodes_are_made_as_far_as_they_are_missing() {
    let client = client();
    let lock = mutex(&client, "/fenced/made/lock");
    let guard = lock.lock().expect("free");
    let commit = || {
        let steps = guard
            .transaction()
            .ensure("/fenced/made/a/b")
            .put("/fenced/made/c/d", "1");
        steps.put("/fenced/made/a/b", "2").commit().expect("held")
    };
    let created = |path: &str| Outcome::Created { path: path.into() };
    let first = [
        Outcome::Ensured { created: true },
        created("/fenced/made/c/d"),
        Outcome::Set { version: 1 },
    ];
    assert_eq!(commit(), first);
    let second = [
        Outcome::Ensured { created: false },
        Outcome::Set { version: 1 },
        Outcome::Set { version: 2 },
    ];
    assert_eq!(commit(), second);
    assert_eq!(data_of("/fenced/made/a/b"), "2");
    // What cannot be made is told with the step that could not.
    let under_the_lock = format!("{}/x", guard.path());
    let refused = guard
        .transaction()
        .put("/fenced/made/e", "")
        .ensure(&under_the_lock)
        .commit();
    let step = refused.expect_err("below an ephemeral node").failed_step();
    assert_eq!(step, Some(FailedStep::new(1, StepRefusal::EphemeralParent)));
    assert_eq!(client.read("/fenced/made/e").expect("answers"), None);
    // A step of the caller's own that is wrong is not tried again.
    let refused = guard
        .transaction()
        .ensure("/fenced/made/f")
        .create("/fenced/made/c", "")
        .commit();
    let step = refused.expect_err("it is there").failed_step();
    assert_eq!(step, Some(FailedStep::new(1, StepRefusal::NodeExists)));
    guard.unlock().expect("held");
}

/// What is missing is another thing when the transaction comes than when it was looked at.
#[test]
fn what_changes_after_the_look_is_looked_at_again() {
    let (proxy, client) = proxied();
    let lock = mutex(&client, "/fenced/race/lock");
    let guard = lock.lock().expect("free");
    make("/fenced/race/goes", "");
    let held = proxy.hold_request(opcode::MULTI);
    std::thread::scope(|scope| {
        let steps = guard.transaction().ensure("/fenced/race/comes/here");
        let steps = steps.put("/fenced/race/goes", "1");
        // Not the guard itself, which stays with its thread.
        let others = scope.spawn(move || {
            held.wait_until_held(SOON);
            make("/fenced/race/comes", "");
            let gone = raw(server()).delete("/fenced/race/goes");
            gone.expect("made above");
            held.release();
        });
        let done = steps.commit().expect("held");
        others.join().expect("no panic");
        let path = "/fenced/race/goes".to_owned();
        assert_eq!(
            done,
            [
                Outcome::Ensured { created: true },
                Outcome::Created { path }
            ]
        );
    });
    assert_eq!(data_of("/fenced/race/goes"), "1");
    guard.unlock().expect("held");
}

/// Holds a transaction back on its way, removes the node of the lock by hand, and lets it go on.
fn late(proxy: &Proxy, node: &str, path: &str, transaction: Transaction<'_>) {
    make(path, "before");
    let held = proxy.hold_request(opcode::MULTI);
    let node = node.to_owned();
    let committed = std::thread::scope(|scope| {
        scope.spawn(|| {
            held.wait_until_held(SOON);
            raw(server()).delete(&node).expect("it stands");
            held.release();
        });
        transaction.set(path, "after", None).commit()
    });
    let error = committed.expect_err("not ours any more");
    assert!(error.is_lock_lost(), "{path}: {error}");
    assert_eq!(data_of(path), "before");
}

#[test]
fn a_holder_whose_node_was_removed_writes_nothing() {
    let (proxy, client) = proxied();
    let lock = mutex(&client, "/fenced/removed/mutex");
    let guard = lock.lock().expect("free");
    let transaction = guard.transaction();
    late(&proxy, guard.path(), "/fenced/removed/1", transaction);
    assert_eq!(guard.state(), LockState::Lost);
    assert!(guard.unlock().expect_err("lost").is_lock_lost());

    let lock = RwLock::new(&client, "/fenced/removed/rw").expect("good");
    let guard = lock.write().expect("free");
    let transaction = guard.transaction();
    late(&proxy, guard.path(), "/fenced/removed/2", transaction);

    let lock = SemaphoreMutex::new(&client, "/fenced/removed/sem").expect("good");
    let guard = lock.lock().expect("free");
    let transaction = guard.transaction();
    late(&proxy, guard.path(), "/fenced/removed/3", transaction);
}

/// One of three is enough, whichever it is.
#[test]
fn a_multi_lock_that_lost_a_part_writes_nothing() {
    let (proxy, client) = proxied();
    let paths = ["a", "b", "c"].map(|name| format!("/fenced/multi/{name}"));
    for (number, folder) in paths.iter().enumerate() {
        let locks = [0, 1].map(|at| mutex(&client, &paths[at]));
        let third = RwLock::new(&client, &paths[2]).expect("good");
        let all = MultiLock::builder().with(&locks[0]).with(&locks[1]);
        let all = all.with(third.write_side()).build().expect("different");
        let guard = all.lock().expect("free");
        let names = crate::fixtures::children(server(), folder);
        let node = format!("{folder}/{}", names[0]);
        let path = format!("/fenced/multi-data/{number}");
        late(&proxy, &node, &path, guard.transaction());
        assert_eq!(guard.state(), LockState::Lost);
        drop(guard);
    }
    let locks = [0, 1].map(|at| mutex(&client, &paths[at]));
    let all = MultiLock::builder().with(&locks[0]).with(&locks[1]);
    let all = all.build().expect("different");
    let guard = all.lock().expect("free");
    let wrote = guard.transaction().create("/fenced/multi-data/all", "");
    assert_eq!(wrote.commit().expect("held").len(), 1);
}

/// The session ends while the transaction is on its way: it must not arrive in the next session.
#[test]
fn a_holder_whose_session_was_lost_writes_nothing() {
    let (proxy, client) = proxied();
    let path = "/fenced/session/data";
    make(path, "before");
    let lock = mutex(&client, "/fenced/session/lock");
    let guard = lock.lock().expect("free");
    let held = proxy.hold_request(opcode::MULTI);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            held.wait_until_held(SOON);
            proxy.refuse();
            let other = client_at(&server().connect_string());
            let lock = mutex(&other, "/fenced/session/lock");
            let guard = lock.lock().expect("after the session's end");
            held.release();
            proxy.accept();
            guard.transaction().set(path, "mine", None).commit()
        });
        let late = guard.transaction().set(path, "late", None).commit();
        let error = late.expect_err("never answered");
        assert!(error.is_connection_loss(), "{error}");
        next.join().expect("no panic").expect("held");
    });
    assert_eq!(guard.state(), LockState::Lost);
    let again = guard.transaction().set(path, "again", None).commit();
    assert!(again.expect_err("lost").is_lock_lost());
    let read = client.read(path).expect("a new session");
    assert_eq!(read, Some((b"mine".to_vec(), 1)));
}

/// Stopped between the decision and the write, for longer than its session lives.
#[test]
fn a_stopped_holder_writes_nothing() {
    let (lock_path, path) = ("/fenced/stopped/lock", "/fenced/stopped/data");
    make(path, "before");
    let mut puppet = puppet::start(&server().connect_string(), lock_path);
    assert_eq!(puppet.say("lock"), "ok");
    assert_eq!(puppet.say(&format!("write {path} first")), "ok");
    process::stop(puppet.pid());
    // The command is there before it goes on.
    puppet.command(&format!("write {path} late"));
    let client = client();
    let lock = mutex(&client, lock_path);
    let guard = lock.lock().expect("after the session's end");
    process::cont(puppet.pid());
    let answer = puppet.answer();
    assert!(answer.contains("SessionLost"), "{answer}");
    let wrote = guard.transaction().set(path, "mine", Some(1)).commit();
    assert_eq!(wrote.expect("held"), [Outcome::Set { version: 2 }]);
    assert_eq!(data_of(path), "mine");
}

#[test]
fn the_step_that_failed_is_named() {
    make("/fenced/failed/here/child", "");
    let client = client();
    let lock = mutex(&client, "/fenced/failed-lock");
    let guard = lock.lock().expect("free");
    let here = "/fenced/failed/here";
    let begin = || guard.transaction().set(here, "x", None);
    for (transaction, why) in [
        (begin().create(here, ""), StepRefusal::NodeExists),
        (begin().create("/fenced/no/parent", ""), StepRefusal::NoNode),
        (begin().set("/fenced/none", "", None), StepRefusal::NoNode),
        (begin().set(here, "", Some(7)), StepRefusal::BadVersion),
        (begin().delete(here, None), StepRefusal::NotEmpty),
        (begin().check(here, Some(0)), StepRefusal::BadVersion),
    ] {
        let error = transaction.commit().expect_err("refused");
        let failed = error.failed_step().expect("a step");
        let FailedStep {
            index, why: said, ..
        } = failed;
        assert_eq!((index, said), (1, why), "{error}");
        assert!(!error.is_lock_lost() && !error.is_connection_loss());
    }
    assert_eq!(data_of(here), "");
    assert!(guard.is_held());
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_sent() {
    let (proxy, one) = proxied();
    let before = proxy.counters().requested(opcode::MULTI);
    let lock = mutex(&one, "/fenced/invalid/lock");
    let guard = lock.lock().expect("free");
    let begin = || guard.transaction();
    for transaction in [
        begin().set("relative", "", None),
        begin().create("/", ""),
        begin().create("/a//b", "").create("/good", ""),
        begin().delete("/fenced\0", None),
        begin().check("/fenced", Some(-1)),
        begin().delete(guard.path(), None),
        begin().create("/fenced/large", vec![0; 2 << 20]),
    ] {
        let error = transaction.commit().expect_err("not possible");
        assert!(error.is_invalid(), "{error}");
    }
    assert!(one.read("a").expect_err("not possible").is_invalid());

    let two = client();
    let other = mutex(&two, "/fenced/invalid/two");
    let all = MultiLock::builder().with(&other).with(&lock);
    let all = all.build().expect("different");
    let error = all.lock().expect("ours").transaction().commit();
    assert!(error.expect_err("two clients").is_invalid());

    let simple = SimpleMutex::new(&one, "/fenced/invalid/simple").expect("good");
    let all = MultiLock::builder().with(&simple).build().expect("one");
    let error = all.lock().expect("free").transaction().commit();
    assert!(error.expect_err("a simple one").is_invalid());

    make("/fenced/invalid/unreadable", "");
    let most = Permissions::CREATE | Permissions::DELETE | Permissions::WRITE;
    let builder = Client::builder(&proxy.connect_string()).acl(Acl::entry("world", "anyone", most));
    let writer = builder.connect().expect("a server that works");
    let lock = mutex(&writer, "/fenced/invalid/unreadable");
    let error = lock.lock().expect("free").transaction().commit();
    let error = error.expect_err("nobody may look at the node");
    assert!(error.is_invalid(), "{error}");
    assert_eq!(proxy.counters().requested(opcode::MULTI), before);
}

#[test]
fn a_lost_reply_may_have_been_done_and_can_be_read() {
    let (proxy, client) = proxied();
    let lock = mutex(&client, "/fenced/reply/lock");
    make("/fenced/reply/data", "0");
    let guard = lock.lock().expect("free");
    for (lost_reply, data) in [(true, "1"), (false, "2")] {
        let trap = if lost_reply {
            proxy.on_reply(opcode::MULTI, Action::Reset)
        } else {
            proxy.on_request(opcode::MULTI, Action::Reset)
        };
        let transaction = guard.transaction();
        let error = transaction.set("/fenced/reply/data", data, None).commit();
        let error = error.expect_err("its answer is lost");
        assert!(error.is_connection_loss(), "{error}");
        trap.wait_until_sprung(SOON);
        let read = client.read("/fenced/reply/data").expect("reconnects");
        assert_eq!(read, Some((b"1".to_vec(), 1)));
    }
    wait_until("it is seen again", SOON, || guard.is_held());
}

/// Threads of two processes' sessions read, decide and write, while their connections break. Who
/// loses an answer looks whether its entry stands. Were a lost write done after that look, in the
/// tenure of the next thread or of the other session, the sum would not be what was booked.
/// What exists is looked at before anything is sent.
#[test]
fn a_look_that_is_lost_has_written_nothing() {
    let (proxy, client) = proxied();
    let lock = mutex(&client, "/fenced/look/lock");
    let guard = lock.lock().expect("free");
    let trap = proxy.on_reply(opcode::EXISTS, Action::Reset);
    let lost = guard.transaction().put("/fenced/look/node", "1").commit();
    let error = lost.expect_err("the answer is lost");
    trap.wait_until_sprung(SOON);
    assert!(error.is_connection_loss(), "{error}");
    assert!(error.to_string().contains("nothing was written"), "{error}");
}

#[test]
fn a_ledger_survives_lost_answers_and_hand_overs() {
    const THREADS: usize = 3;
    const BOOKINGS: usize = 6;
    let home = "/fenced/ledger";
    make(&format!("{home}/balance"), "0");
    let sessions = [proxied(), proxied()];
    let (booked, done) = (AtomicI64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut tellers = Vec::new();
        for (number, (_, client)) in sessions.iter().enumerate() {
            let lock = mutex(client, &format!("{home}/lock"));
            let lock = std::sync::Arc::new(lock);
            for thread in 0..THREADS {
                let (lock, booked) = (std::sync::Arc::clone(&lock), &booked);
                tellers.push(scope.spawn(move || {
                    for booking in 0..BOOKINGS {
                        let guard = lock.lock().expect("its turn");
                        let entry = format!("{home}/entry-{number}-{thread}-{booking}");
                        if book(client, &guard, home, &entry) {
                            booked.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }));
            }
        }
        let done = &done;
        for (proxy, _) in &sessions {
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let third = Matcher::nth(opcode::MULTI, 3);
                    let trap = proxy.on_reply(third, Action::Reset);
                    wait_until("it has sprung, or all is done", SOON, || {
                        trap.times_sprung() > 0 || done.load(Ordering::SeqCst)
                    });
                }
            });
        }
        for teller in tellers {
            teller.join().expect("no panic");
        }
        done.store(true, Ordering::SeqCst);
    });
    let booked = booked.into_inner();
    assert!(booked > 0);
    assert_eq!(data_of(&format!("{home}/balance")), booked.to_string());
    wait_for_children(server(), &format!("{home}/lock"), 0);
}

/// Whether 1 was added to the balance.
fn book(client: &Client, guard: &zklock::MutexGuard, home: &str, entry: &str) -> bool {
    let balance = format!("{home}/balance");
    let (data, version) = client.read(&balance).expect("answers").expect("it stands");
    let sum: i64 = String::from_utf8(data).expect("text").parse().expect("sum");
    let done = guard
        .transaction()
        .set(&balance, (sum + 1).to_string(), Some(version))
        .create(entry, "1")
        .commit();
    match done {
        Ok(_) => true,
        Err(error) if error.is_connection_loss() => {
            let found = client.read(entry).expect("answers").is_some();
            assert!(found || guard.state() != LockState::Lost, "T is long");
            found
        }
        Err(error) => panic!("one at a time, and read under the lock: {error}"),
    }
}
