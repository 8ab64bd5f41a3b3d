//! The read-write lock on a server that works.

use std::time::Duration;

use testbed::{Matcher, Proxy, opcode, wait_until};
use zklock::{AcquireOptions, CancelToken, Dialect, LockState, Mutex, RwLock};

use crate::fixtures::{SOON, children, client, client_at, raw, server, wait_for_children};

fn rw(client: &zklock::Client, path: &str) -> RwLock {
    RwLock::new(client, path).expect("a good path")
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let path = "/rw/share";
    let clients = [client(), client()];
    let locks: Vec<_> = clients.iter().map(|c| rw(c, path)).collect();
    let here = locks[0].read().expect("free");
    let there = locks[1].try_read().expect("answers").expect("a reader");
    assert!(locks[1].try_write().expect_err("reads").is_would_deadlock());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| locks[1].try_write().expect("answers").is_none());
        assert!(writer.join().expect("no panic"), "readers are inside");
    });
    drop(here);
    drop(there);
    wait_for_children(server(), path, 0);
    let writing = locks[0].write().expect("free");
    assert!(locks[1].try_read().expect("answers").is_none());
    assert!(locks[1].try_write().expect("answers").is_none());
    assert_eq!(
        children(server(), path).len(),
        1,
        "a busy try writes nothing"
    );
    drop(writing);
    wait_for_children(server(), path, 0);
}

/// The reading threads of a process stand in the queue with one node, and one who comes while
/// others read asks ZooKeeper for nothing.
#[test]
fn readers_of_a_process_share_one_node() {
    let path = "/rw/one-node";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = rw(&client, path);
    drop(lock.read().expect("free"));
    let first = lock.read().expect("free");
    let before = proxy.counters();
    let inside = std::sync::Barrier::new(32);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let guard = lock.read().expect("others read");
                assert!(guard.is_held());
                inside.wait();
                assert_eq!(lock.read_hold_count(), 1);
            });
        }
    });
    let after = proxy.counters();
    for op in [opcode::CREATE, opcode::DELETE, opcode::GET_CHILDREN] {
        assert_eq!(after.requested(op), before.requested(op));
    }
    assert_eq!(children(server(), path).len(), 1);
    drop(first);
    wait_for_children(server(), path, 0);
}

/// A writer that waits is not overtaken, neither by readers of other processes nor by readers of a
/// process that reads already.
#[test]
fn a_waiting_writer_is_not_overtaken() {
    let path = "/rw/fifo";
    let clients = [client(), client(), client()];
    let locks: Vec<_> = clients.iter().map(|c| rw(c, path)).collect();
    let order = std::sync::Mutex::new(Vec::new());
    let done = |name| order.lock().expect("no panic").push(name);
    let reading = locks[0].read().expect("free");
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(|| {
            let guard = locks[1].write().expect("its turn");
            done("writer");
            drop(guard);
        });
        wait_for_children(server(), path, 2);
        assert!(locks[2].try_read().expect("answers").is_none());
        for (number, lock) in [(3, &locks[2]), (4, &locks[0])] {
            scope.spawn(move || {
                let guard = lock.read().expect("its turn");
                done("reader");
                drop(guard);
            });
            wait_for_children(server(), path, number);
        }
        drop(reading);
    });
    assert_eq!(
        *order.lock().expect("no panic"),
        ["writer", "reader", "reader"]
    );
    wait_for_children(server(), path, 0);
}

/// A writer's release lets in all readers up to the next writer, and wakes nobody else.
#[test]
fn a_release_lets_in_the_readers_before_the_next_writer() {
    let path = "/rw/batch";
    let clients: Vec<_> = (0..6).map(|_| client()).collect();
    let locks: Vec<_> = clients.iter().map(|c| rw(c, path)).collect();
    let writing = locks[0].write().expect("free");
    let readers_inside = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for (number, lock) in locks[1..=3].iter().enumerate() {
            let readers_inside = &readers_inside;
            scope.spawn(move || {
                let _guard = lock.read().expect("its turn");
                // All three are in at once, or this never ends.
                readers_inside.wait();
                readers_inside.wait();
            });
            wait_for_children(server(), path, number + 2);
        }
        let last = scope.spawn(|| drop(locks[4].write().expect("its turn")));
        wait_for_children(server(), path, 5);
        drop(writing);
        readers_inside.wait();
        wait_for_children(server(), path, 4);
        assert!(!last.is_finished());
        assert!(locks[5].try_read().expect("answers").is_none());
        readers_inside.wait();
        last.join().expect("no panic");
    });
    wait_for_children(server(), path, 0);
}

