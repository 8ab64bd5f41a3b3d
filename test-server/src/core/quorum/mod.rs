//! A server's part in an ensemble: whom it follows, or who follows it.
//!
//! One member leads. It gives every change its number, and commits what most have accepted; the
//! others forward to it what they are asked, and apply what is committed, in its order. This is a
//! model of what clients can see of ZooKeeper's atomic broadcast, and not that protocol: a new leader
//! hands over its whole state at once, and who leads is settled by an arbiter who sees everybody
//! (`crate::cluster`). What decides when a session ends is here as it is there:
//!
//! - The leader alone ends sessions. What a follower hears of a session it notes in a table, which
//!   travels with its answer to the leader's next PING.
//! - What one member says to another arrives in order, or not at all. A follower that hears nothing
//!   for `sync_limit` ticks gives its leader up, and its clients with it; until then it answers what
//!   it can answer alone.
//! - Requests of one connection are answered in order: one that waits for the leader holds back the
//!   reads and pings behind it.
//! - A `sync` is answered by the leader without asking anybody, so by a deposed one as well.

mod following;
mod history;
mod leading;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use zklock_protocol::Request;

use super::acl::Identity;
use super::tree::Tree;
use super::{ConnectionId, Core};

use self::following::Following;
use self::history::Entry;
use self::leading::Leading;
use self::turns::Turns;

/// A member of an ensemble, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemberId(pub(crate) usize);

/// How an ensemble is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) size: usize,
    pub(crate) tick: Duration,
    /// For how many ticks a member that joins waits for its leader, and a leader for most.
    pub(crate) init: u32,
    /// For how many ticks a leader and a follower bear each other's silence.
    pub(crate) sync: u32,
}

impl Limits {
    fn is_most(&self, count: usize) -> bool {
        count * 2 > self.size
    }
}

/// What one member sends to another.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    /// On the connection of this number, which the follower has made.
    On(u64, Message),
    /// All connections between the two are gone.
    Reset,
}

#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// Of a follower: from now on this connection is the one.
    Join,
    /// All up to this number is accepted; the epoch's first number is its state.
    Ack(i64),
    /// The answer to a PING: the sessions that were heard of, and their timeouts.
    Pong(BTreeMap<i64, Duration>),
    Ask(Origin, Ask),
    Revalidate(Origin, Duration),
    /// Of a leader: everything that is committed.
    State(Box<State>),
    /// Most have accepted the leader's state: it may be served.
    UpToDate,
    Propose(Arc<Entry>),
    Commit(i64),
    Ping,
    Synced(Origin),
    Revalidated(Origin, bool),
    /// Of either: the connection has ended.
    Closed,
}

/// Which request of which client is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    member: MemberId,
    connection: ConnectionId,
    /// Which frame of the connection it is.
    frame: u64,
    session: i64,
}

/// What a client wants that only the leader can do.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    OpenSession(Duration),
    CloseSession,
    Sync,
    Write(Request, Vec<Identity>),
    /// A write whose record cannot be read.
    Unreadable,
}

/// What is committed.
#[derive(Clone, Debug)]
pub(crate) struct State {
    epoch: i64,
    zxid: i64,
    tree: Tree,
    sessions: Vec<(i64, Duration)>,
}

#[derive(Debug)]
enum Role {
    /// Without a leader since then: it serves nobody.
    Looking(Duration),
    Following(Following),
    Leading(Box<Leading>),
}

/// A core's part in an ensemble.
#[derive(Debug)]
pub(crate) struct Peer {
    id: MemberId,
    limits: Limits,
    role: Role,
    /// The newest epoch that it has heard of, and that of its history.
    accepted_epoch: i64,
    epoch: i64,
    /// Accepted, and not committed as far as it knows.
    log: VecDeque<Arc<Entry>>,
    /// The sessions that were heard of since the last PING.
    heard: BTreeMap<i64, Duration>,
    turns: Turns,
    outbox: Vec<(MemberId, Packet)>,
    /// Connections that it has made to leaders.
    dialled: u64,
}

impl Peer {
    fn new(id: MemberId, limits: Limits) -> Self {
        Self {
            id,
            limits,
            role: Role::Looking(Duration::ZERO),
            accepted_epoch: 0,
            epoch: 0,
            log: VecDeque::new(),
            heard: BTreeMap::new(),
            turns: Turns::default(),
            outbox: Vec::new(),
            dialled: 0,
        }
    }

