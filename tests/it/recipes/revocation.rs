//! Asking for a lock back, breaking it, and hearing that it was broken.

use std::time::Duration;

use testbed::{Proxy, wait_until};
use zklock::{AcquireOptions, LockState, LossReason, Mutex, RwLock};

use crate::fixtures::{
    SOON, T, children, client, client_at, mutex, raw, server, wait_for_children,
};

fn revocable(client: &zklock::Client, path: &str) -> Mutex {
    let builder = Mutex::builder(client, path).revocable(true);
    builder.build().expect("good")
}

#[test]
fn a_holder_hears_that_it_is_asked_and_decides() {
    let path = "/revocation/asked";
    let clients = [client(), client()];
    let (lock, other) = (revocable(&clients[0], path), mutex(&clients[1], path));
    let guard = lock.lock().expect("free");
    assert!(guard.revocation().try_recv().is_err());
    let holder = other.participants().expect("answers").remove(0);
    assert!(holder.identity().is_some(), "it says who it is");
    assert!(other.revoke(&holder).expect("answers"));
    guard.revocation().recv_timeout(SOON).expect("asked");
    assert!(guard.is_held(), "nobody takes it away");
    let data = raw(server()).data(guard.path()).expect("ours");
    assert!(data.starts_with(b"__REVOKE__"));
    // It goes on saying who it is, also when it is asked twice.
    assert!(other.revoke(&holder).expect("answers"));
    let asked = other.participants().expect("answers").remove(0);
    assert!(asked.is_revocation_requested() && !holder.is_revocation_requested());
    assert_eq!(asked.identity(), holder.identity());
    assert_eq!(asked.data(), holder.data());
    assert!(other.try_lock().expect("answers").is_none());
    guard.unlock().expect("confirmed");
    let next = other.lock().expect("free");
    assert!(!other.revoke(&holder).expect("answers"), "it has gone");
    drop(next);
}

/// The request may come while the lock is still waited for, and at any moment in which no watch
/// stands; it is data, and is found.
#[test]
fn a_request_that_comes_early_is_heard() {
    let path = "/revocation/early";
    let clients = [client(), client()];
    let (lock, other) = (revocable(&clients[0], path), mutex(&clients[1], path));
    let guard = other.lock().expect("free");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.lock().expect("its turn");
            guard.revocation().recv_timeout(SOON)
        });
        wait_for_children(server(), path, 2);
        let who = other.participants().expect("answers");
        assert!(other.revoke(&who[1]).expect("answers"));
        drop(guard);
        assert_eq!(waiter.join().expect("no panic"), Ok(()));
    });
}

/// And while there is no contact.
#[test]
fn a_request_during_an_outage_is_heard() {
    let path = "/revocation/outage";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = revocable(&client, path);
    let guard = lock.lock().expect("free");
    let other = crate::fixtures::client();
    let other = mutex(&other, path);
    proxy.refuse();
    proxy.reset_all();
    wait_until("suspect", SOON, || guard.state() == LockState::Suspect);
    let holder = other.participants().expect("answers").remove(0);
    assert!(other.revoke(&holder).expect("answers"));
    proxy.accept();
    guard
        .revocation()
        .recv_timeout(SOON)
        .expect("found at the reconnect");
    assert_ne!(guard.state(), LockState::Lost);
}

/// Once asked, a process does not hand the lock to another of its threads, nor keep it idle.
#[test]
fn a_lock_that_is_asked_for_is_not_handed_on() {
    let path = "/revocation/handed";
    let clients = [client(), client()];
    let builder = Mutex::builder(&clients[0], path).revocable(true);
    let lock = builder.linger(SOON).build().expect("good");
    let other = mutex(&clients[1], path);
    let guard = lock.lock().expect("free");
    let first = guard.path().to_owned();
    std::thread::scope(|scope| {
        let (to, positions) = crossbeam_channel::unbounded();
        let options = AcquireOptions::new().positions(&to);
        let next = scope.spawn(|| {
            let guard = lock.lock_with(options).expect("its turn");
            guard.path().to_owned()
        });
        positions.recv_timeout(SOON).expect("it sleeps");
        let holder = other.participants().expect("answers").remove(0);
        assert!(other.revoke(&holder).expect("answers"));
        guard.revocation().recv_timeout(SOON).expect("asked");
        drop(guard);
        assert_ne!(next.join().expect("no panic"), first);
    });
    // The lock is idle now, and nobody is there to decide: it goes.
    wait_for_children(server(), path, 1);
    let idle = other.participants().expect("answers").remove(0);
    assert!(other.revoke(&idle).expect("answers"));
    wait_for_children(server(), path, 0);
}

#[test]
fn a_lock_that_is_not_revocable_does_not_listen() {
    let path = "/revocation/deaf";
    let client = client();
    let lock = mutex(&client, path);
    let guard = lock.lock().expect("free");
    let holder = lock.participants().expect("answers").remove(0);
    assert!(lock.revoke(&holder).expect("answers"));
    let heard = guard.revocation().recv_timeout(Duration::from_millis(300));
    assert!(heard.is_err());
    assert!(guard.is_held());
}

