//! What each step costs, counted: requests, writes and events, as the tables of docs/performance.md promise.
//!
//! Counts do not depend on the machine, so a loss of speed by design cannot land unseen. The proxy counts what
//! the client sends. A write is what leaves the client at once: a flight that it waits for, or a release that it does
//! not wait for and that may leave together with what comes next. Left out are probes, which come by the clock. A cycle that a busy machine stretches beyond 100 ms has a
//! watch left on its node as well, so one request in ten cycles is allowed on top; what one more request in
//! each cycle would be is ten times that.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use testbed::{Counters, Proxy, opcode};
use zklock::{
    Client, DoubleBarrier, Election, LockRegistry, MultiLock, RwLock, Semaphore, SemaphoreMutex,
    SimpleMutex,
};

use crate::fixtures::{SOON, client_at, mutex, server};

const CYCLES: u32 = 50;

/// What one cycle may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Budget {
    requests: f64,
    writes: f64,
    events: f64,
}

const fn at_most(requests: f64, writes: f64, events: f64) -> Budget {
    Budget {
        requests,
        writes,
        events,
    }
}

/// What has gone through the proxy between two looks, for each of so many cycles.
fn spent(before: &Counters, after: &Counters, cycles: u32) -> Budget {
    let sent = |counters: &Counters| counters.requests.values().sum::<u64>() - counters.probes;
    let each = |count: u64| f64::from(u32::try_from(count).expect("few")) / f64::from(cycles);
    Budget {
        requests: each(sent(after) - sent(before)),
        writes: each(after.writes - before.writes),
        events: each(after.notifications - before.notifications),
    }
}

#[track_caller]
fn assert_within(what: &str, spent: Budget, budget: Budget) {
    let room = 0.1;
    assert!(
        spent.requests <= budget.requests + room
            && spent.writes <= budget.writes + room
            && spent.events <= budget.events + room,
        "{what}: {spent:?}, and the budget is {budget:?}"
    );
    // A budget that is far from what is spent guards nothing.
    assert!(
        spent.requests > budget.requests - 0.5,
        "{what} has become cheaper, so its budget can be: {spent:?}, not {budget:?}"
    );
}

/// A client behind a proxy that counts.
struct Counted {
    proxy: Proxy,
    client: Client,
}

impl Counted {
    fn new() -> Self {
        let proxy = Proxy::start(server().addr());
        let client = Client::builder(&proxy.connect_string())
            .connect()
            .expect("a server that works");
        Self { proxy, client }
    }

    /// What one of many cycles costs, without what only the first one pays.
    fn cycle(&self, mut body: impl FnMut()) -> Budget {
        body();
        let before = self.proxy.counters();
        (0..CYCLES).for_each(|_| body());
        spent(&before, &self.proxy.counters(), CYCLES)
    }
}

#[test]
fn an_idle_lock_takes_three_requests_in_two_flights() {
    let counted = Counted::new();
    let lock = mutex(&counted.client, "/budget/idle");
    let spent = counted.cycle(|| lock.lock().expect("free").unlock().expect("held"));
    assert_within("a lock", spent, at_most(3.0, 2.0, 0.0));
    let spent = counted.cycle(|| {
        let guard = lock.try_lock_for(SOON).expect("free").expect("free");
        guard.unlock().expect("held");
    });
    assert_within("one with a deadline", spent, at_most(3.0, 2.0, 0.0));
}

#[test]
fn what_needs_no_server_asks_none() {
    let counted = Counted::new();
    let lock = mutex(&counted.client, "/budget/reentry");
    let held = lock.lock().expect("free");
    let spent = counted.cycle(|| drop(lock.lock().expect("ours")));
    assert_within("a re-entry", spent, at_most(0.0, 0.0, 0.0));
    drop(held);

    let lingering = zklock::Mutex::builder(&counted.client, "/budget/linger")
        .linger(SOON)
        .build()
        .expect("good settings");
    let spent = counted.cycle(|| drop(lingering.lock().expect("free")));
    assert_within("a lock that lingers", spent, at_most(0.0, 0.0, 0.0));
}

