//! Many contenders in one folder that take turns: what one hand-over costs when so many wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex as Guarded, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use testbed::measure::plain::Plain;
use testbed::wait_until;
use zklock::{AcquireOptions, CancelToken, Client, Mutex, WaitStrategy};

use super::history::now_ns;

/// The first hand-overs are left out: the queue's own start is not its daily life.
const LEFT_OUT: u64 = 10;
const QUEUED: Duration = Duration::from_secs(120);
const STACK_BYTES: usize = 256 * 1024;

/// How many, how they wait, and for how long to look at them.
#[derive(Clone, Copy)]
pub(crate) struct Herd {
    pub(crate) waiters: usize,
    pub(crate) sessions: usize,
    pub(crate) strategy: WaitStrategy,
    /// The look ends at the first of the two.
    pub(crate) hand_overs: u64,
    pub(crate) time: Duration,
}

/// What was seen; `counters` are as read at the start and at the end.
pub(crate) struct Seen<T> {
    pub(crate) hand_overs: usize,
    pub(crate) elapsed: Duration,
    /// From just before one releases to just after the next has it; the shortest first.
    pub(crate) gaps_ns: Vec<u64>,
    pub(crate) start: T,
    pub(crate) end: T,
}

/// Lets one more than `waiters` contenders, each a `Mutex` and a thread of its own, take turns,
/// each getting in line again at once: so many wait while one holds.
pub(crate) fn watch<T: Send>(
    herd: Herd,
    servers: &str,
    path: &str,
    read_counters: impl Fn() -> T + Sync,
) -> Seen<T> {
    let clients: Vec<Client> = (0..herd.sessions)
        .map(|_| Client::connect(servers).expect("the server serves"))
        .collect();
    let lock = |client| {
        let builder = Mutex::builder(client, path).wait_strategy(herd.strategy);
        builder.build().expect("the path is good")
    };
    let plain = Plain::connect(servers, "/plain");
    let gate = Mutex::new(&clients[0], path).expect("the path is good");
    let ring = Ring::new(herd, read_counters);
    thread::scope(|scope| {
        let closed = gate.lock().expect("healthy");
        for contender in 0..=herd.waiters {
            let lock = lock(&clients[contender % clients.len()]);
            let ring = &ring;
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || ring.take_turns(&lock))
                .expect("a thread can be started");
        }
        wait_until("all are in line", QUEUED, || {
            plain.count(path) == herd.waiters + 2
        });
        drop(closed);
    });
    ring.seen()
}

struct Ring<T, F> {
    herd: Herd,
    read_counters: F,
    inside: AtomicBool,
    left_ns: AtomicU64,
    over: CancelToken,
    look: Guarded<Look<T>>,
}

struct Look<T> {
    sections: u64,
    gaps_ns: Vec<u64>,
    start: Option<(Instant, T)>,
    end: Option<(Instant, T)>,
}

impl<T, F: Fn() -> T> Ring<T, F> {
    fn new(herd: Herd, read_counters: F) -> Self {
        Ring {
            herd,
            read_counters,
            inside: AtomicBool::new(false),
            left_ns: AtomicU64::new(0),
            over: CancelToken::new(),
            look: Guarded::new(Look {
                sections: 0,
                gaps_ns: Vec::new(),
                start: None,
                end: None,
            }),
        }
    }

    fn take_turns(&self, lock: &Mutex) {
        loop {
            match lock.lock_with(AcquireOptions::new().cancel(&self.over)) {
                Ok(_guard) => self.section(),
                Err(error) if error.is_cancelled() => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn section(&self) {
        assert!(
            !self.inside.swap(true, Ordering::AcqRel),
            "two in a section"
        );
        let gap = now_ns() - self.left_ns.load(Ordering::Relaxed);
        self.note(gap);
        self.inside.store(false, Ordering::Release);
        self.left_ns.store(now_ns(), Ordering::Relaxed);
    }

    fn note(&self, gap_ns: u64) {
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        look.sections += 1;
        if look.end.is_some() || look.sections < LEFT_OUT {
            return;
        }
        let now = Instant::now();
        let Some((start, _)) = look.start else {
            look.start = Some((now, (self.read_counters)()));
            return;
        };
        look.gaps_ns.push(gap_ns);
        let enough = look.sections - LEFT_OUT >= self.herd.hand_overs;
        if enough || now - start >= self.herd.time {
            look.end = Some((now, (self.read_counters)()));
            self.over.cancel();
        }
    }

    fn seen(self) -> Seen<T> {
        let look = self
            .look
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let (Some((start_at, start)), Some((end_at, end))) = (look.start, look.end) else {
            unreachable!("the threads end when the look has");
        };
        let mut gaps_ns = look.gaps_ns;
        gaps_ns.sort_unstable();
        Seen {
            hand_overs: gaps_ns.len(),
            elapsed: end_at - start_at,
            gaps_ns,
            start,
            end,
        }
    }
}
