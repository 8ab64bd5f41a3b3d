//! A nightly job that must run once, though every machine has it in its crontab.
//!
//! Who comes first does it. The others hear who did it, or who is at it, and leave; also the machine whose
//! clock is late, and comes when the lock is free again. Which night it is the servers say, so no machine's
//! clock counts, and no night is done after a newer one. When the lock is lost or asked for, the work stops at
//! its next step; the run has failed, and another machine can take it up. When the machine dies, nobody knows how
//! much was done: then somebody has to look, and to say `--allow-again`.
//!
//! ```text
//! cargo run --example nightly -- --steps 20        # in two terminals at once
//! cargo run --example nightly -- --revoke          # ask the runner to stop
//! cargo run --example nightly -- --history         # who did it when
//! ```
//!
//! Ends with 0 when the night is done, by whomever; with 75 ("try again", as `sysexits` has it)
//! when it is not done yet; with 1 when something is wrong.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use crossbeam_channel::{after, select};
use zklock::{Begun, Client, JobRun, OncePer};

/// Runs a nightly job once over all machines.
#[derive(Parser)]
struct Arguments {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(long, env = "ZK_CONNECT", default_value = "localhost:2181")]
    servers: String,
    /// The job's path.
    #[arg(long, default_value = "/jobs/nightly-report")]
    job: String,
    /// How many steps the work has, of half a second each.
    #[arg(long, default_value = "10")]
    steps: u32,
    /// Ask who runs it to stop, instead of running it.
    #[arg(long)]
    revoke: bool,
    /// Show the nights that were run, instead of running one.
    #[arg(long)]
    history: bool,
    /// Let a night be run again that has died, as somebody has looked at it.
    #[arg(long)]
    allow_again: bool,
}

/// What came of this call.
enum Outcome {
    Done,
    TryAgain,
}

/// From midnight to midnight, UTC.
const NIGHT: Duration = Duration::from_secs(24 * 60 * 60);

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::TryAgain) => ExitCode::from(75),
        Err(error) if error.is_connection_loss() => {
            eprintln!("nightly: {error}");
            ExitCode::from(75)
        }
        Err(error) => {
            eprintln!("nightly: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> zklock::Result<Outcome> {
    let client = Client::connect(&arguments.servers)?;
    let job = OncePer::builder(&client, &arguments.job)
        .every(NIGHT)
        .revocable(true)
        .build()?;
    if arguments.revoke {
        return ask_to_stop(&job);
    }
    if arguments.history {
        for run in job.record()?.iter().flat_map(zklock::JobRecord::runs) {
            println!("{run}");
        }
        return Ok(Outcome::Done);
    }
    if arguments.allow_again {
        match job.allow_again()? {
            Some(run) => println!("may be run again: {run}"),
            None => println!("the last run has neither failed nor died"),
        }
        return Ok(Outcome::Done);
    }
    match job.try_begin()? {
        Some(Begun::Run(run)) => work(run, arguments.steps),
        Some(Begun::Done(before)) => {
            println!("nothing to do: {before}");
            Ok(Outcome::Done)
        }
        None => {
            for who in job.lock().participants()? {
                println!("busy: {who}");
            }
            Ok(Outcome::TryAgain)
        }
    }
}

fn ask_to_stop(job: &OncePer) -> zklock::Result<Outcome> {
    let participants = job.lock().participants()?;
    let Some(holder) = participants.iter().find(|one| one.is_holder()) else {
        println!("nobody runs it");
        return Ok(Outcome::Done);
    };
    job.lock().revoke(holder)?;
    println!("asked to stop: {holder}");
    Ok(Outcome::Done)
}

/// Works step by step, and says how it ended.
fn work(run: JobRun, steps: u32) -> zklock::Result<Outcome> {
    if run.missed() > 0 {
        println!("nobody did the last {} nights", run.missed());
    }
    // For the store that the work writes to: it refuses what comes with an older one.
    let token = run.fencing_token()?;
    for step in 1..=steps {
        select! {
            recv(run.lost()) -> why => {
                match why {
                    Ok(why) => eprintln!("stopping at step {step}: {why}"),
                    Err(_) => eprintln!("stopping at step {step}: the lock is lost"),
                }
                // Nobody can write that down any more. The next one will see that it has died.
                return Ok(Outcome::TryAgain);
            }
            recv(run.revocation()) -> _ => {
                eprintln!("stopping at step {step}: somebody asks for the lock");
                run.failed(format!("asked to stop at step {step}"))?;
                return Ok(Outcome::TryAgain);
            }
            // The work of a step.
            recv(after(Duration::from_millis(500))) -> _ => {
                println!("step {step} of {steps}, with token {token}");
            }
        }
    }
    run.done()?;
    println!("the night is done, by us");
    Ok(Outcome::Done)
}
