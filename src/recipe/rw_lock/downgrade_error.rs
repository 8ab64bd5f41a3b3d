//! [`DowngradeError`]: the error of a downgrade, with the write guard inside.

use std::fmt;

use super::{RwLock, RwWriteGuard};
use crate::error::Error;
use crate::recipe::hold::DetachedHold;

/// Why a writer did not become a reader; see
/// [`RwWriteGuard::downgrade`](RwWriteGuard::downgrade).
///
/// It owns the write guard. When `?` converts it into an [`Error`], the guard is dropped, and the
/// write lock is given back.
///
/// Unlike the guard it may be sent to another thread, so `?` also puts it into a
/// `Box<dyn std::error::Error + Send + Sync>`, or anything like it. That keeps it: the write lock is
/// given back when the box is dropped, on whichever thread. Until then the thread that wrote still
/// writes, can write again, and counts it among its
/// [holds](RwLock::write_hold_count); any other thread waits, also the one that has the error.
pub struct DowngradeError {
    hold: DetachedHold,
    lock: RwLock,
    error: Error,
}

impl DowngradeError {
    pub(super) fn new(RwWriteGuard(hold, lock): RwWriteGuard, error: Error) -> Self {
        let hold = hold.detach();
        Self { hold, lock, error }
    }

    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The write guard, to go on with on the thread that wrote.
    ///
    /// # Panics
    /// On any other thread, as a guard belongs to its thread. The write lock is given back then.
    #[track_caller]
    pub fn into_guard(self) -> RwWriteGuard {
        self.into_parts().0
    }

    /// The write guard, and what went wrong.
    ///
    /// # Panics
    /// As [`into_guard`](Self::into_guard).
    #[track_caller]
    pub fn into_parts(self) -> (RwWriteGuard, Error) {
        let Self { hold, lock, error } = self;
        let Ok(hold) = hold.attach() else {
            let path = lock.path();
            panic!("{path}: the guard in this DowngradeError belongs to the thread that wrote");
        };
        (RwWriteGuard(hold, lock), error)
    }
}

impl From<DowngradeError> for Error {
    fn from(failed: DowngradeError) -> Self {
        failed.error
    }
}

impl fmt::Display for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Debug for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DowngradeError").field(&self.error).finish()
    }
}

impl std::error::Error for DowngradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}
