//! How fast each recipe is, alone and contended, in ratios to plain ZooKeeper calls of the same run.
//!
//! As `benches/mutex.rs`: each sample is taken right beside a stretch of the reference, and the
//! table gives the medians of the samples' own ratios.

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use zklock::{
    Barrier, Client, DoubleBarrier, Election, LockRegistry, MultiLock, Mutex, RwLock, Semaphore,
    SemaphoreMutex, SimpleMutex,
};

use testbed::measure::bench::{Bench, nanos};
use testbed::measure::plain::Plain;
use testbed::measure::servers::Servers;
use testbed::measure::steady;
use testbed::measure::table::{self, Target};

const LINGER: Duration = Duration::from_secs(5);
/// A stretch of the reference: some 10 ms.
const PLAIN_CYCLES: u64 = 20;
const THREADS: u32 = 8;

fn main() {
    let server = Servers::given_or_started(None);
    let servers = server.connect_string();
    let client = Client::connect(servers).expect("the server serves");
    let handle = client.zookeeper().expect("there is contact");
    let subject = Subject {
        servers: servers.to_owned(),
        client,
        other: Client::connect(servers).expect("the server serves"),
        classical: Plain::by(&handle, "/classical"),
        plain: Plain::connect(servers, "/plain"),
    };
    let mut criterion = Criterion::default().configure_from_args();
    let testing = std::env::args().any(|arg| arg == "--test");
    if !testing {
        // Java compiles what has run often.
        (0..5_000).for_each(|_| subject.plain.cycle());
    }
    let mut bench = Bench::new(&mut criterion, "recipes");
    alone(&subject, &mut bench);
    contended(&subject, &mut bench);
    let rows = bench.finish();
    criterion.final_summary();
    if !testing {
        table::print(&rows);
    }
}

struct Subject {
    servers: String,
    client: Client,
    /// Another session, as another process would have it.
    other: Client,
    plain: Plain,
    /// The same calls of the crate, by its handle on the client's session.
    classical: Plain,
}

/// One thread takes it and gives it back, with nobody else about.
fn alone(subject: &Subject, bench: &mut Bench<'_>) {
    let client = &subject.client;
    let mut row = |name: &str, cycle: &dyn Fn()| {
        let plain: (&str, &dyn Fn()) = ("plain cycle", &|| subject.plain.cycle());
        bench.row_in_turns(name, Target::Reported, plain, cycle);
    };

    row("plain cycle, by the handle", &|| subject.classical.cycle());
    row("connect, handle, close", &|| {
        let client = Client::connect(subject.servers.as_str()).expect("the server serves");
        drop(client.zookeeper().expect("there is contact"));
        client.close();
    });
    row("connect, close", &|| {
        drop(Client::connect(subject.servers.as_str()).expect("the server serves"));
    });
    let mutex = Mutex::new(client, "/alone/mutex").expect("good");
    row("mutex", &|| drop(black_box(mutex.lock().expect("free"))));

    let simple = SimpleMutex::new(client, "/alone/simple").expect("good");
    row("simple mutex", &|| drop(simple.lock().expect("free")));

    let sent = SemaphoreMutex::new(client, "/alone/semaphore-mutex").expect("good");
    row("semaphore mutex", &|| drop(sent.lock().expect("free")));

    let election = Election::new(client, "/alone/election").expect("good");
    row("election", &|| drop(election.campaign().expect("free")));

    let pool = Semaphore::new(client, "/alone/semaphore", 4).expect("good");
    row("semaphore, 1 permit", &|| {
        drop(pool.acquire().expect("free"));
    });
    row("semaphore, 4 permits", &|| {
        drop(pool.acquire_many(4).expect("free"));
    });
    // Far more than one packet takes.
    let large = Semaphore::new(client, "/alone/large-semaphore", 8_000).expect("good");
    for permits in [3_000, 8_000] {
        row(&format!("semaphore, {permits} permits"), &|| {
            drop(large.acquire_many(permits).expect("free"));
        });
    }
    let builder = Semaphore::builder(client, "/alone/linger").max(4);
    let kept = builder.linger(LINGER).build().expect("good");
    row("semaphore, linger", &|| drop(kept.acquire().expect("free")));

    let rw = RwLock::new(client, "/alone/rw").expect("good");
    row("read", &|| drop(rw.read().expect("free")));
    let builder = RwLock::builder(client, "/alone/rw-linger").read_linger(LINGER);
    let kept = builder.build().expect("good");
    row("read, linger", &|| drop(kept.read().expect("free")));
    row("write", &|| drop(rw.write().expect("free")));
    row("write, downgrade", &|| {
        let writing = rw.write().expect("free");
        drop(writing.downgrade().expect("held"));
    });

    let locks: Vec<_> = (0..3)
        .map(|number| Mutex::new(client, &format!("/alone/multi/{number}")).expect("good"))
        .collect();
    let parts = locks
        .iter()
        .fold(MultiLock::builder(), zklock::MultiLockBuilder::with);
    let all = parts.build().expect("different paths");
    row("multi-lock of 3", &|| drop(all.lock().expect("free")));

    let registry = LockRegistry::new(client, "/alone/registry").expect("good");
    row("registry, lock of a key", &|| {
        let lock = registry.get("a key").expect("any key");
        drop(lock.lock().expect("free"));
    });

    let gate = Barrier::new(client, "/alone/gate").expect("good");
    row("barrier, set and remove", &|| {
        gate.set().expect("healthy");
        gate.remove().expect("healthy");
    });
    let meeting = DoubleBarrier::new(client, "/alone/double", 1).expect("good");
    row("double barrier of 1", &|| {
        meeting.enter().expect("alone").leave().expect("alone");
    });

    // Another thread reads all the while.
    let (inside, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _reading = rw.read().expect("free");
            inside.wait();
            end.wait();
        });
        inside.wait();
        row("read, others read", &|| drop(rw.read().expect("shared")));
        end.wait();
    });
}

