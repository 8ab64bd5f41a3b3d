//! Connections and servers that go away and come back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testbed::{Direction, Ensemble, Proxy, Server, opcode, wait_until};
use zklock::{ConnectionEvent, LockState, RetryPolicy, RwLock, Semaphore};

use crate::fixtures::{SOON, T, children, client_at, mutex, server, wait_for_children};

/// The crate's own handle ends its session at the first disconnect after a while of load; ours
/// must keep it, and the node.
#[test]
fn a_reset_under_load_keeps_session_and_lock() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let session = client.session_id();
    let lock = mutex(&client, "/outage/reset");
    let guard = lock.lock().expect("free");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (client, stop) = (&client, &stop);
            scope.spawn(move || {
                let busy = mutex(client, &format!("/outage/busy{number}"));
                while !stop.load(Ordering::SeqCst) {
                    drop(busy.lock().expect("kept through resets"));
                }
            });
        }
        // Longer than the timeout, as that is when the crate's pings have stopped.
        let begun = Instant::now();
        let mut resets = 0;
        while begun.elapsed() < T + Duration::from_secs(2) {
            let deletes = proxy.counters().requested(opcode::DELETE);
            let busy =
                |counters: &testbed::Counters| counters.requested(opcode::DELETE) > deletes + 500;
            proxy.wait_for(busy, SOON);
            proxy.reset_all();
            resets += 1;
        }
        assert!(resets > 1);
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(client.session_id(), session);
    wait_until("verified", SOON, || guard.state() == LockState::Held);
    assert!(guard.lost().is_empty());
    for number in 0..4 {
        wait_for_children(server(), &format!("/outage/busy{number}"), 0);
    }
}

#[test]
fn a_server_that_is_back_in_time_keeps_session_and_lock() {
    let server = Server::start();
    // Long enough for a JVM to start.
    let client = crate::fixtures::builder(&server.connect_string())
        .session_timeout(Duration::from_secs(10))
        .connect()
        .expect("a server that works");
    let events = client.events();
    let lock = mutex(&client, "/restart");
    let guard = lock.lock().expect("free");
    server.kill();
    wait_until("suspect", SOON, || guard.state() == LockState::Suspect);
    assert!(
        lock.try_lock().is_ok_and(|inner| inner.is_some()),
        "re-entry asks nobody"
    );
    server.restart();
    wait_until("known", SOON, || guard.state() != LockState::Suspect);
    if guard.is_held() {
        let seen: Vec<_> = events.try_iter().collect();
        assert_eq!(
            seen,
            [ConnectionEvent::Suspended, ConnectionEvent::Reconnected]
        );
        guard.unlock().expect("still ours");
        assert!(children(&server, "/restart").is_empty());
    } else {
        // The machine took longer than the timeout to start a JVM: then the loss must be known.
        assert_eq!(guard.state(), LockState::Lost);
    }
}

#[test]
fn silence_is_noticed_and_survived() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let session = client.session_id();
    let lock = mutex(&client, "/outage/silence");
    let guard = lock.lock().expect("free");
    // The holder is idle: nothing but the link's own pings can notice.
    proxy.black_hole(Direction::Both);
    wait_until("suspect", SOON, || guard.state() == LockState::Suspect);
    proxy.heal();
    wait_until("verified", SOON, || guard.state() == LockState::Held);
    assert_eq!(client.session_id(), session);
}

/// The order of things: the holder knows first, the server gives the lock away later.
#[test]
fn the_holder_knows_before_the_server_gives_the_lock_away() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = mutex(&client, "/outage/lease");
    let path = lock.path().to_owned();
    let other = crate::fixtures::client();
    let next = mutex(&other, &path);
    for calls_in_flight in [false, true] {
        let guard = lock.lock().expect("free");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if calls_in_flight {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let _ = lock.participants();
                        std::thread::yield_now();
                    }
                });
            }
            let waiter = scope.spawn(|| {
                let taken = next.lock().expect("its turn");
                // The holder must have been told by now, and know it by itself.
                (taken.is_held(), Instant::now())
            });
            wait_for_children(server(), &path, 2);
            proxy.black_hole(Direction::Both);
            let told = guard.lost().recv().expect("a reason");
            let told_at = Instant::now();
            assert_eq!(told, zklock::LossReason::Session);
            assert_eq!(guard.state(), LockState::Lost);
            let (held, taken_at) = waiter.join().expect("no panic");
            assert!(held);
            assert!(told_at < taken_at, "told {:?} late", told_at - taken_at);
            stop.store(true, Ordering::SeqCst);
        });
        proxy.heal();
        assert!(guard.unlock().expect_err("lost").is_session_lost());
        wait_until("a new session", SOON, || client.session_id().is_some());
    }
    drop(lock.lock().expect("in a new session"));
}

