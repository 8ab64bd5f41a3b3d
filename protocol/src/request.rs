//! [`Request`]: everything that a client can ask.

use std::sync::Arc;

use crate::jute::{Malformed, Reader, Writer};
use crate::opcode;
use crate::records::{Acl, WatchKind};

/// What a client asks, without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the fields are those of the records of the same names"
)]
pub enum Request {
    /// Any of the four requests that create a node.
    Create(Create),
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Vec<Acl>,
        version: i32,
    },
    /// Only inside of a multi.
    Check {
        path: String,
        version: i32,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
    },
    GetChildren2 {
        path: String,
        watch: bool,
    },
    GetAcl {
        path: String,
    },
    GetAllChildrenNumber {
        path: String,
    },
    /// The session's own nodes whose paths begin so.
    GetEphemerals {
        prefix: String,
    },
    Sync {
        path: String,
    },
    Multi(Vec<Request>),
    MultiRead(Vec<Request>),
    SetWatches(SetWatches),
    /// Mode 0 is persistent, 1 persistent and recursive.
    AddWatch {
        path: String,
        mode: i32,
    },
    CheckWatches {
        path: String,
        kind: WatchKind,
    },
    RemoveWatches {
        path: String,
        kind: WatchKind,
    },
    WhoAmI,
    /// A change of the ensemble.
    Reconfig {
        joining: Option<String>,
        leaving: Option<String>,
        members: Option<String>,
        config_id: i64,
    },
    Auth {
        scheme: String,
        credentials: Vec<u8>,
    },
    Sasl {
        token: Vec<u8>,
    },
    Ping,
    CloseSession,
}

/// A node to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Which request it is.
    pub form: CreateForm,
    /// Its path; a sequential node gets its number appended.
    pub path: String,
    /// Its data. None is not the same as an empty one: it is what readers get.
    pub data: Option<Vec<u8>>,
    /// Who may do what with it.
    pub acl: Arc<[Acl]>,
    /// What becomes of it.
    pub mode: CreateMode,
    /// In ms. Only in the form that brings one.
    pub ttl_ms: i64,
}

/// How long a node lives, and whether it gets a number, as ZooKeeper has it in `CreateMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are ZooKeeper's")]
pub struct CreateMode(pub i32);

#[allow(missing_docs, reason = "the names are ZooKeeper's")]
impl CreateMode {
    pub const PERSISTENT: Self = Self(0);
    /// Lives as long as the session that has made it.
    pub const EPHEMERAL: Self = Self(1);
    /// Gets the next number of its folder.
    pub const PERSISTENT_SEQUENTIAL: Self = Self(2);
    pub const EPHEMERAL_SEQUENTIAL: Self = Self(3);
    pub const CONTAINER: Self = Self(4);
    pub const PERSISTENT_WITH_TTL: Self = Self(5);
    pub const PERSISTENT_SEQUENTIAL_WITH_TTL: Self = Self(6);
}

/// A version of anything, in a request that would compare it.
pub const ANY_VERSION: i32 = -1;

/// Which of the requests that create a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as the opcodes")]
pub enum CreateForm {
    Create,
    Create2,
    Container,
    Ttl,
}

/// The watches that a client had on an earlier connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetWatches {
    /// The newest transaction that the client has seen.
    pub relative_zxid: i64,
    /// Left by reads of data, and by `exists` on nodes that were there.
    pub data: Vec<String>,
    /// Left by `exists` on nodes that were not there.
    pub exist: Vec<String>,
    /// Left by lists.
    pub children: Vec<String>,
    /// Persistent, and persistent and recursive ones. Only in the second form of the request.
    pub persistent: Option<(Vec<String>, Vec<String>)>,
}

