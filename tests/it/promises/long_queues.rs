//! Long queues: who has just held, and wants the lock again, gets in line without another list.

use std::thread;

use testbed::raw::Flags;
use testbed::{Counters, Proxy, RawSession, opcode};
use zklock::Mutex;

use crate::fixtures::{SOON, client_at, mutex, raw, server, wait_for_children};

const CROWD: usize = 80;

/// A lock that was held, and given back, while a crowd waited behind.
struct GivenBack {
    proxy: Proxy,
    lock: Mutex,
    hand: RawSession,
    /// In their order.
    crowd: Vec<String>,
    before: Counters,
}

/// A node that stands until it is deleted by hand.
fn queue_up(hand: &mut RawSession, path: &str) -> String {
    let prefix = format!("{path}/_c_01234567-89ab-4cde-8f01-23456789abcd-lock-");
    let made = hand.create(&prefix, b"", Flags::PersistentSequential);
    made.expect("the folder stands")
}

/// Bounded, so that a test that fails does not wait for ever.
fn holds_soon(lock: &Mutex) -> bool {
    let taken = lock.try_lock_for(2 * SOON).expect("healthy");
    taken.is_some_and(|guard| guard.is_held())
}

fn given_back(path: &str) -> GivenBack {
    let proxy = Proxy::start(server().addr());
    let lock = mutex(&client_at(&proxy.connect_string()), path);
    drop(lock.lock().expect("free"));
    let mut hand = raw(server());
    // With one ahead it would take over without a list.
    let ahead = [(); 2].map(|()| queue_up(&mut hand, path));
    let crowd = thread::scope(|scope| {
        let waits = scope.spawn(|| drop(lock.lock().expect("its turn")));
        wait_for_children(server(), path, 3);
        let crowd = (0..CROWD).map(|_| queue_up(&mut hand, path)).collect();
        for node in ahead {
            hand.delete(&node).expect("it stands");
        }
        waits.join().expect("no panic");
        crowd
    });
    GivenBack {
        before: proxy.counters(),
        proxy,
        lock,
        hand,
        crowd,
    }
}

impl GivenBack {
    fn lists(&self) -> u64 {
        let seen = self.proxy.counters();
        seen.requested(opcode::GET_CHILDREN) - self.before.requested(opcode::GET_CHILDREN)
    }

    /// Locks once more, and deletes the nodes ahead when that waits for one of them, which it finds
    /// by so many reads; says how many lists it took until then, and in all.
    fn lock_again(&mut self, reads: u64) -> (u64, u64) {
        let wanted = self.before.replied(opcode::GET_DATA) + reads;
        let lock = self.lock.clone();
        thread::scope(|scope| {
            let waits = scope.spawn(move || holds_soon(&lock));
            self.proxy
                .wait_for(|seen| seen.replied(opcode::GET_DATA) >= wanted, SOON);
            let waiting = self.lists();
            for node in &self.crowd {
                self.hand.delete(node).expect("it stands");
            }
            assert!(waits.join().expect("no panic"));
            (waiting, self.lists())
        })
    }
}

#[test]
fn a_holder_gets_in_line_again_behind_the_last_without_a_list() {
    let mut held = given_back("/long/again");
    assert_eq!(held.lock_again(1), (0, 1));
    let folder = held.hand.children("/long/again").expect("it stands");
    assert_eq!(folder, Vec::<String>::new());
}

/// The read that would leave the watch finds nothing to wait for.
#[test]
fn the_last_has_gone_meanwhile() {
    let mut held = given_back("/long/gone");
    let last = held.crowd.pop().expect("many");
    held.hand.delete(&last).expect("it stands");
    assert_eq!(held.lock_again(2), (1, 2));
}

/// The one who was last is ahead, but would not be the nearest.
#[test]
fn another_has_come_meanwhile() {
    let path = "/long/newcomer";
    let mut held = given_back(path);
    let newcomer = queue_up(&mut held.hand, path);
    held.crowd.push(newcomer);
    assert_eq!(held.lock_again(1), (1, 2));
}

/// Our node may be removed by hand while it waits behind a node that we have not seen in a list.
#[test]
fn a_removed_waiter_queues_again() {
    let path = "/long/removed";
    let mut held = given_back(path);
    let lock = held.lock.clone();
    let wanted = held.before.replied(opcode::GET_DATA) + 1;
    thread::scope(|scope| {
        let waits = scope.spawn(move || holds_soon(&lock));
        held.proxy
            .wait_for(|seen| seen.replied(opcode::GET_DATA) >= wanted, SOON);
        let listed = held.hand.children(path).expect("it stands");
        let ours = listed.iter().map(|name| format!("{path}/{name}"));
        let ours: Vec<_> = ours.filter(|node| !held.crowd.contains(node)).collect();
        assert_eq!(ours.len(), 1);
        held.hand.delete(&ours[0]).expect("it stands");
        for node in &held.crowd {
            held.hand.delete(node).expect("it stands");
        }
        assert!(waits.join().expect("no panic"));
    });
}
