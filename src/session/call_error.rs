//! Why a call has no reply, and what that means to the caller of the library.

use super::backend::{NotNow, Refusal};
use super::phase::NoContact;
use crate::error::{Error, Result};

/// Why a call has no reply.
#[derive(Debug)]
pub(crate) enum CallError {
    /// It was never sent: the connection that it was for is not open.
    NotSent(NoContact),
    /// The connection or the epoch ended before the answer: it may have been executed or not, in
    /// that epoch and in no other.
    Unknown,
    /// ZooKeeper refused it, for good.
    Refused(Refusal),
    /// It was not done, or perhaps it was, and is to be asked for again after a pause: on the same
    /// connection, if that stands. See [`refusal`](super::refusal).
    NotNow(NotNow),
    /// The caller left, at its deadline or because it was cancelled; what the call may have made
    /// is cleaned up when its answer comes.
    Left(Error),
}

/// The outcome of a piece of work that makes calls.
pub(crate) type Step<T> = std::result::Result<T, CallError>;

impl NoContact {
    pub(crate) fn into_error(self, target: &str) -> Error {
        match self {
            Self::Closed => Error::closed(),
            Self::Forked => Error::forked(),
            Self::Disconnected => Error::connection_loss(target),
        }
    }
}

impl CallError {
    /// Whether the call may have been executed: what it makes must be looked for.
    pub(crate) fn may_be_done(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::NotNow(why) => why.may_be_done(),
            Self::NotSent(_) | Self::Refused(_) | Self::Left(_) => false,
        }
    }

    /// Whether work that can be repeated goes on after this error, on the next connection to
    /// `target`. If not, this is the error for the caller, who asked about `path`.
    pub(super) fn unless_retryable(self, target: &str, path: &str) -> Result<()> {
        match self {
            Self::NotSent(NoContact::Disconnected) | Self::Unknown => Ok(()),
            Self::NotSent(why) => Err(why.into_error(target)),
            Self::NotNow(why) => Err(Error::not_now(format!("{path}: {why}"))),
            Self::Left(error) => Err(error.context(path)),
            Self::Refused(error) => Err(error.at(path)),
        }
    }

    /// The error of a call that is not tried again.
    pub(crate) fn into_error(self, target: &str, path: &str) -> Error {
        match self.unless_retryable(target, path) {
            Ok(()) => Error::connection_loss(format!("{path} on {target}")),
            Err(error) => error,
        }
    }
}

impl Refusal {
    /// The refusal, with the place and what to do.
    pub(crate) fn at(self, path: &str) -> Error {
        match self {
            Self::NoAuth => Error::no_auth().context(path),
            Self::AuthFailed => Error::auth_failed(path),
            Self::InvalidAcl => Error::invalid_acl().context(path),
            Self::EphemeralParent => Error::refused(format!(
                "{path}: it, or a node above it, is ephemeral and cannot have children; \
                 choose another path"
            )),
            Self::NoNode => Error::refused(format!(
                "{path}: cannot be created; does the chroot of the connect string still exist?"
            )),
            Self::BadArguments => Error::invalid(format!(
                "{path}: the server refused the path or the size of the node data"
            )),
            Self::TooLarge(why) => Error::invalid(format!("{path}: not sent: {why}")),
            Self::QuotaExceeded => Error::refused(format!(
                "{path}: the quota of the folder, or of one above it, is used up"
            )),
            error => Error::refused(path).source(error),
        }
    }
}