impl Request {
    /// Its number.
    #[must_use]
    pub fn opcode(&self) -> i32 {
        match self {
            Self::Create(create) => match create.form {
                CreateForm::Create => opcode::CREATE,
                CreateForm::Create2 => opcode::CREATE_2,
                CreateForm::Container => opcode::CREATE_CONTAINER,
                CreateForm::Ttl => opcode::CREATE_TTL,
            },
            Self::Delete { .. } => opcode::DELETE,
            Self::SetData { .. } => opcode::SET_DATA,
            Self::SetAcl { .. } => opcode::SET_ACL,
            Self::Check { .. } => opcode::CHECK,
            Self::Exists { .. } => opcode::EXISTS,
            Self::GetData { .. } => opcode::GET_DATA,
            Self::GetChildren { .. } => opcode::GET_CHILDREN,
            Self::GetChildren2 { .. } => opcode::GET_CHILDREN_2,
            Self::GetAcl { .. } => opcode::GET_ACL,
            Self::GetAllChildrenNumber { .. } => opcode::GET_ALL_CHILDREN_NUMBER,
            Self::GetEphemerals { .. } => opcode::GET_EPHEMERALS,
            Self::Sync { .. } => opcode::SYNC,
            Self::Multi(_) => opcode::MULTI,
            Self::MultiRead(_) => opcode::MULTI_READ,
            Self::SetWatches(watches) if watches.persistent.is_some() => opcode::SET_WATCHES_2,
            Self::SetWatches(_) => opcode::SET_WATCHES,
            Self::AddWatch { .. } => opcode::ADD_WATCH,
            Self::CheckWatches { .. } => opcode::CHECK_WATCHES,
            Self::RemoveWatches { .. } => opcode::REMOVE_WATCHES,
            Self::WhoAmI => opcode::WHO_AM_I,
            Self::Reconfig { .. } => opcode::RECONFIG,
            Self::Auth { .. } => opcode::AUTH,
            Self::Sasl { .. } => opcode::SASL,
            Self::Ping => opcode::PING,
            Self::CloseSession => opcode::CLOSE_SESSION,
        }
    }

