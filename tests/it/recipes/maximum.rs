//! How many permits there are: agreed on, changed, shared, and zero.

use std::time::Duration;

use testbed::raw::Flags;
use testbed::{Action, Matcher, Proxy, opcode, wait_until};
use zklock::{
    AcquireOptions, Client, ConnectionEvent, Dialect, Permit, RetryPolicy, Semaphore,
    SemaphoreMutex, SharedCount,
};

use crate::fixtures::{SOON, builder, client, client_at, raw, server, wait_for_children};

const SHORT: Duration = Duration::from_millis(100);

fn semaphore(client: &Client, path: &str, max: u32) -> Semaphore {
    Semaphore::new(client, path, max).expect("a good path")
}

fn shared(client: &Client, path: &str, count: &SharedCount) -> Semaphore {
    let builder = Semaphore::builder(client, path).shared_max(count);
    builder.build().expect("good")
}

fn acquire_soon(semaphore: &Semaphore) -> Permit {
    let acquired = semaphore.try_acquire_for(SOON).expect("answers");
    acquired.expect("its turn")
}

fn said(path: &str) -> Vec<u8> {
    raw(server()).data(path).expect("there")
}

/// A number that was agreed on once was agreed on for ever: no later version of a program could
/// ask for another, though nobody had a permit.
#[test]
fn another_maximum_is_taken_once_everybody_has_gone() {
    let path = "/maximum/another";
    let clients = [client(), client()];
    let four = semaphore(&clients[0], path, 4);
    let eight = semaphore(&clients[1], path, 8);
    let permit = four.acquire().expect("free");
    let error = eight.acquire().expect_err("4 is in use");
    assert!(error.is_invalid(), "{error}");
    assert!(eight.try_acquire().expect_err("4 is in use").is_invalid());
    assert!(eight.max().expect_err("4 is in use").is_invalid());
    drop(permit);
    assert_eq!(eight.max().expect("nobody is there"), 8);
    let many = eight.acquire_many(8).expect("free");
    assert_eq!(said(path), b"+8");
    // The first one has agreed on 4 before, and looks again.
    assert!(four.acquire().expect_err("8 is in use").is_invalid());
    drop(many);
    assert_eq!(four.acquire_many(4).expect("free").count(), 4);
    assert_eq!(said(path), b"+4");
    assert!(eight.try_acquire().expect("answers").is_some());
    // The same of a mutex, which is a semaphore of one.
    let lock = SemaphoreMutex::new(&clients[0], path).expect("good");
    let guard = lock.try_lock().expect("answers").expect("free");
    assert!(eight.acquire().expect_err("1 is in use").is_invalid());
    guard.unlock().expect("confirmed");
}

#[test]
fn a_fixed_maximum_can_be_changed_while_it_is_in_use() {
    let path = "/maximum/changed";
    let clients = [client(), client()];
    let semaphore_of = |client| semaphore(client, path, 1);
    let (here, there) = (semaphore_of(&clients[0]), semaphore_of(&clients[1]));
    let first = here.acquire().expect("free");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| acquire_soon(&here));
        wait_for_children(server(), &format!("{path}/leases"), 2);
        here.set_max(2).expect("answers");
        let second = second.join().expect("no panic");
        assert_eq!(
            (here.max().expect("answers"), said(path)),
            (2, b"+2".into())
        );
        let error = there.acquire().expect_err("it was built for 1");
        assert!(error.is_invalid(), "{error}");
        here.set_max(1).expect("answers");
        assert!(there.try_acquire().expect("answers").is_none());
        assert!(first.is_held() && second.is_held());
    });
    drop(first);
    assert!(there.try_acquire().expect("answers").is_some());
    assert!(here.set_max(0).expect_err("nobody").is_invalid());
}

