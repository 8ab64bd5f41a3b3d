//! One node to remove, and how it is known to be ours.

use std::fmt;
use std::sync::Arc;

use crate::link::Epoch;
use crate::znode::path;

/// One thing to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Orphan {
    /// A node of ours.
    Node { path: String },
    /// The node that a create may have made: a child of `folder` whose name begins with `prefix`, which
    /// holds the GUID of that one create.
    Created { folder: String, prefix: String },
    /// A node of ours with a name that others use, too.
    Plain { path: String, proof: Proof },
}

/// One that is to go, and the session that it belongs to.
pub(super) type OwnedOrphan = (Orphan, Arc<Epoch>);

impl Orphan {
    /// For a sequential create at `path`.
    pub(super) fn created(path: &str) -> Self {
        let (folder, prefix) = path::split(path);
        Self::Created {
            folder: folder.to_owned(),
            prefix: prefix.to_owned(),
        }
    }
}

/// For the log: where it is, and never what it holds.
impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { path } | Self::Plain { path, .. } => f.write_str(path),
            Self::Created { folder, prefix } => write!(f, "{folder}/{prefix}.."),
        }
    }
}

/// How a node of ours is told from others of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Its data, which holds a GUID.
    Data(Arc<[u8]>),
    /// The transaction that created it.
    Made(i64),
}

impl Proof {
    /// Whether it is of this node, which holds `data` and was made by the transaction `czxid`.
    pub(crate) fn is_of(&self, data: &[u8], czxid: i64) -> bool {
        match self {
            Self::Data(_) => self.is_in(data),
            Self::Made(made) => *made == czxid,
        }
    }

    /// Whether the data found is what we wrote, or a request for the lock that somebody wrote over
    /// it, which keeps our id.
    fn is_in(&self, found: &[u8]) -> bool {
        match self {
            Self::Data(written) => {
                found == &**written || id_of(written).is_some_and(|id| id_of(found) == Some(id))
            }
            Self::Made(_) => false,
        }
    }
}

/// In front of the GUID in a node's data.
pub(crate) const ID: &str = " id=";

/// The end of a node's data that holds a GUID, if it does.
pub(super) fn id_of(data: &[u8]) -> Option<&[u8]> {
    const GUID_DIGITS: usize = 32;
    let at = data.len().checked_sub(ID.len() + GUID_DIGITS)?;
    let id = &data[at..];
    id.starts_with(ID.as_bytes()).then_some(id)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_shows_no_data() {
        let plain = Orphan::Plain {
            path: "/locks/a".to_owned(),
            proof: Proof::Data(Arc::from(*b"secret")),
        };
        assert_eq!(plain.to_string(), "/locks/a");
        assert_eq!(
            Orphan::created("/locks/_c_1-").to_string(),
            "/locks/_c_1-.."
        );
    }
}
