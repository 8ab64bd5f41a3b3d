//! SQLite: one guarded statement, as in [`postgresql`](crate::postgresql).
//!
//! For processes that share a database file on one machine. SQLite lets one of them write at a time, by locks of the
//! operating system on the file. Those are no leases: a process that is stopped in the middle of a transaction keeps
//! them, and everybody else gets `SQLITE_BUSY` until it goes on or is killed. No late write comes of it, but nothing else
//! either. So do not wait for anything within a transaction.

use rusqlite::{Connection, Error, OptionalExtension, params};
use zklock::FencingToken;

use crate::{WriteError, bigint};

pub const TABLE: &str = "
CREATE TABLE IF NOT EXISTS documents (
    name  TEXT PRIMARY KEY,
    body  TEXT NOT NULL,
    fence INTEGER NOT NULL
) STRICT";

/// Brings the token, and reads. The first holder of all makes the row. No row comes back to one who is late.
pub const TAKE_OVER: &str = "
INSERT INTO documents (name, body, fence) VALUES (?1, '', ?2)
ON CONFLICT (name) DO UPDATE SET fence = excluded.fence
    WHERE documents.fence <= excluded.fence
RETURNING body";

/// Changes no row if the writer is late.
pub const WRITE: &str = "
INSERT INTO documents (name, body, fence) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET body = excluded.body, fence = excluded.fence
    WHERE documents.fence <= excluded.fence";

/// Reads a document of which nobody can be late any more: empty if it was never written.
///
/// # Errors
/// [`WriteError::Late`]; errors of the database.
pub fn take_over(
    connection: &Connection,
    name: &str,
    token: FencingToken,
) -> Result<String, WriteError<Error>> {
    let row = connection.query_row(TAKE_OVER, params![name, bigint(token)], |row| row.get(0));
    row.optional()?.ok_or(WriteError::Late)
}

/// # Errors
/// [`WriteError::Late`]; errors of the database.
pub fn write(
    connection: &Connection,
    name: &str,
    body: &str,
    token: FencingToken,
) -> Result<(), WriteError<Error>> {
    match connection.execute(WRITE, params![name, body, bigint(token)])? {
        0 => Err(WriteError::Late),
        _ => Ok(()),
    }
}
