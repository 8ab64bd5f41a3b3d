//! Reads of single nodes, for tools that look around.

use std::sync::Arc;

use crate::client::folders::by_one_contact;
use crate::error::{Error, Result};
use crate::session::{Session, found};
use crate::znode::path::check;

/// A node's data and owner, as [`Client::node`](crate::Client::node) found them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    data: Vec<u8>,
    owner: Option<i64>,
}

impl Node {
    /// The node's data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The number of the session that an ephemeral node belongs to, as in
    /// [`Client::session_id`](crate::Client::session_id); `None` for a persistent node.
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.owner
    }
}

/// The names of a node's children; `None` if there is no such node.
pub(super) fn children(session: &Arc<Session>, path: &str) -> Result<Option<Vec<String>>> {
    check_path(path)?;
    let listed = by_one_contact(session, path, |contact| found(contact.children(path)))?;
    Ok(listed.map(|names| names.to_vec()))
}

/// A node's data and owner; `None` if there is no such node.
pub(super) fn node(session: &Arc<Session>, path: &str) -> Result<Option<Node>> {
    check_path(path)?;
    let read = by_one_contact(session, path, |contact| found(contact.data(path)))?;
    Ok(read.map(|(data, stat)| Node {
        data,
        owner: Some(stat.ephemeral_owner).filter(|owner| *owner != 0),
    }))
}

/// Unlike a lock's path this may be the root.
fn check_path(path: &str) -> Result<()> {
    if path == "/" {
        return Ok(());
    }
    check(path).map_err(|why| Error::invalid(format!("{path:?}: {why}")))
}
