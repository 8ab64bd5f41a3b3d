//! One leader of many processes, which steps down after a while for another.
//!
//! Who leads works in a thread of its own, step by step, and writes the beginning and the end of
//! each step into a journal. No step of one leader overlaps one of another, also when a leader steps
//! down in the middle of a step: its worker is told and waited for, and only then the next one leads.
//!
//! ```text
//! cargo run --example leader -- --journal /tmp/journal     # in two terminals
//! ```

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;
use crossbeam_channel::{RecvTimeoutError, after, bounded, select};
use zklock::{CancelToken, Client, Election, LeaderWorker, Leadership};

/// Between two steps.
const PAUSE: Duration = Duration::from_millis(10);

/// Stands for leader again and again.
#[derive(Parser)]
struct Arguments {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(long, env = "ZK_CONNECT", default_value = "localhost:2181")]
    servers: String,
    /// The election's path.
    #[arg(long, default_value = "/leaders/indexer")]
    lock: String,
    /// A file to which steps are appended.
    #[arg(long)]
    journal: PathBuf,
    /// How many steps to begin before it stands no more.
    #[arg(long, default_value = "5")]
    steps: u32,
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
    let note = move |what: &str| {
        let line = format!("{} {what}\n", std::process::id());
        // In one write, which the system appends whole.
        (&journal)
            .write_all(line.as_bytes())
            .expect("a file that can be written");
    };
    let length = Duration::from_millis(arguments.step_ms);
    let begun = Arc::new(AtomicU32::new(0));
    let steps = Arc::clone(&begun);
    let step: Step = Arc::new(move || {
        steps.fetch_add(1, Ordering::Relaxed);
        note("begins");
        thread::sleep(length);
        note("ends");
    });
    let client = Client::connect(&arguments.servers)?;
    let election = Election::builder(&client, &arguments.lock)
        .pause(PAUSE)
        .build()?;
    let term = Duration::from_millis(arguments.term_ms);
    let stop = CancelToken::new(); // `stop.cancel()`, in a handler of signals, ends it in order
    election.serve(&stop, |leadership| {
        lead(leadership, term, &step);
        if begun.load(Ordering::Relaxed) < arguments.steps {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(())
}

// What follows stands on docs/coming-from.md as well.

type Step = Arc<dyn Fn() + Send + Sync>;

/// Leads until the leadership is lost or the program is to stop, or for `term`, or until its worker
/// panics. When it has returned, `serve` tells the worker, waits until it has gone, and then lets
/// another one lead.
fn lead(leadership: &Leadership, term: Duration, step: &Step) {
    let (worker, step) = (leadership.worker(), Arc::clone(step));
    let (works, ended) = bounded::<Infallible>(0);
    thread::spawn(move || {
        let _works = works; // dropped at the end of this thread, however it ends
        work(&worker, &*step);
    });
    let leader = leadership.view(); // hasLeadership() for other threads
    select! {
        recv(leader.lost()) -> why => println!("no longer the leader: {why:?}"), // notLeader()
        recv(ended) -> _ => println!("nobody works"), // a leader that does nothing keeps others out
        recv(after(term)) -> _ => println!("stepping down"),
    }
}

/// Looks before each step, until the leadership is lost or given back.
fn work(worker: &LeaderWorker, step: &dyn Fn()) {
    while worker.lost().recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        if worker.is_held() {
            step(); // not while there is no contact
        }
    }
}
