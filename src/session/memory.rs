//! The seam in memory: a ZooKeeper small enough to be explored.
//!
//! One [`Ensemble`] serves any number of sessions, each a [`MemoryKeeper`] below a [`Session`] of
//! its own, as processes share a real one. What a real server can't be told to do at a given step
//! is a method here: expire a session, break a connection before or after a request was done,
//! remove a node by hand.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::Session;
use super::keeper::{Answer, Keeper, KeeperError, NodeMode, NodeStat, WatchEvent, WatchKind};
use crate::link::Epoch;
use crate::session::retry::RetryPolicy;
use crate::sync::Mutex;
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
    keepers: Vec<(i64, Weak<Line>)>,
}

struct Node {
    data: Vec<u8>,
    stat: NodeStat,
    /// Counts creates of children: the next sequence number.
    creates: i32,
}

impl Node {
    fn check(&self, version: Option<i32>) -> Answer<()> {
        match version {
            Some(version) if version != self.stat.version => Err(KeeperError::BadVersion),
            _ => Ok(()),
        }
    }
}

/// What happens to the next request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection breaks before the request arrives.
    Before,
    /// The request is done, and the connection breaks before the answer arrives.
    After,
}

/// One client's end: what a link is to a real server.
pub(crate) struct Line {
    ensemble: Arc<Ensemble>,
    session: OnceLock<Weak<Session>>,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    epoch: Option<Arc<Epoch>>,
    epochs: u64,
    open: bool,
    closed: bool,
    fault: Option<Fault>,
}

