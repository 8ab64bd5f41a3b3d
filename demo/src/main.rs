//! A batch job on several processes: each thread of each updates one shared ledger, one at a time.
//!
//! `scripts/demo` runs it on three servers in memory, or of Apache ZooKeeper, and kills their leader and
//! one of the workers half-way. At the end the ledger itself shows whether anything was lost.

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

mod ledger;
mod progress;
mod proof;
mod servers;
mod supervisor;
mod worker;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Updates one ledger from many threads of several processes, under one ZooKeeper lock.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand)]
enum Role {
    /// One of the processes; started by the program itself.
    #[command(hide = true)]
    Worker(Work),
    /// Three servers in memory; started by the program itself.
    #[command(hide = true)]
    Servers,
}

/// Starts the workers, does harm half-way, and checks the ledger.
#[derive(Args)]
struct Run {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(long, default_value = "localhost:2181")]
    servers: String,
    /// Start three servers in memory, in a process of their own, and kill their leader half-way.
    #[arg(long, conflicts_with = "servers")]
    in_memory: bool,
    #[arg(long, default_value = "3")]
    processes: NonZeroUsize,
    /// Threads for each process.
    #[arg(long, default_value = "4")]
    threads: NonZeroUsize,
    /// Sections for each thread.
    #[arg(long, default_value = "400")]
    sections: NonZeroUsize,
    /// A shell command to run when half of the sections are done.
    #[arg(long, value_name = "COMMAND")]
    half_way: Option<String>,
    /// Kill a worker at that time, too.
    #[arg(long)]
    kill_worker: bool,
    /// Where to write the ledger; it must not exist. Defaults to a file that is removed at the end.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
}

impl Run {
    /// What each worker has to do.
    fn share(&self) -> usize {
        self.threads.get() * self.sections.get()
    }
}

#[derive(Args)]
struct Work {
    servers: String,
    ledger: PathBuf,
    threads: usize,
    sections: usize,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("error")).init();
    let arguments = Arguments::parse();
    let outcome = match arguments.role {
        None => supervisor::supervise(arguments.run),
        Some(Role::Servers) => servers::serve(),
        Some(Role::Worker(work)) => worker::do_work(&work),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batch: {error}");
            ExitCode::FAILURE
        }
    }
}
