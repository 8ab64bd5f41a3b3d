//! Several locks as one, on both sides: Curator's `InterProcessMultiLock`. It takes them in the order
//! in which they are given, and so is given them in ours, by path.

use std::thread;

use testbed::Curator;
use zklock::{Client, MultiLock, Mutex, RwLock, SemaphoreMutex};

use super::{CURATORS, SECTION, curator, tries};
use crate::fixtures::{SOON, client, server, wait_for_children};
use crate::history::{History, OURS, assert_disjoint, count, turns};

const ROUNDS: usize = 15;
const THREADS: usize = 2;

struct Parts {
    mutex: Mutex,
    semaphore: SemaphoreMutex,
    rw: RwLock,
}

impl Parts {
    fn at(client: &Client, path: &str) -> Self {
        Self {
            mutex: Mutex::new(client, &format!("{path}/a")).expect("good"),
            semaphore: SemaphoreMutex::new(client, &format!("{path}/b")).expect("good"),
            rw: RwLock::new(client, &format!("{path}/c")).expect("good"),
        }
    }

    fn all(&self) -> MultiLock {
        MultiLock::builder()
            .with(&self.mutex)
            .with(&self.semaphore)
            .with(self.rw.write_side())
            .build()
            .expect("different paths")
    }
}

/// An actor with the same parts, `a`, `b` and `c.write`, and `all` of them.
fn curator_at(path: &str) -> Curator {
    let mut curator = curator();
    curator.tell(&format!("mutex a {path}/a"));
    curator.tell(&format!("semaphore-mutex b {path}/b"));
    curator.tell(&format!("rw c {path}/c"));
    curator.tell("multi all a b c.write");
    curator
}

#[track_caller]
fn wait_until_free(path: &str) {
    for folder in ["a", "b/locks", "b/leases", "c"] {
        wait_for_children(server(), &format!("{path}/{folder}"), 0);
    }
}

#[test]
fn all_of_ours_keep_each_of_curators_out_and_the_other_way_round() {
    let path = "/curator/multi/both";
    let (mut curator, client) = (curator_at(path), client());
    let parts = Parts::at(&client, path);
    let all = parts.all();
    let guard = all.lock().expect("free");
    for name in ["all", "a", "b", "c.read"] {
        assert!(!tries(&mut curator, name), "{name}");
    }
    drop(guard);
    curator.tell("acquire all");
    assert!(all.try_lock().expect("answers").is_none());
    assert!(parts.mutex.try_lock().expect("answers").is_none());
    assert!(parts.semaphore.try_lock().expect("answers").is_none());
    assert!(parts.rw.try_read().expect("answers").is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| all.try_lock_for(SOON).expect("answers").is_some());
        wait_for_children(server(), &format!("{path}/a"), 2);
        assert!(!waiter.is_finished());
        curator.tell("release all");
        assert!(waiter.join().expect("no panic"), "its turn");
    });
    // One that is busy keeps all out, and leaves none of the others taken.
    curator.tell("acquire c.read");
    assert!(all.try_lock().expect("answers").is_none());
    wait_for_children(server(), &format!("{path}/a"), 0);
    curator.tell("release c.read");
    wait_until_free(path);
}

#[test]
fn our_sections_and_curators_are_disjoint() {
    let path = "/curator/multi/history";
    let history = History::new();
    let (mut curator, clients) = (curator_at(path), [client(), client()]);
    let [ours, blocker] = clients.each_ref().map(|client| Parts::at(client, path));
    let all = ours.all();
    // Held until both sides stand in the queue: otherwise one could be done before the other began.
    let guard = blocker.mutex.lock().expect("free");
    thread::scope(|scope| {
        let history_path = history.path().display();
        curator.command(&format!("run all {ROUNDS} 1 alone {history_path}"));
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let guard = all.try_lock_for(SOON).expect("answers");
                    let _guard = guard.expect("its turn");
                    history.record(SECTION, "alone");
                }
            });
        }
        // Our threads queue with one node.
        wait_for_children(server(), &format!("{path}/a"), 3);
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
