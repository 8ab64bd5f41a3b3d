//! The semaphore, and the mutex that is one of a single permit.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testbed::{Action, Matcher, Proxy, opcode, wait_until};
use zklock::{AcquireOptions, CancelToken, Semaphore, SemaphoreMutex, SharedCount};

use crate::fixtures::{SOON, children, client, client_at, raw, server, wait_for_children};

const SHORT: Duration = Duration::from_millis(100);

fn semaphore(client: &zklock::Client, path: &str, max: u32) -> Semaphore {
    Semaphore::new(client, path, max).expect("a good path")
}

fn wait_for_leases(path: &str, count: usize) {
    wait_for_children(server(), &format!("{path}/leases"), count);
    wait_for_children(server(), &format!("{path}/locks"), 0);
}

#[test]
fn at_most_so_many_at_once() {
    let path = "/semaphore/capacity";
    let clients = [client(), client(), client()];
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in &clients {
            let semaphore = semaphore(client, path, 3);
            for _ in 0..3 {
                let semaphore = semaphore.clone();
                let (inside, most) = (&inside, &most);
                scope.spawn(move || {
                    for _ in 0..4 {
                        let permit = semaphore.acquire().expect("its turn");
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        assert!(now <= 3, "{now} at once");
                        assert!(permit.is_held());
                        // Work that takes longer than an acquire, so that sections overlap.
                        std::thread::sleep(Duration::from_millis(20));
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        }
    });
    assert_eq!(most.into_inner(), 3, "permits are used side by side");
    wait_for_leases(path, 0);
}

#[test]
fn permits_can_be_released_by_another_thread() {
    let client = client();
    let path = "/semaphore/send";
    let semaphore = semaphore(&client, path, 1);
    let permit = semaphore.acquire().expect("free");
    assert!(semaphore.try_acquire().expect("answers").is_none());
    let elsewhere = std::thread::spawn(move || permit.release());
    elsewhere.join().expect("no panic").expect("confirmed");
    let again = semaphore.try_acquire().expect("answers");
    assert_eq!(again.expect("free").count(), 1);
    wait_for_leases(path, 0);
}

#[test]
fn many_are_all_or_none() {
    let path = "/semaphore/many";
    let clients = [client(), client()];
    let (one, two) = (
        semaphore(&clients[0], path, 4),
        semaphore(&clients[1], path, 4),
    );
    let three = one.acquire_many(3).expect("free");
    assert_eq!((three.count(), one.available().expect("answers")), (3, 1));
    assert!(two.try_acquire_many(2).expect("answers").is_none());
    let options = AcquireOptions::new().timeout(SHORT);
    let error = two.acquire_many_with(2, options).expect_err("only one");
    assert!(error.is_timeout(), "{error}");
    // None of the two that it asked for is left.
    wait_for_leases(path, 3);
    let single = two.acquire().expect("one is free");
    drop(single);
    for impossible in [one.acquire_many(5), one.acquire_many(0)] {
        assert!(impossible.expect_err("never").is_invalid());
    }
    drop(three);
    assert_eq!(two.acquire_many(4).expect("free").count(), 4);
    wait_for_leases(path, 0);
}

/// With Curator, two who each want three of four can take two each, and wait for ever.
#[test]
fn two_who_want_many_do_not_wait_for_each_other() {
    let path = "/semaphore/greedy";
    let clients = [client(), client()];
    std::thread::scope(|scope| {
        for client in &clients {
            let semaphore = semaphore(client, path, 4);
            for _ in 0..2 {
                let semaphore = semaphore.clone();
                scope.spawn(move || {
                    for _ in 0..10 {
                        assert!(semaphore.acquire_many(3).expect("its turn").is_held());
                    }
                });
            }
        }
    });
    wait_for_leases(path, 0);
}

/// Who asks for many is not overtaken for ever by those who ask for one.
#[test]
fn many_are_served_in_order() {
    let path = "/semaphore/order";
    let clients = [client(), client(), client()];
    let semaphores: Vec<_> = clients.iter().map(|c| semaphore(c, path, 2)).collect();
    let (first, second) = (semaphores[0].acquire(), semaphores[0].acquire());
    let order = Mutex::new(Vec::new());
    let done = |name| order.lock().expect("no panic").push(name);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _permit = semaphores[1].acquire_many(2).expect("its turn");
            done("many");
        });
        wait_for_children(server(), &format!("{path}/locks"), 1);
        wait_for_children(server(), &format!("{path}/leases"), 4);
        scope.spawn(|| {
            let _permit = semaphores[2].acquire().expect("its turn");
            done("one");
        });
        wait_for_children(server(), &format!("{path}/locks"), 2);
        drop(first.expect("free"));
        // One is free, and the second in the queue wants one; but it is not first.
        wait_for_children(server(), &format!("{path}/leases"), 3);
        assert!(order.lock().expect("no panic").is_empty());
        drop(second.expect("free"));
    });
    assert_eq!(*order.lock().expect("no panic"), ["many", "one"]);
    wait_for_leases(path, 0);
}

