//! Takes one free lock and gives it back, on a server in this process: what `scripts/measure-path` follows.

use std::error::Error;

use zklock::{Client, Mutex, MutexGuard};

/// Calls before the ones that are followed: folders are made, and all threads have begun.
const BEFORE: usize = 2;
/// More than one, so that what only some of them do counts as well.
const FOLLOWED: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let server = zklock_test::Server::start()?;
    let client = Client::connect(&server.connect_string())?;
    let lock = Mutex::new(&client, "/one-lock")?;
    for _ in 0..BEFORE {
        lock.lock()?.unlock()?;
    }
    for _ in 0..FOLLOWED {
        let guard = followed_acquire(&lock)?;
        followed_release(guard);
    }
    Ok(())
}

// By these names the script knows where to begin and to end.
#[inline(never)]
fn followed_acquire(lock: &Mutex) -> zklock::Result<MutexGuard> {
    lock.lock()
}

#[inline(never)]
fn followed_release(guard: MutexGuard) {
    drop(guard);
}
