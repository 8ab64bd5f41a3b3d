//! Release: deletes a tenure's nodes.

use std::sync::Arc;
use std::time::Duration;

use zklock_protocol::Reply;

use super::acquire::OthersWaiting;
use super::folder::Folder;
use crate::error::{Error, Result};
use crate::session::observe::observer::Label;
use crate::session::observe::say;
use crate::session::{
    CallError, Contact, Orphan, PendingCall, Proof, Refusal, Session, Step, Waiter, find_plain,
};
use crate::tenure::{OwnWatches, Tenure};
use crate::wait::limits::WaitLimits;

/// How much time the releasing thread has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReleaseMode {
    /// To ask ZooKeeper what it must know, such as whether others wait.
    Foreground,
    /// Nothing that it would have to wait for.
    Background,
}

impl ReleaseMode {
    /// In the middle of a call with these limits, which may leave no time.
    pub(crate) fn of_caller(limits: &WaitLimits) -> Self {
        if limits.is_none() {
            Self::Foreground
        } else {
            Self::Background
        }
    }
}

/// A release that has begun. Dropped unconfirmed, it comes to its end in the background.
#[must_use = "whether it went well is not known before it is confirmed"]
pub(crate) struct PendingRelease {
    /// The deletes, if any were sent.
    deletes: Option<PendingCall>,
    /// Judges their answers. `None`: it has gone well.
    end: Option<End>,
}

type End = Box<dyn FnOnce(Vec<Step<Reply>>) -> Result<()> + Send>;

impl PendingRelease {
    /// One that has come to its end already.
    #[inline]
    pub(crate) fn over(result: Result<()>) -> Self {
        let end = result
            .err()
            .map(|error| -> End { Box::new(|_| Err(error)) });
        Self { deletes: None, end }
    }

    /// Has observers told, at the end and once, of a hold that has lasted for so long, if that is
    /// known.
    pub(crate) fn tell_released(
        mut self,
        session: &Arc<Session>,
        label: &Label,
        held_for: Option<Duration>,
    ) -> Self {
        let Some(held_for) = held_for else {
            return self;
        };
        // Not the queue: the last handle of the client could go with it, on the link's thread.
        let (session, label) = (Arc::clone(session), label.clone());
        let end = self.end.take();
        self.end = Some(Box::new(move |answers| {
            let result = end.map_or(Ok(()), |end| end(answers));
            let observation = session.observation();
            observation.released(&label, held_for, result.is_ok());
            result
        }));
        self
    }

    /// Waits for the end. An error says that the tenure was lost before, or that a delete is not
    /// confirmed and goes on in the background.
    #[inline]
    pub(crate) fn confirm(mut self) -> Result<()> {
        let Some(end) = self.end.take() else {
            return Ok(());
        };
        end(self.deletes.take().map_or_else(Vec::new, PendingCall::wait))
    }
}

impl Drop for PendingRelease {
    #[inline]
    fn drop(&mut self) {
        match (self.end.take(), self.deletes.take()) {
            (None, _) => {}
            (Some(end), None) => drop(end(Vec::new())),
            (Some(end), Some(deletes)) => deletes.leave_to(move |session, answers| {
                if let Err(error) = end(answers) {
                    say!(session, Debug, "left in the background: {error}");
                }
            }),
        }
    }
}

/// Sends the deletes of a tenure's nodes, and does not wait. What cannot be sent goes on in the
/// background.
pub(super) fn start_release(
    folder: &Arc<Folder>,
    tenure: &Arc<Tenure>,
    news: OthersWaiting,
) -> PendingRelease {
    let watches = tenure.end();
    match on_its_session(tenure, |contact| contact.start_deletes(tenure.nodes())) {
        Ok(deletes) => {
            let (folder, tenure) = (Arc::clone(folder), Arc::clone(tenure));
            PendingRelease {
                deletes: Some(deletes),
                end: Some(Box::new(move |answers| {
                    let mut result = Ok(());
                    for (node, deleted) in tenure.nodes().iter().zip(answers) {
                        let deleted = deleted.map(drop);
                        let deleted =
                            deleted.or_else(|error| failed(&folder, &tenure, node, error));
                        result = result.and(deleted);
                    }
                    if result.is_ok() {
                        news.forget();
                    }
                    end(&tenure, watches, result)
                })),
            }
        }
        Err(error) => not_sent(folder, tenure, watches, error),
    }
}

