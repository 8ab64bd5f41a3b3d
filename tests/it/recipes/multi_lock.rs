//! Several locks as one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testbed::Proxy;
use zklock::{
    LockState, MultiLock, MultiLockBuilder, Mutex, RwLock, Semaphore, SemaphoreMutex, SimpleMutex,
};

use crate::fixtures::{SOON, children, client, client_at, mutex, server, wait_for_children};

const SHORT: Duration = Duration::from_millis(200);

#[test]
fn takes_all_and_gives_all_back() {
    let client = client();
    let (a, b) = (
        mutex(&client, "/multi/all/a"),
        mutex(&client, "/multi/all/b"),
    );
    let rw = RwLock::new(&client, "/multi/all/c").expect("good");
    let semaphore = SemaphoreMutex::new(&client, "/multi/all/d").expect("good");
    let simple = SimpleMutex::new(&client, "/multi/all/e").expect("good");
    let all = MultiLock::builder()
        .with(&simple)
        .with(rw.read_side())
        .with(&b)
        .with(&semaphore)
        .with(&a)
        .build()
        .expect("different paths");
    let paths: Vec<_> = all.paths().collect();
    assert!(paths.is_sorted() && paths.len() == 5, "{paths:?}");
    let guard = all.lock().expect("free");
    assert!(guard.is_held() && a.is_held_by_current_thread());
    assert_eq!(rw.read_hold_count(), 1);
    let tokens = guard.fencing_tokens().expect("held");
    // Readers do not exclude each other.
    let has_one: Vec<_> = tokens.iter().map(Option::is_some).collect();
    assert_eq!(has_one, [true, true, false, true, true]);
    let other = crate::fixtures::client();
    let theirs = mutex(&other, "/multi/all/b");
    assert!(theirs.try_lock().expect("answers").is_none());
    guard.unlock().expect("confirmed");
    for folder in ["a", "b", "c", "d/leases"] {
        wait_for_children(server(), &format!("/multi/all/{folder}"), 0);
    }
    assert!(all.try_lock().expect("answers").is_some());
}

/// The parts are in the order of their paths. When the first was a semaphore's, the drop of the whole
/// asked a permit that had been given back for its tenure, and panicked.
#[test]
fn permits_may_come_first() {
    let client = client();
    let semaphore = Semaphore::new(&client, "/multi/first/a", 3).expect("good");
    let lock = mutex(&client, "/multi/first/b");
    let builder = MultiLock::builder().with(&lock).with(semaphore.permits(2));
    let both = builder.build().expect("different paths");
    drop(both.lock().expect("free"));
    both.lock().expect("free").unlock().expect("confirmed");
    wait_for_children(server(), "/multi/first/a/leases", 0);
    wait_for_children(server(), "/multi/first/b", 0);
}

#[test]
fn gives_back_what_it_took_when_one_is_busy() {
    let clients = [client(), client()];
    let paths = ["/multi/busy/a", "/multi/busy/b", "/multi/busy/c"];
    let locks: Vec<_> = paths.iter().map(|path| mutex(&clients[0], path)).collect();
    let busy = mutex(&clients[1], paths[2]);
    let guard = busy.lock().expect("free");
    let all = MultiLock::builder();
    let all = locks
        .iter()
        .fold(all, MultiLockBuilder::with)
        .build()
        .expect("different");
    assert!(all.try_lock().expect("answers").is_none());
    let begun = Instant::now();
    assert!(all.try_lock_for(SHORT).expect("answers").is_none());
    assert!(begun.elapsed() >= SHORT);
    for path in &paths[..2] {
        wait_for_children(server(), path, 0);
    }
    assert!(locks.iter().all(|lock| lock.hold_count() == 0));
    drop(guard);
    assert!(all.try_lock_for(SOON).expect("answers").is_some());
}

/// Curator's multi-lock gives each of its locks the whole timeout. Each of these is released just
/// in time for that, and too late for a deadline of the whole.
#[test]
fn the_deadline_is_one_for_all() {
    let clients = [client(), client()];
    let paths = [
        "/multi/deadline/a",
        "/multi/deadline/b",
        "/multi/deadline/c",
    ];
    let locks: Vec<_> = paths.iter().map(|path| mutex(&clients[0], path)).collect();
    let all = locks
        .iter()
        .fold(MultiLock::builder(), MultiLockBuilder::with);
    let all = all.build().expect("different");
    let held: Vec<_> = paths.iter().map(|path| mutex(&clients[1], path)).collect();
    let mut guards: Vec<_> = held.iter().map(|lock| lock.lock().expect("free")).collect();
    guards.reverse();
    let timeout = 2 * SHORT;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let begun = Instant::now();
            let none = all.try_lock_for(timeout).expect("answers").is_none();
            (none, begun.elapsed())
        });
        for path in &paths[..2] {
            wait_for_children(server(), path, 2);
            // A release that comes late is the point of this test; nothing is waited for by it.
            std::thread::sleep(timeout * 3 / 4);
            drop(guards.pop());
        }
        let (none, took) = waits.join().expect("no panic");
        assert!(
            none,
            "1.5 timeouts had passed before the third could be free"
        );
        assert!(took < 2 * timeout, "{took:?}");
    });
}

