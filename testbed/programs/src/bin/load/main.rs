//! Puts load on a lock from several processes and threads, checks that no two sections overlapped,
//! and says how fast it was, how long anybody waited, and what it cost the server.
//!
//! ```text
//! load --processes 4 --threads 8 --max-handoffs 64
//! load compare     # the tables of docs/performance.md
//! load compare h   # beside Curator's
//! load plot        # docs/throughput.svg from compare's results
//! load plot-curator # docs/curator.svg, see scripts/beside-curator
//! load failover    # docs/failover.svg
//! ```
//!
//! `load` is `cargo run --release -p testbed-programs --bin load --`. A server is started unless `--servers` or `ZK_CONNECT` names one.

mod bars;
mod beside;
mod compare;
mod costs;
mod crew;
mod failover;
mod herd;
mod history;
mod idle;
mod plot;
mod readers;
mod svg;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use testbed::measure::servers::Servers;

use costs::Subject;
use crew::Load;

/// Load on a lock, from several processes and threads.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    load: Load,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the comparisons and prints them as Markdown tables. Always on servers of its own.
    Compare {
        /// Only these of a to i. Not among the others: h and i, which take Curator and a compiler
        /// of Java, and i strace as well.
        #[arg(default_value = "abcdefg")]
        parts: String,
    },
    /// Draws docs/throughput.svg from the results of the last `compare a`.
    Plot,
    /// Draws docs/curator.svg from the results of the last `cargo bench --bench curator` and
    /// `compare h`.
    PlotCurator,
    /// Kills the leader of three servers of its own while clients take turns under a lock, and
    /// draws docs/failover.svg from their waits.
    Failover,
    /// One of the processes; started by the tool itself.
    #[command(hide = true)]
    Worker {
        #[command(flatten)]
        load: Load,
        #[arg(long)]
        records: PathBuf,
    },
    /// One of the reading processes; started by the tool itself.
    #[command(hide = true)]
    Reader { servers: String, threads: usize },
    /// One of the processes whose cycles are counted; started by the tool itself.
    #[command(hide = true)]
    Cycler { subject: Subject, servers: String },
    /// What a client costs that does nothing; started by the tool itself.
    #[command(hide = true)]
    Idle { servers: String },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        None => run(cli.load),
        Some(Command::Compare { parts }) => {
            compare::run(&parts);
            ExitCode::SUCCESS
        }
        Some(Command::Plot) => {
            plot::run();
            ExitCode::SUCCESS
        }
        Some(Command::PlotCurator) => {
            bars::run();
            ExitCode::SUCCESS
        }
        Some(Command::Failover) => {
            failover::run();
            ExitCode::SUCCESS
        }
        Some(Command::Worker { load, records }) => {
            crew::work(&load, &records);
            ExitCode::SUCCESS
        }
        Some(Command::Reader { servers, threads }) => {
            readers::read(&servers, threads);
            ExitCode::SUCCESS
        }
        Some(Command::Cycler { subject, servers }) => {
            costs::work(subject, &servers);
            ExitCode::SUCCESS
        }
        Some(Command::Idle { servers }) => {
            idle::measure(&servers);
            ExitCode::SUCCESS
        }
    }
}

fn run(mut load: Load) -> ExitCode {
    let server = Servers::given_or_started(load.servers.take());
    load.servers = Some(server.connect_string().to_owned());
    let outcome = crew::run(&load);
    print!("{outcome}");
    if outcome.overlap.is_some() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
