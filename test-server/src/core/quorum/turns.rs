//! Requests of clients, each in its turn: what waits for the leader holds back what is behind it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use zklock_protocol::{ErrorCode, Reader, Reply, Request, RequestHeader, opcode};

use super::super::transactions::is_write;
use super::super::{ConnectionId, Core};
use super::{Ask, Message, Origin, Role};

/// What waits, by connection. None of the queues is empty.
#[derive(Debug, Default)]
pub(super) struct Turns(BTreeMap<ConnectionId, VecDeque<Waiting>>);

#[derive(Debug)]
struct Waiting {
    /// Which frame of the connection it is.
    frame: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// For the leader.
    Handshake {
        session: i64,
        timeout: Duration,
        is_read_only_known: bool,
    },
    /// For the leader. A sync is answered with its path.
    Asked {
        xid: i32,
        path: Option<String>,
    },
    /// For those before it.
    Local(RequestHeader, Vec<u8>),
    Refusal(i32, ErrorCode),
    /// For the handshake before it: whatever it is.
    Early(Vec<u8>),
}

impl Turns {
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.0.remove(&connection);
    }

    fn is_free(&self, connection: ConnectionId) -> bool {
        !self.0.contains_key(&connection)
    }

    fn push(&mut self, connection: ConnectionId, waiting: Waiting) {
        self.0.entry(connection).or_default().push_back(waiting);
    }

    fn first(&self, connection: ConnectionId) -> Option<&Waiting> {
        self.0.get(&connection)?.front()
    }

    fn take_first(&mut self, connection: ConnectionId) -> Option<Waiting> {
        let queue = self.0.get_mut(&connection)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.0.remove(&connection);
        }
        first
    }
}

impl Core {
    /// A request that was read, of a session that is known here.
    pub(in super::super) fn take_turn(
        &mut self,
        from: ConnectionId,
        session: i64,
        header: RequestHeader,
        reader: &mut Reader<'_>,
        now: Duration,
    ) {
        let frame = self.answering;
        let Some(peer) = &mut self.peer else {
            return;
        };
        let leads = matches!(peer.role, Role::Leading(_));
        let is_asked = match header.opcode {
            opcode::CLOSE_SESSION => true,
            // Who leads answers it as it would a read.
            opcode::SYNC => !leads,
            other => is_write(other),
        };
        if !is_asked {
            let record = reader.rest().to_vec();
            let waiting = Waiting {
                frame,
                what: What::Local(header, record),
            };
            peer.turns.push(from, waiting);
            // The first of them is served at once.
            return self.serve_next(from, now);
        }
        let (ask, path) = match Request::read(header.opcode, reader) {
            Ok(Request::CloseSession) => (Ask::CloseSession, None),
            Ok(Request::Sync { path }) => (Ask::Sync, Some(path)),
            Ok(request) => {
                let connection = self.connections.get(&from);
                let identities = connection.map(|known| known.identities.clone());
                (Ask::Write(request, identities.unwrap_or_default()), None)
            }
            Err(_) => (Ask::Unreadable, None),
        };
        let what = What::Asked {
            xid: header.xid,
            path,
        };
        self.ask(from, session, what, ask, now);
    }

    /// A client wants a session, a new one if the id is 0. Its password is right.
    pub(in super::super) fn ask_for_session(
        &mut self,
        from: ConnectionId,
        id: i64,
        timeout: Duration,
        is_read_only_known: bool,
        now: Duration,
    ) {
        let is_new = id == 0;
        let session = if is_new { self.sessions.next_id() } else { id };
        let what = What::Handshake {
            session,
            timeout,
            is_read_only_known,
        };
        if is_new {
            return self.ask(from, session, what, Ask::OpenSession(timeout), now);
        }
        let frame = self.answering;
        let Some(peer) = &mut self.peer else {
            return;
        };
        let origin = Origin {
            member: peer.id,
            connection: from,
            frame,
            session,
        };
        peer.turns.push(from, Waiting { frame, what });
        match &mut peer.role {
            Role::Looking(_) => {}
            Role::Following(following) => {
                let (leader, connection) = following.connection();
                peer.send(leader, connection, Message::Revalidate(origin, timeout));
            }
            Role::Leading(leading) => {
                let is_valid = leading.revalidate(session, timeout, peer.id, now);
                self.finish_handshake(&origin, is_valid, now);
            }
        }
    }

