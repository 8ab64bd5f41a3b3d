//! A logger is somebody else's code: it may block for ever, and it may panic.
//!
//! Lines were once written by the threads that bring replies, tell of losses and clear up. A logger
//! that waited, for a full disk or for a lock of the program, then kept all of that waiting. Loggers
//! are global, so the test starts its own program again to have one that is stuck.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
#[cfg(feature = "zookeeper")]
use std::sync::Arc;
use std::time::Duration;

use testbed::process::test_alone;
use testbed::{Direction, Proxy, wait_for_some};
use zklock::{
    AcquireOptions, ConnectionEvent, DoubleBarrier, LossReason, MultiLock, RwLock, Semaphore,
    SharedCount, SimpleMutex,
};

use crate::fixtures::{SOON, client_at, mutex, server};

const SERVER: &str = "ZKLOCK_TEST_STUCK_LOGGER_AT";
const PANICS: &str = "ZKLOCK_TEST_LOGGER_PANICS";

#[test]
fn a_stuck_logger_delays_no_loss_and_no_lead() {
    runs_well("with_a_bad_logger", false);
}

#[test]
fn a_panicking_logger_delays_no_loss_and_no_lead() {
    runs_well("with_a_bad_logger", true);
}

#[test]
fn a_stuck_logger_hangs_no_verb() {
    runs_well("every_verb_with_a_bad_logger", false);
}

/// Two recipes once logged on the caller's thread, between winning a node and giving out its guard:
/// the node was an orphan as long as the session lived. A Drop did while a panic unwound: that ends
/// the program.
#[test]
fn a_panicking_logger_orphans_no_node_and_aborts_nothing() {
    runs_well("every_verb_with_a_bad_logger", true);
}

/// The crate logs on its own threads and on its callers'.
#[cfg(feature = "zookeeper")]
#[test]
fn a_logger_that_is_stuck_in_a_handle_harms_no_lock() {
    runs_well("with_a_handle_and_a_bad_logger", false);
}

#[cfg(feature = "zookeeper")]
#[test]
fn a_logger_that_panics_in_a_handle_harms_no_lock() {
    runs_well("with_a_handle_and_a_bad_logger", true);
}

fn runs_well(test: &str, panics: bool) {
    let mut command = test_alone(module_path!(), test);
    command.env(SERVER, server().addr().to_string());
    if panics {
        command.env(PANICS, "1");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test's program can be started");
    let ended = wait_for_some(3 * SOON, || child.try_wait().expect("it is our child"));
    if ended.is_none() {
        child.kill().expect("it is our child");
    }
    let ran = child.wait_with_output().expect("it is our child");
    assert!(ran.status.success(), "{ran:?}");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(said.contains("1 passed"), "{said}");
}

struct BadLogger;

impl log::Log for BadLogger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // The tests have lines of their own.
        let of = |krate| record.target().starts_with(krate);
        if !(of("zklock") || of("zookeeper") || of("mio")) {
            return;
        }
        if env::var_os(PANICS).is_some() {
            std::panic::resume_unwind(Box::new("a logger's own fault"));
        }
        loop {
            std::thread::park();
        }
    }

    fn flush(&self) {}
}

/// The other half of the tests above; by itself it does nothing.
#[test]
fn with_a_bad_logger() {
    let Ok(server) = env::var(SERVER) else {
        return;
    };
    log::set_logger(&BadLogger).expect("the first one");
    log::set_max_level(log::LevelFilter::Trace);
    let proxy = Proxy::start(server.parse().expect("an address"));
    let client = client_at(&proxy.connect_string());
    let other = client_at(&server);
    let path = format!("/stuck-logger/{}", std::process::id());
    let lock = mutex(&client, &path);
    // A removal, which a worker sees.
    let guard = lock.lock().expect("free");
    let holder = &lock.participants().expect("an answer")[0];
    let breaker = mutex(&other, &path);
    assert!(breaker.break_lock(holder).expect("an answer"));
    let told = guard.lost().recv_timeout(SOON);
    assert_eq!(told, Ok(LossReason::Removed));
    assert!(guard.unlock().is_err());
    // A break and a lost session, which the link and the monitor see; and the next lead.
    let guard = lock.lock().expect("free");
    let events = client.events();
    proxy.black_hole(Direction::Both);
    let told = guard.lost().recv_timeout(SOON);
    assert_eq!(told, Ok(LossReason::Session));
    proxy.heal();
    assert!(guard.unlock().is_err());
    let seen = |event: ConnectionEvent| {
        matches!(event, ConnectionEvent::Connected { .. })
            .then_some(())
            .ok_or(())
    };
    while seen(events.recv_timeout(SOON).expect("it connects again")).is_err() {}
    let next = lock.try_lock_for(SOON).expect("an answer");
    assert!(next.is_some_and(|guard| guard.is_held()));
}

