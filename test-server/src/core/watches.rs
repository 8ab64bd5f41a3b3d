//! Watches: who is told of what, and in which order.
//!
//! As in ZooKeeper there are two tables: one of watches on data (and on nodes that are not there
//! yet), one of watches on children. A persistent watch is in both. Up to 3.8 a connection has at
//! most one watch on a path in each table, and a new one of another mode takes its place; from 3.9 on
//! it has one of each mode.

use std::collections::{BTreeMap, BTreeSet};

use zklock_protocol::{ErrorCode, EventKind, WatchKind};

use super::paths::{parent, shown};
use super::{ConnectionId, Line};

/// How long a watch lasts, and how far it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    OneShot,
    Persistent,
    /// Of the node, and of all below it. Of children created and deleted it tells as of nodes.
    Recursive,
}

/// Which watches a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Children,
    Data,
    Any,
    Persistent,
    Recursive,
}

/// The modes of one connection's watches on one path, in one table. Never empty.
type Modes = BTreeSet<Mode>;

#[derive(Debug)]
pub(crate) struct WatchTable {
    line: Line,
    by_path: BTreeMap<String, BTreeMap<ConnectionId, Modes>>,
    paths: BTreeMap<ConnectionId, BTreeSet<String>>,
    recursive: usize,
}

impl Kind {
    pub(crate) fn read(kind: WatchKind, line: Line) -> Result<Self, ErrorCode> {
        match (kind, line) {
            (WatchKind::CHILDREN, _) => Ok(Self::Children),
            (WatchKind::DATA, _) => Ok(Self::Data),
            (WatchKind::ANY, _) => Ok(Self::Any),
            (WatchKind::PERSISTENT, Line::V3_9) => Ok(Self::Persistent),
            (WatchKind::PERSISTENT_RECURSIVE, Line::V3_9) => Ok(Self::Recursive),
            _ => Err(ErrorCode::MARSHALLING_ERROR),
        }
    }

    /// Whether it looks into the table of watches on children.
    pub(crate) fn is_of_children(self) -> bool {
        matches!(self, Self::Children | Self::Any | Self::Persistent)
    }

    /// Whether it looks into the table of watches on data.
    pub(crate) fn is_of_data(self) -> bool {
        self != Self::Children
    }

    /// Up to 3.8 whatever mode is there is meant.
    fn means(self, mode: Mode, line: Line) -> bool {
        match self {
            _ if line == Line::V3_8 => true,
            Self::Children | Self::Data => mode == Mode::OneShot,
            Self::Persistent => mode == Mode::Persistent,
            Self::Recursive => mode == Mode::Recursive,
            Self::Any => true,
        }
    }
}

impl WatchTable {
    pub(crate) fn new(line: Line) -> Self {
        Self {
            line,
            by_path: BTreeMap::new(),
            paths: BTreeMap::new(),
            recursive: 0,
        }
    }

    pub(crate) fn add(&mut self, path: &str, watcher: ConnectionId, mode: Mode) {
        if self.line == Line::V3_8 {
            self.take_out(path, watcher, |_| true);
        }
        let watchers = self.by_path.entry(path.to_owned()).or_default();
        if watchers.entry(watcher).or_default().insert(mode) {
            self.recursive += usize::from(mode == Mode::Recursive);
        }
        self.paths
            .entry(watcher)
            .or_default()
            .insert(path.to_owned());
    }

    /// Whether there was one.
    pub(crate) fn remove(&mut self, path: &str, watcher: ConnectionId, kind: Kind) -> bool {
        let line = self.line;
        self.take_out(path, watcher, |mode| kind.means(mode, line))
    }

