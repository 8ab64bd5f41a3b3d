//! A nightly job that must run once, though every machine has it in its crontab.
//!
//! Who comes first does it. The others see who does it, or that it is done, and leave. The lock alone
//! cannot say that it was done: a machine whose clock is late comes when the lock is free again. So
//! a record in the shared store (here: a file) says which night was done last, and no night that is
//! not newer is done. It is written with a fencing token, and refuses an older one. When the lock is
//! lost or asked for, the work stops at its next step and can be taken up by another.
//!
//! A machine whose clock is ahead does a night early, and nobody does the nights in between.
//!
//! ```text
//! cargo run --example nightly -- --night 2026-11-21 --steps 20     # in two terminals at once
//! cargo run --example nightly -- --night 2026-11-21 --revoke       # ask the runner to stop
//! ```
//!
//! Ends with 0 when the night is done, by whomever; with 75 ("try again", as `sysexits` has it)
//! when it is not done yet; with 1 when something is wrong.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use crossbeam_channel::{after, select};
use zklock::{Client, FencingToken, Mutex, MutexGuard};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Runs a nightly job once over all machines.
#[derive(Parser)]
struct Arguments {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(long, env = "ZK_CONNECT", default_value = "localhost:2181")]
    servers: String,
    /// The lock's path.
    #[arg(long, default_value = "/jobs/nightly-report")]
    lock: String,
    /// Which night: a date, such as 2026-11-21.
    #[arg(long)]
    night: Night,
    /// The shared store.
    #[arg(long, default_value = "nightly.record")]
    record: PathBuf,
    /// How many steps the work has, of half a second each.
    #[arg(long, default_value = "10")]
    steps: u32,
    /// Ask who runs it to stop, instead of running it.
    #[arg(long)]
    revoke: bool,
}

/// What came of this call.
enum Outcome {
    Done,
    TryAgain,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::TryAgain) => ExitCode::from(75),
        Err(error) => {
            eprintln!("nightly: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<Outcome> {
    let client = match Client::connect(&arguments.servers) {
        Ok(client) => client,
        Err(error) if error.is_connection_loss() => {
            eprintln!("nightly: {error}");
            return Ok(Outcome::TryAgain);
        }
        Err(error) => return Err(error.into()),
    };
    let lock = Mutex::builder(&client, &arguments.lock)
        .revocable(true)
        .build()?;
    if arguments.revoke {
        return ask_to_stop(&lock);
    }
    let Some(guard) = lock.try_lock()? else {
        for who in lock.participants()? {
            println!("busy: {who}");
        }
        return Ok(Outcome::TryAgain);
    };
    // Only now: before, another could have been about to write it.
    let record = Record::read(&arguments.record)?;
    // Not only the same one: the record may have been written by a machine whose clock is ahead of
    // ours, and then our night is over.
    if let Some(last) = record.night.filter(|last| *last >= arguments.night) {
        println!(
            "{} is not newer than {last}, which is done",
            arguments.night
        );
        return Ok(Outcome::Done);
    }
    let token = guard.fencing_token()?;
    if !work(&guard, arguments.steps) {
        return Ok(Outcome::TryAgain);
    }
    Record::write(&arguments.record, &arguments.night, token)?;
    guard.unlock()?;
    println!("{} is done, by us", arguments.night);
    Ok(Outcome::Done)
}

fn ask_to_stop(lock: &Mutex) -> Result<Outcome> {
    let participants = lock.participants()?;
    let Some(holder) = participants.iter().find(|one| one.is_holder()) else {
        println!("nobody runs it");
        return Ok(Outcome::Done);
    };
    lock.revoke(holder)?;
    println!("asked to stop: {holder}");
    Ok(Outcome::Done)
}

/// Works step by step; returns whether it came to the end.
fn work(guard: &MutexGuard, steps: u32) -> bool {
    for step in 1..=steps {
        select! {
            recv(guard.lost()) -> why => {
                match why {
                    Ok(why) => eprintln!("stopping at step {step}: {why}"),
                    Err(_) => eprintln!("stopping at step {step}: the lock is lost"),
                }
                return false;
            }
            recv(guard.revocation()) -> _ => {
                eprintln!("stopping at step {step}: somebody asks for the lock");
                return false;
            }
            // The work of a step.
            recv(after(Duration::from_millis(500))) -> _ => println!("step {step} of {steps}"),
        }
    }
    guard.is_held()
}

/// A date as ISO 8601 writes it: the order of the texts is that of the days.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Night(String);

impl FromStr for Night {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let is_date = text.len() == 10
            && text.char_indices().all(|(at, char)| match at {
                4 | 7 => char == '-',
                _ => char.is_ascii_digit(),
            });
        if is_date {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("{text}: not a date such as 2026-11-21"))
        }
    }
}

impl fmt::Display for Night {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which night was done last, and by what right.
struct Record {
    /// Empty before the first.
    night: Option<Night>,
    token: u64,
}

impl Record {
    fn read(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        };
        let Some((token, night)) = text.trim().split_once(' ') else {
            return Ok(Self {
                night: None,
                token: 0,
            });
        };
        Ok(Self {
            night: Some(night.parse()?),
            token: token.parse()?,
        })
    }

    /// What a store must do itself, in one step: refuse a writer that is late.
    fn write(path: &Path, night: &Night, token: FencingToken) -> Result<()> {
        let before = Self::read(path)?;
        if token.as_u64() < before.token {
            let newest = before.token;
            return Err(format!("refused: token {token} is older than {newest}").into());
        }
        let aside = path.with_extension("new");
        fs::write(&aside, format!("{token} {night}\n"))?;
        fs::rename(&aside, path)?;
        Ok(())
    }
}
