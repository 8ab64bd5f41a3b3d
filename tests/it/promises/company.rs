//! Many threads on many locks over one connection: what they ask shares packets.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use testbed::{Proxy, opcode};
use zklock::{Client, FencingToken, Mutex};

use crate::fixtures::{T, builder, children, client_at, mutex, raw, server, wait_for_children};

/// Runs `body` once for each lock, all on threads that begin together.
fn on_each(locks: &[Mutex], body: impl Fn(usize, &Mutex) + Sync) {
    let together = Barrier::new(locks.len());
    thread::scope(|scope| {
        for (number, lock) in locks.iter().enumerate() {
            let (together, body) = (&together, &body);
            scope.spawn(move || {
                together.wait();
                body(number, lock);
            });
        }
    });
}

fn locks(client: &Client, folder: &str, count: usize) -> Vec<Mutex> {
    let paths = (0..count).map(|number| format!("{folder}/{number}"));
    paths.map(|path| mutex(client, &path)).collect()
}

/// Locks whose folders are known to stand.
fn used(client: &Client, folder: &str, count: usize) -> Vec<Mutex> {
    let locks = locks(client, folder, count);
    on_each(&locks, |_, lock| drop(lock.lock().expect("free")));
    locks
}

#[test]
fn what_many_threads_ask_shares_packets() {
    const THREADS: usize = 32;
    const ROUNDS: usize = 10;
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let locks = used(&client, "/company/few", THREADS);
    // Where an answer takes this long, they all come together after it.
    proxy.delay(Duration::from_millis(20));
    let before = proxy.counters();
    on_each(&locks, |_, lock| {
        for _ in 0..ROUNDS {
            drop(lock.lock().expect("healthy"));
        }
    });
    let after = proxy.counters();
    let sent: u64 = [
        opcode::CREATE,
        opcode::DELETE,
        opcode::GET_CHILDREN,
        opcode::MULTI,
        opcode::MULTI_READ,
    ]
    .map(|kind| after.requested(kind) - before.requested(kind))
    .iter()
    .sum();
    // Each by itself takes three.
    let cycles = u64::try_from(THREADS * ROUNDS).expect("few");
    assert!(sent < 2 * cycles, "{sent} packets for {cycles} cycles");
}

/// One thread alone is never held up, and sends what it always did.
#[test]
fn one_thread_alone_needs_no_company() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = mutex(&client, "/company/alone");
    (0..10).for_each(|_| drop(lock.lock().expect("free")));
    let counters = proxy.counters();
    assert_eq!(counters.requested(opcode::MULTI_READ), 0);
    assert!(counters.requested(opcode::CREATE) >= 10);
}

/// A transaction is a fencing token: no two contenders of one lock may be created in the same.
#[test]
fn two_contenders_of_one_session_have_two_tokens() {
    const LOCKS: usize = 16;
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let folder = "/company/tokens";
    let both: Vec<_> = [(); 2]
        .iter()
        .flat_map(|()| used(&client, folder, LOCKS))
        .collect();
    proxy.delay(Duration::from_millis(20));
    let tokens: Vec<_> = (0..LOCKS).map(|_| std::sync::Mutex::default()).collect();
    on_each(&both, |number, lock| {
        let guard = lock.lock().expect("healthy");
        let token = guard.fencing_token().expect("held");
        let seen: &std::sync::Mutex<Vec<FencingToken>> = &tokens[number % LOCKS];
        seen.lock().expect("no panic").push(token);
    });
    for seen in tokens {
        let seen = seen.into_inner().expect("no panic");
        assert!(seen.len() == 2 && seen[0] < seen[1], "{seen:?}");
    }
}

/// What a lock's holders have seen of it.
#[derive(Default)]
struct Watched {
    inside: AtomicBool,
    last: AtomicU64,
}

impl Watched {
    /// Nobody else is inside, and no token was seen before or after a greater one.
    fn section(&self, token: FencingToken) {
        assert!(
            !self.inside.swap(true, Ordering::SeqCst),
            "two hold at once"
        );
        let token = token.to_string().parse().expect("a number");
        let last = self.last.swap(token, Ordering::SeqCst);
        assert!(last < token, "token {token} after {last}");
        thread::yield_now();
        assert!(
            self.inside.swap(false, Ordering::SeqCst),
            "two hold at once"
        );
    }
}

/// Three contenders in two sessions share some locks, a third party removes nodes of others that the same threads of the
/// library send together, folders go, and the connection of one breaks again and again.
#[test]
fn company_is_no_danger() {
    const LOCKS: usize = 12;
    const SPOILT: usize = 4;
    const ROUNDS: usize = 15;
    let proxy = Proxy::start(server().addr());
    let clients = [
        client_at(&proxy.connect_string()),
        builder(&server().connect_string())
            .session_timeout(T)
            .connect()
            .expect("a server that works"),
    ];
    // Two contenders of one session, and one of another.
    let all: Vec<Vec<Mutex>> = [0, 0, 1]
        .iter()
        .map(|which| &clients[*which])
        .map(|client| used(client, "/company/danger", LOCKS + SPOILT))
        .collect();
    let watched: Vec<Watched> = (0..LOCKS).map(|_| Watched::default()).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = all
            .iter()
            .map(|locks| {
                let watched = &watched;
                scope.spawn(move || {
                    on_each(locks, |number, lock| {
                        for _ in 0..ROUNDS {
                            // A spoilt one may be lost at any time.
                            let Ok(guard) = lock.lock() else { continue };
                            let Some(watched) = watched.get(number) else {
                                continue;
                            };
                            let Ok(token) = guard.fencing_token() else {
                                continue;
                            };
                            watched.section(token);
                        }
                    });
                })
            })
            .collect();
        scope.spawn(|| {
            let mut raw = raw(server());
            while !over.load(Ordering::SeqCst) {
                for number in LOCKS..LOCKS + SPOILT {
                    let folder = format!("/company/danger/{number}");
                    for name in raw.children(&folder).unwrap_or_default() {
                        // It may be gone by now.
                        let _ = raw.delete(&format!("{folder}/{name}"));
                    }
                    let _ = raw.delete(&folder);
                }
                proxy.reset_all();
                thread::park_timeout(Duration::from_millis(50));
            }
        });
        for worker in workers {
            worker.join().expect("no panic");
        }
        over.store(true, Ordering::SeqCst);
    });
    for number in 0..LOCKS + SPOILT {
        let folder = format!("/company/danger/{number}");
        wait_for_children(server(), &folder, 0);
    }
    assert!(children(server(), "/company/danger").len() >= LOCKS);
}
