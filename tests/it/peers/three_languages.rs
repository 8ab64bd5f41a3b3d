//! One queue for three languages: Curator's mutex (Java), a kazoo lock whose label is `-lock-`
//! (Python), and ours, on one path.

use std::sync::mpsc::channel;
use std::thread;

use testbed::{Curator, Kazoo};
use zklock::{Mutex, Participant};

use super::SECTION;
use crate::fixtures::{SOON, children, client, mutex, server, wait_for_children};
use crate::history::{History, OURS, assert_disjoint, count, turns};

const ROUNDS: usize = 30;

/// Both with the lock `l`.
fn others(path: &str) -> (Curator, Kazoo) {
    let servers = server().connect_string();
    let (mut curator, mut kazoo) = (Curator::start(&servers), Kazoo::start(&servers));
    curator.tell(&format!("mutex l {path}"));
    assert_eq!(kazoo.say(&format!("sharedlock l {path}")), "ok");
    (curator, kazoo)
}

/// Our default dialect took kazoo's node for a stranger's, and went in beside it.
#[test]
fn each_keeps_both_others_out() {
    let path = "/three/out";
    let ((mut curator, mut kazoo), client) = (others(path), client());
    let lock = mutex(&client, path);

    assert_eq!(kazoo.say("acquire l"), "ok");
    let name = children(server(), path).remove(0);
    let (guid, rest) = name.split_at(32);
    assert!(guid.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(rest, "-lock-0000000000");
    assert!(lock.try_lock().expect("answers").is_none());
    assert_eq!(curator.say("acquire-for l 300"), "no");
    assert_eq!(kazoo.say("release l"), "ok");

    curator.tell("acquire l");
    assert!(lock.try_lock().expect("answers").is_none());
    assert_eq!(kazoo.say("try l"), "no");
    curator.tell("release l");

    let guard = lock.try_lock().expect("answers").expect("free");
    assert_eq!(curator.say("acquire-for l 300"), "no");
    assert_eq!(kazoo.say("try l"), "no");
    drop(guard);
    wait_for_children(server(), path, 0);
}

#[test]
fn they_are_served_in_the_order_of_arrival() {
    let path = "/three/order";
    let ((mut curator, mut kazoo), client) = (others(path), client());
    let lock = mutex(&client, path);
    let mut last = curator.thread();
    let (tell_held, held) = channel();
    let (tell_release, release) = channel::<()>();
    curator.tell("acquire l");
    // Moved in, so that a failed assertion drops what our thread waits for.
    let lock = &lock;
    thread::scope(move |scope| {
        assert_eq!(kazoo.say("begin l"), "ok");
        wait_for_children(server(), path, 2);
        scope.spawn(move || {
            let guard = lock.try_lock_for(SOON).expect("answers");
            tell_held.send(guard.is_some()).expect("waited for");
            // Told by an end of the channel.
            let _ = release.recv();
        });
        wait_for_children(server(), path, 3);
        last.command("acquire l");
        wait_for_children(server(), path, 4);
        assert_eq!(kazoo.say("begun? l"), "no");

        curator.tell("release l");
        assert_eq!(kazoo.say("finish l"), "ok");
        assert!(held.try_recv().is_err() && !last.has_answered());
        let participants = lock.participants().expect("answers");
        let holds: Vec<_> = participants.iter().map(Participant::is_holder).collect();
        assert_eq!(holds, [true, false, false]);
        assert_eq!(participants[0].data(), b"kazoo");
        assert_eq!(kazoo.say("release l"), "ok");
        assert_eq!(held.recv_timeout(SOON), Ok(true));
        assert!(!last.has_answered());
        drop(tell_release);
        last.done();
        last.tell("release l");
    });
    wait_for_children(server(), path, 0);
}

fn run(lock: &Mutex, history: &History) {
    for _ in 0..ROUNDS {
        // Bounded, because another that failed may hold it still.
        let guard = lock.try_lock_for(SOON).expect("answers");
        let _guard = guard.expect("its turn");
        history.record(SECTION, "alone");
    }
}

/// They queue in a ring: kazoo, ours, Curator, ours of another session. So each of ours comes after
/// each of the others once in a round, and each of the others after us.
#[test]
fn they_take_turns_and_no_two_are_inside() {
    let path = "/three/history";
    let history = History::new();
    let ((mut curator, mut kazoo), clients) = (others(path), [client(), client(), client()]);
    let [second, fourth, blocker] = clients.each_ref().map(|client| mutex(client, path));
    // Held until all stand in the queue: otherwise one could be done before another began.
    let guard = blocker.lock().expect("free");
    thread::scope(|scope| {
        let history_path = history.path().display();
        kazoo.command(&format!("run l {ROUNDS} {history_path}"));
        wait_for_children(server(), path, 2);
        scope.spawn(|| run(&second, &history));
        wait_for_children(server(), path, 3);
        curator.command(&format!("run l {ROUNDS} 1 alone {history_path}"));
        wait_for_children(server(), path, 4);
        scope.spawn(|| run(&fourth, &history));
        wait_for_children(server(), path, 5);
        drop(guard);
        curator.done();
        assert_eq!(kazoo.answer(), "ok");
    });
    let sections = history.sections();
    let done = ["kazoo", "curator", OURS].map(|by| count(&sections, by));
    assert_eq!(done, [ROUNDS, ROUNDS, 2 * ROUNDS]);
    assert_disjoint(&sections);
    let turns = turns(&sections);
    assert!(turns > ROUNDS, "they took turns {turns} times");
    wait_for_children(server(), path, 0);
}
