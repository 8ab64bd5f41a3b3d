//! The mutex beside Curator's, Java's, in turns on the same server in the same run.
//!
//! Both take a lock that is free and give it back; with several threads, each has a lock of its own
//! and all share one client. Curator's process is warm: it has run for some seconds, so that Java
//! has compiled what runs often.
//!
//! `cargo bench` measures, `cargo bench -- --test` runs everything once. A server is started unless
//! `ZK_CONNECT` names one; `scripts/install-curator` says what else is needed.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::Criterion;
use zklock::{Client, Mutex};

use testbed::Curator;
use testbed::measure::bench::{Bench, repeat};
use testbed::measure::results::{self, Pair};
use testbed::measure::servers::Servers;
use testbed::measure::table::{self, Target, per_cycle};

/// Far more than it takes.
const LIMIT: Duration = Duration::from_secs(5);
/// For each thread, in a stretch of Curator's.
const STRETCH: u64 = 20;
/// In a stretch of Curator's.
const SESSIONS: u64 = 5;

fn main() {
    let server = Servers::given_or_started(None);
    let servers = server.connect_string();
    testbed::at_full_speed();
    let subject = Subject {
        servers: servers.to_owned(),
        client: Client::connect(servers).expect("the server serves"),
        curator: RefCell::new(Curator::start(servers)),
    };
    let mut criterion = Criterion::default().configure_from_args();
    let testing = std::env::args().any(|arg| arg == "--test");
    if !testing {
        subject.warm_up();
    }
    let mut bench = Bench::new(&mut criterion, "beside Curator");
    let theirs = || subject.their_sessions();
    bench.row(
        "connect, close",
        Target::Reported,
        ("Curator", &theirs),
        |count| {
            repeat(count, || {
                drop(Client::connect(servers).expect("the server serves"));
            })
        },
    );
    for (threads, target) in [
        (1, Target::TimeAtMost(0.65)),
        (8, Target::RateAtLeast(1.6)),
        (64, Target::RateAtLeast(2.0)),
    ] {
        for (how, limit) in [("", None), (", timed", Some(LIMIT))] {
            let name = format!("{threads} threads, a lock each{how}");
            let theirs = || subject.theirs(threads, limit);
            bench.row(&name, target, ("Curator", &theirs), |cycles| {
                subject.ours(threads, cycles, limit)
            });
        }
    }
    let rows = bench.finish();
    criterion.final_summary();
    if !testing {
        table::print(&rows);
        // The chart is of locks.
        let pairs: Vec<Pair> = rows[1..].iter().map(Pair::from).collect();
        results::save_pairs(results::BY_THREADS, &pairs);
    }
}

struct Subject {
    servers: String,
    client: Client,
    curator: RefCell<Curator>,
}

impl Subject {
    fn warm_up(&self) {
        for _ in 0..20 {
            self.their_sessions();
        }
        for threads in [1, 8, 64] {
            for _ in 0..200_u64.div_ceil(threads) {
                self.theirs(threads, None);
                self.theirs(threads, Some(LIMIT));
                self.ours(threads, STRETCH, None);
            }
        }
    }

    /// Nanoseconds for each session.
    fn their_sessions(&self) -> f64 {
        let command = format!("sessions {} {SESSIONS}", self.servers);
        let nanos = self.curator.borrow_mut().say(&command);
        let took = Duration::from_nanos(nanos.parse().expect("nanoseconds"));
        per_cycle(took, SESSIONS)
    }

    /// Nanoseconds for each cycle of each thread.
    fn theirs(&self, threads: u64, limit: Option<Duration>) -> f64 {
        let limit = limit.unwrap_or_default().as_millis();
        let command = format!("cycles /beside/{threads} {threads} {STRETCH} {limit}");
        let nanos = self.curator.borrow_mut().say(&command);
        let took = Duration::from_nanos(nanos.parse().expect("nanoseconds"));
        per_cycle(took, STRETCH * threads)
    }

    /// How long so many cycles took, over all threads.
    fn ours(&self, threads: u64, cycles: u64, limit: Option<Duration>) -> Duration {
        let each = cycles.div_ceil(threads).max(STRETCH);
        let count = usize::try_from(threads).expect("few");
        let (ready, end) = (Barrier::new(count + 1), Barrier::new(count + 1));
        let took = thread::scope(|scope| {
            for number in 0..threads {
                let path = format!("/beside/{threads}/{number}");
                let lock = Mutex::new(&self.client, &path).expect("a good path");
                let (ready, end) = (&ready, &end);
                scope.spawn(move || {
                    ready.wait();
                    for _ in 0..each {
                        cycle(&lock, limit);
                    }
                    end.wait();
                });
            }
            ready.wait();
            let begun = Instant::now();
            end.wait();
            begun.elapsed()
        });
        // What was asked for, of what was done.
        took.mul_f64(ratio(cycles, each * threads))
    }
}

fn ratio(of: u64, all: u64) -> f64 {
    let exactly = |number| f64::from(u32::try_from(number).expect("few"));
    exactly(of) / exactly(all)
}

fn cycle(lock: &Mutex, limit: Option<Duration>) {
    let guard = match limit {
        None => Some(lock.lock().expect("healthy")),
        Some(limit) => lock.try_lock_for(limit).expect("healthy"),
    };
    drop(black_box(guard.expect("nobody else is about")));
}
