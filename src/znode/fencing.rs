//! [`FencingToken`]: what lets a store refuse a holder that is late.

use std::fmt;

use zklock_protocol::Stat;

use crate::error::{Error, Result};

/// A number that grows from one holder of a lock to the next.
///
/// Holding a lock is not proof that nobody else acts: a process can be stopped for longer than its
/// session lives, and then go on as if nothing had happened. Send the token along with each write,
/// and have the store refuse a token smaller than the largest that it has seen. Then a late holder
/// can do no harm. Where the store is ZooKeeper itself, a [`Transaction`](crate::Transaction) does
/// this without a token. (Martin Kleppmann, *How to do distributed locking*, 2016.)
///
/// The token is the number (`czxid`) of the transaction that created the holder's node. For one
/// path it rises with each holder, over all processes, even after the lock's folder was deleted and
/// made again. Two sections have the same token only if one process ran them one after the other
/// within one tenure (see [local hand-off](crate::MutexBuilder::local_hand_off)), where they
/// exclude each other inside the process. Numbers begin again only when the whole ensemble is set
/// up again.
///
/// A store that compares:
///
/// ```no_run
/// use zklock::FencingToken;
///
/// #[derive(Default)]
/// struct Store {
///     newest: Option<FencingToken>,
///     value: String,
/// }
///
/// impl Store {
///     /// Whether the write was taken.
///     fn write(&mut self, token: FencingToken, value: &str) -> bool {
///         if self.newest.is_some_and(|newest| token < newest) {
///             return false; // from a holder that is late
///         }
///         self.newest = Some(token);
///         self.value = value.to_owned();
///         true
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub(crate) u64);

impl FencingToken {
    /// The transaction that created a contender's node.
    pub(crate) fn of(stat: &Stat) -> Result<Self> {
        Self::made_by(stat.czxid)
    }

    /// Of the transaction that created a contender's node.
    pub(crate) fn made_by(czxid: i64) -> Result<Self> {
        u64::try_from(czxid)
            .map(Self)
            .map_err(|_| Error::refused("a negative transaction number"))
    }

    /// The token as a number, for stores that compare numbers.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

/// For a token that came over a wire to the store that compares it, and for tests of such a store.
impl From<u64> for FencingToken {
    fn from(token: u64) -> Self {
        Self(token)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
