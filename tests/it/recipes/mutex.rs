//! The mutex on a server that works: what `Mutex` and its guard promise in peace.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testbed::Proxy;
use testbed::raw::Flags;
use zklock::{AcquireOptions, CancelToken, Dialect, LockName, LockState, Mutex, WaitStrategy};

use crate::fixtures::{SOON, children, client, client_at, mutex, raw, server, wait_for_children};

#[test]
fn one_at_a_time_over_threads_and_clients() {
    let clients = [client(), client()];
    let inside = AtomicUsize::new(0);
    let sections = AtomicUsize::new(0);
    let locks: Vec<_> = clients.iter().map(|c| mutex(c, "/mutex/one")).collect();
    std::thread::scope(|scope| {
        for lock in &locks {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let guard = lock.lock().expect("its turn");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        assert!(guard.is_held());
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        sections.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        }
    });
    assert_eq!(sections.into_inner(), 200);
    wait_for_children(server(), "/mutex/one", 0);
}

#[test]
fn reentrant_for_its_thread() {
    let client = client();
    let lock = mutex(&client, "/mutex/again");
    let outer = lock.lock().expect("free");
    let inner = lock.lock().expect("ours");
    assert_eq!(lock.hold_count(), 2);
    assert!(lock.is_held_by_current_thread());
    drop(outer);
    // kazoo's re-entrant lock was given up by the first release (kazoo #291).
    assert!(inner.is_held());
    assert_eq!(children(server(), "/mutex/again").len(), 1);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert!(!lock.is_held_by_current_thread());
            assert_eq!(lock.hold_count(), 0);
            lock.try_lock().expect("asks nobody").is_none()
        });
        assert!(other.join().expect("no panic"));
    });
    drop(inner);
    assert_eq!(lock.hold_count(), 0);
    assert!(children(server(), "/mutex/again").is_empty());
}

#[test]
fn a_busy_try_lock_writes_nothing() {
    let (holder, other) = (client(), client());
    let held = mutex(&holder, "/mutex/busy");
    let _guard = held.lock().expect("free");
    let before = raw(server()).create("/mutex/busy/probe", b"", Flags::PersistentSequential);
    let lock = mutex(&other, "/mutex/busy");
    for _ in 0..20 {
        assert!(lock.try_lock().expect("answers").is_none());
        let zero = lock.try_lock_for(Duration::ZERO).expect("answers");
        assert!(zero.is_none());
        let past = lock.try_lock_until(Instant::now()).expect("answers");
        assert!(past.is_none());
    }
    // Each create of a child, sequential or not, takes a number of its folder.
    let after = raw(server()).create("/mutex/busy/probe", b"", Flags::PersistentSequential);
    let number = |path: std::io::Result<String>| -> u32 {
        let path = path.expect("open to all");
        path[path.len() - 10..].parse().expect("ten digits")
    };
    assert_eq!(number(after), number(before) + 1);
}

#[test]
fn a_timed_wait_ends_in_time_and_leaves_nothing() {
    let (holder, other) = (client(), client());
    let held = mutex(&holder, "/mutex/timed");
    let guard = held.lock().expect("free");
    let lock = mutex(&other, "/mutex/timed");
    let begun = Instant::now();
    let timeout = Duration::from_millis(200);
    assert!(lock.try_lock_for(timeout).expect("answers").is_none());
    assert!(begun.elapsed() >= timeout);
    wait_for_children(server(), "/mutex/timed", 1);
    // A local waiter, too.
    std::thread::scope(|scope| {
        let local = scope.spawn(|| held.try_lock_for(timeout).expect("answers").is_none());
        assert!(local.join().expect("no panic"));
    });
    drop(guard);
    let forever = lock.try_lock_for(Duration::MAX).expect("answers");
    assert!(forever.is_some_and(|guard| guard.is_held()));
}

