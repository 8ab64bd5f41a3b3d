//! The meaning of a server's no: the one rule.
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

use zklock_protocol::{ErrorCode, opcode};

use crate::link::{Lost, NoReply, NotSent};

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

/// The meaning of an error to whoever has asked for what has this number.
pub(super) fn meaning(asked: i32, error: ErrorCode) -> Result<Refusal, NotNow> {
    use ErrorCode as E;
    let creates = matches!(asked, opcode::CREATE | opcode::CREATE_2 | opcode::MULTI);
    let deletes = matches!(asked, opcode::DELETE | opcode::MULTI);
    let sets = matches!(asked, opcode::SET_DATA | opcode::MULTI);
    let looks = matches!(asked, opcode::EXISTS | opcode::GET_DATA);
    let reads = looks || asked == opcode::GET_CHILDREN;
    let unwatches = asked == opcode::REMOVE_WATCHES;
    let syncs = asked == opcode::SYNC;
    // Of a node to delete none of these says anything, and every server can delete.
    let depends_on_us = creates || sets || reads || syncs;
    Ok(match error {
        E::NO_AUTH => Refusal::NoAuth,
        E::NO_NODE if !syncs => Refusal::NoNode,
        E::BAD_VERSION if deletes || sets || looks => Refusal::BadVersion,
        E::NOT_EMPTY if deletes => Refusal::NotEmpty,
        E::NODE_EXISTS if creates => Refusal::NodeExists,
        E::NO_CHILDREN_FOR_EPHEMERALS if creates => Refusal::EphemeralParent,
        E::INVALID_ACL if creates => Refusal::InvalidAcl,
        E::QUOTA_EXCEEDED if creates || sets => Refusal::QuotaExceeded,
        E::NO_WATCHER if unwatches => Refusal::NoWatch,
        E::MARSHALLING_ERROR if reads => Refusal::ReplyTooLong,
        E::AUTH_FAILED if depends_on_us => Refusal::AuthFailed,
        E::BAD_ARGUMENTS if depends_on_us => Refusal::BadArguments,
        E::UNIMPLEMENTED if asked == opcode::CREATE_2 => Refusal::Unknown,
        E::UNIMPLEMENTED if depends_on_us || unwatches => Refusal::Unimplemented,
        E::THROTTLED_OP => return Err(NotNow::Throttled),
        error => return Err(NotNow::Unclear(error.to_string())),
    })
}

/// Why something is not known to have been done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It was not, and would not be the next time.
    Refused(Refusal),
    /// The next time it may be.
    NotNow(NotNow),
    /// Nobody knows.
    Lost(Lost),
}

impl Meaning {
    /// The meaning of a missing reply.
    pub(super) fn of(no: &NoReply) -> Self {
        match no {
            NoReply::Refused { asked, error } => Self::meant(meaning(*asked, *error)),
            NoReply::Lost(lost) => Self::Lost(*lost),
            NoReply::NotSent(why) => match why {
                // No connection would take it; nor, at this rate, would the network.
                NotSent::TooLarge { .. } | NotSent::TooSlow { .. } => {
                    Self::Refused(Refusal::TooLarge(why.to_string()))
                }
                NotSent::Backlogged { .. } | NotSent::NotOpen => {
                    Self::NotNow(NotNow::Backlogged(why.to_string()))
                }
            },
        }
    }

    /// The meaning of the refusal of a step of a multi.
    pub(super) fn of_step(error: ErrorCode) -> Self {
        Self::meant(meaning(opcode::MULTI, error))
    }

    fn meant(meaning: Result<Refusal, NotNow>) -> Self {
        meaning.map_or_else(Self::NotNow, Self::Refused)
    }

    /// Whether it may have been done all the same.
    pub(super) fn may_be_done(&self) -> bool {
        match self {
            Self::Refused(_) => false,
            Self::NotNow(why) => why.may_be_done(),
            Self::Lost(_) => true,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const ALL: [i32; 10] = [
        opcode::CREATE,
        opcode::CREATE_2,
        opcode::DELETE,
        opcode::SET_DATA,
        opcode::GET_DATA,
        opcode::EXISTS,
        opcode::GET_CHILDREN,
        opcode::REMOVE_WATCHES,
        opcode::SYNC,
        opcode::MULTI,
    ];

    /// Of all that a server can say, with numbers that nobody has heard of.
    fn final_answers(asked: i32) -> Vec<i32> {
        let all = (-200..0).filter(|number| {
            let error = ErrorCode(*number);
            meaning(asked, error).is_ok()
        });
        all.rev().collect()
    }

    /// No such node, no right to it; and with a version or a folder, another version and children.
    #[test]
    fn few_answers_to_a_delete_are_final() {
        assert_eq!(final_answers(opcode::DELETE), [-101, -102, -103, -111]);
    }

    #[test]
    fn what_is_there_is_what_a_final_answer_is_about() {
        let create = [-6, -8, -101, -102, -108, -110, -114, -115, -125];
        assert_eq!(final_answers(opcode::CREATE), create);
        let set = [-6, -8, -101, -102, -103, -115, -125];
        assert_eq!(final_answers(opcode::SET_DATA), set);
        assert_eq!(final_answers(opcode::SYNC), [-6, -8, -102, -115]);
        let look = [-5, -6, -8, -101, -102, -103, -115];
        assert_eq!(final_answers(opcode::GET_DATA), look);
        let list = [-5, -6, -8, -101, -102, -115];
        assert_eq!(final_answers(opcode::GET_CHILDREN), list);
        let changes = [-6, -8, -101, -102, -103, -108, -110, -111, -114, -115, -125];
        assert_eq!(final_answers(opcode::MULTI), changes);
        assert_eq!(
            final_answers(opcode::REMOVE_WATCHES),
            [-6, -101, -102, -121]
        );
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
