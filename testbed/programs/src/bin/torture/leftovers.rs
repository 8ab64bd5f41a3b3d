//! What is left in ZooKeeper when all rest.

use std::io;
use std::time::Duration;

use crate::crew::{PATH, WORKERS};
use crate::stage::Plan;
use testbed::{Ensemble, RawSession, wait_for_some};

const A_CALL: Duration = Duration::from_secs(5);

/// Nodes that end with a session, and watches beyond those that a lock at rest has. The sessions of
/// the killed, and what is cleared away in the background, get time to end: two session timeouts,
/// and the same again for the machine.
pub(crate) fn count(ensemble: &Ensemble, plan: &Plan) -> (usize, u64) {
    let mut left = (usize::MAX, u64::MAX);
    wait_for_some(plan.session * 4 + A_CALL, || {
        let nodes = ephemerals(ensemble).ok()?;
        let watches = (0..ensemble.size()).map(|index| ensemble.server(index).stats().watch_count);
        let watches: u64 = watches.sum();
        left = (nodes.len(), watches.saturating_sub(kept_by(&plan.lock)));
        (left == (0, 0)).then_some(())
    });
    if left != (0, 0) {
        eprintln!("left: {:?}", ephemerals(ensemble));
    }
    left
}

/// The watches that all who rest may have.
fn kept_by(lock: &str) -> u64 {
    match lock {
        // Each client is told of another maximum, also while it rests.
        "semaphore" | "semaphore-mutex" => WORKERS as u64,
        _ => 0,
    }
}

/// The paths of all nodes of sessions under the lock's folder, and under that of those beside it.
pub(crate) fn ephemerals(ensemble: &Ensemble) -> io::Result<Vec<String>> {
    let mut session = RawSession::open(ensemble.server(ensemble.leader()).addr(), A_CALL)?;
    let mut found = Vec::new();
    let mut folders = vec![
        PATH.to_owned(),
        format!("{PATH}-beside"),
        format!("{PATH}-load"),
    ];
    while let Some(folder) = folders.pop() {
        if !session.exists(&folder)? {
            continue;
        }
        for child in session.children(&folder)? {
            let path = format!("{folder}/{child}");
            match session.stat(&path)? {
                Some(stat) if stat.ephemeral_owner != 0 => found.push(path),
                _ => folders.push(path),
            }
        }
    }
    session.close()?;
    Ok(found)
}
