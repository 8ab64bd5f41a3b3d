//! The bytes on the wire: pure.
//!
//! A frame is a length of four bytes and as many bytes more. The first frame each way is the
//! handshake, which has no header. After it a request begins with `xid, opcode`, a reply with
//! `xid, zxid, err`. All numbers are big-endian. (ZooKeeper's `zookeeper.jute`.)

use std::io::{self, Read};
use std::ops::Range;
use std::time::Duration;

use zklock_protocol::EventKind;

pub(in crate::link) const OP_PING: i32 = 11;
pub(in crate::link) const OP_AUTH: i32 = 100;
#[cfg(feature = "sasl")]
const OP_SASL: i32 = 102;
pub(in crate::link) const OP_CLOSE: i32 = -11;

pub(in crate::link) const XID_WATCH: i32 = -1;
pub(in crate::link) const XID_PING: i32 = -2;
pub(in crate::link) const XID_AUTH: i32 = -4;

/// The only version there is. (ClickHouse Keeper refuses a connection with version 42.)
pub(in crate::link) const PROTOCOL: i32 = 0;

pub(in crate::link) const OK: i32 = 0;
pub(in crate::link) const ERR_CONNECTION_LOSS: i32 = -4;
pub(in crate::link) const ERR_MARSHALLING: i32 = -5;
pub(in crate::link) const ERR_UNIMPLEMENTED: i32 = -6;
pub(in crate::link) const ERR_OPERATION_TIMEOUT: i32 = -7;
pub(in crate::link) const ERR_BAD_ARGUMENTS: i32 = -8;
pub(in crate::link) const ERR_AUTH_FAILED: i32 = -115;
pub(in crate::link) const ERR_NO_WATCHER: i32 = -121;
pub(in crate::link) const ERR_SESSION_EXPIRED: i32 = -112;
#[cfg(all(test, not(shuttle)))]
pub(in crate::link) const ERR_SESSION_MOVED: i32 = -118;
pub(in crate::link) const ERR_THROTTLED: i32 = -127;

/// The server drops the connection of a client that sends more (`jute.maxbuffer`).
pub(in crate::link) const MAX_REQUEST_BYTES: usize = 0xf_ffff;
/// What we keep in memory of one reply: the names of some 300,000 contenders.
pub(in crate::link) const MAX_REPLY_BYTES: usize = 16 << 20;

const LENGTH_BYTES: usize = 4;
pub(in crate::link) const REQUEST_HEADER_BYTES: usize = 8;
pub(in crate::link) const REPLY_HEADER_BYTES: usize = 16;
/// Read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Four bytes at `at`, which the caller knows to be there.
fn int(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A frame with the length before it.
fn framed(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = vec![0; LENGTH_BYTES];
    write(&mut frame);
    let length = i32::try_from(frame.len() - LENGTH_BYTES).expect("small frames only");
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    frame
}

fn put_buffer(frame: &mut Vec<u8>, bytes: &[u8]) {
    let length = i32::try_from(bytes.len()).expect("small buffers only");
    frame.extend(length.to_be_bytes());
    frame.extend(bytes);
}

/// What a client says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::link) struct ConnectRequest {
    pub(in crate::link) last_zxid_seen: i64,
    pub(in crate::link) timeout_ms: i32,
    pub(in crate::link) session_id: i64,
    pub(in crate::link) password: Vec<u8>,
}

impl ConnectRequest {
    pub(in crate::link) fn to_frame(&self) -> Vec<u8> {
        framed(|frame| {
            frame.extend(PROTOCOL.to_be_bytes());
            frame.extend(self.last_zxid_seen.to_be_bytes());
            frame.extend(self.timeout_ms.to_be_bytes());
            frame.extend(self.session_id.to_be_bytes());
            put_buffer(frame, &self.password);
            frame.push(0); // not content with a read-only server
        })
    }

    /// Reads the body of a frame. What follows the password is not looked at.
    pub(in crate::link) fn parse(body: &[u8]) -> Option<Self> {
        const FIXED: usize = 4 + 8 + 4 + 8;
        if body.len() < FIXED + 4 {
            return None;
        }
        Some(Self {
            last_zxid_seen: long(body, 4),
            timeout_ms: int(body, 12),
            session_id: long(body, 16),
            password: buffer(&body[FIXED..])?.to_vec(),
        })
    }
}

/// What a server says first. A timeout of 0 says that the session has expired.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::link) struct ConnectResponse {
    /// The one that we speak is [`PROTOCOL`].
    pub(in crate::link) protocol: i32,
    pub(in crate::link) timeout_ms: i32,
    pub(in crate::link) session_id: i64,
    pub(in crate::link) password: Vec<u8>,
}

impl ConnectResponse {
    pub(in crate::link) fn to_frame(&self) -> Vec<u8> {
        framed(|frame| {
            frame.extend(self.protocol.to_be_bytes());
            frame.extend(self.timeout_ms.to_be_bytes());
            frame.extend(self.session_id.to_be_bytes());
            put_buffer(frame, &self.password);
            frame.push(0);
        })
    }

