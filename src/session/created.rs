//! The fate of a create whose answer was lost.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::backend::{Created, Refusal};
use super::call_error::{CallError, Step};
use super::contact::Contact;
use super::orphan::Proof;
use super::verbs::found;
use crate::link::Epoch;

/// Looks for what creates, whose replies were lost, may have made: children of `folder` that begin
/// with one of `prefixes` and live with the session of `epoch`. However many there are, it makes
/// one write, one list, and the looks at what the list shows in few flights.
///
/// A list may come from a server that lags behind the one that took the create. So a write is made
/// first (a delete of a node that cannot exist, refused with `NoNode`): once it is answered, this
/// connection's server has seen everything that was committed before.
///
/// The check of the node's owner is no formality: a dying session may have made the name that is
/// found, and counting it as ours let two hold at once in Curator (CURATOR-498).
pub(crate) fn find_all_created(
    contact: &Contact<'_>,
    folder: &str,
    prefixes: &[&str],
    epoch: &Epoch,
) -> Step<Vec<Created>> {
    let Some(first) = prefixes.first() else {
        return Ok(Vec::new());
    };
    flush(contact, &format!("{folder}/{first}flush"))?;
    let prefixes: BTreeSet<&str> = prefixes.iter().copied().collect();
    // None of them begins with another: each has a GUID of its own.
    let is_sought = |name: &&str| {
        let not_after = (Bound::Unbounded, Bound::Included(*name));
        let nearest = prefixes.range::<str, _>(not_after).next_back();
        nearest.is_some_and(|prefix| name.starts_with(prefix))
    };
    let children = found(contact.children(folder))?.unwrap_or_default();
    let paths = children.iter().filter(is_sought);
    let paths: Vec<_> = paths.map(|name| format!("{folder}/{name}")).collect();
    let mut created = Vec::with_capacity(paths.len());
    let stats = contact.stats(&paths)?;
    for (path, stat) in paths.into_iter().zip(stats) {
        if let Some(stat) = stat
            && stat.ephemeral_owner == epoch.session_id()
        {
            let czxid = Some(stat.czxid);
            created.push(Created { path, czxid });
        }
    }
    Ok(created)
}

/// Looks whether the node at `path` is the one that was created in the session of `epoch` and is
/// known by `proof`, though others create nodes of the same name.
///
/// The write that comes first does more here than in [`find_all_created`]: an earlier delete of ours
/// may still be on its way through the server that we were connected to before. Once a write on
/// this connection is answered, that delete is done or will never be. Without it: we see our node,
/// the old delete is executed, somebody else creates the node, and we delete theirs.
pub(crate) fn find_plain(
    contact: &Contact<'_>,
    path: &str,
    proof: &Proof,
    epoch: &Epoch,
) -> Step<bool> {
    flush(contact, &format!("{path}/flush"))?;
    let Some((data, stat)) = found(contact.data(path))? else {
        return Ok(false);
    };
    Ok(proof.is_of(&data, stat.czxid) && stat.ephemeral_owner == epoch.session_id())
}

/// Makes a write that changes nothing: once it is answered, this connection's server has seen
/// everything that was committed before. `path` must not exist.
fn flush(contact: &Contact<'_>, path: &str) -> Step<()> {
    match contact.delete(path, None) {
        // That an ACL forbids it is said after a write as well, and no less in its turn.
        Ok(()) | Err(CallError::Refused(Refusal::NoNode | Refusal::NoAuth)) => Ok(()),
        Err(error) => Err(error),
    }
}
