//! Permits for both: Curator's `InterProcessSemaphoreV2`, with a fixed maximum and with a shared one.

use std::thread;
use std::time::Duration;

use testbed::Curator;
use zklock::{AcquireOptions, Client, Permit, Semaphore, SharedCount};

use super::{CURATORS, curator, tries};
use crate::fixtures::{SOON, client, server, wait_for_children};
use crate::history::{History, OURS, count, most_at_once};

const ROUNDS: usize = 10;
const MAX: u32 = 3;
/// Longer than it takes to come in, so that the permits are all in use at times.
const SECTION: Duration = Duration::from_millis(20);

fn semaphore(client: &Client, path: &str, max: u32) -> Semaphore {
    Semaphore::new(client, path, max).expect("a good path")
}

/// An actor with the semaphore `s`.
fn curator_at(path: &str, max: u32) -> Curator {
    let mut curator = curator();
    curator.tell(&format!("semaphore s {path} {max}"));
    curator
}

/// Bounded, because a Curator that failed may hold it still.
#[track_caller]
fn acquire_in_time(semaphore: &Semaphore, permits: u32) -> Permit {
    let options = AcquireOptions::new().timeout(SOON);
    let acquired = semaphore.acquire_many_with(permits, options);
    acquired.expect("its turn")
}

fn leases(path: &str) -> String {
    format!("{path}/leases")
}

#[track_caller]
fn wait_until_free(path: &str) {
    wait_for_children(server(), &leases(path), 0);
    wait_for_children(server(), &format!("{path}/locks"), 0);
}

#[test]
fn permits_are_counted_over_both() {
    let path = "/curator/semaphore/count";
    let (mut curator, client) = (curator_at(path, MAX), client());
    let semaphore = semaphore(&client, path, MAX);
    let first = semaphore.acquire().expect("free");
    curator.tell("acquire s 2");
    assert!(semaphore.try_acquire().expect("answers").is_none());
    assert!(!tries(&mut curator, "s"));
    drop(first);
    assert!(semaphore.try_acquire_many(2).expect("answers").is_none());
    let one = semaphore.try_acquire().expect("answers").expect("free");
    curator.tell("release s");
    let two = semaphore
        .try_acquire_many(2)
        .expect("answers")
        .expect("free");
    assert!(!tries(&mut curator, "s"));
    drop((one, two));
    assert!(tries(&mut curator, "s"));
    curator.tell("release s");
    wait_until_free(path);
}

#[test]
fn curator_waits_for_permits_of_ours() {
    let path = "/curator/semaphore/curator-waits";
    let (mut curator, client) = (curator_at(path, MAX), client());
    let semaphore = semaphore(&client, path, MAX);
    let (one, two) = (
        semaphore.acquire().expect("free"),
        semaphore.acquire_many(2).expect("free"),
    );
    curator.command("acquire s 2");
    wait_for_children(server(), &leases(path), 4);
    drop(one);
    // It has the first of its two, and stands in front for the other.
    wait_for_children(server(), &leases(path), 4);
    assert!(!curator.has_answered());
    assert!(semaphore.try_acquire().expect("answers").is_none());
    drop(two);
    curator.done();
    assert!(semaphore.try_acquire_many(2).expect("answers").is_none());
    assert!(semaphore.try_acquire().expect("answers").is_some());
    curator.tell("release s");
    wait_until_free(path);
}

#[test]
fn we_wait_for_permits_of_curators() {
    let path = "/curator/semaphore/we-wait";
    let (mut curator, client) = (curator_at(path, MAX), client());
    let mut other = curator.thread();
    let semaphore = semaphore(&client, path, MAX);
    curator.tell("acquire s 2");
    other.tell("acquire s");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| acquire_in_time(&semaphore, 2).is_held());
        wait_for_children(server(), &leases(path), 5);
        // One is free now, and we want two.
        other.tell("release s");
        wait_for_children(server(), &leases(path), 4);
        assert!(!waiter.is_finished());
        curator.tell("release s");
        assert!(waiter.join().expect("no panic"), "its turn");
    });
    wait_until_free(path);
}

/// Each goes by the count, whoever changes it, also while it waits.
#[test]
fn the_maximum_is_a_count_that_both_share() {
    let path = "/curator/semaphore/shared";
    let (mut curator, client) = (curator(), client());
    let count = SharedCount::new(&client, "/curator/semaphore/shared-count", 1).expect("good");
    assert_eq!(count.get().expect("answers"), 1);
    let semaphore = Semaphore::builder(&client, path).shared_max(&count).build();
    let semaphore = semaphore.expect("good");
    curator.tell("count c /curator/semaphore/shared-count");
    assert_eq!(curator.say("get c"), "1");
    curator.tell(&format!("counted s {path} c"));
    let mut other = curator.thread();

    let first = semaphore.acquire().expect("free");
    curator.command("acquire s");
    wait_for_children(server(), &leases(path), 2);
    assert!(!curator.has_answered());
    count.set(2).expect("answers");
    curator.done();

    assert!(semaphore.try_acquire().expect("answers").is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.try_acquire_for(SOON).expect("answers"));
        wait_for_children(server(), &leases(path), 3);
        assert!(!waiter.is_finished());
        other.tell("set c 3");
        assert!(waiter.join().expect("no panic").is_some());
    });
    assert_eq!(count.get().expect("answers"), 3);
    drop(first);
    curator.tell("release s");
    wait_until_free(path);
}

/// On both sides one wants one permit at a time, and another two.
#[test]
fn never_more_than_the_maximum_are_inside_over_both() {
    let path = "/curator/semaphore/history";
    let history = History::new();
    let (mut one, clients) = (curator_at(path, MAX), [client(), client()]);
    let mut two = one.thread();
    let [shared, blocker] = clients
        .each_ref()
        .map(|client| semaphore(client, path, MAX));
    // Held until both sides stand in the queue: otherwise one could be done before the other began.
    let all = blocker.acquire_many(MAX).expect("free");
    thread::scope(|scope| {
        for (curator, permits) in [(&mut one, 1), (&mut two, 2)] {
            let (millis, history) = (SECTION.as_millis(), history.path().display());
            curator.command(&format!("run s {ROUNDS} {millis} {permits} {history}"));
        }
        for permits in [1, 2] {
            let (shared, history) = (&shared, &history);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let _gotten = acquire_in_time(shared, permits);
                    history.record(SECTION, &permits.to_string());
                }
            });
        }
        // Curator has a node for each thread, we have one for all.
        wait_for_children(server(), &format!("{path}/locks"), 3);
        drop(all);
        one.done();
        two.done();
    });
    let sections = history.sections();
    let done = (count(&sections, CURATORS), count(&sections, OURS));
    assert_eq!(done, (2 * ROUNDS, 2 * ROUNDS));
    assert_eq!(most_at_once(&sections), i64::from(MAX));
    wait_until_free(path);
}