/// Once, whoever asked for what is free took the watch from the thread that waited by it.
#[test]
fn who_looks_at_a_shared_maximum_takes_no_wake_up_from_who_waits() {
    let path = "/maximum/looks";
    let client = client();
    let count = SharedCount::new(&client, "/maximum/looks-max", 1).expect("good");
    let semaphore = shared(&client, path, &count);
    let _first = semaphore.acquire().expect("free");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| acquire_soon(&semaphore));
        wait_for_children(server(), &format!("{path}/leases"), 2);
        for _ in 0..3 {
            assert_eq!(semaphore.available().expect("answers"), 0);
            assert_eq!(semaphore.max().expect("answers"), 1);
            assert!(semaphore.try_acquire().expect("answers").is_none());
        }
        count.set(2).expect("answers");
        assert!(second.join().expect("no panic").is_held());
    });
}

/// Zero is a pause switch: it made every acquire an error.
#[test]
fn a_shared_maximum_of_zero_pauses() {
    let path = "/maximum/zero";
    let clients = [client(), client()];
    let count = SharedCount::new(&clients[0], "/maximum/zero-max", 0).expect("good");
    let semaphore = shared(&clients[0], path, &count);
    assert_eq!(semaphore.max().expect("answers"), 0);
    assert!(semaphore.try_acquire().expect("answers").is_none());
    assert!(semaphore.try_acquire_for(SHORT).expect("answers").is_none());
    let options = AcquireOptions::new().timeout(SHORT);
    let error = semaphore.acquire_many_with(2, options).expect_err("paused");
    assert!(error.is_timeout(), "{error}");
    wait_for_children(server(), &format!("{path}/leases"), 0);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| acquire_soon(&semaphore));
        wait_for_children(server(), &format!("{path}/locks"), 1);
        let other = shared(&clients[1], path, &count);
        other.set_max(1).expect("answers");
        assert_eq!(count.get().expect("answers"), 1);
        let permit = waits.join().expect("no panic");
        // In use, paused again: who holds keeps it.
        count.set(-3).expect("answers");
        assert!(permit.is_held());
        assert_eq!(other.max().expect("answers"), 0);
    });
}

#[test]
fn many_can_be_waited_for_in_time() {
    let path = "/maximum/timed";
    let client = client();
    let semaphore = semaphore(&client, path, 3);
    let one = semaphore.acquire().expect("free");
    let late = std::time::Instant::now() + SHORT;
    for nothing in [
        semaphore.try_acquire_many_for(3, SHORT),
        semaphore.try_acquire_many_for(3, Duration::ZERO),
        semaphore.try_acquire_many_until(3, late),
    ] {
        assert!(nothing.expect("answers").is_none());
    }
    wait_for_children(server(), &format!("{path}/leases"), 1);
    drop(one);
    let all = semaphore.try_acquire_many_for(3, SOON).expect("answers");
    assert_eq!(all.expect("free").count(), 3);
    assert!(semaphore.try_acquire_many_for(0, SOON).is_err());
}

/// A count of a client with another chroot is another node, which was silently made and obeyed.
#[test]
fn a_count_below_another_chroot_is_refused() {
    let client = client();
    raw(server())
        .create("/maximum-chroot", b"", Flags::Persistent)
        .expect("open to all");
    let below = Client::connect(&format!("{}/maximum-chroot", server().connect_string()));
    let below = below.expect("a server that works");
    let count = SharedCount::new(&below, "/max", 3).expect("good");
    let builder = Semaphore::builder(&client, "/maximum/chroot").shared_max(&count);
    let error = builder.build().expect_err("another node");
    assert!(
        error.is_invalid() && error.to_string().contains("/maximum-chroot"),
        "{error}"
    );
    shared(&below, "/pool", &count);
}