/// kazoo's re-entrant lock was given up by the first release (kazoo #291); and a reader that must
/// wait behind a writer that waits for it never gets on.
#[test]
fn reentrant_in_both_modes() {
    let path = "/rw/again";
    let clients = [client(), client()];
    let (lock, other) = (rw(&clients[0], path), rw(&clients[1], path));
    let outer = lock.read().expect("free");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| drop(other.write().expect("its turn")));
        wait_for_children(server(), path, 2);
        let inner = lock.read().expect("re-entry, though a writer waits");
        assert_eq!(lock.read_hold_count(), 2);
        drop(outer);
        assert!(inner.is_held());
        assert!(!writer.is_finished());
        drop(inner);
        writer.join().expect("no panic");
    });
    let outer = lock.write().expect("free");
    let inner = lock.write().expect("ours");
    assert_eq!(lock.write_hold_count(), 2);
    drop(outer);
    assert!(inner.is_held() && lock.is_write_held_by_current_thread());
    drop(inner);
    assert_eq!(lock.write_hold_count(), 0);
    wait_for_children(server(), path, 0);
}

#[test]
fn an_upgrade_is_an_error_at_once() {
    let client = client();
    let lock = rw(&client, "/rw/upgrade");
    let reading = lock.read().expect("free");
    for error in [
        lock.write().expect_err("would wait for itself"),
        lock.try_write().expect_err("would wait for itself"),
        lock.try_write_for(SOON).expect_err("would wait for itself"),
    ] {
        assert!(error.is_would_deadlock(), "{error}");
        assert!(error.to_string().contains("/rw/upgrade"), "{error}");
    }
    assert!(reading.is_held());
    drop(reading);
    drop(lock.write().expect("free again"));
}

/// Curator once let a waiting writer in between (CURATOR-276).
#[test]
fn a_downgrade_lets_no_writer_in_between() {
    let path = "/rw/downgrade";
    let clients = [client(), client(), client()];
    let locks: Vec<_> = clients.iter().map(|c| rw(c, path)).collect();
    let writing = locks[0].write().expect("free");
    let token = writing.fencing_token().expect("held");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let guard = locks[1].write().expect("its turn");
            guard.fencing_token().expect("held")
        });
        wait_for_children(server(), path, 2);
        let reading = writing.downgrade().expect("a server that works");
        assert_eq!(lock_counts(&locks[0]), (1, 0));
        // Its node stands where the writer's stood, and the waiting writer has seen that.
        wait_for_children(server(), path, 2);
        assert!(reading.is_held());
        // The writer has looked again after the writer's node went: a reader that comes now would
        // else get in before it.
        assert!(locks[2].try_read().expect("answers").is_none());
        assert!(!writer.is_finished());
        drop(reading);
        let next = writer.join().expect("no panic");
        assert!(next > token, "tokens rise from holder to holder");
    });
    wait_for_children(server(), path, 0);
}

/// The writer's place is the reader's as well now: however many turns the policy leaves to this
/// process, none of its threads may write beside the reader.
#[test]
fn a_downgraded_writer_is_not_handed_to_another_thread() {
    let path = "/rw/downgrade-handed";
    let client = client();
    let builder = RwLock::builder(&client, path).max_handoffs(8);
    let lock = builder.build().expect("good");
    let writing = lock.write().expect("free");
    std::thread::scope(|scope| {
        let (to, positions) = crossbeam_channel::unbounded();
        let options = AcquireOptions::new().positions(&to);
        let writer = scope.spawn(|| drop(lock.write_with(options).expect("its turn")));
        positions.recv_timeout(SOON).expect("it sleeps");
        let reading = writing.downgrade().expect("a server that works");
        // It goes to the queue, behind the reader.
        wait_for_children(server(), path, 2);
        assert!(!writer.is_finished());
        assert!(reading.is_held());
        drop(reading);
        writer.join().expect("no panic");
    });
    wait_for_children(server(), path, 0);
}