#[test]
fn a_busy_try_writes_nothing() {
    let (holder, other) = (client(), client());
    let path = "/semaphore/busy";
    let _permit = semaphore(&holder, path, 1).acquire().expect("free");
    let proxy = Proxy::start(server().addr());
    let counted = client_at(&proxy.connect_string());
    let semaphore = semaphore(&counted, path, 1);
    for _ in 0..10 {
        assert!(semaphore.try_acquire().expect("answers").is_none());
        let zero = semaphore.try_acquire_for(Duration::ZERO);
        assert!(zero.expect("answers").is_none());
    }
    let seen = proxy.counters();
    assert_eq!(
        seen.requested(opcode::CREATE) + seen.requested(opcode::DELETE),
        0
    );
    drop(other);
}

/// Wherever it waits, for the lock in front or for a permit, a wait ends and leaves nothing.
#[test]
fn waits_end_and_leave_nothing() {
    let path = "/semaphore/timed";
    let clients = [client(), client(), client()];
    let semaphores: Vec<_> = clients.iter().map(|c| semaphore(c, path, 1)).collect();
    let permit = semaphores[0].acquire().expect("free");
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = semaphores[1..]
            .iter()
            .chain(&semaphores[1..])
            .map(|semaphore| {
                let options = AcquireOptions::new().cancel(&token);
                scope.spawn(|| semaphore.acquire_with(options).map(drop))
            })
            .collect();
        wait_for_children(server(), &format!("{path}/locks"), 2);
        wait_for_children(server(), &format!("{path}/leases"), 2);
        let late = semaphores[1].try_acquire_for(SHORT).expect("answers");
        assert!(late.is_none());
        token.cancel();
        for waiter in waiters {
            let error = waiter.join().expect("no panic").expect_err("cancelled");
            assert!(error.is_cancelled(), "{error}");
        }
    });
    wait_for_leases(path, 1);
    drop(permit);
    wait_for_leases(path, 0);
}

/// A lease whose create was not answered stayed for ever with Curator (CURATOR-462). In a folder that
/// is known, both are created in one transaction, and else each by itself.
#[test]
fn a_lost_create_reply_leaves_no_lease() {
    for (action, known, path) in [
        (Action::Reset, true, "/semaphore/lost-reset"),
        (Action::Reset, false, "/semaphore/lost-reset-each"),
        (Action::BlackHole, true, "/semaphore/lost-hole"),
        (Action::BlackHole, false, "/semaphore/lost-hole-each"),
    ] {
        let proxy = Proxy::start(server().addr());
        let client = client_at(&proxy.connect_string());
        let before = semaphore(&client, path, 2);
        drop(before.acquire().expect("free"));
        let (semaphore, opcode) = if known {
            (before, opcode::MULTI)
        } else {
            (semaphore(&client, path, 2), opcode::CREATE)
        };
        let create = Matcher::next(opcode).with_path_containing("/leases/");
        let trap = proxy.on_reply(create, action);
        let permit = semaphore.acquire_many(2).expect("found again");
        trap.wait_until_sprung(SOON);
        wait_for_leases(path, 2);
        drop(permit);
        wait_for_leases(path, 0);
    }
}