/// Two multi-locks over the same locks, given in opposite orders.
#[test]
fn two_of_them_never_wait_in_a_circle() {
    let paths = ["/multi/circle/a", "/multi/circle/b", "/multi/circle/c"];
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for turn in 0..4 {
            let inside = &inside;
            scope.spawn(move || {
                let client = client();
                let mut locks: Vec<Mutex> = paths.iter().map(|path| mutex(&client, path)).collect();
                locks.rotate_left(turn % 3);
                if turn == 3 {
                    locks.reverse();
                }
                let all = locks
                    .iter()
                    .fold(MultiLock::builder(), MultiLockBuilder::with);
                let all = all.build().expect("different");
                for _ in 0..10 {
                    let _guard = all.lock().expect("its turn");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    for path in paths {
        assert!(children(server(), path).is_empty());
    }
}

#[test]
fn the_loss_of_one_is_the_loss_of_all() {
    let proxy = Proxy::start(server().addr());
    let clients = [client(), client_at(&proxy.connect_string())];
    let (a, b) = (
        mutex(&clients[0], "/multi/loss/a"),
        mutex(&clients[1], "/multi/loss/b"),
    );
    let all = MultiLock::builder()
        .with(&a)
        .with(&b)
        .build()
        .expect("different");
    let guard = all.lock().expect("free");
    proxy.refuse();
    proxy.reset_all();
    assert!(guard.lost().recv_timeout(SOON).is_ok());
    assert_eq!(guard.state(), LockState::Lost);
    proxy.accept();
    assert!(guard.unlock().expect_err("one was lost").is_lock_lost());
    wait_for_children(server(), "/multi/loss/a", 0);
}

/// A part that this thread holds already by another guard is re-entered, and stays lost however
/// often all are taken anew.
#[test]
fn a_part_that_was_lost_before_is_told() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let (a, b) = (
        mutex(&client, "/multi/lost-before/a"),
        mutex(&client, "/multi/lost-before/b"),
    );
    let all = MultiLock::builder().with(&a).with(&b).build();
    let all = all.expect("different");
    let outer = b.lock().expect("free");
    proxy.refuse();
    proxy.reset_all();
    assert!(outer.lost().recv_timeout(SOON).is_ok());
    proxy.accept();
    assert!(all.lock().expect_err("lost").is_lock_lost());
    drop(outer);
    assert!(all.lock().expect("free").is_held());
}

#[test]
fn impossible_ones_are_told() {
    let client = client();
    assert!(MultiLock::builder().build().expect_err("none").is_invalid());
    let (a, again) = (
        mutex(&client, "/multi/twice"),
        mutex(&client, "/multi/twice"),
    );
    let twice = MultiLock::builder().with(&a).with(&again).build();
    let error = twice.expect_err("one would wait for the other");
    assert!(
        error.is_invalid() && error.to_string().contains("/multi/twice"),
        "{error}"
    );
}

/// Two names in one folder are two locks.
#[test]
fn takes_locks_of_several_names_in_one_folder() {
    let path = "/multi/names";
    let client = client();
    let named = |name: &str| {
        let name = zklock::LockName::new(name).expect("good");
        let builder = Mutex::builder(&client, path).name(name);
        builder.build().expect("good")
    };
    let (orders, bills) = (named("orders-"), named("bills-"));
    let both = || MultiLock::builder().with(&orders).with(&bills).build();
    let both = both().expect("two locks");
    for _ in 0..2 {
        let guard = both.lock().expect("free");
        assert_eq!(children(server(), path).len(), 2);
        let other = crate::fixtures::client();
        let theirs =
            Mutex::builder(&other, path).name(zklock::LockName::new("bills-").expect("good"));
        let theirs = theirs.build().expect("good");
        assert!(theirs.try_lock().expect("answers").is_none());
        let tokens = guard.fencing_tokens().expect("held");
        assert!(tokens.iter().all(Option::is_some));
        guard.unlock().expect("confirmed");
        wait_for_children(server(), path, 0);
        assert!(both.try_lock().expect("answers").is_some());
        wait_for_children(server(), path, 0);
    }
    let again = named("bills-");
    let twice = MultiLock::builder().with(&bills).with(&again).build();
    assert!(
        twice
            .expect_err("one would wait for the other")
            .is_invalid()
    );
    let labelled = |read: &str, write: &str| {
        let builder = RwLock::builder(&client, path).node_labels(read, write);
        builder.build().expect("good")
    };
    let (a, b) = (labelled("-R-", "-W-"), labelled("-r-", "-w-"));
    let builder = MultiLock::builder().with(a.read_side());
    builder.with(b.write_side()).build().expect("two locks");
    let builder = MultiLock::builder().with(a.read_side());
    let twice = builder.with(a.write_side()).build();
    assert!(twice.expect_err("one lock").is_invalid());
}

/// The same servers, written in another way, are the same ensemble: in the canonical order, and as
/// a lock that is there twice.
#[test]
fn one_ensemble_written_in_two_ways_is_one() {
    let path = "/multi/written";
    let at = server().connect_string();
    let (host, port) = at.rsplit_once(':').expect("a port");
    let written = [at.clone(), format!(" {host}:{port} , {host}:{port}")];
    let clients = written
        .each_ref()
        .map(|servers| crate::fixtures::builder(servers).connect().expect("works"));
    let [a, b] = clients.each_ref().map(|client| mutex(client, path));
    let twice = MultiLock::builder().with(&a).with(&b).build();
    let error = twice.expect_err("one would wait for the other");
    assert!(error.is_invalid(), "{error}");
}