    /// A client's connection is gone.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.turns.forget(connection);
    }

    /// Its process starts again. What it has accepted is on its disk.
    pub(super) fn restart(&mut self, now: Duration) {
        self.outbox.clear();
        self.become_looking(now);
    }

    fn become_looking(&mut self, now: Duration) {
        self.role = Role::Looking(now);
        self.heard.clear();
        self.turns = Turns::default();
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match &self.role {
            Role::Looking(_) => None,
            Role::Following(following) => Some(following.gives_up_at(&self.limits)),
            Role::Leading(leading) => leading.deadline(),
        }
    }

    /// Since when it has no leader, if it has none.
    pub(crate) fn is_looking_since(&self) -> Option<Duration> {
        match self.role {
            Role::Looking(since) => Some(since),
            _ => None,
        }
    }

    /// Whom it has for its leader.
    pub(crate) fn leader(&self) -> Option<MemberId> {
        match &self.role {
            Role::Looking(_) => None,
            Role::Following(following) => Some(following.leader()),
            Role::Leading(_) => Some(self.id),
        }
    }

    pub(crate) fn serves(&self) -> bool {
        match &self.role {
            Role::Looking(_) => false,
            Role::Following(following) => following.serves(),
            Role::Leading(leading) => leading.serves(),
        }
    }

    pub(crate) fn accepted_epoch(&self) -> i64 {
        self.accepted_epoch
    }

    fn send(&mut self, to: MemberId, connection: u64, message: Message) {
        self.outbox.push((to, Packet::On(connection, message)));
    }
}

impl Core {
    /// Makes it a member of an ensemble.
    pub(crate) fn join_ensemble(&mut self, id: MemberId, limits: Limits) {
        self.peer = Some(Peer::new(id, limits));
    }

    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// What it has sent to others since this was last called, in order.
    pub(crate) fn take_packets(&mut self) -> Vec<(MemberId, Packet)> {
        let outbox = self.peer.as_mut().map(|peer| &mut peer.outbox);
        outbox.map(std::mem::take).unwrap_or_default()
    }

    /// How new its history is. Whoever is to lead has none that is older than those of most.
    pub(crate) fn history(&self) -> (i64, i64) {
        let peer = self.peer.as_ref();
        let accepted = peer.and_then(|peer| peer.log.back());
        let zxid = accepted.map_or(self.zxid, |entry| entry.moment.zxid);
        (peer.map_or(0, |peer| peer.epoch), zxid)
    }

    pub(super) fn serves(&self) -> bool {
        self.peer.as_ref().is_none_or(Peer::serves)
    }

    /// What it calls itself.
    pub(crate) fn mode(&self) -> &'static str {
        match self.peer.as_ref().map(|peer| &peer.role) {
            None => "standalone",
            Some(Role::Looking(_)) => "looking",
            Some(Role::Following(_)) => "follower",
            Some(Role::Leading(_)) => "leader",
        }
    }

    /// When a session ends unless it is heard of, as far as this server knows: in an ensemble only
    /// the leader does.
    pub(crate) fn expiry_of(&self, session: i64) -> Option<Duration> {
        let tracked = match self.peer.as_ref().map(|peer| &peer.role) {
            Some(Role::Leading(leading)) => leading.tracked(session),
            _ => self.sessions.get(session),
        };
        tracked.map(|session| session.expires_at)
    }

    /// What another member has sent.
    pub(crate) fn packet(&mut self, from: MemberId, packet: Packet, now: Duration) {
        let Some(peer) = &self.peer else {
            return;
        };
        match &peer.role {
            Role::Looking(_) => self.decline(from, &packet),
            Role::Following(_) => self.packet_of_leader(from, packet, now),
            Role::Leading(_) => self.packet_of_follower(from, packet, now),
        }
    }

    /// Nobody listens here who could lead.
    fn decline(&mut self, to: MemberId, packet: &Packet) {
        if let (Packet::On(connection, Message::Join), Some(peer)) = (packet, &mut self.peer) {
            peer.send(to, *connection, Message::Closed);
        }
    }

    /// Does what the time asks for.
    pub(super) fn advance_in_ensemble(&mut self, now: Duration) {
        let Some(peer) = &self.peer else {
            return;
        };
        match &peer.role {
            Role::Looking(_) => {}
            Role::Following(following) => {
                if following.gives_up_at(&peer.limits) <= now {
                    self.look(now);
                }
            }
            Role::Leading(_) => self.lead_on(now),
        }
    }

    /// Has no leader from now on, and serves nobody.
    pub(crate) fn look(&mut self, now: Duration) {
        let open: Vec<_> = self.connections.keys().copied().collect();
        for connection in open {
            self.close(connection);
        }
        let Some(peer) = &mut self.peer else {
            return;
        };
        let others = match &peer.role {
            Role::Looking(_) => Vec::new(),
            Role::Following(following) => vec![following.connection()],
            Role::Leading(leading) => leading.connections(),
        };
        for (other, connection) in others {
            peer.send(other, connection, Message::Closed);
        }
        peer.become_looking(now);
    }
}
