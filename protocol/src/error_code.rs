//! [`ErrorCode`]: the numbers with which a server says no.

use std::fmt;

/// Why a server did not do what it was asked, as ZooKeeper has it in `KeeperException.Code`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode(pub i32);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// No error.
    OK = 0, "no error";
    /// In a multi: another step failed.
    RUNTIME_INCONSISTENCY = -2, "another step of the same request failed";
    /// The server cannot say what became of it.
    CONNECTION_LOSS = -4, "the server lost its connection";
    /// The request's record could not be read.
    MARSHALLING_ERROR = -5, "the server could not read the request";
    /// The server does not know the request.
    UNIMPLEMENTED = -6, "the server does not know this request";
    /// The server took too long with it.
    OPERATION_TIMEOUT = -7, "the server took too long";
    /// A path or another argument is not valid.
    BAD_ARGUMENTS = -8, "the server refused the arguments";
    /// No such node.
    NO_NODE = -101, "no such node";
    /// The access list says no.
    NO_AUTH = -102, "access refused";
    /// Not the version that was expected.
    BAD_VERSION = -103, "the node was changed meanwhile";
    /// An ephemeral node cannot have children.
    NO_CHILDREN_FOR_EPHEMERALS = -108, "an ephemeral node cannot have children";
    /// There is such a node already.
    NODE_EXISTS = -110, "the node exists already";
    /// The node has children.
    NOT_EMPTY = -111, "the node has children";
    /// The session is over.
    SESSION_EXPIRED = -112, "the session has expired";
    /// An access list that no server takes.
    INVALID_ACL = -114, "invalid ACL";
    /// The credentials were refused.
    AUTH_FAILED = -115, "credentials refused";
    /// The session has gone to another server.
    SESSION_MOVED = -118, "the session has moved to another server";
    /// A write to a server that is read-only.
    NOT_READ_ONLY = -119, "the server is read-only";
    /// There is no such watch.
    NO_WATCHER = -121, "no such watch";
    /// The ensemble cannot be changed by request.
    RECONFIG_DISABLED = -123, "changing the ensemble is disabled";
    /// The server takes sessions with SASL only.
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124, "the server takes sessions with SASL only";
    /// The folder's quota is used up.
    QUOTA_EXCEEDED = -125, "the quota of the folder is used up";
    /// The server has too much to do and has not begun with this.
    THROTTLED_OP = -127, "the server is overloaded and refused the request for now";
}

impl ErrorCode {
    /// Whether it is about what was asked, or the form in which it was, so that the same would be
    /// said of it again. Else another time may bring another answer.
    #[must_use]
    pub fn is_about_a_request(self) -> bool {
        matches!(
            self,
            Self::MARSHALLING_ERROR
                | Self::UNIMPLEMENTED
                | Self::BAD_ARGUMENTS
                | Self::NO_NODE
                | Self::NO_AUTH
                | Self::BAD_VERSION
                | Self::NO_CHILDREN_FOR_EPHEMERALS
                | Self::NODE_EXISTS
                | Self::NOT_EMPTY
                | Self::INVALID_ACL
                | Self::AUTH_FAILED
                | Self::NO_WATCHER
                | Self::QUOTA_EXCEEDED
        )
    }

    /// Whether the server cannot say what became of the request: on this connection nobody will.
    #[must_use]
    pub fn is_outcome_unknown(self) -> bool {
        matches!(
            self,
            Self::CONNECTION_LOSS
                | Self::OPERATION_TIMEOUT
                | Self::SESSION_EXPIRED
                | Self::SESSION_MOVED
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "the server's error {}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ErrorCode({}: {self})", self.0)
    }
}
