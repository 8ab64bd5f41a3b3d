//! ZooKeeper itself: the guard's own transaction, which has no need of a token.
//!
//! The servers look whether the guard's node is there and write at one moment, or do nothing. No holder need take over: when
//! a lock is granted, the node of the one before is gone, and with it all that it had under way.

use zklock::{Client, Error, MutexGuard};

use crate::WriteError;

/// What is in a node: empty if it is not there.
///
/// # Errors
/// Those of [`Client::read`].
pub fn read(client: &Client, path: &str) -> Result<String, Error> {
    let (data, _version) = client.read(path)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&data).into_owned())
}

/// # Errors
/// [`WriteError::Late`]; those of [`Transaction::commit`](zklock::Transaction::commit).
pub fn write(guard: &MutexGuard, path: &str, body: &str) -> Result<(), WriteError<Error>> {
    match guard.transaction().put(path, body).commit() {
        Ok(_) => Ok(()),
        Err(error) if error.is_lock_lost() => Err(WriteError::Late),
        Err(error) => Err(error.into()),
    }
}
