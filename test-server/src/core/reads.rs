//! Reads, and the requests about watches.

use zklock_protocol::{
    ErrorCode, Event, EventKind, Part, Reply, Request, SetWatches, opcode, permission,
};

use super::acl;
use super::answers::NO_ZXID;
use super::tree::Node;
use super::watches::{Kind, Mode};
use super::{ConnectionId, Core, Line};

impl Core {
    pub(crate) fn read(
        &mut self,
        from: ConnectionId,
        session: i64,
        request: Request,
    ) -> Result<Reply, ErrorCode> {
        match request {
            Request::Exists { path, watch } => {
                if path.contains('\0') {
                    return Err(ErrorCode::BAD_ARGUMENTS);
                }
                if self.settings.line == Line::V3_9
                    && let Some(node) = self.tree.get(&path)
                {
                    acl::check(&node.acl, permission::READ, self.identities(from))?;
                }
                // It is left on a node that is not there as well.
                if watch {
                    self.data_watches.add(&path, from, Mode::OneShot);
                }
                let node = self.tree.get(&path).ok_or(ErrorCode::NO_NODE)?;
                Ok(Reply::Stat(node.stat()))
            }
            Request::GetData { path, watch } => {
                let node = self.readable(from, &path)?;
                let (data, stat) = (node.data.clone(), node.stat());
                if watch {
                    self.data_watches.add(&path, from, Mode::OneShot);
                }
                Ok(Reply::Data { data, stat })
            }
            Request::GetChildren { path, watch } => {
                let children = self.children(from, &path, watch)?;
                Ok(Reply::Children(children.into_iter().collect()))
            }
            Request::GetChildren2 { path, watch } => {
                let stat = self.readable(from, &path)?.stat();
                let children = self.children(from, &path, watch)?;
                let children = children.into_iter().collect();
                Ok(Reply::ChildrenAndStat { children, stat })
            }
            Request::GetAcl { path } => self.get_acl(from, &path),
            Request::GetAllChildrenNumber { path } => {
                self.readable(from, &path)?;
                let count = self.tree.count_below(&path);
                Ok(Reply::Number(i32::try_from(count).unwrap_or(i32::MAX)))
            }
            Request::GetEphemerals { prefix } => {
                let mut paths = self.tree.ephemerals_of(session);
                let all = matches!(prefix.trim(), "" | "/");
                paths.retain(|path| all || path.starts_with(&prefix));
                Ok(Reply::Children(paths.into_iter().collect()))
            }
            Request::Sync { path } => Ok(Reply::Path(path)),
            Request::MultiRead(parts) => {
                let parts = parts
                    .into_iter()
                    .map(|part| self.read_part(from, session, part));
                Ok(Reply::Parts(parts.collect()))
            }
            Request::WhoAmI => {
                let connection = self.connections.get(&from);
                let identities = connection.into_iter().flat_map(|known| &known.identities);
                let shown = identities
                    .map(|identity| (identity.scheme.clone(), identity.name().to_owned()));
                Ok(Reply::Identities(shown.collect()))
            }
            request => self.change_watches(from, request),
        }
    }

    fn read_part(&mut self, from: ConnectionId, session: i64, part: Request) -> Part {
        // Watches cannot be asked for in company.
        let (number, part) = match part {
            Request::GetData { path, .. } => {
                (opcode::GET_DATA, Request::GetData { path, watch: false })
            }
            Request::GetChildren { path, .. } => (
                opcode::GET_CHILDREN,
                Request::GetChildren { path, watch: false },
            ),
            _ => return Part::Failed(ErrorCode::MARSHALLING_ERROR),
        };
        match self.read(from, session, part) {
            Ok(reply) => Part::Done(number, reply),
            Err(code) => Part::Failed(code),
        }
    }

