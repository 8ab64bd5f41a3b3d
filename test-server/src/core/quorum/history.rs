//! What an ensemble agrees upon: one change after the other.

use std::sync::Arc;
use std::time::Duration;

use zklock_protocol::{ErrorCode, Reply};

use super::super::Core;
use super::super::transactions::Plan;
use super::super::tree::Moment;
use super::{Origin, Role};

/// One change, as the logs of all members have it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(super) moment: Moment,
    pub(super) change: Change,
    /// Who waits for it, if anybody does.
    pub(super) origin: Option<Origin>,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    OpenSession {
        id: i64,
        timeout: Duration,
    },
    /// With the nodes that go with it.
    EndSession {
        id: i64,
        paths: Vec<String>,
    },
    /// What was refused takes its number all the same.
    Write(Result<Plan, ErrorCode>),
}

impl Core {
    /// Applies the oldest change of the log, which is committed, and answers who asked for it here.
    pub(super) fn commit_next(&mut self, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Some(entry) = peer.log.pop_front() else {
            return;
        };
        let own = peer.id;
        let Entry {
            moment,
            change,
            origin,
        } = Arc::unwrap_or_clone(entry);
        let here = origin.filter(|origin| origin.member == own);
        self.zxid = moment.zxid;
        match change {
            Change::OpenSession { id, timeout } => {
                self.sessions.insert(id, timeout, now);
                self.note_opened(id, timeout);
                if let Some(origin) = here {
                    self.finish_handshake(&origin, true, now);
                }
            }
            Change::EndSession { id, paths } => {
                for path in paths {
                    self.delete(&path, moment);
                }
                self.sessions.remove(id);
                self.note_ended(id);
                if let Some(origin) = here {
                    self.finish(&origin, Ok(Reply::Nothing), now);
                }
                if let Some(connection) = self.connection_of(id) {
                    self.close(connection);
                }
            }
            Change::Write(outcome) => {
                let outcome = outcome.and_then(|plan| self.carry_out(plan, moment));
                let Some(origin) = here else {
                    return;
                };
                if outcome == Err(ErrorCode::SESSION_MOVED) {
                    // The client is elsewhere: this connection is an old one of it.
                    return self.close(origin.connection);
                }
                self.finish(&origin, outcome, now);
            }
        }
    }

    /// Every follower that learns of a session notes it as heard of, as ZooKeeper's do.
    fn note_opened(&mut self, id: i64, timeout: Duration) {
        if let Some(peer) = &mut self.peer
            && let Role::Following(_) = peer.role
        {
            peer.heard.insert(id, timeout);
        }
    }

    fn note_ended(&mut self, id: i64) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        peer.heard.remove(&id);
        if let Role::Leading(leading) = &mut peer.role {
            leading.forget(id);
        }
    }
}
