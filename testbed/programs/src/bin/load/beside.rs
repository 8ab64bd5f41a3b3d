//! Several processes that take turns with one lock, beside as many Java processes that do so with
//! Curator's `InterProcessMutex`: in turns on the same server, with the same records.

use std::path::Path;
use std::time::Duration;

use super::crew::{self, Load, Outcome, show_ns};
use super::history::percentile;
use super::traffic::Traffic;
use testbed::measure::results::{self, Pair};
use testbed::measure::table::{digits, median};
use testbed::{Curator, at_full_speed};

const ROUNDS: usize = 5;
/// Long enough for some hundreds of the slowest's sections.
const STRETCH: Duration = Duration::from_secs(4);
/// Of each Java process on a lock of its own, where it gets through far more cycles than on one
/// that it shares: Java compiles what has run often.
const WARM_UP: Duration = Duration::from_secs(15);
/// So that the code of a wait is compiled too.
const WARM_UP_THREADS: u32 = 2;

/// Processes, threads of each, and how many times Curator's rate is wanted.
const SHAPES: [(u32, u32, f64); 3] = [(4, 1, 3.0), (4, 8, 6.0), (8, 1, 4.0)];

pub(crate) fn table(servers: &str) {
    at_full_speed();
    let most = SHAPES.iter().map(|(processes, ..)| *processes).max();
    let mut machines = Machines::start(servers, most.expect("there are shapes"));
    machines.warm_up();
    println!("\n### Several processes on one lock, beside Curator's\n");
    println!(
        "| | sections/s | : Curator | target | wait p50 | p99 | longest | longest gap | \
         requests a section | shares |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|---|");
    let mut pairs = Vec::new();
    for (processes, threads, target) in SHAPES {
        let name = format!("{processes} x {threads}");
        let load = Load {
            seconds: STRETCH.as_secs(),
            ..Load::new(servers.to_owned(), processes, threads)
        };
        let rounds = rounds(&load, &mut machines);
        let ours: Vec<&Figures> = rounds.iter().map(|(ours, _)| ours).collect();
        let theirs: Vec<&Figures> = rounds.iter().map(|(_, theirs)| theirs).collect();
        let ratios = rounds.iter().map(|(ours, theirs)| ours.rate / theirs.rate);
        let ratio = median(ratios).expect("there were rounds");
        let against = format!("{} x | ≥ {target} x", digits(ratio));
        line(&name, &against, &ours);
        line(&format!("{name}, Curator"), "|", &theirs);
        pairs.push(Pair {
            name,
            ours: middle(&ours, |figures| figures.rate),
            theirs: middle(&theirs, |figures| figures.rate),
            ratio,
        });
    }
    println!("\n(Medians of {ROUNDS} rounds of {STRETCH:?} each; of the shares, the extremes.)");
    results::save_pairs(results::BY_PROCESSES, &pairs);
}

/// What ours and theirs came to, round by round.
fn rounds(load: &Load, machines: &mut Machines) -> Vec<(Figures, Figures)> {
    // Not counted: a folder is made, and every process meets the others.
    machines.run(load);
    let rounds = (0..ROUNDS).map(|round| {
        // Whatever goes first may find the processor in another mood.
        if round % 2 == 0 {
            let ours = crew::run(load);
            (Figures::of(&ours), Figures::of(&machines.run(load)))
        } else {
            let theirs = machines.run(load);
            (Figures::of(&crew::run(load)), Figures::of(&theirs))
        }
    });
    rounds.collect()
}

fn line(name: &str, against: &str, rounds: &[&Figures]) {
    let show = |of: fn(&Figures) -> u64| {
        let mut all: Vec<u64> = rounds.iter().map(|figures| of(figures)).collect();
        all.sort_unstable();
        show_ns(percentile(&all, 50))
    };
    let shares = || rounds.iter().flat_map(|figures| &figures.shares);
    println!(
        "| {name} | {} | {against} | {} | {} | {} | {} | {} | {:.0}-{:.0}% |",
        digits(middle(rounds, |figures| figures.rate)),
        show(|figures| figures.wait_p50_ns),
        show(|figures| figures.wait_p99_ns),
        show(|figures| figures.longest_wait_ns),
        show(|figures| figures.longest_gap_ns),
        digits(middle(rounds, |figures| figures.requests)),
        shares().copied().fold(f64::INFINITY, f64::min),
        shares().copied().fold(0.0, f64::max),
    );
}

fn middle(rounds: &[&Figures], of: fn(&Figures) -> f64) -> f64 {
    median(rounds.iter().map(|figures| of(figures))).expect("there were rounds")
}

/// What one round of one side came to.
struct Figures {
    rate: f64,
    wait_p50_ns: u64,
    wait_p99_ns: u64,
    longest_wait_ns: u64,
    longest_gap_ns: u64,
    /// For each section; not a number where the server does not answer `mntr`.
    requests: f64,
    /// Of the processes, in percent.
    shares: Vec<f64>,
}

impl Figures {
    fn of(outcome: &Outcome) -> Figures {
        assert!(outcome.overlap.is_none(), "{outcome}");
        let sections = outcome.history.len().max(1) as f64;
        let shares = outcome.shares.iter();
        let requests = outcome.traffic.map(|traffic| traffic.received as f64);
        Figures {
            rate: outcome.rate(),
            wait_p50_ns: percentile(&outcome.waits_ns, 50),
            wait_p99_ns: percentile(&outcome.waits_ns, 99),
            longest_wait_ns: percentile(&outcome.waits_ns, 100),
            longest_gap_ns: outcome.history.longest_gap_ns(),
            requests: requests.map_or(f64::NAN, |requests| requests / sections),
            shares: shares
                .map(|share| *share as f64 * 100.0 / sections)
                .collect(),
        }
    }
}

/// Java processes, which live on from round to round.
struct Machines {
    servers: String,
    all: Vec<Curator>,
}

impl Machines {
    fn start(servers: &str, count: u32) -> Machines {
        let all = (0..count).map(|_| Curator::start_apart(servers));
        Machines {
            servers: servers.to_owned(),
            all: all.collect(),
        }
    }

    fn warm_up(&mut self) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        for (number, machine) in (0..).zip(&mut self.all) {
            let path = format!("/curator/{number}");
            let records = crew::records_of(folder.path(), number);
            machine.command(&load(&path, WARM_UP_THREADS, WARM_UP, number, &records));
        }
        self.all.iter_mut().for_each(Curator::done);
    }

    /// As [`crew::run`], by as many of the processes as the load wants.
    fn run(&mut self, load: &Load) -> Outcome {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let lasts = Duration::from_secs(load.seconds);
        let start = Traffic::read(&self.servers);
        for (number, machine) in (0..load.processes).zip(&mut self.all) {
            let records = crew::records_of(folder.path(), number);
            machine.command(&self::load(
                "/curator",
                load.threads,
                lasts,
                number,
                &records,
            ));
        }
        for (_, machine) in (0..load.processes).zip(&mut self.all) {
            machine.done();
        }
        let end = Traffic::read(&self.servers);
        let traffic = end.zip(start).map(|(end, start)| end - start);
        Outcome::gather(folder.path(), load.processes, traffic)
    }
}

/// The command of `testbed/curator/Puppet.java`.
fn load(path: &str, threads: u32, lasts: Duration, number: u32, records: &Path) -> String {
    let (lasts, records) = (lasts.as_millis(), records.display());
    format!("load {path} {threads} {lasts} {number} {records}")
}
