//! What it means when a server says no: the one rule.
//!
//! A no is **final** if the server would say it again, because it is about what is there: no such
//! node, no right to it. Which ones that are depends on what was asked, and [`meaning`] is the whole
//! list; [`Refusal`] has nothing else. Whoever gets a final answer goes by it.
//!
//! Every other no is **not now** ([`NotNow`]): a server that has too much to do for the moment, an
//! error that nobody knows, a request that we have kept back because the server takes nothing.
//! Nothing follows from it but that one must ask again. So a wait asks again after a pause, within
//! its own deadline; a node of ours that must go is asked for until a final answer comes or its
//! session has ended; and a look that was to prove something has proved nothing yet.
//!
//! A server that **cannot say** what became of a request is as good as a broken connection, and the
//! link makes it one: whatever was in flight is unknown then. Here only a part of a request can be
//! answered so.

use std::fmt;

#[cfg(not(shuttle))]
use zklock_protocol::ErrorCode;

/// Why a server does not do what it was asked, now or later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("no such node")]
    NoNode,
    #[error("the node exists already")]
    NodeExists,
    #[error("the node has children")]
    NotEmpty,
    #[error("an ephemeral node cannot have children")]
    EphemeralParent,
    #[error("access refused")]
    NoAuth,
    #[error("credentials refused")]
    AuthFailed,
    #[error("invalid ACL")]
    InvalidAcl,
    #[error("the server refused the request as malformed or too large")]
    BadArguments,
    #[error("the node was changed meanwhile")]
    BadVersion,
    #[error("no such watch")]
    NoWatch,
    #[error("the quota of the folder is used up")]
    QuotaExceeded,
    #[error("the server does not know this request")]
    Unimplemented,
    /// The server does not know these words. Ask again; the backend then uses others.
    #[error("the server does not know this form of the request")]
    Unknown,
    #[error("the reply was too long to be kept")]
    ReplyTooLong,
    /// It was not sent, because no server would take it.
    #[error("not sent: {0}")]
    TooLarge(String),
}

/// Why something was not done that may be done the next time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// The server has too much to do, and has not begun with it.
    Throttled,
    /// It was not sent: the server takes bytes more slowly than we have them.
    Backlogged(String),
    /// An error that says nothing about what is there, nor what became of the request.
    Unclear(String),
}

impl NotNow {
    /// Whether it may have been done all the same.
    pub(crate) fn may_be_done(&self) -> bool {
        match self {
            Self::Throttled | Self::Backlogged(_) => false,
            Self::Unclear(_) => true,
        }
    }
}

impl fmt::Display for NotNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttled => f.write_str("the server is overloaded and refused it for now"),
            Self::Backlogged(why) => write!(f, "not sent yet: {why}"),
            Self::Unclear(error) => f.write_str(error),
        }
    }
}

/// What was asked, as far as the meaning of a no depends on it.
#[cfg(not(shuttle))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Create,
    Delete,
    Set,
    /// For data, a stat, or that a node is there.
    Look,
    List,
    /// To take a watch off.
    Unwatch,
    Sync,
    /// Several changes at once; which one was refused is told beside it.
    Changes,
}

/// What this error means to whoever has `asked`.
#[cfg(not(shuttle))]
pub(super) fn meaning(asked: Asked, error: ErrorCode) -> Result<Refusal, NotNow> {
    use Asked as A;
    use ErrorCode as E;
    Ok(match (asked, error) {
        (_, E::NO_AUTH) => Refusal::NoAuth,
        (
            A::Create | A::Delete | A::Set | A::Look | A::List | A::Unwatch | A::Changes,
            E::NO_NODE,
        ) => Refusal::NoNode,
        (A::Delete | A::Set | A::Look | A::Changes, E::BAD_VERSION) => Refusal::BadVersion,
        (A::Delete | A::Changes, E::NOT_EMPTY) => Refusal::NotEmpty,
        (A::Create | A::Changes, E::NODE_EXISTS) => Refusal::NodeExists,
        (A::Create | A::Changes, E::NO_CHILDREN_FOR_EPHEMERALS) => Refusal::EphemeralParent,
        (A::Create | A::Changes, E::INVALID_ACL) => Refusal::InvalidAcl,
        (A::Create | A::Set | A::Changes, E::QUOTA_EXCEEDED) => Refusal::QuotaExceeded,
        (A::Unwatch, E::NO_WATCHER) => Refusal::NoWatch,
        (A::Look | A::List, E::MARSHALLING_ERROR) => Refusal::ReplyTooLong,
        // Of a node to delete none of these says anything, and every server can delete.
        (A::Create | A::Set | A::Look | A::List | A::Sync | A::Changes, E::AUTH_FAILED) => {
            Refusal::AuthFailed
        }
        (A::Create | A::Set | A::Look | A::List | A::Sync | A::Changes, E::BAD_ARGUMENTS) => {
            Refusal::BadArguments
        }
        (
            A::Create | A::Set | A::Look | A::List | A::Unwatch | A::Sync | A::Changes,
            E::UNIMPLEMENTED,
        ) => Refusal::Unimplemented,
        (_, E::THROTTLED_OP) => return Err(NotNow::Throttled),
        (_, error) => return Err(NotNow::Unclear(error.to_string())),
    })
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const ALL: [Asked; 8] = [
        Asked::Create,
        Asked::Delete,
        Asked::Set,
        Asked::Look,
        Asked::List,
        Asked::Unwatch,
        Asked::Sync,
        Asked::Changes,
    ];

    /// Of all that a server can say, with numbers that nobody has heard of.
    fn final_answers(asked: Asked) -> Vec<i32> {
        let all = (-200..0).filter(|number| {
            let error = ErrorCode(*number);
            meaning(asked, error).is_ok()
        });
        all.rev().collect()
    }

    /// No such node, no right to it; and with a version or a folder, another version and children.
    #[test]
    fn few_answers_to_a_delete_are_final() {
        assert_eq!(final_answers(Asked::Delete), [-101, -102, -103, -111]);
    }

    #[test]
    fn what_is_there_is_what_a_final_answer_is_about() {
        let create = [-6, -8, -101, -102, -108, -110, -114, -115, -125];
        assert_eq!(final_answers(Asked::Create), create);
        let look = [-5, -6, -8, -101, -102, -103, -115];
        assert_eq!(final_answers(Asked::Look), look);
        let list = [-5, -6, -8, -101, -102, -115];
        assert_eq!(final_answers(Asked::List), list);
        let changes = [-6, -8, -101, -102, -103, -108, -110, -111, -114, -115, -125];
        assert_eq!(final_answers(Asked::Changes), changes);
        assert_eq!(final_answers(Asked::Unwatch), [-6, -101, -102, -121]);
    }

    #[test]
    fn an_overloaded_server_has_not_begun_with_anything() {
        for asked in ALL {
            let meaning = meaning(asked, ErrorCode::THROTTLED_OP);
            assert_eq!(meaning, Err(NotNow::Throttled), "{asked:?}");
        }
        assert!(!NotNow::Throttled.may_be_done());
    }

    #[test]
    fn what_nobody_knows_may_have_been_done() {
        for asked in ALL {
            for number in [-1, -3, -4, -7, -112, -118, -119, -199] {
                match meaning(asked, ErrorCode(number)) {
                    Err(why) => assert!(why.may_be_done(), "{asked:?} {number}"),
                    Ok(refusal) => panic!("{asked:?} {number}: {refusal:?}"),
                }
            }
        }
    }
}
