//! What kinds of nodes there are, and what is known of one.

/// What kind of node to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeMode {
    Persistent,
    Ephemeral,
    EphemeralSequential,
}

/// What the engine needs to know of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeStat {
    /// The transaction that created the node.
    pub(crate) czxid: i64,
    /// When that was, by the servers' clock, in milliseconds since 1970.
    pub(crate) ctime: i64,
    /// The session that the node lives with; 0 for a persistent one.
    pub(crate) ephemeral_owner: i64,
    /// Counts changes of the data.
    pub(crate) version: i32,
    /// Counts children that came or went.
    pub(crate) child_changes: i32,
    pub(crate) children: i32,
    pub(crate) data_bytes: i32,
}
