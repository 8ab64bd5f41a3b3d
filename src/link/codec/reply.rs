//! What comes back.

use super::bytes::{Malformed, Reader};
use super::opcode;
use super::server_error::ServerError;
use crate::znode::children::Children;

/// What a server has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To a create: the path, with the number that a sequential node was given.
    Created(String),
    /// To a create2.
    CreatedWithStat(String, Stat),
    /// To a delete, or when watches were taken off.
    Done,
    /// To an exists, or when data were set.
    Stat(Stat),
    Data(Vec<u8>, Stat),
    /// In no order.
    Children(Children),
    Synced,
    /// To a multi of which all was done: an answer to each step.
    Multi(Vec<StepReply>),
    /// To several lists in one request: each has its own answer.
    Lists(Vec<Result<Children, ServerError>>),
    /// To a multi of which nothing was done, as this step failed.
    Aborted {
        step: usize,
        error: ServerError,
    },
}

/// What became of a step of a multi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepReply {
    Created(String),
    CreatedWithStat(String, Stat),
    /// Deleted, or checked.
    Done,
    Stat(Stat),
}

/// What a server knows of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that created the node.
    pub(crate) czxid: i64,
    /// The one that set its data last.
    pub(crate) mzxid: i64,
    /// When it was created, by the servers' clock, in milliseconds since 1970.
    pub(crate) ctime: i64,
    /// Counts changes of the data.
    pub(crate) version: i32,
    /// Counts children that came or went.
    pub(crate) cversion: i32,
    /// The session that the node lives with; 0 for a persistent one.
    pub(crate) ephemeral_owner: i64,
    pub(crate) data_length: i32,
    pub(crate) num_children: i32,
    /// The transaction that added or removed a child last.
    pub(crate) pzxid: i64,
}

/// The form of a successful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::link) enum Expected {
    Created,
    CreatedWithStat,
    Nothing,
    Stat,
    Data,
    Children,
    Synced,
    /// With the opcode of each step.
    Multi(Box<[i32]>),
    /// So many.
    Lists(usize),
}

/// The shortest item of a list of names: a length, and one letter.
const LEAST_NAME_BYTES: usize = LENGTH_BYTES + 1;

/// Before a name.
const LENGTH_BYTES: usize = 4;

impl Expected {
    /// Decodes what follows the header of a reply.
    pub(in crate::link) fn decode(
        &self,
        err: i32,
        record: &[u8],
    ) -> Result<Result<Reply, ServerError>, Malformed> {
        let mut reader = Reader::new(record);
        if let Some(error) = ServerError::numbered(err) {
            // Some servers put the results of the steps behind the error of a multi.
            if !matches!(self, Self::Multi(_)) {
                reader.end()?;
            }
            return Ok(Err(error));
        }
        let reply = self.read(&mut reader)?;
        reader.end()?;
        Ok(Ok(reply))
    }

    fn read(&self, reader: &mut Reader<'_>) -> Result<Reply, Malformed> {
        Ok(match self {
            Self::Created => Reply::Created(reader.text()?.to_owned()),
            Self::CreatedWithStat => {
                Reply::CreatedWithStat(reader.text()?.to_owned(), Stat::read(reader)?)
            }
            Self::Nothing => Reply::Done,
            Self::Stat => Reply::Stat(Stat::read(reader)?),
            Self::Data => Reply::Data(reader.buffer()?.to_vec(), Stat::read(reader)?),
            Self::Children => Reply::Children(read_names(reader)?),
            Self::Synced => {
                reader.text()?;
                Reply::Synced
            }
            Self::Multi(steps) => read_multi(steps, reader)?,
            Self::Lists(count) => read_lists(*count, reader)?,
        })
    }
}

impl From<StepReply> for Reply {
    fn from(step: StepReply) -> Self {
        match step {
            StepReply::Created(path) => Self::Created(path),
            StepReply::CreatedWithStat(path, stat) => Self::CreatedWithStat(path, stat),
            StepReply::Done => Self::Done,
            StepReply::Stat(stat) => Self::Stat(stat),
        }
    }
}

impl Stat {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (czxid, mzxid) = (reader.long()?, reader.long()?);
        let (ctime, _changed_at) = (reader.long()?, reader.long()?);
        let (version, cversion) = (reader.int()?, reader.int()?);
        let _access_list_version = reader.int()?;
        Ok(Self {
            czxid,
            mzxid,
            ctime,
            version,
            cversion,
            ephemeral_owner: reader.long()?,
            data_length: reader.int()?,
            num_children: reader.int()?,
            pzxid: reader.long()?,
        })
    }
}

