//! The contenders of a queue, for people and tools; and what one participant can do to another.

use zklock_protocol::Stat;

use crate::session::observe::say;
use std::sync::Arc;

use super::folder::Folder;
use crate::error::{Error, Result};
use crate::session::{CallError, Contact, Refusal, Seen, Step, found};
use crate::tenure::REVOKE;
use crate::znode::identity::Identity;
use crate::znode::names::Class;
use crate::znode::path::split;
use crate::znode::verdict::{Rule, queue};

/// One node in the queue.
pub(crate) struct QueuedNode {
    pub(crate) path: String,
    /// Its data, without a request for the lock that was written over it.
    pub(crate) data: Vec<u8>,
    pub(crate) is_revocation_requested: bool,
    pub(crate) class: Class,
    /// Nobody ahead of it keeps it waiting.
    pub(crate) holds: bool,
    /// It belongs to our session.
    pub(crate) ours: bool,
    pub(crate) stat: Stat,
}

/// The nodes in a folder, in order, with their data.
pub(super) fn of(folder: &Folder) -> Result<Vec<QueuedNode>> {
    folder.look(|contact| {
        let children = folder.list(contact)?.unwrap_or_default();
        let mut participants = Vec::new();
        let mut ahead = Vec::new();
        for contender in queue(folder.grammar(), &children) {
            let (path, class) = (folder.child(contender.name), contender.class);
            let rule = Rule::of(class);
            let holds = !ahead.iter().any(|class| rule.is_blocked_by(*class));
            // It may have gone since the list.
            if let Some(queued) = read(contact, path, class, holds)? {
                ahead.push(class);
                participants.push(queued);
            }
        }
        Ok(participants)
    })
}

/// The one node, if it is there.
pub(super) fn of_single(node: &Folder) -> Result<Vec<QueuedNode>> {
    node.look(|contact| {
        let path = node.path().as_str().to_owned();
        let queued = read(contact, path, Class::Sole, true)?;
        Ok(queued.into_iter().collect())
    })
}

fn read(
    contact: &Contact<'_>,
    path: String,
    class: Class,
    holds: bool,
) -> Step<Option<QueuedNode>> {
    let read = found(contact.data(&path))?;
    Ok(read.map(|seen| queued_node(contact, path, class, holds, seen)))
}

/// One node, by what it holds.
pub(super) fn queued_node(
    contact: &Contact<'_>,
    path: String,
    class: Class,
    holds: bool,
    (data, stat): Seen,
) -> QueuedNode {
    QueuedNode {
        ours: stat.ephemeral_owner == contact.epoch().session_id(),
        stat,
        path,
        is_revocation_requested: data.starts_with(REVOKE),
        data: before_asked(&data).to_vec(),
        class,
        holds,
    }
}

/// Asks for the lock back. Returns whether the node was still there.
///
/// Curator's holders take the message only if nothing else is in their node. One of ours goes on
/// saying who it is, and so does a candidate of an election, whoever it belongs to: others read its
/// id, and no `LeaderLatch` or `Election` of others takes the message.
pub(super) fn revoke(folder: &Folder, path: &str) -> Result<bool> {
    check_is_in(folder, path)?;
    let contender = folder.grammar().parse(split(path).1);
    let is_candidate = contender.is_some_and(|contender| contender.class == Class::Leader);
    folder.look(|contact| {
        let Some((data, _)) = found(contact.data(path))? else {
            return Ok(false);
        };
        let says_who_it_is = is_candidate || Identity::parse(before_asked(&data)).is_some();
        let message = match says_who_it_is {
            true => asked(&data),
            false => Arc::from(REVOKE),
        };
        done(contact.set(path, &message, None).map(drop))
    })
}

/// As [`revoke`], of the one node: its data has the holder's id, by which the holder goes on knowing
/// its own node.
pub(super) fn revoke_single(node: &Folder, path: &str) -> Result<bool> {
    check_is(node, path)?;
    node.look(|contact| {
        let Some((data, stat)) = found(contact.data(path))? else {
            return Ok(false);
        };
        done(
            contact
                .set(path, &asked(&data), Some(stat.version))
                .map(drop),
        )
    })
}

/// The data of a node whose holder is asked for the lock, with what it said before.
fn asked(data: &[u8]) -> Arc<[u8]> {
    [REVOKE, b"\n", before_asked(data)].concat().into()
}

/// A node's data, without a request for the lock that was written over it.
fn before_asked(data: &[u8]) -> &[u8] {
    match data.strip_prefix(REVOKE) {
        Some(rest) => rest.strip_prefix(b"\n").unwrap_or(rest),
        None => data,
    }
}

/// Deletes a contender's node. Returns whether it was still there.
pub(super) fn break_lock(folder: &Folder, path: &str) -> Result<bool> {
    check_is_in(folder, path)?;
    delete(folder, path)
}

/// As [`break_lock`], of the one node.
pub(super) fn break_single(node: &Folder, path: &str) -> Result<bool> {
    check_is(node, path)?;
    delete(node, path)
}

fn delete(folder: &Folder, path: &str) -> Result<bool> {
    say!(folder.session(), Warn, "{path}: breaking the lock");
    folder.look(|contact| done(contact.delete(path, None)))
}

/// Whether it was done. A refusal means that by now there is another node of the same name, or
/// none, or somebody else's request in it.
fn done(step: Step<()>) -> Step<bool> {
    match step {
        Ok(()) => Ok(true),
        Err(CallError::Refused(Refusal::NoNode | Refusal::BadVersion)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A participant of another lock is somebody's mistake.
fn check_is_in(folder: &Folder, path: &str) -> Result<()> {
    let (of, name) = split(path);
    let ours = of == folder.path().as_str() && folder.grammar().parse(name).is_some();
    refuse_unless(ours, folder, path)
}

fn check_is(node: &Folder, path: &str) -> Result<()> {
    refuse_unless(path == node.path().as_str(), node, path)
}

fn refuse_unless(ours: bool, folder: &Folder, path: &str) -> Result<()> {
    if ours {
        return Ok(());
    }
    let lock = folder.path();
    Err(Error::invalid(format!(
        "{path} is not a participant of {lock}"
    )))
}