    /// The node that it is about; none where it is about none or several.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Create(create) => Some(&create.path),
            Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. }
            | Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::GetChildren { path, .. }
            | Self::GetChildren2 { path, .. }
            | Self::GetAcl { path }
            | Self::GetAllChildrenNumber { path }
            | Self::Sync { path }
            | Self::AddWatch { path, .. }
            | Self::CheckWatches { path, .. }
            | Self::RemoveWatches { path, .. } => Some(path),
            _ => None,
        }
    }

    /// As [`Request::path`], to be changed.
    pub fn path_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Create(create) => Some(&mut create.path),
            Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. }
            | Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::GetChildren { path, .. }
            | Self::GetChildren2 { path, .. }
            | Self::GetAcl { path }
            | Self::GetAllChildrenNumber { path }
            | Self::Sync { path }
            | Self::AddWatch { path, .. }
            | Self::CheckWatches { path, .. }
            | Self::RemoveWatches { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The requests inside of it, where it is one of several.
    #[must_use]
    pub fn parts(&self) -> &[Request] {
        match self {
            Self::Multi(parts) | Self::MultiRead(parts) => parts,
            _ => &[],
        }
    }

    /// Reads the record of the request with this number.
    ///
    /// # Errors
    /// If it is malformed, or the number is of no request that clients make.
    pub fn read(number: i32, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let watched = |reader: &mut Reader<'_>| Ok((reader.text()?, reader.boolean()?));
        let numbered = |reader: &mut Reader<'_>| Ok((reader.text()?, reader.int()?));
        Ok(match number {
            opcode::CREATE => Self::Create(Create::read(CreateForm::Create, reader)?),
            opcode::CREATE_2 => Self::Create(Create::read(CreateForm::Create2, reader)?),
            opcode::CREATE_CONTAINER => Self::Create(Create::read(CreateForm::Container, reader)?),
            opcode::CREATE_TTL => Self::Create(Create::read(CreateForm::Ttl, reader)?),
            opcode::DELETE => {
                let (path, version) = numbered(reader)?;
                Self::Delete { path, version }
            }
            opcode::SET_DATA => Self::SetData {
                path: reader.text()?,
                data: reader.buffer()?.map(<[u8]>::to_vec),
                version: reader.int()?,
            },
            opcode::SET_ACL => Self::SetAcl {
                path: reader.text()?,
                acl: reader.items(Acl::read)?,
                version: reader.int()?,
            },
            opcode::CHECK => {
                let (path, version) = numbered(reader)?;
                Self::Check { path, version }
            }
            opcode::EXISTS => {
                let (path, watch) = watched(reader)?;
                Self::Exists { path, watch }
            }
            opcode::GET_DATA => {
                let (path, watch) = watched(reader)?;
                Self::GetData { path, watch }
            }
            opcode::GET_CHILDREN => {
                let (path, watch) = watched(reader)?;
                Self::GetChildren { path, watch }
            }
            opcode::GET_CHILDREN_2 => {
                let (path, watch) = watched(reader)?;
                Self::GetChildren2 { path, watch }
            }
            opcode::GET_ACL => Self::GetAcl {
                path: reader.text()?,
            },
            opcode::GET_ALL_CHILDREN_NUMBER => Self::GetAllChildrenNumber {
                path: reader.text()?,
            },
            opcode::GET_EPHEMERALS => Self::GetEphemerals {
                prefix: reader.any_text()?,
            },
            opcode::SYNC => Self::Sync {
                path: reader.text()?,
            },
            opcode::MULTI => Self::Multi(read_parts(reader)?),
            opcode::MULTI_READ => Self::MultiRead(read_parts(reader)?),
            opcode::SET_WATCHES => Self::SetWatches(SetWatches::read(false, reader)?),
            opcode::SET_WATCHES_2 => Self::SetWatches(SetWatches::read(true, reader)?),
            opcode::ADD_WATCH => {
                let (path, mode) = numbered(reader)?;
                Self::AddWatch { path, mode }
            }
            opcode::CHECK_WATCHES => {
                let (path, kind) = numbered(reader)?;
                let kind = WatchKind(kind);
                Self::CheckWatches { path, kind }
            }
            opcode::REMOVE_WATCHES => {
                let (path, kind) = numbered(reader)?;
                let kind = WatchKind(kind);
                Self::RemoveWatches { path, kind }
            }
            opcode::WHO_AM_I => Self::WhoAmI,
            opcode::RECONFIG => {
                let mut text = || {
                    let bytes = reader.buffer()?;
                    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
                };
                Self::Reconfig {
                    joining: text()?,
                    leaving: text()?,
                    members: text()?,
                    config_id: reader.long()?,
                }
            }
            opcode::AUTH => {
                reader.int()?;
                Self::Auth {
                    scheme: reader.text()?,
                    credentials: reader.buffer()?.unwrap_or_default().to_vec(),
                }
            }
            opcode::SASL => Self::Sasl {
                token: reader.buffer()?.unwrap_or_default().to_vec(),
            },
            opcode::PING => Self::Ping,
            opcode::CLOSE_SESSION => Self::CloseSession,
            _ => return Err(Malformed("a request that clients do not make")),
        })
    }

    /// Writes its record.
    pub fn write(&self, writer: &mut Writer) {
        match self {
            Self::Create(create) => create.write(writer),
            Self::Delete { path, version } | Self::Check { path, version } => {
                writer.text(path);
                writer.int(*version);
            }
            Self::SetData {
                path,
                data,
                version,
            } => {
                writer.text(path);
                writer.buffer(data.as_deref());
                writer.int(*version);
            }
            Self::SetAcl { path, acl, version } => {
                writer.text(path);
                writer.items(acl, |writer, acl| acl.write(writer));
                writer.int(*version);
            }
            Self::Exists { path, watch }
            | Self::GetData { path, watch }
            | Self::GetChildren { path, watch }
            | Self::GetChildren2 { path, watch } => {
                writer.text(path);
                writer.boolean(*watch);
            }
            Self::GetAcl { path } | Self::GetAllChildrenNumber { path } | Self::Sync { path } => {
                writer.text(path);
            }
            Self::GetEphemerals { prefix } => writer.text(prefix),
            Self::Multi(parts) | Self::MultiRead(parts) => {
                for part in parts {
                    write_part_header(writer, part.opcode());
                    part.write(writer);
                }
                write_end_of_parts(writer);
            }
            Self::SetWatches(watches) => watches.write(writer),
            Self::AddWatch { path, mode } => {
                writer.text(path);
                writer.int(*mode);
            }
            Self::CheckWatches { path, kind } | Self::RemoveWatches { path, kind } => {
                writer.text(path);
                writer.int(kind.0);
            }
            Self::Auth {
                scheme,
                credentials,
            } => {
                writer.int(0);
                writer.text(scheme);
                writer.buffer(Some(credentials));
            }
            Self::Sasl { token } => writer.buffer(Some(token)),
            Self::Reconfig {
                joining,
                leaving,
                members,
                config_id,
            } => {
                for text in [joining, leaving, members] {
                    writer.buffer(text.as_ref().map(String::as_bytes));
                }
                writer.long(*config_id);
            }
            Self::WhoAmI | Self::Ping | Self::CloseSession => {}
        }
    }
}

