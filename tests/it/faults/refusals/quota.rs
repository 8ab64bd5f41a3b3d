//! A folder in which no more nodes may be made: that is its own affair, and no trouble of others.

use std::thread::ScopedJoinHandle;
use std::time::Duration;

use testbed::proxy::Trap;
use testbed::{Action, Matcher, opcode};
use zklock::Semaphore;

use super::proxied;
use crate::fixtures::{mutex, server, wait_for_children};

/// The folder's, or that of one above it.
const QUOTA_EXCEEDED: i32 = -125;

/// Every other packet of others was refused with its creates, and all in it sent again.
#[test]
fn a_folder_without_quota_keeps_out_of_others_packets() {
    const OTHERS: usize = 16;
    const ROUNDS: usize = 20;
    let folder = "/refusals/full";
    let (proxy, client) = proxied();
    let full = mutex(&client, folder);
    drop(full.lock().expect("free"));
    let others: Vec<_> = (0..OTHERS)
        .map(|number| mutex(&client, &format!("/refusals/not-full/{number}")))
        .collect();
    for lock in &others {
        drop(lock.lock().expect("free"));
    }
    // Only a create by itself is refused: one that shares a packet gets in.
    let of_full = Matcher::every(opcode::CREATE).with_path_containing(folder);
    let refused = proxy.on_request(of_full, Action::Refuse(QUOTA_EXCEEDED));
    let first = full.try_lock().expect_err("refused");
    assert!(first.to_string().contains("quota"), "{first}");
    // So that what is asked meanwhile comes together after it.
    proxy.delay(Duration::from_millis(20));
    let multis = proxy.counters().requested(opcode::MULTI);
    std::thread::scope(|scope| {
        let busy: Vec<_> = others
            .iter()
            .map(|lock| {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        drop(lock.lock().expect("healthy"));
                    }
                })
            })
            .collect();
        while !busy.iter().all(ScopedJoinHandle::is_finished) {
            let got_in = full.try_lock().map(|guard| guard.is_some());
            let error = got_in.expect_err("it went in company");
            assert!(error.to_string().contains("quota"), "{error}");
        }
    });
    assert!(refused.times_sprung() > 1);
    let multis = proxy.counters().requested(opcode::MULTI) - multis;
    assert!(multis > 10, "the others shared {multis} packets");
}

/// The same where it was found out by the first of many creates, with more to come.
#[test]
fn a_folder_without_quota_for_many_permits_keeps_out_of_packets() {
    /// More than are asked for at once.
    const MANY: u32 = 3_000;
    let folder = "/refusals/full-permits/leases";
    let (proxy, client) = proxied();
    let semaphore = Semaphore::new(&client, "/refusals/full-permits", MANY).expect("a good path");
    drop(semaphore.acquire().expect("free"));
    wait_for_children(server(), folder, 0);
    let refused = [opcode::CREATE, opcode::MULTI].map(|op| {
        let of_folder = Matcher::every(op).with_path_containing(folder);
        proxy.on_request(of_folder, Action::Refuse(QUOTA_EXCEEDED))
    });
    let error = semaphore.acquire_many(MANY).map(drop);
    let error = error.expect_err("refused");
    assert!(error.to_string().contains("quota"), "{error}");
    assert!(refused[1].times_sprung() > 0, "they shared packets");
    refused.iter().for_each(Trap::disarm);
    let shared = Matcher::every(opcode::MULTI).with_path_containing(folder);
    let shared = proxy.on_request(shared, Action::Refuse(QUOTA_EXCEEDED));
    let permits = semaphore.acquire_many(3).expect("free");
    assert_eq!(shared.times_sprung(), 0, "its creates shared a packet");
    shared.disarm();
    drop(permits);
    wait_for_children(server(), folder, 0);
}
