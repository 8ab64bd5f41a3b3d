//! [`ServerError`]: the numbers with which a server says no.

use std::fmt;

/// Why a server did not do what it was asked. It has changed nothing, unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerError {
    /// In a multi: another step failed.
    NotTried,
    /// The server cannot say what became of it.
    ConnectionLoss,
    /// The reply was longer than what is kept of one. It was done.
    ReplyTooLong,
    Unimplemented,
    /// The server cannot say what became of it.
    OperationTimeout,
    BadArguments,
    NoNode,
    NoAuth,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NotEmpty,
    /// Answers nothing any more. What became of the request is unknown.
    SessionExpired,
    InvalidAcl,
    AuthFailed,
    /// The session has gone to another server. What became of the request is unknown.
    SessionMoved,
    ReadOnly,
    NoWatch,
    QuotaExceeded,
    /// The server has too much to do and has not begun with this. To be tried again, later.
    Throttled,
    Other(i32),
}

const NUMBERED: [(i32, ServerError); 20] = [
    (-2, ServerError::NotTried),
    (-4, ServerError::ConnectionLoss),
    (-5, ServerError::ReplyTooLong),
    (-6, ServerError::Unimplemented),
    (-7, ServerError::OperationTimeout),
    (-8, ServerError::BadArguments),
    (-101, ServerError::NoNode),
    (-102, ServerError::NoAuth),
    (-103, ServerError::BadVersion),
    (-108, ServerError::NoChildrenForEphemerals),
    (-110, ServerError::NodeExists),
    (-111, ServerError::NotEmpty),
    (-112, ServerError::SessionExpired),
    (-114, ServerError::InvalidAcl),
    (-115, ServerError::AuthFailed),
    (-118, ServerError::SessionMoved),
    (-119, ServerError::ReadOnly),
    (-121, ServerError::NoWatch),
    (-125, ServerError::QuotaExceeded),
    (-127, ServerError::Throttled),
];

impl ServerError {
    /// `None` for 0, which is no error.
    pub(in crate::link) fn numbered(number: i32) -> Option<Self> {
        if number == 0 {
            return None;
        }
        Some(Self::of_number(number))
    }

    pub(crate) fn of_number(number: i32) -> Self {
        let known = NUMBERED.iter().find(|(known, _)| *known == number);
        known.map_or(Self::Other(number), |(_, error)| *error)
    }

    /// Whether it is about what was asked, and would be said of it by itself, or of the form in
    /// which it was asked. Else another time may bring another answer.
    pub(in crate::link) fn is_about_a_request(self) -> bool {
        !matches!(
            self,
            Self::Throttled | Self::NotTried | Self::ReadOnly | Self::Other(_)
        ) && !self.is_outcome_unknown()
    }

    /// Whether the server cannot say what became of the request: on this connection nobody will.
    pub(in crate::link) fn is_outcome_unknown(self) -> bool {
        matches!(
            self,
            Self::ConnectionLoss
                | Self::OperationTimeout
                | Self::SessionExpired
                | Self::SessionMoved
        )
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTried => "another step of the same request failed",
            Self::ConnectionLoss => "the server lost its connection",
            Self::ReplyTooLong => "the reply was too long to be kept",
            Self::Unimplemented => "the server does not know this request",
            Self::OperationTimeout => "the server gave up on the request",
            Self::BadArguments => "the server refused the arguments",
            Self::NoNode => "no such node",
            Self::NoAuth => "access refused",
            Self::BadVersion => "the node was changed meanwhile",
            Self::NoChildrenForEphemerals => "an ephemeral node cannot have children",
            Self::NodeExists => "the node exists already",
            Self::NotEmpty => "the node has children",
            Self::SessionExpired => "the session has expired",
            Self::InvalidAcl => "invalid ACL",
            Self::AuthFailed => "credentials refused",
            Self::SessionMoved => "the session has moved to another server",
            Self::ReadOnly => "the server is read-only",
            Self::NoWatch => "no such watch",
            Self::QuotaExceeded => "the quota of the folder is used up",
            Self::Throttled => "the server is overloaded and refused the request for now",
            Self::Other(number) => return write!(f, "the server's error {number}"),
        })
    }
}
