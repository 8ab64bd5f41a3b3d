//! The seam in memory: a ZooKeeper small enough to be explored.
//!
//! One [`Ensemble`] serves any number of sessions, each a [`MemoryBackend`] below a [`Session`] of
//! its own, as processes share a real one. What a real server can't be told to do at a given step
//! is a method here: expire a session, break a connection before or after a request was done,
//! remove a node by hand.
//!
//! Each line has two threads, as answers and events come by two ways: one takes requests to the
//! tree and brings the answers, one brings the events of watches. So an answer can overtake an
//! event that was sent before it, and the other way round, and a caller can leave before its
//! answer comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::backend::{
    Answer, Backend, Created, NoReply, NotOpen, Refusal, Reply, Request, Slot, WatchEvent,
    WatchKind,
};
use super::phase::Connection;
use super::{LossReason, Session};
use crate::link::Epoch;
use crate::session::retry::RetryPolicy;
use crate::sync::{self, Condvar, Mutex};
use crate::znode::node::{NodeMode, NodeStat};
use crate::znode::path::split;

/// Longer than any test: in memory, a session ends when it is told to.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The servers: one tree of nodes.
#[derive(Default)]
pub(crate) struct Ensemble {
    tree: Mutex<Tree>,
}

#[derive(Default)]
struct Tree {
    nodes: BTreeMap<String, Node>,
    zxid: i64,
    sessions: i64,
    /// Who watches what, with the session.
    watches: Vec<(WatchKind, String, i64)>,
    /// Sessions that stand, and where they are reached.
    lines: Vec<(i64, Weak<Line>)>,
}

struct Node {
    data: Vec<u8>,
    stat: NodeStat,
    /// Counts creates of children: the next sequence number.
    creates: i32,
}

impl Node {
    fn check(&self, version: Option<i32>) -> Done<()> {
        match version {
            Some(version) if version != self.stat.version => Err(Refusal::BadVersion),
            _ => Ok(()),
        }
    }
}

/// What the tree says to a request.
type Done<T> = Result<T, Refusal>;

/// What happens to the next request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection breaks before the request arrives.
    Before,
    /// The request is done, and the connection breaks before the answer arrives.
    After,
}

impl Ensemble {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// A client with a session that stands.
    pub(crate) fn connect(self: &Arc<Self>) -> (Arc<Session>, Arc<Line>) {
        let session = Session::new("memory".into(), RetryPolicy::new());
        let line = Arc::new(Line {
            ensemble: Arc::clone(self),
            session: OnceLock::new(),
            state: Mutex::new(LineState::default()),
            work: Condvar::new(),
            turns: Mutex::new(()),
        });
        assert!(line.session.set(Arc::downgrade(&session)).is_ok());
        for run in [Line::bring_answers, Line::bring_events] {
            let line = Arc::clone(&line);
            sync::spawn("line", move || run(&line)).expect("a thread");
        }
        let backend = MemoryBackend(Arc::clone(&line));
        session
            .attach(Box::new(backend))
            .expect("no thread to start");
        line.new_session();
        (session, line)
    }

    /// The children of `path`; none if it does not exist.
    pub(crate) fn children_of(&self, path: &str) -> Vec<String> {
        self.tree.lock().children(path).unwrap_or_default()
    }

    /// Removes by hand the last one in a queue, if by its number it cannot be a holder: somebody is
    /// ahead of it, and it is no reader.
    pub(crate) fn remove_last_waiter(&self, folder: &str) {
        let number = |name: &String| name[name.len() - 10..].to_owned();
        let mut tree = self.tree.lock();
        let mut children = tree.children(folder).unwrap_or_default();
        children.sort_by_key(number);
        if let [.., before, last] = children.as_slice()
            && number(before) < number(last)
            && !last.contains("__READ__")
        {
            let removed = tree.delete(&format!("{folder}/{last}"), None);
            removed.expect("listed under the same lock");
        }
    }

    pub(crate) fn watch_count(&self) -> usize {
        self.tree.lock().watches.len()
    }
}

/// What is left, for messages.
impl std::fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tree = self.tree.lock();
        f.debug_struct("Ensemble")
            .field("nodes", &tree.nodes.keys())
            .field("watches", &tree.watches)
            .finish_non_exhaustive()
    }
}

