//! Company: many locks beside the one under torture, taken by many threads at once, so that what is
//! asked for that one shares packets with what is asked for others. What becomes of these locks is
//! not judged, but that nothing of them is left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use zklock::{Client, Mutex};

const LOCKS: u32 = 8;
/// Between two rounds: enough for everything else that a small machine has to do.
const PAUSE: Duration = Duration::from_millis(30);

/// Takes and gives back all of them, round after round. `who`: nobody else has these locks.
pub(crate) fn keep(client: &Client, path: &str, who: &str, session: Duration, rests: &AtomicBool) {
    let paths = (0..LOCKS).map(|number| format!("{path}-beside/{who}/{number}"));
    let locks: Vec<_> = paths
        .map(|path| Mutex::new(client, &path).expect("a good path"))
        .collect();
    while !rests.load(Ordering::SeqCst) {
        thread::scope(|scope| {
            for lock in &locks {
                // The nemesis may be at it.
                scope.spawn(|| drop(lock.try_lock_for(session / 2)));
            }
        });
        thread::sleep(PAUSE);
    }
}
