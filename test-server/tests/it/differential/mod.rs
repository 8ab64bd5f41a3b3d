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

use zklock_protocol::{Acl, Reply};
use zklock_test::Line;

use self::chance::Chance;
use self::compare::{Sight, World};
use self::operation::{Operation, Step};
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

/// What Apache's server is: the line of releases that ours is to behave as, and what it calls itself.
fn line_of(apache: &testbed::Server) -> (Line, String) {
    let srvr = apache.admin("srvr");
    let version = srvr
        .lines()
        .find_map(|line| line.strip_prefix("Zookeeper version: "))
        .expect("a server says what it is");
    let numbers: Vec<_> = version.split(['.', '-']).take(2).collect();
    let line = match numbers[..] {
        ["3", "8"] => Line::V3_8,
        ["3", "9"] => Line::V3_9,
        _ => panic!("nobody has looked yet what {version} does otherwise"),
    };
    (line, version.to_owned())
}

#[test]
fn answers_as_apache_zookeeper_does() {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let seed = setting("ZKLOCK_DIFFERENTIAL_SEED").unwrap_or(u64::from(now.subsec_nanos()));
    let operations = setting("ZKLOCK_DIFFERENTIAL_OPERATIONS").unwrap_or(10_000);
    println!("ZKLOCK_DIFFERENTIAL_SEED={seed} ZKLOCK_DIFFERENTIAL_OPERATIONS={operations}");

    let apache = testbed::Server::builder()
        .apache()
        .tick_ms(2000)
        .max_session_timeout_ms(60_000)
        .start();
    let (line, version) = line_of(&apache);
    println!("beside ZooKeeper {version}");
    let ours = zklock_test::Server::builder()
        .line(line)
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
        let excused = |sight| excuse(&operation, sight);
        let (expected, seen) = (excused(expected), excused(seen));
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
///
/// | line | what | why |
/// |---|---|---|
/// | all | the order of the events when a session ends | its nodes go in the order of a hash table |
/// | all | the order of the users that `auth` stands for | as well |
/// | all | how a path beyond 16 bits is repeated | servers write two halves, each as a character |
fn excuse(operation: &Operation, mut sight: Sight) -> Sight {
    if matches!(operation.step, Step::Close) {
        for told in &mut sight.events {
            told.sort_unstable_by(|(_, a), (_, b)| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
        }
    }
    if let Answer::Reply { reply, .. } = &mut sight.answer
        && let Reply::Acl { acl, .. } = reply
    {
        let of_users = |a: &Acl, b: &Acl| {
            a.permissions == b.permissions && [a, b].iter().all(|entry| entry.scheme == "digest")
        };
        for users in acl.chunk_by_mut(of_users) {
            users.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        }
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
