//! The parts of a multi-lock that are asked for in one transaction, and what becomes of it when
//! somebody is in the way, when it is refused, and when its answer is lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testbed::raw::Flags;
use testbed::{Action, Counters, Matcher, Proxy, opcode, wait_until};
use zklock::{CancelToken, Client, MultiLock, MultiLockBuilder, Mutex, RwLock};

use crate::fixtures::{SOON, children, client, client_at, mutex, raw, server, wait_for_children};

const SHORT: Duration = Duration::from_millis(200);
/// Several lists in one packet.
const MULTI_READ: i32 = 22;

fn proxied() -> (Proxy, Client) {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    (proxy, client)
}

fn folders(path: &str) -> [String; 3] {
    ["a", "b", "c"].map(|name| format!("{path}/{name}"))
}

/// Three mutexes in folders that exist, as one.
fn three(client: &Client, path: &str) -> ([Mutex; 3], MultiLock) {
    let locks = folders(path).map(|folder| mutex(client, &folder));
    for lock in &locks {
        drop(lock.lock().expect("free"));
    }
    let parts = locks.iter();
    let all = parts.fold(MultiLock::builder(), MultiLockBuilder::with);
    (locks, all.build().expect("different"))
}

#[track_caller]
fn wait_until_empty(path: &str) {
    for folder in folders(path) {
        wait_for_children(server(), &folder, 0);
    }
}

/// How many requests of a kind were made since `before`.
fn spent(proxy: &Proxy, before: &Counters, op: i32) -> u64 {
    proxy.counters().requested(op) - before.requested(op)
}

/// One transaction makes all nodes, and one packet has the lists; none is repeated.
#[test]
fn free_locks_are_taken_in_one_transaction() {
    let path = "/together/free";
    let (proxy, client) = proxied();
    let (locks, all) = three(&client, path);
    let mut tokens = vec![None; 3];
    for _ in 0..3 {
        let before = proxy.counters();
        let guard = all.lock().expect("free");
        assert_eq!(spent(&proxy, &before, opcode::CREATE), 0);
        assert_eq!(spent(&proxy, &before, MULTI_READ), 1);
        assert_eq!(spent(&proxy, &before, opcode::GET_CHILDREN), 0);
        assert!(guard.is_held() && locks.iter().all(Mutex::is_held_by_current_thread));
        for folder in folders(path) {
            assert_eq!(children(server(), &folder).len(), 1);
        }
        // They were not told with the answer, and are asked for.
        let newer = guard.fencing_tokens().expect("held");
        assert!(newer.iter().zip(&tokens).all(|(new, old)| new > old));
        tokens = newer;
        guard.unlock().expect("confirmed");
        wait_until_empty(path);
    }
}

/// A try looks first, and then it takes all in one transaction. If somebody is there it has written
/// nothing, not even to the locks before that one.
#[test]
fn a_try_looks_at_all_and_then_takes_all() {
    let path = "/together/try";
    let (proxy, client) = proxied();
    let (_locks, all) = three(&client, path);
    let before = proxy.counters();
    let guard = all.try_lock().expect("answers").expect("free");
    assert_eq!(spent(&proxy, &before, opcode::CREATE), 0);
    assert_eq!(spent(&proxy, &before, MULTI_READ), 2);
    assert_eq!(spent(&proxy, &before, opcode::GET_CHILDREN), 0);
    guard.unlock().expect("confirmed");

    let other = crate::fixtures::client();
    let theirs = mutex(&other, &folders(path)[2]);
    let held = theirs.lock().expect("free");
    let before = proxy.counters();
    assert!(all.try_lock().expect("answers").is_none());
    assert_eq!(spent(&proxy, &before, MULTI_READ), 1);
    for op in [opcode::CREATE, opcode::MULTI, opcode::DELETE] {
        assert_eq!(spent(&proxy, &before, op), 0, "{op}");
    }
    drop(held);
    assert!(all.try_lock().expect("answers").is_some());
}

