//! The way out of what was won.

use super::folder::Folder;
use super::place::News;
use crate::error::{Error, Result};
use crate::session::backend::Refusal;
use crate::session::observe::say;
use crate::session::{CallError, Contact, Orphan, Proof, Step, find_plain};
use crate::tenure::{Ended, Tenure};

/// Ends a tenure: deletes our nodes. An error says that it was lost before, or that a delete is not
/// confirmed and goes on in the background.
pub(super) fn leave(folder: &Folder, tenure: &Tenure, news: News) -> Result<()> {
    let watches = tenure.end();
    let mut result = Ok(());
    match on_its_session(tenure, |contact| contact.delete_all(tenure.nodes())) {
        Ok(deleted) => {
            for (node, deleted) in tenure.nodes().iter().zip(deleted) {
                result = result.and(judge(folder, tenure, node, deleted));
            }
        }
        Err(error) => {
            result = judge(folder, tenure, tenure.node(), Err(error));
            // The others are as unconfirmed as the first.
            if result.as_ref().is_err_and(Error::is_connection_loss) {
                for node in &tenure.nodes()[1..] {
                    reap(tenure, node);
                }
            }
        }
    }
    tenure.tell_end(result.is_ok());
    if result.is_ok() {
        news.forget();
    }
    watches.forget();
    result
}

/// As [`leave`], in the background.
pub(super) fn abandon(tenure: &Tenure, news: News) {
    let watches = tenure.end();
    for node in tenure.nodes() {
        reap(tenure, node);
    }
    tenure.tell_end(false);
    news.forget();
    watches.forget();
}

/// Takes a step on a contact of the session that the tenure is of: of two calls, none can go to
/// another session.
fn on_its_session<T>(tenure: &Tenure, step: impl FnOnce(&Contact<'_>) -> Step<T>) -> Step<T> {
    let contact = tenure.session().contact()?;
    tenure.stands_on(&contact)?;
    step(&contact)
}

/// What became of a delete of ours.
fn judge(folder: &Folder, tenure: &Tenure, node: &str, deleted: Step<()>) -> Result<()> {
    match deleted {
        Ok(()) => Ok(()),
        Err(CallError::Refused(Refusal::NoNode)) => {
            say!(
                tenure.session(),
                Warn,
                "{node}: our node was gone at the release"
            );
            Err(Error::removed(node))
        }
        Err(CallError::Refused(error)) => Err(folder.refusal(error)),
        Err(CallError::Left(error)) if error.is_lock_lost() || error.is_forked() => Err(error),
        Err(CallError::NotSent(_) | CallError::Unknown | CallError::Left(_)) => {
            if tenure.epoch().lease().is_alive() {
                reap(tenure, node);
                Err(unconfirmed(node))
            } else {
                Err(tenure.loss())
            }
        }
    }
}

/// Ends a tenure by a node whose name others use, too: where ours was lost, another's may stand.
pub(super) fn leave_single_node(folder: &Folder, tenure: &Tenure) -> Result<()> {
    let watches = tenure.end();
    let deleted = on_its_session(tenure, |contact| delete_if_ours(tenure, &watches, contact));
    let result = judge(folder, tenure, tenure.node(), deleted);
    tenure.tell_end(result.is_ok());
    watches.forget();
    result
}

/// Deletes the node unless something may have happened to it since we last saw it. The check and
/// the deletion are about one connection: in another session neither would be ours.
fn delete_if_ours(tenure: &Tenure, watches: &Ended, contact: &Contact<'_>) -> Step<()> {
    let node = tenure.node();
    if !watches.is_undisturbed() {
        if tenure.is_lost() {
            return Err(CallError::Left(tenure.loss()));
        }
        if !find_plain(contact, node, &made(tenure), tenure.epoch())? {
            return Err(CallError::Left(Error::removed(node)));
        }
    }
    contact.delete(node, None)
}

fn reap(tenure: &Tenure, node: &str) {
    let path = node.to_owned();
    let orphan = if tenure.made().is_some() {
        let proof = made(tenure);
        Orphan::Plain { path, proof }
    } else {
        Orphan::Node { path }
    };
    tenure.session().reap(orphan, tenure.epoch());
}

/// The transaction that made the one node of a tenure by a single node.
fn made(tenure: &Tenure) -> Proof {
    Proof::Made(tenure.made().expect("known since it was won"))
}

fn unconfirmed(node: &str) -> Error {
    Error::connection_loss(format!(
        "{node}: the release is not confirmed yet and goes on in the background"
    ))
}
