//! A process that takes a lock again and again until it is told to rest, or dies.
//!
//! `torture_worker LOCK SERVERS PATH SESSION_MS NAME HISTORY SEED` obeys three words on its input: at
//! `load` it says more than servers take in a moment; at `rest` its threads end what they do, and it
//! answers `resting`; at `close` it closes its client and ends. When its input ends, it ends at once.

mod company;
mod load;
mod locks;
mod performer;

use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use testbed_programs::history::History;
use testbed_programs::random::Random;

use locks::{Kind, Lock};
use performer::{Ground, Performer};

const THREADS: u64 = 3;

fn main() {
    let _ = env_logger::builder().format_timestamp_millis().try_init();
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kind, servers, path, session, name, history, seed] = arguments.as_slice() else {
        panic!("torture_worker LOCK SERVERS PATH SESSION_MS NAME HISTORY SEED");
    };
    let kind: Kind = kind.parse().expect("a kind of lock");
    let session = Duration::from_millis(session.parse().expect("milliseconds"));
    let seed: u64 = seed.parse().expect("a number");
    let history = History::open(Path::new(history)).expect("a place for the history");

    let mut random = Random::new(seed);
    let client = locks::connect(servers, session);
    let lock = Lock::build(kind, &client, path, &mut random).expect("good settings");
    let (rests, next_id) = (AtomicBool::new(false), AtomicU64::new(1));
    let ground = Ground {
        lock: &lock,
        history: &history,
        session,
        // Some are quick, and some sit on what they have.
        long_sections: random.of(&[1, 30]),
        rests: &rests,
        next_id: &next_id,
    };
    let has_company = random.percent(50);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut performer = Performer {
                who: format!("{name}.{thread}"),
                ground: &ground,
                random: Random::new(random.draw()),
            };
            scope.spawn(move || performer.run());
        }
        if has_company {
            scope.spawn(|| company::keep(&client, path, name, session, &rests));
        }
        // Its watch is taken off before all rest.
        scope.spawn(|| locks::watch(&lock, &rests));
        wait_for("rest", || load::put(scope, &client, path, name, session));
        rests.store(true, Ordering::SeqCst);
    });
    println!("resting");
    wait_for("close", || {});
    drop(lock);
    eprintln!("{name}: {} requests were put off", client.stats().put_off);
    client.close();
    history.note(name, format_args!("done"));
}

/// Waits for this word, and has `load` called at each `load`. Without the driver there is nothing to live for, and perhaps no server that
/// would let a call end.
fn wait_for(word: &str, mut load: impl FnMut()) {
    let lines = std::io::stdin().lock().lines().map_while(Result::ok);
    for line in lines {
        if line == word {
            return;
        }
        if line == "load" {
            load();
        }
    }
    std::process::exit(1);
}
