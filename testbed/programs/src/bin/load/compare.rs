//! The comparisons of docs/performance.md, as Markdown.

use std::process::Command;
use std::time::Duration;

use testbed::measure::fifo::Fifo;
use testbed::measure::plain::Plain;
use testbed::measure::results;
use testbed::measure::steady;
use testbed::measure::table::{digits, median, per_cycle};
use testbed::{Counters, Proxy, Server, opcode};
use zklock::{Client, Mutex, WaitStrategy};

use super::beside;
use super::costs;
use super::crew::{self, Load, Outcome, per, show_ns};
use super::herd::{self, Herd};
use super::history::percentile;
use super::readers;

const ROUNDS: usize = 15;
const POLL: Duration = Duration::from_millis(100);
const THREADS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Runs the parts, named by their letters, each on a server of its own.
pub(crate) fn run(parts: &str) {
    for part in parts.chars() {
        let server = Server::builder().optimised().start();
        let servers = server.connect_string();
        warm_up(&servers);
        match part {
            'a' => threads(&servers),
            'b' => processes(&servers),
            'c' => alternation(&server),
            'd' => strategies(&server),
            'e' => crowd(&servers),
            'f' => idle(&servers),
            'g' => readers::table(&servers),
            'h' => beside::table(&servers),
            'i' => costs::table(&servers),
            _ => panic!("parts are a to i, not {part}"),
        }
    }
}

/// Java compiles what has run often.
fn warm_up(servers: &str) {
    let plain = Plain::connect(servers, "/plain");
    for _ in 0..5_000 {
        plain.cycle();
    }
}

// ---- (a) ----

/// Where (a) leaves the rates for `plot`.
pub(crate) const RATES: &str = "throughput.tsv";

fn threads(servers: &str) {
    let client = Client::connect(servers).expect("the server serves");
    let plain = Plain::connect(servers, "/plain");
    let handing = Mutex::new(&client, "/handing").expect("the path is good");
    let apart = Mutex::builder(&client, "/apart").local_hand_off(false);
    let apart = apart.build().expect("the path is good");
    let fifo = Fifo::default();
    let turns = |lock: &Mutex, threads, sections| {
        rate_of(threads, sections, |section| {
            let _guard = lock.lock().expect("healthy");
            section();
        })
    };
    println!("\n### Threads of one process on one lock, sections a second\n");
    println!("| threads | hand-off | no hand-off | bare FIFO | : no hand-off | : FIFO | : plain |");
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    let mut rates = String::new();
    for threads in THREADS {
        // Alone, every section costs a create and a delete.
        let local = if threads == 1 { 300 } else { 10_000 };
        let hand_off = || turns(&handing, threads, local);
        let bare = || {
            rate_of(threads, 10_000, |section| {
                fifo.enter();
                section();
                fifo.leave();
            })
        };
        let rounds: Vec<[f64; 4]> = (0..ROUNDS)
            .map(|round| {
                let plain = rate_of(1, 100, |section| {
                    plain.cycle();
                    section();
                });
                let apart = turns(&apart, threads, 300);
                // Whatever goes first in a pair may find the processor in another mood.
                if round % 2 == 0 {
                    let hand_off = hand_off();
                    [plain, hand_off, apart, bare()]
                } else {
                    let bare = bare();
                    [plain, hand_off(), apart, bare]
                }
            })
            .collect();
        let middle = |of: &dyn Fn(&[f64; 4]) -> f64| {
            median(rounds.iter().map(of)).expect("there were rounds")
        };
        let names = ["plain", "hand-off", "no hand-off", "bare FIFO"];
        for (at, name) in names.into_iter().enumerate() {
            rates += &format!("{name}\t{threads}\t{:.1}\n", middle(&|r| r[at]));
        }
        println!(
            "| {threads} | {} | {} | {} | {} x | {} x | {} x |",
            digits(middle(&|r| r[1])),
            digits(middle(&|r| r[2])),
            digits(middle(&|r| r[3])),
            digits(middle(&|r| r[1] / r[2])),
            digits(middle(&|r| r[1] / r[3])),
            digits(middle(&|r| r[1] / r[0])),
        );
    }
    results::save(RATES, &rates);
}

fn rate_of(threads: u32, sections: u64, in_turn: impl Fn(&dyn Fn()) + Sync) -> f64 {
    1e9 / per_cycle(steady::time_of(threads, sections, in_turn), sections)
}

// ---- (b) ----

fn processes(servers: &str) {
    let load = |processes, threads| Load::new(servers.to_owned(), processes, threads);
    let with = Load {
        max_handoffs: Some(64),
        ..load(4, 8)
    };
    let without = Load {
        no_hand_off: true,
        ..load(4, 8)
    };
    println!("\n### Several processes\n");
    println!(
        "| | sections/s | process hand-overs/s | wait p50 | p99 | longest | \
         let pass | longest run | requests a section | shares |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|---|");
    let mut gains = Vec::new();
    for _ in 0..3 {
        let kept = line("4 x 8, `max_handoffs` 64", &with);
        line("4 x 8, default", &load(4, 8));
        let plain = line("4 x 8, no hand-off", &without);
        gains.push(kept.rate() / plain.rate());
    }
    line("2 x 1", &load(2, 1));
    line("8 x 1", &load(8, 1));
    let gain = median(gains.iter().copied()).expect("there were rounds");
    println!(
        "\n`max_handoffs` 64 : no hand-off, median of the rounds: {} x (target: at least 15 x)",
        digits(gain)
    );
}