    fn take_out(
        &mut self,
        path: &str,
        watcher: ConnectionId,
        is_meant: impl Fn(Mode) -> bool,
    ) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else {
            return false;
        };
        let Some(modes) = watchers.get_mut(&watcher) else {
            return false;
        };
        let count = modes.len();
        let recursive = usize::from(modes.contains(&Mode::Recursive));
        modes.retain(|mode| !is_meant(*mode));
        let is_any_out = modes.len() < count;
        self.recursive -= recursive - usize::from(modes.contains(&Mode::Recursive));
        if modes.is_empty() {
            watchers.remove(&watcher);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
            if let Some(paths) = self.paths.get_mut(&watcher) {
                paths.remove(path);
                if paths.is_empty() {
                    self.paths.remove(&watcher);
                }
            }
        }
        is_any_out
    }

    /// Forgets the watches of a connection that is gone.
    pub(crate) fn remove_all(&mut self, watcher: ConnectionId) {
        for path in self.paths.get(&watcher).cloned().unwrap_or_default() {
            self.take_out(&path, watcher, |_| true);
        }
    }

    /// Whether the path is watched so.
    ///
    /// Up to 3.8 servers do not look whether it is by the one that asks. They cut the path at its
    /// last `/` before they look, and once more after it while there is a recursive watch: where
    /// there is no `/` left they fail.
    pub(crate) fn is_watched(
        &self,
        path: &str,
        watcher: ConnectionId,
        kind: Kind,
    ) -> Result<bool, ErrorCode> {
        let watchers = self.by_path.get(path);
        if self.line == Line::V3_9 {
            let modes = watchers.and_then(|watchers| watchers.get(&watcher));
            let mut modes = modes.into_iter().flatten();
            return Ok(modes.any(|mode| kind.means(*mode, self.line)));
        }
        let fails_later = self.recursive > 0 && !path.starts_with('/');
        match watchers {
            _ if path.is_empty() => Ok(false),
            _ if !path.contains('/') => Err(ErrorCode::MARSHALLING_ERROR),
            Some(_) => Ok(true),
            None if fails_later => Err(ErrorCode::MARSHALLING_ERROR),
            None => Ok(false),
        }
    }

    /// Who is to be told, each once, and not those who know already. What is left only once is
    /// spent.
    pub(crate) fn trigger(
        &mut self,
        path: &str,
        kind: EventKind,
        known: &BTreeSet<ConnectionId>,
    ) -> BTreeSet<ConnectionId> {
        let mut told = BTreeSet::new();
        let mut spent = Vec::new();
        for (&watcher, modes) in self.by_path.get(path).into_iter().flatten() {
            let is_of_lists = kind == EventKind::NodeChildrenChanged;
            if modes
                .iter()
                .any(|mode| *mode != Mode::Recursive || !is_of_lists)
            {
                told.insert(watcher);
            }
            if modes.contains(&Mode::OneShot) {
                spent.push(watcher);
            }
        }
        for watcher in spent {
            self.take_out(path, watcher, |mode| mode == Mode::OneShot);
        }
        if self.recursive > 0 && kind != EventKind::NodeChildrenChanged {
            told.extend(self.recursive_above(path));
        }
        told.retain(|watcher| !known.contains(watcher));
        told
    }

    fn recursive_above(&self, path: &str) -> impl Iterator<Item = ConnectionId> {
        let above = std::iter::successors(Some(path), |path| {
            if *path == "/" {
                None
            } else {
                parent(path).map(shown)
            }
        });
        above.skip(1).flat_map(|path| {
            let watchers = self.by_path.get(path).into_iter().flatten();
            watchers
                .filter(|(_, modes)| modes.contains(&Mode::Recursive))
                .map(|(watcher, _)| *watcher)
        })
    }

    /// How many watches there are: of one connection on one path, in whatever modes, one.
    pub(crate) fn len(&self) -> usize {
        self.by_path.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn watched_paths(&self) -> usize {
        self.by_path.len()
    }

    pub(crate) fn watchers(&self) -> usize {
        self.paths.len()
    }

    /// Each watch in each mode.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, ConnectionId, Mode)> {
        self.by_path.iter().flat_map(|(path, watchers)| {
            watchers.iter().flat_map(move |(watcher, modes)| {
                modes.iter().map(move |mode| (&**path, *watcher, *mode))
            })
        })
    }

    pub(crate) fn by_path(
        &self,
    ) -> impl Iterator<Item = (&str, impl Iterator<Item = ConnectionId>)> {
        let paths = self.by_path.iter();
        paths.map(|(path, watchers)| (&**path, watchers.keys().copied()))
    }

    pub(crate) fn by_connection(&self) -> &BTreeMap<ConnectionId, BTreeSet<String>> {
        &self.paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);
    const CREATED: EventKind = EventKind::NodeCreated;
    const CHILDREN: EventKind = EventKind::NodeChildrenChanged;

    fn told(table: &mut WatchTable, path: &str, kind: EventKind) -> Vec<ConnectionId> {
        table
            .trigger(path, kind, &BTreeSet::new())
            .into_iter()
            .collect()
    }

    #[test]
    fn a_watch_is_spent_once_unless_it_stays() {
        let mut table = WatchTable::new(Line::V3_8);
        table.add("/a", A, Mode::OneShot);
        table.add("/a", B, Mode::Persistent);
        assert_eq!(told(&mut table, "/a", CREATED), [A, B]);
        assert_eq!(told(&mut table, "/a", CREATED), [B]);
        assert!(!table.remove("/a", A, Kind::Any));
        assert!(table.remove("/a", B, Kind::Any));
        assert_eq!(
            (table.len(), table.watchers(), table.watched_paths()),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_recursive_watch_sees_what_is_below_it_but_no_lists() {
        let mut table = WatchTable::new(Line::V3_8);
        table.add("/a", A, Mode::Recursive);
        assert_eq!(told(&mut table, "/a/b/c", CREATED), [A]);
        assert_eq!(told(&mut table, "/a", CREATED), [A]);
        assert_eq!(told(&mut table, "/a", CHILDREN), []);
        assert_eq!(told(&mut table, "/ab", CREATED), []);
        table.add("/", B, Mode::Recursive);
        assert_eq!(told(&mut table, "/x", CREATED), [B]);
        assert_eq!(told(&mut table, "/a/b", CREATED), [A, B]);
    }

    #[test]
    fn another_mode_takes_the_place_of_the_first() {
        let mut table = WatchTable::new(Line::V3_8);
        table.add("/a", A, Mode::Recursive);
        table.add("/a", A, Mode::OneShot);
        assert_eq!(told(&mut table, "/a/b", CREATED), []);
        assert_eq!(told(&mut table, "/a", CREATED), [A]);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn who_knows_is_not_told_again_and_its_watch_is_spent() {
        let mut table = WatchTable::new(Line::V3_8);
        table.add("/a", A, Mode::OneShot);
        assert!(
            table
                .trigger("/a", CREATED, &BTreeSet::from([A]))
                .is_empty()
        );
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_connection_takes_its_watches_with_it() {
        let mut table = WatchTable::new(Line::V3_8);
        table.add("/a", A, Mode::OneShot);
        table.add("/b", A, Mode::Recursive);
        table.add("/a", B, Mode::OneShot);
        table.remove_all(A);
        assert_eq!((table.len(), table.recursive), (1, 0));
    }

    #[test]
    fn from_3_9_on_a_connection_has_a_watch_of_each_mode() {
        let mut table = WatchTable::new(Line::V3_9);
        table.add("/a", A, Mode::Recursive);
        table.add("/a", A, Mode::OneShot);
        assert_eq!((table.len(), table.recursive), (1, 1));
        assert_eq!(told(&mut table, "/a", CREATED), [A]);
        assert_eq!(table.is_watched("/a", A, Kind::Data), Ok(false));
        assert_eq!(table.is_watched("/a", A, Kind::Recursive), Ok(true));
        assert_eq!(table.is_watched("/a", B, Kind::Any), Ok(false));
        assert_eq!(told(&mut table, "/a/b", CREATED), [A]);
        assert!(!table.remove("/a", A, Kind::Persistent));
        assert!(table.remove("/a", A, Kind::Any));
        assert_eq!((table.len(), table.recursive), (0, 0));
    }

    #[test]
    fn up_to_3_8_a_check_fails_where_a_path_cannot_be_cut() {
        let mut table = WatchTable::new(Line::V3_8);
        let fails = Err(ErrorCode::MARSHALLING_ERROR);
        for path in ["", "a", "b/c", "/a"] {
            table.add(path, A, Mode::OneShot);
        }
        assert_eq!(table.is_watched("", B, Kind::Any), Ok(false));
        assert_eq!(table.is_watched("a", B, Kind::Any), fails);
        assert_eq!(table.is_watched("b/c", B, Kind::Any), Ok(true));
        assert_eq!(table.is_watched("b/d", B, Kind::Any), Ok(false));
        assert_eq!(table.is_watched("/a", B, Kind::Any), Ok(true));
        table.add("/x", A, Mode::Recursive);
        assert_eq!(table.is_watched("b/c", B, Kind::Any), Ok(true));
        assert_eq!(table.is_watched("b/d", B, Kind::Any), fails);
    }
}