fn not_sent(
    folder: &Folder,
    tenure: &Tenure,
    watches: OwnWatches,
    error: CallError,
) -> PendingRelease {
    let result = failed(folder, tenure, tenure.node(), error);
    // The others are as unconfirmed as the first.
    if result.as_ref().is_err_and(Error::is_connection_loss) {
        for node in &tenure.nodes()[1..] {
            reap(tenure, node);
        }
    }
    PendingRelease::over(end(tenure, watches, result))
}

/// Releases a tenure of one node, and returns when that is certainly gone, or never was ours any more:
/// a delete that is lost with its connection is asked for again on the next one. What the waiter has
/// no time for goes on in the background.
pub(super) fn release_for_certain(
    folder: &Folder,
    tenure: &Tenure,
    waiter: &Waiter<'_>,
) -> Result<()> {
    let watches = tenure.end();
    let node = tenure.node();
    let mut asked = false;
    let left = folder.retry(waiter, |contact| {
        tenure.stands_on(contact)?;
        match contact.delete(node, None) {
            // By the one before, whose answer was lost.
            Err(CallError::Refused(Refusal::NoNode)) if asked => Ok(Some(())),
            Err(CallError::Refused(Refusal::NoNode)) => Err(CallError::Left(Error::removed(node))),
            deleted => {
                asked |= deleted.as_ref().is_err_and(CallError::may_be_done);
                deleted.map(Some)
            }
        }
    });
    if left.as_ref().is_err_and(|error| !error.is_lock_lost()) {
        reap(tenure, node);
    }
    end(tenure, watches, left)
}

/// Releases a tenure by a node whose name others use, too: if ours was lost, another's may be there
/// now. So it may have to look first, and is over when this returns.
pub(super) fn release_single_node(
    folder: &Folder,
    tenure: &Tenure,
    mode: ReleaseMode,
) -> PendingRelease {
    let watches = tenure.end();
    let node = tenure.node();
    let result = match mode {
        ReleaseMode::Foreground => {
            on_its_session(tenure, |contact| delete_if_ours(tenure, &watches, contact))
                .or_else(|error| failed(folder, tenure, node, error))
        }
        ReleaseMode::Background => {
            reap(tenure, node);
            Err(unconfirmed(node))
        }
    };
    PendingRelease::over(end(tenure, watches, result))
}

/// The nodes are gone, or will be.
fn end(tenure: &Tenure, watches: OwnWatches, result: Result<()>) -> Result<()> {
    tenure.tell_end(result.is_ok());
    watches.forget();
    result
}

/// Takes a step on a contact of the tenure's own session: none of its calls can go to another.
fn on_its_session<T>(tenure: &Tenure, step: impl FnOnce(&Contact<'_>) -> Step<T>) -> Step<T> {
    let contact = tenure.session().contact()?;
    tenure.stands_on(&contact)?;
    step(&contact)
}

/// A delete of ours was not done, or nobody knows. What can still be done is, in the background.
fn failed(folder: &Folder, tenure: &Tenure, node: &str, error: CallError) -> Result<()> {
    match error {
        CallError::Refused(Refusal::NoNode) => {
            let session = tenure.session();
            say!(session, Warn, "{node}: our node was gone at the release");
            Err(Error::removed(node))
        }
        // Nobody else can remove it for us.
        CallError::Refused(error @ Refusal::NoAuth) => Err(folder.refusal(error)),
        CallError::Left(error) if error.is_lock_lost() || error.is_forked() => Err(error),
        _ if !tenure.epoch().is_alive() => Err(tenure.loss()),
        not_yet => {
            reap(tenure, node);
            Err(match not_yet {
                CallError::NotNow(why) => Error::not_now(format!(
                    "{node}: {why}; the release goes on in the background"
                )),
                _ => unconfirmed(node),
            })
        }
    }
}

/// Deletes the node unless something may have happened to it since we last saw it. The check and
/// the deletion are about one connection: in another session neither would be ours.
fn delete_if_ours(tenure: &Tenure, watches: &OwnWatches, contact: &Contact<'_>) -> Step<()> {
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

/// Has the node removed in the background.
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
    Proof::Made(tenure.made().expect("known since it was acquired"))
}

fn unconfirmed(node: &str) -> Error {
    Error::connection_loss(format!(
        "{node}: the release is not confirmed yet and goes on in the background"
    ))
}