    pub(in crate::link) fn parse(body: &[u8]) -> Option<Self> {
        const FIXED: usize = 4 + 4 + 8;
        if body.len() < FIXED + 4 {
            return None;
        }
        Some(Self {
            protocol: int(body, 0),
            timeout_ms: int(body, 4),
            session_id: long(body, 8),
            password: buffer(&body[FIXED..])?.to_vec(),
        })
    }

    pub(in crate::link) fn timeout(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.timeout_ms).unwrap_or(0))
    }
}

fn buffer(bytes: &[u8]) -> Option<&[u8]> {
    // A null buffer has the length -1.
    let length = usize::try_from(int(bytes, 0)).unwrap_or(0);
    bytes.get(4..4 + length)
}

/// A request without a body.
pub(in crate::link) fn request(xid: i32, opcode: i32) -> Vec<u8> {
    framed(|frame| {
        frame.extend(xid.to_be_bytes());
        frame.extend(opcode.to_be_bytes());
    })
}

pub(in crate::link) fn auth_request(scheme: &str, credentials: &[u8]) -> Vec<u8> {
    framed(|frame| {
        frame.extend(XID_AUTH.to_be_bytes());
        frame.extend(OP_AUTH.to_be_bytes());
        frame.extend(0_i32.to_be_bytes());
        put_buffer(frame, scheme.as_bytes());
        put_buffer(frame, credentials);
    })
}

/// One word of a login.
#[cfg(feature = "sasl")]
pub(in crate::link) fn sasl_request(xid: i32, token: &[u8]) -> Vec<u8> {
    framed(|frame| {
        frame.extend(xid.to_be_bytes());
        frame.extend(OP_SASL.to_be_bytes());
        put_buffer(frame, token);
    })
}

/// The server's error, and its word.
#[cfg(feature = "sasl")]
pub(in crate::link) fn sasl_reply(body: &[u8]) -> Option<(i32, Vec<u8>)> {
    let err = reply_error(body)?;
    let record = &body[REPLY_HEADER_BYTES..];
    // Beside an error there may be none.
    let token = if record.len() < LENGTH_BYTES {
        &[]
    } else {
        buffer(record)?
    };
    Some((err, token.to_vec()))
}

/// A reply without a body.
pub(in crate::link) fn reply(xid: i32, err: i32) -> Vec<u8> {
    framed(|frame| {
        frame.extend(xid.to_be_bytes());
        frame.extend(0_i64.to_be_bytes());
        frame.extend(err.to_be_bytes());
    })
}

/// The same answer as lost, without what was read. `None`: it is an event, or has nothing more.
pub(super) fn without_its_record(reply_or_event: &[u8]) -> Option<Vec<u8>> {
    let xid = int(&reply_or_event[LENGTH_BYTES..], 0);
    let is_longer = body_bytes(reply_or_event) > REPLY_HEADER_BYTES;
    (is_longer && xid != XID_WATCH).then(|| reply(xid, ERR_CONNECTION_LOSS))
}

/// What a watch told, and of which path, by the body of its event. `None`: it is none, or of a kind
/// that only newer servers know.
pub(in crate::link) fn node_event(body: &[u8]) -> Option<(EventKind, &str)> {
    const FIXED: usize = REPLY_HEADER_BYTES + 4 + 4;
    let path = body
        .get(FIXED..)
        .filter(|path| path.len() >= LENGTH_BYTES)?;
    let path = buffer(path)?;
    let event = EventKind::numbered(int(body, REPLY_HEADER_BYTES))?;
    Some((event, std::str::from_utf8(path).ok()?))
}

/// The error number in the body of a reply.
pub(in crate::link) fn reply_error(body: &[u8]) -> Option<i32> {
    (body.len() >= REPLY_HEADER_BYTES).then(|| int(body, 12))
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) struct RequestHeader {
    pub(in crate::link) xid: i32,
    pub(in crate::link) opcode: i32,
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) struct ReplyHeader {
    pub(in crate::link) xid: i32,
    pub(in crate::link) zxid: i64,
    pub(in crate::link) err: i32,
}

/// A frame in a [`FrameBuffer`], with its length before it.
pub(in crate::link) struct Frame<'a>(&'a mut [u8]);

impl Frame<'_> {
    pub(in crate::link) fn bytes(&self) -> &[u8] {
        self.0
    }

    pub(in crate::link) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0
    }

    pub(in crate::link) fn body(&self) -> &[u8] {
        &self.0[LENGTH_BYTES..]
    }

    pub(in crate::link) fn request_header(&self) -> RequestHeader {
        RequestHeader {
            xid: int(self.body(), 0),
            opcode: int(self.body(), 4),
        }
    }

    pub(in crate::link) fn reply_header(&self) -> ReplyHeader {
        ReplyHeader {
            xid: int(self.body(), 0),
            zxid: long(self.body(), 4),
            err: int(self.body(), 12),
        }
    }

    /// What follows the header of a reply.
    pub(in crate::link) fn record(&self) -> &[u8] {
        &self.body()[REPLY_HEADER_BYTES..]
    }

    pub(in crate::link) fn set_xid(&mut self, xid: i32) {
        set_xid(self.0, xid);
    }

    /// Of a reply.
    pub(in crate::link) fn set_err(&mut self, err: i32) {
        let at = LENGTH_BYTES + REPLY_HEADER_BYTES - 4;
        self.0[at..at + 4].copy_from_slice(&err.to_be_bytes());
    }
}

