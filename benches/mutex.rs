//! How fast the mutex is, in ratios to plain ZooKeeper calls of the same run.
//!
//! Machines are noisy and differ; ratios of two things that were measured in turns, one right
//! after the other, much less so. So every sample runs a stretch of a reference first, and the
//! table at the end gives the medians of the samples' own ratios.
//!
//! `cargo bench` measures, `cargo bench -- --test` runs everything once. A server is started
//! unless `ZK_CONNECT` names one.

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use zklock::{Client, Mutex, MutexBuilder};

use testbed::measure::bench::{Bench, nanos, repeat};
use testbed::measure::fifo::Fifo;
use testbed::measure::plain::Plain;
use testbed::measure::servers::Servers;
use testbed::measure::steady;
use testbed::measure::table::{self, Target, per_cycle};

const LINGER: Duration = Duration::from_secs(5);
/// Stretches of the references: some 10 ms and more.
const PLAIN_CYCLES: u64 = 20;
const LOCAL_SECTIONS: u64 = 4_000;
const NETWORK_SECTIONS: u64 = 64;

fn main() {
    let server = Servers::given_or_started(None);
    let servers = server.connect_string();
    let client = Client::connect(servers).expect("the server serves");
    let handle = client.zookeeper().expect("there is contact");
    let subject = Subject {
        classical: Plain::by(&handle, "/classical"),
        client,
        plain: Plain::connect(servers, "/plain"),
    };
    let mut criterion = Criterion::default().configure_from_args();
    let testing = std::env::args().any(|arg| arg == "--test");
    if !testing {
        subject.warm_up();
    }
    let mut bench = Bench::new(&mut criterion, "mutex");
    one_thread(&subject, &mut bench);
    threads(&subject, &mut bench);
    let rows = bench.finish();
    criterion.final_summary();
    if !testing {
        table::print(&rows);
    }
}

struct Subject {
    client: Client,
    plain: Plain,
    /// The same calls of the crate, by its handle on the client's session.
    classical: Plain,
}

impl Subject {
    fn lock(&self, name: &str, settings: impl Fn(MutexBuilder) -> MutexBuilder) -> Mutex {
        let path = format!("/bench/{name}");
        let builder = settings(Mutex::builder(&self.client, &path));
        builder.build().expect("the path is good")
    }

    /// Java compiles what has run often; let it do so before anything is compared.
    fn warm_up(&self) {
        let lock = self.lock("warm", |lock| lock);
        for _ in 0..5_000 {
            self.plain.cycle();
            self.classical.cycle();
            cycle(&lock);
        }
    }

    fn plain_cycle_ns(&self) -> f64 {
        nanos(PLAIN_CYCLES, || self.plain.cycle())
    }
}

