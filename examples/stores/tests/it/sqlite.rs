//! SQLite.

use fenced_stores::sqlite;
use rusqlite::{Connection, ErrorCode};
use tempfile::TempDir;

use crate::stores::{NAME, Place};
use crate::story;

fn database() -> (TempDir, Place) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("documents.db");
    let connection = Connection::open(&file).expect("a new file");
    connection
        .execute_batch(sqlite::TABLE)
        .expect("a new table");
    (folder, Place::Sqlite(file))
}

#[test]
fn late_writes_are_refused() {
    let (_folder, place) = database();
    story::late_writes_are_refused("/locks/sqlite", &place);
}

#[test]
fn without_the_guard_a_late_write_wins() {
    let (_folder, place) = database();
    story::without_the_guard_a_late_write_wins("/locks/no-sqlite", &place);
}

/// What SQLite cannot do: end a transaction whose process is stopped. Nobody writes then; it takes a kill.
#[test]
fn a_holder_that_is_stopped_within_a_transaction_keeps_everybody_out() {
    let (folder, place) = database();
    let (first, next, mut store) = story::stopped_in_the_middle("/locks/sqlite-within", &place);
    let impatient = Connection::open(folder.path().join("documents.db")).expect("a file");
    impatient
        .busy_timeout(std::time::Duration::ZERO)
        .expect("a time");
    match sqlite::write(&impatient, NAME, "second", next.token) {
        Err(fenced_stores::WriteError::Store(error)) => {
            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
        }
        other => panic!("{other:?}"),
    }
    // Kills it.
    drop(first);
    assert_eq!(store.take_over(&next).as_deref(), Ok("first"));
    assert_eq!(store.write(&next, "second"), Ok(()));
    assert_eq!(store.read(), "second");
    next.guard.unlock().expect("held all the time");
}