fn lock_counts(lock: &RwLock) -> (u32, u32) {
    (lock.read_hold_count(), lock.write_hold_count())
}

#[test]
fn a_downgrade_lets_other_readers_in() {
    let path = "/rw/downgrade-readers";
    let clients = [client(), client()];
    let (lock, other) = (rw(&clients[0], path), rw(&clients[1], path));
    let writing = lock.write().expect("free");
    let reading = lock.read().expect("ours");
    assert!(
        other.try_read().expect("answers").is_none(),
        "we write still"
    );
    std::thread::scope(|scope| {
        // One of this process, and one of another.
        let here = scope.spawn(|| lock.read().expect("its turn").is_held());
        let there = scope.spawn(|| other.read().expect("its turn").is_held());
        wait_for_children(server(), path, 4);
        assert!(!here.is_finished() && !there.is_finished());
        drop(writing);
        assert!(here.join().expect("no panic") && there.join().expect("no panic"));
    });
    assert!(reading.is_held());
    // A thread that gives the reading back first goes on writing.
    drop(reading);
    let writing = lock.write().expect("free");
    drop(lock.read().expect("ours"));
    assert!(writing.is_held());
    assert_eq!(lock_counts(&lock), (0, 1));
    drop(writing);
    wait_for_children(server(), path, 0);
}

/// The create of the reader's node is answered by nobody: the reader must be found or made anew,
/// and nothing be left.
#[test]
fn a_downgrade_survives_a_lost_reply() {
    let path = "/rw/downgrade-lost";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = rw(&client, path);
    let writing = lock.write().expect("free");
    let create = Matcher::next(opcode::CREATE).with_path_containing(path);
    let trap = proxy.on_reply(create, testbed::Action::Reset);
    let reading = lock.read().expect("on the next connection");
    trap.wait_until_sprung(SOON);
    drop(writing);
    wait_for_children(server(), path, 1);
    wait_until("verified", SOON, || reading.is_held());
    drop(reading);
    wait_for_children(server(), path, 0);
}

/// Wherever a reader or a writer waits, it leaves at its deadline, and nothing of it is left.
#[test]
fn waits_end_in_time_and_leave_nothing() {
    let path = "/rw/timed";
    let clients = [client(), client()];
    let (lock, other) = (rw(&clients[0], path), rw(&clients[1], path));
    let short = Duration::from_millis(100);
    let writing = lock.write().expect("free");
    assert!(other.try_read_for(short).expect("answers").is_none());
    assert!(other.try_write_for(short).expect("answers").is_none());
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..4)
            .map(|number| {
                let options = AcquireOptions::new().cancel(&token);
                let other = &other;
                scope.spawn(move || match number {
                    0 => other.write_with(options).map(drop),
                    _ => other.read_with(options).map(drop),
                })
            })
            .collect();
        wait_for_children(server(), path, 3);
        token.cancel();
        for waiter in waiters {
            let error = waiter.join().expect("no panic").expect_err("cancelled");
            assert!(error.is_cancelled(), "{error}");
        }
    });
    wait_for_children(server(), path, 1);
    drop(writing);
    assert!(other.try_read_for(SOON).expect("answers").is_some());
    wait_for_children(server(), path, 0);
}

