//! One mutex for both.

use std::sync::mpsc::channel;
use std::thread;

use testbed::{Kazoo, wait_until};
use zklock::{Client, Dialect, Mutex};

use super::{SECTION, SHORT, kazoo};
use crate::fixtures::{SOON, children, client, mutex, server, wait_for_children};
use crate::history::{History, OURS, assert_disjoint, count, turns};

const ROUNDS: usize = 40;
const THREADS: usize = 2;

/// Makes a lock of kazoo's, and gives it that name.
fn make(kazoo: &mut Kazoo, name: &str, path: &str) {
    assert_eq!(kazoo.say(&format!("lock {name} {path}")), "ok");
}

fn in_kazoos_dialect(client: &Client, path: &str) -> Mutex {
    Mutex::builder(client, path)
        .dialect(Dialect::Kazoo)
        .build()
        .expect("a good path")
}

#[test]
fn we_wait_for_kazoo() {
    let path = "/kazoo/holds";
    let (mut kazoo, client) = (kazoo(), client());
    let lock = in_kazoos_dialect(&client, path);
    make(&mut kazoo, "k", path);
    assert_eq!(kazoo.say("acquire k"), "ok");
    let kazoos = children(server(), path);
    assert!(lock.try_lock().expect("answers").is_none());
    assert!(lock.try_lock_for(SHORT).expect("answers").is_none());
    wait_until("our node is gone", SOON, || {
        children(server(), path) == kazoos
    });
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.try_lock_for(SOON).expect("answers");
            guard.is_some_and(|guard| guard.is_held())
        });
        wait_for_children(server(), path, 2);
        assert!(!waiter.is_finished());
        assert_eq!(kazoo.say("release k"), "ok");
        assert!(waiter.join().expect("no panic"), "its turn");
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn kazoo_waits_for_us() {
    let path = "/kazoo/waits";
    let (mut kazoo, client) = (kazoo(), client());
    let lock = in_kazoos_dialect(&client, path);
    let guard = lock.lock().expect("free");
    make(&mut kazoo, "k", path);
    assert_eq!(kazoo.say("try k"), "no");
    let timed = format!("acquire-for k {}", SHORT.as_secs_f64());
    assert_eq!(kazoo.say(&timed), "timeout");
    wait_for_children(server(), path, 1);
    assert_eq!(kazoo.say("begin k"), "ok");
    wait_for_children(server(), path, 2);
    assert_eq!(kazoo.say("begun? k"), "no");
    drop(guard);
    assert_eq!(kazoo.say("finish k"), "ok");
    assert_eq!(kazoo.say("begun? k"), "yes");
    assert!(lock.try_lock().expect("answers").is_none());
    assert_eq!(kazoo.say("release k"), "ok");
    assert!(lock.try_lock().expect("answers").is_some());
}

#[test]
fn we_and_kazoo_are_served_in_the_order_of_arrival() {
    let path = "/kazoo/order";
    let (mut kazoo, clients) = (kazoo(), [client(), client()]);
    let [first, third] = clients
        .each_ref()
        .map(|client| in_kazoos_dialect(client, path));
    make(&mut kazoo, "second", path);
    make(&mut kazoo, "fourth", path);
    let (tell_held, held) = channel();
    let (tell_release, release) = channel::<()>();
    // Moved in, so that a failed assertion drops what the third waits for.
    let first = &first;
    thread::scope(move |scope| {
        let guard = first.lock().expect("free");
        assert_eq!(kazoo.say("begin second"), "ok");
        wait_for_children(server(), path, 2);
        scope.spawn(move || {
            let guard = third.try_lock_for(SOON).expect("answers");
            tell_held.send(guard.is_some()).expect("waited for");
            // Told by an end of the channel.
            let _ = release.recv();
        });
        wait_for_children(server(), path, 3);
        assert_eq!(kazoo.say("begin fourth"), "ok");
        wait_for_children(server(), path, 4);
        drop(guard);
        assert_eq!(kazoo.say("finish second"), "ok");
        assert!(held.try_recv().is_err(), "the third is not first");
        assert_eq!(kazoo.say("begun? fourth"), "no");
        assert_eq!(kazoo.say("release second"), "ok");
        assert_eq!(held.recv_timeout(SOON), Ok(true), "the third's turn");
        assert_eq!(kazoo.say("begun? fourth"), "no");
        drop(tell_release);
        assert_eq!(kazoo.say("finish fourth"), "ok");
        assert_eq!(kazoo.say("release fourth"), "ok");
    });
    wait_for_children(server(), path, 0);
}

