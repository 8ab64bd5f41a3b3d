//! What the leader does: it orders, commits, and ends sessions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use zklock_protocol::{ErrorCode, Reply};

use super::super::sessions::{Session, Sessions};
use super::super::transactions::{self, Caller, Txn};
use super::super::tree::{Moment, Tree};
use super::super::{Core, Settings};
use super::history::{Change, Entry};
use super::{Ask, Limits, MemberId, Message, Origin, Packet, Peer, Role, State};

/// In a number, where the epoch begins.
pub(super) const EPOCH: u32 = 32;

#[derive(Debug)]
pub(super) struct Leading {
    /// The last number that was given.
    last: i64,
    /// The first number of the epoch: who accepts it accepts the leader's state.
    first: i64,
    /// The nodes as they will be when all that is proposed is committed.
    head: Tree,
    /// Until when each session lives. From the moment at which its end is proposed, a session is not
    /// among them, and touching it does nothing.
    tracker: Sessions,
    /// The member whose clients a session is with; none until it is heard of.
    owners: BTreeMap<i64, MemberId>,
    /// Proposed and not committed, the oldest first, as the log has them.
    proposals: VecDeque<Proposal>,
    learners: BTreeMap<MemberId, Learner>,
    /// Whether most have accepted its state.
    serves: bool,
    since: Duration,
    next_half_tick: Duration,
    /// Ticks so far, and whether half of another has passed.
    ticks: u32,
    is_half: bool,
    next_container_check: Duration,
}

#[derive(Debug)]
struct Proposal {
    zxid: i64,
    accepted_by: BTreeSet<MemberId>,
    /// To be answered when it is committed.
    syncs: Vec<Origin>,
}

#[derive(Debug)]
struct Learner {
    connection: u64,
    has_state: bool,
    heard_at: Duration,
    /// The last tick in which it still counts.
    counts_until: u32,
}

impl Leading {
    fn new(epoch: i64, tree: &Tree, settings: &Settings, limits: &Limits, now: Duration) -> Self {
        let first = epoch << EPOCH;
        Self {
            last: first,
            first,
            head: tree.clone(),
            tracker: Sessions::new(0, limits.tick, settings.secret),
            owners: BTreeMap::new(),
            proposals: VecDeque::new(),
            learners: BTreeMap::new(),
            serves: false,
            since: now,
            next_half_tick: now + limits.tick / 2,
            ticks: 0,
            is_half: false,
            next_container_check: now + settings.container_check,
        }
    }

    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    pub(super) fn tracked(&self, session: i64) -> Option<&Session> {
        self.tracker.get(session)
    }