/// Numbers a frame that has its length before it.
pub(in crate::link) fn set_xid(frame: &mut [u8], xid: i32) {
    frame[LENGTH_BYTES..LENGTH_BYTES + 4].copy_from_slice(&xid.to_be_bytes());
}

/// The length of a frame, without that of its length.
pub(in crate::link) fn body_bytes(frame: &[u8]) -> usize {
    frame.len() - LENGTH_BYTES
}

/// What follows the header of a request that has its length before it.
pub(in crate::link) fn record(request: &[u8]) -> &[u8] {
    &request[LENGTH_BYTES + REQUEST_HEADER_BYTES..]
}

/// What stands next in a [`FrameBuffer`].
pub(in crate::link) enum Next<'a> {
    Frame(Frame<'a>),
    /// A frame over the limit has gone by: its first bytes, as many as a header has.
    TooLong(Frame<'a>),
    /// Not yet there as a whole.
    Incomplete,
    /// Not a frame: the connection cannot be understood any more.
    Malformed,
}

/// Cuts a stream of bytes into frames, in bounded memory.
pub(in crate::link) struct FrameBuffer {
    bytes: Vec<u8>,
    filled: Range<usize>,
    /// The shortest frame, as long as a header.
    least: usize,
    most: usize,
    /// Of a frame over the limit: how many of its bytes are still to be left out.
    left_out: Option<usize>,
    /// And its first bytes.
    head: Vec<u8>,
}

impl FrameBuffer {
    pub(in crate::link) fn new(least: usize, most: usize) -> Self {
        Self {
            bytes: vec![0; CHUNK_BYTES],
            filled: 0..0,
            least,
            most,
            left_out: None,
            head: Vec::new(),
        }
    }

    /// Reads once. `Ok(0)` is the end of the stream.
    pub(in crate::link) fn fill(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        if self.filled.is_empty() {
            self.filled = 0..0;
            // Memory that one large frame needed is given back.
            if self.bytes.len() > CHUNK_BYTES {
                self.bytes = vec![0; CHUNK_BYTES];
            }
        } else if self.bytes.len() - self.filled.end < CHUNK_BYTES / 2 {
            self.bytes.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
            if self.bytes.len() - self.filled.end < CHUNK_BYTES / 2 {
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
        let read = stream.read(&mut self.bytes[self.filled.end..])?;
        self.filled.end += read;
        Ok(read)
    }

    /// Whether a frame over the limit is going by.
    pub(in crate::link) fn is_leaving_out(&self) -> bool {
        self.left_out.is_some()
    }

    pub(in crate::link) fn next(&mut self) -> Next<'_> {
        if self.left_out.is_some() {
            return self.leave_out();
        }
        let start = self.filled.start;
        if self.filled.len() < LENGTH_BYTES {
            return Next::Incomplete;
        }
        let length = match usize::try_from(int(&self.bytes, start)) {
            Ok(length) if length >= self.least => length,
            _ => return Next::Malformed,
        };
        let too_long = length > self.most;
        let wanted = LENGTH_BYTES + if too_long { self.least } else { length };
        if self.filled.len() < wanted {
            return Next::Incomplete;
        }
        self.filled.start += wanted;
        if too_long {
            self.head = self.bytes[start..start + wanted].to_vec();
            self.left_out = Some(length - self.least);
            return self.leave_out();
        }
        Next::Frame(Frame(&mut self.bytes[start..start + wanted]))
    }

    /// A frame over the limit is not reported before its last byte has come: the crate counts a
    /// request as in flight when it has written all of it, and panics at an answer before that.
    fn leave_out(&mut self) -> Next<'_> {
        let left = self.left_out.unwrap_or(0);
        let here = left.min(self.filled.len());
        self.filled.start += here;
        if here < left {
            self.left_out = Some(left - here);
            return Next::Incomplete;
        }
        self.left_out = None;
        Next::TooLong(Frame(&mut self.head))
    }
}

/// What an event says of the client: it is connected, or its session is over.
pub(in crate::link) const SYNC_CONNECTED: i32 = 3;
pub(in crate::link) const EXPIRED: i32 = -112;

/// A watch event, as a server sends it.
pub(in crate::link) fn event(number: i32, state: i32, path: &[u8]) -> Vec<u8> {
    framed(|frame| {
        frame.extend(XID_WATCH.to_be_bytes());
        frame.extend((-1_i64).to_be_bytes());
        frame.extend(OK.to_be_bytes());
        frame.extend(number.to_be_bytes());
        frame.extend(state.to_be_bytes());
        put_buffer(frame, path);
    })
}

#[cfg(all(test, not(shuttle)))]
pub(in crate::link) fn watch_event(number: i32, path: &[u8]) -> Vec<u8> {
    event(number, SYNC_CONNECTED, path)
}

#[cfg(all(test, not(shuttle)))]
mod tests;
