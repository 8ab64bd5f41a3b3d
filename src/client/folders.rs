//! Folders of locks that nobody uses any more.
//!
//! A folder may be removed when it is empty: the server refuses to delete one that has children,
//! and the next acquire makes it again. A node that only *looks* like an empty folder must stay: a
//! closed barrier, a number, a folder that somebody has just made and is about to use. Such a node
//! never had children; a lock's folder had children and has none now. Another program's folder must
//! stay, too, as that program may never make it again. So our folders bear a mark, their data's
//! version, except those in kazoo's dialect.

use zklock_protocol::Stat;

use crate::session::observe::say;
use std::sync::Arc;

use crate::error::Result;
use crate::session::{CallError, Contact, Refusal, Session, Step};
use crate::znode::path::split;

/// Removes one folder. Returns whether it was unused.
pub(crate) fn remove_if_unused(session: &Arc<Session>, path: &str) -> Result<bool> {
    by_one_contact(session, path, |contact| remove(contact, path))
}

/// Removes the unused ones among the children of `root`. Returns how many.
pub(crate) fn remove_unused_in(session: &Arc<Session>, root: &str) -> Result<usize> {
    by_one_contact(session, root, |contact| {
        let mut removed = 0;
        for path in children(contact, root)? {
            removed += usize::from(remove(contact, &path)?);
        }
        Ok(removed)
    })
}

/// Removes the unused ones in the whole tree below `root`, from the leaves up. Returns how many.
pub(super) fn remove_unused_below(session: &Arc<Session>, root: &str) -> Result<usize> {
    by_one_contact(session, root, |contact| {
        // Depth first; a folder is looked at again after all that was in it.
        let mut removed = 0;
        let first = children(contact, root)?;
        let mut to_visit: Vec<_> = first.into_iter().map(|path| (path, false)).collect();
        while let Some((path, visited)) = to_visit.pop() {
            if visited {
                removed += usize::from(remove(contact, &path)?);
            } else {
                let inner = children(contact, &path)?;
                to_visit.push((path, true));
                to_visit.extend(inner.into_iter().map(|path| (path, false)));
            }
        }
        Ok(removed)
    })
}

/// The unused ones in the whole tree below `root`, in the order in which
/// [`remove_unused_below`] would remove them.
pub(super) fn unused_below(session: &Arc<Session>, root: &str) -> Result<Vec<String>> {
    by_one_contact(session, root, |contact| {
        let mut unused = Vec::new();
        let first = children(contact, root)?;
        let mut to_visit: Vec<_> = first.into_iter().map(|path| (path, None)).collect();
        while let Some((path, seen)) = to_visit.pop() {
            let Some(unused_before) = seen else {
                let inner = children(contact, &path)?;
                to_visit.push((path, Some(unused.len())));
                to_visit.extend(inner.into_iter().map(|path| (path, None)));
                continue;
            };
            // Of what was added since, its own children would be gone by then.
            let gone = unused[unused_before..]
                .iter()
                .filter(|below: &&String| split(below).0 == path)
                .count();
            if unused_stat(contact, &path, gone)?.is_some() {
                unused.push(path);
            }
        }
        Ok(unused)
    })
}

pub(super) fn by_one_contact<T>(
    session: &Arc<Session>,
    path: &str,
    work: impl FnOnce(&Contact<'_>) -> Step<T>,
) -> Result<T> {
    let done = session.contact().and_then(|contact| work(&contact));
    done.map_err(|error| error.into_error(session.target(), path))
}

fn children(contact: &Contact<'_>, path: &str) -> Step<Vec<String>> {
    match contact.children(path) {
        Ok(names) => Ok(names
            .iter()
            .map(|name| format!("{}/{name}", path.trim_end_matches('/')))
            .collect()),
        Err(CallError::Refused(Refusal::NoNode | Refusal::NoAuth)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The stat of a folder that is unused, or would be with `gone` of its children gone.
fn unused_stat(contact: &Contact<'_>, path: &str, gone: usize) -> Step<Option<Stat>> {
    let Some(stat) = contact.stat(path)? else {
        return Ok(None);
    };
    let was_a_folder = stat.cversion > 0 && stat.ephemeral_owner == 0;
    let is_empty = usize::try_from(stat.num_children).is_ok_and(|children| children <= gone);
    if !was_a_folder || !is_empty {
        return Ok(None);
    }
    // Another program may never make its folder again, as kazoo does not.
    let is_ours = stat.data_length == 0 && stat.version > 0;
    Ok(is_ours.then_some(stat))
}

fn remove(contact: &Contact<'_>, path: &str) -> Step<bool> {
    let Some(stat) = unused_stat(contact, path, 0)? else {
        return Ok(false);
    };
    // Not if somebody has put data into it since.
    match contact.delete(path, Some(stat.version)) {
        Ok(()) => {
            say!(contact.session(), Debug, "{path}: removed an empty folder");
            Ok(true)
        }
        // Somebody came, somebody else removed it, or it is not ours to remove.
        Err(CallError::Refused(
            Refusal::NotEmpty | Refusal::NoNode | Refusal::BadVersion | Refusal::NoAuth,
        )) => Ok(false),
        Err(error) => Err(error),
    }
}
