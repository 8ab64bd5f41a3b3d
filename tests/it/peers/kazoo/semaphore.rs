//! Permits for both: kazoo's `Semaphore`.

use std::thread;
use std::time::Duration;

use testbed::{Kazoo, wait_until};
use zklock::{Client, Dialect, Participant, Permit, Semaphore, SemaphoreMutex};

use super::{SHORT, kazoo, tell};
use crate::fixtures::{SOON, children, client, server, wait_for_children};
use crate::history::{self, History, OURS, count, most_at_once};

const ROUNDS: usize = 30;
const THREADS: usize = 2;
const KAZOOS: usize = 2;
const MAX: u32 = 3;
/// About as long as kazoo takes to come in, so that it meets one of ours there.
const OUR_SECTION: Duration = Duration::from_millis(8);

fn semaphore(client: &Client, path: &str, max: u32) -> Semaphore {
    Semaphore::builder(client, path)
        .max(max)
        .dialect(Dialect::Kazoo)
        .data("ours")
        .build()
        .expect("a good path")
}

/// One with the semaphores `a`, `b` and `c`, each for one lease.
fn kazoo_with_three(path: &str, max: u32) -> Kazoo {
    let mut kazoo = kazoo();
    for name in ["a", "b", "c"] {
        tell(&mut kazoo, &format!("semaphore {name} {path} {max}"));
    }
    kazoo
}

/// kazoo's folder for those who wait.
fn queue_of(path: &str) -> String {
    format!("{path}-__lock__")
}

fn gets_one(semaphore: &Semaphore) -> Option<Permit> {
    semaphore.try_acquire_for(SOON).expect("answers")
}

#[test]
fn permits_are_counted_over_both() {
    let path = "/kazoo/semaphore/count";
    let (mut kazoo, client) = (kazoo_with_three(path, 2), client());
    let semaphore = semaphore(&client, path, 2);
    let first = semaphore.try_acquire().expect("answers").expect("free");
    assert_eq!(kazoo.say("try a"), "yes");
    assert!(semaphore.try_acquire().expect("answers").is_none());
    assert_eq!(kazoo.say("try b"), "no");
    tell(&mut kazoo, "release a");
    let second = semaphore.try_acquire().expect("answers").expect("free");
    assert_eq!(kazoo.say("try a"), "no");
    drop(first);
    assert_eq!(kazoo.say("try a"), "yes");
    drop(second);
    assert_eq!(kazoo.say("try b"), "yes");
    assert!(semaphore.try_acquire().expect("answers").is_none());
    tell(&mut kazoo, "release a");
    tell(&mut kazoo, "release b");
    wait_for_children(server(), path, 0);
    wait_for_children(server(), &queue_of(path), 0);
}

#[test]
fn each_sees_the_others_among_the_holders() {
    let path = "/kazoo/semaphore/who";
    let (mut kazoo, client) = (kazoo_with_three(path, 3), client());
    let semaphore = semaphore(&client, path, 3);
    assert_eq!(kazoo.say("contenders a"), "[]");
    let permit = semaphore.acquire().expect("free");
    assert_eq!(kazoo.say("contenders a"), r#"["ours"]"#);
    tell(&mut kazoo, "acquire a");
    // In no order, says kazoo.
    let both = [r#"["ours", "kazoo"]"#, r#"["kazoo", "ours"]"#];
    assert!(both.contains(&kazoo.say("contenders b").as_str()));

    let participants = semaphore.participants().expect("answers");
    let mut data: Vec<_> = participants.iter().map(Participant::data).collect();
    data.sort_unstable();
    assert_eq!(data, [b"kazoo".as_slice(), b"ours"]);
    assert!(participants.iter().all(Participant::is_holder));
    drop(permit);
    assert_eq!(kazoo.say("contenders b"), r#"["kazoo"]"#);
}

#[test]
fn kazoo_waits_for_a_permit_of_ours() {
    let path = "/kazoo/semaphore/kazoo-waits";
    let (mut kazoo, client) = (kazoo_with_three(path, 2), client());
    let semaphore = semaphore(&client, path, 2);
    let both = semaphore.acquire_many(2).expect("free");
    let timed = format!("acquire-for a {}", SHORT.as_secs_f64());
    assert_eq!(kazoo.say(&timed), "timeout");
    wait_for_children(server(), &queue_of(path), 0);
    tell(&mut kazoo, "begin a");
    // It stands in front, and nobody passes.
    wait_for_children(server(), &queue_of(path), 1);
    assert!(semaphore.try_acquire().expect("answers").is_none());
    assert_eq!(kazoo.say("begun? a"), "no");
    drop(both);
    tell(&mut kazoo, "finish a");
    assert!(semaphore.try_acquire().expect("answers").is_some());
    tell(&mut kazoo, "release a");
    wait_for_children(server(), path, 0);
}

#[test]
fn we_wait_for_a_permit_of_kazoos() {
    let path = "/kazoo/semaphore/we-wait";
    let (mut kazoo, client) = (kazoo_with_three(path, 2), client());
    let semaphore = semaphore(&client, path, 2);
    tell(&mut kazoo, "acquire a");
    tell(&mut kazoo, "acquire b");
    let timed = semaphore.try_acquire_for(SHORT).expect("answers");
    assert!(timed.is_none());
    wait_for_children(server(), path, 2);
    wait_for_children(server(), &queue_of(path), 0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| gets_one(&semaphore));
        // The one that waits has its node beside those of the holders.
        wait_for_children(server(), path, 3);
        assert!(!waiter.is_finished());
        assert_eq!(kazoo.say("try c"), "no");
        tell(&mut kazoo, "release a");
        let permit = waiter.join().expect("no panic").expect("its turn");
        assert!(permit.is_held());
        assert_eq!(kazoo.say("try a"), "no");
    });
    tell(&mut kazoo, "release b");
    wait_for_children(server(), path, 0);
}

#[test]
fn who_waits_is_served_in_the_order_of_arrival() {
    let path = "/kazoo/semaphore/order";
    let (mut kazoo, clients) = (kazoo_with_three(path, 1), [client(), client()]);
    let [holder, third] = clients.each_ref().map(|client| semaphore(client, path, 1));
    let queue = queue_of(path);
    let permit = holder.acquire().expect("free");
    tell(&mut kazoo, "begin a");
    wait_for_children(server(), &queue, 1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| gets_one(&third));
        wait_for_children(server(), &queue, 2);
        tell(&mut kazoo, "begin b");
        wait_for_children(server(), &queue, 3);
        drop(permit);
        tell(&mut kazoo, "finish a");
        assert!(!waiter.is_finished());
        assert_eq!(kazoo.say("begun? b"), "no");
        tell(&mut kazoo, "release a");
        let permit = waiter.join().expect("no panic").expect("its turn");
        assert_eq!(kazoo.say("begun? b"), "no");
        drop(permit);
        tell(&mut kazoo, "finish b");
        tell(&mut kazoo, "release b");
    });
    wait_for_children(server(), path, 0);
    wait_for_children(server(), &queue, 0);
}

