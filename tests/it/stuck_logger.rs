//! A logger is somebody else's code: it may block for ever, and it may panic.
//!
//! Lines were once written by the threads that bring replies, tell of losses and clear up. A logger
//! that waited, for a full disk or for a lock of the program, then kept all of that waiting. Loggers
//! are global, so the test starts its own program again to have one that is stuck.

use std::env;
use std::process::{Command, Stdio};

use zklock::{ConnectionEvent, LossReason};

use crate::fixtures::{SOON, client_at, mutex, server};
use crate::support::{Direction, Proxy, wait_for_some};

const SERVER: &str = "ZKLOCK_TEST_STUCK_LOGGER_AT";
const PANICS: &str = "ZKLOCK_TEST_LOGGER_PANICS";

#[test]
fn a_stuck_logger_delays_no_loss_and_no_lead() {
    runs_well(false);
}

#[test]
fn a_panicking_logger_delays_no_loss_and_no_lead() {
    runs_well(true);
}

fn runs_well(panics: bool) {
    let program = env::current_exe().expect("a test knows its program");
    let mut command = Command::new(program);
    command
        .args(["--exact", "stuck_logger::with_a_bad_logger", "--nocapture"])
        .env(SERVER, server().addr().to_string());
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
        if !record.target().starts_with("zklock") {
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
    let path = format!("/stuck-logger/{}", std::process::id());
    let lock = mutex(&client, &path);
    // A removal, which a worker sees.
    let guard = lock.lock().expect("free");
    let holder = &lock.participants().expect("an answer")[0];
    let other = client_at(&server);
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
