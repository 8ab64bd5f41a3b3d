//! What is asked for in several folders at once: in one write, and as far as it changes anything,
//! in one transaction.

use std::sync::Arc;

use zklock_protocol::{ANY_VERSION, Children, Reply, Request};

use super::backend::{Answer, Batching};
use super::call_error::Step;
use super::contact::{Changes, Contact};
use super::orphan::Orphan;
use super::own_call::OwnCall;
use super::watches::Watch;
use crate::wait::signal::Signal;

/// A folder to list, and the watch that the list leaves there, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Listing<'a> {
    pub(crate) folder: &'a str,
    pub(crate) watch: Option<&'a Watch>,
}

/// What [`Contact::change_all_and_list`] came to.
pub(crate) struct ChangedAndListed {
    pub(crate) changed: Step<Changes>,
    /// For each folder, in their order.
    pub(crate) lists: Vec<Step<Children>>,
}

impl Contact<'_> {
    /// Makes all of these changes or none, and lists the folders, in one write: the lists are
    /// answered after the changes and see them.
    pub(crate) fn change_all_and_list(
        &self,
        changes: Vec<Request>,
        listings: &[Listing<'_>],
    ) -> Step<ChangedAndListed> {
        let lists = listings.iter().map(Listing::request);
        let requests = [Request::Multi(changes)].into_iter().chain(lists);
        let mut answers = self
            .send_in(batching_of(listings), requests.collect())?
            .into_iter();
        let changed = answers.next().expect("one for each request");
        let changed = self.judge(changed).map(Changes::told);
        let lists = self.lists(listings, answers);
        Ok(ChangedAndListed { changed, lists })
    }

    /// Lists folders in one write. One list for each.
    pub(crate) fn list_all(&self, listings: &[Listing<'_>]) -> Step<Vec<Step<Children>>> {
        let lists = listings.iter().map(Listing::request).collect();
        let answers = self.send_in(batching_of(listings), lists)?;
        Ok(self.lists(listings, answers.into_iter()))
    }

    fn lists(
        &self,
        listings: &[Listing<'_>],
        answers: impl Iterator<Item = Answer>,
    ) -> Vec<Step<Children>> {
        let lists = listings.iter().zip(answers).map(|(listing, answer)| {
            let reply = self.judge_and_arm(answer, listing.watch)?;
            match reply {
                Reply::Children(children) => Ok(children),
                _ => unreachable!("a list is answered with names"),
            }
        });
        lists.collect()
    }

    /// Deletes nodes of ours in one transaction, and does not wait for it. If that is refused, as
    /// when somebody has removed one of them, or its answer is lost, each goes by itself in the
    /// background.
    pub(crate) fn take_back(&self, paths: Vec<String>) {
        let deletes = paths.iter().map(|path| Request::Delete {
            path: path.clone(),
            version: ANY_VERSION,
        });
        let requests = vec![Request::Multi(deletes.collect())];
        let (session, connection) = (Arc::clone(self.session()), self.connection().clone());
        // Nobody waits for it.
        let signal = Arc::new(Signal::new());
        let call = OwnCall::submit(&session, &connection, requests, Batching::Never, &signal);
        let reap_each = {
            let (session, epoch) = (Arc::clone(&session), Arc::clone(self.epoch()));
            move || {
                for path in paths {
                    session.reap(Orphan::Node { path }, &epoch);
                }
            }
        };
        let Ok(call) = call else {
            return reap_each();
        };
        call.leave_to(Box::new(move |mut answers| {
            let answer = answers.pop().expect("one for each request");
            let judged = Contact::patient(&session, connection).judge(answer);
            if !matches!(judged.map(Changes::told), Ok(Changes::Made(_))) {
                reap_each();
            }
        }));
    }
}

/// Lists that leave no watch go in one packet. It comes after the changes, which are a packet of
/// their own in any case.
fn batching_of(listings: &[Listing<'_>]) -> Batching {
    if listings.iter().all(|listing| listing.watch.is_none()) {
        Batching::Allowed
    } else {
        Batching::Never
    }
}

impl Listing<'_> {
    fn request(&self) -> Request {
        Request::GetChildren {
            path: self.folder.to_owned(),
            watch: self.watch.is_some(),
        }
    }
}