impl Tree {
    fn children(&self, path: &str) -> Done<Vec<String>> {
        if !path.is_empty() && !self.nodes.contains_key(path) {
            return Err(Refusal::NoNode);
        }
        let prefix = format!("{path}/");
        let below = self.nodes.range(prefix.clone()..);
        Ok(below
            .map_while(|(child, _)| child.strip_prefix(&prefix))
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect())
    }

    fn create(&mut self, path: &str, data: &[u8], mode: NodeMode, owner: i64) -> Done<String> {
        let (parent, _) = split(path);
        let mut path = path.to_owned();
        if !parent.is_empty() {
            let node = self.nodes.get_mut(parent).ok_or(Refusal::NoNode)?;
            if node.stat.ephemeral_owner != 0 {
                return Err(Refusal::EphemeralParent);
            }
            if mode == NodeMode::EphemeralSequential {
                path = format!("{path}{:010}", node.creates);
            }
            node.creates += 1;
        }
        if self.nodes.contains_key(&path) {
            return Err(Refusal::NodeExists);
        }
        self.zxid += 1;
        let stat = NodeStat {
            czxid: self.zxid,
            ephemeral_owner: match mode {
                NodeMode::Persistent => 0,
                NodeMode::Ephemeral | NodeMode::EphemeralSequential => owner,
            },
            version: 0,
            child_changes: 0,
            children: 0,
            data_bytes: i32::try_from(data.len()).expect("test data is small"),
        };
        let node = Node {
            data: data.to_vec(),
            stat,
            creates: 0,
        };
        self.nodes.insert(path.clone(), node);
        let parent = split(&path).0.to_owned();
        self.fire(WatchKind::Data, &path, WatchEvent::Created);
        self.fire(WatchKind::Children, &parent, WatchEvent::ChildrenChanged);
        Ok(path)
    }

    fn set(&mut self, path: &str, data: &[u8], version: Option<i32>) -> Done<NodeStat> {
        let node = self.nodes.get_mut(path).ok_or(Refusal::NoNode)?;
        node.check(version)?;
        node.data = data.to_vec();
        node.stat.version += 1;
        node.stat.data_bytes = i32::try_from(data.len()).expect("test data is small");
        let stat = node.stat;
        self.zxid += 1;
        self.fire(WatchKind::Data, path, WatchEvent::DataChanged);
        Ok(stat)
    }

    fn delete(&mut self, path: &str, version: Option<i32>) -> Done<()> {
        let node = self.nodes.get(path).ok_or(Refusal::NoNode)?;
        node.check(version)?;
        if !self.children(path)?.is_empty() {
            return Err(Refusal::NotEmpty);
        }
        self.zxid += 1;
        self.nodes.remove(path);
        let parent = split(path).0.to_owned();
        // The server's own order: the node's watches, then those of its folder.
        self.fire(WatchKind::Data, path, WatchEvent::Deleted);
        self.fire(WatchKind::Children, path, WatchEvent::Deleted);
        self.fire(WatchKind::Children, &parent, WatchEvent::ChildrenChanged);
        Ok(())
    }

    /// Sends an event. Under the tree's lock, as each client gets its events in the order of the
    /// changes.
    fn fire(&mut self, kind: WatchKind, path: &str, event: WatchEvent) {
        let hits = self
            .watches
            .extract_if(.., |(of, at, _)| *of == kind && at == path);
        for (_, _, session_id) in hits.collect::<Vec<_>>() {
            let line = self.lines.iter().find(|(id, _)| *id == session_id);
            if let Some(line) = line.and_then(|(_, line)| line.upgrade()) {
                line.send_event(path, event);
            }
        }
    }

    fn watch(&mut self, kind: WatchKind, path: &str, session_id: i64) {
        let watch = (kind, path.to_owned(), session_id);
        if !self.watches.contains(&watch) {
            self.watches.push(watch);
        }
    }

    fn end_session(&mut self, session_id: i64) {
        self.watches.retain(|(_, _, id)| *id != session_id);
        self.lines.retain(|(id, _)| *id != session_id);
        let owned: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.stat.ephemeral_owner == session_id)
            .map(|(path, _)| path.clone())
            .collect();
        for path in owned {
            self.delete(&path, None)
                .expect("no children, and the lock is held");
        }
    }
}

