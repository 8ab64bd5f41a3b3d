//! Who speaks: the session of a connection, and as whom it is known.

use std::time::Duration;

use zklock_protocol::{
    ConnectRequest, ConnectResponse, ErrorCode, Reader, Reply, ReplyHeader, Request, Writer, opcode,
};

use super::acl::Identity;
use super::{ConnectionId, Core, Said, ipv4};

impl Core {
    pub(super) fn handshake(
        &mut self,
        from: ConnectionId,
        request: &ConnectRequest,
        now: Duration,
    ) {
        if request.last_zxid_seen > self.zxid {
            // It has seen what we have not: it must try another server.
            return self.close(from);
        }
        let asked = u64::try_from(request.timeout_ms).unwrap_or_default();
        let timeout = Duration::from_millis(asked)
            .max(self.settings.min_session_timeout)
            .min(self.settings.max_session_timeout);
        let is_read_only_known = request.read_only.is_some();
        let id = request.session_id;
        // Whoever else speaks for it is cut off, whether the password is right or not.
        if id != 0
            && let Some(before) = self.connection_of(id)
        {
            self.close(before);
        }
        let is_ours = id == 0 || request.password == self.sessions.password(id);
        if self.peer.is_some() && is_ours {
            return self.ask_for_session(from, id, timeout, is_read_only_known, now);
        }
        let session = match id {
            0 => {
                self.next_moment(now);
                Some(self.sessions.create(timeout, now))
            }
            id => (is_ours && self.sessions.touch(id, timeout, now)).then_some(id),
        };
        self.greet(from, session, timeout, is_read_only_known);
    }

    /// Answers a handshake.
    pub(super) fn greet(
        &mut self,
        from: ConnectionId,
        session: Option<i64>,
        timeout: Duration,
        is_read_only_known: bool,
    ) {
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: session.map_or(0, |_| milliseconds(timeout)),
            session_id: session.unwrap_or_default(),
            password: session
                .map_or([0; 16], |id| self.sessions.password(id))
                .to_vec(),
            read_only: is_read_only_known.then_some(false),
        };
        let what = Said::Reply(self.answering);
        self.send(from, Writer::frame(|writer| response.write(writer)), what);
        match (session, self.connections.get_mut(&from)) {
            (Some(session), Some(connection)) => {
                connection.session = Some(session);
                connection.timeout = timeout;
            }
            _ => self.close(from),
        }
    }

    pub(super) fn authenticate(
        &mut self,
        from: ConnectionId,
        number: i32,
        reader: &mut Reader<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(&from) else {
            return;
        };
        let peer = ipv4(connection.peer);
        let identity = match Request::read(opcode::AUTH, reader) {
            Ok(Request::Auth {
                scheme,
                credentials,
            }) => Identity::prove(&scheme, &credentials, peer),
            _ => return self.close(from),
        };
        let is_proven = identity.is_some();
        if let Some(identity) = identity.filter(|new| !connection.identities.contains(new)) {
            connection.identities.push(identity);
        }
        let header = ReplyHeader {
            xid: number,
            zxid: 0,
            error: if is_proven {
                ErrorCode::OK
            } else {
                ErrorCode::AUTH_FAILED
            },
        };
        self.reply(from, header, &Reply::Nothing);
        if !is_proven {
            self.close(from);
        }
    }
}

fn milliseconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