/// As kazoo's `run`.
fn run(lock: &Mutex, history: &History) {
    for _ in 0..ROUNDS {
        // Bounded, because a kazoo that failed may hold it still.
        let guard = lock.try_lock_for(SOON).expect("answers");
        let _guard = guard.expect("its turn");
        history.record(SECTION, "1");
    }
}

#[test]
fn our_sections_and_kazoos_are_disjoint() {
    let path = "/kazoo/history";
    let history = History::new();
    let (mut kazoo, clients) = (kazoo(), [client(), client()]);
    let [lock, blocker] = clients
        .each_ref()
        .map(|client| in_kazoos_dialect(client, path));
    make(&mut kazoo, "k", path);
    // Held until both sides stand in the queue: otherwise one could be done before the other began.
    let guard = blocker.lock().expect("free");
    thread::scope(|scope| {
        kazoo.command(&format!("run k {ROUNDS} {}", history.path().display()));
        for _ in 0..THREADS {
            scope.spawn(|| run(&lock, &history));
        }
        // Our threads queue with one node.
        wait_for_children(server(), path, 3);
        drop(guard);
        assert_eq!(kazoo.answer(), "ok");
    });
    let sections = history.sections();
    let done = (count(&sections, "kazoo"), count(&sections, OURS));
    assert_eq!(done, (ROUNDS, THREADS * ROUNDS));
    assert_disjoint(&sections);
    let turns = turns(&sections);
    assert!(turns > ROUNDS / 4, "they took turns {turns} times");
    wait_for_children(server(), path, 0);
}

#[test]
fn each_sees_the_others_in_the_queue() {
    let path = "/kazoo/who";
    let (mut kazoo, client) = (kazoo(), client());
    let lock = in_kazoos_dialect(&client, path);
    make(&mut kazoo, "k", path);
    let guard = lock.lock().expect("free");
    assert_eq!(kazoo.say("begin k"), "ok");
    wait_for_children(server(), path, 2);

    let [we, other] = <[_; 2]>::try_from(lock.participants().expect("answers")).expect("two");
    assert!(we.is_holder() && we.is_ours());
    assert_eq!(we.path(), guard.path());
    assert!(!other.is_holder() && !other.is_ours());
    assert_eq!(other.data(), b"kazoo");
    // It is no identity of ours, and is shown as it is.
    assert_eq!(other.identity(), None);
    assert!(other.to_string().ends_with(" waits kazoo"), "{other}");

    let ours = we.identity().expect("the default data");
    let contenders = format!(r#"["{ours}", "kazoo"]"#);
    assert_eq!(kazoo.say("contenders k"), contenders);
    drop(guard);
    assert_eq!(kazoo.say("finish k"), "ok");
    assert_eq!(kazoo.say("contenders k"), r#"["kazoo"]"#);
    assert!(lock.participants().expect("answers")[0].is_holder());
}

/// kazoo counts nodes with other names as contenders when it is told to. Our default names are
/// `_c_<uuid>-lock-<number>`, so `-lock-` is what to tell it. (`lock-` would do for nodes without
/// protection too.)
///
/// That is half of an exclusion. kazoo enters only when none of ours is ahead of it, but we know
/// nothing of kazoo's nodes and enter in front of its eyes: while it holds, and past it while it
/// waits. So the two can hold at once, whenever ours come after kazoo's. It will do for a kazoo
/// that has to see the end of what began before it, and for nothing that kazoo must do alone. The
/// lock for both is [`Dialect::Kazoo`].
///
/// The pattern is a regular expression that is looked for anywhere in the name, so kazoo also waits
/// for nodes that are no contenders of ours: `x-lock-0000000001`.
#[test]
fn kazoo_can_be_told_to_wait_for_our_default_names_but_we_do_not_wait_for_its() {
    let path = "/kazoo/extra";
    let (mut kazoo, client) = (kazoo(), client());
    let lock = mutex(&client, path);
    let guard = lock.lock().expect("free");
    assert_eq!(kazoo.say(&format!("lock k {path} -lock-")), "ok");
    assert_eq!(kazoo.say("try k"), "no");
    assert_eq!(kazoo.say("begin k"), "ok");
    wait_for_children(server(), path, 2);
    assert_eq!(kazoo.say("begun? k"), "no");
    let ours = lock.participants().expect("answers")[0]
        .identity()
        .expect("the default data");
    let contenders = format!(r#"["{ours}", "kazoo"]"#);
    assert_eq!(kazoo.say("contenders k"), contenders);
    drop(guard);
    assert_eq!(kazoo.say("finish k"), "ok");

    // The other half.
    assert!(lock.participants().expect("answers").is_empty());
    assert!(lock.try_lock().expect("answers").is_some());
    assert_eq!(kazoo.say("release k"), "ok");
}