/// Somebody comes between the look of a try and its transaction: all is taken back.
#[test]
fn a_try_that_comes_second_takes_all_back() {
    let path = "/together/try-second";
    let (proxy, client) = proxied();
    let (_locks, all) = three(&client, path);
    let other = crate::fixtures::client();
    let theirs = mutex(&other, &folders(path)[1]);
    let hold = proxy.hold_request(opcode::MULTI);
    std::thread::scope(|scope| {
        let tries = scope.spawn(|| all.try_lock().expect("answers").is_some());
        hold.wait_until_held(SOON);
        let held = theirs.lock().expect("free");
        hold.release();
        assert!(!tries.join().expect("no panic"));
        let [a, _, c] = folders(path);
        wait_for_children(server(), &a, 0);
        wait_for_children(server(), &c, 0);
        assert!(held.is_held());
    });
    wait_until_empty(path);
}

/// While it waits for the second lock it has the first and keeps nobody from the third. So whoever
/// holds the second can take the third, as the order allows; if not, both would wait for ever.
#[test]
fn nothing_stands_in_the_way_of_those_who_take_them_one_by_one() {
    let path = "/together/order";
    let (proxy, client) = proxied();
    let (locks, all) = three(&client, path);
    let other = crate::fixtures::client();
    let [_, b, c] = folders(path).map(|folder| mutex(&other, &folder));
    let second = b.lock().expect("free");
    let before = proxy.counters();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| all.lock().map(|guard| guard.is_held()));
        wait_for_children(server(), &folders(path)[1], 2);
        let third = c.try_lock_for(SOON).expect("answers");
        let third = third.expect("nobody who waits for the second is in front of it");
        assert_eq!(children(server(), &folders(path)[0]).len(), 1, "the first");
        assert!(!waits.is_finished());
        drop((third, second));
        assert!(waits.join().expect("no panic").expect("its turn"));
        // The third again; its places at the others were kept.
        assert_eq!(spent(&proxy, &before, opcode::CREATE), 1);
    });
    drop(locks);
    wait_until_empty(path);
}

/// The same inside one process: a thread holds the second lock by an object of its own, and asks for
/// the third by the object that is a part.
#[test]
fn no_thread_waits_for_one_that_waits_for_an_earlier_lock() {
    let path = "/together/threads";
    let client = client();
    let (locks, all) = three(&client, path);
    let second = mutex(&client, &folders(path)[1]);
    let held = second.lock().expect("free");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| all.lock().map(|guard| guard.is_held()));
        wait_for_children(server(), &folders(path)[1], 2);
        let third = locks[2].try_lock_for(SOON).expect("answers");
        assert!(third.is_some(), "no thread of ours leads there");
        drop((third, held));
        assert!(waits.join().expect("no panic").expect("its turn"));
    });
    wait_until_empty(path);
}

/// Some take all, others one after the other in the same order, in several processes and threads.
#[test]
fn with_those_who_take_them_one_by_one_there_is_no_circle() {
    let path = "/together/crowd";
    let inside: [AtomicUsize; 3] = Default::default();
    let clients = [client(), client()];
    let made = clients.each_ref().map(|client| three(client, path));
    let section = |at: usize| {
        assert_eq!(inside[at].fetch_add(1, Ordering::SeqCst), 0, "alone");
        std::thread::yield_now();
        inside[at].fetch_sub(1, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        for (locks, all) in &made {
            let section = &section;
            for thread in 0..2 {
                scope.spawn(move || {
                    for _ in 0..15 {
                        let _guard = all.lock().expect("its turn");
                        (0..3).for_each(section);
                    }
                });
                scope.spawn(move || {
                    for round in 0..15 {
                        let first = (round + thread) % 3;
                        let guards: Vec<_> = (first..3)
                            .map(|at| (at, locks[at].lock().expect("its turn")))
                            .collect();
                        guards.iter().for_each(|(at, _)| section(*at));
                    }
                });
            }
        }
    });
    wait_until_empty(path);
}

