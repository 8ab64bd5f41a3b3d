//! The verbs on several folders at once: in one write, and as far as it changes anything,
//! in one transaction.

use std::sync::Arc;

use zklock_protocol::{Children, Request};

use super::backend::{Answer, Batching};
use super::call_error::Step;
use super::contact::Contact;
use super::orphan::Orphan;
use super::pending_call::deletes;
use super::verbs::{Changes, names_in};
use super::watches::Watch;

/// A folder to list, and the watch that the list leaves there, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Listing<'a> {
    pub(crate) folder: &'a str,
    pub(crate) watch: Option<&'a Watch>,
}

/// The outcome of [`Contact::change_all_and_list`].
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
        let lists = listings
            .iter()
            .zip(answers)
            .map(|(listing, answer)| self.judge_and_arm(answer, listing.watch).map(names_in));
        lists.collect()
    }

    /// Deletes nodes of ours in one transaction, and does not wait for it. If that is refused, as
    /// when somebody has removed one of them, or its answer is lost, each goes by itself in the
    /// background.
    pub(crate) fn take_back(&self, paths: Vec<String>) {
        let (session, epoch) = (Arc::clone(self.session()), Arc::clone(self.epoch()));
        let requests = vec![Request::Multi(deletes(&paths))];
        let reap_each = move || {
            for path in paths {
                session.reap(Orphan::Node { path }, &epoch);
            }
        };
        let Ok(call) = self.start(requests, Batching::Never) else {
            return reap_each();
        };
        call.leave_to(move |_, mut judged| {
            let judged = judged.pop().expect("one for each request");
            if !matches!(judged.map(Changes::told), Ok(Changes::Made(_))) {
                reap_each();
            }
        });
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
