//! Records and frames of Apache ZooKeeper's client protocol, for either end of a connection.
//!
//! Nothing here does I/O. A [`Frames`] cuts a stream of bytes into frames; a [`Request`] or a
//! [`Reply`] is read from a frame with a [`Reader`], and written into one with a [`Writer`]. (The
//! records are those of ZooKeeper's `zookeeper.jute`.)
//!
//! Reading is as lenient as ZooKeeper's own: bytes after a record are ignored, text that is not
//! UTF-8 is read with replacements. What is not there, or claims to be longer than what is there,
//! is [`Malformed`]; nothing is allocated for a length that was only claimed. A client that believes
//! nothing else than an answer to what it has asked reads replies by [`Expected`].
//!
//! ```
//! use zklock_protocol::{Reader, Request, Writer, opcode};
//!
//! let request = Request::GetData { path: "/a".into(), watch: true };
//! let mut writer = Writer::new();
//! request.write(&mut writer);
//! let bytes = writer.into_bytes();
//! assert_eq!(bytes, b"\0\0\0\x02/a\x01");
//! let read = Request::read(opcode::GET_DATA, &mut Reader::new(&bytes))?;
//! assert_eq!(read, request);
//! # Ok::<(), zklock_protocol::Malformed>(())
//! ```

#![warn(missing_debug_implementations, missing_docs)]

mod children;
mod error_code;
mod expected;
mod frames;
mod handshake;
mod jute;
pub mod opcode;
mod records;
mod reply;
mod request;

pub use self::children::Children;
pub use self::error_code::ErrorCode;
pub use self::expected::Expected;
pub use self::frames::{Frames, Piece};
pub use self::handshake::{ConnectRequest, ConnectResponse};
pub use self::jute::{Malformed, Reader, Writer};
pub use self::records::{Acl, Event, EventKind, ReplyHeader, RequestHeader, Stat, WatchKind};
pub use self::reply::{Part, Reply};
pub use self::request::{
    ANY_VERSION, Create, CreateForm, CreateMode, Request, SetWatches, write_end_of_parts,
    write_part_header,
};

/// The numbers that requests without a number of their own have.
pub mod xid {
    /// An event of a watch.
    pub const EVENT: i32 = -1;
    /// A ping, and its answer.
    pub const PING: i32 = -2;
    /// Credentials.
    pub const AUTH: i32 = -4;
    /// The watches that a client had on an earlier connection.
    pub const SET_WATCHES: i32 = -8;
}

/// What one line of an access list permits, as bits.
pub mod permission {
    /// Read the data and list the children.
    pub const READ: i32 = 1;
    /// Change the data.
    pub const WRITE: i32 = 2;
    /// Create children.
    pub const CREATE: i32 = 4;
    /// Delete children.
    pub const DELETE: i32 = 8;
    /// Change the access list.
    pub const ADMIN: i32 = 16;
    /// Everything.
    pub const ALL: i32 = 31;
}
