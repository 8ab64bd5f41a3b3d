//! [`DowngradeError`]: a downgrade that did not come to anything, with the guard.

use std::fmt;

use super::rw_lock::RwWriteGuard;
use crate::error::Error;

/// Why a writer did not become a reader; see
/// [`RwWriteGuard::downgrade`](crate::RwWriteGuard::downgrade).
///
/// It holds the write guard, which is dropped with it: converted into an [`Error`] by `?`, it gives
/// the write lock back.
pub struct DowngradeError {
    guard: RwWriteGuard,
    error: Error,
}

impl DowngradeError {
    pub(super) fn new(guard: RwWriteGuard, error: Error) -> Self {
        Self { guard, error }
    }

    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The write guard, to go on with.
    pub fn into_guard(self) -> RwWriteGuard {
        self.guard
    }

    /// The write guard, and what went wrong.
    pub fn into_parts(self) -> (RwWriteGuard, Error) {
        (self.guard, self.error)
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
