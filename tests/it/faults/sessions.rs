//! Sessions that end: by expiry, by a stopped process, by an administrator.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use testbed::{Proxy, Puppet, Server, process, wait_until};
use zklock::{Acl, ConnectionEvent, LockState, RwLock, SimpleMutex};

use crate::fixtures::{
    SOON, T, children, client, client_at, mutex, raw, server, wait_for_children,
};
use crate::puppet;

/// Stopped for longer than its session lives, a process goes on in the middle of its section. On
/// its first look it must know, and a store that checks tokens must refuse its writes.
#[test]
fn a_stopped_holder_knows_on_its_first_look() {
    let path = "/session/stopped";
    let mut puppet = puppet::start(&server().connect_string(), path);
    assert_eq!(puppet.say("lock"), "ok");
    assert_eq!(puppet.say("state"), "Held");
    let stale: u64 = puppet.say("token").parse().expect("a token");
    process::stop(puppet.pid());
    let client = client();
    let lock = mutex(&client, path);
    let guard = lock.lock().expect("after the session's end");
    let token = guard.fencing_token().expect("held").as_u64();
    assert!(stale < token);
    process::cont(puppet.pid());
    assert_eq!(puppet.say("state"), "Lost");
    assert!(
        puppet.say("lost").starts_with("Ok("),
        "the channel has spoken"
    );
    // The store, which has seen `token`.
    let mut largest = token;
    let mut accepts = |offered: u64| {
        largest = largest.max(offered);
        offered >= largest
    };
    assert!(!accepts(stale));
    assert!(accepts(token));
    assert!(puppet.say("unlock").contains("SessionLost"));
    assert!(guard.is_held());
}

/// "I am first" must never be concluded without an own live node: the waiter's session expires
/// while it waits, then the holder lets go.
#[test]
fn a_waiter_whose_session_expired_starts_anew() {
    let proxy = Proxy::start(server().addr());
    let waiting = client_at(&proxy.connect_string());
    let holder = client();
    let path = "/session/waiter";
    let (held, lock) = (mutex(&holder, path), mutex(&waiting, path));
    let guard = held.lock().expect("free");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.lock().expect("its turn");
            let node = guard.path().to_owned();
            let (_, name) = node.rsplit_once('/').expect("a path");
            assert!(children(server(), path).iter().any(|child| child == name));
            node
        });
        wait_for_children(server(), path, 2);
        let first: Vec<_> = children(server(), path);
        proxy.refuse();
        proxy.reset_all();
        wait_for_children(server(), path, 1);
        drop(guard);
        proxy.accept();
        let node = waiter.join().expect("no panic");
        assert!(first.iter().all(|name| !node.ends_with(name.as_str())));
    });
}

/// Another connection ends our session; the server says so, and a new one is made.
#[test]
fn an_ended_session_is_replaced() {
    let server = Server::start();
    let client = client_at(&server.connect_string());
    let events = client.events();
    let session = client.session_id().expect("connected");
    let lock = mutex(&client, "/ended");
    let guard = lock.lock().expect("free");
    let proxy_free = Instant::now();
    server.kill();
    // Longer than the timeout away, so that the lease runs out before the server is back.
    let lost = events
        .iter()
        .find(|event| *event == ConnectionEvent::Lost)
        .expect("told");
    assert_eq!(lost, ConnectionEvent::Lost);
    assert!(proxy_free.elapsed() < SOON);
    assert_eq!(guard.state(), LockState::Lost);
    server.restart();
    wait_until("a new session", SOON, || {
        client.session_id().is_some_and(|now| now != session)
    });
    // A restarted server gives old sessions a fresh lease: ours was closed by the link, so that
    // nobody has to wait for its nodes.
    drop(guard);
    let again = lock.try_lock_for(T / 3).expect("answers");
    assert!(again.is_some(), "the old node is gone");
}