/// The lock in front of a waiter is broken before it is watched, and another counts beside it: the
/// two waited for each other's leases, as nothing woke the first when it learned of its loss.
#[test]
fn a_waiter_whose_place_in_front_is_broken_queues_anew() {
    let path = "/maximum/broken";
    let clients = [client(), client(), client()];
    let semaphores: Vec<_> = clients.iter().map(|c| semaphore(c, path, 1)).collect();
    let permit = semaphores[0].acquire().expect("free");
    std::thread::scope(|scope| {
        let broken = scope.spawn(|| drop(acquire_soon(&semaphores[1])));
        let locks = format!("{path}/locks");
        wait_for_children(server(), &format!("{path}/leases"), 2);
        let mut raw = raw(server());
        let front = raw.children(&locks).expect("there").remove(0);
        raw.delete(&format!("{locks}/{front}")).expect("it stands");
        let other = scope.spawn(|| drop(acquire_soon(&semaphores[2])));
        wait_for_children(server(), &format!("{path}/leases"), 3);
        drop(permit);
        broken.join().expect("its turn");
        other.join().expect("its turn");
    });
}

/// Nothing could repair a count whose node was empty, or held something else.
#[test]
fn setting_a_count_repairs_it() {
    let client = client();
    for (bytes, path) in [(&b""[..], "/maximum/empty"), (b"ten", "/maximum/foreign")] {
        raw(server())
            .create(path, bytes, Flags::Persistent)
            .expect("open to all");
        let count = SharedCount::new(&client, path, 1).expect("good");
        assert!(count.get().expect_err("no number").is_invalid());
        assert!(count.add(1).expect_err("no number").is_invalid());
        count.set(10).expect("answers");
        assert_eq!(count.get().expect("a number"), 10);
    }
}

#[test]
fn a_count_is_added_to_by_many_at_once() {
    let path = "/maximum/added";
    let clients = [client(), client()];
    std::thread::scope(|scope| {
        for client in clients.iter().chain(&clients) {
            scope.spawn(|| {
                let count = SharedCount::new(client, path, 0).expect("good");
                for _ in 0..10 {
                    count.add(2).expect("answers");
                    count.add(-1).expect("answers");
                }
            });
        }
    });
    let count = SharedCount::new(&clients[0], path, 0).expect("good");
    assert_eq!(count.add(i32::MAX - 40).expect("answers"), i32::MAX);
    assert!(count.add(1).expect_err("too much").is_invalid());
    assert_eq!(count.get().expect("answers"), i32::MAX);
}

/// Over a lost session, too, and until it is dropped.
#[test]
fn changes_of_a_count_are_told() {
    let path = "/maximum/changes";
    let proxy = Proxy::start(server().addr());
    let (client, other) = (client_at(&proxy.connect_string()), client());
    let count = SharedCount::new(&other, path, 3).expect("good");
    let seen = SharedCount::new(&client, path, 3).expect("good");
    let changes = seen.changes().expect("answers");
    assert!(changes.try_recv().is_err(), "nothing has changed");
    for number in [4, -1] {
        count.set(number).expect("answers");
        assert_eq!(changes.recv_timeout(SOON), Ok(number));
    }
    let events = client.events();
    proxy.refuse();
    proxy.reset_all();
    wait_until("a lost session", SOON, || {
        events
            .try_iter()
            .any(|event| event == ConnectionEvent::Lost)
    });
    count.set(7).expect("answers");
    proxy.accept();
    assert_eq!(changes.recv_timeout(SOON), Ok(7));
    let numbers = (*changes).clone();
    drop(changes);
    assert!(
        numbers
            .recv_timeout(SOON)
            .is_err_and(|e| e.is_disconnected())
    );
}

/// Nobody waits for the next number, and nobody would hear of an end: the channel fell silent after
/// an outage, or after refusals for now, as long as a call waits for a connection.
#[test]
fn changes_are_told_after_trouble_for_longer_than_a_call_waits() {
    let path = "/maximum/long-trouble";
    let proxy = Proxy::start(server().addr());
    let impatient = RetryPolicy::new().give_up_after(Duration::from_millis(300));
    let client = builder(&proxy.connect_string()).retry(impatient);
    let client = client.connect().expect("a server that works");
    let count = SharedCount::new(&self::client(), path, 3).expect("good");
    let seen = SharedCount::new(&client, path, 3).expect("good");
    let changes = seen.changes().expect("answers");
    proxy.refuse();
    proxy.reset_all();
    // Its own call gives up no earlier than the one behind the channel would.
    let gave_up = seen.get().expect_err("no server");
    assert!(gave_up.is_connection_loss(), "{gave_up}");
    count.set(7).expect("answers");
    proxy.accept();
    assert_eq!(changes.recv_timeout(SOON), Ok(7));
    let refused = proxy.on_request(Matcher::every(opcode::GET_DATA), Action::Refuse(-1));
    count.set(8).expect("answers");
    refused.wait_until_sprung(SOON);
    seen.get().expect_err("refused for now");
    refused.disarm();
    assert_eq!(changes.recv_timeout(SOON), Ok(8));
}

