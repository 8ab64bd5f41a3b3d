//! Readers and writers of both: Curator's `InterProcessReadWriteLock`.

use std::sync::mpsc::channel;
use std::thread;

use testbed::Curator;
use zklock::{Client, Participant, RwLock};

use super::{CURATORS, SECTION, curator, tries};
use crate::fixtures::{SOON, children, client, server, wait_for_children};
use crate::history::{History, OURS, assert_writers_alone, count, turns};
use crate::peers::ours_wait_for_their_writer;

const ROUNDS: usize = 20;

fn lock_at(client: &Client, path: &str) -> RwLock {
    RwLock::new(client, path).expect("a good path")
}

/// An actor with the lock `l`: a reader `l.read` and a writer `l.write`.
fn curator_at(path: &str) -> Curator {
    let mut curator = curator();
    curator.tell(&format!("rw l {path}"));
    curator
}

/// Whether Curator's writer keeps its place when it becomes a reader. From release 5.5 on it does, by
/// the same means as ours. In older ones the reader queues anew, and a writer that waits gets in
/// between, also one of Curator's own (CURATOR-276): nobody else can mend that.
fn keeps_its_place(curator: &mut Curator, path: &str) -> bool {
    let probe = format!("{path}-probe");
    curator.tell(&format!("rw probe {probe}"));
    curator.tell("acquire probe.write");
    curator.tell("acquire probe.read");
    let names = children(server(), &probe);
    let numbers: Vec<_> = names.iter().map(|name| &name[name.len() - 10..]).collect();
    assert_eq!(numbers.len(), 2);
    let kept = numbers[0] == numbers[1];
    curator.tell("release probe.write");
    curator.tell("release probe.read");
    kept
}

#[test]
fn readers_of_both_read_together() {
    let path = "/curator/rw/together";
    let (mut curator, client) = (curator_at(path), client());
    let lock = lock_at(&client, path);
    let first = lock.read().expect("free");
    assert!(tries(&mut curator, "l.read"));
    assert!(tries(&mut curator, "l.read"), "re-entered");
    let again = lock.read().expect("re-entrant");
    assert_eq!(children(server(), path).len(), 2);
    let participants = lock.participants().expect("answers");
    assert!(participants.iter().all(Participant::is_holder));
    assert!(participants.iter().all(Participant::is_reader));
    drop((first, again));
    // Behind Curator's readers only.
    drop(lock.try_read().expect("answers").expect("readers only"));
    curator.tell("release l.read");
    assert!(lock.try_write().expect("answers").is_none());
    curator.tell("release l.read");
    assert!(lock.try_write().expect("answers").is_some());
    wait_for_children(server(), path, 0);
}

#[test]
fn our_writer_keeps_curators_readers_and_writers_out() {
    let path = "/curator/rw/we-write";
    let (mut curator, client) = (curator_at(path), client());
    let mut reader = curator.thread();
    let lock = lock_at(&client, path);
    let writing = lock.write().expect("free");
    assert!(!tries(&mut reader, "l.read"));
    assert!(!tries(&mut curator, "l.write"));
    reader.command("acquire l.read");
    wait_for_children(server(), path, 2);
    curator.command("acquire l.write");
    wait_for_children(server(), path, 3);
    assert!(!reader.has_answered());
    drop(writing);
    reader.done();
    assert!(!curator.has_answered());
    reader.tell("release l.read");
    curator.done();
    curator.tell("release l.write");
    wait_for_children(server(), path, 0);
}

#[test]
fn curators_writer_keeps_our_readers_and_writers_out() {
    let path = "/curator/rw/curator-writes";
    let (mut curator, clients) = (curator_at(path), [client(), client()]);
    let ours = clients.each_ref().map(|client| lock_at(client, path));
    curator.tell("acquire l.write");
    ours_wait_for_their_writer(path, ours, || curator.tell("release l.write"));
}

