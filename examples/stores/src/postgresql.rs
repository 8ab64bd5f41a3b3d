//! PostgreSQL: one guarded statement, the token in the row that it guards.
//!
//! The comparison and the write are one statement, so a statement that was sent before its client was stopped, and
//! arrives hours later, is refused as well. PostgreSQL locks the row, and compares with what was committed last; under
//! `REPEATABLE READ` and above, a row that was changed meanwhile is an error (40001) instead, which writes nothing
//! either.
//!
//! All programs that write to the table must do it so. For tables with many writers, see [`trigger`](crate::trigger).

use postgres::{Client, Error};
use zklock::FencingToken;

use crate::{WriteError, bigint};

pub const TABLE: &str = "
CREATE TABLE IF NOT EXISTS documents (
    name  text PRIMARY KEY,
    body  text NOT NULL,
    fence bigint NOT NULL
)";

/// Brings the token, and reads. The first holder of all makes the row. No row comes back to one who is late.
pub const TAKE_OVER: &str = "
INSERT INTO documents (name, body, fence) VALUES ($1, '', $2)
ON CONFLICT (name) DO UPDATE SET fence = EXCLUDED.fence
    WHERE documents.fence <= EXCLUDED.fence
RETURNING body";

/// Changes no row if the writer is late.
pub const WRITE: &str = "
INSERT INTO documents (name, body, fence) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET body = EXCLUDED.body, fence = EXCLUDED.fence
    WHERE documents.fence <= EXCLUDED.fence";

/// Empties a document. Its row stays, as the token is in it: a late write after a `DELETE` would make the row again.
pub const REMOVE: &str = "
UPDATE documents SET body = '', fence = $2
    WHERE name = $1 AND fence <= $2";

/// Reads a document of which nobody can be late any more: empty if it was never written.
///
/// # Errors
/// [`WriteError::Late`]; errors of the database.
pub fn take_over(
    client: &mut Client,
    name: &str,
    token: FencingToken,
) -> Result<String, WriteError<Error>> {
    match client.query_opt(TAKE_OVER, &[&name, &bigint(token)])? {
        Some(row) => Ok(row.try_get(0)?),
        None => Err(WriteError::Late),
    }
}

/// # Errors
/// [`WriteError::Late`]; errors of the database.
pub fn write(
    client: &mut Client,
    name: &str,
    body: &str,
    token: FencingToken,
) -> Result<(), WriteError<Error>> {
    match client.execute(WRITE, &[&name, &body, &bigint(token)])? {
        0 => Err(WriteError::Late),
        _ => Ok(()),
    }
}

/// # Errors
/// [`WriteError::Late`], also if there is no such document; errors of the database.
pub fn remove(
    client: &mut Client,
    name: &str,
    token: FencingToken,
) -> Result<(), WriteError<Error>> {
    match client.execute(REMOVE, &[&name, &bigint(token)])? {
        0 => Err(WriteError::Late),
        _ => Ok(()),
    }
}