/// When a reader leaves at its deadline that led others, the next goes on from its place.
#[test]
fn readers_inherit_the_place_of_their_leader() {
    let path = "/rw/inherit";
    let clients = [client(), client(), client()];
    let locks: Vec<_> = clients.iter().map(|c| rw(c, path)).collect();
    let writing = locks[0].write().expect("free");
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let options = AcquireOptions::new().cancel(&token);
        let leader = scope.spawn(|| locks[1].read_with(options).map(drop));
        wait_for_children(server(), path, 2);
        let place = children(server(), path);
        let (to, positions) = crossbeam_channel::unbounded();
        let options = AcquireOptions::new().positions(&to);
        let heir = scope.spawn(|| {
            let guard = locks[1].read_with(options).expect("its turn");
            guard.path().to_owned()
        });
        let position = positions.recv_timeout(SOON).expect("it sleeps");
        assert_eq!(position.threads_ahead(), 1);
        let later = scope.spawn(|| drop(locks[2].write().expect("its turn")));
        wait_for_children(server(), path, 3);
        token.cancel();
        assert!(leader.join().expect("no panic").is_err());
        drop(writing);
        let node = heir.join().expect("no panic");
        assert!(place.iter().any(|child| node.ends_with(child.as_str())));
        later.join().expect("no panic");
    });
    wait_for_children(server(), path, 0);
}

/// Lost readers know it, and who comes later in their process queues anew instead of waiting for
/// them.
#[test]
fn a_lost_session_does_not_keep_later_readers_out() {
    let path = "/rw/lost";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = rw(&client, path);
    let reading = lock.read().expect("free");
    proxy.refuse();
    proxy.reset_all();
    assert!(reading.lost().recv_timeout(SOON).is_ok());
    proxy.accept();
    std::thread::scope(|scope| {
        let later = scope.spawn(|| lock.read().expect("anew").is_held());
        assert!(later.join().expect("no panic"));
    });
    assert_eq!(reading.state(), LockState::Lost);
    assert!(reading.unlock().expect_err("lost").is_lock_lost());
    drop(lock.write().expect("free"));
    wait_for_children(server(), path, 0);
}

#[test]
fn participants_tell_readers_from_writers() {
    let path = "/rw/who";
    let clients = [client(), client(), client()];
    let locks: Vec<_> = clients.iter().map(|c| rw(c, path)).collect();
    let _here = locks[0].read().expect("free");
    let _there = locks[1].read().expect("a reader");
    std::thread::scope(|scope| {
        let token = CancelToken::new();
        let options = AcquireOptions::new().cancel(&token);
        scope.spawn(|| locks[2].write_with(options).map(drop));
        wait_for_children(server(), path, 3);
        let who = locks[0].participants().expect("answers");
        let seen: Vec<_> = who
            .iter()
            .map(|one| (one.is_reader(), one.is_holder(), one.is_ours()))
            .collect();
        let expected = [
            (true, true, true),
            (true, true, false),
            (false, false, false),
        ];
        assert_eq!(seen, expected);
        token.cancel();
    });
}

/// A waiter that gives up takes its watches along (kazoo and Curator left them).
#[test]
fn readers_leave_no_watches() {
    let server = testbed::Server::start();
    let client = crate::fixtures::builder(&server.connect_string())
        .connect()
        .expect("works");
    let other = crate::fixtures::builder(&server.connect_string())
        .connect()
        .expect("works");
    let (lock, busy) = (rw(&client, "/rw"), rw(&other, "/rw"));
    let writing = busy.write().expect("free");
    for _ in 0..20 {
        let none = lock.try_read_for(Duration::from_millis(20));
        assert!(none.expect("answers").is_none());
    }
    drop(writing);
    for _ in 0..20 {
        drop(lock.read().expect("free"));
        drop(lock.write().expect("free"));
    }
    wait_until("no watch is left", SOON, || server.stats().watch_count == 0);
    let mut raw = raw(&server);
    assert!(raw.children("/rw").expect("there").is_empty());
}

/// A try waits for ZooKeeper's answers and for nothing else. That of a thread that writes once
/// waited for a connection, until the session was lost.
#[test]
fn a_try_to_read_by_a_writer_does_not_wait_for_a_connection() {
    let path = "/rw/writer-tries";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = rw(&client, path);
    let writing = lock.write().expect("free");
    let reading = lock.try_read().expect("answers").expect("it writes");
    drop(reading);
    let hold = proxy.hold_request(Matcher::next(opcode::CREATE).with_path_containing(path));
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            hold.wait_until_held(SOON);
            proxy.refuse();
            proxy.reset_all();
        });
        lock.try_read().map(drop).expect_err("no connection")
    });
    assert!(error.is_connection_loss(), "{error}");
    assert_ne!(writing.state(), LockState::Lost);
    // The try may hear of the break before the lock does.
    wait_until("the break is known", SOON, || !writing.is_held());
    proxy.accept();
    wait_until("contact", SOON, || writing.is_held());
    // Nothing of the try has stayed.
    wait_for_children(server(), path, 1);
    assert!(lock.try_read().expect("answers").is_some());
}