/// Threads of two processes' sessions take turns.
fn contended(subject: &Subject, bench: &mut Bench<'_>) {
    let clients = [&subject.client, &subject.other];
    let mut row = |name: &str, in_turn: &(dyn Fn(usize, &dyn Fn()) + Sync)| {
        let reference = || nanos(PLAIN_CYCLES, || subject.plain.cycle());
        for sessions in [1, 2] {
            let name = format!("{name}, {THREADS} threads, {sessions} sessions");
            let plain: (&str, &dyn Fn() -> f64) = ("plain cycle", &reference);
            bench.row(&name, Target::Reported, plain, |sections| {
                let next = std::sync::atomic::AtomicUsize::new(0);
                thread_local! {
                    static MINE: std::cell::OnceCell<usize> = const { std::cell::OnceCell::new() };
                }
                steady::time_of(THREADS, sections, |section| {
                    let number = MINE.with(|mine| {
                        *mine
                            .get_or_init(|| next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                    });
                    in_turn(number % sessions, section);
                })
            });
        }
    };

    let locks = clients.map(|client| Mutex::new(client, "/many/mutex").expect("good"));
    row("mutex", &|at, section| {
        let _guard = locks[at].lock().expect("healthy");
        section();
    });
    let locks = clients.map(|client| SimpleMutex::new(client, "/many/simple").expect("good"));
    row("simple mutex", &|at, section| {
        let _guard = locks[at].lock().expect("healthy");
        section();
    });
    let locks = clients.map(|client| SemaphoreMutex::new(client, "/many/sent").expect("good"));
    row("semaphore mutex", &|at, section| {
        let _guard = locks[at].lock().expect("healthy");
        section();
    });
    let locks = clients.map(|client| RwLock::new(client, "/many/rw").expect("good"));
    row("write", &|at, section| {
        let _guard = locks[at].write().expect("healthy");
        section();
    });
    let locks = clients.map(|client| {
        (0..3)
            .map(|number| Mutex::new(client, &format!("/many/multi/{number}")).expect("good"))
            .collect::<Vec<_>>()
    });
    let all = [0, 1].map(|at| {
        let parts = locks[at]
            .iter()
            .fold(MultiLock::builder(), zklock::MultiLockBuilder::with);
        parts.build().expect("different paths")
    });
    row("multi-lock of 3", &|at, section| {
        let _guard = all[at].lock().expect("healthy");
        section();
    });
}