fn one_thread(subject: &Subject, bench: &mut Bench<'_>) {
    let reference = || subject.plain_cycle_ns();
    let plain: (&str, &dyn Fn() -> f64) = ("plain cycle", &reference);

    let in_turns: (&str, &dyn Fn()) = ("plain cycle", &|| subject.plain.cycle());
    // The noise of this way of measuring: a thing against itself.
    bench.row_in_turns("plain cycle", Target::Reported, in_turns, || {
        subject.plain.cycle();
    });

    bench.row_in_turns("by the handle", Target::Reported, in_turns, || {
        subject.classical.cycle();
    });

    let lock = subject.lock("idle", |lock| lock);
    let by_the_handle: (&str, &dyn Fn()) = ("by the handle", &|| subject.classical.cycle());
    bench.row_in_turns(
        "idle cycle : by the handle",
        Target::Reported,
        by_the_handle,
        || cycle(&lock),
    );
    bench.row_in_turns("idle cycle", Target::TimeAtMost(0.75), in_turns, || {
        cycle(&lock);
    });
    bench.row_in_turns("timed cycle", Target::Reported, in_turns, || {
        let held = lock.try_lock_for(Duration::from_secs(5)).expect("healthy");
        drop(held.expect("nobody else is about"));
    });

    // What tests of users save. The same call, so the rest of the difference is the server's.
    let for_tests = zklock_test::Server::start().expect("a port");
    let client = Client::connect(&for_tests.connect_string()).expect("it serves");
    let beside = Mutex::new(&client, "/bench/idle").expect("the path is good");
    let over_apaches: (&str, &dyn Fn()) = ("idle cycle", &|| cycle(&lock));
    bench.row_in_turns("idle, zklock-test", Target::Reported, over_apaches, || {
        cycle(&beside);
    });
    let start = || drop(black_box(zklock_test::Server::start()));
    bench.row(
        "zklock-test, start and stop",
        Target::Reported,
        plain,
        |cycles| repeat(cycles, start),
    );

    let held = lock.lock().expect("healthy");
    bench.row("re-entrant", Target::NanosAtMost(60.0), plain, |cycles| {
        repeat(cycles, || cycle(&lock))
    });
    let other = subject.lock("idle", |lock| lock);
    bench.row("try_lock busy", Target::Reported, plain, |cycles| {
        repeat(cycles, || {
            assert!(other.try_lock().expect("healthy").is_none());
        })
    });
    drop(held);

    let lingering = subject.lock("linger", |lock| lock.linger(LINGER));
    for (name, target) in [
        ("linger cycle", Target::RateAtLeast(1_000.0)),
        ("linger cycle, time", Target::NanosAtMost(120.0)),
    ] {
        bench.row(name, target, plain, |cycles| {
            // The tenure of the sample before may have run out.
            cycle(&lingering);
            repeat(cycles, || cycle(&lingering))
        });
    }
}

fn threads(subject: &Subject, bench: &mut Bench<'_>) {
    let handing = subject.lock("handing", |lock| lock);
    let apart = subject.lock("apart", |lock| lock.local_hand_off(false));
    let fifo = Fifo::default();

    let plain = || subject.plain_cycle_ns();
    for threads in [1, 2, 8, 32] {
        for (how, lock) in [("hand-off", &handing), ("no hand-off", &apart)] {
            let name = format!("threads {threads}, {how}");
            bench.row(&name, Target::Reported, ("plain cycle", &plain), |cycles| {
                take_turns(lock, threads, cycles)
            });
        }
        let name = format!("threads {threads}, bare FIFO");
        bench.row(&name, Target::Reported, ("plain cycle", &plain), |cycles| {
            queue_up(&fifo, threads, cycles)
        });
    }

    let alone = || nanos(NETWORK_SECTIONS, || cycle(&handing));
    let without = || per_cycle(take_turns(&apart, 32, NETWORK_SECTIONS), NETWORK_SECTIONS);
    let bare = || per_cycle(queue_up(&fifo, 32, LOCAL_SECTIONS), LOCAL_SECTIONS);
    let references: [(&str, Target, &dyn Fn() -> f64); 3] = [
        ("1 thread", Target::RateAtLeast(0.9), &alone),
        ("32, no hand-off", Target::RateAtLeast(10.0), &without),
        ("32, bare FIFO", Target::RateAtLeast(0.5), &bare),
    ];
    for (against, target, reference) in references {
        let name = format!("threads 32 : {against}");
        bench.row(&name, target, (against, reference), |cycles| {
            take_turns(&handing, 32, cycles)
        });
    }
    // The same lock, so that hand-off cannot hide what many threads do to the network's part.
    let alone = || nanos(NETWORK_SECTIONS, || cycle(&apart));
    bench.row(
        "threads 32, no hand-off : 1 thread",
        Target::RateAtLeast(0.9),
        ("1 thread", &alone),
        |cycles| take_turns(&apart, 32, cycles),
    );
}

fn cycle(lock: &Mutex) {
    drop(black_box(lock.lock().expect("healthy")));
}

fn take_turns(lock: &Mutex, threads: u32, sections: u64) -> Duration {
    steady::time_of(threads, sections, |section| {
        let _guard = lock.lock().expect("healthy");
        section();
    })
}

fn queue_up(fifo: &Fifo, threads: u32, sections: u64) -> Duration {
    steady::time_of(threads, sections, |section| {
        fifo.enter();
        section();
        fifo.leave();
    })
}