#[test]
fn we_refuse_another_maximum_than_kazoos() {
    let path = "/kazoo/semaphore/kazoos-max";
    let (mut kazoo, client) = (kazoo_with_three(path, 3), client());
    tell(&mut kazoo, "acquire a");
    let two = semaphore(&client, path, 2);
    for error in [
        two.acquire().map(drop).expect_err("they disagree"),
        two.try_acquire().map(drop).expect_err("they disagree"),
    ] {
        assert!(error.is_invalid());
        let text = error.to_string();
        assert!(
            text.contains("at most 2") && text.contains("at most 3"),
            "{text}"
        );
    }
    assert_eq!(children(server(), path).len(), 1);
    wait_for_children(server(), &queue_of(path), 0);
    let three = semaphore(&client, path, 3);
    assert!(three.try_acquire().expect("they agree").is_some());
}

#[test]
fn kazoo_refuses_another_maximum_than_ours() {
    let path = "/kazoo/semaphore/our-max";
    let (mut kazoo, client) = (kazoo_with_three(path, 3), client());
    let _permit = semaphore(&client, path, 2).acquire().expect("free");
    let refused = "error ValueError: Inconsistent max leases: 2, expected: 3";
    assert_eq!(kazoo.say("acquire a"), refused);
    assert_eq!(kazoo.say("try b"), refused);
    tell(&mut kazoo, &format!("semaphore d {path} 2"));
    assert_eq!(kazoo.say("try d"), "yes");
}

#[test]
fn a_semaphore_mutex_is_kazoos_semaphore_of_one() {
    let path = "/kazoo/semaphore/mutex";
    let (mut kazoo, client) = (kazoo_with_three(path, 1), client());
    let lock = SemaphoreMutex::builder(&client, path)
        .dialect(Dialect::Kazoo)
        .build()
        .expect("a good path");
    let guard = lock.lock().expect("free");
    assert_eq!(kazoo.say("try a"), "no");
    tell(&mut kazoo, "begin b");
    wait_for_children(server(), &queue_of(path), 1);
    assert_eq!(kazoo.say("begun? b"), "no");
    drop(guard);
    tell(&mut kazoo, "finish b");
    assert!(lock.try_lock().expect("answers").is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(SOON).expect("answers").is_some());
        wait_for_children(server(), path, 2);
        tell(&mut kazoo, "release b");
        assert!(waiter.join().expect("no panic"), "its turn");
    });
    wait_for_children(server(), path, 0);
}

/// As kazoo's `run`.
fn run(semaphore: &Semaphore, history: &History) {
    for _ in 0..ROUNDS {
        // Bounded, because a kazoo that failed may hold it still.
        let _permit = gets_one(semaphore).expect("its turn");
        history.record(OUR_SECTION, "1");
    }
}

/// One permit is ours all the time: whatever kazoo does, it does beside us.
#[test]
fn never_more_than_the_maximum_are_inside_over_both() {
    let path = "/kazoo/semaphore/history";
    let history = History::new();
    let mut kazoos: Vec<_> = (0..KAZOOS).map(|_| kazoo_with_three(path, MAX)).collect();
    let clients = [client(), client()];
    let [shared, blocker] = clients
        .each_ref()
        .map(|client| semaphore(client, path, MAX));
    let kept = blocker.acquire().expect("free");
    // Held until all stand in the queue: otherwise one side could be done before the other began.
    let others = blocker.acquire_many(MAX - 1).expect("free");
    let begun = history::now();
    thread::scope(|scope| {
        for kazoo in &mut kazoos {
            kazoo.command(&format!("run a {ROUNDS} {}", history.path().display()));
        }
        for _ in 0..THREADS {
            scope.spawn(|| run(&shared, &history));
        }
        // Our threads queue with one node.
        wait_for_children(server(), &queue_of(path), KAZOOS + 1);
        drop(others);
        for kazoo in &mut kazoos {
            assert_eq!(kazoo.answer(), "ok");
        }
    });
    history.write(begun, "1");
    drop(kept);
    let sections = history.sections();
    let done = (count(&sections, "kazoo"), count(&sections, OURS));
    assert_eq!(done, (KAZOOS * ROUNDS, THREADS * ROUNDS + 1));
    assert_eq!(most_at_once(&sections), i64::from(MAX));
    wait_until("nothing is left", SOON, || {
        children(server(), path).is_empty() && children(server(), &queue_of(path)).is_empty()
    });
}
