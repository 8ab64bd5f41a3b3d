//! The test bed: real ZooKeeper servers, a proxy that does harm on request,
//! and readings of this process, for tests, benchmarks and the demo.
//!
//! Nothing here sleeps and hopes. Whatever takes time is waited for with
//! [`wait_until`]: a condition and a bound, and a panic that names both.
//! Servers and ports belong to the test process; when it ends, however it
//! ends, so do they.

// Every binary that includes this module uses its own part of it.
#![allow(dead_code, unused_imports)]

use std::thread;
use std::time::{Duration, Instant};

pub(crate) mod curator;
mod embedded;
pub(crate) mod ensemble;
pub(crate) mod four_letter;
mod guardian;
mod installation;
pub(crate) mod kazoo;
pub(crate) mod partition;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod quorum_links;
pub(crate) mod raw;
pub(crate) mod server;

pub(crate) use curator::{Curator, at_full_speed};
pub(crate) use ensemble::Ensemble;
pub(crate) use kazoo::Kazoo;
pub(crate) use proxy::{Action, Counters, Direction, Matcher, Proxy, opcode};
pub(crate) use quorum_links::QuorumLinks;
pub(crate) use raw::RawSession;
pub(crate) use server::{Server, ServerBuilder, ServerStats};

/// The pause between two looks at a condition that nothing announces.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks until `condition` holds; panics, naming `what`, when it still does
/// not after `within`.
#[track_caller]
pub(crate) fn wait_until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let found = wait_for_some(within, || condition().then_some(()));
    assert!(found.is_some(), "not within {within:?}: {what}");
}

/// Looks until `probe` finds something, or gives up after `within`. It looks
/// at least once, and once more at the end.
pub(crate) fn wait_for_some<T>(
    within: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> Option<T> {
    let deadline = Instant::now() + within;
    loop {
        let last_look = Instant::now() >= deadline;
        let found = probe();
        if found.is_some() || last_look {
            return found;
        }
        thread::sleep(LOOK_EVERY);
    }
}