/// Of three leases the first stands when the connection breaks at the second, and the caller has
/// had enough: all that was created must go.
#[test]
fn leases_that_were_created_before_a_break_are_not_forgotten() {
    let path = "/semaphore/break";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    // The folder is there; the one below does not know that, and creates each by itself.
    drop(semaphore(&client, path, 3).acquire().expect("free"));
    let semaphore = semaphore(&client, path, 3);
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let nth = |n| Matcher::nth(opcode::CREATE, n).with_path_containing("/leases/");
        let trap = proxy.on_request(nth(2), Action::Reset);
        // On the next connection the second create is held back, and cancelled.
        let hold = proxy.hold_request(nth(3));
        let options = AcquireOptions::new().cancel(&token);
        let waits = scope.spawn(|| semaphore.acquire_many_with(3, options).map(drop));
        trap.wait_until_sprung(SOON);
        hold.wait_until_held(SOON);
        token.cancel();
        let error = waits.join().expect("no panic").expect_err("cancelled");
        assert!(error.is_cancelled(), "{error}");
        hold.release();
    });
    wait_for_leases(path, 0);
}

/// The session is lost while the first of those who wait counts: another process counts then, and
/// the two must not wait for each other's leases.
#[test]
fn a_waiter_that_loses_its_session_queues_anew() {
    let path = "/semaphore/session";
    let (holder, third) = (client(), client());
    let permit = semaphore(&holder, path, 1).acquire().expect("free");
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let (victim, other) = (semaphore(&client, path, 1), semaphore(&third, path, 1));
    std::thread::scope(|scope| {
        let counts = scope.spawn(|| victim.acquire().expect("its turn").is_held());
        wait_for_children(server(), &format!("{path}/leases"), 2);
        let waits = scope.spawn(|| other.acquire().expect("its turn").is_held());
        wait_for_children(server(), &format!("{path}/locks"), 2);
        proxy.refuse();
        proxy.reset_all();
        // The server has expired it, and the other counts.
        wait_for_children(server(), &format!("{path}/locks"), 1);
        wait_for_children(server(), &format!("{path}/leases"), 2);
        proxy.accept();
        wait_for_children(server(), &format!("{path}/locks"), 2);
        drop(permit);
        assert!(counts.join().expect("no panic") && waits.join().expect("no panic"));
    });
    wait_for_leases(path, 0);
}

#[test]
fn a_lost_session_is_told_to_the_holder_of_a_permit() {
    let path = "/semaphore/told";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let permit = semaphore(&client, path, 2).acquire_many(2).expect("free");
    proxy.refuse();
    proxy.reset_all();
    assert!(permit.lost().recv_timeout(SOON).is_ok());
    proxy.accept();
    assert!(permit.release().expect_err("lost").is_lock_lost());
    wait_for_leases(path, 0);
}

/// Curator counts by whatever each process was told; kazoo refuses. So do we, and say who said what.
#[test]
fn processes_that_disagree_on_the_maximum_are_told() {
    let path = "/semaphore/disagree";
    let clients = [client(), client()];
    let permit = semaphore(&clients[0], path, 3).acquire().expect("free");
    let other = semaphore(&clients[1], path, 5);
    for error in [
        other.acquire().expect_err("3 is not 5"),
        other.try_acquire().expect_err("3 is not 5"),
        other.max().expect_err("3 is not 5"),
    ] {
        assert!(error.is_invalid(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(path) && text.contains('3') && text.contains('5'),
            "{text}"
        );
    }
    assert_eq!(raw(server()).data(path).expect("there"), b"+3");
    drop(permit);
    // Curator leaves the node empty, and a stranger's data is not about us.
    for (said, path) in [("", "/semaphore/empty"), ("10.0.0.1", "/semaphore/foreign")] {
        let flags = testbed::raw::Flags::Persistent;
        let mut raw = raw(server());
        raw.create(path, said.as_bytes(), flags)
            .expect("open to all");
        drop(semaphore(&clients[0], path, 3).acquire().expect("free"));
        let expected = if said.is_empty() { "+3" } else { said };
        assert_eq!(raw.data(path).expect("there"), expected.as_bytes());
    }
}

#[test]
fn a_shared_maximum_can_be_changed_while_others_wait() {
    let path = "/semaphore/shared";
    let clients = [client(), client()];
    let count = SharedCount::new(&clients[0], "/semaphore/shared-max", 1).expect("good");
    let build = |client| {
        let builder = Semaphore::builder(client, path).shared_max(&count);
        builder.build().expect("good")
    };
    let (one, two) = (build(&clients[0]), build(&clients[1]));
    let first = one.acquire().expect("free");
    assert_eq!(two.max().expect("answers"), 1);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| two.acquire().expect("room was made"));
        wait_for_children(server(), &format!("{path}/leases"), 2);
        assert!(!second.is_finished());
        assert!(count.compare_and_set(1, 2).expect("answers"));
        let second = second.join().expect("no panic");
        // Lowered again: those who hold keep what they have, and nobody comes in.
        assert!(!count.compare_and_set(1, 3).expect("answers"));
        count.set(1).expect("answers");
        assert_eq!(count.get().expect("answers"), 1);
        wait_until("the others know", SOON, || two.max().expect("answers") == 1);
        drop(first);
        assert!(two.try_acquire().expect("answers").is_none());
        drop(second);
    });
    assert!(two.try_acquire().expect("answers").is_some());
    let error = two.acquire_many(2).expect_err("one at the most");
    assert!(error.is_invalid(), "{error}");
    assert_eq!(
        raw(server()).data("/semaphore/shared-max").expect("there"),
        [0, 0, 0, 1]
    );
}

