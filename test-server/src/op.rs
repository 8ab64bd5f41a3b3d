//! What is asked of the server, by kind: [`Op`], [`Matcher`], [`Asked`].

use std::collections::BTreeSet;

use zklock_protocol::{Request, opcode};

/// A kind of request.
///
/// The requests that differ only in what they answer are one kind: there are four that create a
/// node, and two that list children. A part of a multi counts as what it is, and the whole counts
/// as [`Op::Multi`] as well: whoever loses [`Op::Create`] need not know whether a client creates
/// its nodes alone or in company.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Op {
    /// The handshake of a connection.
    Connect,
    /// Creates a node.
    Create,
    /// Deletes a node.
    Delete,
    /// Asks whether a node is there.
    Exists,
    /// Reads a node's data.
    GetData,
    /// Replaces a node's data.
    SetData,
    /// Reads an access list.
    GetAcl,
    /// Replaces an access list.
    SetAcl,
    /// Lists a node's children.
    GetChildren,
    /// Catches up with the leader.
    Sync,
    /// Keeps the session alive.
    Ping,
    /// Several writes in one transaction.
    Multi,
    /// Several reads in one request.
    MultiRead,
    /// Checks a node's version inside of a multi.
    Check,
    /// Leaves a persistent watch.
    AddWatch,
    /// Takes a watch away.
    RemoveWatches,
    /// Brings the watches of an earlier connection.
    SetWatches,
    /// Brings credentials.
    Auth,
    /// Ends the session.
    Close,
    /// Anything else.
    Other,
}

impl Op {
    /// The kind of the request with this number.
    pub(crate) fn numbered(number: i32) -> Self {
        match number {
            opcode::CREATE | opcode::CREATE_2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => {
                Self::Create
            }
            opcode::DELETE => Self::Delete,
            opcode::EXISTS => Self::Exists,
            opcode::GET_DATA => Self::GetData,
            opcode::SET_DATA => Self::SetData,
            opcode::GET_ACL => Self::GetAcl,
            opcode::SET_ACL => Self::SetAcl,
            opcode::GET_CHILDREN | opcode::GET_CHILDREN_2 => Self::GetChildren,
            opcode::SYNC => Self::Sync,
            opcode::PING => Self::Ping,
            opcode::MULTI => Self::Multi,
            opcode::MULTI_READ => Self::MultiRead,
            opcode::CHECK => Self::Check,
            opcode::ADD_WATCH => Self::AddWatch,
            opcode::REMOVE_WATCHES => Self::RemoveWatches,
            opcode::SET_WATCHES | opcode::SET_WATCHES_2 => Self::SetWatches,
            opcode::AUTH => Self::Auth,
            opcode::CLOSE_SESSION => Self::Close,
            _ => Self::Other,
        }
    }

    /// The `n`th request of this kind from now on, counted from 1, over all connections.
    ///
    /// # Panics
    /// If `n` is 0.
    #[must_use]
    pub fn nth(self, n: u64) -> Matcher {
        assert!(n > 0, "counted from 1");
        Matcher::new(self, Which::Nth(n))
    }

    /// Every request of this kind from now on.
    #[must_use]
    pub fn every(self) -> Matcher {
        Matcher::new(self, Which::Every)
    }
}

/// Which requests are meant: by kind, by count among those that match, and by path.
///
/// A bare [`Op`] means the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    op: Op,
    path_part: Option<String>,
    session: Option<i64>,
    which: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Nth(u64),
    Every,
}

impl Matcher {
    fn new(op: Op, which: Which) -> Self {
        Self {
            op,
            path_part: None,
            session: None,
            which,
        }
    }

    pub(crate) fn op(&self) -> Op {
        self.op
    }

    /// Only requests whose path contains this text match, and are counted: a create of a lock's
    /// node, say, and not that of its folder. A multi matches by the path of any of its parts.
    #[must_use]
    pub fn with_path_containing(mut self, part: &str) -> Self {
        self.path_part = Some(part.to_owned());
        self
    }

    /// Only requests of this session match, and are counted.
    #[must_use]
    pub fn of_session(mut self, session_id: i64) -> Self {
        self.session = Some(session_id);
        self
    }

    /// Whether a request is meant, which is the `count`th that could be.
    pub(crate) fn means(&self, count: u64) -> bool {
        match self.which {
            Which::Nth(n) => count == n,
            Which::Every => true,
        }
    }

    /// Whether a request is of the kind that is counted.
    pub(crate) fn counts(&self, asked: &Asked) -> bool {
        let on_path = |path: &str| {
            let part = self.path_part.as_deref();
            part.is_none_or(|part| path.contains(part))
        };
        // A whole multi has no path of its own: it is where its parts are.
        let is_whole = asked.op == self.op;
        self.session
            .is_none_or(|session| session == asked.session_id)
            && asked
                .parts
                .iter()
                .any(|(op, path)| (is_whole || *op == self.op) && on_path(path))
    }
}

impl From<Op> for Matcher {
    fn from(op: Op) -> Self {
        op.nth(1)
    }
}

/// A request that the server was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    op: Op,
    session_id: i64,
    /// Kinds and paths: its own, and those of its parts.
    parts: Vec<(Op, String)>,
}

impl Asked {
    pub(crate) fn connect() -> Self {
        Self {
            op: Op::Connect,
            session_id: 0,
            parts: vec![(Op::Connect, String::new())],
        }
    }

    pub(crate) fn new(session_id: i64, number: i32, request: Option<&Request>) -> Self {
        let op = Op::numbered(number);
        let shown = |request: &Request| request.path().unwrap_or_default().to_owned();
        let mut parts = vec![(op, request.map(shown).unwrap_or_default())];
        for part in request.map_or(&[][..], Request::parts) {
            parts.push((Op::numbered(part.opcode()), shown(part)));
        }
        Self {
            op,
            session_id,
            parts,
        }
    }

    /// What kind it was.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// Whose it was. 0 for a handshake.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.session_id
    }

    /// Which node it was about: empty where it was about none, or about several.
    #[must_use]
    pub fn path(&self) -> &str {
        self.parts.first().map_or("", |(_, path)| path)
    }

    /// The kinds it was of: its own, and those of its parts, each once.
    pub(crate) fn kinds(&self) -> BTreeSet<Op> {
        self.parts.iter().map(|(op, _)| *op).collect()
    }

    /// About how much memory it takes.
    pub(crate) fn size(&self) -> usize {
        let paths: usize = self.parts.iter().map(|(_, path)| path.len()).sum();
        size_of::<Self>() + size_of_val(&*self.parts) + paths
    }

    /// Whether it was of this kind, or had a part of it.
    #[must_use]
    pub fn contains(&self, op: Op) -> bool {
        self.parts.iter().any(|(part, _)| *part == op)
    }
}