/// The transaction that takes back is refused, as somebody has removed one of its nodes: the others
/// go all the same.
#[test]
fn a_node_that_was_removed_keeps_no_other_from_being_taken_back() {
    let path = "/together/removed";
    let (proxy, client) = proxied();
    let (_locks, all) = three(&client, path);
    let other = crate::fixtures::client();
    let held = mutex(&other, &folders(path)[0]).lock().expect("free");
    let [_, b, c] = folders(path);
    let hold = proxy.hold_request(Matcher::nth(opcode::MULTI, 2));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| all.lock().map(drop));
        hold.wait_until_held(SOON);
        let ours = children(server(), &c);
        assert_eq!(ours.len(), 1);
        let gone = raw(server()).delete(&format!("{c}/{}", ours[0]));
        gone.expect("it stands");
        assert_eq!(children(server(), &b).len(), 1);
        hold.release();
        wait_for_children(server(), &b, 0);
        drop(held);
        waits.join().expect("no panic").expect("its turn");
    });
    wait_until_empty(path);
}

/// Folders that are not there yet are made, each in its turn.
#[test]
fn missing_folders_are_made() {
    let path = "/together/missing";
    let client = client();
    let locks = folders(path).map(|folder| mutex(&client, &folder));
    let parts = locks.iter();
    let all = parts.fold(MultiLock::builder(), MultiLockBuilder::with);
    let all = all.build().expect("different");
    // All of them; then the last alone.
    for missing in [&["a", "b", "c"][..], &["c"]] {
        let guard = all.lock().expect("free");
        assert!(guard.is_held());
        drop(guard);
        wait_until_empty(path);
        let mut raw = raw(server());
        for name in missing {
            raw.delete(&format!("{path}/{name}")).expect("it is empty");
        }
    }
    assert!(all.try_lock().expect("answers").is_some());
    wait_until_empty(path);
}

/// The nodes stand, and nobody was told: those that are not gone on from are found and removed.
#[test]
fn a_lost_reply_leaves_no_orphan() {
    for (action, path) in [
        (Action::Reset, "/together/lost-reset"),
        (Action::BlackHole, "/together/lost-hole"),
    ] {
        let (proxy, client) = proxied();
        let (_locks, all) = three(&client, path);
        let trap = proxy.on_reply(opcode::MULTI, action);
        let guard = all.lock().expect("free");
        trap.wait_until_sprung(SOON);
        assert!(guard.is_held());
        for folder in folders(path) {
            wait_for_children(server(), &folder, 1);
        }
        drop(guard);
        wait_until_empty(path);
    }
}

/// The caller leaves while the transaction is under way; the nodes appear when nobody waits.
#[test]
fn a_caller_who_leaves_leaves_nothing() {
    let path = "/together/left";
    let (proxy, client) = proxied();
    let (_locks, all) = three(&client, path);
    let hold = proxy.hold_reply(opcode::MULTI);
    assert!(all.try_lock_for(SHORT).expect("answers").is_none());
    hold.wait_until_held(SOON);
    for folder in folders(path) {
        assert_eq!(children(server(), &folder).len(), 1);
    }
    hold.release();
    wait_until_empty(path);

    let hold = proxy.hold_request(opcode::MULTI);
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let options = zklock::AcquireOptions::new().cancel(&token);
        let waiter = scope.spawn(|| all.lock_with(options).map(drop));
        hold.wait_until_held(SOON);
        token.cancel();
        let error = waiter.join().expect("no panic").expect_err("cancelled");
        assert!(error.is_cancelled(), "{error}");
        assert!(error.to_string().contains(path), "{error}");
    });
    let answered = proxy.counters().replied(opcode::MULTI);
    hold.release();
    proxy.wait_for(|seen| seen.replied(opcode::MULTI) > answered, SOON);
    wait_until_empty(path);
    assert!(all.try_lock().expect("answers").is_some());
}

