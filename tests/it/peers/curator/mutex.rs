//! One mutex for both: Curator's `InterProcessMutex`.

use std::sync::mpsc::channel;
use std::thread;

use testbed::wait_until;
use zklock::Mutex;

use super::{CURATORS, SECTION, SHORT, curator, tries};
use crate::fixtures::{SOON, children, client, mutex, server, wait_for_children};
use crate::history::{History, OURS, assert_disjoint, count, turns};

const ROUNDS: usize = 40;
const THREADS: usize = 2;

#[test]
fn we_wait_until_curator_has_released_as_often_as_it_acquired() {
    let path = "/curator/mutex/holds";
    let (mut curator, client) = (curator(), client());
    let lock = mutex(&client, path);
    curator.tell(&format!("mutex m {path}"));
    curator.tell("acquire m");
    curator.tell("acquire m");
    let curators = children(server(), path);
    assert_eq!(curators.len(), 1, "re-entered");
    assert!(lock.try_lock().expect("answers").is_none());
    assert!(lock.try_lock_for(SHORT).expect("answers").is_none());
    wait_until("our node is gone", SOON, || {
        children(server(), path) == curators
    });
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(SOON).expect("answers").is_some());
        wait_for_children(server(), path, 2);
        curator.tell("release m");
        assert!(lock.try_lock().expect("answers").is_none());
        assert!(!waiter.is_finished());
        curator.tell("release m");
        assert!(waiter.join().expect("no panic"), "its turn");
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn curator_waits_until_we_have_released_as_often_as_we_acquired() {
    let path = "/curator/mutex/waits";
    let (mut curator, client) = (curator(), client());
    let lock = mutex(&client, path);
    curator.tell(&format!("mutex m {path}"));
    let outer = lock.lock().expect("free");
    let inner = lock.lock().expect("re-entrant");
    assert!(!tries(&mut curator, "m"));
    wait_for_children(server(), path, 1);
    curator.command("acquire m");
    wait_for_children(server(), path, 2);
    drop(inner);
    assert!(lock.is_held_by_current_thread());
    assert!(!curator.has_answered());
    drop(outer);
    curator.done();
    assert!(lock.try_lock().expect("answers").is_none());
    curator.tell("release m");
    assert!(lock.try_lock().expect("answers").is_some());
    wait_for_children(server(), path, 0);
}

#[test]
fn we_and_curator_are_served_in_the_order_of_arrival() {
    let path = "/curator/mutex/order";
    let (mut second, clients) = (curator(), [client(), client()]);
    let [first, third] = clients.each_ref().map(|client| mutex(client, path));
    second.tell(&format!("mutex m {path}"));
    let mut fourth = second.thread();
    let (tell_held, held) = channel();
    let (tell_release, release) = channel::<()>();
    let first = &first;
    // Moved in, so that a failed assertion drops what the third waits for.
    thread::scope(move |scope| {
        let guard = first.lock().expect("free");
        second.command("acquire m");
        wait_for_children(server(), path, 2);
        scope.spawn(move || {
            let guard = third.try_lock_for(SOON).expect("answers");
            tell_held.send(guard.is_some()).expect("waited for");
            // Told by an end of the channel.
            let _ = release.recv();
        });
        wait_for_children(server(), path, 3);
        fourth.command("acquire m");
        wait_for_children(server(), path, 4);
        assert!(!second.has_answered());
        drop(guard);
        second.done();
        assert!(held.try_recv().is_err(), "the third is not first");
        let participants = first.participants().expect("answers");
        let ours: Vec<_> = participants
            .iter()
            .map(|one| one.identity().is_some())
            .collect();
        assert_eq!(ours, [false, true, false]);
        assert!(participants[0].is_holder());
        assert!(!fourth.has_answered());
        second.tell("release m");
        assert_eq!(held.recv_timeout(SOON), Ok(true), "the third's turn");
        assert!(!fourth.has_answered());
        drop(tell_release);
        fourth.done();
        fourth.tell("release m");
    });
    wait_for_children(server(), path, 0);
}

/// As Curator's `run`.
fn run(lock: &Mutex, history: &History) {
    for _ in 0..ROUNDS {
        // Bounded, because a Curator that failed may hold it still.
        let guard = lock.try_lock_for(SOON).expect("answers");
        let _guard = guard.expect("its turn");
        // A look at memory, for us as for Curator.
        let _again = lock.lock().expect("re-entrant");
        history.record(SECTION, "alone");
    }
}

#[test]
fn our_sections_and_curators_are_disjoint() {
    let path = "/curator/mutex/history";
    let history = History::new();
    let (mut curator, clients) = (curator(), [client(), client()]);
    let [lock, blocker] = clients.each_ref().map(|client| mutex(client, path));
    curator.tell(&format!("mutex m {path}"));
    let mut other = curator.thread();
    // Held until both sides stand in the queue: otherwise one could be done before the other began.
    let guard = blocker.lock().expect("free");
    let order = format!("run m {ROUNDS} 1 alone {}", history.path().display());
    thread::scope(|scope| {
        curator.command(&order);
        other.command(&order);
        for _ in 0..THREADS {
            scope.spawn(|| run(&lock, &history));
        }
        // Curator has a node for each thread, we have one for all.
        wait_for_children(server(), path, 4);
        drop(guard);
        curator.done();
        other.done();
    });
    let sections = history.sections();
    let done = (count(&sections, CURATORS), count(&sections, OURS));
    assert_eq!(done, (2 * ROUNDS, THREADS * ROUNDS));
    assert_disjoint(&sections);
    let turns = turns(&sections);
    assert!(turns > ROUNDS / 4, "they took turns {turns} times");
    wait_for_children(server(), path, 0);
}

#[test]
fn each_sees_the_others_in_the_queue() {
    let path = "/curator/mutex/who";
    let (mut curator, client) = (curator(), client());
    let lock = mutex(&client, path);
    curator.tell(&format!("mutex m {path}"));
    let guard = lock.lock().expect("free");
    curator.command("acquire m");
    wait_for_children(server(), path, 2);

    let [we, other] = <[_; 2]>::try_from(lock.participants().expect("answers")).expect("two");
    assert!(we.is_holder() && we.is_ours());
    assert!(!other.is_holder() && !other.is_ours());
    // Its address, by default.
    let data = String::from_utf8_lossy(other.data()).into_owned();
    assert!(data.parse::<std::net::IpAddr>().is_ok(), "{data:?}");
    assert_eq!(other.identity(), None);

    let mut watcher = super::curator();
    watcher.tell(&format!("mutex m {path}"));
    let expected = format!("{} {}", guard.path(), other.path());
    assert_eq!(watcher.say("participants m"), expected);
    drop(guard);
    curator.done();
    assert!(lock.participants().expect("answers")[0].is_holder());
}
