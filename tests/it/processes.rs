//! Several processes: exclusion and order from histories, and what a fork inherits.

use std::fs;

use crate::ground::{Puppet, server, wait_for_children};

const PROCESSES: usize = 8;
const THREADS: usize = 4;
const SECTIONS: usize = 10;

/// One section: its token, and when it began and ended.
struct Section {
    token: u64,
    begun: u128,
    ended: u128,
}

fn read(history: &str) -> Vec<Section> {
    let mut sections: Vec<_> = history
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let mut next = || words.next().expect("three numbers");
            Section {
                token: next().parse().expect("a number"),
                begun: next().parse().expect("a number"),
                ended: next().parse().expect("a number"),
            }
        })
        .collect();
    sections.sort_by_key(|section| section.begun);
    sections
}

/// Counting what was done would not show an overlap that did no harm; the intervals do. Tokens are
/// the order in which contenders queued, so if they never fall in the order of the sections, the
/// processes were served first come, first served.
#[test]
fn sections_of_all_processes_are_disjoint_and_in_order() {
    let path = "/processes/history";
    let folder = tempfile::tempdir().expect("a place for the history");
    let history = folder.path().join("history");
    fs::write(&history, "").expect("a place for the history");
    let mut puppets: Vec<_> = (0..PROCESSES)
        .map(|_| Puppet::start(&server().connect_string(), path))
        .collect();
    for puppet in &mut puppets {
        puppet.command(&format!("run {THREADS} {SECTIONS} {}", history.display()));
    }
    for puppet in &mut puppets {
        assert_eq!(puppet.answer(), "ok");
    }
    let sections = read(&fs::read_to_string(&history).expect("written"));
    assert_eq!(sections.len(), PROCESSES * THREADS * SECTIONS);
    for pair in sections.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        assert!(one.ended <= next.begun, "two sections overlapped");
        assert!(
            one.token <= next.token,
            "a later contender was served first"
        );
    }
    wait_for_children(server(), path, 0);
}

/// kazoo's users forked with a client in hand and two processes spoke on one socket.
#[test]
fn a_forked_child_is_refused_and_does_no_harm() {
    let mut puppet = Puppet::start(&server().connect_string(), "/processes/fork");
    assert_eq!(puppet.say("lock"), "ok");
    assert_eq!(puppet.say("fork"), "refused");
    assert_eq!(puppet.say("state"), "Held");
    assert_eq!(puppet.say("unlock"), "ok");
    assert_eq!(puppet.say("lock"), "ok");
}