#[test]
fn waiters_queue_again_in_the_next_session() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let holder = crate::fixtures::client();
    let held = mutex(&holder, "/outage/again");
    let guard = held.lock().expect("free");
    let lock = mutex(&client, "/outage/again");
    let session = client.session_id();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().expect("its turn").fencing_token());
        wait_for_children(server(), "/outage/again", 2);
        proxy.refuse();
        proxy.reset_all();
        wait_for_children(server(), "/outage/again", 1);
        proxy.accept();
        wait_for_children(server(), "/outage/again", 2);
        let token = guard.fencing_token().expect("held");
        drop(guard);
        assert!(waiter.join().expect("no panic").expect("held") > token);
    });
    assert_ne!(client.session_id(), session);
}

#[test]
fn closing_in_a_black_hole_is_bounded_and_wakes_everybody() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = mutex(&client, "/outage/close");
    let guard = lock.lock().expect("free");
    proxy.black_hole(Direction::Both);
    let begun = Instant::now();
    let waiting = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    waiting.fetch_add(1, Ordering::SeqCst);
                    lock.lock().map(drop)
                })
            })
            .collect();
        wait_until("they wait", SOON, || waiting.load(Ordering::SeqCst) == 3);
        client.close();
        for waiter in waiters {
            let error = waiter.join().expect("no panic").expect_err("closed");
            assert!(error.is_closed(), "{error}");
        }
    });
    // Two seconds are promised; without them this would be the session timeout or for ever.
    assert!(
        begun.elapsed() < Duration::from_millis(2500),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(guard.state(), LockState::Lost);
    drop(guard);
}

/// Leader killed, then the majority away: shorter than the timeout the session is kept.
#[test]
fn an_ensemble_keeps_the_session_through_a_failover() {
    let ensemble = Ensemble::start(3);
    let client = crate::fixtures::builder(&ensemble.connect_string())
        .session_timeout(Duration::from_secs(10))
        .connect()
        .expect("a quorum");
    let session = client.session_id();
    let lock = mutex(&client, "/failover");
    let guard = lock.lock().expect("free");
    let node = guard.path().to_owned();
    let leader = ensemble.leader();
    ensemble.kill(leader);
    let reader = ensemble.leader();
    wait_until("verified", SOON, || guard.state() == LockState::Held);
    assert_eq!(client.session_id(), session, "the session was kept");
    let names = children(ensemble.server(reader), "/failover");
    assert_eq!(names.len(), 1);
    assert!(node.ends_with(names[0].as_str()), "the same node");
    guard.unlock().expect("ours");
    ensemble.restart(leader);
    // The majority away: frozen, so that it comes back at once.
    let guard = lock.lock().expect("free");
    let frozen: Vec<_> = (0..3).filter(|index| *index != ensemble.leader()).collect();
    for index in &frozen {
        ensemble.stop(*index);
    }
    wait_until(
        "suspect or held by a leader that does not know yet",
        SOON,
        || guard.state() != LockState::Lost,
    );
    for index in &frozen {
        ensemble.cont(*index);
    }
    ensemble.wait_until_awake_serve();
    wait_until("verified", SOON, || guard.state() == LockState::Held);
    assert_eq!(client.session_id(), session, "the session was kept");
    guard.unlock().expect("ours");
}