#[test]
fn a_busy_try_takes_one_read_and_writes_nothing() {
    let counted = Counted::new();
    let holder = client_at(&server().connect_string());
    let _held = mutex(&holder, "/budget/busy").lock().expect("free");
    let lock = mutex(&counted.client, "/budget/busy");
    let spent = counted.cycle(|| assert!(lock.try_lock().expect("healthy").is_none()));
    assert_within("a try", spent, at_most(1.0, 1.0, 0.0));
    let counters = counted.proxy.counters();
    assert_eq!(counters.requested(opcode::DELETE), 0, "{counters:?}");
}

#[test]
fn each_recipe_keeps_its_budget() {
    let counted = Counted::new();
    let client = &counted.client;

    let lock = SimpleMutex::new(client, "/budget/simple").expect("a good path");
    let spent = counted.cycle(|| lock.lock().expect("free").unlock().expect("held"));
    assert_within("a SimpleMutex", spent, at_most(3.0, 3.0, 1.0));

    let lock = SemaphoreMutex::new(client, "/budget/semaphore-mutex").expect("a good path");
    let spent = counted.cycle(|| lock.lock().expect("free").unlock().expect("held"));
    assert_within("a SemaphoreMutex", spent, at_most(6.0, 4.0, 0.0));

    let lock = Semaphore::new(client, "/budget/semaphore", 8).expect("a good path");
    let spent = counted.cycle(|| lock.acquire().expect("free").release().expect("held"));
    assert_within("a permit", spent, at_most(6.0, 4.0, 0.0));
    let spent = counted.cycle(|| lock.acquire_many(4).expect("free").release().expect("held"));
    assert_within("four permits", spent, at_most(6.0, 4.0, 0.0));

    let lock = RwLock::new(client, "/budget/rw").expect("a good path");
    let spent = counted.cycle(|| lock.read().expect("free").unlock().expect("held"));
    assert_within("a read", spent, at_most(3.0, 2.0, 1.0));
    let spent = counted.cycle(|| lock.write().expect("free").unlock().expect("held"));
    assert_within("a write", spent, at_most(3.0, 2.0, 0.0));
    let spent = counted.cycle(|| {
        let read = lock.write().expect("free").downgrade().expect("held");
        read.unlock().expect("held");
    });
    assert_within("a downgrade", spent, at_most(6.0, 4.0, 0.0));

    let mut parts = MultiLock::builder();
    for number in 0..3 {
        parts = parts.with(mutex(client, &format!("/budget/multi/{number}")));
    }
    let lock = parts.build().expect("three locks");
    let spent = counted.cycle(|| lock.lock().expect("free").unlock().expect("held"));
    assert_within("three locks at once", spent, at_most(5.0, 4.0, 0.0));

    let election = Election::new(client, "/budget/election").expect("a good path");
    let spent = counted.cycle(|| {
        let leadership = election.campaign().expect("nobody else");
        leadership.resign().expect("ours");
    });
    assert_within("a term", spent, at_most(3.0, 2.0, 0.0));
    let _leadership = election.campaign().expect("nobody else");
    let spent = counted.cycle(|| drop(election.leader().expect("answers")));
    assert_within("who leads", spent, at_most(2.0, 2.0, 0.0));

    let registry = LockRegistry::new(client, "/budget/registry").expect("a good path");
    let spent = counted.cycle(|| {
        let lock = registry.get("key").expect("a good key");
        lock.lock().expect("free").unlock().expect("held");
    });
    assert_within("a key's lock", spent, at_most(3.0, 2.0, 0.0));

    let barrier = DoubleBarrier::new(client, "/budget/double", 1).expect("a good path");
    let spent = counted.cycle(|| barrier.enter().expect("alone").leave().expect("alone"));
    assert_within("a double barrier", spent, at_most(13.0, 10.0, 2.0));
}

