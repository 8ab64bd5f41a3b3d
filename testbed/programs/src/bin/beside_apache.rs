//! How long the server takes to start, and an idle lock and unlock over it and over Apache's, in
//! turns: `cargo run --release -p testbed-programs --bin beside_apache`.

use std::error::Error;
use std::time::{Duration, Instant};

use testbed::Server;
use zklock::{Client, Mutex};

const ROUNDS: usize = 20;
const CYCLES: u32 = 200;
const STARTS: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let begun = Instant::now();
        let server = zklock_test::Server::start()?;
        starts.push(begun.elapsed());
        drop(server);
    }
    println!(
        "start: median {:?}, longest {:?} of {STARTS}",
        median(&mut starts),
        starts[STARTS - 1]
    );

    let apache = Server::builder().optimised().start();
    let ours = zklock_test::Server::start()?;
    let mut sides = Vec::new();
    for servers in [ours.connect_string(), apache.connect_string()] {
        let client = Client::connect(&servers)?;
        sides.push((Mutex::new(&client, "/beside")?, Vec::new()));
    }
    // One round to warm up.
    for round in 0..=ROUNDS {
        for (lock, taken) in &mut sides {
            let begun = Instant::now();
            for _ in 0..CYCLES {
                lock.lock()?.unlock()?;
            }
            if round > 0 {
                taken.push(begun.elapsed() / CYCLES);
            }
        }
    }
    let [(_, ours), (_, apache)] = &mut sides[..] else {
        unreachable!("two sides");
    };
    let (ours, apache) = (median(ours), median(apache));
    println!(
        "idle lock and unlock: {ours:?} here, {apache:?} over Apache's: {:.2} of it",
        ratio(ours, apache)
    );
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