/// Curator's writer takes the read lock before it gives the write lock back. Our writer, who waits,
/// is behind that reader if the reader has the writer's place; else it is ahead of it.
#[test]
fn a_downgrade_of_curators_keeps_our_waiting_writer_out_if_the_reader_has_its_place() {
    let path = "/curator/rw/curator-downgrades";
    let (mut curator, client) = (curator_at(path), client());
    let lock = lock_at(&client, path);
    let keeps_its_place = keeps_its_place(&mut curator, path);
    curator.tell("acquire l.write");
    let (tell_held, held) = channel();
    let (tell_release, release) = channel::<()>();
    thread::scope(|scope| {
        // Moved, so that a failed assertion drops what the writer waits for.
        let (held, tell_release, lock) = (held, tell_release, &lock);
        scope.spawn(move || {
            let writing = lock.try_write_for(SOON).expect("answers");
            tell_held.send(writing.is_some()).expect("waited for");
            // Told by an end of the channel.
            let _ = release.recv();
        });
        wait_for_children(server(), path, 2);
        curator.tell("acquire l.read");
        wait_for_children(server(), path, 3);
        assert!(held.try_recv().is_err());
        curator.tell("release l.write");
        if keeps_its_place {
            let participants = lock.participants().expect("answers");
            let holds: Vec<_> = participants.iter().map(Participant::is_holder).collect();
            assert_eq!(holds, [true, false]);
            assert!(lock.try_write().expect("answers").is_none());
            assert!(held.try_recv().is_err());
            curator.tell("release l.read");
            assert_eq!(held.recv_timeout(SOON), Ok(true), "its turn");
        } else {
            assert_eq!(held.recv_timeout(SOON), Ok(true), "it is first");
            curator.tell("release l.read");
        }
        drop(tell_release);
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn a_downgrade_of_ours_keeps_curators_waiting_writer_out_and_lets_readers_in() {
    let path = "/curator/rw/we-downgrade";
    let (mut curator, client) = (curator_at(path), client());
    let mut reader = curator.thread();
    let lock = lock_at(&client, path);
    let writing = lock.write().expect("free");
    reader.command("acquire l.read");
    wait_for_children(server(), path, 2);
    curator.command("acquire l.write");
    wait_for_children(server(), path, 3);
    let reading = writing.downgrade();
    let reading = reading.expect("it writes");
    reader.done();
    reader.tell("release l.read");
    assert!(!curator.has_answered());
    let participants = lock.participants().expect("answers");
    let holds: Vec<_> = participants.iter().map(Participant::is_holder).collect();
    assert_eq!(holds, [true, false]);
    assert!(reading.is_held());
    drop(reading);
    curator.done();
    assert!(lock.try_read().expect("answers").is_none());
    curator.tell("release l.write");
    wait_for_children(server(), path, 0);
}

/// On both sides one writes and goes on as a reader (on Curator's if it keeps its place), and another
/// reads.
#[test]
fn writers_of_both_are_alone_and_readers_together() {
    let path = "/curator/rw/history";
    let history = History::new();
    let (mut writer, clients) = (curator_at(path), [client(), client()]);
    let mut reader = writer.thread();
    let keeps_its_place = keeps_its_place(&mut writer, path);
    let [lock, blocker] = clients.each_ref().map(|client| lock_at(client, path));
    // Held until both sides stand in the queue: otherwise one could be done before the other began.
    let guard = blocker.write().expect("free");
    thread::scope(|scope| {
        let history_path = history.path().display();
        writer.command(&if keeps_its_place {
            format!("downgrade l {ROUNDS} {history_path}")
        } else {
            format!("run l.write {ROUNDS} 1 alone {history_path}")
        });
        reader.command(&format!("run l.read {ROUNDS} 1 shared {history_path}"));
        scope.spawn(|| downgrade(&lock, &history));
        scope.spawn(|| read(&lock, &history));
        wait_for_children(server(), path, 5);
        drop(guard);
        writer.done();
        reader.done();
    });
    let sections = history.sections();
    let done = (count(&sections, CURATORS), count(&sections, OURS));
    let curators = if keeps_its_place { 3 } else { 2 };
    assert_eq!(done, (curators * ROUNDS, 3 * ROUNDS));
    assert_writers_alone(&sections);
    let turns = turns(&sections);
    assert!(turns > ROUNDS / 4, "they took turns {turns} times");
    wait_for_children(server(), path, 0);
}

/// As Curator's `downgrade`.
fn downgrade(lock: &RwLock, history: &History) {
    for _ in 0..ROUNDS {
        // Bounded, because a Curator that failed may hold it still.
        let writing = lock.try_write_for(SOON).expect("answers");
        let writing = writing.expect("its turn");
        history.record(SECTION, "alone");
        let reading = writing.downgrade();
        let _reading = reading.expect("it writes");
        history.record(SECTION, "shared");
    }
}

fn read(lock: &RwLock, history: &History) {
    for _ in 0..ROUNDS {
        let reading = lock.try_read_for(SOON).expect("answers");
        let _reading = reading.expect("its turn");
        history.record(SECTION, "shared");
    }
}