/// Clients of one lock that take turns: whenever one gives it back, all others are in line behind it.
fn turns(clients: usize, path: &str) -> Budget {
    const WARM_UP: u32 = 20;
    let proxy = Proxy::start(server().addr());
    let clients: Vec<_> = (0..clients)
        .map(|_| client_at(&proxy.connect_string()))
        .collect();
    let sections = AtomicU32::new(0);
    // How many waiters had found whom to wait for when the last section ended.
    let in_line = AtomicU64::new(0);
    let looks = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for client in &clients {
            let (proxy, sections, in_line, looks) = (&proxy, &sections, &in_line, &looks);
            scope.spawn(move || {
                let lock = mutex(client, path);
                loop {
                    let guard = lock.lock().expect("healthy");
                    let section = sections.load(Ordering::Relaxed);
                    if section > WARM_UP + CYCLES {
                        return;
                    }
                    let before = in_line.load(Ordering::Relaxed);
                    let found = |seen: &Counters| seen.replied(opcode::GET_DATA);
                    proxy.wait_for(|seen| found(seen) > before, SOON);
                    in_line.store(found(&proxy.counters()), Ordering::Relaxed);
                    if section == WARM_UP || section == WARM_UP + CYCLES {
                        looks.lock().push(proxy.counters());
                    }
                    sections.store(section + 1, Ordering::Relaxed);
                    guard.unlock().expect("held");
                }
            });
        }
    });
    let looks = looks.into_inner();
    spent(&looks[0], &looks[1], CYCLES)
}

/// The second of two takes over by two events, without a list.
#[test]
fn a_take_over_costs_four_requests() {
    assert_within(
        "a take-over",
        turns(2, "/budget/two"),
        at_most(4.0, 3.0, 2.0),
    );
}

#[test]
fn a_hand_over_among_many_costs_five_requests_and_one_event() {
    for clients in [4, 8] {
        let spent = turns(clients, &format!("/budget/line-of-{clients}"));
        assert_within("a hand-over", spent, at_most(5.0, 4.0, 1.0));
    }
}

/// What they ask shares packets, about ten to one. By itself each lock takes three.
#[test]
fn many_threads_on_many_locks_share_packets() {
    const THREADS: u32 = 64;
    let counted = Counted::new();
    let locks: Vec<_> = (0..THREADS)
        .map(|number| mutex(&counted.client, &format!("/budget/many/{number}")))
        .collect();
    for lock in &locks {
        drop(lock.lock().expect("free"));
    }
    // Where an answer takes this long, what is asked meanwhile goes together after it.
    counted.proxy.delay(Duration::from_millis(20));
    let before = counted.proxy.counters();
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(move || {
                for _ in 0..10 {
                    lock.lock().expect("free").unlock().expect("held");
                }
            });
        }
    });
    let spent = spent(&before, &counted.proxy.counters(), 10 * THREADS);
    assert!(spent.requests <= 0.75, "{spent:?}");
}

/// A session with many locks is proven as one with a single lock is.
#[test]
fn at_rest_there_are_probes_alone() {
    const LOCKS: usize = 100;
    let counted = Counted::new();
    let locks: Vec<_> = (0..LOCKS)
        .map(|number| mutex(&counted.client, &format!("/budget/rest/{number}")))
        .collect();
    let held: Vec<_> = locks
        .iter()
        .map(|lock| lock.lock().expect("free"))
        .collect();
    // Watches on the nodes of tenures that last.
    let watches = u64::try_from(LOCKS).expect("few");
    counted
        .proxy
        .wait_for(|seen| seen.replied(opcode::GET_DATA) >= watches, SOON);
    let before = counted.proxy.counters();
    let probes = before.probes + 5;
    counted.proxy.wait_for(|seen| seen.probes >= probes, SOON);
    let after = counted.proxy.counters();
    assert_eq!(after.writes, before.writes, "{before:?} {after:?}");
    drop(held);
}
