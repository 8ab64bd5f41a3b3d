//! A network that carries little: what is on its way is no silence.

use std::time::Duration;

use testbed::Proxy;
use zklock::AcquireOptions;

use crate::fixtures::{SOON, apache, builder, mutex};

/// 4 Mbit/s.
const RATE: u32 = 500_000;
const T: Duration = Duration::from_secs(10);

/// With a timeout of 3 s a megabyte on that network takes longer than a probe may wait behind it, and
/// nobody knows before the first one how much the network carries. It is taken, or refused with its
/// size, and in the end the client goes on.
#[test]
fn a_first_megabyte_that_cannot_fit_is_refused_or_taken() {
    let proxy = Proxy::start(apache().addr());
    proxy.limit_rate(RATE);
    let client = builder(&proxy.connect_string()).session_timeout(Duration::from_secs(3));
    let client = client.connect().expect("it serves");
    let path = "/slow-networks/first";
    let large = zklock::Mutex::builder(&client, path).data(vec![7; 1_000_000]);
    let large = large.build().expect("it may fit");
    match large.try_lock_for(SOON) {
        Ok(guard) => drop(guard.expect("free, and neither refused nor taken in time")),
        Err(error) => {
            let text = error.to_string();
            assert!(error.is_invalid() && text.contains("bytes"), "{text}");
        }
    }
    let small = mutex(&client, "/slow-networks/small");
    assert!(small.try_lock_for(SOON).expect("answered").is_some());
}

/// A node's data of a megabyte takes two seconds, and a server that is silent is given up after
/// less than that. Once such a lock was never taken: each connection broke at it, under everybody.
#[test]
fn a_megabyte_of_node_data_breaks_nothing() {
    let proxy = Proxy::start(apache().addr());
    proxy.limit_rate(RATE);
    let client = builder(&proxy.connect_string()).session_timeout(T);
    let client = client.connect().expect("it serves");
    let holder = mutex(&client, "/slow-networks/beside")
        .lock()
        .expect("free");
    let events = client.events();
    let path = "/slow-networks/large";
    let data = vec![7; 1_000_000];
    let large = zklock::Mutex::builder(&client, path).data(data);
    let large = large.build().expect("it fits");
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            for _ in 0..3 {
                let options = AcquireOptions::new().timeout(SOON);
                let guard = large.lock_with(options).expect("free");
                assert!(guard.is_held());
                guard.unlock().expect("confirmed");
            }
        });
        // Lists go on beside it, and so do the locks of others.
        let other = mutex(&client, "/slow-networks/another");
        while !taking.is_finished() {
            other.participants().expect("answered");
            drop(other.lock().expect("free"));
        }
        taking.join().expect("taken");
    });
    assert!(holder.is_held());
    assert!(events.try_recv().is_err(), "no break");
    assert_eq!(proxy.counters().accepted, 1);
}
