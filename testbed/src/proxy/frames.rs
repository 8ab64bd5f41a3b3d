//! Cuts a byte stream into ZooKeeper's frames and reads their headers.

use super::opcode;

/// Four letters in place of a length (an administration word) read as a number
/// far above this, and no frame comes near it.
const MAX_FRAME: usize = 64 * 1024 * 1024;

const PING_XID: i32 = -2;
const AUTH_XID: i32 = -4;
const NOTIFICATION_XID: i32 = -1;

/// The bytes of one direction that do not make a whole frame yet.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    bytes: Vec<u8>,
    raw: bool,
}

impl Cutter {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, its length included. In a stream that is not
    /// ZooKeeper's, whatever there is.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        if self.raw {
            return (!self.bytes.is_empty()).then(|| std::mem::take(&mut self.bytes));
        }
        let (length, _) = self.bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).expect("32 bits fit");
        if length > MAX_FRAME {
            self.raw = true;
            return self.next();
        }
        let end = 4 + length;
        (self.bytes.len() >= end).then(|| {
            let rest = self.bytes.split_off(end);
            std::mem::replace(&mut self.bytes, rest)
        })
    }

    /// Whether this has turned out not to be ZooKeeper's protocol.
    pub(super) fn is_raw(&self) -> bool {
        self.raw
    }

    pub(super) fn set_raw(&mut self) {
        self.raw = true;
    }
}

/// Before each step of a multi.
const STEP_HEADER_BYTES: usize = 9;

/// A client's frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) xid: i32,
    /// As it is counted.
    pub(super) opcode: i32,
    /// As it is.
    pub(super) exactly: i32,
    /// The first field of the body, or of a multi's first step; of most requests it is the path.
    pub(super) path: Option<&'a str>,
    /// Whether it asks for nothing but an answer, to prove that the session lives: a ping, a `sync`, a multi that
    /// begins with a check or has no step.
    pub(super) is_probe: bool,
}

impl Request<'_> {
    pub(super) fn parse(frame: &[u8]) -> Option<Request<'_>> {
        let (xid, rest) = int(frame.get(4..)?)?;
        let (opcode, body) = int(rest)?;
        Some(Request {
            xid,
            // A create is a create, whether its answer brings the node's stat or not.
            opcode: if opcode == opcode::CREATE2 {
                opcode::CREATE
            } else {
                opcode
            },
            exactly: opcode,
            is_probe: match opcode {
                opcode::PING | opcode::SYNC => true,
                opcode::MULTI => int(body)
                    .is_some_and(|(first, _)| first == opcode::CHECK || first == opcode::NO_STEP),
                _ => false,
            },
            path: match opcode {
                opcode::MULTI => body.get(STEP_HEADER_BYTES..).and_then(leading_string),
                _ => leading_string(body),
            },
        })
    }
}

/// What a server's frame answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    To { xid: i32 },
    Notification,
}

impl Answer {
    pub(super) fn parse(frame: &[u8]) -> Option<Answer> {
        let (xid, _) = int(frame.get(4..)?)?;
        Some(match xid {
            NOTIFICATION_XID => Answer::Notification,
            xid => Answer::To { xid },
        })
    }
}

/// The opcode that goes with an xid of special meaning.
pub(super) fn opcode_of_special(xid: i32) -> Option<i32> {
    match xid {
        PING_XID => Some(opcode::PING),
        AUTH_XID => Some(opcode::AUTH),
        _ => None,
    }
}

fn int(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((i32::from_be_bytes(*number), rest))
}

fn leading_string(body: &[u8]) -> Option<&str> {
    let (length, rest) = int(body)?;
    let text = rest.get(..usize::try_from(length).ok()?)?;
    std::str::from_utf8(text).ok()
}

/// In place of a request: one with the same number that changes nothing, so that the answer keeps
/// its turn.
pub(super) fn harmless(xid: i32) -> Vec<u8> {
    let body = [
        &xid.to_be_bytes()[..],
        &opcode::EXISTS.to_be_bytes(),
        &1_i32.to_be_bytes(),
        b"/",
        &[0],
    ];
    framed(&body.concat())
}

/// In place of an answer: one with the same header and this error.
pub(super) fn refusal(answer: &[u8], code: i32) -> Vec<u8> {
    const XID_AND_ZXID: std::ops::Range<usize> = 4..16;
    let header = answer.get(XID_AND_ZXID).expect("an answer has a header");
    framed(&[header, &code.to_be_bytes()].concat())
}

fn framed(body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len()).expect("short");
    [&length.to_be_bytes(), body].concat()
}
