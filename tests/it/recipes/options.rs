//! What the options of a single call mean, at every recipe that takes them.

use std::time::{Duration, Instant};

use testbed::wait_until;
use zklock::{
    AcquireOptions, Barrier, CancelToken, Client, DoubleBarrier, Error, MultiLock, Result, RwLock,
    Semaphore, SemaphoreMutex, SimpleMutex,
};

use crate::fixtures::{SOON, children, client, mutex, server};

type Call = Box<dyn Fn(AcquireOptions) -> Result<Box<dyn std::any::Any>>>;

/// Each verb that takes options, at paths below `base`; and a call that keeps the same busy.
fn verbs(client: &Client, base: &str) -> Vec<(&'static str, Call)> {
    fn held<T: 'static>(guard: Result<T>) -> Result<Box<dyn std::any::Any>> {
        guard.map(|guard| Box::new(guard) as _)
    }
    let at = |name: &str| format!("{base}/{name}");
    let plain = mutex(client, &at("mutex"));
    let simple = SimpleMutex::new(client, &at("simple")).expect("a good path");
    let sent = SemaphoreMutex::new(client, &at("sent")).expect("a good path");
    let read = RwLock::new(client, &at("read")).expect("a good path");
    let write = RwLock::new(client, &at("write")).expect("a good path");
    let permits = Semaphore::new(client, &at("permits"), 2).expect("a good path");
    let several = MultiLock::builder()
        .with(mutex(client, &at("several/a")))
        .with(mutex(client, &at("several/b")))
        .build()
        .expect("two locks");
    let step = DoubleBarrier::new(client, &at("step"), 1).expect("a good path");
    vec![
        (
            "mutex",
            Box::new(move |options| held(plain.lock_with(options))),
        ),
        (
            "simple",
            Box::new(move |options| held(simple.lock_with(options))),
        ),
        (
            "sent",
            Box::new(move |options| held(sent.lock_with(options))),
        ),
        (
            "read",
            Box::new(move |options| held(read.read_with(options))),
        ),
        (
            "write",
            Box::new(move |options| held(write.write_with(options))),
        ),
        (
            "permits",
            Box::new(move |options| held(permits.acquire_many_with(2, options))),
        ),
        (
            "several",
            Box::new(move |options| held(several.lock_with(options))),
        ),
        (
            "step",
            Box::new(move |options| held(step.enter_with(options))),
        ),
    ]
}

/// Keeps a lock of each kind busy by another client; returns what holds.
fn occupy(client: &Client, base: &str) -> Vec<Box<dyn std::any::Any>> {
    let at = |name: &str| format!("{base}/{name}");
    let free = "nobody else is here";
    vec![
        Box::new(mutex(client, &at("mutex")).lock().expect(free)),
        Box::new(
            SimpleMutex::new(client, &at("simple"))
                .and_then(|it| it.lock())
                .expect(free),
        ),
        Box::new(
            SemaphoreMutex::new(client, &at("sent"))
                .and_then(|it| it.lock())
                .expect(free),
        ),
        Box::new(
            RwLock::new(client, &at("read"))
                .and_then(|it| it.write())
                .expect(free),
        ),
        Box::new(
            RwLock::new(client, &at("write"))
                .and_then(|it| it.read())
                .expect(free),
        ),
        Box::new(
            Semaphore::new(client, &at("permits"), 2)
                .and_then(|it| it.acquire())
                .expect(free),
        ),
        Box::new(mutex(client, &at("several/b")).lock().expect(free)),
    ]
}

/// `lock_with` with a timeout of zero was a time-out even where the lock was free, and
/// `try_lock_for` with zero took it.
#[test]
fn no_time_means_one_try() {
    let (client, other) = (client(), client());
    let long_ago = Instant::now();
    wait_until("later", SOON, || Instant::now() > long_ago);
    let settings = [
        ("zero", AcquireOptions::new().timeout(Duration::ZERO)),
        ("over", AcquireOptions::new().deadline(long_ago)),
    ];
    for (kind, options) in settings {
        let base = format!("/options/{kind}");
        let verbs = verbs(&client, &base);
        for (name, call) in &verbs {
            let held = call(options.clone());
            held.map(drop)
                .unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
        }
        let busy = occupy(&other, &base);
        for (name, call) in verbs.iter().take(busy.len()) {
            let error = call(options.clone()).err();
            let error = error.unwrap_or_else(|| panic!("{kind} {name}: two hold"));
            assert!(error.is_timeout(), "{kind} {name}: {error}");
            assert!(error.to_string().contains(&base), "{kind} {name}: {error}");
        }
        // One try writes nothing where somebody is.
        assert_eq!(children(server(), &format!("{base}/mutex")).len(), 1);
    }
}

#[test]
fn no_time_at_a_gate_means_one_look() {
    let gate = Barrier::new(&client(), "/options/gate").expect("a good path");
    let at_once = || AcquireOptions::new().timeout(Duration::ZERO);
    gate.wait_with(at_once()).expect("it is open");
    gate.set().expect("ours");
    assert!(
        gate.wait_with(at_once())
            .is_err_and(|error| error.is_timeout())
    );
    gate.remove().expect("ours");
}

/// Options that were made when a program began were over when it used them.
#[test]
fn a_timeout_begins_with_each_call() {
    let client = client();
    let timeout = Duration::from_secs(2);
    let made = Instant::now();
    let options = AcquireOptions::new().timeout(timeout);
    wait_until("older than the timeout", SOON, || made.elapsed() > timeout);
    for (name, call) in verbs(&client, "/options/kept") {
        let held = call(options.clone());
        held.map(drop)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn of_deadline_and_timeout_the_last_counts() {
    let client = client();
    let lock = mutex(&client, "/options/last");
    let other = mutex(&client, "/options/last");
    let _held = other.lock().expect("free");
    let short = Duration::from_millis(1);
    for options in [
        AcquireOptions::new()
            .deadline(Instant::now() + SOON)
            .timeout(short),
        AcquireOptions::new()
            .timeout(SOON)
            .deadline(Instant::now() + short),
    ] {
        let begun = Instant::now();
        assert!(
            lock.lock_with(options)
                .is_err_and(|error| error.is_timeout())
        );
        assert!(begun.elapsed() < SOON);
    }
}

#[test]
fn a_cancelled_try_does_not_hold() {
    let client = client();
    let token = CancelToken::new();
    token.cancel();
    let options = AcquireOptions::new().timeout(Duration::ZERO).cancel(&token);
    for (name, call) in verbs(&client, "/options/cancelled") {
        let error = call(options.clone()).err();
        assert!(
            error.as_ref().is_some_and(Error::is_cancelled),
            "{name}: {error:?}"
        );
    }
}