/// A mutex and a read-write lock at one path do not exclude each other, and both were let in. Now
/// the second one is told, by the list that it makes in any case.
#[test]
fn a_mutex_at_the_same_path_is_refused_and_refuses() {
    for dialect in [Dialect::Curator, Dialect::Kazoo] {
        let path = format!("/rw/mixed-{dialect:?}");
        let clients = [client(), client()];
        let mutex = Mutex::builder(&clients[0], &path).dialect(dialect);
        let mutex = mutex.build().expect("good");
        let lock = RwLock::builder(&clients[1], &path).dialect(dialect);
        let lock = lock.build().expect("good");
        let told = |error: zklock::Error| {
            let text = error.to_string();
            assert!(error.is_invalid() && text.contains(&path), "{text}");
            assert!(
                text.contains("a mutex") && text.contains("a read-write lock"),
                "{text}"
            );
        };
        if dialect == Dialect::Curator {
            let holds = mutex.lock().expect("free");
            told(lock.try_write().map(drop).expect_err("two kinds"));
            told(lock.try_read().map(drop).expect_err("two kinds"));
            told(lock.write().map(drop).expect_err("two kinds"));
            told(lock.read().map(drop).expect_err("two kinds"));
            let both = zklock::MultiLock::builder().with(lock.write_side());
            let side = Mutex::new(&clients[1], "/rw/mixed-beside").expect("good");
            let both = both.with(&side).build().expect("two paths");
            told(both.try_lock().map(drop).expect_err("two kinds"));
            told(both.lock().map(drop).expect_err("two kinds"));
            // Nothing of them has stayed, and whoever came first goes on.
            wait_for_children(server(), &path, 1);
            drop(mutex.try_lock().expect("re-entrant"));
            drop(holds);
        }
        let holds = lock.read().expect("free");
        told(mutex.try_lock().map(drop).expect_err("two kinds"));
        told(mutex.lock().map(drop).expect_err("two kinds"));
        drop(holds);
        drop(mutex.lock().expect("nobody of another kind"));
        let holds = lock.write().expect("nobody of another kind");
        // In kazoo's dialect a writer is a mutex, too.
        match mutex.try_lock() {
            Ok(None) => assert_eq!(dialect, Dialect::Kazoo),
            Ok(Some(_)) => panic!("{dialect:?}: two hold"),
            Err(error) => told(error),
        }
        drop(holds);
        // Names of one's own share a folder on purpose.
        let name = zklock::LockName::new("beside-").expect("good");
        let named = Mutex::builder(&clients[0], &path)
            .dialect(dialect)
            .name(name);
        let _named = named.build().expect("good").lock().expect("free");
        assert!(lock.try_write().expect("answers").is_some());
    }
}

fn lingering(client: &zklock::Client, path: &str) -> RwLock {
    let builder = RwLock::builder(client, path).read_linger(Duration::from_secs(3600));
    builder.build().expect("good")
}

/// Of 5,685 acquires by six threads that read again and again, 979 went to ZooKeeper: whenever
/// nobody was inside for a moment.
#[test]
fn reading_again_asks_nobody_while_the_place_is_kept() {
    let path = "/rw/kept";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = lingering(&client, path);
    drop(lock.read().expect("free"));
    let node = children(server(), path);
    let before = proxy.counters();
    for _ in 0..100 {
        let guard = lock.read().expect("kept");
        assert!(guard.is_held() && lock.is_held_in_this_process());
    }
    drop(lock.try_read().expect("kept").expect("kept"));
    for op in [opcode::CREATE, opcode::DELETE, opcode::GET_CHILDREN] {
        assert_eq!(proxy.counters().requested(op), before.requested(op));
    }
    assert!(!lock.is_held_in_this_process());
    let who = lock.participants().expect("answers");
    assert!(who[0].is_idle() && who[0].is_ours() && who[0].is_reader());
    assert_eq!(children(server(), path), node);
    lock.release_idle().expect("answers");
    assert!(children(server(), path).is_empty());
}

