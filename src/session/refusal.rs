//! What a call that failed means to the caller of the library.

use super::call::CallError;
use super::keeper::KeeperError;
use crate::error::{Error, Result};

impl CallError {
    /// Whether work that can be taken up again goes on after this error, on the next connection
    /// to `target`. If not, the error is the caller's, who asked about `path`.
    pub(super) fn bearable(self, target: &str, path: &str) -> Result<()> {
        match self {
            Self::NotSent(why) => match why.into_error(target) {
                error if error.is_closed() => Err(error),
                _ => Ok(()),
            },
            Self::Unknown(_) => Ok(()),
            Self::Left(error) => Err(error),
            Self::Refused(error) => Err(error.at(path)),
        }
    }

    /// The error of a call that is not tried again.
    pub(crate) fn finally(self, target: &str, path: &str) -> Error {
        match self.bearable(target, path) {
            Ok(()) => Error::connection_loss(format!("{path} on {target}")),
            Err(error) => error,
        }
    }
}

impl KeeperError {
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
            error => Error::refused(path).source(error),
        }
    }
}
