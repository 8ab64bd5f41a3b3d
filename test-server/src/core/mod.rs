//! The server itself, without threads, sockets and clocks: frames and times go in, frames come out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use zklock_protocol::{ConnectRequest, Reader, RequestHeader};

use self::acl::Identity;
use self::quorum::Peer;
use self::sessions::Sessions;
pub use self::settings::Line;
pub(crate) use self::settings::Settings;
use self::tree::{Moment, Tree};
use self::watches::WatchTable;

pub(crate) mod acl;
mod answers;
mod handshake;
pub(crate) mod paths;
pub(crate) mod quorum;
mod reads;
mod requests;
pub(crate) mod sessions;
mod settings;
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
    /// To the n-th frame of its connection.
    Reply(u64),
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
    /// Its part in an ensemble; none if it stands alone.
    peer: Option<Peer>,
    /// The frame that is being answered, counted on its connection.
    answering: u64,
    next_container_check: Duration,
    received: u64,
    sent: u64,
    outputs: Vec<Output>,
}

impl Core {
    pub(crate) fn new(settings: Settings) -> Self {
        let server = i64::from(settings.server_id);
        let first_session = server << 56 | (settings.epoch_ms << 16) & ((1 << 56) - 1);
        Self {
            tree: Tree::new(),
            sessions: Sessions::new(first_session, settings.tick, settings.secret),
            data_watches: WatchTable::new(settings.line),
            child_watches: WatchTable::new(settings.line),
            connections: BTreeMap::new(),
            zxid: 0,
            peer: None,
            answering: 0,
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
        if let Some(peer) = &mut self.peer {
            peer.forget(id);
        }
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
        if let Some(peer) = &mut self.peer {
            return peer.restart(now);
        }
        self.sessions.renew_all(now);
        self.next_container_check = now + self.settings.container_check;
    }

    /// When [`Core::advance`] has something to do next.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if let Some(peer) = &self.peer {
            return peer.deadline();
        }
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
        if self.peer.is_some() {
            return self.advance_in_ensemble(now);
        }
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

    /// Ends a session, as if its time were over. Whether it was there. In an ensemble the leader does
    /// so, and nobody else.
    pub(crate) fn expire(&mut self, session: i64, now: Duration) -> bool {
        if self.peer.is_some() {
            return self.end_by_leader(session, now);
        }
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
            let what = Said::Reply(self.answering);
            self.send(from, answer.into_bytes(), what);
        }
        self.close(from);
    }

    /// A whole frame has come, without the length before it.
    pub(crate) fn frame(&mut self, from: ConnectionId, frame: &[u8], now: Duration) {
        self.count_received(from);
        let Some(connection) = self.connections.get(&from) else {
            return;
        };
        if !self.serves() {
            return self.close(from);
        }
        if connection.session.is_some() || !self.keep_for_later(from, frame) {
            self.read_frame(from, frame, now);
        }
    }

    /// A frame whose turn it is to be read.
    fn read_frame(&mut self, from: ConnectionId, frame: &[u8], now: Duration) {
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

    /// Deletes what belongs to the session, and forgets it.
    pub(super) fn end_session(&mut self, session: i64, now: Duration) {
        let moment = self.next_moment(now);
        for path in self.tree.ephemerals_of(session) {
            self.delete(&path, moment);
        }
        self.sessions.remove(session);
    }

    pub(super) fn next_moment(&mut self, now: Duration) -> Moment {
        self.zxid += 1;
        Moment {
            zxid: self.zxid,
            time_ms: self.settings.time_ms(now),
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
}

fn ipv4(peer: SocketAddr) -> Ipv4Addr {
    match peer.ip() {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
    }
}
