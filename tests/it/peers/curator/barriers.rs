//! Curator's `DistributedBarrier` and `DistributedDoubleBarrier`.

use std::thread;

use testbed::wait_until;
use zklock::{Barrier, DoubleBarrier};

use super::{SHORT, curator};
use crate::fixtures::{SOON, client, raw, server, wait_for_children};

/// How often the members of a double barrier go in and out again.
const GENERATIONS: usize = 3;

#[test]
fn each_waits_at_the_barrier_that_the_other_has_closed() {
    let path = "/curator/barrier/gate";
    let (mut curator, client) = (curator(), client());
    let barrier = Barrier::new(&client, path).expect("a good path");
    curator.tell(&format!("barrier b {path}"));
    curator.tell("wait b");

    curator.tell("close b");
    assert!(barrier.is_set().expect("answers"));
    assert!(!barrier.wait_for(SHORT).expect("answers"));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| barrier.wait_for(SOON).expect("answers"));
        wait_until_somebody_watches(path);
        assert!(!waiter.is_finished());
        curator.tell("open b");
        assert!(waiter.join().expect("no panic"), "open");
    });

    barrier.set().expect("answers");
    curator.command("wait b");
    wait_until_somebody_watches(path);
    assert!(!curator.has_answered());
    barrier.remove().expect("answers");
    curator.done();
    assert!(!raw(server()).exists(path).expect("answers"));
}

#[track_caller]
fn wait_until_somebody_watches(path: &str) {
    wait_until(&format!("a watch on {path}"), SOON, || {
        server().admin("wchp").lines().any(|line| line == path)
    });
}

/// One member of Curator's and two of ours, in several generations on one path.
#[test]
fn members_of_both_begin_together_and_end_together() {
    let path = "/curator/barrier/double";
    let (mut curator, clients) = (curator(), [client(), client()]);
    let [a, b] = clients
        .each_ref()
        .map(|client| DoubleBarrier::new(client, path, 3).expect("a good path"));
    curator.tell(&format!("double d {path} 3"));
    for generation in 0..GENERATIONS {
        thread::scope(|scope| {
            // Each is once the last to come.
            let first = scope.spawn(|| a.enter_for(SOON).expect("answers"));
            wait_for_children(server(), path, 1);
            let (second, curators_turn) = if generation % 2 == 0 {
                curator.command("enter d");
                wait_for_children(server(), path, 2);
                assert!(!first.is_finished() && !curator.has_answered());
                (scope.spawn(|| b.enter_for(SOON).expect("answers")), true)
            } else {
                let second = scope.spawn(|| b.enter_for(SOON).expect("answers"));
                wait_for_children(server(), path, 2);
                assert!(!first.is_finished() && !second.is_finished());
                curator.command("enter d");
                (second, false)
            };
            let first = first.join().expect("no panic").expect("three");
            let second = second.join().expect("no panic").expect("three");
            curator.done();

            let first = scope.spawn(|| first.leave_for(SOON).expect("answers"));
            if curators_turn {
                curator.command("leave d");
                assert!(!first.is_finished());
                assert!(second.leave_for(SOON).expect("answers"), "all have left");
            } else {
                let second = scope.spawn(|| second.leave_for(SOON).expect("answers"));
                assert!(!first.is_finished() && !second.is_finished());
                curator.command("leave d");
                assert!(second.join().expect("no panic"), "all have left");
            }
            assert!(first.join().expect("no panic"), "all have left");
            curator.done();
        });
        wait_for_children(server(), path, 0);
    }
}

/// Who leaves waits for those who are still inside.
#[test]
fn nobody_has_left_before_the_last_member_leaves() {
    let path = "/curator/barrier/leave";
    let (mut curator, client) = (curator(), client());
    let barrier = DoubleBarrier::new(&client, path, 2).expect("a good path");
    curator.tell(&format!("double d {path} 2"));

    curator.command("enter d");
    wait_for_children(server(), path, 1);
    let member = barrier.enter_for(SOON).expect("answers").expect("two");
    curator.done();
    curator.command("leave d");
    // It has looked, and waits for us.
    wait_until_somebody_watches(member.path());
    assert!(!curator.has_answered());
    assert!(member.leave_for(SOON).expect("answers"));
    curator.done();
    wait_for_children(server(), path, 0);

    curator.command("enter d");
    wait_for_children(server(), path, 1);
    let member = barrier.enter_for(SOON).expect("answers").expect("two");
    curator.done();
    thread::scope(|scope| {
        let leaving = scope.spawn(|| member.leave_for(SOON).expect("answers"));
        let inside = format!("{path}/");
        wait_until("it waits for Curator's", SOON, || {
            let watches = server().admin("wchp");
            watches.lines().any(|line| line.starts_with(&inside))
        });
        assert!(!leaving.is_finished());
        curator.tell("leave d");
        assert!(leaving.join().expect("no panic"), "all have left");
    });
    wait_for_children(server(), path, 0);
}
