//! The way out of what was won.

use std::sync::Arc;

use super::folder::Folder;
use super::place::OthersWaiting;
use crate::error::{Error, Result};
use crate::session::backend::Refusal;
use crate::session::observe::say;
use crate::session::{CallError, Contact, Orphan, PendingDeletes, Proof, Step, Waiter, find_plain};
use crate::tenure::{Ended, Tenure};

/// A tenure on its way out: its deletes were sent, or could not be. Dropped unconfirmed, it comes to
/// its end in the background.
#[must_use = "whether it went well is not known before it is confirmed"]
pub(crate) struct Departure {
    left: Option<Left>,
    at_end: Option<AtEnd>,
}

/// Is told whether ZooKeeper has confirmed it.
type AtEnd = Box<dyn FnOnce(bool) + Send>;

enum Left {
    Over(Result<()>),
    Sent(Box<Leaving>),
}

struct Leaving {
    deletes: PendingDeletes,
    rest: Rest,
}

/// What there is to do with the answers.
struct Rest {
    folder: Arc<Folder>,
    tenure: Arc<Tenure>,
    watches: Ended,
    news: OthersWaiting,
}

/// Sends the deletes of a tenure's nodes, and does not wait. What cannot be sent goes on in the
/// background.
pub(super) fn send_off(
    folder: &Arc<Folder>,
    tenure: &Arc<Tenure>,
    news: OthersWaiting,
) -> Departure {
    let watches = tenure.end();
    let left = match on_its_session(tenure, |contact| contact.begin_deletes(tenure.nodes())) {
        Ok(deletes) => Left::Sent(Box::new(Leaving {
            deletes,
            rest: Rest {
                folder: Arc::clone(folder),
                tenure: Arc::clone(tenure),
                watches,
                news,
            },
        })),
        Err(error) => {
            let result = judge(folder, tenure, tenure.node(), Err(error));
            // The others are as unconfirmed as the first.
            if result.as_ref().is_err_and(Error::is_connection_loss) {
                for node in &tenure.nodes()[1..] {
                    reap(tenure, node);
                }
            }
            tenure.tell_end(false);
            watches.forget();
            Left::Over(result)
        }
    };
    Departure {
        left: Some(left),
        at_end: None,
    }
}

/// Ends a tenure: deletes our nodes. An error says that the tenure was lost before, or that a delete
/// is not confirmed yet and goes on in the background.
pub(super) fn leave(folder: &Arc<Folder>, tenure: &Arc<Tenure>, news: OthersWaiting) -> Result<()> {
    send_off(folder, tenure, news).confirm()
}

/// Ends a tenure of one node, and returns when that is certainly gone, or never was ours any more:
/// a delete that is lost with its connection is asked for again on the next one. What the waiter has
/// no time for goes on in the background.
pub(super) fn leave_for_certain(
    folder: &Folder,
    tenure: &Tenure,
    waiter: &Waiter<'_>,
) -> Result<()> {
    let watches = tenure.end();
    let node = tenure.node();
    let mut asked = false;
    let left = folder.persist(waiter, |contact| {
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
    tenure.tell_end(left.is_ok());
    watches.forget();
    left
}

impl Departure {
    /// One that has come to its end already.
    pub(crate) fn over(result: Result<()>) -> Self {
        Self {
            left: Some(Left::Over(result)),
            at_end: None,
        }
    }

    /// Has `at_end` told, once, whether it was confirmed.
    pub(crate) fn tell(mut self, at_end: impl FnOnce(bool) + Send + 'static) -> Self {
        self.at_end = Some(Box::new(at_end));
        self
    }

    /// Waits for the end. An error says that the tenure was lost before, or that a delete is not
    /// confirmed and goes on in the background.
    pub(crate) fn confirm(mut self) -> Result<()> {
        let result = match self.left.take() {
            Some(Left::Over(result)) => result,
            Some(Left::Sent(leaving)) => {
                let Leaving { deletes, rest } = *leaving;
                rest.end(deletes.wait())
            }
            None => unreachable!("confirmed or dropped once"),
        };
        tell(self.at_end.take(), result.is_ok());
        result
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let at_end = self.at_end.take();
        match self.left.take() {
            None => {}
            Some(Left::Over(result)) => tell(at_end, result.is_ok()),
            Some(Left::Sent(leaving)) => {
                let Leaving { deletes, rest } = *leaving;
                deletes.leave_to(move |deleted| {
                    let session = Arc::clone(rest.tenure.session());
                    let result = rest.end(deleted);
                    tell(at_end, result.is_ok());
                    if let Err(error) = result {
                        say!(session, Debug, "left in the background: {error}");
                    }
                });
            }
        }
    }
}

fn tell(at_end: Option<AtEnd>, confirmed: bool) {
    if let Some(at_end) = at_end {
        at_end(confirmed);
    }
}

impl Rest {
    fn end(self, deleted: Vec<Step<()>>) -> Result<()> {
        let Self {
            folder,
            tenure,
            watches,
            news,
        } = self;
        let mut result = Ok(());
        for (node, deleted) in tenure.nodes().iter().zip(deleted) {
            result = result.and(judge(&folder, &tenure, node, deleted));
        }
        tenure.tell_end(result.is_ok());
        if result.is_ok() {
            news.forget();
        }
        watches.forget();
        result
    }
}

/// As [`send_off`] that nobody confirms, of a node whose name others use, too.
pub(super) fn abandon_single_node(tenure: &Tenure, news: OthersWaiting) {
    let watches = tenure.end();
    for node in tenure.nodes() {
        reap(tenure, node);
    }
    tenure.tell_end(false);
    news.forget();
    watches.forget();
}

/// Takes a step on a contact of the tenure's own session: none of its calls can go to another.
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
        // Nobody else can remove it for us.
        Err(CallError::Refused(error @ Refusal::NoAuth)) => Err(folder.refusal(error)),
        Err(CallError::Left(error)) if error.is_lock_lost() || error.is_forked() => Err(error),
        Err(not_yet) => {
            if !tenure.epoch().lease().is_alive() {
                return Err(tenure.loss());
            }
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

/// Ends a tenure by a node whose name others use, too: if ours was lost, another's may be there
/// now.
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
