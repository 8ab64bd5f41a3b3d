//! Several processes: exclusion, capacity and order from histories, and what a fork inherits.

use std::fs;

use crate::fixtures::{server, wait_for_children};
use crate::puppet;

/// One section: what it was allowed, its token, and when it began and ended.
struct Section {
    right: String,
    token: u64,
    begun: u128,
    ended: u128,
}

fn read(history: &str) -> Vec<Section> {
    let mut sections: Vec<_> = history
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let mut next = || words.next().expect("four words");
            Section {
                right: next().to_owned(),
                token: next().parse().expect("a number"),
                begun: next().parse().expect("a number"),
                ended: next().parse().expect("a number"),
            }
        })
        .collect();
    sections.sort_by_key(|section| section.begun);
    sections
}

/// What several processes wrote, each with several threads.
fn history_of(recipe: &str, processes: usize, threads: usize, sections: usize) -> Vec<Section> {
    let path = format!("/processes/{recipe}");
    let folder = tempfile::tempdir().expect("a place for the history");
    let history = folder.path().join("history");
    fs::write(&history, "").expect("a place for the history");
    let mut puppets: Vec<_> = (0..processes)
        .map(|_| puppet::start(&server().connect_string(), &path))
        .collect();
    let history = history.display().to_string();
    for puppet in &mut puppets {
        puppet.command(&format!("run {recipe} {threads} {sections} {history}"));
    }
    for puppet in &mut puppets {
        assert_eq!(puppet.answer(), "ok");
    }
    let sections = read(&fs::read_to_string(&history).expect("written"));
    assert!(!sections.is_empty());
    sections
}

/// Counting what was done would not show an overlap that did no harm; the intervals do.
#[track_caller]
fn assert_disjoint(sections: &[Section]) {
    for pair in sections.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        assert!(one.ended <= next.begun, "two sections overlapped");
    }
}

/// Tokens are the order in which contenders queued, so if they never fall in the order of the
/// sections, the processes were served first come, first served.
#[track_caller]
fn assert_in_order(sections: &[Section]) {
    for pair in sections.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        assert!(
            one.token <= next.token,
            "a later contender was served first"
        );
    }
}

#[test]
fn sections_of_all_processes_are_disjoint_and_in_order() {
    let sections = history_of("mutex", 8, 4, 10);
    assert_eq!(sections.len(), 8 * 4 * 10);
    assert_disjoint(&sections);
    assert_in_order(&sections);
    wait_for_children(server(), "/processes/mutex", 0);
}

#[test]
fn a_semaphore_mutex_keeps_processes_apart_and_in_order() {
    let sections = history_of("semaphore-mutex", 4, 3, 8);
    assert_eq!(sections.len(), 4 * 3 * 8);
    assert_disjoint(&sections);
    assert_in_order(&sections);
    wait_for_children(server(), "/processes/semaphore-mutex/leases", 0);
}

#[test]
fn a_simple_mutex_keeps_processes_apart() {
    let sections = history_of("simple-mutex", 4, 2, 8);
    assert_eq!(sections.len(), 4 * 2 * 8);
    assert_disjoint(&sections);
    // Not fair, but the tokens of those who hold rise all the same.
    assert_in_order(&sections);
    wait_for_children(server(), "/processes/simple-mutex", 0);
}

#[test]
fn a_multi_lock_keeps_processes_apart() {
    let sections = history_of("multi", 4, 2, 6);
    assert_eq!(sections.len(), 4 * 2 * 6);
    assert_disjoint(&sections);
    assert_in_order(&sections);
    for part in ["a", "b", "c"] {
        wait_for_children(server(), &format!("/processes/multi/{part}"), 0);
    }
}

#[test]
fn permits_of_all_processes_never_exceed_the_maximum() {
    let sections = history_of("semaphore", 4, 4, 8);
    assert_eq!(sections.len(), 4 * 4 * 8);
    let permits = |section: &Section| section.right.parse::<i64>().expect("a number");
    let mut changes: Vec<_> = sections
        .iter()
        .flat_map(|one| [(one.begun, permits(one)), (one.ended, -permits(one))])
        .collect();
    // At one moment, ends come first.
    changes.sort_unstable();
    let mut held = 0;
    for (_, change) in changes {
        held += change;
        assert!(held <= 3, "{held} permits at once");
    }
    wait_for_children(server(), "/processes/semaphore/leases", 0);
}

#[test]
fn writers_of_all_processes_are_alone() {
    let sections = history_of("rw", 4, 4, 12);
    let mut shared_until = 0;
    let mut alone_until = 0;
    for section in &sections {
        assert!(alone_until <= section.begun, "a writer was not alone");
        if section.right == "alone" {
            assert!(shared_until <= section.begun, "a writer among readers");
            alone_until = section.ended;
        } else {
            shared_until = shared_until.max(section.ended);
        }
    }
    let writers: Vec<_> = sections
        .into_iter()
        .filter(|one| one.right == "alone")
        .collect();
    assert_in_order(&writers);
    wait_for_children(server(), "/processes/rw", 0);
}

/// kazoo's users forked with a client in hand and two processes spoke on one socket.
#[test]
fn a_forked_child_is_refused_and_does_no_harm() {
    let mut puppet = puppet::start(&server().connect_string(), "/processes/fork");
    assert_eq!(puppet.say("lock"), "ok");
    assert_eq!(puppet.say("fork"), "refused");
    assert_eq!(puppet.say("state"), "Held");
    assert_eq!(puppet.say("unlock"), "ok");
    assert_eq!(puppet.say("lock"), "ok");
}

/// A fork copies a lock as it is, and the thread that has it locked is not there to unlock it. What
/// a child asks of a read-write lock was refused only after the lock's own state was locked.
#[test]
fn a_read_write_lock_is_refused_in_a_forked_child_at_once() {
    let mut puppet = puppet::start(&server().connect_string(), "/processes/fork-rw");
    let used = puppet.say("use-in-children 50");
    assert_eq!(used, "refused");
}