#[test]
fn credentials_survive_a_restart() {
    let server = Server::start();
    let client = crate::fixtures::builder(&server.connect_string())
        .session_timeout(Duration::from_secs(10))
        .auth("digest", "batch:secret")
        .acl(Acl::creator_all())
        .connect()
        .expect("a server that works");
    let lock = mutex(&client, "/private/lock");
    let guard = lock.lock().expect("free");
    let stranger = client_at(&server.connect_string());
    let error = mutex(&stranger, "/private/lock")
        .lock()
        .expect_err("closed to others");
    assert!(error.is_no_auth(), "{error}");
    assert!(error.to_string().contains("/private/lock"), "{error}");
    server.restart();
    wait_until("verified", SOON, || guard.state() == LockState::Held);
    guard
        .unlock()
        .expect("the credentials were presented again");
    drop(lock.lock().expect("still allowed"));
}

/// `creator-all` without credentials is a mistake that ZooKeeper names badly.
#[test]
fn an_impossible_acl_is_told() {
    let client = crate::fixtures::builder(&server().connect_string())
        .acl(Acl::creator_all())
        .connect()
        .expect("a server that works");
    let error = mutex(&client, "/session/acl")
        .lock()
        .expect_err("no creator");
    assert!(error.is_no_auth(), "{error}");
    assert!(error.to_string().contains("needs credentials"), "{error}");
}

#[test]
fn a_node_removed_under_its_holder_is_found_at_the_reconnect() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = mutex(&client, "/session/removed");
    let guard = lock.lock().expect("free");
    raw(server()).delete(guard.path()).expect("there");
    proxy.reset_all();
    let reason = guard.lost().recv_timeout(SOON).expect("told");
    assert_eq!(reason, zklock::LossReason::Removed);
    let error = guard.unlock().expect_err("lost");
    assert!(error.is_lock_lost() && !error.is_session_lost(), "{error}");
}

/// An inner section would run without the lock. What is lost is sure for no time at all, either.
#[test]
fn a_lost_lock_is_not_entered_again() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let mutex = mutex(&client, "/session/again/mutex");
    let locks = RwLock::new(&client, "/session/again/read").expect("the path is good");
    let others = RwLock::new(&client, "/session/again/write").expect("the path is good");
    let simple = SimpleMutex::new(&client, "/session/again/simple").expect("the path is good");
    let guard = mutex.lock().expect("free");
    let _reads = locks.read().expect("free");
    let _writes = others.write().expect("free");
    let _simple = simple.lock().expect("free");
    drop(mutex.lock().expect("re-entrant while it is held"));
    let sure = guard.remaining();
    assert!(!sure.is_zero() && sure < T, "{sure:?}");
    guard.ensure_for(Duration::ZERO).expect("held");
    let error = guard.ensure_for(T).expect_err("nobody knows for so long");
    assert!(error.is_lease_short() && !error.is_lock_lost(), "{error}");
    proxy.refuse();
    proxy.reset_all();
    guard.lost().recv_timeout(SOON).expect("told");
    assert!(guard.remaining().is_zero());
    let refused = [
        guard.ensure_for(Duration::ZERO),
        mutex.lock().map(drop),
        mutex.try_lock().map(drop),
        locks.read().map(drop),
        others.write().map(drop),
        simple.lock().map(drop),
    ];
    for (which, result) in refused.into_iter().enumerate() {
        let error = result.expect_err("lost");
        assert!(error.is_lock_lost(), "{which}: {error}");
    }
}

/// A client cannot see the servers' tick. With a session timeout below two of them the lease may be
/// too long, so it says what it must be told. Another process, for a logger of its own.
#[test]
fn a_short_timeout_is_warned_of_where_the_tick_is_not_known() {
    let mut program = puppet::program(&server().connect_string(), "/session/ticks");
    program
        .env("RUST_LOG", "zklock=warn")
        .stderr(Stdio::piped());
    let mut puppet = Puppet::started(program);
    let said = BufReader::new(puppet.stderr());
    let (sender, lines) = crossbeam_channel::unbounded();
    let reader = std::thread::spawn(move || {
        for line in said.lines().map_while(Result::ok) {
            // The test may have seen enough.
            let _ = sender.send(line);
        }
    });
    let line = lines.recv_timeout(SOON);
    puppet.end();
    reader.join().expect("no panic");
    let line = line.expect("a warning");
    for part in ["timeout of 3s", "tickTime", "ClientBuilder::tick_time"] {
        assert!(line.contains(part), "{part:?} is missing in: {line}");
    }
    assert_eq!(lines.try_iter().count(), 0, "it is said once");
}