/// Readers of another process change nothing for those whose place is kept; a writer, wherever it
/// is, ends that, by every verb.
#[test]
fn a_writer_ends_what_readers_keep_and_a_reader_does_not() {
    let path = "/rw/kept-until";
    let clients = [client(), client()];
    let (lock, other) = (lingering(&clients[0], path), lingering(&clients[1], path));
    let node = || lock.read().expect("free").path().to_owned();
    let kept = node();
    for _ in 0..3 {
        drop(other.read().expect("a reader"));
        assert_eq!(node(), kept);
    }
    assert_eq!(children(server(), path).len(), 2, "each keeps its own");
    drop(other.write().expect("readers go"));
    assert_ne!(node(), kept);
    drop(other.read().expect("a reader"));
    assert!(
        other.try_write().expect("answers").is_some(),
        "all only linger"
    );
    let kept = node();
    assert!(lock.try_write().expect("answers").is_some(), "its own");
    wait_for_children(server(), path, 0);
    assert_ne!(node(), kept);
    drop(lock.write().expect("its own"));
    drop(node());
    let both = zklock::MultiLock::builder().with(lock.write_side());
    let beside = Mutex::new(&clients[0], "/rw/kept-beside").expect("good");
    let both = both.with(&beside).build().expect("two paths");
    assert!(both.try_lock().expect("answers").is_some(), "its own");
    // One who reads is no idle one.
    std::thread::scope(|scope| {
        let reading = lock.read().expect("free");
        let tries = scope.spawn(|| other.try_write().expect("answers").is_none());
        assert!(tries.join().expect("no panic"));
        assert!(reading.is_held());
    });
}

/// Threads that read without a pause keep a writer waiting no longer than it takes to hear of it.
#[test]
fn a_writer_gets_in_between_readers_who_come_again_and_again() {
    let path = "/rw/kept-busy";
    let clients = [client(), client()];
    let (lock, other) = (lingering(&clients[0], path), lingering(&clients[1], path));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(lock.read().expect("its turn"));
                }
            });
        }
        let written: Vec<_> = (0..20)
            .map(|turn| {
                let writer = if turn % 2 == 0 { &other } else { &lock };
                let guard = writer.try_write_for(SOON).expect("answers");
                guard.is_some()
            })
            .collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(written.into_iter().all(|written| written));
    });
}

/// What is kept goes with its time, with the lock, and with contact; a session that was lost takes
/// it along, and nobody is told of an error.
#[test]
fn what_readers_keep_goes_by_itself() {
    let path = "/rw/kept-over";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let builder = RwLock::builder(&client, path).read_linger(Duration::from_millis(50));
    let short = builder.build().expect("good");
    drop(short.read().expect("free"));
    wait_for_children(server(), path, 0);
    let long = lingering(&client, path);
    drop(long.read().expect("free"));
    assert_eq!(children(server(), path).len(), 1);
    drop(long);
    wait_for_children(server(), path, 0);

    let lock = lingering(&client, path);
    drop(lock.read().expect("free"));
    proxy.reset_all();
    // Whoever came meanwhile was not seen.
    wait_for_children(server(), path, 0);
    drop(lock.read().expect("free"));
    let writers = RwLock::builder(&client, "/rw/kept-write").linger(SOON);
    let writers = writers.build().expect("good");
    drop(writers.write().expect("free"));
    let witness = client.events();
    proxy.refuse();
    proxy.reset_all();
    let lost = |event| event == zklock::ConnectionEvent::Lost;
    wait_until("the loss", SOON, || witness.try_iter().any(lost));
    proxy.accept();
    lock.release_idle().expect("there is nothing to give back");
    writers
        .release_idle()
        .expect("there is nothing to give back");
    assert!(writers.try_read_for(SOON).expect("answers").is_some());
    drop(lock.read().expect("anew"));
    drop(lock.write().expect("its own"));
    wait_for_children(server(), path, 0);
}
