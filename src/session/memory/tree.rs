//! The servers' state: one tree of nodes, the sessions that stand, and who watches what.

use std::collections::BTreeMap;
use std::sync::Weak;

use shuttle::rand::{Rng, thread_rng};

use zklock_protocol::{CreateMode, EventKind, Stat, WatchKind};

use super::Line;
use crate::session::backend::{Change, Changed, Created, Refusal, Reply, Request};
use crate::znode::path::split;

#[derive(Default)]
pub(super) struct Tree {
    pub(super) nodes: BTreeMap<String, Node>,
    zxid: i64,
    sessions: i64,
    /// Who watches what, with the session.
    pub(super) watches: Vec<(WatchKind, String, i64)>,
    /// Sessions that stand, and where they are reached.
    lines: Vec<(i64, Weak<Line>)>,
    /// Writes, with their sessions, that were sent on a connection which is gone, and are still on
    /// their way through the server that it was to.
    late: Vec<(i64, Request)>,
}

#[derive(Clone)]
pub(super) struct Node {
    pub(super) data: Vec<u8>,
    pub(super) stat: Stat,
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
pub(super) type Done<T> = Result<T, Refusal>;

impl Tree {
    pub(super) fn children(&self, path: &str) -> Done<Vec<String>> {
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

    pub(super) fn create(
        &mut self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        owner: i64,
    ) -> Done<String> {
        let (parent, _) = split(path);
        let mut path = path.to_owned();
        if !parent.is_empty() {
            let node = self.nodes.get_mut(parent).ok_or(Refusal::NoNode)?;
            if node.stat.ephemeral_owner != 0 {
                return Err(Refusal::EphemeralParent);
            }
            if mode == CreateMode::EPHEMERAL_SEQUENTIAL {
                path = format!("{path}{:010}", node.creates);
            }
            node.creates += 1;
        }
        if self.nodes.contains_key(&path) {
            return Err(Refusal::NodeExists);
        }
        self.zxid += 1;
        let stat = Stat {
            czxid: self.zxid,
            ephemeral_owner: match mode {
                CreateMode::PERSISTENT => 0,
                _ => owner,
            },
            data_length: i32::try_from(data.len()).expect("test data is small"),
            ..Stat::default()
        };
        let node = Node {
            data: data.to_vec(),
            stat,
            creates: 0,
        };
        self.nodes.insert(path.clone(), node);
        let parent = split(&path).0.to_owned();
        self.fire(WatchKind::DATA, &path, EventKind::NodeCreated);
        self.fire(WatchKind::CHILDREN, &parent, EventKind::NodeChildrenChanged);
        Ok(path)
    }

    pub(super) fn set(&mut self, path: &str, data: &[u8], version: Option<i32>) -> Done<Stat> {
        let node = self.nodes.get_mut(path).ok_or(Refusal::NoNode)?;
        node.check(version)?;
        node.data = data.to_vec();
        node.stat.version += 1;
        node.stat.data_length = i32::try_from(data.len()).expect("test data is small");
        let stat = node.stat;
        self.zxid += 1;
        self.fire(WatchKind::DATA, path, EventKind::NodeDataChanged);
        Ok(stat)
    }

    pub(super) fn delete(&mut self, path: &str, version: Option<i32>) -> Done<()> {
        let node = self.nodes.get(path).ok_or(Refusal::NoNode)?;
        node.check(version)?;
        if !self.children(path)?.is_empty() {
            return Err(Refusal::NotEmpty);
        }
        self.zxid += 1;
        self.nodes.remove(path);
        let parent = split(path).0.to_owned();
        // The server's own order: the node's watches, then those of its folder.
        self.fire(WatchKind::DATA, path, EventKind::NodeDeleted);
        self.fire(WatchKind::CHILDREN, path, EventKind::NodeDeleted);
        self.fire(WatchKind::CHILDREN, &parent, EventKind::NodeChildrenChanged);
        Ok(())
    }

    /// Sends an event. Under the tree's lock, as each client gets its events in the order of the
    /// changes.
    fn fire(&mut self, kind: WatchKind, path: &str, event: EventKind) {
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

    pub(super) fn begin_session(&mut self, line: Weak<Line>) -> i64 {
        self.sessions += 1;
        self.lines.push((self.sessions, line));
        self.sessions
    }

    pub(super) fn has_session(&self, session_id: i64) -> bool {
        self.lines.iter().any(|(id, _)| *id == session_id)
    }

    pub(super) fn end_session(&mut self, session_id: i64) {
        self.lose_watches(session_id);
        self.lines.retain(|(id, _)| *id != session_id);
        // The leader takes nothing more from it.
        self.late.retain(|(id, _)| *id != session_id);
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
    pub(super) fn lose_watches(&mut self, session_id: i64) {
        self.watches.retain(|(_, _, id)| *id != session_id);
    }

    /// A write that is done at some later time.
    pub(super) fn delay(&mut self, request: &Request, session_id: i64) {
        if is_write(request) {
            self.late.push((session_id, request.clone()));
        }
    }

    /// Answers what came on the connection that stands.
    pub(super) fn answer(&mut self, request: &Request, session_id: i64) -> Done<Reply> {
        self.come_late(session_id, is_write(request));
        self.execute(request, session_id)
    }

    /// What is late is done at any time, but before a write that its session makes on its next
    /// connection is answered.
    fn come_late(&mut self, writer: i64, is_write: bool) {
        for (session_id, request) in std::mem::take(&mut self.late) {
            if (is_write && session_id == writer) || thread_rng().gen_bool(0.3) {
                // Nobody hears of it.
                let _ = self.execute(&request, session_id);
            } else {
                self.late.push((session_id, request));
            }
        }
    }

    /// No client of ours deletes what another session has made.
    fn refuse_trespass(&self, path: &str, session_id: i64) {
        let owner = self.nodes.get(path).map(|node| node.stat.ephemeral_owner);
        assert!(
            owner.is_none_or(|owner| owner == 0 || owner == session_id),
            "session {session_id} deletes {path}, which is of session {owner:?}"
        );
    }

    fn execute(&mut self, request: &Request, session_id: i64) -> Done<Reply> {
        Ok(match request {
            Request::Create { path, data, mode } => {
                let path = self.create(path, data, *mode, session_id)?;
                let czxid = self.nodes.get(&path).map(|node| node.stat.czxid);
                Reply::Created(Created { path, czxid })
            }
            Request::Delete { path, version } => {
                self.refuse_trespass(path, session_id);
                self.delete(path, *version)?;
                Reply::Done
            }
            Request::Children { path, watch } => {
                let children = self.children(path)?;
                if *watch {
                    self.watch(WatchKind::CHILDREN, path, session_id);
                }
                Reply::Children(children.iter().collect())
            }
            Request::Data { path, watch } => {
                let node = self.nodes.get(path).ok_or(Refusal::NoNode)?;
                let reply = Reply::Data(node.data.clone(), node.stat);
                if *watch {
                    self.watch(WatchKind::DATA, path, session_id);
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
                    self.watch(WatchKind::DATA, path, session_id);
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
            Request::Multi(changes) => self.multi(changes, session_id),
            Request::Sync { .. } | Request::MakeRoot { .. } => Reply::Done,
        })
    }

    /// Tries all on a copy that nobody watches, and then makes all or none.
    fn multi(&mut self, changes: &[Change], session_id: i64) -> Reply {
        let mut copy = Self {
            nodes: self.nodes.clone(),
            ..Self::default()
        };
        for (index, change) in changes.iter().enumerate() {
            if let Err(refusal) = copy.change(change, session_id) {
                return Reply::Aborted { index, refusal };
            }
        }
        let changed = changes.iter().map(|one| self.change(one, session_id));
        Reply::Multi(changed.collect::<Done<_>>().expect("tried on a copy"))
    }

    fn change(&mut self, change: &Change, session_id: i64) -> Done<Changed> {
        Ok(match change {
            Change::Create { path, data, mode } => {
                let path = self.create(path, data, *mode, session_id)?;
                Changed::Created(Created { path, czxid: None })
            }
            Change::Delete { path, version } => {
                self.refuse_trespass(path, session_id);
                self.delete(path, *version)?;
                Changed::Done
            }
            Change::Set {
                path,
                data,
                version,
            } => Changed::Set(self.set(path, data, *version)?),
            Change::Check { path, version } => {
                let node = self.nodes.get(path).ok_or(Refusal::NoNode)?;
                node.check(*version)?;
                Changed::Done
            }
        })
    }
}

pub(super) fn is_write(request: &Request) -> bool {
    matches!(
        request,
        Request::Create { .. } | Request::Delete { .. } | Request::Set { .. } | Request::Multi(_)
    )
}
