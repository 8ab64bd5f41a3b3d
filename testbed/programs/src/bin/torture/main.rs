//! The torture: real servers, worker processes that take a lock again and again, a nemesis that does
//! harm to all of them, and a checker that reads what happened.
//!
//! Only the choice of harm and of what the workers do comes from the seed. When things happen is up
//! to the machine, so a seed finds a fault again by its kind of trouble, not for sure.

mod aim;
mod crew;
mod faults;
mod leftovers;
mod nemesis;
mod program;
mod stage;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use testbed_programs::random::Random;

use nemesis::Nemesis;
use stage::{LOCKS, PEERS, Plan, Stage};

/// Tortures locks on an ensemble of three real servers, and says whether they kept their promises.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where random choices begin. By default another one each time.
    #[arg(long)]
    seed: Option<u64>,
    /// For how long, for each lock.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// mutex, rw, semaphore, semaphore-mutex, simple-mutex, multi, election, once; any, which the
    /// seed chooses; all, one after the other. Those of other libraries: kazoo-mutex, curator-mutex,
    /// kazoo-election, curator-latch; peers, all of these.
    #[arg(long, default_value = "mutex")]
    lock: String,
    /// The session timeout of the workers. The servers' tick is a quarter of it.
    #[arg(long, default_value_t = 2000)]
    session_ms: u32,
    /// After how many ticks of silence a follower and a leader give each other up. The default is
    /// longer than a session: a follower without a leader answers after its sessions' end.
    #[arg(long, default_value_t = 12)]
    sync_limit: u32,
    /// Does no harm, to see that the workers and the checker agree about what is right.
    #[arg(long)]
    calm: bool,
    /// Does no other harm than that servers refuse for now what they are asked, lose track of it, or
    /// take nothing.
    #[arg(long)]
    refusals: bool,
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
        "peers" => PEERS.to_vec(),
        lock => LOCKS
            .into_iter()
            .chain(PEERS)
            .filter(|known| *known == lock)
            .collect(),
    };
    if locks.is_empty() {
        let known = [LOCKS.join(", "), PEERS.join(", ")].join(", ");
        eprintln!("torture: --lock is all, any, peers or one of {known}");
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
        let time = Duration::from_secs_f64(arguments.minutes * 60.0);
        all_is_well &= torture(&plan, time, &arguments);
    }
    ExitCode::from(u8::from(!all_is_well))
}

/// Plays one plan and has it judged.
fn torture(plan: &Plan, time: Duration, arguments: &Arguments) -> bool {
    let mut stage = Stage::set(plan);
    if arguments.calm {
        // This is how long it lasts, not a wait for anything.
        thread::sleep(time);
    } else {
        Nemesis::new(plan.seed, arguments.refusals).play(&mut stage, time);
    }
    stage.end();
    drop(stage);
    let judged = Command::new(program::built("torture_checker"))
        .arg(&plan.folder)
        .status()
        .expect("built together with this");
    println!("history: {}", plan.folder.display());
    judged.success()
}