#[test]
fn cancelling_ends_a_wait_and_leaves_nothing() {
    let (holder, other) = (client(), client());
    let held = mutex(&holder, "/mutex/cancel");
    let _guard = held.lock().expect("free");
    let lock = mutex(&other, "/mutex/cancel");
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let options = AcquireOptions::new().cancel(&token);
                scope.spawn(|| lock.lock_with(options).map(drop))
            })
            .collect();
        wait_for_children(server(), "/mutex/cancel", 2);
        token.cancel();
        for waiter in waiters {
            let error = waiter.join().expect("no panic").expect_err("cancelled");
            assert!(error.is_cancelled(), "{error}");
        }
    });
    wait_for_children(server(), "/mutex/cancel", 1);
    let options = AcquireOptions::new().cancel(&token);
    let again = lock.lock_with(options).map(drop);
    assert!(again.expect_err("final").is_cancelled());
}

/// A waiter that gives up hands its place in the global queue to the next thread of its process,
/// which is then ahead of those who came later.
#[test]
fn a_place_in_the_queue_outlives_the_thread_that_took_it() {
    let clients = [client(), client(), client()];
    let path = "/mutex/place";
    let locks: Vec<_> = clients.iter().map(|c| mutex(c, path)).collect();
    let guard = locks[0].lock().expect("free");
    let order = std::sync::Mutex::new(Vec::new());
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let options = AcquireOptions::new().cancel(&token);
        scope.spawn(|| {
            locks[1]
                .lock_with(options)
                .map(drop)
                .expect_err("cancelled")
        });
        wait_for_children(server(), path, 2);
        let (to, positions) = crossbeam_channel::unbounded();
        let options = AcquireOptions::new().positions(&to);
        scope.spawn(|| {
            let _guard = locks[1].lock_with(options).expect("its turn");
            order.lock().expect("no panic").push("heir");
        });
        let position = positions.recv_timeout(SOON).expect("it sleeps");
        assert_eq!(position.threads_ahead(), 1);
        scope.spawn(|| {
            let _guard = locks[2].lock().expect("its turn");
            order.lock().expect("no panic").push("later");
        });
        wait_for_children(server(), path, 3);
        token.cancel();
        wait_for_children(server(), path, 3);
        drop(guard);
    });
    assert_eq!(*order.lock().expect("no panic"), ["heir", "later"]);
}

#[test]
fn participants_are_shown_in_order() {
    let clients = [client(), client()];
    let locks: Vec<_> = clients.iter().map(|c| mutex(c, "/mutex/who")).collect();
    assert!(locks[0].participants().expect("no folder yet").is_empty());
    let guard = locks[0].lock().expect("free");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let options = AcquireOptions::new().data("the second");
            drop(locks[1].lock_with(options).expect("its turn"));
        });
        wait_for_children(server(), "/mutex/who", 2);
        let participants = locks[0].participants().expect("answers");
        assert_eq!(participants.len(), 2);
        assert!(participants[0].is_holder() && participants[0].is_ours());
        assert_eq!(participants[0].path(), guard.path());
        let identity = participants[0].identity().expect("the default data");
        assert_eq!(identity.process_id(), std::process::id());
        assert_eq!(participants[1].data(), b"the second");
        assert_eq!(participants[1].position(), 1);
        assert!(!participants[1].is_ours());
        drop(guard);
    });
}

#[test]
fn locks_of_different_names_share_a_folder() {
    let client = client();
    let named = |name: &str| {
        let name = LockName::new(name).expect("good");
        Mutex::builder(&client, "/mutex/shared")
            .name(name)
            .build()
            .expect("good")
    };
    let (a, b, again) = (named("a-"), named("b-a-"), named("a-"));
    let _a = a.try_lock().expect("answers").expect("free");
    let _b = b.try_lock().expect("answers").expect("another lock");
    assert!(again.try_lock().expect("answers").is_none());
}