impl Tree {
    fn answer(&mut self, request: &Request, session_id: i64) -> Done<Reply> {
        Ok(match request {
            Request::Create { path, data, mode } => {
                let path = self.create(path, data, *mode, session_id)?;
                let czxid = self.nodes.get(&path).map(|node| node.stat.czxid);
                Reply::Created(Created { path, czxid })
            }
            Request::Delete { path, version } => {
                self.delete(path, *version)?;
                Reply::Done
            }
            Request::Children { path, watch } => {
                let children = self.children(path)?;
                if *watch {
                    self.watch(WatchKind::Children, path, session_id);
                }
                Reply::Children(children)
            }
            Request::Data { path, watch } => {
                let node = self.nodes.get(path).ok_or(Refusal::NoNode)?;
                let reply = Reply::Data(node.data.clone(), node.stat);
                if *watch {
                    self.watch(WatchKind::Data, path, session_id);
                }
                reply
            }
            Request::Set {
                path,
                data,
                version,
            } => Reply::Stat(Some(self.set(path, data, *version)?)),
            Request::Stat { path, watch } => {
                if *watch {
                    self.watch(WatchKind::Data, path, session_id);
                }
                Reply::Stat(self.nodes.get(path).map(|node| node.stat))
            }
            Request::Unwatch { path, kind } => {
                let before = self.watches.len();
                self.watches
                    .retain(|(of, at, id)| (*of, at, *id) != (*kind, path, session_id));
                if self.watches.len() == before {
                    return Err(Refusal::NoWatch);
                }
                Reply::Done
            }
            Request::MakeRoot => Reply::Done,
        })
    }
}

/// One client's end: what a link is to a real server.
pub(crate) struct Line {
    ensemble: Arc<Ensemble>,
    session: OnceLock<Weak<Session>>,
    state: Mutex<LineState>,
    /// There is something to bring, or the line was closed.
    work: Condvar,
    /// Connections are made and broken one after the other, as a link's one thread does.
    turns: Mutex<()>,
}

#[derive(Default)]
struct LineState {
    epoch: Option<Arc<Epoch>>,
    epochs: u64,
    /// Counts connections.
    connections: u64,
    /// The connection that stands, 0 for none.
    connection: u64,
    open: bool,
    closed: bool,
    fault: Option<Fault>,
    /// What was submitted and not answered.
    requests: VecDeque<(u64, Vec<Request>, Arc<dyn Slot>)>,
    /// What is on its way: each event with its number.
    events: VecDeque<(String, WatchEvent, u64)>,
    events_sent: u64,
    events_delivered: u64,
}

pub(crate) struct MemoryBackend(Arc<Line>);

impl Line {
    fn session(&self) -> Option<Arc<Session>> {
        self.session.get().and_then(Weak::upgrade)
    }

    fn new_session(self: &Arc<Self>) {
        let connection = {
            let mut tree = self.ensemble.tree.lock();
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            tree.sessions += 1;
            let session_id = tree.sessions;
            tree.lines.push((session_id, Arc::downgrade(self)));
            state.epochs += 1;
            let epoch = Arc::new(Epoch::new(state.epochs, session_id, TIMEOUT));
            state.connect(epoch)
        };
        if let Some(session) = self.session() {
            session.connected(connection, false);
        }
    }

    /// The next request of this client meets `fault`.
    pub(crate) fn strike(&self, fault: Fault) {
        self.state.lock().fault = Some(fault);
    }

    /// Breaks the connection and makes another one in the same session.
    pub(crate) fn reset(self: &Arc<Self>) {
        let _turn = self.turns.lock();
        let Some((session, epoch)) = self.cut() else {
            return;
        };
        let connection = {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            state.connect(epoch)
        };
        session.connected(connection, true);
    }

    /// Ends what stands, on the wire.
    fn cut(&self) -> Option<(Arc<Session>, Arc<Epoch>)> {
        let (epoch, number, lost) = {
            let mut state = self.state.lock();
            if state.connection == 0 {
                return None;
            }
            state.open = false;
            let number = std::mem::take(&mut state.connection);
            let lost = std::mem::take(&mut state.requests);
            (state.epoch.clone()?, number, lost)
        };
        let session_id = epoch.session_id();
        let mut tree = self.ensemble.tree.lock();
        tree.watches.retain(|(_, _, id)| *id != session_id);
        drop(tree);
        for (_, requests, slot) in lost {
            slot.answered(requests.iter().map(|_| Answer::lost()).collect());
        }
        let session = self.session()?;
        session.suspended(number);
        Some((session, epoch))
    }