/// The main verbs of the recipes: taken, given back, dropped, timed out, lost, dropped while a panic
/// unwinds. Nothing of it is left behind.
#[test]
fn every_verb_with_a_bad_logger() {
    let Ok(server) = env::var(SERVER) else {
        return;
    };
    let (client, other) = (client_at(&server), client_at(&server));
    log::set_logger(&BadLogger).expect("the first one");
    log::set_max_level(log::LevelFilter::Trace);
    let path = |name: &str| format!("/bad-logger/{}/{name}", std::process::id());
    let short = || AcquireOptions::new().timeout(Duration::from_millis(50));

    let one = mutex(&client, &path("mutex"));
    let same = mutex(&other, &path("mutex"));
    one.lock().expect("free").unlock().expect("confirmed");
    let guard = one.lock().expect("free");
    assert!(
        same.lock_with(short())
            .is_err_and(|error| error.is_timeout())
    );
    drop(guard);
    // Lost, and dropped while a panic unwinds: the release has something to say.
    let guard = one.lock().expect("free");
    let holder = &same.participants().expect("an answer")[0];
    assert!(same.break_lock(holder).expect("an answer"));
    guard.lost().recv_timeout(SOON).expect("told");
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("the program's own"));
    }));
    assert!(unwound.is_err());
    drop(same.lock().expect("free"));

    let simple = SimpleMutex::new(&client, &path("simple")).expect("good");
    let same = SimpleMutex::new(&other, &path("simple")).expect("good");
    for _ in 0..3 {
        let guard = simple.lock().expect("free");
        assert!(
            same.lock_with(short())
                .is_err_and(|error| error.is_timeout())
        );
        guard.unlock().expect("confirmed");
        drop(same.lock().expect("free"));
    }

    let pool = Semaphore::new(&client, &path("semaphore"), 2).expect("good");
    let permits = pool.acquire_many(2).expect("free");
    assert!(
        pool.acquire_with(short())
            .is_err_and(|error| error.is_timeout())
    );
    permits.release().expect("confirmed");
    assert_eq!(pool.available().expect("an answer"), 2);

    let rw = RwLock::new(&client, &path("rw")).expect("good");
    let writing = rw.write().expect("free");
    drop(writing.downgrade().expect("held"));
    drop(rw.read().expect("free"));

    let parts = ["a", "b"].map(|name| mutex(&client, &path(name)));
    let all = parts
        .iter()
        .fold(MultiLock::builder(), zklock::MultiLockBuilder::with);
    let all = all.build().expect("different");
    all.lock().expect("free").unlock().expect("confirmed");
    drop(all.lock().expect("free"));

    let meeting = DoubleBarrier::new(&client, &path("double"), 1).expect("good");
    meeting.enter().expect("alone").leave().expect("alone");
    drop(meeting.enter().expect("alone"));
    let next = meeting.enter().expect("nobody is left behind");
    next.leave().expect("alone");

    let count = SharedCount::new(&client, &path("count"), 1).expect("good");
    assert_eq!(count.add(1).expect("an answer"), 2);

    // Nor does it keep anybody waiting who connects.
    drop(
        mutex(&client_at(&server), &path("late"))
            .lock()
            .expect("free"),
    );
    client.close();
    for name in ["mutex", "a", "b"] {
        let lock = mutex(&other, &path(name));
        assert!(lock.participants().expect("an answer").is_empty(), "{name}");
        drop(lock.try_lock().expect("an answer").expect("free"));
    }
    let simple = SimpleMutex::new(&other, &path("simple")).expect("good");
    drop(simple.try_lock().expect("an answer").expect("free"));
}

/// The logger goes bad while there is a handle, on a lock's session, and another is wanted then.
#[cfg(feature = "zookeeper")]
#[test]
fn with_a_handle_and_a_bad_logger() {
    let Ok(server) = env::var(SERVER) else {
        return;
    };
    let proxy = Proxy::start(server.parse().expect("an address"));
    let client = client_at(&proxy.connect_string());
    let path = |name: &str| format!("/bad-logger-handle/{}/{name}", std::process::id());
    let held = mutex(&client, &path("held"));
    let guard = held.lock().expect("free");
    let busy = mutex(&client, &path("busy"));
    let works = || {
        for _ in 0..20 {
            busy.lock().expect("its turn").unlock().expect("confirmed");
        }
    };
    works();
    let zookeeper = client.zookeeper().expect("connected");
    let seen = zookeeper.get_children_w(&path("busy"), |_| ());
    seen.expect("it stands");
    // In nobody's hands: its last owner drops it.
    let resting = client_at(&server);
    let unused = resting.zookeeper().expect("connected");
    let session = client.session_id();
    log::set_logger(&BadLogger).expect("the first one");
    log::set_max_level(log::LevelFilter::Trace);
    // A caller of the crate's, on a thread of its own: it may never come back.
    let asks = Arc::clone(&zookeeper);
    std::thread::spawn(move || {
        drop(catch_unwind(AssertUnwindSafe(|| asks.exists("/", false))));
    });
    // The event wakes the crate's threads.
    works();
    proxy.reset_all();
    works();
    assert_eq!(client.session_id(), session);
    // Another one, or an error, and no panic here.
    drop(client.zookeeper());
    drop((zookeeper, unused));
    drop(client.zookeeper());
    works();
    assert!(guard.lost().is_empty());
    guard.unlock().expect("held all the time");
    client.close();
    resting.close();
    let other = client_at(&server);
    let held = mutex(&other, &path("held"));
    drop(held.try_lock().expect("an answer").expect("free"));
}
