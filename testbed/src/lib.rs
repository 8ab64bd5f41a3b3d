//! The test bed: real ZooKeeper servers, a proxy that does harm on request,
//! readings of this process, and other implementations to share locks with, for the tests, benches and
//! programs of this repository. It knows nothing of zklock.
//!
//! Nothing here sleeps and hopes. Whatever takes time is waited for with
//! [`wait_until`]: a condition and a bound, and a panic that names both.
//! Servers and ports belong to the test process; when it ends, however it
//! ends, so do they.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub mod certificates;
pub mod curator;
mod embedded;
pub mod ensemble;
pub mod four_letter;
pub mod guardian;
mod installation;
pub mod kazoo;
pub mod measure;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod puppet;
pub mod quorum_links;
pub mod raw;
pub mod server;
pub mod terminator;

pub use curator::{Curator, at_full_speed};
pub use ensemble::Ensemble;
pub use guardian::Guardian;
pub use kazoo::Kazoo;
pub use proxy::{Action, Counters, Direction, Matcher, Proxy, opcode};
pub use puppet::Puppet;
pub use quorum_links::QuorumLinks;
pub use raw::RawSession;
pub use server::{Server, ServerBuilder, ServerStats};

/// The repository that this is built from.
fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("it is a folder of the repository")
}

/// The pause between two looks at a condition that nothing announces.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks until `condition` holds; panics, naming `what`, when it still does
/// not after `within`.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let found = wait_for_some(within, || condition().then_some(()));
    assert!(found.is_some(), "not within {within:?}: {what}");
}

/// Looks until `probe` finds something, or gives up after `within`. It looks
/// at least once, and once more at the end.
pub fn wait_for_some<T>(within: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
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
