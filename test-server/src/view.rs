//! What a test can see of a server: nodes, sessions, watches.

use std::time::Duration;

use zklock_protocol::{Acl, Stat};

use crate::core::paths;
use crate::core::watches::Mode;
use crate::trouble::Machine;

/// A node, as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Its data.
    pub data: Vec<u8>,
    /// Everything else that clients are told.
    pub stat: Stat,
    /// Who may do what with it.
    pub acl: Vec<Acl>,
    /// The names of its children, sorted.
    pub children: Vec<String>,
    /// Whether it goes by itself when its last child has gone.
    pub is_container: bool,
}

/// A session, as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Session {
    /// Its id: the `ephemeral_owner` of its nodes.
    pub id: i64,
    /// For how long it lives without a word.
    pub timeout: Duration,
    /// For how long it still lives if nothing more comes, on the server's clock. In an ensemble the
    /// leader alone knows it: of it a follower says what it knew last.
    pub left: Duration,
    /// Whether a connection speaks for it.
    pub is_connected: bool,
    /// The paths of its ephemeral nodes, sorted.
    pub ephemerals: Vec<String>,
}

/// A watch, as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Watch {
    /// The node that is watched. It need not be there.
    pub path: String,
    /// Who is told.
    pub session_id: i64,
    /// Of what.
    pub kind: WatchKind,
    /// Whether it stays when it has told of something.
    pub is_persistent: bool,
}

/// What a watch tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchKind {
    /// Of the node: that it was created, deleted, or given other data.
    Data,
    /// Of children created and deleted, and of the node's end.
    Children,
}

pub(crate) fn node(machine: &Machine, path: &str) -> Option<Node> {
    let node = machine.core.tree.get(path)?;
    let mut children: Vec<_> = node.children.iter().cloned().collect();
    children.sort_unstable();
    Some(Node {
        data: node.data.clone().unwrap_or_default(),
        stat: node.stat(),
        acl: node.acl.to_vec(),
        children,
        is_container: node.is_container(),
    })
}

/// All but those that every server has.
pub(crate) fn nodes(machine: &Machine) -> Vec<String> {
    let paths = machine.core.tree.paths();
    let mut paths: Vec<_> = paths
        .filter(|path| !paths::OWN.contains(&path.as_str()))
        .cloned()
        .collect();
    paths.sort_unstable();
    paths
}

pub(crate) fn sessions(machine: &Machine, now: Duration) -> Vec<Session> {
    let core = &machine.core;
    let sessions = core.sessions.iter().map(|(id, session)| {
        let mut ephemerals = core.tree.ephemerals_of(id);
        ephemerals.sort_unstable();
        Session {
            id,
            timeout: session.timeout,
            left: core.expiry_of(id).unwrap_or_default().saturating_sub(now),
            is_connected: core.connection_of(id).is_some(),
            ephemerals,
        }
    });
    let mut sessions: Vec<_> = sessions.collect();
    sessions.sort_unstable_by_key(|session| session.id);
    sessions
}

pub(crate) fn watches(machine: &Machine) -> Vec<Watch> {
    let core = &machine.core;
    let tables = [
        (&core.data_watches, WatchKind::Data),
        (&core.child_watches, WatchKind::Children),
    ];
    let watches = tables.into_iter().flat_map(|(table, kind)| {
        table.iter().map(move |(path, watcher, mode)| {
            let connection = core.connections.get(&watcher);
            let session_id = connection.and_then(|known| known.session);
            Watch {
                path: path.to_owned(),
                session_id: session_id.unwrap_or_default(),
                kind,
                is_persistent: mode != Mode::OneShot,
            }
        })
    });
    let mut watches: Vec<_> = watches.collect();
    watches.sort_unstable();
    watches
}
