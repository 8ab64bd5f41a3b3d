//! The torture: real servers, worker processes that take a lock again and again, a nemesis that does
//! harm to all of them, and a checker that reads what happened.
//!
//! Only the choice of harm and of what the workers do comes from the seed. When things happen is up
//! to the machine, so a seed finds a fault again by its kind of trouble, not for sure.

// A tool of this repository: there is nothing to document, and a failed expectation ends it.
#![allow(missing_docs, clippy::expect_used)]

mod aim;
mod crew;
mod faults;
mod history;
mod leftovers;
mod nemesis;
mod random;
mod stage;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;

use nemesis::Nemesis;
use random::Random;
use stage::{LOCKS, Plan, Stage};

/// Tortures locks on an ensemble of three real servers, and says whether they kept their promises.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where random choices begin. By default another one each time.
    #[arg(long)]
    seed: Option<u64>,
    /// For how long, for each lock.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// mutex, rw, semaphore, semaphore-mutex, simple-mutex, multi; any, which the seed chooses; or
    /// all, one after the other.
    #[arg(long, default_value = "mutex")]
    lock: String,
    /// The session timeout of the workers. The servers' tick is a quarter of it.
    #[arg(long, default_value_t = 2000)]
    session_ms: u32,
    /// After how many ticks of silence a follower and a leader give each other up. The default is
    /// longer than a session: a follower without a leader answers after its sessions' end.
    #[arg(long, default_value_t = 12)]
    sync_limit: u32,
    /// Where histories are kept.
    #[arg(long, default_value = "target/torture")]
    folder: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| u64::from(since.subsec_nanos()))
    });
    let locks: Vec<&str> = match arguments.lock.as_str() {
        "all" => LOCKS.to_vec(),
        "any" => vec![Random::new(seed).of(&LOCKS)],
        lock => LOCKS
            .iter()
            .copied()
            .filter(|known| *known == lock)
            .collect(),
    };
    if locks.is_empty() {
        eprintln!("torture: --lock is all, any or one of {}", LOCKS.join(", "));
        return ExitCode::from(2);
    }
    let mut all_is_well = true;
    for lock in locks {
        let plan = Plan {
            lock: lock.to_owned(),
            seed,
            session: Duration::from_millis(arguments.session_ms.into()),
            tick_ms: arguments.session_ms / 4,
            sync_limit: arguments.sync_limit,
            folder: arguments.folder.join(format!("{lock}-{seed}")),
        };
        println!("== {lock}, seed {seed}, {} minutes", arguments.minutes);
        all_is_well &= torture(&plan, Duration::from_secs_f64(arguments.minutes * 60.0));
    }
    ExitCode::from(u8::from(!all_is_well))
}

/// Plays one plan and has it judged.
fn torture(plan: &Plan, time: Duration) -> bool {
    let mut stage = Stage::set(plan);
    Nemesis::new(plan.seed).play(&mut stage, time);
    stage.end();
    drop(stage);
    let judged = Command::new(program("torture_checker"))
        .arg(&plan.folder)
        .status()
        .expect("built together with this");
    println!("history: {}", plan.folder.display());
    judged.success()
}

/// A program that was built together with this one.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("we run");
    own.parent().unwrap_or(Path::new(".")).join(name)
}