    pub(super) fn connections(&self) -> Vec<(MemberId, u64)> {
        let learners = self.learners.iter();
        learners
            .map(|(member, learner)| (*member, learner.connection))
            .collect()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        let containers =
            (self.serves && self.head.has_containers()).then_some(self.next_container_check);
        [
            Some(self.next_half_tick),
            self.tracker.next_expiry(),
            containers,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(super) fn touch(&mut self, session: i64, timeout: Duration, now: Duration) -> bool {
        self.tracker.touch(session, timeout, now)
    }

    /// A session comes back, at a member.
    pub(super) fn revalidate(
        &mut self,
        session: i64,
        timeout: Duration,
        at: MemberId,
        now: Duration,
    ) -> bool {
        let is_valid = self.tracker.touch(session, timeout, now);
        if is_valid {
            self.owners.insert(session, at);
        }
        is_valid
    }

    /// Whether a session lives, and is with this member.
    pub(super) fn check(&mut self, session: i64, with: MemberId) -> Result<(), ErrorCode> {
        if !self.tracker.contains(session) {
            return Err(ErrorCode::SESSION_EXPIRED);
        }
        match *self.owners.entry(session).or_insert(with) {
            owner if owner == with => Ok(()),
            _ => Err(ErrorCode::SESSION_MOVED),
        }
    }

    pub(super) fn forget(&mut self, session: i64) {
        self.tracker.remove(session);
        self.owners.remove(&session);
    }

    /// Takes off those that were not heard of for too long. Says which.
    fn drop_silent(&mut self, limits: &Limits, now: Duration) -> Vec<(MemberId, u64)> {
        let mut dropped = Vec::new();
        self.learners.retain(|member, learner| {
            let ticks = if learner.has_state {
                limits.sync
            } else {
                limits.init
            };
            let is_heard = now < learner.heard_at + limits.tick * ticks;
            if !is_heard {
                dropped.push((*member, learner.connection));
            }
            is_heard
        });
        dropped
    }

    /// Whether most are with it, itself included.
    fn has_most(&self, limits: &Limits) -> bool {
        let counts = |learner: &&Learner| learner.has_state && self.ticks <= learner.counts_until;
        limits.is_most(1 + self.learners.values().filter(counts).count())
    }
}

impl Peer {
    fn tell_learners(&mut self, message: &Message) {
        let Role::Leading(leading) = &self.role else {
            return;
        };
        for (member, connection) in leading.connections() {
            self.outbox
                .push((member, Packet::On(connection, message.clone())));
        }
    }
}

impl Core {
    /// Leads from now on, in an epoch of its own, with its own history.
    pub(crate) fn lead(&mut self, epoch: i64, now: Duration) {
        // What it has accepted, most have, or may have: it stands.
        while self.peer.as_ref().is_some_and(|peer| !peer.log.is_empty()) {
            self.commit_next(now);
        }
        let Some(peer) = &mut self.peer else {
            return;
        };
        let leading = Leading::new(epoch, &self.tree, &self.settings, &peer.limits, now);
        self.zxid = leading.first;
        peer.accepted_epoch = epoch;
        peer.epoch = epoch;
        peer.role = Role::Leading(Box::new(leading));
        self.serve_if_most(now);
    }

    /// Begins to serve when most have its state. Every session has its whole time then.
    fn serve_if_most(&mut self, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Role::Leading(leading) = &mut peer.role else {
            return;
        };
        if leading.serves || !leading.has_most(&peer.limits) {
            return;
        }
        leading.serves = true;
        for (id, session) in self.sessions.iter() {
            leading.tracker.insert(id, session.timeout, now);
        }
        let ready = leading
            .learners
            .iter()
            .filter(|(_, learner)| learner.has_state);
        for (member, learner) in ready {
            let packet = Packet::On(learner.connection, Message::UpToDate);
            peer.outbox.push((*member, packet));
        }
    }

    /// Does what the time asks of a leader.
    pub(super) fn lead_on(&mut self, now: Duration) {
        while let Some(Role::Leading(leading)) = self.peer.as_ref().map(|peer| &peer.role)
            && let Some(session) = leading.tracker.expired(now)
        {
            self.propose_end(session, None, now);
        }
        self.remove_containers(now);
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Role::Leading(leading) = &mut peer.role else {
            return;
        };
        if now < leading.next_half_tick {
            return;
        }
        // A leader that was stopped does not catch up with what it has slept through.
        leading.next_half_tick = now + peer.limits.tick / 2;
        leading.is_half = !leading.is_half;
        leading.ticks += u32::from(!leading.is_half);
        let is_late = now >= leading.since + peer.limits.tick * peer.limits.init;
        let is_over = if leading.serves {
            !leading.is_half && !leading.has_most(&peer.limits)
        } else {
            is_late
        };
        // Whose silence is noticed only now counts until the next look: so a leader that was stopped,
        // and goes on, leads for a tick before it learns that another does.
        let dropped = leading.drop_silent(&peer.limits, now);
        for (member, connection) in dropped {
            peer.send(member, connection, Message::Closed);
        }
        if is_over {
            return self.look(now);
        }
        peer.tell_learners(&Message::Ping);
    }

    fn remove_containers(&mut self, now: Duration) {
        let Some(Role::Leading(leading)) = self.peer.as_mut().map(|peer| &mut peer.role) else {
            return;
        };
        if now < leading.next_container_check || !leading.serves {
            return;
        }
        leading.next_container_check = now + self.settings.container_check;
        for path in leading.head.used_up_containers() {
            let plan = transactions::Plan::One(Txn::Delete { path });
            self.propose(Change::Write(Ok(plan)), None, now);
        }
    }

    /// A follower has sent something.
    pub(super) fn packet_of_follower(&mut self, from: MemberId, packet: Packet, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Role::Leading(leading) = &mut peer.role else {
            return;
        };
        let (connection, message) = match packet {
            Packet::Reset => {
                leading.learners.remove(&from);
                return;
            }
            Packet::On(connection, Message::Join) => return self.welcome(from, connection, now),
            Packet::On(connection, message) => (connection, message),
        };
        let ticks = leading.ticks;
        let learner = leading.learners.get_mut(&from);
        let Some(learner) = learner.filter(|learner| learner.connection == connection) else {
            return;
        };
        learner.heard_at = now;
        learner.counts_until = ticks + peer.limits.sync;
        match message {
            Message::Ack(zxid) => self.accepted(from, zxid, now),
            Message::Pong(heard) => {
                for (session, timeout) in heard {
                    leading.touch(session, timeout, now);
                }
            }
            Message::Ask(origin, ask) => self.asked(origin, ask, now),
            Message::Revalidate(origin, timeout) => {
                let is_valid = leading.revalidate(origin.session, timeout, from, now);
                let answer = Message::Revalidated(origin, is_valid);
                peer.send(from, connection, answer);
            }
            Message::Closed => {
                leading.learners.remove(&from);
            }
            _ => {}
        }
    }

    /// A follower has connected: it gets all that is committed, and then what is proposed.
    fn welcome(&mut self, member: MemberId, connection: u64, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Role::Leading(leading) = &mut peer.role else {
            return;
        };
        let learner = Learner {
            connection,
            has_state: false,
            heard_at: now,
            counts_until: leading.ticks + peer.limits.init + peer.limits.sync,
        };
        leading.learners.insert(member, learner);
        let sessions = self.sessions.iter();
        let state = State {
            epoch: peer.epoch,
            zxid: self.zxid,
            tree: self.tree.clone(),
            sessions: sessions
                .map(|(id, session)| (id, session.timeout))
                .collect(),
        };
        peer.send(member, connection, Message::State(Box::new(state)));
        for entry in peer.log.clone() {
            peer.send(member, connection, Message::Propose(entry));
        }
    }

    fn accepted(&mut self, by: MemberId, zxid: i64, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Role::Leading(leading) = &mut peer.role else {
            return;
        };
        if zxid == leading.first {
            let Some(learner) = leading.learners.get_mut(&by) else {
                return;
            };
            learner.has_state = true;
            let connection = learner.connection;
            if leading.serves {
                peer.send(by, connection, Message::UpToDate);
            }
            return self.serve_if_most(now);
        }
        let proposals = leading.proposals.iter_mut();
        for proposal in proposals.filter(|proposal| proposal.zxid == zxid) {
            proposal.accepted_by.insert(by);
        }
        self.commit(now);
    }

    /// A client of some member, this one included, wants what only the leader can do.
    pub(super) fn asked(&mut self, origin: Origin, ask: Ask, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Role::Leading(leading) = &mut peer.role else {
            return;
        };
        let (member, session) = (origin.member, origin.session);
        let plan = match ask {
            Ask::OpenSession(timeout) => {
                leading.tracker.insert(session, timeout, now);
                leading.owners.insert(session, member);
                let id = session;
                let change = Change::OpenSession { id, timeout };
                return self.propose(change, Some(origin), now);
            }
            Ask::CloseSession => return self.propose_end(session, Some(origin), now),
            Ask::Sync => {
                // Nobody is asked: a leader that was deposed, and does not know it, answers as well.
                match leading.proposals.back_mut() {
                    Some(proposal) => proposal.syncs.push(origin),
                    None => self.synced(origin, now),
                }
                return;
            }
            Ask::Write(request, identities) => leading.check(session, member).and_then(|()| {
                let caller = Caller {
                    session,
                    identities: &identities,
                    line: self.settings.line,
                };
                transactions::plan(&leading.head, &caller, request)
            }),
            Ask::Unreadable => {
                let checked = leading.check(session, member);
                checked.and(Err(ErrorCode::MARSHALLING_ERROR))
            }
        };
        self.propose(Change::Write(plan), Some(origin), now);
    }

    /// From now on nothing revives the session, though it lives until this is committed.
    fn propose_end(&mut self, session: i64, origin: Option<Origin>, now: Duration) {
        let Some(Role::Leading(leading)) = self.peer.as_mut().map(|peer| &mut peer.role) else {
            return;
        };
        leading.tracker.remove(session);
        let change = Change::EndSession {
            id: session,
            paths: leading.head.ephemerals_of(session),
        };
        self.propose(change, origin, now);
    }

    fn propose(&mut self, change: Change, origin: Option<Origin>, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Role::Leading(leading) = &mut peer.role else {
            return;
        };
        leading.last += 1;
        let moment = Moment {
            zxid: leading.last,
            time_ms: self.settings.time_ms(now),
        };
        match &change {
            Change::OpenSession { .. } | Change::Write(Err(_)) => {}
            Change::EndSession { paths, .. } => {
                for path in paths {
                    leading.head.delete(path, moment);
                }
            }
            Change::Write(Ok(plan)) => {
                for txn in plan.txns() {
                    txn.clone().enact(&mut leading.head, moment);
                }
            }
        }
        leading.proposals.push_back(Proposal {
            zxid: moment.zxid,
            accepted_by: BTreeSet::from([peer.id]),
            syncs: Vec::new(),
        });
        let entry = Arc::new(Entry {
            moment,
            change,
            origin,
        });
        peer.log.push_back(Arc::clone(&entry));
        peer.tell_learners(&Message::Propose(entry));
        self.commit(now);
    }

    /// Commits what most have accepted, in order.
    fn commit(&mut self, now: Duration) {
        loop {
            let Some(peer) = &mut self.peer else {
                return;
            };
            let Role::Leading(leading) = &mut peer.role else {
                return;
            };
            let first = leading.proposals.front();
            if !first.is_some_and(|proposal| peer.limits.is_most(proposal.accepted_by.len())) {
                return;
            }
            let Some(proposal) = leading.proposals.pop_front() else {
                return;
            };
            peer.tell_learners(&Message::Commit(proposal.zxid));
            self.commit_next(now);
            for origin in proposal.syncs {
                self.synced(origin, now);
            }
        }
    }

    fn synced(&mut self, origin: Origin, now: Duration) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        if origin.member == peer.id {
            return self.finish(&origin, Ok(Reply::Nothing), now);
        }
        if let Role::Leading(leading) = &peer.role
            && let Some(learner) = leading.learners.get(&origin.member)
        {
            let connection = learner.connection;
            peer.send(origin.member, connection, Message::Synced(origin));
        }
    }

    /// Ends a session, if it is here that sessions are ended. Whether there was such a one.
    pub(in super::super) fn end_by_leader(&mut self, session: i64, now: Duration) -> bool {
        let Some(Role::Leading(leading)) = self.peer.as_ref().map(|peer| &peer.role) else {
            return false;
        };
        let is_there = leading.tracker.contains(session);
        if is_there {
            self.propose_end(session, None, now);
        }
        is_there
    }
}
