//! The server itself, without threads, sockets and clocks: frames and times go in, frames come out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use zklock_protocol::{
    Acl, ConnectRequest, ConnectResponse, ErrorCode, Event, EventKind, Part, Reader, Reply,
    ReplyHeader, Request, RequestHeader, Writer, opcode, permission, xid,
};

use self::acl::Identity;
use self::sessions::Sessions;
use self::transactions::{Caller, Refused};
use self::tree::{Moment, Tree};
use self::watches::WatchTable;

pub(crate) mod acl;
mod paths;
mod reads;
pub(crate) mod sessions;
mod sha1;
#[cfg(test)]
mod tests;
mod transactions;
pub(crate) mod tree;
pub(crate) mod watches;
pub(crate) mod words;

/// Counts connections, over all stops and starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// How the server is set up.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) tick: Duration,
    pub(crate) min_session_timeout: Duration,
    pub(crate) max_session_timeout: Duration,
    /// ZooKeeper's `jute.maxbuffer`.
    pub(crate) max_frame: usize,
    pub(crate) container_check: Duration,
    /// Since 1970, when the server's own clock was zero.
    pub(crate) epoch_ms: i64,
}

/// What the server says, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Send {
        to: ConnectionId,
        bytes: Vec<u8>,
        what: Said,
    },
    /// Ends a connection after all that was sent on it.
    Close { to: ConnectionId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Reply,
    Event,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) session: Option<i64>,
    pub(crate) timeout: Duration,
    pub(crate) identities: Vec<Identity>,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

#[derive(Debug)]
pub(crate) struct Core {
    settings: Settings,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    pub(crate) data_watches: WatchTable,
    pub(crate) child_watches: WatchTable,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    /// The newest transaction.
    pub(crate) zxid: i64,
    next_container_check: Duration,
    received: u64,
    sent: u64,
    outputs: Vec<Output>,
}

impl Core {
    pub(crate) fn new(settings: Settings) -> Self {
        let first_session = 1 << 56 | (settings.epoch_ms << 16) & ((1 << 56) - 1);
        Self {
            tree: Tree::new(),
            sessions: Sessions::new(first_session, settings.tick),
            data_watches: WatchTable::default(),
            child_watches: WatchTable::default(),
            connections: BTreeMap::new(),
            zxid: 0,
            next_container_check: settings.container_check,
            received: 0,
            sent: 0,
            outputs: Vec::new(),
            settings,
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it has said since this was last called.
    pub(crate) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// A client has connected.
    pub(crate) fn open(&mut self, id: ConnectionId, peer: SocketAddr) {
        let connection = Connection {
            peer,
            session: None,
            timeout: Duration::ZERO,
            identities: vec![Identity::address(ipv4(peer))],
            received: 0,
            sent: 0,
        };
        self.connections.insert(id, connection);
    }

    /// A connection is gone. Its session lives on.
    pub(crate) fn closed(&mut self, id: ConnectionId) {
        self.connections.remove(&id);
        self.data_watches.remove_all(id);
        self.child_watches.remove_all(id);
    }

    /// The server starts again, with what was committed.
    pub(crate) fn restart(&mut self, now: Duration) {
        let open: Vec<_> = self.connections.keys().copied().collect();
        for id in open {
            self.closed(id);
        }
        self.outputs.clear();
        self.sessions.renew_all(now);
        self.next_container_check = now + self.settings.container_check;
    }

    /// When [`Core::advance`] has something to do next.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let containers = self
            .tree
            .has_containers()
            .then_some(self.next_container_check);
        [self.sessions.next_expiry(), containers]
            .into_iter()
            .flatten()
            .min()
    }

    /// Ends the sessions whose time is over, and removes containers that were used up.
    pub(crate) fn advance(&mut self, now: Duration) {
        while let Some(session) = self.sessions.expired(now) {
            self.expire(session, now);
        }
        if now >= self.next_container_check {
            self.next_container_check = now + self.settings.container_check;
            for path in self.tree.used_up_containers() {
                let moment = self.next_moment(now);
                self.delete(&path, moment);
            }
        }
    }

    /// Ends a session, as if its time were over. Whether it was there.
    pub(crate) fn expire(&mut self, session: i64, now: Duration) -> bool {
        if !self.sessions.contains(session) {
            return false;
        }
        self.end_session(session, now);
        if let Some(connection) = self.connection_of(session) {
            self.close(connection);
        }
        true
    }

    /// A four-letter word in place of a handshake.
    pub(crate) fn word(&mut self, from: ConnectionId, word: [u8; 4]) {
        self.count_received(from);
        if let Some(answer) = self.say(word) {
            self.send(from, answer.into_bytes(), Said::Reply);
        }
        self.close(from);
    }

    /// A whole frame has come, without the length before it.
    pub(crate) fn frame(&mut self, from: ConnectionId, frame: &[u8], now: Duration) {
        self.count_received(from);
        let Some(connection) = self.connections.get(&from) else {
            return;
        };
        let mut reader = Reader::new(frame);
        let Some(session) = connection.session else {
            match ConnectRequest::read(&mut reader) {
                Ok(request) => self.handshake(from, &request, now),
                Err(_) => self.close(from),
            }
            return;
        };
        match RequestHeader::read(&mut reader) {
            Ok(header) => self.request(from, session, header, &mut reader, now),
            Err(_) => self.close(from),
        }
    }

    fn handshake(&mut self, from: ConnectionId, request: &ConnectRequest, now: Duration) {
        if request.last_zxid_seen > self.zxid {
            // It has seen what we have not: it must try another server.
            return self.close(from);
        }
        let asked = u64::try_from(request.timeout_ms).unwrap_or_default();
        let timeout = Duration::from_millis(asked)
            .max(self.settings.min_session_timeout)
            .min(self.settings.max_session_timeout);
        let session = match request.session_id {
            0 => {
                self.next_moment(now);
                Some(self.sessions.create(timeout, now))
            }
            id => {
                // Whoever else speaks for it is cut off, whether the password is right or not.
                if let Some(before) = self.connection_of(id) {
                    self.close(before);
                }
                let ours = request.password == self.sessions.password(id);
                (ours && self.sessions.touch(id, timeout, now)).then_some(id)
            }
        };
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: session.map_or(0, |_| milliseconds(timeout)),
            session_id: session.unwrap_or_default(),
            password: session
                .map_or([0; 16], |id| self.sessions.password(id))
                .to_vec(),
            read_only: request.read_only.map(|_| false),
        };
        self.send(
            from,
            Writer::frame(|writer| response.write(writer)),
            Said::Reply,
        );
        match (session, self.connections.get_mut(&from)) {
            (Some(session), Some(connection)) => {
                connection.session = Some(session);
                connection.timeout = timeout;
            }
            _ => self.close(from),
        }
    }