fn read_names(reader: &mut Reader<'_>) -> Result<Children, Malformed> {
    let count = reader.count(LEAST_NAME_BYTES)?;
    // Each has its length before it.
    let mut names = Children::with_capacity(count, reader.left() - count * LENGTH_BYTES);
    for _ in 0..count {
        names.push(reader.text()?);
    }
    // Other lists may follow in the same reply.
    names.shrink_to_fit();
    Ok(names)
}

/// The results of all steps, or the errors of all.
fn read_multi(steps: &[i32], reader: &mut Reader<'_>) -> Result<Reply, Malformed> {
    let mut done = Vec::with_capacity(steps.len());
    let mut failed = Vec::new();
    for step in steps {
        let kind = reader.int()?;
        if reader.boolean()? {
            return Err(Malformed("a multi with too few results"));
        }
        let err = reader.int()?;
        if kind == opcode::ERROR {
            let number = reader.int()?;
            failed.push(ServerError::numbered(number));
        } else if err == 0 && (kind == *step || is_plain_create(kind, *step)) {
            done.push(read_step(kind, reader)?);
        } else {
            return Err(Malformed("a result of another kind than its step"));
        }
    }
    read_end(reader)?;
    if failed.is_empty() {
        return Ok(Reply::Multi(done));
    }
    if !done.is_empty() {
        return Err(Malformed("a multi that was done in part"));
    }
    // Steps before the one that failed carry no error, and those behind it that of not being tried.
    let of_its_own =
        |error: &Option<ServerError>| error.is_some_and(|error| error != ServerError::NotTried);
    let step = failed
        .iter()
        .position(of_its_own)
        .or_else(|| failed.iter().position(Option::is_some));
    match step.and_then(|step| Some((step, failed[step]?))) {
        Some((step, error)) => Ok(Reply::Aborted { step, error }),
        None => Err(Malformed("a multi that failed without an error")),
    }
}

/// What follows the last result.
fn read_end(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    match (reader.int()?, reader.boolean()?, reader.int()?) {
        (_, true, _) => Ok(()),
        _ => Err(Malformed("a multi with too many results")),
    }
}

/// A list or an error for each.
fn read_lists(count: usize, reader: &mut Reader<'_>) -> Result<Reply, Malformed> {
    let mut lists = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = reader.int()?;
        if reader.boolean()? {
            return Err(Malformed("several lists with too few results"));
        }
        reader.int()?;
        lists.push(match kind {
            opcode::GET_CHILDREN => Ok(read_names(reader)?),
            opcode::ERROR => {
                let error = ServerError::numbered(reader.int()?);
                Err(error.ok_or(Malformed("a list that failed without an error"))?)
            }
            _ => return Err(Malformed("a result of another kind than a list")),
        });
    }
    read_end(reader)?;
    Ok(Reply::Lists(lists))
}

/// ZooKeeper 3.8.0 answers a create2 within a multi like a create, without the stat.
fn is_plain_create(kind: i32, step: i32) -> bool {
    kind == opcode::CREATE && step == opcode::CREATE_2
}

fn read_step(kind: i32, reader: &mut Reader<'_>) -> Result<StepReply, Malformed> {
    Ok(match kind {
        opcode::CREATE => StepReply::Created(reader.text()?.to_owned()),
        opcode::CREATE_2 => {
            StepReply::CreatedWithStat(reader.text()?.to_owned(), Stat::read(reader)?)
        }
        opcode::SET_DATA => StepReply::Stat(Stat::read(reader)?),
        _ => StepReply::Done,
    })
}

/// Whether the crate can digest this successful reply to its request: it allocates whatever a
/// length claims, and panics at a negative count and at names that are not UTF-8. What it does not
/// look at is not checked.
pub(in crate::link) fn digestible(opcode: i32, record: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(record);
    match opcode {
        opcode::CREATE => reader.text().map(drop),
        opcode::EXISTS | opcode::SET_DATA | opcode::SET_ACL => Stat::read(&mut reader).map(drop),
        opcode::GET_DATA => reader
            .buffer()
            .and_then(|_| Stat::read(&mut reader).map(drop)),
        opcode::GET_CHILDREN => {
            for _ in 0..reader.count(LEAST_NAME_BYTES)? {
                reader.text()?;
            }
            Ok(())
        }
        opcode::GET_ACL => {
            const LEAST_ENTRY_BYTES: usize = 4 + 4 + 4;
            for _ in 0..reader.count(LEAST_ENTRY_BYTES)? {
                reader.int()?;
                for _ in 0..2 {
                    let text = std::str::from_utf8(reader.buffer()?);
                    text.map_err(|_| Malformed("an access list that is not UTF-8"))?;
                }
            }
            Stat::read(&mut reader).map(drop)
        }
        _ => Ok(()),
    }
}