    fn change_watches(&mut self, from: ConnectionId, request: Request) -> Result<Reply, ErrorCode> {
        match request {
            Request::SetWatches(watches) => {
                self.set_watches(from, &watches);
                Ok(Reply::Nothing)
            }
            Request::AddWatch { path, mode } => {
                let mode = match mode {
                    0 => Mode::Persistent,
                    1 => Mode::Recursive,
                    _ => return Err(ErrorCode::MARSHALLING_ERROR),
                };
                self.add_lasting_watch(from, &path, mode);
                Ok(Reply::Number(0))
            }
            Request::CheckWatches { path, kind } => {
                let kind = Kind::read(kind, self.settings.line)?;
                let mut found = false;
                if kind.is_of_children() {
                    found |= self.child_watches.is_watched(&path, from, kind)?;
                }
                if kind.is_of_data() {
                    found |= self.data_watches.is_watched(&path, from, kind)?;
                }
                found.then_some(Reply::Nothing).ok_or(ErrorCode::NO_WATCHER)
            }
            Request::RemoveWatches { path, kind } => {
                let kind = Kind::read(kind, self.settings.line)?;
                let mut removed = false;
                if kind.is_of_children() {
                    removed |= self.child_watches.remove(&path, from, kind);
                }
                if kind.is_of_data() {
                    removed |= self.data_watches.remove(&path, from, kind);
                }
                removed
                    .then_some(Reply::Nothing)
                    .ok_or(ErrorCode::NO_WATCHER)
            }
            _ => Err(ErrorCode::UNIMPLEMENTED),
        }
    }

    /// The watches of an earlier connection: those that have been missed are told of at once.
    fn set_watches(&mut self, from: ConnectionId, watches: &SetWatches) {
        let seen = watches.relative_zxid;
        let mut missed = Vec::new();
        for path in &watches.data {
            match self.tree.get(path) {
                None => missed.push((EventKind::NodeDeleted, path)),
                Some(node) if node.stat().mzxid > seen => {
                    missed.push((EventKind::NodeDataChanged, path));
                }
                Some(_) => self.data_watches.add(path, from, Mode::OneShot),
            }
        }
        for path in &watches.exist {
            match self.tree.get(path) {
                Some(_) => missed.push((EventKind::NodeCreated, path)),
                None => self.data_watches.add(path, from, Mode::OneShot),
            }
        }
        for path in &watches.children {
            match self.tree.get(path) {
                None => missed.push((EventKind::NodeDeleted, path)),
                Some(node) if node.stat().pzxid > seen => {
                    missed.push((EventKind::NodeChildrenChanged, path));
                }
                Some(_) => self.child_watches.add(path, from, Mode::OneShot),
            }
        }
        for (kind, path) in missed {
            let path = path.clone();
            self.send_event(from, &Event { kind, path }, NO_ZXID);
        }
        let (persistent, recursive) = watches.persistent.clone().unwrap_or_default();
        let modes = [(persistent, Mode::Persistent), (recursive, Mode::Recursive)];
        for (paths, mode) in modes {
            for path in paths {
                self.add_lasting_watch(from, &path, mode);
            }
        }
    }

    fn add_lasting_watch(&mut self, from: ConnectionId, path: &str, mode: Mode) {
        self.data_watches.add(path, from, mode);
        // What a recursive watch tells of children it tells of nodes, so from 3.9 on it is in one table.
        if mode != Mode::Recursive || self.settings.line == Line::V3_8 {
            self.child_watches.add(path, from, mode);
        }
    }

    fn readable(&self, from: ConnectionId, path: &str) -> Result<&Node, ErrorCode> {
        let node = self.tree.get(path).ok_or(ErrorCode::NO_NODE)?;
        acl::check(&node.acl, permission::READ, self.identities(from))?;
        Ok(node)
    }

    fn children(
        &mut self,
        from: ConnectionId,
        path: &str,
        watch: bool,
    ) -> Result<Vec<String>, ErrorCode> {
        let node = self.readable(from, path)?;
        let children = node.children.iter().cloned().collect();
        if watch {
            self.child_watches.add(path, from, Mode::OneShot);
        }
        Ok(children)
    }

    fn get_acl(&self, from: ConnectionId, path: &str) -> Result<Reply, ErrorCode> {
        let node = self.tree.get(path).ok_or(ErrorCode::NO_NODE)?;
        let identities = self.identities(from);
        let either = permission::READ | permission::ADMIN;
        acl::check(&node.acl, either, identities)?;
        let acl = match acl::check(&node.acl, permission::ADMIN, identities) {
            Ok(()) => node.acl.to_vec(),
            Err(_) => acl::without_digests(&node.acl),
        };
        let stat = node.stat();
        Ok(Reply::Acl { acl, stat })
    }
}
