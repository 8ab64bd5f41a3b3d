//! Together with other implementations in the same folders.

use std::thread;
use std::time::Duration;

use testbed::wait_until;
use zklock::RwLock;

use crate::fixtures::{SOON, children, server, wait_for_children};

mod curator;
mod home_grown;
mod kazoo;
mod three_languages;

/// Long enough for a wait to be in the queue when it ends.
const SHORT: Duration = Duration::from_millis(300);
/// How long a section of a history lasts, on all sides.
const SECTION: Duration = Duration::from_millis(1);

/// Whether it got in, before it gave up. It has left when this returns.
fn reads(lock: &RwLock) -> bool {
    lock.try_read_for(SOON).expect("answers").is_some()
}

fn writes(lock: &RwLock) -> bool {
    lock.try_write_for(SOON).expect("answers").is_some()
}

/// While a writer of theirs holds, our reader and our writer, of two sessions, leave nothing when they give up, and wait.
/// They get in when `release` has had it go.
fn ours_wait_for_their_writer(path: &str, [reader, writer]: [RwLock; 2], release: impl FnOnce()) {
    let theirs = children(server(), path);
    assert!(reader.try_read().expect("answers").is_none());
    assert!(writer.try_write().expect("answers").is_none());
    assert!(reader.try_read_for(SHORT).expect("answers").is_none());
    assert!(writer.try_write_for(SHORT).expect("answers").is_none());
    wait_until("our nodes are gone", SOON, || {
        children(server(), path) == theirs
    });
    thread::scope(|scope| {
        let reading = scope.spawn(|| reads(&reader));
        wait_for_children(server(), path, 2);
        let writing = scope.spawn(|| writes(&writer));
        wait_for_children(server(), path, 3);
        assert!(!reading.is_finished() && !writing.is_finished());
        release();
        assert!(reading.join().expect("no panic"), "its turn");
        assert!(writing.join().expect("no panic"), "its turn");
    });
    wait_for_children(server(), path, 0);
}
