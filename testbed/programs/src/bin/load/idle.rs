//! What a client costs that does nothing, measured in a process of its own.

use std::thread;
use std::time::Duration;

use testbed::process;
use zklock::{Client, Mutex};

const LOOK: Duration = Duration::from_secs(10);
const LOCKS: usize = 10_000;

/// Prints one line of the table's cells for each reading.
pub(crate) fn measure(servers: &str) {
    let client = Client::connect(servers).expect("the server serves");
    let lock = Mutex::new(&client, "/idle").expect("the path is good");
    drop(lock.lock().expect("healthy"));

    let before = process::cpu_time();
    // Not a wait for something: the time that is measured.
    thread::sleep(LOOK);
    let used = process::cpu_time().saturating_sub(before);
    let percent = used.as_secs_f64() * 100.0 / LOOK.as_secs_f64();
    println!("| processor of an idle client, over {LOOK:?} | {percent:.3} % of a core | < 1 % |");

    let mut names = process::thread_names();
    names.retain(|name| !name.starts_with("load"));
    names.sort();
    println!(
        "| threads of a client | {} ({}) | a small constant |",
        process::threads() - 1,
        names.join(", ")
    );

    let before = process::resident_bytes();
    let locks: Vec<Mutex> = (0..LOCKS)
        .map(|n| Mutex::new(&client, &format!("/many/{n}")).expect("the path is good"))
        .collect();
    let grown = process::resident_bytes().saturating_sub(before);
    println!(
        "| {} `Mutex` objects | {:.1} MB | < 10 MB |",
        locks.len(),
        grown as f64 / 1e6
    );
}
