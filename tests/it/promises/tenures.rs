//! Tenures: local hand-off, linger, and taking over without another list.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use testbed::{Counters, Proxy, opcode, wait_until};
use zklock::{Client, LockState, Mutex, RwLock, Semaphore, WaitStrategy};

use crate::fixtures::{SOON, children, client, client_at, mutex, raw, server, wait_for_children};

/// A client whose requests are counted.
fn counted() -> (Proxy, Client) {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    (proxy, client)
}

fn spent(proxy: &Proxy, before: &Counters, opcode: i32) -> u64 {
    proxy.counters().requested(opcode) - before.requested(opcode)
}

#[test]
fn an_idle_lock_costs_a_create_a_list_and_a_delete() {
    let (proxy, client) = counted();
    let lock = mutex(&client, "/tenure/cost");
    drop(lock.lock().expect("free"));
    let before = proxy.counters();
    for _ in 0..10 {
        drop(lock.lock().expect("free"));
    }
    assert_eq!(spent(&proxy, &before, opcode::CREATE), 10);
    assert_eq!(spent(&proxy, &before, opcode::GET_CHILDREN), 10);
    assert_eq!(spent(&proxy, &before, opcode::DELETE), 10);
    assert_eq!(spent(&proxy, &before, opcode::EXISTS), 0);
    assert_eq!(spent(&proxy, &before, opcode::GET_DATA), 0);
}

#[test]
fn threads_hand_over_without_asking_anybody() {
    let (proxy, client) = counted();
    let lock = mutex(&client, "/tenure/local");
    let path = lock.path().to_owned();
    drop(lock.lock().expect("free"));
    let before = proxy.counters();
    let guard = lock.lock().expect("free");
    let queued = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                queued.fetch_add(1, Ordering::SeqCst);
                let guard = lock.lock().expect("its turn");
                assert!(guard.is_held());
                // All are queued before the first of them goes on.
                wait_until("all came", SOON, || queued.load(Ordering::SeqCst) == 8);
            });
        }
        wait_until("all came", SOON, || queued.load(Ordering::SeqCst) == 8);
        drop(guard);
    });
    wait_for_children(server(), &path, 0);
    // Those who came while nobody held anything locally may have begun another tenure.
    let creates = spent(&proxy, &before, opcode::CREATE);
    assert!(creates <= 3, "{creates} creates for 9 sections");
}

#[test]
fn without_hand_off_each_section_queues() {
    let (proxy, client) = counted();
    let builder = Mutex::builder(&client, "/tenure/none").local_hand_off(false);
    let lock = builder.build().expect("good");
    drop(lock.lock().expect("free"));
    let before = proxy.counters();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    drop(lock.lock().expect("its turn"));
                }
            });
        }
    });
    assert_eq!(spent(&proxy, &before, opcode::CREATE), 20);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let client = client();
    let never = || Mutex::builder(&client, "/tenure/contradicts").local_hand_off(false);
    for builder in [
        never().max_handoffs(1),
        never().max_tenure(Duration::from_secs(1)),
    ] {
        let error = builder.build().expect_err("both");
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains("/tenure/contradicts"), "{error}");
    }
    never().max_handoffs(0).build().expect("the same twice");
    // Whoever comes would wait until the time is over.
    let polls = WaitStrategy::Polling(Duration::from_millis(50));
    let linger = Duration::from_secs(60);
    let path = "/tenure/polls";
    let (mutex, rw) = (
        Mutex::builder(&client, path),
        RwLock::builder(&client, path),
    );
    let (read, semaphore) = (
        RwLock::builder(&client, path),
        Semaphore::builder(&client, path),
    );
    let refused = [
        mutex.wait_strategy(polls).linger(linger).build().err(),
        rw.wait_strategy(polls).linger(linger).build().err(),
        read.wait_strategy(polls).read_linger(linger).build().err(),
        semaphore.wait_strategy(polls).linger(linger).build().err(),
    ];
    for error in refused {
        let error = error.expect("both");
        assert!(
            error.is_invalid() && error.to_string().contains(path),
            "{error}"
        );
    }
}

/// The policy leaves turns and another process waits: only that the lock is lost stands against a
/// hand-over.
#[test]
fn a_lost_lock_is_not_handed_over() {
    let path = "/tenure/lost";
    let (many, one) = (client(), client());
    let builder = Mutex::builder(&many, path).max_handoffs(100);
    let (lock, other) = (builder.build().expect("good"), mutex(&one, path));
    std::thread::scope(|scope| {
        let guard = lock.lock().expect("free");
        let node = children(server(), path).remove(0);
        let waits_outside = scope.spawn(|| drop(other.lock().expect("its turn")));
        wait_for_children(server(), path, 2);
        let waits_inside = scope.spawn(|| lock.lock().expect("its turn").state());
        wait_until("a thread waits for ours", SOON, || {
            many.stats().waiting == 1
        });
        let mut raw = raw(server());
        raw.delete(&format!("{path}/{node}")).expect("there");
        guard.lost().recv_timeout(SOON).expect("told");
        drop(guard);
        waits_outside.join().expect("no panic");
        assert_eq!(waits_inside.join().expect("no panic"), LockState::Held);
    });
}

