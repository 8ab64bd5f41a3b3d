//! Together with somebody's own read-write lock, which knows readers and writers by a label in front
//! of the number: `[host]-R-0000000001`, `[host]-W-0000000002`.
//!
//! Method: their nodes are made and deleted by hand, on a session of their own.

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use testbed::RawSession;
use testbed::raw::Flags;
use zklock::{Client, Participant, RwLock};

use crate::fixtures::{SOON, children, client, raw, server, wait_for_children};

fn lock_at(client: &Client, path: &str) -> RwLock {
    RwLock::builder(client, path)
        .node_labels("-R-", "-W-")
        .build()
        .expect("good labels")
}

/// Their folder, and somebody who queues in it.
fn folder(path: &str) -> RawSession {
    let mut raw = raw(server());
    // It may exist already.
    let _ = raw.create("/home-grown", b"", Flags::Persistent);
    raw.create(path, b"", Flags::Persistent).expect("new");
    raw
}

fn queue(raw: &mut RawSession, path: &str, prefix: &str) -> String {
    raw.create(&format!("{path}/{prefix}"), b"", Flags::EphemeralSequential)
        .expect("the folder exists")
}

#[test]
fn our_reader_waits_for_the_writers_before_it_only() {
    let path = "/home-grown/reader";
    let (mut raw, client) = (folder(path), client());
    let lock = lock_at(&client, path);
    let reader = queue(&mut raw, path, "[a.example]-R-");
    drop(lock.try_read().expect("answers").expect("readers only"));
    let writer = queue(&mut raw, path, "[b-W-.example]-W-");
    assert!(lock.try_read().expect("answers").is_none());
    raw.delete(&reader).expect("it stands");
    thread::scope(|scope| {
        let reading = scope.spawn(|| lock.try_read_for(SOON).expect("answers").is_some());
        wait_for_children(server(), path, 2);
        assert!(!reading.is_finished());
        raw.delete(&writer).expect("it stands");
        assert!(reading.join().expect("no panic"), "its turn");
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn our_writer_waits_for_all_before_it() {
    let path = "/home-grown/writer";
    let (mut raw, client) = (folder(path), client());
    let lock = lock_at(&client, path);
    let reader = queue(&mut raw, path, "[a]-R-");
    let writer = queue(&mut raw, path, "[b]-W-");
    assert!(lock.try_write().expect("answers").is_none());
    let (tell, told): (_, Receiver<bool>) = channel();
    thread::scope(|scope| {
        let lock = &lock;
        scope.spawn(move || {
            let writing = lock.try_write_for(SOON).expect("answers");
            tell.send(writing.is_some()).expect("waited for");
        });
        wait_for_children(server(), path, 3);
        raw.delete(&writer).expect("it stands");
        // Not by the one that it watched, but still by the first.
        wait_for_children(server(), path, 2);
        assert!(told.try_recv().is_err(), "it waits");
        raw.delete(&reader).expect("it stands");
        assert_eq!(told.recv_timeout(SOON), Ok(true));
    });
    wait_for_children(server(), path, 0);
}

/// What they would see of ours, by their rule: the label behind whatever comes first, and the order
/// of the numbers.
#[test]
fn ours_are_theirs_by_label_and_number() {
    let path = "/home-grown/ours";
    let (mut raw, client) = (folder(path), client());
    let lock = lock_at(&client, path);
    let shape = || {
        let mut names: Vec<_> = children(server(), path);
        names.sort_unstable_by_key(|name| name[name.len() - 10..].to_owned());
        let labelled = names.iter().map(|name| {
            let (before, label) = name.split_at(name.len() - 13);
            let guid = before.bytes().all(|byte| byte.is_ascii_hexdigit());
            let before = if guid && before.len() == 32 {
                "<32 hex>"
            } else {
                before
            };
            format!("{before}{label}")
        });
        labelled.collect::<Vec<_>>()
    };
    let writing = lock.write().expect("free");
    assert_eq!(shape(), ["<32 hex>-W-0000000000"]);
    queue(&mut raw, path, "[a]-W-");
    let reading = writing.downgrade();
    let reading = reading.expect("it writes");
    assert_eq!(shape(), ["<32 hex>-R-0000000000", "[a]-W-0000000001"]);
    let participants = lock.participants().expect("answers");
    let [ours, theirs] = <[Participant; 2]>::try_from(participants).expect("two");
    assert!(ours.is_holder() && ours.is_ours() && ours.is_reader());
    assert!(!theirs.is_holder() && !theirs.is_ours() && !theirs.is_reader());
    drop(reading);
    // Theirs has its turn now.
    assert!(lock.try_read().expect("answers").is_none());
}

#[test]
fn what_has_neither_label_is_nobodys() {
    let path = "/home-grown/strangers";
    let (mut raw, client) = (folder(path), client());
    let lock = lock_at(&client, path);
    for stranger in ["hello", "[a]-r-", "[a]-W", "_c_-lock-"] {
        queue(&mut raw, path, stranger);
    }
    let writing = lock.try_write().expect("answers").expect("nobody is ahead");
    assert_eq!(lock.participants().expect("answers").len(), 1);
    drop(writing);
    wait_for_children(server(), path, 4);
}

#[test]
fn labels_that_could_not_be_told_apart_are_refused() {
    let client = client();
    for (read, write) in [("R-", "-R-"), ("-R-", "-W"), ("", "-W-"), ("a/-", "-W-")] {
        let built = RwLock::builder(&client, "/home-grown/refused")
            .node_labels(read, write)
            .build();
        assert!(built.expect_err(read).is_invalid());
    }
}
