//! `zklock hold`, `run --again` and `run --at-most`.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{Server, process};

use crate::fixtures::{Running, client, queue_length, said, send, zklock};

#[test]
fn a_lock_is_held_while_the_input_lasts() {
    let path = "/sections/hold";
    let mut holder = Running::start(&mut zklock(["hold", path]));
    let held = holder.line();
    let words: Vec<_> = held.split(' ').collect();
    assert_eq!(words.len(), 3, "{held}");
    assert_eq!(words[0], "held");
    assert!(words[1].parse::<u64>().is_ok(), "{held}");
    assert!(words[2].starts_with(path), "{held}");
    let other = said(&mut zklock(["hold", "--try", "--busy-status=9", path]));
    assert_eq!(other.status, 9, "{}", other.err);
    assert_eq!(holder.finish().status, 0);
    assert_eq!(queue_length(&client(), path), 0);
}

#[test]
fn a_holder_is_told_what_happens_to_its_lock() {
    let path = "/sections/told";
    let mut holder = Running::start(&mut zklock(["hold", path]));
    let node = holder.line();
    let (_, name) = node.rsplit_once('/').expect("a path");
    assert_eq!(said(&mut zklock(["revoke", path])).status, 0);
    assert_eq!(holder.line(), "asked");
    let broken = said(&mut zklock(["break", path, "--node", name]));
    assert_eq!(broken.status, 0, "{}", broken.err);
    assert_eq!(holder.line(), "lost");
    assert_eq!(holder.end().status, 79);
}

#[test]
fn a_holder_hears_of_doubt_before_the_loss() {
    let server = Server::start();
    let servers = server.connect_string();
    let hold = ["hold", "--session-timeout=4s", "--servers", &servers, "/l"];
    let mut holder = Running::start(&mut zklock(hold));
    assert!(holder.line().starts_with("held "));
    server.kill();
    assert_eq!(holder.line(), "doubtful");
    assert_eq!(holder.line(), "lost");
    assert_eq!(holder.end().status, 79);
}

#[test]
fn a_signal_ends_a_hold_and_gives_the_lock_back() {
    let path = "/sections/signal";
    let mut holder = Running::start(&mut zklock(["hold", path]));
    holder.line();
    send(holder.pid(), Signal::TERM);
    let holder = holder.end();
    assert_eq!(holder.status, 143);
    assert!(holder.err.contains("TERM ended the hold"), "{}", holder.err);
    assert_eq!(queue_length(&client(), path), 0);
}

#[test]
fn a_job_runs_again_until_it_is_told_to_end() {
    let path = "/sections/again";
    let script = "echo $$; read line; exit 3";
    let again = ["run", "--again=10ms", path, "--", "sh", "-c", script];
    let mut running = Running::start(&mut zklock(again));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let command: u32 = running.line().parse().expect("a process id");
        assert!(!seen.contains(&command));
        seen.push(command);
        process::kill(command);
    }
    running.line();
    send(running.pid(), Signal::TERM);
    assert_eq!(running.end().status, 143);
}

/// A loss is no end: it waits for the lock, and runs again.
#[test]
fn a_job_that_lost_its_lock_runs_again() {
    let path = "/sections/lost";
    let script = "echo $ZKLOCK_NODE; read line; exit 0";
    let again = ["run", "--again=10ms", path, "--", "sh", "-c", script];
    let mut running = Running::start(&mut zklock(again));
    let node = running.line();
    let (_, name) = node.rsplit_once('/').expect("a path");
    assert_eq!(said(&mut zklock(["break", path, "--node", name])).status, 0);
    assert_ne!(running.line(), node);
    send(running.pid(), Signal::TERM);
    assert_eq!(running.end().status, 143);
}

/// A hold without an end: who hangs keeps everybody out.
#[test]
fn a_job_that_takes_too_long_is_stopped_and_the_lock_given_back() {
    let path = "/sections/most";
    // It has most of the time to end by itself, and does.
    let script = "trap 'echo asked; exit 0' TERM; while :; do sleep 0.05; done";
    let most = ["run", "--at-most=2500ms", "--kill-after=2s", path];
    let most = said(zklock(most).args(["--", "sh", "-c", script]));
    assert_eq!((most.status, &*most.out), (79, "asked\n"), "{}", most.err);
    assert!(most.err.contains("--at-most"), "{}", most.err);
    // It does not listen, and is killed.
    let began = Instant::now();
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let most = ["run", "--at-most=700ms", "--kill-after=200ms", path];
    let most = said(zklock(most).args(["--", "sh", "-c", script]));
    assert!(began.elapsed() >= Duration::from_millis(700));
    assert_eq!(most.status, 79, "{}", most.err);
    assert_eq!(queue_length(&client(), path), 0);
}
