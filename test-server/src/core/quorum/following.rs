//! What a follower does: it accepts what the leader proposes, and applies what it commits.

use std::time::Duration;

use zklock_protocol::Reply;

use super::super::Core;
use super::leading::EPOCH;
use super::{Limits, MemberId, Message, Packet, Role, State};

#[derive(Debug)]
pub(super) struct Following {
    leader: MemberId,
    connection: u64,
    heard_at: Duration,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Joins,
    HasState,
    Serves,
}

impl Following {
    pub(super) fn leader(&self) -> MemberId {
        self.leader
    }

    pub(super) fn connection(&self) -> (MemberId, u64) {
        (self.leader, self.connection)
    }

    pub(super) fn serves(&self) -> bool {
        self.stage == Stage::Serves
    }

    /// When it has heard nothing of its leader for too long.
    pub(super) fn gives_up_at(&self, limits: &Limits) -> Duration {
        let ticks = match self.stage {
            Stage::Serves => limits.sync,
            Stage::Joins | Stage::HasState => limits.init,
        };
        self.heard_at + limits.tick * ticks
    }
}

impl Core {
    /// Has somebody for its leader from now on, and goes to it.
    pub(crate) fn follow(&mut self, leader: MemberId, epoch: i64, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        peer.accepted_epoch = peer.accepted_epoch.max(epoch);
        peer.dialled += 1;
        // Two may have dialled each other, one after the other: no number is that of both.
        let own = u64::try_from(peer.id.0).unwrap_or_default();
        let connection = peer.dialled << 8 | own;
        peer.role = Role::Following(Following {
            leader,
            connection,
            heard_at: now,
            stage: Stage::Joins,
        });
        peer.send(leader, connection, Message::Join);
    }

    /// Notes that a session was heard of. Whether there is such a session.
    pub(in super::super) fn note_touch(
        &mut self,
        session: i64,
        timeout: Duration,
        now: Duration,
    ) -> bool {
        let Some(peer) = &mut self.peer else {
            return false;
        };
        match &mut peer.role {
            Role::Looking(_) => return false,
            Role::Following(_) => {
                peer.heard.insert(session, timeout);
            }
            // Of one whose end is proposed already it changes nothing.
            Role::Leading(leading) => {
                leading.touch(session, timeout, now);
            }
        }
        self.sessions.contains(session)
    }

    /// The leader has sent something.
    pub(super) fn packet_of_leader(&mut self, from: MemberId, packet: Packet, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Role::Following(following) = &mut peer.role else {
            return;
        };
        let message = match packet {
            Packet::Reset if from == following.leader => Message::Closed,
            Packet::On(number, message) if (from, number) == following.connection() => message,
            packet => return self.decline(from, &packet),
        };
        following.heard_at = now;
        let (leader, connection) = following.connection();
        match message {
            Message::State(state) => self.take_state(*state, now),
            Message::UpToDate => following.stage = Stage::Serves,
            Message::Propose(entry) => {
                let zxid = entry.moment.zxid;
                peer.log.push_back(entry);
                peer.send(leader, connection, Message::Ack(zxid));
            }
            Message::Commit(zxid) => {
                // What was committed before this one joined is in the state that it got.
                let first = peer.log.front().map(|entry| entry.moment.zxid);
                if first == Some(zxid) {
                    self.commit_next(now);
                }
            }
            Message::Ping => {
                let heard = std::mem::take(&mut peer.heard);
                peer.send(leader, connection, Message::Pong(heard));
            }
            Message::Synced(origin) => self.finish(&origin, Ok(Reply::Nothing), now),
            Message::Revalidated(origin, is_valid) => {
                self.finish_handshake(&origin, is_valid, now);
            }
            Message::Closed => self.look(now),
            _ => {}
        }
    }

    /// Has what its leader has, and nothing else: what nobody else accepted is gone.
    fn take_state(&mut self, state: State, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Role::Following(following) = &mut peer.role else {
            return;
        };
        following.stage = Stage::HasState;
        let (leader, connection) = following.connection();
        peer.epoch = state.epoch;
        peer.accepted_epoch = peer.accepted_epoch.max(state.epoch);
        peer.log.clear();
        self.zxid = state.zxid;
        self.tree = state.tree;
        self.sessions.clear();
        for (id, timeout) in state.sessions {
            self.sessions.insert(id, timeout, now);
        }
        let first = state.epoch << EPOCH;
        peer.send(leader, connection, Message::Ack(first));
    }
}
