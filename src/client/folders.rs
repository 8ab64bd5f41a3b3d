//! Folders of locks that nobody uses any more.
//!
//! A folder may go when it is empty: the server refuses to delete one that has children, and who
//! comes later makes it anew. What must not go is a node that only *looks* like an empty folder: a
//! closed barrier, a number, a folder that somebody has just made and is about to use. Such a node
//! never had children, or has data; a lock's folder had children and has none.

use std::sync::Arc;

use crate::error::Result;
use crate::session::keeper::{KeeperError, Reply, Request};
use crate::session::{CallError, Session, Step};

/// Removes one folder. Returns whether it was unused.
pub(crate) fn remove_if_unused(session: &Arc<Session>, path: &str) -> Result<bool> {
    session.fork().refuse_child()?;
    remove(session, path).map_err(|error| error.finally(session.target(), path))
}

/// Removes the unused ones among the children of `root`. Returns how many.
pub(crate) fn remove_unused_in(session: &Arc<Session>, root: &str) -> Result<usize> {
    session.fork().refuse_child()?;
    let remove_all = || {
        let mut removed = 0;
        for path in children(session, root)? {
            removed += usize::from(remove(session, &path)?);
        }
        Ok(removed)
    };
    remove_all().map_err(|error: CallError| error.finally(session.target(), root))
}

/// Removes the unused ones in the whole tree below `root`, from the leaves up. Returns how many.
pub(crate) fn remove_unused_below(session: &Arc<Session>, root: &str) -> Result<usize> {
    session.fork().refuse_child()?;
    let remove_all = || {
        // Depth first; a folder is looked at again after all that was in it.
        let mut removed = 0;
        let mut to_visit: Vec<_> = children(session, root)?
            .into_iter()
            .map(|path| (path, false))
            .collect();
        while let Some((path, visited)) = to_visit.pop() {
            if !visited {
                let inner = children(session, &path)?;
                to_visit.push((path, true));
                to_visit.extend(inner.into_iter().map(|path| (path, false)));
            } else {
                removed += usize::from(remove(session, &path)?);
            }
        }
        Ok(removed)
    };
    remove_all().map_err(|error: CallError| error.finally(session.target(), root))
}

fn children(session: &Arc<Session>, path: &str) -> Step<Vec<String>> {
    let request = Request::Children {
        path: path.to_owned(),
        watch: false,
    };
    match session.call(&request) {
        Ok((Reply::Children(names), _)) => Ok(names
            .into_iter()
            .map(|name| format!("{}/{name}", path.trim_end_matches('/')))
            .collect()),
        Ok(_) | Err(CallError::Refused(KeeperError::NoNode | KeeperError::NoAuth)) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

fn remove(session: &Arc<Session>, path: &str) -> Step<bool> {
    let (Reply::Stat(Some(stat)), _) = session.call(&Request::stat(path))? else {
        return Ok(false);
    };
    let was_a_folder = stat.child_changes > 0 && stat.ephemeral_owner == 0;
    if !was_a_folder || stat.children > 0 || stat.data_bytes > 0 {
        return Ok(false);
    }
    let request = Request::Delete {
        path: path.to_owned(),
        // Not if somebody has put data into it since.
        version: Some(stat.version),
    };
    match session.call(&request) {
        Ok(_) => {
            log::debug!("{path}: removed an empty folder");
            Ok(true)
        }
        // Somebody came, somebody else removed it, or it is not ours to remove.
        Err(CallError::Refused(
            KeeperError::NotEmpty
            | KeeperError::NoNode
            | KeeperError::BadVersion
            | KeeperError::NoAuth,
        )) => Ok(false),
        Err(error) => Err(error),
    }
}