/// Locks that are kept when idle are taken again without a request, and given up when another
/// process comes.
#[test]
fn parts_that_linger_are_kept() {
    let path = "/together/linger";
    let (proxy, client) = proxied();
    let locks = folders(path).map(|folder| {
        let builder = Mutex::builder(&client, &folder).linger(SOON);
        builder.build().expect("good")
    });
    let all = locks
        .iter()
        .fold(MultiLock::builder(), MultiLockBuilder::with);
    let all = all.build().expect("different");
    for lock in &locks {
        drop(lock.lock().expect("free"));
        lock.release_idle().expect("confirmed");
    }
    // All at once, and back at once: the list that came with the nodes left the watches.
    let before = proxy.counters();
    drop(all.lock().expect("free"));
    assert_eq!(spent(&proxy, &before, opcode::CREATE), 0);
    assert_eq!(spent(&proxy, &before, opcode::GET_CHILDREN), 3);
    let before = proxy.counters();
    for _ in 0..10 {
        drop(all.lock().expect("kept"));
    }
    for op in [opcode::CREATE, opcode::DELETE, opcode::GET_CHILDREN] {
        assert_eq!(spent(&proxy, &before, op), 0, "{op}");
    }
    let other = crate::fixtures::client();
    let (_, theirs) = three(&other, path);
    assert!(theirs.try_lock_for(SOON).expect("answers").is_some());
    for lock in &locks {
        lock.release_idle().expect("confirmed");
    }
    wait_until_empty(path);
}

/// Sides of read-write locks: readers of several processes are inside together, a writer is alone.
#[test]
fn sides_of_read_write_locks_go_together() {
    let path = "/together/sides";
    let (proxy, first) = proxied();
    let clients = [first, client()];
    let made = clients.each_ref().map(|client| {
        let [a, b, _] = folders(path).map(|folder| RwLock::new(client, &folder).expect("good"));
        drop((a.write().expect("free"), b.write().expect("free")));
        let read = MultiLock::builder().with(a.read_side()).with(b.read_side());
        let write = MultiLock::builder()
            .with(a.read_side())
            .with(b.write_side());
        [read, write].map(|parts| parts.build().expect("different"))
    });
    let [[read, write], [their_read, their_write]] = &made;
    let before = proxy.counters();
    let reading = read.lock().expect("free");
    assert_eq!(
        spent(&proxy, &before, opcode::CREATE),
        0,
        "by one transaction"
    );
    assert!(their_read.try_lock_for(SOON).expect("answers").is_some());
    assert!(their_write.try_lock().expect("answers").is_none());
    drop(reading);
    let writing = write.lock().expect("its turn");
    assert!(their_read.try_lock_for(SHORT).expect("answers").is_none());
    drop(writing);
    wait_until("the writer has gone", SOON, || {
        their_read.try_lock().expect("answers").is_some()
    });
    wait_until_empty(path);
}

/// An access list that lets us look and create in one folder only: the transaction is refused, and
/// the error says which lock it is about.
#[test]
fn what_is_refused_is_told_of_its_lock() {
    let path = "/together/refused";
    let client = client();
    let (_locks, all) = three(&client, path);
    let b = folders(path)[1].clone();
    let mut raw = raw(server());
    // An ephemeral node in its place can have no children.
    raw.delete(&b).expect("it is empty");
    let flags = Flags::Ephemeral;
    raw.create(&b, b"", flags).expect("its parent stands");
    let error = all.lock().expect_err("no children there");
    assert!(error.to_string().contains(&b), "{error}");
    let [a, _, c] = folders(path);
    wait_for_children(server(), &a, 0);
    wait_for_children(server(), &c, 0);
}