fn line(name: &str, load: &Load) -> Outcome {
    let outcome = crew::run(load);
    assert!(outcome.overlap.is_none(), "{outcome}");
    let (sections, hand_overs) = (outcome.history.len(), outcome.history.hand_overs());
    let shares = outcome.shares.iter();
    let shares: Vec<String> = shares
        .map(|share| format!("{:.0}%", *share as f64 * 100.0 / sections as f64))
        .collect();
    println!(
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        digits(outcome.rate()),
        digits(hand_overs as f64 / outcome.history.span().as_secs_f64()),
        outcome.wait(50),
        outcome.wait(99),
        outcome.wait(100),
        outcome.history.most_let_pass(),
        outcome.history.longest_run(),
        outcome
            .traffic
            .map_or_else(|| "?".to_owned(), |traffic| per(traffic.received, sections)),
        shares.join(" "),
    );
    outcome
}

// ---- (c) ----

fn alternation(server: &Server) {
    let proxy = Proxy::start(server.addr());
    let load = Load {
        sections: Some(500),
        // Long enough for the other to be in line before each release.
        sections_work_us: 10_000,
        ..Load::new(proxy.connect_string(), 2, 1)
    };
    let mut counted = Vec::new();
    let counters = std::cell::RefCell::new(&mut counted);
    let count = || counters.borrow_mut().push(proxy.counters());
    let outcome = crew::run_watched(&load, count, count);
    assert!(outcome.overlap.is_none(), "{outcome}");
    let hand_overs = outcome.history.hand_overs();
    println!("\n### Two processes with one thread each, in turns: requests a hand-over\n");
    println!(
        "| hand-overs of sections | creates | deletes | reads | of them lists | events | others |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    let delta = Delta::between(&counted[0], &counted[1]);
    println!(
        "| {hand_overs} of {} | {} | {} | {} | {} | {} | {} |",
        outcome.history.len(),
        per(delta.creates, hand_overs),
        per(delta.deletes, hand_overs),
        per(delta.lists + delta.other_reads, hand_overs),
        per(delta.lists, hand_overs),
        per(delta.events, hand_overs),
        per(delta.others, hand_overs),
    );
}

/// What has gone through a proxy, pings left out.
struct Delta {
    creates: u64,
    deletes: u64,
    lists: u64,
    other_reads: u64,
    others: u64,
    events: u64,
}

impl Delta {
    fn between(start: &Counters, end: &Counters) -> Delta {
        let of = |opcode| end.requested(opcode) - start.requested(opcode);
        let (creates, deletes) = (of(opcode::CREATE), of(opcode::DELETE));
        let lists = of(opcode::GET_CHILDREN) + of(opcode::GET_CHILDREN2);
        let other_reads = of(opcode::EXISTS) + of(opcode::GET_DATA);
        let known = creates + deletes + lists + other_reads + of(opcode::PING);
        let all = end.requests.keys().map(|opcode| of(*opcode)).sum::<u64>();
        Delta {
            creates,
            deletes,
            lists,
            other_reads,
            others: all - known,
            events: end.notifications - start.notifications,
        }
    }

    fn requests(&self) -> u64 {
        self.creates + self.deletes + self.lists + self.other_reads + self.others
    }
}

// ---- (d) ----

fn strategies(server: &Server) {
    let proxy = Proxy::start(server.addr());
    println!("\n### The herd: what one hand-over costs the server\n");
    println!("| wait | waiters | requests | of them lists | events | hand-over p50 | p99 |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    let polling = format!("polling, {POLL:?}");
    for (name, strategy) in [
        ("predecessor", WaitStrategy::PredecessorWatch),
        ("parent", WaitStrategy::ParentWatch),
        (polling.as_str(), WaitStrategy::Polling(POLL)),
    ] {
        for waiters in [8, 64, 256] {
            let herd = Herd {
                waiters,
                sessions: 8,
                strategy,
                hand_overs: 500,
                time: Duration::from_secs(10),
            };
            let path = format!("/herd-{waiters}-{}", &name[..2]);
            let seen = herd::watch(herd, &proxy.connect_string(), &path, || proxy.counters());
            let delta = Delta::between(&seen.start, &seen.end);
            println!(
                "| {name} | {waiters} | {} | {} | {} | {} | {} |",
                per(delta.requests(), seen.hand_overs),
                per(delta.lists, seen.hand_overs),
                per(delta.events, seen.hand_overs),
                show_ns(percentile(&seen.gaps_ns, 50)),
                show_ns(percentile(&seen.gaps_ns, 99)),
            );
        }
    }
}

// ---- (e) ----

fn crowd(servers: &str) {
    println!("\n### Many waiters in one folder\n");
    println!("| waiters | sessions | hand-over p50 | p99 | sections/s |");
    println!("|--:|--:|--:|--:|--:|");
    for (round, (waiters, sessions)) in [(10, 10), (1_000, 50), (10, 10), (1_000, 50)]
        .into_iter()
        .enumerate()
    {
        let herd = Herd {
            waiters,
            sessions,
            strategy: WaitStrategy::PredecessorWatch,
            hand_overs: 3_000,
            time: Duration::from_secs(10),
        };
        let seen = herd::watch(herd, servers, &format!("/crowd-{round}"), || ());
        println!(
            "| {waiters} | {sessions} | {} | {} | {} |",
            show_ns(percentile(&seen.gaps_ns, 50)),
            show_ns(percentile(&seen.gaps_ns, 99)),
            digits(seen.hand_overs as f64 / seen.elapsed.as_secs_f64()),
        );
    }
}

// ---- (f) ----

fn idle(servers: &str) {
    println!("\n### What a client costs\n");
    println!("| what | measured | target |");
    println!("|---|--:|---|");
    let tool = std::env::current_exe().expect("Linux knows");
    let status = Command::new(tool).args(["idle", servers]).status();
    assert!(status.expect("a process can be started").success());
}
