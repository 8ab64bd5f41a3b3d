//! The servers' state: one tree of nodes, the sessions that stand, and who watches what.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Weak;

use shuttle::rand::{Rng, thread_rng};

use zklock_protocol::{
    ANY_VERSION, Create, CreateForm, CreateMode, ErrorCode, EventKind, Part, Reply, Request, Stat,
    WatchKind, opcode,
};

use super::Line;
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
    fn check(&self, version: i32) -> Done<()> {
        match version {
            version if version != ANY_VERSION && version != self.stat.version => {
                Err(ErrorCode::BAD_VERSION)
            }
            _ => Ok(()),
        }
    }
}

/// What the tree says to a request.
pub(super) type Done<T> = Result<T, ErrorCode>;

impl Tree {
    pub(super) fn children(&self, path: &str) -> Done<Vec<String>> {
        if !path.is_empty() && !self.nodes.contains_key(path) {
            return Err(ErrorCode::NO_NODE);
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
            let node = self.nodes.get_mut(parent).ok_or(ErrorCode::NO_NODE)?;
            if node.stat.ephemeral_owner != 0 {
                return Err(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
            }
            if mode == CreateMode::EPHEMERAL_SEQUENTIAL {
                path = format!("{path}{:010}", node.creates);
            }
            node.creates += 1;
        }
        if self.nodes.contains_key(&path) {
            return Err(ErrorCode::NODE_EXISTS);
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

    pub(super) fn set(&mut self, path: &str, data: &[u8], version: i32) -> Done<Stat> {
        let node = self.nodes.get_mut(path).ok_or(ErrorCode::NO_NODE)?;
        node.check(version)?;
        node.data = data.to_vec();
        node.stat.version += 1;
        node.stat.data_length = i32::try_from(data.len()).expect("test data is small");
        let stat = node.stat;
        self.zxid += 1;
        self.fire(WatchKind::DATA, path, EventKind::NodeDataChanged);
        Ok(stat)
    }

    pub(super) fn delete(&mut self, path: &str, version: i32) -> Done<()> {
        let node = self.nodes.get(path).ok_or(ErrorCode::NO_NODE)?;
        node.check(version)?;
        if !self.children(path)?.is_empty() {
            return Err(ErrorCode::NOT_EMPTY);
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
            self.delete(&path, ANY_VERSION)
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
            Request::Create(node) => self.make(node, session_id)?,
            Request::Delete { path, version } => {
                self.refuse_trespass(path, session_id);
                self.delete(path, *version)?;
                Reply::Nothing
            }
            Request::GetChildren { path, watch } => {
                let children = self.children(path)?;
                if *watch {
                    self.watch(WatchKind::CHILDREN, path, session_id);
                }
                Reply::Children(children.iter().collect())
            }
            Request::GetData { path, watch } => {
                let node = self.nodes.get(path).ok_or(ErrorCode::NO_NODE)?;
                let (data, stat) = (Some(node.data.clone()), node.stat);
                if *watch {
                    self.watch(WatchKind::DATA, path, session_id);
                }
                Reply::Data { data, stat }
            }
            Request::SetData {
                path,
                data,
                version,
            } => Reply::Stat(self.set(path, data.as_deref().unwrap_or_default(), *version)?),
            Request::Exists { path, watch } => {
                if *watch {
                    self.watch(WatchKind::DATA, path, session_id);
                }
                let node = self.nodes.get(path).ok_or(ErrorCode::NO_NODE)?;
                Reply::Stat(node.stat)
            }
            Request::RemoveWatches { path, kind } => {
                let before = self.watches.len();
                self.watches
                    .retain(|(of, at, id)| (*of, at, *id) != (*kind, path, session_id));
                if self.watches.len() == before {
                    return Err(ErrorCode::NO_WATCHER);
                }
                Reply::Nothing
            }
            Request::Check { path, version } => {
                let node = self.nodes.get(path).ok_or(ErrorCode::NO_NODE)?;
                node.check(*version)?;
                Reply::Nothing
            }
            Request::Multi(steps) => self.multi(steps, session_id),
            Request::Sync { path } => Reply::Path(path.clone()),
            other => unreachable!("no client of ours asks for {other:?}"),
        })
    }

    fn make(&mut self, node: &Create, session_id: i64) -> Done<Reply> {
        let data = node.data.as_deref().unwrap_or_default();
        let path = self.create(&node.path, data, node.mode, session_id)?;
        let stat = self.nodes[&path].stat;
        Ok(match node.form {
            CreateForm::Create => Reply::Path(path),
            _ => Reply::Created { path, stat },
        })
    }

    /// Tries all on a copy that nobody watches, and then makes all or none.
    fn multi(&mut self, steps: &[Request], session_id: i64) -> Reply {
        let mut copy = Self {
            nodes: self.nodes.clone(),
            ..Self::default()
        };
        let mut tried = steps
            .iter()
            .map(|step| copy.execute(step, session_id))
            .enumerate();
        let refused = tried.find_map(|(at, done)| Some((at, done.err()?)));
        let parts = steps.iter().enumerate().map(|(at, step)| match refused {
            None => {
                let reply = self.execute(step, session_id);
                Part::Done(step.opcode(), reply.expect("tried on a copy"))
            }
            Some((refused, error)) => Part::Failed(match at.cmp(&refused) {
                Ordering::Less => ErrorCode::OK,
                Ordering::Equal => error,
                Ordering::Greater => ErrorCode::RUNTIME_INCONSISTENCY,
            }),
        });
        Reply::Parts(parts.collect())
    }
}

pub(super) fn is_write(request: &Request) -> bool {
    opcode::is_write(request.opcode())
}