#[test]
fn readers_and_writers_can_be_asked() {
    let path = "/revocation/rw";
    let clients = [client(), client()];
    let builder = RwLock::builder(&clients[0], path).revocable(true);
    let lock = builder.build().expect("good");
    let other = RwLock::new(&clients[1], path).expect("good");
    let reading = lock.read().expect("free");
    let holder = other.participants().expect("answers").remove(0);
    assert!(other.revoke(&holder).expect("answers"));
    reading.revocation().recv_timeout(SOON).expect("asked");
    // Who reads after that does so with a node of its own.
    let asked = reading.path().to_owned();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let later = lock.read().expect("readers share");
            assert_ne!(later.path(), asked);
        });
    });
    drop(reading);
    let writing = lock.write().expect("free");
    let holder = other.participants().expect("answers").remove(0);
    assert!(other.revoke(&holder).expect("answers"));
    writing.revocation().recv_timeout(SOON).expect("asked");
}

/// The holder of a lock that was broken learns it without asking, though its lock is not revocable
/// and it does nothing with ZooKeeper.
#[test]
fn the_holder_of_a_broken_lock_is_told() {
    let path = "/revocation/broken";
    let clients = [client(), client()];
    let (lock, other) = (mutex(&clients[0], path), mutex(&clients[1], path));
    let guard = lock.lock().expect("free");
    let holder = other.participants().expect("answers").remove(0);
    assert!(other.break_lock(&holder).expect("answers"));
    assert_eq!(guard.lost().recv_timeout(SOON), Ok(LossReason::Removed));
    assert_eq!(guard.state(), LockState::Lost);
    let next = other.try_lock().expect("answers");
    assert!(next.is_some_and(|guard| guard.is_held()));
    assert!(!other.break_lock(&holder).expect("answers"), "it has gone");
    assert!(guard.unlock().expect_err("lost").is_lock_lost());
}

/// A release of one's own is no loss, also for a holder whose node is watched.
#[test]
fn an_ordinary_release_is_not_told_as_a_loss() {
    let path = "/revocation/ordinary";
    let client = client();
    let lock = revocable(&client, path);
    for _ in 0..20 {
        let guard = lock.lock().expect("free");
        let lost = guard.lost().clone();
        guard.unlock().expect("confirmed");
        assert!(lost.try_recv().is_err());
    }
    let guard = lock.lock().expect("free");
    let lost = guard.lost().clone();
    drop(guard);
    assert!(lost.recv_timeout(Duration::from_millis(300)).is_err());
}

#[test]
fn a_broken_waiter_queues_again() {
    let path = "/revocation/waiter";
    let clients = [client(), client()];
    let (held, lock) = (mutex(&clients[0], path), mutex(&clients[1], path));
    let guard = held.lock().expect("free");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().expect("its turn").is_held());
        wait_for_children(server(), path, 2);
        let who = held.participants().expect("answers");
        assert!(held.break_lock(&who[1]).expect("answers"));
        drop(guard);
        assert!(waiter.join().expect("no panic"));
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn participants_of_another_lock_are_refused() {
    let client = client();
    let (a, b) = (
        mutex(&client, "/revocation/a"),
        mutex(&client, "/revocation/b"),
    );
    let guard = a.lock().expect("free");
    let holder = a.participants().expect("answers").remove(0);
    for error in [
        b.revoke(&holder).expect_err("not its own"),
        b.break_lock(&holder).expect_err("not its own"),
    ] {
        assert!(error.is_invalid(), "{error}");
    }
    assert!(guard.is_held());
    assert_eq!(children(server(), "/revocation/a").len(), 1);
}

/// Watches on our own nodes go with them.
#[test]
fn long_sections_leave_no_watches() {
    let server = testbed::Server::start();
    let client = crate::fixtures::builder(&server.connect_string())
        .session_timeout(T)
        .connect()
        .expect("works");
    let lock = revocable(&client, "/watched");
    for _ in 0..5 {
        let guard = lock.lock().expect("free");
        wait_until("watched", SOON, || server.stats().watch_count > 0);
        drop(guard);
    }
    wait_until("no watch is left", SOON, || server.stats().watch_count == 0);
}

/// Data that begins as a request for the lock does asked its own holder for the lock.
#[test]
fn data_that_reads_as_a_request_is_refused() {
    let path = "/revocation/data";
    let client = client();
    let asks = "__REVOKE__ me if you can";
    let error = Mutex::builder(&client, path).data(asks).build();
    let error = error.expect_err("it would ask for itself");
    assert!(
        error.is_invalid() && error.to_string().contains(path),
        "{error}"
    );
    let lock = Mutex::builder(&client, path).revocable(true);
    let lock = lock.build().expect("good");
    let options = || zklock::AcquireOptions::new().data(asks);
    let error = lock.lock_with(options()).map(drop);
    assert!(error.expect_err("it would ask for itself").is_invalid());
    let simple = zklock::SimpleMutex::builder(&client, "/revocation/simple").data(asks);
    assert!(simple.build().expect_err("the same").is_invalid());
    // Anywhere else in the data it is nobody's request.
    let lock = Mutex::builder(&client, path).data("no __REVOKE__").build();
    drop(lock.expect("good").lock().expect("free"));
}