/// A client that gives up after `limit`, in an outage that has lasted for longer than that.
fn without_servers(limit: Duration, path: &str) -> (Proxy, zklock::Client, zklock::Mutex) {
    let proxy = Proxy::start(server().addr());
    let client = crate::fixtures::builder(&proxy.connect_string())
        .session_timeout(T)
        .retry(RetryPolicy::new().give_up_after(limit))
        .connect()
        .expect("a server that works");
    let lock = mutex(&client, path);
    proxy.refuse();
    proxy.reset_all();
    wait_until("no connection", SOON, || {
        client.state() != zklock::ConnectionState::Connected
    });
    let error = lock.lock().expect_err("nobody answers");
    assert!(error.is_connection_loss(), "{error}");
    (proxy, client, lock)
}

/// Pauses as long as can be said are cut to a day, and are no reason to panic. (A random part of such
/// a time was added to the clock: of several clients, one was beyond its range.)
#[test]
fn a_pause_for_ever_leaves_the_client_as_it_is() {
    let proxy = Proxy::start(server().addr());
    let retry = RetryPolicy::new()
        .initial(Duration::MAX)
        .max(Duration::MAX)
        .give_up_after(Duration::from_millis(200));
    let connect = |_| {
        let builder = crate::fixtures::builder(&proxy.connect_string()).session_timeout(T);
        let client = builder.retry(retry.clone()).connect();
        client.expect("a server that works")
    };
    let clients: Vec<_> = (0..8).map(connect).collect();
    let events: Vec<_> = clients.iter().map(zklock::Client::events).collect();
    proxy.refuse();
    proxy.reset_all();
    for (client, events) in clients.iter().zip(events) {
        let lost = |event| event == zklock::ConnectionEvent::Lost;
        wait_until("the loss", SOON, || events.try_iter().any(lost));
        // Its threads are there: a panic of one would have closed it.
        let error = mutex(client, "/outage/pause").lock().map(drop);
        let error = error.expect_err("nobody answers");
        assert!(error.is_connection_loss(), "{error}");
        assert_eq!(client.state(), zklock::ConnectionState::Connecting);
    }
}

/// A leader that stands again after each error, as the pages have it, called 100,000 times a second
/// once the outage had lasted for as long as calls wait: that was counted from the loss of contact.
#[test]
fn each_call_in_a_long_outage_waits_by_itself() {
    let limit = Duration::from_millis(200);
    let (_proxy, client, lock) = without_servers(limit, "/outage/long");
    let readers = RwLock::new(&client, "/outage/long-read").expect("a good path");
    let permits = Semaphore::new(&client, "/outage/long-permits", 2).expect("a good path");
    let begun = Instant::now();
    let mut calls = 0;
    while begun.elapsed() < 8 * limit {
        let failed = match calls % 3 {
            0 => lock.lock().map(drop),
            1 => readers.read().map(drop),
            _ => permits.acquire().map(drop),
        };
        let error = failed.expect_err("nobody answers");
        assert!(error.is_connection_loss(), "{error}");
        calls += 1;
    }
    assert!(begun.elapsed() >= calls * limit, "{calls} calls");

    // A call's own deadline counts if it is earlier.
    let begun = Instant::now();
    let in_time = lock.try_lock_for(limit / 4).expect("not given up");
    assert!(in_time.is_none());
    assert!(begun.elapsed() >= limit / 4);
    // And if it is later, it does not keep the call.
    let error = lock.try_lock_for(SOON).expect_err("nobody answers");
    assert!(error.is_connection_loss(), "{error}");
}

/// Who waits behind others of its process gives up when its own time is over, not that of all those
/// one after the other.
#[test]
fn threads_that_wait_together_give_up_together() {
    let limit = Duration::from_secs(3);
    let (_proxy, _client, lock) = without_servers(limit, "/outage/together");
    std::thread::scope(|scope| {
        let waiters = [(); 4].map(|()| {
            scope.spawn(|| {
                let begun = Instant::now();
                let error = lock.lock().expect_err("nobody answers");
                assert!(error.is_connection_loss(), "{error}");
                begun.elapsed()
            })
        });
        for waiter in waiters {
            let waited = waiter.join().expect("no panic");
            assert!(waited >= limit && waited < 2 * limit, "{waited:?}");
        }
    });
}
