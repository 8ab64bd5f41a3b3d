//! Curator's `InterProcessSemaphoreMutex`, which belongs to no thread.

use std::thread;

use zklock::{Client, SemaphoreMutex};

use super::{CURATORS, SECTION, curator, tries};
use crate::fixtures::{SOON, client, mutex, server, wait_for_children};
use crate::history::{History, OURS, assert_disjoint, count, turns};

const ROUNDS: usize = 20;
const THREADS: usize = 2;

fn lock_at(client: &Client, path: &str) -> SemaphoreMutex {
    SemaphoreMutex::new(client, path).expect("a good path")
}

#[track_caller]
fn wait_until_free(path: &str) {
    for folder in ["locks", "leases"] {
        wait_for_children(server(), &format!("{path}/{folder}"), 0);
    }
}

#[test]
fn each_waits_for_the_other_whichever_thread_gives_it_back() {
    let path = "/curator/semaphore-mutex/both";
    let (mut curator, client) = (curator(), client());
    let lock = lock_at(&client, path);
    curator.tell(&format!("semaphore-mutex s {path}"));
    let mut other = curator.thread();
    let leases = format!("{path}/leases");

    let guard = lock.lock().expect("free");
    assert!(!tries(&mut curator, "s"));
    curator.command("acquire s");
    wait_for_children(server(), &leases, 2);
    assert!(!curator.has_answered());
    thread::scope(|scope| {
        scope.spawn(move || drop(guard));
    });
    curator.done();

    assert!(lock.try_lock().expect("answers").is_none());
    // Not re-entrant.
    assert!(!tries(&mut curator, "s"));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(SOON).expect("answers").is_some());
        wait_for_children(server(), &leases, 2);
        assert!(!waiter.is_finished());
        // By another thread than the one that took it.
        other.tell("release s");
        assert!(waiter.join().expect("no panic"), "its turn");
    });
    wait_until_free(path);
}

/// They stand in different folders, in Curator as here.
#[test]
fn it_does_not_exclude_the_mutex_of_the_same_path() {
    let path = "/curator/semaphore-mutex/beside";
    let (mut curator, client) = (curator(), client());
    let (lock, mutex) = (lock_at(&client, path), mutex(&client, path));
    curator.tell(&format!("mutex m {path}"));
    let guard = lock.lock().expect("free");
    assert!(tries(&mut curator, "m"));
    assert!(mutex.try_lock().expect("answers").is_none());
    drop(guard);
    curator.tell("release m");
}

#[test]
fn our_sections_and_curators_are_disjoint() {
    let path = "/curator/semaphore-mutex/history";
    let history = History::new();
    let (mut curator, clients) = (curator(), [client(), client()]);
    let [lock, blocker] = clients.each_ref().map(|client| lock_at(client, path));
    curator.tell(&format!("semaphore-mutex s {path}"));
    // Held until both sides stand in the queue: otherwise one could be done before the other began.
    let guard = blocker.lock().expect("free");
    thread::scope(|scope| {
        let history_path = history.path().display();
        curator.command(&format!("run s {ROUNDS} 1 alone {history_path}"));
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let guard = lock.try_lock_for(SOON).expect("answers");
                    let _guard = guard.expect("its turn");
                    history.record(SECTION, "alone");
                }
            });
        }
        // The first of them has a lease already; the other stands behind it, in front of the door.
        wait_for_children(server(), &format!("{path}/locks"), 2);
        drop(guard);
        curator.done();
    });
    let sections = history.sections();
    let done = (count(&sections, CURATORS), count(&sections, OURS));
    assert_eq!(done, (ROUNDS, THREADS * ROUNDS));
    assert_disjoint(&sections);
    let turns = turns(&sections);
    assert!(turns > ROUNDS / 4, "they took turns {turns} times");
    wait_until_free(path);
}