/// Threads of a greedy process use the lock all the time. Each acquire of another process waits
/// for the sections that the policy allows, and no more.
fn greedy(max_handoffs: Option<u32>, path: &str) {
    let (many, one) = (client(), client());
    let mut builder = Mutex::builder(&many, path);
    if let Some(most) = max_handoffs {
        builder = builder.max_handoffs(most);
    }
    let (greedy, single) = (builder.build().expect("good"), mutex(&one, path));
    let sections = AtomicUsize::new(0);
    let stop = Stop::default();
    let allowed = usize::try_from(max_handoffs.unwrap_or(0)).expect("small") + 1;
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !stop.0.load(Ordering::SeqCst) {
                    let _guard = greedy.lock().expect("its turn");
                    // The work of a section. Without any, sixteen threads take all there is of
                    // the processors, and what is counted is how long the event that tells of
                    // the newcomer has to wait for one.
                    std::thread::sleep(Duration::from_millis(1));
                    sections.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let _stop = StopAtEnd(&stop);
        wait_until("the others are busy", SOON, || {
            sections.load(Ordering::SeqCst) > 20
        });
        for _ in 0..20 {
            // From the moment at which our node stands in the queue; before that, nobody can know
            // that we wait. What was begun by then may still end.
            let before = std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    single.lock().map(|guard| {
                        let seen = sections.load(Ordering::SeqCst);
                        drop(guard);
                        seen
                    })
                });
                let mut seen = sections.load(Ordering::SeqCst);
                let mut raw = raw(server());
                while !waits.is_finished() {
                    let queued = raw.children(path).unwrap_or_default().len() > 1;
                    if queued {
                        break;
                    }
                    seen = sections.load(Ordering::SeqCst);
                }
                (
                    sections.load(Ordering::SeqCst),
                    waits.join().expect("no panic"),
                    seen,
                )
            });
            let (queued_at, got_at, _) = before;
            let got_at = got_at.expect("its turn");
            let waited = got_at.saturating_sub(queued_at);
            // One section runs, and the event that tells of us is on its way during others.
            let slack = 1 + 20;
            assert!(waited <= allowed + slack, "waited for {waited} sections");
        }
    });
}

#[derive(Default)]
struct Stop(AtomicBool);

/// Ends the threads of a scope also when the test fails in it, which would else never end.
struct StopAtEnd<'a>(&'a Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_greedy_process_gives_way() {
    greedy(None, "/tenure/greedy");
}

#[test]
fn a_greedy_process_gives_way_after_its_hand_offs() {
    greedy(Some(64), "/tenure/greedy64");
}

/// Who queues while the holder of an idle lock has no contact is not seen, and no watch is left to
/// tell: the idle lock is given up when there is contact again.
#[test]
fn an_idle_lock_does_not_outlive_an_outage() {
    let path = "/tenure/idle-outage";
    let (proxy, client) = counted();
    let builder = Mutex::builder(&client, path).linger(Duration::MAX);
    let idle = builder.build().expect("good");
    drop(idle.lock().expect("free"));
    proxy.refuse();
    proxy.reset_all();
    let other = crate::fixtures::client();
    let lock = mutex(&other, path);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lock.lock().expect("its turn").is_held());
        wait_for_children(server(), path, 2);
        proxy.accept();
        assert!(waits.join().expect("no panic"));
    });
}

/// Strictly in turns, what a process does with its lock is counted on the wire: for each hand-over
/// one create, one delete, and two reads.
#[test]
fn alternating_processes_take_over_without_another_list() {
    let path = "/tenure/turns";
    let sides = [counted(), counted()];
    let locks = [mutex(&sides[0].1, path), mutex(&sides[1].1, path)];
    let rounds: u64 = 20;
    // A side lets go when the other has set its watch, so that each is second when it lists.
    let turns = |mine: usize, holds: RangeInclusive<u64>| {
        let other = &sides[1 - mine].0;
        for hold in holds {
            let guard = locks[mine].lock().expect("its turn");
            if hold <= rounds {
                other.wait_for(|seen| seen.replied(opcode::GET_DATA) >= hold, SOON);
            }
            drop(guard);
        }
    };
    std::thread::scope(|scope| {
        let first = locks[0].lock().expect("free");
        let other = scope.spawn(|| turns(1, 1..=rounds));
        sides[1]
            .0
            .wait_for(|seen| seen.replied(opcode::GET_DATA) >= 1, SOON);
        drop(first);
        turns(0, 2..=rounds + 1);
        other.join().expect("no panic");
    });
    let seen = sides[0].0.counters();
    assert_eq!(seen.requested(opcode::DELETE), rounds + 1);
    assert_eq!(seen.requested(opcode::GET_DATA), rounds);
    assert_eq!(seen.requested(opcode::EXISTS), 0);
    // One for each acquire, and one for the first time that we waited: until then nothing had
    // shown that the watch on the folder is worth setting. And one went with the very first create,
    // which found no folder.
    assert_eq!(seen.requested(opcode::GET_CHILDREN), rounds + 3);
    // The deletion of the node ahead is told to its own watch and to that of the folder.
    assert!(seen.notifications <= 2 * rounds, "{seen:?}");
}

