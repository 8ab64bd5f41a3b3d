//! Files.

use std::fs::{File, TryLockError};

use tempfile::TempDir;

use crate::stores::Place;
use crate::story;

fn file() -> (TempDir, Place) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = Place::File(folder.path().join("plan"));
    (folder, place)
}

#[test]
fn late_writes_are_refused() {
    let (_folder, place) = file();
    story::late_writes_are_refused("/locks/file", &place);
}

#[test]
fn without_the_guard_a_late_write_wins() {
    let (_folder, place) = file();
    story::without_the_guard_a_late_write_wins("/locks/no-file", &place);
}

/// Between its look at the token and its rename nobody gets in. It takes a kill, and nothing of it is left.
#[test]
fn a_holder_that_is_stopped_in_the_middle_keeps_everybody_out() {
    let (folder, place) = file();
    let (first, next, mut store) = story::stopped_in_the_middle("/locks/file-within", &place);
    let lock = File::open(folder.path().join("plan.lock")).expect("it was made");
    assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
    // Kills it.
    drop(first);
    assert_eq!(store.take_over(&next).as_deref(), Ok("first"));
    assert_eq!(store.write(&next, "second"), Ok(()));
    assert_eq!(store.read(), "second");
    next.guard.unlock().expect("held all the time");
}