    /// The lease runs out, the server expires the session, and a new one is made: in this order,
    /// as the lease is the shorter.
    pub(crate) fn expire(self: &Arc<Self>) {
        let _turn = self.turns.lock();
        let Some((session, epoch)) = self.cut() else {
            return;
        };
        epoch.lease().seal();
        self.ensemble.tree.lock().end_session(epoch.session_id());
        session.lost(epoch.number(), LossReason::Session);
        self.new_session();
    }

    /// Runs one request on the tree, as the connection lets it.
    fn ask(self: &Arc<Self>, connection: u64, request: &Request) -> Answer {
        let fault = self.state.lock().fault.take();
        let answer = if fault == Some(Fault::Before) {
            Answer::lost()
        } else {
            self.run(connection, request)
        };
        if fault.is_none() {
            return answer;
        }
        self.reset();
        Answer::lost()
    }

    fn run(&self, connection: u64, request: &Request) -> Answer {
        let mut tree = self.ensemble.tree.lock();
        let session_id = {
            let state = self.state.lock();
            match &state.epoch {
                Some(epoch) if state.connection == connection && state.open => epoch.session_id(),
                _ => return Answer::lost(),
            }
        };
        if !tree.lines.iter().any(|(id, _)| *id == session_id) {
            return Answer::lost();
        }
        let result = tree.answer(request, session_id).map_err(NoReply::Refused);
        let events_before = self.state.lock().events_sent;
        Answer {
            result,
            events_before,
        }
    }

    fn send_event(&self, path: &str, event: WatchEvent) {
        let mut state = self.state.lock();
        state.events_sent += 1;
        let number = state.events_sent;
        state.events.push_back((path.to_owned(), event, number));
        drop(state);
        self.work.notify_all();
    }

    /// Waits for something to bring. `None` once the line is closed.
    fn next<T>(&self, mut take: impl FnMut(&mut LineState) -> Option<T>) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(next) = take(&mut state) {
                return Some(next);
            }
            if state.closed {
                return None;
            }
            sync::wait_until(&self.work, &mut state, None);
        }
    }

    fn bring_answers(self: &Arc<Self>) {
        while let Some((connection, requests, slot)) = self.next(|state| state.requests.pop_front())
        {
            let answers = requests.iter().map(|one| self.ask(connection, one));
            slot.answered(answers.collect());
        }
    }

    fn bring_events(self: &Arc<Self>) {
        while let Some((path, event, number)) = self.next(|state| state.events.pop_front()) {
            if let Some(session) = self.session() {
                session.watch_event(&path, event, number);
            }
            self.state.lock().events_delivered = number;
        }
    }

    /// Whether this client has heard all that was sent to it.
    pub(crate) fn has_heard_all(&self) -> bool {
        let state = self.state.lock();
        state.events_delivered == state.events_sent
    }
}

impl LineState {
    fn connect(&mut self, epoch: Arc<Epoch>) -> Connection {
        self.connections += 1;
        self.connection = self.connections;
        self.open = false;
        self.epoch = Some(Arc::clone(&epoch));
        Connection {
            epoch,
            number: self.connection,
        }
    }
}

impl Backend for MemoryBackend {
    fn submit(
        &self,
        connection: u64,
        requests: &[Request],
        slot: Arc<dyn Slot>,
    ) -> Result<(), NotOpen> {
        let mut state = self.0.state.lock();
        if state.connection != connection || !state.open || state.closed {
            return Err(NotOpen);
        }
        let submitted = (connection, requests.to_vec(), slot);
        state.requests.push_back(submitted);
        drop(state);
        self.0.work.notify_all();
        Ok(())
    }

    fn call(&self, request: &Request) -> Result<Reply, NoReply> {
        let connection = self.0.state.lock().connection;
        self.0.ask(connection, request).result
    }

    fn open(&self, connection: u64) {
        let mut state = self.0.state.lock();
        if state.connection == connection {
            state.open = true;
        }
    }

    fn cut(&self, connection: u64) {
        if self.0.state.lock().connection == connection {
            self.0.reset();
        }
    }

    fn abandon(&self, _epoch: &Epoch) {}

    fn close(&self, _bound: Duration) {
        let (epoch, lost) = {
            let mut state = self.0.state.lock();
            state.closed = true;
            state.open = false;
            (state.epoch.take(), std::mem::take(&mut state.requests))
        };
        self.0.work.notify_all();
        for (_, requests, slot) in lost {
            slot.answered(requests.iter().map(|_| Answer::lost()).collect());
        }
        if let Some(epoch) = epoch {
            self.0.ensemble.tree.lock().end_session(epoch.session_id());
        }
    }
}
