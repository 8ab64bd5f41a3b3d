//! Requests: what each kind of them goes through.

use std::time::Duration;

use zklock_protocol::{
    ErrorCode, Part, Reader, Reply, ReplyHeader, Request, RequestHeader, opcode, xid,
};

use super::transactions::{self, Caller, Refused};
use super::{ConnectionId, Core, Line};

impl Core {
    pub(super) fn request(
        &mut self,
        from: ConnectionId,
        session: i64,
        header: RequestHeader,
        reader: &mut Reader<'_>,
        now: Duration,
    ) {
        match header.opcode {
            opcode::AUTH => return self.authenticate(from, header.xid, reader),
            opcode::SASL => {
                // As of a server that was not given a login for it.
                let reply = ReplyHeader {
                    xid: header.xid,
                    zxid: 0,
                    error: ErrorCode::OK,
                };
                return self.reply(from, reply, &Reply::Token(None));
            }
            _ => {}
        }
        if !self.touch(from, now) {
            return;
        }
        if !is_known(header.opcode) {
            let unknown = ReplyHeader {
                xid: header.xid,
                zxid: -1,
                error: ErrorCode::UNIMPLEMENTED,
            };
            self.reply(from, unknown, &Reply::Nothing);
            return self.close(from);
        }
        let record = reader.rest();
        let outcome = match Request::read(header.opcode, reader) {
            Ok(Request::Ping) => {
                let pong = self.reply_header(xid::PING, ErrorCode::OK);
                return self.reply(from, pong, &Reply::Nothing);
            }
            Ok(Request::CloseSession) => {
                self.end_session(session, now);
                let header = self.reply_header(header.xid, ErrorCode::OK);
                self.reply(from, header, &Reply::Nothing);
                return self.close(from);
            }
            Ok(request) if is_write(header.opcode) => self.write(from, session, request, now),
            Ok(request) => self.read(from, session, request),
            Err(_) => {
                if takes_number(header.opcode, record, self.settings.line) {
                    self.next_moment(now);
                }
                Err(ErrorCode::MARSHALLING_ERROR)
            }
        };
        match outcome {
            Ok(reply) => {
                let header = self.reply_header(header.xid, ErrorCode::OK);
                self.reply(from, header, &reply);
            }
            Err(code) => self.refuse(from, header.xid, code),
        }
    }

    /// Gives the session that a connection speaks for its whole time again, as every request does
    /// before it is judged. Whether there is such a session.
    pub(crate) fn touch(&mut self, from: ConnectionId, now: Duration) -> bool {
        let Some(connection) = self.connections.get(&from) else {
            return false;
        };
        connection
            .session
            .is_some_and(|session| self.sessions.touch(session, connection.timeout, now))
    }

    fn write(
        &mut self,
        from: ConnectionId,
        session: i64,
        request: Request,
        now: Duration,
    ) -> Result<Reply, ErrorCode> {
        let moment = self.next_moment(now);
        let caller = Caller {
            session,
            identities: self.identities(from),
            line: self.settings.line,
        };
        let steps = match request {
            Request::Reconfig { .. } => return Err(ErrorCode::RECONFIG_DISABLED),
            // Corrupts the database of servers that take it outside of a multi.
            Request::Check { .. } => return Err(ErrorCode::UNIMPLEMENTED),
            Request::Multi(steps) => steps,
            request => {
                let txn = transactions::prepare(&self.tree, &caller, request)?;
                return match self.apply(txn, moment) {
                    Part::Done(_, reply) => Ok(reply),
                    Part::Failed(code) => Err(code),
                };
            }
        };
        let is_step = |step: &Request| is_write(step.opcode());
        if !steps.iter().all(is_step) {
            return Err(ErrorCode::MARSHALLING_ERROR);
        }
        let parts = match transactions::prepare_all(&self.tree, &caller, steps) {
            Ok(txns) => txns
                .into_iter()
                .map(|txn| self.apply(txn, moment))
                .collect(),
            Err(Refused::Each(codes)) => codes.into_iter().map(Part::Failed).collect(),
            Err(Refused::Unread) => return Err(ErrorCode::MARSHALLING_ERROR),
        };
        Ok(Reply::Parts(parts))
    }
}

/// Whether a write takes a transaction's number though its record cannot be read. Up to 3.8 most do,
/// because they take it first. From 3.9 on it is taken when the record has been read: where there is
/// a null for its path, the failure comes after that.
fn takes_number(number: i32, record: &[u8], line: Line) -> bool {
    if !is_write(number) || number == opcode::RECONFIG {
        return false;
    }
    let without_path = || {
        let rest = record.strip_prefix(&[0xff; 4])?;
        let with_empty_path = [&[0; 4], rest].concat();
        Request::read(number, &mut Reader::new(&with_empty_path)).ok()
    };
    line == Line::V3_8 || number == opcode::MULTI || without_path().is_some()
}

fn is_write(number: i32) -> bool {
    matches!(
        number,
        opcode::CREATE
            | opcode::CREATE_2
            | opcode::CREATE_CONTAINER
            | opcode::CREATE_TTL
            | opcode::DELETE
            | opcode::SET_DATA
            | opcode::SET_ACL
            | opcode::CHECK
            | opcode::MULTI
            | opcode::RECONFIG
    )
}

/// What servers take from clients. The others end the connection.
fn is_known(number: i32) -> bool {
    is_write(number)
        || matches!(
            number,
            opcode::EXISTS
                | opcode::GET_DATA
                | opcode::GET_CHILDREN
                | opcode::GET_CHILDREN_2
                | opcode::GET_ACL
                | opcode::GET_ALL_CHILDREN_NUMBER
                | opcode::GET_EPHEMERALS
                | opcode::SYNC
                | opcode::PING
                | opcode::MULTI_READ
                | opcode::SET_WATCHES
                | opcode::SET_WATCHES_2
                | opcode::ADD_WATCH
                | opcode::CHECK_WATCHES
                | opcode::REMOVE_WATCHES
                | opcode::WHO_AM_I
                | opcode::CLOSE_SESSION
        )
}