/// The proof that needs no list must not survive the removal of our own node: whoever concluded
/// "the one ahead is gone, so it is my turn" would hold beside the next one.
#[test]
fn a_removed_waiter_does_not_take_over() {
    let clients = [client(), client(), client()];
    let path = "/tenure/removed";
    let locks: Vec<_> = clients.iter().map(|c| mutex(c, path)).collect();
    // The second has learned that it is second as a rule, so it relies on the proof next time.
    for _ in 0..2 {
        let guard = locks[0].lock().expect("free");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| locks[1].lock().expect("its turn").path().to_owned());
            wait_for_children(server(), path, 2);
            drop(guard);
            second.join().expect("no panic");
        });
        wait_for_children(server(), path, 0);
    }
    let guard = locks[0].lock().expect("free");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let guard = locks[1].lock().expect("its turn");
            let third = locks[2].try_lock().expect("answers");
            assert!(third.is_none(), "two hold at once");
            guard.path().to_owned()
        });
        wait_for_children(server(), path, 2);
        let mut names = children(server(), path);
        names.retain(|name| !guard.path().ends_with(name.as_str()));
        let removed = format!("{path}/{}", names[0]);
        raw(server()).delete(&removed).expect("there");
        drop(guard);
        assert_ne!(second.join().expect("no panic"), removed);
    });
}

#[test]
fn a_lingering_lock_is_taken_again_without_asking() {
    let (proxy, client) = counted();
    let builder = Mutex::builder(&client, "/tenure/linger").linger(Duration::from_secs(60));
    let lock = builder.build().expect("good");
    let first = lock.lock().expect("free").path().to_owned();
    let before = proxy.counters();
    for _ in 0..1000 {
        let guard = lock.lock().expect("ours");
        assert!(guard.is_held());
    }
    for opcode in [
        opcode::CREATE,
        opcode::DELETE,
        opcode::GET_CHILDREN,
        opcode::GET_DATA,
    ] {
        assert_eq!(spent(&proxy, &before, opcode), 0);
    }
    let participants = lock.participants().expect("answers");
    assert!(participants[0].is_idle() && participants[0].is_ours());
    assert_eq!(participants[0].path(), first);
    lock.release_idle().expect("answers");
    assert!(children(server(), "/tenure/linger").is_empty());
}

#[test]
fn a_newcomer_ends_the_linger() {
    let (one, two) = (client(), client());
    let builder = Mutex::builder(&one, "/tenure/newcomer").linger(Duration::from_secs(3600));
    let lingering = builder.build().expect("good");
    let newcomer = mutex(&two, "/tenure/newcomer");
    for _ in 0..10 {
        drop(lingering.lock().expect("its turn"));
        assert_eq!(children(server(), "/tenure/newcomer").len(), 1);
        drop(
            newcomer
                .try_lock_for(SOON)
                .expect("answers")
                .expect("given up"),
        );
    }
}

#[test]
fn a_linger_ends_by_itself_and_with_its_lock() {
    let client = client();
    let lock = |linger| {
        let builder = Mutex::builder(&client, "/tenure/over").linger(linger);
        builder.build().expect("good")
    };
    let short = lock(Duration::from_millis(50));
    drop(short.lock().expect("free"));
    wait_for_children(server(), "/tenure/over", 0);
    let long = lock(Duration::MAX);
    drop(long.lock().expect("free"));
    assert_eq!(children(server(), "/tenure/over").len(), 1);
    drop(long);
    wait_for_children(server(), "/tenure/over", 0);
}

/// Inside a tenure that has lost contact nobody else may begin: the next thread queues anew.
#[test]
fn a_suspect_tenure_is_not_handed_over() {
    let (proxy, client) = counted();
    // With turns to give away, nothing but the state of the tenure is asked.
    let builder = Mutex::builder(&client, "/tenure/suspect").max_handoffs(8);
    let lock = builder.build().expect("good");
    let guard = lock.lock().expect("free");
    let first = guard.path().to_owned();
    let coming = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            coming.fetch_add(1, Ordering::SeqCst);
            lock.lock().expect("its turn").path().to_owned()
        });
        // It has come to the lock by the time that a connection has broken and is missed.
        wait_until("it comes", SOON, || coming.load(Ordering::SeqCst) == 1);
        proxy.refuse();
        proxy.reset_all();
        wait_until("suspect", SOON, || guard.state() == LockState::Suspect);
        let error = guard.unlock().expect_err("nobody confirms it");
        assert!(error.is_connection_loss(), "{error}");
        proxy.accept();
        assert_ne!(next.join().expect("no panic"), first);
    });
    wait_for_children(server(), "/tenure/suspect", 0);
}
