//! Watches: who is told of what, and in which order.
//!
//! As in ZooKeeper there are two tables: one of watches on data (and on nodes that are not there
//! yet), one of watches on children. A persistent watch is in both. A connection has at most one
//! watch on a path in each table; a new one of another mode takes its place.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use zklock_protocol::{ErrorCode, EventKind};

use super::ConnectionId;
use super::paths::{parent, shown};

/// How long a watch lasts, and how far it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    OneShot,
    Persistent,
    /// Of the node, and of all below it. Of children created and deleted it tells as of nodes.
    Recursive,
}

#[derive(Debug, Default)]
pub(crate) struct WatchTable {
    by_path: HashMap<String, BTreeMap<ConnectionId, Mode>>,
    paths: BTreeMap<ConnectionId, BTreeSet<String>>,
    recursive: usize,
}

impl WatchTable {
    pub(crate) fn add(&mut self, path: &str, watcher: ConnectionId, mode: Mode) {
        let watchers = self.by_path.entry(path.to_owned()).or_default();
        let before = watchers.insert(watcher, mode);
        self.recursive += usize::from(mode == Mode::Recursive);
        self.recursive -= usize::from(before == Some(Mode::Recursive));
        self.paths
            .entry(watcher)
            .or_default()
            .insert(path.to_owned());
    }

    /// Whether there was one.
    pub(crate) fn remove(&mut self, path: &str, watcher: ConnectionId) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else {
            return false;
        };
        let Some(mode) = watchers.remove(&watcher) else {
            return false;
        };
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        self.recursive -= usize::from(mode == Mode::Recursive);
        if let Some(paths) = self.paths.get_mut(&watcher) {
            paths.remove(path);
            if paths.is_empty() {
                self.paths.remove(&watcher);
            }
        }
        true
    }

    /// Forgets the watches of a connection that is gone.
    pub(crate) fn remove_all(&mut self, watcher: ConnectionId) {
        for path in self.paths.get(&watcher).cloned().unwrap_or_default() {
            self.remove(&path, watcher);
        }
    }

    /// Whether somebody watches the path: ZooKeeper does not look whether it is the one that asks.
    /// While there are recursive watches it goes on to what is above the path, and fails where a
    /// path does not begin at the root.
    pub(crate) fn is_watched(&self, path: &str) -> Result<bool, ErrorCode> {
        if self.by_path.contains_key(path) {
            return Ok(true);
        }
        let fails = self.recursive > 0 && !path.is_empty() && !path.starts_with('/');
        if fails {
            Err(ErrorCode::MARSHALLING_ERROR)
        } else {
            Ok(false)
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
        for (&watcher, &mode) in self.by_path.get(path).into_iter().flatten() {
            if mode != Mode::Recursive || kind != EventKind::NodeChildrenChanged {
                told.insert(watcher);
            }
            if mode == Mode::OneShot {
                spent.push(watcher);
            }
        }
        for watcher in spent {
            self.remove(path, watcher);
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
                .filter(|(_, mode)| **mode == Mode::Recursive)
                .map(|(watcher, _)| *watcher)
        })
    }

    /// How many watches there are.
    pub(crate) fn len(&self) -> usize {
        self.by_path.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn watched_paths(&self) -> usize {
        self.by_path.len()
    }

    pub(crate) fn watchers(&self) -> usize {
        self.paths.len()
    }

    /// Each watch.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, ConnectionId, Mode)> {
        self.by_path.iter().flat_map(|(path, watchers)| {
            watchers
                .iter()
                .map(move |(watcher, mode)| (&**path, *watcher, *mode))
        })
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
        let mut table = WatchTable::default();
        table.add("/a", A, Mode::OneShot);
        table.add("/a", B, Mode::Persistent);
        assert_eq!(told(&mut table, "/a", CREATED), [A, B]);
        assert_eq!(told(&mut table, "/a", CREATED), [B]);
        assert!(!table.remove("/a", A));
        assert!(table.remove("/a", B));
        assert_eq!(
            (table.len(), table.watchers(), table.watched_paths()),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_recursive_watch_sees_what_is_below_it_but_no_lists() {
        let mut table = WatchTable::default();
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
        let mut table = WatchTable::default();
        table.add("/a", A, Mode::Recursive);
        table.add("/a", A, Mode::OneShot);
        assert_eq!(told(&mut table, "/a/b", CREATED), []);
        assert_eq!(told(&mut table, "/a", CREATED), [A]);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn who_knows_is_not_told_again_and_its_watch_is_spent() {
        let mut table = WatchTable::default();
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
        let mut table = WatchTable::default();
        table.add("/a", A, Mode::OneShot);
        table.add("/b", A, Mode::Recursive);
        table.add("/a", B, Mode::OneShot);
        table.remove_all(A);
        assert_eq!((table.len(), table.recursive), (1, 0));
    }
}
