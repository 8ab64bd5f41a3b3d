//! Requests of our own and their replies, as bytes: pure.
//!
//! [`Request`] names what can be asked, and [`Expected`] what a well-formed answer to it looks
//! like. Decoding is strict: a lying count or length, a missing or a spare byte, a name that is
//! not text, an answer of another kind is [`Malformed`], and a connection that brings one cannot
//! be trusted any more. Nothing is allocated by a number that was only claimed: what a count
//! promises must be there. (The records are those of ZooKeeper's `zookeeper.jute`.)

mod bytes;
mod reply;
mod request;
mod server_error;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub(super) use self::bytes::Malformed;
pub(super) use self::reply::{Expected, digestible};
pub(crate) use self::reply::{Reply, Stat, StepReply};
pub(crate) use self::request::{Access, CreateMode, NewNode, Request, Step, WatchKind};
pub(super) use self::request::{PACK_BYTES, PACK_PART_BYTES, Pack, Shape, TooLarge, pack};
pub(crate) use self::server_error::ServerError;

/// Whether a request of this kind is committed by a quorum when it is done.
pub(super) fn is_write(opcode: i32) -> bool {
    matches!(
        opcode,
        opcode::CREATE
            | opcode::CREATE_2
            | opcode::DELETE
            | opcode::SET_DATA
            | opcode::SET_ACL
            | opcode::MULTI
    )
}

pub(super) fn is_sync(opcode: i32) -> bool {
    opcode == opcode::SYNC
}

/// Whether this record, under a header without an error, answers a multi that was not done.
pub(super) fn is_aborted(opcode: i32, record: &[u8]) -> bool {
    opcode == opcode::MULTI && record.starts_with(&opcode::ERROR.to_be_bytes())
}

mod opcode {
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const GET_ACL: i32 = 6;
    pub(super) const SET_ACL: i32 = 7;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const SYNC: i32 = 9;
    /// Only ever inside a [`MULTI`]: alone it can corrupt the data of 3.8.0 and 3.9.0
    /// (ZOOKEEPER-2623).
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE_2: i32 = 15;
    pub(super) const REMOVE_WATCHES: i32 = 18;
    /// Reads of several nodes in one request; since 3.6. None of them leaves a watch.
    pub(super) const MULTI_READ: i32 = 22;
    /// In the result of a multi: this step was not done.
    pub(super) const ERROR: i32 = -1;
}