#[test]
fn a_count_of_other_bytes_is_told() {
    let client = client();
    let path = "/semaphore/not-a-count";
    let flags = testbed::raw::Flags::Persistent;
    raw(server())
        .create(path, b"ten", flags)
        .expect("open to all");
    let count = SharedCount::new(&client, path, 1).expect("good");
    let error = count.get().expect_err("three bytes");
    assert!(
        error.is_invalid() && error.to_string().contains(path),
        "{error}"
    );
}

#[test]
fn holders_and_waiters_are_shown() {
    let path = "/semaphore/who";
    let clients = [client(), client()];
    let semaphores: Vec<_> = clients.iter().map(|c| semaphore(c, path, 1)).collect();
    let permit = semaphores[0].acquire().expect("free");
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let options = AcquireOptions::new().cancel(&token);
        scope.spawn(|| semaphores[1].acquire_with(options).map(drop));
        wait_for_children(server(), &format!("{path}/leases"), 2);
        let who = semaphores[0].participants().expect("answers");
        let holders: Vec<_> = who.iter().filter(|one| one.is_holder()).collect();
        assert_eq!(holders.len(), 1);
        assert_eq!(holders[0].path(), permit.path());
        assert_eq!(who.len(), 3, "the waiter's lease, and its place in front");
        token.cancel();
    });
}

/// Only the lock in front is kept, so an acquire costs a create, a list and a delete.
#[test]
fn a_lingering_lock_in_front_saves_two_writes() {
    let path = "/semaphore/linger";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let builder = Semaphore::builder(&client, path).max(4).linger(SOON);
    let semaphore = builder.build().expect("good");
    drop(semaphore.acquire().expect("free"));
    drop(semaphore.acquire().expect("free"));
    let before = proxy.counters();
    for _ in 0..10 {
        drop(semaphore.acquire().expect("free"));
    }
    let after = proxy.counters();
    let spent = |op| after.requested(op) - before.requested(op);
    assert_eq!(spent(opcode::CREATE), 10);
    assert_eq!(spent(opcode::DELETE), 10);
    assert_eq!(spent(opcode::GET_CHILDREN), 10);
    // Another process gets its turn at once.
    let other = crate::fixtures::client();
    let other = self::semaphore(&other, path, 4);
    assert!(other.try_acquire_for(SOON / 2).expect("answers").is_some());
}

#[test]
fn the_semaphore_mutex_is_given_from_thread_to_thread() {
    let path = "/semaphore/mutex";
    let clients = [client(), client()];
    let lock = |client| SemaphoreMutex::new(client, path).expect("good");
    let (here, there) = (lock(&clients[0]), lock(&clients[1]));
    let guard = here.lock().expect("free");
    assert!(
        here.try_lock().expect("answers").is_none(),
        "not re-entrant"
    );
    assert!(there.try_lock_for(SHORT).expect("answers").is_none());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| there.lock().expect("its turn").is_held());
        wait_for_children(server(), &format!("{path}/locks"), 1);
        std::thread::spawn(move || guard.unlock().expect("confirmed"))
            .join()
            .expect("no panic");
        assert!(waiter.join().expect("no panic"));
    });
    wait_for_leases(path, 0);
    let guard = here.lock().expect("free");
    let several = semaphore(&clients[0], path, 2);
    let error = several.acquire().expect_err("one, not two");
    assert!(error.is_invalid(), "{error}");
    drop(guard);
    assert!(children(server(), &format!("{path}/leases")).is_empty());
}
