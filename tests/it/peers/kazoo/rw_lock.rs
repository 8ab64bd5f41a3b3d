//! Readers and writers of both: kazoo's `ReadLock` and `WriteLock`.

use std::sync::mpsc::channel;
use std::thread;

use testbed::{Kazoo, wait_until};
use zklock::{Client, Dialect, Participant, RwLock};

use super::{SHORT, kazoo, tell, wait_until_kazoo_watches};
use crate::fixtures::{SOON, children, client, server, wait_for_children};
use crate::peers::{ours_wait_for_their_writer, reads, writes};

fn lock_at(client: &Client, path: &str) -> RwLock {
    RwLock::builder(client, path)
        .dialect(Dialect::Kazoo)
        .build()
        .expect("a good path")
}

/// One with a reader `r`, another reader `s` and a writer `w`.
fn kazoo_with_all(path: &str) -> Kazoo {
    let mut kazoo = kazoo();
    tell(&mut kazoo, &format!("readlock r {path}"));
    tell(&mut kazoo, &format!("readlock s {path}"));
    tell(&mut kazoo, &format!("writelock w {path}"));
    kazoo
}

#[test]
fn readers_of_both_read_together() {
    let path = "/kazoo/rw/together";
    let (mut kazoo, clients) = (kazoo_with_all(path), [client(), client()]);
    let [lock, other] = clients.each_ref().map(|client| lock_at(client, path));
    let first = lock.read().expect("free");
    assert_eq!(kazoo.say("try r"), "yes");
    let third = other.try_read().expect("answers").expect("readers only");
    assert_eq!(kazoo.say("try s"), "yes");
    assert_eq!(children(server(), path).len(), 4);
    assert!(first.is_held() && third.is_held());
    let participants = lock.participants().expect("answers");
    assert!(participants.iter().all(Participant::is_holder));
    assert!(participants.iter().all(Participant::is_reader));

    drop((first, third));
    // Behind kazoo's readers only.
    drop(lock.try_read().expect("answers").expect("readers only"));
    tell(&mut kazoo, "release r");
    tell(&mut kazoo, "release s");
    wait_for_children(server(), path, 0);
}

#[test]
fn our_writer_keeps_kazoos_readers_and_writers_out() {
    let path = "/kazoo/rw/we-write";
    let (mut kazoo, client) = (kazoo_with_all(path), client());
    let lock = lock_at(&client, path);
    let writing = lock.write().expect("free");
    for name in ["r", "w"] {
        assert_eq!(kazoo.say(&format!("try {name}")), "no");
        let timed = format!("acquire-for {name} {}", SHORT.as_secs_f64());
        assert_eq!(kazoo.say(&timed), "timeout");
    }
    tell(&mut kazoo, "begin r");
    wait_for_children(server(), path, 2);
    tell(&mut kazoo, "begin w");
    wait_for_children(server(), path, 3);
    wait_until_kazoo_watches(writing.path(), &client);
    assert_eq!(kazoo.say("begun? r"), "no");
    assert_eq!(kazoo.say("begun? w"), "no");
    drop(writing);
    tell(&mut kazoo, "finish r");
    assert_eq!(kazoo.say("begun? w"), "no");
    tell(&mut kazoo, "release r");
    tell(&mut kazoo, "finish w");
    tell(&mut kazoo, "release w");
    wait_for_children(server(), path, 0);
}

#[test]
fn kazoos_writer_keeps_our_readers_and_writers_out() {
    let path = "/kazoo/rw/kazoo-writes";
    let (mut kazoo, clients) = (kazoo_with_all(path), [client(), client()]);
    let ours = clients.each_ref().map(|client| lock_at(client, path));
    tell(&mut kazoo, "acquire w");
    ours_wait_for_their_writer(path, ours, || tell(&mut kazoo, "release w"));
}

#[test]
fn our_reader_keeps_kazoos_writer_out() {
    let path = "/kazoo/rw/we-read";
    let (mut kazoo, client) = (kazoo_with_all(path), client());
    let lock = lock_at(&client, path);
    let reading = lock.read().expect("free");
    assert_eq!(kazoo.say("try w"), "no");
    tell(&mut kazoo, "begin w");
    wait_until_kazoo_watches(reading.path(), &client);
    assert_eq!(kazoo.say("begun? w"), "no");
    drop(reading);
    tell(&mut kazoo, "finish w");
    tell(&mut kazoo, "release w");
    wait_for_children(server(), path, 0);
}

