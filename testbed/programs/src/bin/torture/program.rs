//! The programs that this one starts.

use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::{curator, kazoo};

/// A program that was built together with this one.
pub(crate) fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("we run");
    own.parent().unwrap_or(Path::new(".")).join(name)
}

/// The worker that takes this lock, without its last arguments: SERVERS, PATH, SESSION_MS, NAME,
/// HISTORY and SEED. All obey the same words and write the same history.
pub(crate) fn worker(lock: &str) -> Command {
    match lock {
        "kazoo-mutex" | "kazoo-election" => {
            let mut python = Command::new(kazoo::python());
            python.arg(kazoo::program("torture_worker.py")).arg(lock);
            python
        }
        "curator-mutex" | "curator-latch" => {
            let mut java = curator::java("TortureWorker").unwrap_or_else(|why| {
                panic!("Curator could not be had. Run: scripts/install-curator\n{why}")
            });
            java.arg(lock);
            java
        }
        ours => {
            let mut worker = Command::new(built("torture_worker"));
            worker.arg(ours);
            worker
        }
    }
}
