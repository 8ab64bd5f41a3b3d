//! What is said to connections: answers, events, and that they are over.

use std::collections::BTreeSet;

use zklock_protocol::{
    Acl, ErrorCode, Event, EventKind, Reply, ReplyHeader, Writer, permission, xid,
};

use super::acl;
use super::{ConnectionId, Core, Line, Output, Said};

/// In the header of an event that belongs to no transaction.
pub(super) const NO_ZXID: i64 = -1;

impl Core {
    /// Tells of a node those of the watchers who may read it.
    pub(super) fn tell(
        &mut self,
        watchers: &BTreeSet<ConnectionId>,
        kind: EventKind,
        path: &str,
        acl: &[Acl],
    ) {
        let zxid = match self.settings.line {
            Line::V3_8 => NO_ZXID,
            Line::V3_9 => self.zxid,
        };
        for watcher in watchers {
            if acl::check(acl, permission::READ, self.identities(*watcher)).is_ok() {
                let path = path.to_owned();
                self.send_event(*watcher, &Event { kind, path }, zxid);
            }
        }
    }

    pub(super) fn send_event(&mut self, to: ConnectionId, event: &Event, zxid: i64) {
        let header = ReplyHeader {
            xid: xid::EVENT,
            zxid,
            error: ErrorCode::OK,
        };
        let frame = Writer::frame(|writer| {
            header.write(writer);
            event.write(writer);
        });
        self.send(to, frame, Said::Event);
    }

    pub(super) fn reply_header(&self, number: i32, error: ErrorCode) -> ReplyHeader {
        ReplyHeader {
            xid: number,
            zxid: self.zxid,
            error,
        }
    }

    pub(super) fn reply(&mut self, to: ConnectionId, header: ReplyHeader, reply: &Reply) {
        let frame = Writer::frame(|writer| {
            header.write(writer);
            reply.write(writer);
        });
        let what = Said::Reply(self.answering);
        self.send(to, frame, what);
    }

    pub(super) fn send(&mut self, to: ConnectionId, bytes: Vec<u8>, what: Said) {
        let Some(connection) = self.connections.get_mut(&to) else {
            return;
        };
        connection.sent += 1;
        self.sent += 1;
        self.outputs.push(Output::Send { to, bytes, what });
    }

    pub(super) fn close(&mut self, id: ConnectionId) {
        if self.connections.contains_key(&id) {
            self.closed(id);
            self.outputs.push(Output::Close { to: id });
        }
    }

    pub(super) fn count_received(&mut self, from: ConnectionId) {
        self.received += 1;
        if let Some(connection) = self.connections.get_mut(&from) {
            connection.received += 1;
            self.answering = connection.received;
        }
    }
}