/// In kazoo's dialect leases have no number, and a lowered maximum makes nobody a waiter.
#[test]
fn holders_and_waiters_are_told_apart() {
    for (dialect, path) in [
        (Dialect::Curator, "/maximum/who-curator"),
        (Dialect::Kazoo, "/maximum/who-kazoo"),
    ] {
        let clients = [client(), client()];
        let build = |client| {
            let builder = Semaphore::builder(client, path).dialect(dialect);
            builder.max(8).build().expect("good")
        };
        let (here, there) = (build(&clients[0]), build(&clients[1]));
        let held: Vec<_> = (0..8).map(|_| here.acquire().expect("free")).collect();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| acquire_soon(&there));
            let leases = match dialect {
                Dialect::Kazoo => path.to_owned(),
                _ => format!("{path}/leases"),
            };
            wait_for_children(server(), &leases, 9);
            for semaphore in [&here, &there] {
                let who = semaphore.participants().expect("answers");
                let holders: Vec<_> = who.iter().filter(|one| one.is_holder()).collect();
                assert_eq!(holders.len(), 8);
                for holder in holders {
                    assert!(held.iter().any(|permit| permit.path() == holder.path()));
                    assert_eq!(Some(holder.session_id()), clients[0].session_id());
                    assert!(holder.created().elapsed().is_ok_and(|age| age < SOON));
                }
                let ours = who.iter().filter(|one| one.is_ours()).count();
                let is_here = std::ptr::eq(semaphore, &here);
                assert_eq!(ours, if is_here { 8 } else { 2 }, "one waits in two places");
            }
            drop(held);
            drop(waits.join().expect("no panic"));
        });
    }
}

/// Nor do they agree on anything with those who come after them.
#[test]
fn who_only_looks_writes_nothing() {
    let path = "/maximum/unwritten";
    let client = client();
    let semaphore = Semaphore::new(&client, path, 3).expect("good");
    assert_eq!(semaphore.available().expect("answers"), 3);
    assert!(semaphore.participants().expect("answers").is_empty());
    assert!(!raw(server()).exists(path).expect("answers"));
}

/// A number that somebody else keeps in the node that is a semaphore's path was taken for another
/// maximum, and overwritten with ours as soon as nobody had a permit.
#[test]
fn a_strangers_number_is_never_overwritten() {
    let path = "/maximum/stranger";
    let client = client();
    let mut raw = raw(server());
    let _ = raw.create("/maximum", b"", Flags::Persistent);
    raw.create(path, b"17", Flags::Persistent).expect("free");
    let semaphore = semaphore(&client, path, 3);
    let error = semaphore.acquire().expect_err("who says 17?");
    assert!(error.is_invalid(), "{error}");
    assert!(
        semaphore
            .try_acquire()
            .expect_err("who says 17?")
            .is_invalid()
    );
    assert_eq!(said(path), b"17");
    // A change that is asked for by name is made.
    semaphore.set_max(3).expect("answers");
    drop(semaphore.acquire().expect("free"));
    // Whatever is no number is not about the maximum, and nobody's to replace.
    let path = "/maximum/text";
    raw.create(path, b"keep", Flags::Persistent).expect("free");
    let semaphore = self::semaphore(&client, path, 3);
    drop(semaphore.acquire().expect("free"));
    let error = semaphore.set_max(4).expect_err("it would be lost");
    assert!(error.is_invalid(), "{error}");
    assert_eq!(said(path), b"keep");
}
