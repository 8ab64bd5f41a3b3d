//! Stores that refuse the late writes of a holder that has lost its lock. Each module is a template for one store:
//! copy what you need. What each can and cannot fence, and why, is on the page `docs/fencing.md`.
//!
//! All follow one rule. The store keeps the greatest fencing token that it has seen beside the data. A write brings the
//! token of its lock, and the store compares and writes in one step that nobody can come between: a smaller token is
//! refused, a greater or equal one is kept with the data.
//!
//! And one order. A holder that reads before it writes brings its token *first* (`take_over`): from then on nothing of
//! an earlier holder is taken, so what it reads stays as it is. Without that, a late write could still come between its
//! read and its own first write, and be overwritten unseen.

use std::fmt;

pub mod file;
pub mod postgresql;
pub mod redis;
pub mod sqlite;
pub mod trigger;
pub mod zookeeper;

/// Why something was not written.
#[derive(Debug)]
pub enum WriteError<E> {
    /// A later holder of the lock has been at the store. So ours is lost, whatever we believe. Nothing was written.
    Late,
    /// The store failed.
    Store(E),
}

impl<E> From<E> for WriteError<E> {
    fn from(error: E) -> Self {
        Self::Store(error)
    }
}

impl<E: fmt::Display> fmt::Display for WriteError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("too late: a later holder of the lock has been at the store"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for WriteError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Late => None,
            Self::Store(error) => error.source(),
        }
    }
}

/// A token as databases keep it. It is the number of a ZooKeeper transaction, which has 63 bits.
fn bigint(token: zklock::FencingToken) -> i64 {
    i64::try_from(token.as_u64()).expect("the number of a transaction")
}