pub(crate) struct MemoryKeeper(Arc<Line>);

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
        });
        assert!(line.session.set(Arc::downgrade(&session)).is_ok());
        let keeper = MemoryKeeper(Arc::clone(&line));
        session
            .attach(Box::new(keeper))
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
    fn children(&self, path: &str) -> Answer<Vec<String>> {
        if !path.is_empty() && !self.nodes.contains_key(path) {
            return Err(KeeperError::NoNode);
        }
        let prefix = format!("{path}/");
        let below = self.nodes.range(prefix.clone()..);
        Ok(below
            .map_while(|(child, _)| child.strip_prefix(&prefix))
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect())
    }

    fn create(&mut self, path: &str, data: &[u8], mode: NodeMode, owner: i64) -> Answer<String> {
        let (parent, _) = split(path);
        let mut path = path.to_owned();
        if !parent.is_empty() {
            let node = self.nodes.get_mut(parent).ok_or(KeeperError::NoNode)?;
            if node.stat.ephemeral_owner != 0 {
                return Err(KeeperError::EphemeralParent);
            }
            if mode == NodeMode::EphemeralSequential {
                path = format!("{path}{:010}", node.creates);
            }
            node.creates += 1;
        }
        if self.nodes.contains_key(&path) {
            return Err(KeeperError::NodeExists);
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

    fn set(&mut self, path: &str, data: &[u8], version: Option<i32>) -> Answer<NodeStat> {
        let node = self.nodes.get_mut(path).ok_or(KeeperError::NoNode)?;
        node.check(version)?;
        node.data = data.to_vec();
        node.stat.version += 1;
        node.stat.data_bytes = i32::try_from(data.len()).expect("test data is small");
        let stat = node.stat;
        self.zxid += 1;
        self.fire(WatchKind::Data, path, WatchEvent::DataChanged);
        Ok(stat)
    }

    fn delete(&mut self, path: &str, version: Option<i32>) -> Answer<()> {
        let node = self.nodes.get(path).ok_or(KeeperError::NoNode)?;
        node.check(version)?;
        if !self.children(path)?.is_empty() {
            return Err(KeeperError::NotEmpty);
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

    /// Delivers an event. Under the tree's lock, as each client gets its events in the order of
    /// the changes; a watcher only signals, and never comes back here.
    fn fire(&mut self, kind: WatchKind, path: &str, event: WatchEvent) {
        let hits = self
            .watches
            .extract_if(.., |(of, at, _)| *of == kind && at == path);
        for (_, _, session_id) in hits.collect::<Vec<_>>() {
            let line = self.keepers.iter().find(|(id, _)| *id == session_id);
            let line = line.and_then(|(_, line)| line.upgrade());
            if let Some(session) = line.and_then(|line| line.session()) {
                session.watch_event(path, event);
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
        self.keepers.retain(|(id, _)| *id != session_id);
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

impl Line {
    fn session(&self) -> Option<Arc<Session>> {
        self.session.get().and_then(Weak::upgrade)
    }

    fn new_session(self: &Arc<Self>) {
        let epoch = {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            let session_id = {
                let mut tree = self.ensemble.tree.lock();
                tree.sessions += 1;
                let session_id = tree.sessions;
                tree.keepers.push((session_id, Arc::downgrade(self)));
                session_id
            };
            state.epochs += 1;
            let epoch = Arc::new(Epoch::new(state.epochs, session_id, TIMEOUT));
            state.epoch = Some(Arc::clone(&epoch));
            state.open = false;
            epoch
        };
        if let Some(session) = self.session() {
            session.connected(epoch, false);
        }
    }

    /// The next request of this client meets `fault`.
    pub(crate) fn strike(&self, fault: Fault) {
        self.state.lock().fault = Some(fault);
    }

    /// Breaks the connection and makes another one in the same session.
    pub(crate) fn reset(self: &Arc<Self>) {
        let Some((session, epoch)) = self.cut() else {
            return;
        };
        session.suspended(epoch.number());
        session.connected(epoch, true);
    }

    /// Ends what stands, on the wire.
    fn cut(&self) -> Option<(Arc<Session>, Arc<Epoch>)> {
        let epoch = {
            let mut state = self.state.lock();
            state.open = false;
            state.epoch.clone()?
        };
        let session_id = epoch.session_id();
        let mut tree = self.ensemble.tree.lock();
        tree.watches.retain(|(_, _, id)| *id != session_id);
        drop(tree);
        Some((self.session()?, epoch))
    }

    /// The lease runs out, the server expires the session, and a new one is made: in this order,
    /// as the lease is the shorter.
    pub(crate) fn expire(self: &Arc<Self>) {
        let Some((session, epoch)) = self.cut() else {
            return;
        };
        session.suspended(epoch.number());
        epoch.lease().seal();
        self.ensemble.tree.lock().end_session(epoch.session_id());
        session.lost(epoch.number(), crate::tenure::LossReason::Session);
        self.new_session();
    }

    /// Runs one request on the tree, as the connection lets it.
    fn request<T>(self: &Arc<Self>, run: impl FnOnce(&mut Tree, i64) -> Answer<T>) -> Answer<T> {
        let (epoch, fault) = {
            let mut state = self.state.lock();
            if !state.open {
                return Err(KeeperError::ConnectionLoss);
            }
            let epoch = state.epoch.clone().ok_or(KeeperError::ConnectionLoss)?;
            (epoch, state.fault.take())
        };
        if fault == Some(Fault::Before) {
            self.break_aside();
            return Err(KeeperError::ConnectionLoss);
        }
        let answer = {
            let mut tree = self.ensemble.tree.lock();
            let session_id = epoch.session_id();
            if !tree.keepers.iter().any(|(id, _)| *id == session_id) {
                return Err(KeeperError::ConnectionLoss);
            }
            run(&mut tree, session_id)
        };
        if fault == Some(Fault::After) {
            self.break_aside();
            return Err(KeeperError::ConnectionLoss);
        }
        answer
    }

    /// A reset, on a thread of its own, as the link's are: the call that met the fault must have
    /// been answered before the next connection opens.
    fn break_aside(self: &Arc<Self>) {
        let line = Arc::clone(self);
        crate::sync::spawn("line", move || line.reset()).expect("a thread");
    }
}

impl Keeper for MemoryKeeper {
    fn create(&self, path: &str, data: &[u8], mode: NodeMode) -> Answer<String> {
        self.0
            .request(|tree, session_id| tree.create(path, data, mode, session_id))
    }

    fn delete(&self, path: &str, version: Option<i32>) -> Answer<()> {
        self.0.request(|tree, _| tree.delete(path, version))
    }

    fn children(&self, path: &str, watch: bool) -> Answer<Vec<String>> {
        self.0.request(|tree, session_id| {
            let children = tree.children(path)?;
            if watch {
                tree.watch(WatchKind::Children, path, session_id);
            }
            Ok(children)
        })
    }

    fn data(&self, path: &str, watch: bool) -> Answer<(Vec<u8>, NodeStat)> {
        self.0.request(|tree, session_id| {
            let node = tree.nodes.get(path).ok_or(KeeperError::NoNode)?;
            let answer = (node.data.clone(), node.stat);
            if watch {
                tree.watch(WatchKind::Data, path, session_id);
            }
            Ok(answer)
        })
    }

    fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Answer<NodeStat> {
        self.0.request(|tree, _| tree.set(path, data, version))
    }

    fn stat(&self, path: &str, watch: bool) -> Answer<Option<NodeStat>> {
        self.0.request(|tree, session_id| {
            if watch {
                tree.watch(WatchKind::Data, path, session_id);
            }
            Ok(tree.nodes.get(path).map(|node| node.stat))
        })
    }

    fn make_root(&self) -> Answer<()> {
        Ok(())
    }

    fn unwatch(&self, path: &str, kind: WatchKind) -> Answer<()> {
        self.0.request(|tree, session_id| {
            let before = tree.watches.len();
            tree.watches
                .retain(|(of, at, id)| (*of, at.as_str(), *id) != (kind, path, session_id));
            if tree.watches.len() == before {
                return Err(KeeperError::NoWatch);
            }
            Ok(())
        })
    }

    fn open(&self, epoch: &Epoch) {
        let mut state = self.0.state.lock();
        if state.epoch.as_ref().map(|epoch| epoch.number()) == Some(epoch.number()) {
            state.open = true;
        }
    }

    fn abandon(&self, _epoch: &Epoch) {}

    fn close(&self, _bound: Duration) {
        let epoch = {
            let mut state = self.0.state.lock();
            state.closed = true;
            state.open = false;
            state.epoch.take()
        };
        if let Some(epoch) = epoch {
            self.0.ensemble.tree.lock().end_session(epoch.session_id());
        }
    }
}
