//! [`Reply`]: everything that a server can answer.

use crate::children::Children;
use crate::error_code::ErrorCode;
use crate::jute::{Malformed, Reader, Writer};
use crate::opcode;
use crate::records::{Acl, Stat};
use crate::request::{write_end_of_parts, write_multi_header};

/// What a server answers, without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the records")]
pub enum Reply {
    /// No record at all: to a delete, and in place of every answer that is an error.
    Nothing,
    /// To a create or a sync.
    Path(String),
    /// To the other creates.
    Created {
        path: String,
        stat: Stat,
    },
    Stat(Stat),
    Data {
        data: Option<Vec<u8>>,
        stat: Stat,
    },
    /// In no order. Also to a list of ephemeral nodes, by their paths.
    Children(Children),
    ChildrenAndStat {
        children: Children,
        stat: Stat,
    },
    Acl {
        acl: Vec<Acl>,
        stat: Stat,
    },
    Number(i32),
    /// To a multi or several reads.
    Parts(Vec<Part>),
    /// Schemes and names, to `whoAmI`.
    Identities(Vec<(String, String)>),
    /// A step of SASL.
    Token(Option<Vec<u8>>),
}

/// The answer to one part of a multi, or of several reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// It was done; the number says as what.
    Done(i32, Reply),
    /// It was not, or nothing was.
    Failed(ErrorCode),
}

impl Reply {
    /// Reads the record that answers a request with this number without an error.
    ///
    /// # Errors
    /// If it is malformed, or the number is of no request that clients make.
    pub fn read(number: i32, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match number {
            opcode::CREATE | opcode::SYNC => Self::Path(reader.text()?),
            opcode::CREATE_2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => Self::Created {
                path: reader.text()?,
                stat: Stat::read(reader)?,
            },
            opcode::EXISTS | opcode::SET_DATA | opcode::SET_ACL => Self::Stat(Stat::read(reader)?),
            opcode::GET_DATA => Self::Data {
                data: reader.buffer()?.map(<[u8]>::to_vec),
                stat: Stat::read(reader)?,
            },
            opcode::GET_CHILDREN | opcode::GET_EPHEMERALS => {
                Self::Children(Children::read(reader)?)
            }
            opcode::GET_CHILDREN_2 => Self::ChildrenAndStat {
                children: Children::read(reader)?,
                stat: Stat::read(reader)?,
            },
            opcode::GET_ACL => Self::Acl {
                acl: reader.items(Acl::read)?,
                stat: Stat::read(reader)?,
            },
            opcode::GET_ALL_CHILDREN_NUMBER | opcode::ADD_WATCH => Self::Number(reader.int()?),
            opcode::MULTI | opcode::MULTI_READ => Self::Parts(read_parts(reader)?),
            opcode::WHO_AM_I => {
                Self::Identities(reader.items(|reader| Ok((reader.text()?, reader.text()?)))?)
            }
            opcode::SASL => Self::Token(reader.buffer()?.map(<[u8]>::to_vec)),
            opcode::DELETE
            | opcode::CHECK
            | opcode::SET_WATCHES
            | opcode::SET_WATCHES_2
            | opcode::CHECK_WATCHES
            | opcode::REMOVE_WATCHES
            | opcode::AUTH
            | opcode::PING
            | opcode::CLOSE_SESSION => Self::Nothing,
            _ => return Err(Malformed("an answer to what clients do not ask")),
        })
    }

    /// Writes its record.
    pub fn write(&self, writer: &mut Writer) {
        match self {
            Self::Nothing => {}
            Self::Path(path) => writer.text(path),
            Self::Created { path, stat } => {
                writer.text(path);
                stat.write(writer);
            }
            Self::Stat(stat) => stat.write(writer),
            Self::Data { data, stat } => {
                writer.buffer(data.as_deref());
                stat.write(writer);
            }
            Self::Children(children) => children.write(writer),
            Self::ChildrenAndStat { children, stat } => {
                children.write(writer);
                stat.write(writer);
            }
            Self::Acl { acl, stat } => {
                writer.items(acl, |writer, acl| acl.write(writer));
                stat.write(writer);
            }
            Self::Number(number) => writer.int(*number),
            Self::Parts(parts) => {
                for part in parts {
                    part.write(writer);
                }
                write_end_of_parts(writer);
            }
            Self::Identities(identities) => writer.items(identities, |writer, (scheme, name)| {
                writer.text(scheme);
                writer.text(name);
            }),
            Self::Token(token) => writer.buffer(token.as_deref()),
        }
    }
}

impl Part {
    /// Of a multi that was not done: the step that was refused, and why.
    #[must_use]
    pub fn refused(parts: &[Self]) -> Option<(usize, ErrorCode)> {
        let errors = || {
            parts
                .iter()
                .enumerate()
                .filter_map(|(step, part)| match part {
                    Self::Failed(ErrorCode::OK) | Self::Done(..) => None,
                    Self::Failed(error) => Some((step, *error)),
                })
        };
        // Steps before the one that failed carry no error, and those behind it that of not being
        // tried.
        let of_its_own =
            |(_, error): &(usize, ErrorCode)| *error != ErrorCode::RUNTIME_INCONSISTENCY;
        errors().find(of_its_own).or_else(|| errors().next())
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Done(number, reply) => {
                write_multi_header(writer, *number, false, 0);
                reply.write(writer);
            }
            Self::Failed(code) => {
                write_multi_header(writer, opcode::ERROR, false, code.0);
                writer.int(code.0);
            }
        }
    }
}

fn read_parts(reader: &mut Reader<'_>) -> Result<Vec<Part>, Malformed> {
    let mut parts = Vec::new();
    loop {
        let number = reader.int()?;
        let done = reader.boolean()?;
        reader.int()?;
        if done {
            return Ok(parts);
        }
        parts.push(match number {
            opcode::ERROR => Part::Failed(ErrorCode(reader.int()?)),
            // Neither several reads nor a multi contain another.
            opcode::MULTI | opcode::MULTI_READ => return Err(Malformed("a multi in a multi")),
            number => Part::Done(number, Reply::read(number, reader)?),
        });
    }
}