#[test]
fn kazoos_reader_keeps_our_writer_out() {
    let path = "/kazoo/rw/kazoo-reads";
    let (mut kazoo, client) = (kazoo_with_all(path), client());
    let lock = lock_at(&client, path);
    tell(&mut kazoo, "acquire r");
    assert!(lock.try_write().expect("answers").is_none());
    thread::scope(|scope| {
        let writing = scope.spawn(|| writes(&lock));
        wait_for_children(server(), path, 2);
        assert!(!writing.is_finished());
        tell(&mut kazoo, "release r");
        assert!(writing.join().expect("no panic"), "its turn");
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn our_later_readers_do_not_overtake_kazoos_waiting_writer() {
    let path = "/kazoo/rw/kazoo-writer-waits";
    let (mut kazoo, clients) = (kazoo_with_all(path), [client(), client()]);
    let [lock, other] = clients.each_ref().map(|client| lock_at(client, path));
    let reading = lock.read().expect("free");
    tell(&mut kazoo, "begin w");
    wait_until_kazoo_watches(reading.path(), &clients[0]);
    assert!(other.try_read().expect("answers").is_none());
    // Nor do other threads of the process that reads, once it has heard of the writer.
    let overtakes = || lock.try_read().expect("answers").is_some();
    thread::scope(|scope| {
        scope.spawn(|| wait_until("the writer is known", SOON, || !overtakes()));
    });
    // This thread waits for nobody: it is inside.
    drop(lock.try_read().expect("answers").expect("it reads"));
    thread::scope(|scope| {
        let later = scope.spawn(|| reads(&other));
        wait_for_children(server(), path, 3);
        drop(reading);
        tell(&mut kazoo, "finish w");
        assert!(!later.is_finished());
        tell(&mut kazoo, "release w");
        assert!(later.join().expect("no panic"), "its turn");
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn kazoos_later_readers_do_not_overtake_our_waiting_writer() {
    let path = "/kazoo/rw/our-writer-waits";
    let (mut kazoo, client) = (kazoo_with_all(path), client());
    let lock = lock_at(&client, path);
    tell(&mut kazoo, "acquire r");
    let (tell_held, held) = channel();
    let (tell_release, release) = channel::<()>();
    thread::scope(|scope| {
        // Moved, so that a failed assertion drops what the writer waits for.
        let (held, tell_release, lock) = (held, tell_release, &lock);
        scope.spawn(move || {
            let writing = lock.try_write_for(SOON).expect("answers");
            let path = writing.as_ref().map(|writing| writing.path().to_owned());
            tell_held.send(path).expect("waited for");
            // Told by an end of the channel.
            let _ = release.recv();
        });
        wait_for_children(server(), path, 2);
        assert_eq!(kazoo.say("try s"), "no");
        tell(&mut kazoo, "begin s");
        wait_for_children(server(), path, 3);
        assert_eq!(kazoo.say("begun? s"), "no");
        tell(&mut kazoo, "release r");
        let ours = held.recv_timeout(SOON).expect("its turn");
        wait_until_kazoo_watches(&ours.expect("its turn"), &client);
        assert_eq!(kazoo.say("begun? s"), "no");
        drop(tell_release);
        tell(&mut kazoo, "finish s");
        tell(&mut kazoo, "release s");
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn a_downgrade_lets_kazoos_readers_in_and_its_writers_not() {
    let path = "/kazoo/rw/downgrade";
    let (mut kazoo, client) = (kazoo_with_all(path), client());
    let lock = lock_at(&client, path);
    let writing = lock.write().expect("free");
    tell(&mut kazoo, "begin r");
    wait_for_children(server(), path, 2);
    tell(&mut kazoo, "begin w");
    wait_for_children(server(), path, 3);
    let reading = lock.read().expect("it writes");
    assert_eq!(kazoo.say("begun? r"), "no");
    drop(writing);
    tell(&mut kazoo, "finish r");
    tell(&mut kazoo, "release r");
    // The reader that was between them has gone, so the writer has looked again.
    wait_until_kazoo_watches(reading.path(), &client);
    assert_eq!(kazoo.say("begun? w"), "no");
    assert!(reading.is_held());
    drop(reading);
    tell(&mut kazoo, "finish w");
    tell(&mut kazoo, "release w");
    wait_for_children(server(), path, 0);
}

#[test]
fn no_writer_of_kazoos_gets_in_between_a_writer_and_the_reader_it_becomes() {
    let path = "/kazoo/rw/becomes";
    let (mut kazoo, client) = (kazoo_with_all(path), client());
    let lock = lock_at(&client, path);
    let writing = lock.write().expect("free");
    tell(&mut kazoo, "begin w");
    wait_until_kazoo_watches(writing.path(), &client);
    let reading = writing.downgrade();
    let reading = reading.expect("it writes");
    wait_until_kazoo_watches(reading.path(), &client);
    assert_eq!(kazoo.say("begun? w"), "no");
    // A reader that comes now is behind that writer.
    assert_eq!(kazoo.say("try r"), "no");
    drop(reading);
    tell(&mut kazoo, "finish w");
    assert!(lock.try_read().expect("answers").is_none());
    tell(&mut kazoo, "release w");
    wait_for_children(server(), path, 0);
}
