//! Many permits at once: they are asked for in packets that no server minds, and looked for together.

use testbed::{Action, Matcher, Proxy, opcode};
use zklock::{AcquireOptions, Semaphore};

use crate::fixtures::{SOON, client_at, mutex, server, wait_for_children};

fn soon() -> AcquireOptions {
    AcquireOptions::new().timeout(SOON)
}

/// More than one packet takes, by far.
#[test]
fn eight_thousand_are_taken_and_given_back_on_one_connection() {
    const MANY: u32 = 8_000;
    let path = "/many-permits/eight-thousand";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let pool = Semaphore::new(&client, path, 8_000).expect("a good path");
    let permits = pool.acquire_many_with(MANY, soon()).expect("free");
    assert!(permits.is_held());
    assert_eq!(pool.available().expect("answers"), 0);
    permits.release().expect("confirmed");
    wait_for_children(server(), &format!("{path}/leases"), 0);
    let seen = proxy.counters();
    assert_eq!(seen.accepted, 1, "no connection broke");
    let writes = [opcode::MULTI, opcode::CREATE, opcode::DELETE];
    let writes: u64 = writes.iter().map(|kind| seen.requested(*kind)).sum();
    assert!(writes < 800, "{writes} requests that write");
}

/// In one packet they would be more than a server takes, and it would hang up under everybody.
#[test]
fn large_data_on_many_permits_disturbs_nobody() {
    let path = "/many-permits/large";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let guard = mutex(&client, "/many-permits/beside").lock().expect("free");
    let builder = Semaphore::builder(&client, path).max(100);
    let pool = builder.data(vec![7; 100 << 10]).build().expect("fits");
    let events = client.events();
    // The second time the folder is known. A hundred have more bytes than are kept for a server
    // that does not read.
    for count in [16, 16, 100] {
        let permits = pool.acquire_many_with(count, soon()).expect("free");
        permits.release().expect("confirmed");
    }
    assert!(guard.is_held());
    assert!(events.try_recv().is_err(), "no break");
    assert_eq!(proxy.counters().accepted, 1);
}

/// Once each of them was looked for by itself: a write, a list of all and a look, for every permit.
#[test]
fn those_whose_answers_were_lost_are_looked_for_together() {
    const MANY: u32 = 1_000;
    let path = "/many-permits/lost";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let pool = Semaphore::new(&client, path, 2_000).expect("a good path");
    drop(pool.acquire().expect("free"));
    let trap = proxy.on_reply(Matcher::next(opcode::MULTI), Action::Reset);
    let before = proxy.counters();
    let permits = pool.acquire_many_with(MANY, soon()).expect("free");
    assert_eq!(trap.times_sprung(), 1);
    let after = proxy.counters();
    let of = |kind| after.requested(kind) - before.requested(kind);
    assert!(of(opcode::GET_CHILDREN) < 10, "{after:?}");
    assert!(of(opcode::DELETE) < 20, "{after:?}");
    permits.release().expect("confirmed");
    wait_for_children(server(), &format!("{path}/leases"), 0);
}