#[test]
fn kazoos_dialect_names_nodes_as_kazoo_does() {
    let client = client();
    let lock = Mutex::builder(&client, "/mutex/kazoo")
        .dialect(Dialect::Kazoo)
        .build()
        .expect("good");
    let guard = lock.lock().expect("free");
    let names = children(server(), "/mutex/kazoo");
    let [name] = names.as_slice() else {
        panic!("one node: {names:?}")
    };
    assert!(guard.path().ends_with(name.as_str()));
    let (guid, rest) = name.split_at(32);
    assert!(guid.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(rest, "__lock__0000000000");
}

#[test]
fn every_wait_strategy_hands_over_in_order() {
    for strategy in [
        WaitStrategy::PredecessorWatch,
        WaitStrategy::ParentWatch,
        WaitStrategy::Polling(Duration::from_millis(5)),
    ] {
        let path = format!("/mutex/{strategy:?}").replace(['(', ')', '.'], "");
        let clients: Vec<_> = (0..4).map(|_| client()).collect();
        let locks: Vec<_> = clients
            .iter()
            .map(|client| {
                let builder = Mutex::builder(client, &path).wait_strategy(strategy);
                builder.build().expect("good")
            })
            .collect();
        let guard = locks[0].lock().expect("free");
        let order = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (number, lock) in locks.iter().enumerate().skip(1) {
                let order = &order;
                scope.spawn(move || {
                    let _guard = lock.lock().expect("its turn");
                    order.lock().expect("no panic").push(number);
                });
                wait_for_children(server(), &path, number + 1);
            }
            drop(guard);
        });
        assert_eq!(*order.lock().expect("no panic"), [1, 2, 3], "{strategy:?}");
        wait_for_children(server(), &path, 0);
    }
}

/// A child that is not a contender broke other libraries' queues, or joined them.
#[test]
fn foreign_children_are_ignored_and_kept() {
    let client = client();
    let lock = mutex(&client, "/mutex/foreign");
    drop(lock.lock().expect("free"));
    let mut raw = raw(server());
    let strangers = [
        "hello",
        "lock-",
        "x-lock-0000000000",
        "_c_-lock-0000000000",
        "ä",
    ];
    for name in strangers {
        let path = format!("/mutex/foreign/{name}");
        raw.create(&path, b"", Flags::Persistent)
            .expect("open to all");
    }
    let guard = lock.try_lock().expect("answers").expect("nobody is ahead");
    assert_eq!(lock.participants().expect("answers").len(), 1);
    drop(guard);
    let left = raw.children("/mutex/foreign").expect("there");
    assert_eq!(left.len(), strangers.len());
}

#[test]
fn a_deleted_folder_is_made_anew() {
    let (one, two) = (client(), client());
    let (held, lock) = (
        mutex(&one, "/mutex/gone/deep"),
        mutex(&two, "/mutex/gone/deep"),
    );
    let guard = held.lock().expect("free");
    let token = guard.fencing_token().expect("held");
    let mut raw = raw(server());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().expect("its turn").fencing_token());
        wait_for_children(server(), "/mutex/gone/deep", 2);
        // The waiter's node first: it hears of that only when the holder's goes, and then has none.
        let mut names = raw.children("/mutex/gone/deep").expect("there");
        names.sort_by_key(|name| guard.path().ends_with(name.as_str()));
        for name in names {
            let path = format!("/mutex/gone/deep/{name}");
            raw.delete(&path).expect("there");
        }
        // Fails when it has queued again already.
        let _ = raw.delete("/mutex/gone/deep");
        let later = waiter.join().expect("no panic").expect("held");
        assert!(later > token, "{later} after {token}");
    });
    assert!(guard.unlock().expect_err("removed").is_lock_lost());
}

#[test]
fn a_panic_releases() {
    let client = client();
    let lock = mutex(&client, "/mutex/panic");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _guard = lock.lock().expect("free");
            // Not a panic that a hook would print.
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        thread.join().expect_err("on purpose");
    });
    assert!(lock.try_lock().expect("answers").is_some());
}

#[test]
fn bad_input_is_told_before_anything_is_sent() {
    let client = client();
    for path in [
        "",
        "a",
        "/",
        "/a//b",
        "/a/",
        "/a/../b",
        "/a\u{1}",
        "/zookeeper/x",
    ] {
        let error = Mutex::new(&client, path).expect_err(path);
        assert!(error.is_invalid(), "{path:?}: {error}");
    }
    let lock = mutex(&client, "/mutex/bad");
    for size in [1 << 20, 2 << 20, (1 << 20) - 100] {
        let options = AcquireOptions::new().data(vec![0; size]);
        let error = lock.lock_with(options).expect_err("too much");
        assert!(error.is_invalid(), "{size}: {error}");
    }
    let most = AcquireOptions::new().data(vec![0; (1 << 20) - 5000]);
    drop(lock.lock_with(most).expect("just fits"));
}

