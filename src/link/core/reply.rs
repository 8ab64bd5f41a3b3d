//! What a reply is worth, and whether it is one.

use zklock_protocol::{ErrorCode, Expected, Malformed, Part, Reader, Reply, opcode};

use super::frame::{self, ReplyHeader};
use super::handles::Left;

/// A reply that answers nothing, or not what was asked.
#[derive(Debug)]
pub(super) struct Nonsense(pub(super) String);

impl Nonsense {
    pub(super) fn out_of_turn(header: ReplyHeader) -> Self {
        Self(format!(
            "the server answered request {} out of turn",
            header.xid
        ))
    }
}

impl From<Malformed> for Nonsense {
    fn from(why: Malformed) -> Self {
        Self(format!("the server sent a reply that is {why}"))
    }
}

/// What a probe came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probed {
    Done,
    /// The node of ours with this number, which the probe checked, is gone.
    NodeGone(u64),
    /// This server does not do what was asked.
    Refused,
    /// Or not now.
    PutOff,
}

/// Whether it says that what was asked was done: only then it proves something.
pub(super) fn is_done(opcode: i32, header: ReplyHeader, record: &[u8]) -> bool {
    // So begins the record of a multi that was not done.
    let is_aborted = opcode == opcode::MULTI && record.starts_with(&opcode::ERROR.to_be_bytes());
    header.err == frame::OK && !is_aborted
}

pub(super) fn probed(
    expected: &Expected,
    node: Option<u64>,
    header: ReplyHeader,
    record: &[u8],
) -> Result<Probed, Nonsense> {
    let error = match expected.read(ErrorCode(header.err), record)? {
        Ok(Reply::Parts(parts)) => Part::refused(&parts).map(|(_, error)| error),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    Ok(match (error, node) {
        (None, _) => Probed::Done,
        (Some(ErrorCode::NO_NODE), Some(number)) => Probed::NodeGone(number),
        (Some(error), _) if error.is_about_a_request() => Probed::Refused,
        _ => Probed::PutOff,
    })
}

/// Whether the crate can digest this successful reply to its request: it allocates whatever a
/// length claims, and panics at a negative count and at names that are not UTF-8. What it does not
/// look at is not checked.
pub(super) fn digestible(opcode: i32, record: &[u8]) -> Result<(), Malformed> {
    match opcode {
        opcode::CREATE
        | opcode::EXISTS
        | opcode::SET_DATA
        | opcode::SET_ACL
        | opcode::GET_DATA
        | opcode::GET_CHILDREN
        | opcode::GET_ACL => Reply::read(opcode, &mut Reader::strict(record)).map(drop),
        _ => Ok(()),
    }
}

/// The watch that a request of the crate has left, if it was to leave one.
pub(super) fn left(opcode: i32, err: i32) -> Option<Left> {
    match opcode {
        opcode::EXISTS if ErrorCode(err) == ErrorCode::NO_NODE => Some(Left::Missing),
        _ if err != frame::OK => None,
        opcode::EXISTS | opcode::GET_DATA => Some(Left::Data),
        opcode::GET_CHILDREN | opcode::GET_CHILDREN_2 => Some(Left::Children),
        _ => None,
    }
}
