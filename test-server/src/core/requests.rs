//! Requests: what each kind of them goes through.

use std::time::Duration;

use zklock_protocol::{ErrorCode, Reader, Reply, ReplyHeader, Request, RequestHeader, opcode, xid};

use super::transactions::{self, Caller, is_write};
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
        if self.peer.is_some() {
            return self.take_turn(from, session, header, reader, now);
        }
        if header.opcode == opcode::CLOSE_SESSION {
            self.end_session(session, now);
            self.answer(from, header.xid, Ok(Reply::Nothing));
            return self.close(from);
        }
        self.serve(from, session, header, reader, now);
    }

    /// Answers what takes no other server: all but the end of a session, if this one stands alone.
    pub(super) fn serve(
        &mut self,
        from: ConnectionId,
        session: i64,
        header: RequestHeader,
        reader: &mut Reader<'_>,
        now: Duration,
    ) {
        let record = reader.rest();
        let outcome = match Request::read(header.opcode, reader) {
            Ok(Request::Ping) => {
                let pong = self.reply_header(xid::PING, ErrorCode::OK);
                return self.reply(from, pong, &Reply::Nothing);
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
        self.answer(from, header.xid, outcome);
    }

    pub(super) fn answer(
        &mut self,
        to: ConnectionId,
        number: i32,
        outcome: Result<Reply, ErrorCode>,
    ) {
        let (code, reply) = match outcome {
            Ok(reply) => (ErrorCode::OK, reply),
            Err(code) => (code, Reply::Nothing),
        };
        let header = self.reply_header(number, code);
        self.reply(to, header, &reply);
    }

    /// Gives the session that a connection speaks for its whole time again, as every request does
    /// before it is judged. Whether there is such a session.
    fn touch(&mut self, from: ConnectionId, now: Duration) -> bool {
        let Some(connection) = self.connections.get(&from) else {
            return false;
        };
        let (session, timeout) = (connection.session, connection.timeout);
        session.is_some_and(|session| {
            if self.peer.is_some() {
                self.note_touch(session, timeout, now)
            } else {
                self.sessions.touch(session, timeout, now)
            }
        })
    }

    /// Answers a frame with an error, in its turn, and does not do it. Nobody has to have asked.
    pub(crate) fn refuse(
        &mut self,
        to: ConnectionId,
        number: i32,
        error: ErrorCode,
        now: Duration,
    ) {
        self.count_received(to);
        self.touch(to, now);
        if !self.refuse_in_turn(to, number, error) {
            self.answer(to, number, Err(error));
        }
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
        let plan = transactions::plan(&self.tree, &caller, request)?;
        self.carry_out(plan, moment)
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
