//! What must not grow: nodes, watches on the server, and our own threads, descriptors and memory.
//!
//! Other libraries left a probe node, an `exists` watch on a node that is gone, or a closure for
//! each attempt that failed.

use std::thread;
use std::time::Duration;

use crate::fixtures::{SOON, client_at, mutex, raw, server};
use crate::puppet;
use testbed::{Proxy, Server, process, wait_until};

const TRIES: usize = 10_000;
const WAITS: usize = 10_000;
const WAITERS: usize = 50;

#[test]
fn failures_leave_nothing() {
    let server = Server::start();
    let path = "/leaks";
    let mut holder = puppet::start(&server.connect_string(), path);
    assert_eq!(holder.say("lock"), "ok");
    let client = client_at(&server.connect_string());
    let lock = mutex(&client, path);
    let try_and_wait = |tries: usize, waits: usize| {
        for _ in 0..tries {
            assert!(lock.try_lock().expect("answers").is_none());
        }
        // Most of them time out in the local queue, and in turn one in the global one.
        thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    for _ in 0..waits / WAITERS {
                        let wait = Duration::from_millis(2);
                        assert!(lock.try_lock_for(wait).expect("answers").is_none());
                    }
                });
            }
        });
    };
    let settled = |server: &Server| {
        let mut raw = raw(server);
        // The holder holds for long, so it has a watch on its own node.
        wait_until("only the holder queues, and watches", SOON, || {
            raw.children(path).expect("there").len() == 1 && server.stats().watch_count == 1
        });
    };
    try_and_wait(200, 500);
    settled(&server);
    let before = server.stats();
    let (threads, descriptors) = (threads_of_ours(), process::descriptors());
    let memory = process::resident_bytes();
    try_and_wait(TRIES, WAITS);
    settled(&server);
    let after = server.stats();
    assert_eq!(after.znode_count, before.znode_count);
    // Other tests run in this process at the same time, so these can only be bounded.
    let more_threads = threads_of_ours().saturating_sub(threads);
    assert!(more_threads < 100, "{more_threads} more threads");
    let more_descriptors = process::descriptors().saturating_sub(descriptors);
    assert!(
        more_descriptors < 500,
        "{more_descriptors} more descriptors"
    );
    let grown = process::resident_bytes().saturating_sub(memory);
    assert!(grown < 200 << 20, "{grown} bytes more");
}

/// However much there is to do: many threads on many locks, lines to log, a reconnect.
#[test]
fn a_client_has_four_threads_at_most() {
    const CALLERS: usize = 8;
    // Its main thread, and that of the test that it is.
    const PUPPETS: usize = 2;
    let proxy = Proxy::start(server().addr());
    let mut puppet = puppet::start(&proxy.connect_string(), "/leaks/threads");
    let threads = process::thread_names_of;
    let pid = puppet.pid().to_string();
    assert_eq!(puppet.say("lock"), "ok");
    proxy.reset_all();
    // Confirmed, or to be done in the background.
    puppet.say("unlock");
    let folder = tempfile::tempdir().expect("a place for the history");
    let history = folder.path().join("history");
    std::fs::write(&history, "").expect("a place for the history");
    puppet.command(&format!("run multi {CALLERS} 40 {}", history.display()));
    let mut most = 0;
    thread::scope(|scope| {
        let ended = scope.spawn(|| puppet.answer());
        while !ended.is_finished() {
            most = most.max(threads(&pid).len());
        }
        assert_eq!(ended.join().expect("an answer"), "ok");
    });
    assert!(most <= PUPPETS + CALLERS + 4, "{most} threads");
    let mut all = threads(&pid);
    all.retain(|name| name.starts_with("zklock-"));
    all.sort_unstable();
    assert_eq!(
        all,
        [
            "zklock-aside",
            "zklock-chores",
            "zklock-clock",
            "zklock-down"
        ]
    );
    assert_eq!(threads(&pid).len(), PUPPETS + 4);
}

fn threads_of_ours() -> usize {
    process::threads_named("zklock-")
}