#[test]
fn an_ephemeral_folder_is_told() {
    let client = client();
    let mut raw = raw(server());
    raw.create("/ephemeral-folder", b"", Flags::Ephemeral)
        .expect("open to all");
    for path in ["/ephemeral-folder", "/ephemeral-folder/below"] {
        let error = mutex(&client, path)
            .lock()
            .expect_err("cannot have children");
        assert!(error.to_string().contains("ephemeral"), "{error}");
    }
}

#[test]
fn tokens_rise_also_over_a_new_folder() {
    let client = client();
    let lock = mutex(&client, "/mutex/token");
    let mut last = None;
    for round in 0..3 {
        for _ in 0..3 {
            let guard = lock.lock().expect("free");
            let token = guard.fencing_token().expect("held");
            assert!(last < Some(token), "{last:?}, {token}");
            last = Some(token);
        }
        if round == 1 {
            raw(server()).delete("/mutex/token").expect("empty");
        }
    }
}

#[test]
fn a_guard_says_how_it_stands() {
    let client = client();
    let lock = mutex(&client, "/mutex/state");
    let guard = lock.lock().expect("free");
    assert_eq!(guard.state(), LockState::Held);
    assert!(guard.lost().is_empty());
    client.close();
    assert_eq!(guard.state(), LockState::Lost);
    assert!(guard.lost().recv().is_ok());
    // And it stays ready.
    assert!(guard.lost().recv().is_err());
    assert!(guard.unlock().is_err());
    assert!(lock.lock().expect_err("closed").is_closed());
    assert!(lock.try_lock().expect_err("closed").is_closed());
}

/// Nothing of theirs stands in a line but the server's own: were only some calls in flight at a time,
/// as once four were, most would not get their turn within the limit.
#[test]
fn many_timed_tries_at_once_take_the_time_of_one() {
    const TRIES: usize = 256;
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let locks: Vec<_> = (0..TRIES)
        .map(|number| mutex(&client, &format!("/mutex/many/{number}")))
        .collect();
    // The folders are there, as after any first use.
    for lock in &locks {
        drop(lock.lock().expect("healthy"));
    }
    proxy.delay(Duration::from_millis(20));
    let together = Barrier::new(TRIES);
    let got = thread::scope(|scope| {
        let tries: Vec<_> = locks
            .iter()
            .map(|lock| {
                scope.spawn(|| {
                    together.wait();
                    let limit = Duration::from_secs(2);
                    lock.try_lock_for(limit).expect("healthy").is_some()
                })
            })
            .collect();
        let ended = tries.into_iter().map(|one| one.join().expect("no panic"));
        ended.filter(|got| *got).count()
    });
    assert_eq!(got, TRIES);
}

/// With options a deadline is an error, which says what a person would ask next.
#[test]
fn a_deadline_says_after_how_long_and_behind_whom() {
    let path = "/mutex/behind";
    let holder = client();
    let guard = mutex(&holder, path).lock().expect("free");
    let lock = mutex(&client(), path);
    let options = AcquireOptions::new().timeout(Duration::from_millis(500));
    let error = lock.lock_with(options.clone()).expect_err("taken");
    assert!(error.is_timeout(), "{error}");
    let text = error.to_string();
    let pid = std::process::id();
    let thread = thread::current();
    let thread = thread.name().expect("a test has one");
    for part in [
        "the deadline passed after ",
        "s: /mutex/behind, behind ",
        &format!("process {pid} on "),
        &format!("(thread {thread})"),
    ] {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
    drop(guard);
    // Of somebody with data of its own, no more than the node's name.
    let secret = Mutex::builder(&holder, path).data("a secret").build();
    let guard = secret.expect("good").lock().expect("free");
    let error = lock.lock_with(options).expect_err("taken");
    let (_, name) = guard.path().rsplit_once('/').expect("a path");
    assert!(error.to_string().contains(name), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}
