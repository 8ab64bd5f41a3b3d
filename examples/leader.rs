//! One leader of many processes, which steps down after a while for another.
//!
//! Who leads works in a thread of its own, step by step, and writes the beginning and the end of
//! each step into a journal. No step of one leader overlaps one of another, also when a leader steps
//! down in the middle of a step: it tells its worker, waits for it, and only then gives the lock
//! back.
//!
//! ```text
//! cargo run --example leader -- --journal /tmp/journal     # in two terminals
//! ```

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use crossbeam_channel::{RecvTimeoutError, after, select};
use zklock::{Client, HoldView, Mutex};

/// Between two steps.
const PAUSE: Duration = Duration::from_millis(10);

/// Stands for leader again and again.
#[derive(Parser)]
struct Arguments {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(long, env = "ZK_CONNECT", default_value = "localhost:2181")]
    servers: String,
    /// The lock's path.
    #[arg(long, default_value = "/leaders/indexer")]
    lock: String,
    /// A file to which steps are appended.
    #[arg(long)]
    journal: PathBuf,
    /// How often to lead.
    #[arg(long, default_value = "5")]
    terms: u32,
    /// For how long each time.
    #[arg(long, default_value = "500")]
    term_ms: u64,
    /// How long a step takes.
    #[arg(long, default_value = "50")]
    step_ms: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leader: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let mut options = OpenOptions::new();
    let journal = options.append(true).create(true).open(&arguments.journal)?;
    let note = |what: &str| {
        let line = format!("{} {what}\n", std::process::id());
        // In one write, which the system appends whole.
        (&journal)
            .write_all(line.as_bytes())
            .expect("a file that can be written");
    };
    let client = Client::connect(&arguments.servers)?;
    let leadership = Mutex::new(&client, &arguments.lock)?;
    let term = Duration::from_millis(arguments.term_ms);
    for _ in 0..arguments.terms {
        lead(&leadership, term, || {
            note("begins");
            std::thread::sleep(Duration::from_millis(arguments.step_ms));
            note("ends");
        })?;
    }
    Ok(())
}

// What follows stands on docs/coming-from.md as well.

/// Leads until the leadership is lost, or for `term`; returns when the work has ended.
fn lead(leadership: &Mutex, term: Duration, step: impl Fn() + Sync) -> zklock::Result<()> {
    let guard = leadership.lock()?;
    let leader = guard.view(); // isLeader() for other threads
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&leader, &step));
        select! {
            recv(guard.lost()) -> why => println!("no longer the leader: {why:?}"), // notLeader()
            recv(after(term)) -> _ => guard.retire(), // stepping down: the view says so, the lock is ours
        }
        worker.join().expect("no panic"); // nobody of ours works from here on
    });
    drop(guard); // and now somebody else may lead
    Ok(())
}

/// Looks before each step, until the leadership is lost or given back.
fn work(leader: &HoldView, step: impl Fn()) {
    while leader.lost().recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        if leader.is_held() {
            step(); // not while there is no contact
        }
    }
}