fn read_parts(reader: &mut Reader<'_>) -> Result<Vec<Request>, Malformed> {
    let mut parts: Vec<Request> = Vec::new();
    loop {
        let number = reader.int()?;
        let done = reader.boolean()?;
        reader.int()?;
        if done {
            return Ok(parts);
        }
        let is_read = is_read(number);
        if !is_read && !is_step(number) {
            return Err(Malformed("a request that goes into no other"));
        }
        if parts
            .first()
            .is_some_and(|first| self::is_read(first.opcode()) != is_read)
        {
            return Err(Malformed("reads and writes together"));
        }
        parts.push(Request::read(number, reader)?);
    }
}

fn is_read(number: i32) -> bool {
    matches!(number, opcode::GET_CHILDREN | opcode::GET_DATA)
}

fn is_step(number: i32) -> bool {
    matches!(
        number,
        opcode::CREATE
            | opcode::CREATE_2
            | opcode::CREATE_CONTAINER
            | opcode::CREATE_TTL
            | opcode::DELETE
            | opcode::SET_DATA
            | opcode::CHECK
    )
}

/// Writes what stands before each part of a request for several.
pub fn write_part_header(writer: &mut Writer, number: i32) {
    write_multi_header(writer, number, false, -1);
}

/// Writes what stands after the last part of a request for several, or of its answer.
pub fn write_end_of_parts(writer: &mut Writer) {
    write_multi_header(writer, opcode::ERROR, true, -1);
}

/// Before each part of a multi, and after the last one.
pub(crate) fn write_multi_header(writer: &mut Writer, number: i32, done: bool, error: i32) {
    writer.int(number);
    writer.boolean(done);
    writer.int(error);
}

impl Create {
    fn read(form: CreateForm, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            form,
            path: reader.text()?,
            data: reader.buffer()?.map(<[u8]>::to_vec),
            acl: reader.items(Acl::read)?.into(),
            mode: CreateMode(reader.int()?),
            ttl_ms: match form {
                CreateForm::Ttl => reader.long()?,
                _ => -1,
            },
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.text(&self.path);
        writer.buffer(self.data.as_deref());
        writer.items(&self.acl, |writer, acl| acl.write(writer));
        writer.int(self.mode.0);
        if self.form == CreateForm::Ttl {
            writer.long(self.ttl_ms);
        }
    }
}

impl SetWatches {
    fn read(second: bool, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            relative_zxid: reader.long()?,
            data: reader.items(Reader::text)?,
            exist: reader.items(Reader::text)?,
            children: reader.items(Reader::text)?,
            persistent: if second {
                Some((reader.items(Reader::text)?, reader.items(Reader::text)?))
            } else {
                None
            },
        })
    }

    fn write(&self, writer: &mut Writer) {
        let paths = |writer: &mut Writer, paths: &[String]| {
            writer.items(paths, |writer, path| writer.text(path));
        };
        writer.long(self.relative_zxid);
        paths(writer, &self.data);
        paths(writer, &self.exist);
        paths(writer, &self.children);
        if let Some((persistent, recursive)) = &self.persistent {
            paths(writer, persistent);
            paths(writer, recursive);
        }
    }
}

#[cfg(test)]
mod tests;
