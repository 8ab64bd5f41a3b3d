//! Records that several requests and replies share.

use crate::error_code::ErrorCode;
use crate::jute::{Malformed, Reader, Writer};

/// What a server knows of a node, beside its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The transaction that created it.
    pub czxid: i64,
    /// The transaction that last changed its data.
    pub mzxid: i64,
    /// When it was created, in ms since 1970.
    pub ctime: i64,
    /// When its data was last changed, in ms since 1970.
    pub mtime: i64,
    /// How often its data was changed.
    pub version: i32,
    /// How often a child was created or deleted.
    pub cversion: i32,
    /// How often its access list was changed.
    pub aversion: i32,
    /// The session that an ephemeral node belongs to; 0 for any other.
    pub ephemeral_owner: i64,
    /// The length of its data.
    pub data_length: i32,
    /// How many children it has.
    pub num_children: i32,
    /// The transaction that last created or deleted a child.
    pub pzxid: i64,
}

impl Stat {
    /// Reads it.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            czxid: reader.long()?,
            mzxid: reader.long()?,
            ctime: reader.long()?,
            mtime: reader.long()?,
            version: reader.int()?,
            cversion: reader.int()?,
            aversion: reader.int()?,
            ephemeral_owner: reader.long()?,
            data_length: reader.int()?,
            num_children: reader.int()?,
            pzxid: reader.long()?,
        })
    }

    /// Writes it.
    pub fn write(&self, writer: &mut Writer) {
        writer.long(self.czxid);
        writer.long(self.mzxid);
        writer.long(self.ctime);
        writer.long(self.mtime);
        writer.int(self.version);
        writer.int(self.cversion);
        writer.int(self.aversion);
        writer.long(self.ephemeral_owner);
        writer.int(self.data_length);
        writer.int(self.num_children);
        writer.long(self.pzxid);
    }
}

/// One line of an access list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Acl {
    /// What is permitted; see [`permission`](crate::permission).
    pub permissions: i32,
    /// How the server knows who it is: `world`, `auth`, `digest`, `ip`, ...
    pub scheme: String,
    /// Who it is.
    pub id: String,
}

impl Acl {
    /// Everything to everybody.
    #[must_use]
    pub fn open() -> Self {
        Self {
            permissions: crate::permission::ALL,
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        }
    }

    /// Reads it. Missing text is read as empty.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            permissions: reader.int()?,
            scheme: reader.any_text()?,
            id: reader.any_text()?,
        })
    }

    /// Writes it.
    pub fn write(&self, writer: &mut Writer) {
        writer.int(self.permissions);
        writer.text(&self.scheme);
        writer.text(&self.id);
    }
}

/// What stands before the record of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The client's number for it.
    pub xid: i32,
    /// What it asks; see [`opcode`](crate::opcode).
    pub opcode: i32,
}

impl RequestHeader {
    /// Reads it.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            xid: reader.int()?,
            opcode: reader.int()?,
        })
    }

    /// Writes it.
    pub fn write(&self, writer: &mut Writer) {
        writer.int(self.xid);
        writer.int(self.opcode);
    }
}

/// What stands before the record of a reply or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The number of the request, or [`xid::EVENT`](crate::xid::EVENT).
    pub xid: i32,
    /// The newest transaction that the server had seen.
    pub zxid: i64,
    /// [`ErrorCode::OK`], or why it was not done.
    pub error: ErrorCode,
}

impl ReplyHeader {
    /// Reads it.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            xid: reader.int()?,
            zxid: reader.long()?,
            error: ErrorCode(reader.int()?),
        })
    }

    /// Writes it.
    pub fn write(&self, writer: &mut Writer) {
        writer.int(self.xid);
        writer.long(self.zxid);
        writer.int(self.error.0);
    }
}

/// Which of a client's watches on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchKind(pub i32);

impl WatchKind {
    /// Left by a list: fires when a child comes or goes, or the node is deleted.
    pub const CHILDREN: Self = Self(1);
    /// Left by a read of data or of a stat: fires when the node is created or deleted, or its data
    /// set.
    pub const DATA: Self = Self(2);
    /// All of them.
    pub const ANY: Self = Self(3);
    /// A persistent watch. Known from 3.9 on.
    pub const PERSISTENT: Self = Self(4);
    /// A persistent watch on all that is below. Known from 3.9 on.
    pub const PERSISTENT_RECURSIVE: Self = Self(5);
}

/// What has happened to a node that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// The node was created.
    NodeCreated,
    /// The node was deleted.
    NodeDeleted,
    /// The node's data was changed.
    NodeDataChanged,
    /// A child was created or deleted.
    NodeChildrenChanged,
}

impl EventKind {
    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::NodeCreated => 1,
            Self::NodeDeleted => 2,
            Self::NodeDataChanged => 3,
            Self::NodeChildrenChanged => 4,
        }
    }

    /// The kind of this number.
    #[must_use]
    pub fn numbered(number: i32) -> Option<Self> {
        let kinds = [
            Self::NodeCreated,
            Self::NodeDeleted,
            Self::NodeDataChanged,
            Self::NodeChildrenChanged,
        ];
        kinds.into_iter().find(|kind| kind.number() == number)
    }
}

/// The event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What has happened.
    pub kind: EventKind,
    /// To which node.
    pub path: String,
}

/// The client is connected: what every event of a watch says.
const SYNC_CONNECTED: i32 = 3;

impl Event {
    /// Reads it.
    ///
    /// # Errors
    /// If it is malformed, or of an unknown kind.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kind = EventKind::numbered(reader.int()?).ok_or(Malformed("an unknown event"))?;
        reader.int()?;
        Ok(Self {
            kind,
            path: reader.text()?,
        })
    }

    /// Writes it.
    pub fn write(&self, writer: &mut Writer) {
        writer.int(self.kind.number());
        writer.int(SYNC_CONNECTED);
        writer.text(&self.path);
    }
}