    fn ask(&mut self, from: ConnectionId, session: i64, what: What, ask: Ask, now: Duration) {
        let frame = self.answering;
        let Some(peer) = &mut self.peer else {
            return;
        };
        let origin = Origin {
            member: peer.id,
            connection: from,
            frame,
            session,
        };
        peer.turns.push(from, Waiting { frame, what });
        match &peer.role {
            Role::Looking(_) => {}
            Role::Following(following) => {
                let (leader, connection) = following.connection();
                peer.send(leader, connection, Message::Ask(origin, ask));
            }
            Role::Leading(_) => self.asked(origin, ask, now),
        }
    }

    /// Keeps a frame that came before its connection's handshake was answered. Whether it did.
    pub(in super::super) fn keep_for_later(&mut self, from: ConnectionId, frame: &[u8]) -> bool {
        let number = self.answering;
        let Some(peer) = self.peer.as_mut().filter(|peer| !peer.turns.is_free(from)) else {
            return false;
        };
        let waiting = Waiting {
            frame: number,
            what: What::Early(frame.to_vec()),
        };
        peer.turns.push(from, waiting);
        true
    }

    /// Refuses a request when its turn comes. Not if there is no turn to wait for.
    pub(in super::super) fn refuse_in_turn(
        &mut self,
        to: ConnectionId,
        xid: i32,
        error: ErrorCode,
    ) -> bool {
        let frame = self.answering;
        let Some(peer) = self.peer.as_mut().filter(|peer| !peer.turns.is_free(to)) else {
            return false;
        };
        let waiting = Waiting {
            frame,
            what: What::Refusal(xid, error),
        };
        peer.turns.push(to, waiting);
        true
    }

    /// The leader has granted a session, or has not.
    pub(super) fn finish_handshake(&mut self, origin: &Origin, is_valid: bool, now: Duration) {
        let Some(Waiting {
            what:
                What::Handshake {
                    session,
                    timeout,
                    is_read_only_known,
                },
            ..
        }) = self.end_turn(origin)
        else {
            return;
        };
        let session = is_valid.then_some(session);
        self.greet(origin.connection, session, timeout, is_read_only_known);
        self.serve_next(origin.connection, now);
    }

    /// What was asked is done, or refused.
    pub(super) fn finish(
        &mut self,
        origin: &Origin,
        outcome: Result<Reply, ErrorCode>,
        now: Duration,
    ) {
        let Some(Waiting {
            what: What::Asked { xid, path },
            ..
        }) = self.end_turn(origin)
        else {
            return;
        };
        let outcome = match path {
            Some(path) => outcome.map(|_| Reply::Path(path)),
            None => outcome,
        };
        self.answer(origin.connection, xid, outcome);
        self.serve_next(origin.connection, now);
    }

    /// What the leader answers first was asked first: anything else is of a connection that has ended.
    fn end_turn(&mut self, origin: &Origin) -> Option<Waiting> {
        let turns = &mut self.peer.as_mut()?.turns;
        let first = turns.first(origin.connection)?;
        if first.frame != origin.frame {
            return None;
        }
        self.answering = origin.frame;
        turns.take_first(origin.connection)
    }

    /// Answers what need not wait any more.
    fn serve_next(&mut self, connection: ConnectionId, now: Duration) {
        loop {
            let Some(peer) = &mut self.peer else {
                return;
            };
            let first = peer.turns.first(connection).map(|waiting| &waiting.what);
            if matches!(
                first,
                None | Some(What::Handshake { .. } | What::Asked { .. })
            ) {
                return;
            }
            let Some(waiting) = peer.turns.take_first(connection) else {
                return;
            };
            self.answering = waiting.frame;
            match waiting.what {
                What::Local(header, record) => {
                    self.serve_in_turn(connection, header, &record, now);
                }
                What::Refusal(xid, error) => self.answer(connection, xid, Err(error)),
                What::Early(frame) => self.read_frame(connection, &frame, now),
                What::Handshake { .. } | What::Asked { .. } => {}
            }
        }
    }

    fn serve_in_turn(
        &mut self,
        from: ConnectionId,
        header: RequestHeader,
        record: &[u8],
        now: Duration,
    ) {
        let connection = self.connections.get(&from);
        let Some(session) = connection.and_then(|known| known.session) else {
            return;
        };
        if let Some(peer) = &mut self.peer
            && let Role::Leading(leading) = &mut peer.role
        {
            // The leader asks of its own clients, even for a ping, whether they are still its own.
            match leading.check(session, peer.id) {
                Ok(()) => {}
                Err(ErrorCode::SESSION_MOVED) => return self.close(from),
                Err(error) => return self.answer(from, header.xid, Err(error)),
            }
        }
        self.serve(from, session, header, &mut Reader::new(record), now);
    }
}
