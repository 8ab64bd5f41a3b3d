//! Random operations of several sessions, here and on Apache ZooKeeper: every answer, error, stat
//! and event is the same.
//!
//! One operation is in flight over all sessions. After each, every session is drained by a `sync`:
//! what it was told of until then is what the operation told it. Transactions are numbered alike,
//! so their numbers are compared as they are; ids of sessions are replaced by who they are; times
//! are left out; names in lists are sorted. What else may differ stands in [`excuse`].
//!
//! `ZKLOCK_DIFFERENTIAL_SEED` repeats a run, and `ZKLOCK_DIFFERENTIAL_OPERATIONS` says how long it
//! is. A difference is printed with the operations before it.

mod chance;
mod compare;
mod operation;

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zklock_protocol::Reply;

use self::chance::Chance;
use self::compare::{Sight, World};
use self::operation::{Operation, Step};
use crate::support;
use crate::wire::Answer;

/// Long enough that nothing expires.
const TIMEOUT: Duration = Duration::from_secs(30);
const SESSIONS: usize = 4;

fn setting(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

#[test]
fn answers_as_apache_zookeeper_does() {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let seed = setting("ZKLOCK_DIFFERENTIAL_SEED").unwrap_or(u64::from(now.subsec_nanos()));
    let operations = setting("ZKLOCK_DIFFERENTIAL_OPERATIONS").unwrap_or(10_000);
    println!("ZKLOCK_DIFFERENTIAL_SEED={seed} ZKLOCK_DIFFERENTIAL_OPERATIONS={operations}");

    let apache = support::Server::builder()
        .apache()
        .tick_ms(2000)
        .max_session_timeout_ms(60_000)
        .start();
    let ours = zklock_test::Server::builder()
        .tick(Duration::from_secs(2))
        .start()
        .expect("loopback has a free port");
    let mut apache = World::new(apache.addr(), SESSIONS);
    let mut ours = World::new(ours.address(), SESSIONS);
    let mut chance = Chance::new(seed);
    let mut before: Vec<String> = Vec::new();
    for number in 0..operations {
        let operation = Operation::random(&mut chance, SESSIONS);
        let expected = apache.play(&operation);
        let seen = ours.play(&operation);
        let (expected, seen) = (excuse(&operation, expected), excuse(&operation, seen));
        before.push(format!("{number}: {operation:?}\n    {seen:?}"));
        assert_eq!(
            seen,
            expected,
            "\nours is left, Apache's is right; seed {seed}; the last operations:\n{}",
            before[before.len().saturating_sub(30)..].join("\n")
        );
    }
}

/// What may differ, and why.
fn excuse(operation: &Operation, mut sight: Sight) -> Sight {
    // The order in which one session's nodes go is that of a hash table.
    if matches!(operation.step, Step::Close) {
        for told in &mut sight.events {
            told.sort_unstable_by(|(_, a), (_, b)| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
        }
    }
    // Up to 3.8 an event's header says -1, and from 3.9 on which transaction it was.
    for told in &mut sight.events {
        told.iter_mut().for_each(|(zxid, _)| *zxid = -1);
    }
    // What lies beyond 16 bits servers write as two halves, each as if it were a character. There are
    // no such nodes, but a path is repeated in the answer to a sync, and in what `setWatches` missed.
    let as_halves = |path: &mut String| *path = path.replace('🔒', &"\u{fffd}".repeat(6));
    for told in &mut sight.events {
        told.iter_mut()
            .for_each(|(_, event)| as_halves(&mut event.path));
    }
    if let Answer::Reply { reply, .. } = &mut sight.answer
        && let Reply::Path(path) = reply
    {
        as_halves(path);
    }
    sight
}