    fn request(
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
        let timeout = self
            .connections
            .get(&from)
            .map(|connection| connection.timeout);
        if !self
            .sessions
            .touch(session, timeout.unwrap_or_default(), now)
        {
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
                // A number is taken before the record is read, but for this one.
                if is_write(header.opcode) && header.opcode != opcode::RECONFIG {
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

    fn authenticate(&mut self, from: ConnectionId, number: i32, reader: &mut Reader<'_>) {
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

    /// Deletes what belongs to the session, and forgets it.
    fn end_session(&mut self, session: i64, now: Duration) {
        let moment = self.next_moment(now);
        for path in self.tree.ephemerals_of(session) {
            self.delete(&path, moment);
        }
        self.sessions.remove(session);
    }

    fn next_moment(&mut self, now: Duration) -> Moment {
        self.zxid += 1;
        let since = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        Moment {
            zxid: self.zxid,
            time_ms: self.settings.epoch_ms.saturating_add(since),
        }
    }

    pub(crate) fn connection_of(&self, session: i64) -> Option<ConnectionId> {
        let mut connections = self.connections.iter();
        let found = connections.find(|(_, connection)| connection.session == Some(session));
        found.map(|(id, _)| *id)
    }

    pub(crate) fn identities(&self, of: ConnectionId) -> &[Identity] {
        self.connections
            .get(&of)
            .map_or(&[], |connection| &connection.identities)
    }

    /// Tells of a node those of the watchers who may read it.
    fn tell(
        &mut self,
        watchers: &BTreeSet<ConnectionId>,
        kind: EventKind,
        path: &str,
        acl: &[Acl],
    ) {
        for watcher in watchers {
            if acl::check(acl, permission::READ, self.identities(*watcher)).is_ok() {
                let path = path.to_owned();
                self.send_event(*watcher, &Event { kind, path });
            }
        }
    }

    fn send_event(&mut self, to: ConnectionId, event: &Event) {
        let header = ReplyHeader {
            xid: xid::EVENT,
            zxid: -1,
            error: ErrorCode::OK,
        };
        let frame = Writer::frame(|writer| {
            header.write(writer);
            event.write(writer);
        });
        self.send(to, frame, Said::Event);
    }

    fn reply_header(&self, number: i32, error: ErrorCode) -> ReplyHeader {
        ReplyHeader {
            xid: number,
            zxid: self.zxid,
            error,
        }
    }

    /// Answers a request with an error. Nobody has to have asked.
    pub(crate) fn refuse(&mut self, to: ConnectionId, number: i32, error: ErrorCode) {
        let header = self.reply_header(number, error);
        self.reply(to, header, &Reply::Nothing);
    }

    fn reply(&mut self, to: ConnectionId, header: ReplyHeader, reply: &Reply) {
        let frame = Writer::frame(|writer| {
            header.write(writer);
            reply.write(writer);
        });
        self.send(to, frame, Said::Reply);
    }

    fn send(&mut self, to: ConnectionId, bytes: Vec<u8>, what: Said) {
        let Some(connection) = self.connections.get_mut(&to) else {
            return;
        };
        connection.sent += 1;
        self.sent += 1;
        self.outputs.push(Output::Send { to, bytes, what });
    }

    fn close(&mut self, id: ConnectionId) {
        if self.connections.contains_key(&id) {
            self.closed(id);
            self.outputs.push(Output::Close { to: id });
        }
    }

    fn count_received(&mut self, from: ConnectionId) {
        self.received += 1;
        if let Some(connection) = self.connections.get_mut(&from) {
            connection.received += 1;
        }
    }
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

fn ipv4(peer: SocketAddr) -> Ipv4Addr {
    match peer.ip() {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
    }
}

fn milliseconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
