//! The first frame of each direction.

use crate::jute::{Malformed, Reader, Writer};

/// A client's first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// 0 in every version so far.
    pub protocol_version: i32,
    /// The newest state that the client has seen.
    pub last_zxid_seen: i64,
    /// The session timeout that it asks for, in ms.
    pub timeout_ms: i32,
    /// 0 for a new session.
    pub session_id: i64,
    /// Proves that the session is the client's.
    pub password: Vec<u8>,
    /// Whether a server that is read-only will do. None from very old clients.
    pub read_only: Option<bool>,
}

/// A server's first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    /// 0 in every version so far.
    pub protocol_version: i32,
    /// The session timeout that is granted, in ms. 0 if the session is over.
    pub timeout_ms: i32,
    /// 0 if the session is over.
    pub session_id: i64,
    /// To show at the next connect.
    pub password: Vec<u8>,
    /// Whether the server is read-only. None to clients that did not say what they take.
    pub read_only: Option<bool>,
}

impl ConnectRequest {
    /// Reads it.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            protocol_version: reader.int()?,
            last_zxid_seen: reader.long()?,
            timeout_ms: reader.int()?,
            session_id: reader.long()?,
            password: reader.buffer()?.unwrap_or_default().to_vec(),
            read_only: reader.boolean().ok(),
        })
    }

    /// Writes it.
    pub fn write(&self, writer: &mut Writer) {
        writer.int(self.protocol_version);
        writer.long(self.last_zxid_seen);
        writer.int(self.timeout_ms);
        writer.long(self.session_id);
        writer.buffer(Some(&self.password));
        if let Some(read_only) = self.read_only {
            writer.boolean(read_only);
        }
    }
}

impl ConnectResponse {
    /// Reads it.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            protocol_version: reader.int()?,
            timeout_ms: reader.int()?,
            session_id: reader.long()?,
            password: reader.buffer()?.unwrap_or_default().to_vec(),
            read_only: reader.boolean().ok(),
        })
    }

    /// Writes it.
    pub fn write(&self, writer: &mut Writer) {
        writer.int(self.protocol_version);
        writer.int(self.timeout_ms);
        writer.long(self.session_id);
        writer.buffer(Some(&self.password));
        if let Some(read_only) = self.read_only {
            writer.boolean(read_only);
        }
    }
}
