//! [`Expected`]: the one form that the answer to a request may have.

use crate::error_code::ErrorCode;
use crate::jute::{Malformed, Reader};
use crate::opcode;
use crate::reply::{Part, Reply};
use crate::request::Request;

/// What a sane server answers to one request. Reading by it is strict: a lying count or length, a
/// missing or a spare byte, a name that is not text, an answer of another kind is [`Malformed`], and
/// a connection that brings one cannot be trusted any more. Nothing is allocated by a number that
/// was only claimed.
///
/// ```
/// use zklock_protocol::{ErrorCode, Expected, Reply, Request};
///
/// let sync = Request::Sync { path: "/".into() };
/// let expected = Expected::of(&sync);
/// let answer = expected.read(ErrorCode::OK, b"\0\0\0\x01/")?;
/// assert_eq!(answer, Ok(Reply::Path("/".into())));
/// assert!(expected.read(ErrorCode::OK, b"\0\0\0\x01/ and more").is_err());
/// # Ok::<(), zklock_protocol::Malformed>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    opcode: i32,
    /// Of the parts of a request for several.
    parts: Box<[i32]>,
}

impl Expected {
    /// The answer to this request.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let parts = request.parts().iter().map(Request::opcode);
        Self::of_parts(request.opcode(), parts.collect())
    }

    /// The answer to a request with this number, which has parts with these numbers.
    #[must_use]
    pub fn of_parts(opcode: i32, parts: Box<[i32]>) -> Self {
        Self { opcode, parts }
    }

    /// Reads what follows the header of a reply. A multi that was not done is an `Ok` as well, in
    /// which every part has failed.
    ///
    /// # Errors
    /// If it is no answer to the request.
    pub fn read(
        &self,
        error: ErrorCode,
        record: &[u8],
    ) -> Result<Result<Reply, ErrorCode>, Malformed> {
        let mut reader = Reader::strict(record);
        if error != ErrorCode::OK {
            // Some servers put the results of the steps behind the error of a multi.
            if self.opcode != opcode::MULTI {
                reader.end()?;
            }
            return Ok(Err(error));
        }
        let reply = match self.opcode {
            opcode::MULTI => Reply::Parts(self.read_steps(&mut reader)?),
            opcode::MULTI_READ => Reply::Parts(self.read_reads(&mut reader)?),
            opcode => Reply::read(opcode, &mut reader)?,
        };
        reader.end()?;
        Ok(Ok(reply))
    }

    /// The results of all steps, or the errors of all.
    fn read_steps(&self, reader: &mut Reader<'_>) -> Result<Vec<Part>, Malformed> {
        let parts = self.read_parts(reader)?;
        let failed = parts.iter().filter(|part| matches!(part, Part::Failed(_)));
        match failed.count() {
            0 => Ok(parts),
            failed if failed < parts.len() => Err(Malformed("a multi that was done in part")),
            _ if Part::refused(&parts).is_none() => {
                Err(Malformed("a multi that failed without an error"))
            }
            _ => Ok(parts),
        }
    }

    /// Each has its own answer.
    fn read_reads(&self, reader: &mut Reader<'_>) -> Result<Vec<Part>, Malformed> {
        let parts = self.read_parts(reader)?;
        if parts.contains(&Part::Failed(ErrorCode::OK)) {
            return Err(Malformed("a read that failed without an error"));
        }
        Ok(parts)
    }

    /// A result or an error for each.
    fn read_parts(&self, reader: &mut Reader<'_>) -> Result<Vec<Part>, Malformed> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for asked in &self.parts {
            let kind = reader.int()?;
            if reader.boolean()? {
                return Err(Malformed("too few results"));
            }
            let error = reader.int()?;
            parts.push(match kind {
                opcode::ERROR => Part::Failed(ErrorCode(reader.int()?)),
                _ if error == 0 && (kind == *asked || is_plain_create(kind, *asked)) => {
                    Part::Done(kind, Reply::read(kind, reader)?)
                }
                _ => return Err(Malformed("a result of another kind than its part")),
            });
        }
        match (reader.int()?, reader.boolean()?, reader.int()?) {
            (_, true, _) => Ok(parts),
            _ => Err(Malformed("too many results")),
        }
    }
}

/// ZooKeeper 3.8.0 answers a create2 within a multi like a create, without the stat.
fn is_plain_create(kind: i32, asked: i32) -> bool {
    kind == opcode::CREATE && asked == opcode::CREATE_2
}

#[cfg(test)]
mod tests;
