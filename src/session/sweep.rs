//! One slice of a sweep: some orphans, removed in three round trips, however many they are.

use zklock_protocol::{ANY_VERSION, Children, Reply, Request};

use crate::session::observe::say;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Session;
use super::backend::{Batching, Refusal};
use super::call_error::CallError;
use super::contact::Contact;
use super::orphan::{Orphan, OwnedOrphan};
use super::pending_call::deletes;
use super::verbs::{Seen, exists, list, names_in, seen};

/// The outcome of a slice.
#[derive(Default)]
pub(super) struct Swept {
    pub(super) removed: usize,
    /// Those that are to be tried again.
    pub(super) kept: Vec<OwnedOrphan>,
    pub(super) why: Option<KeptWhy>,
}

/// Why an orphan is to be tried again.
#[derive(Clone, Debug)]
pub(super) enum KeptWhy {
    /// Once there is another connection.
    OutOfContact,
    /// After a pause.
    ForNow(String),
}

/// Why a request about an orphan was not done.
#[derive(Clone, Debug)]
enum No {
    /// There is no such node.
    Gone,
    /// We may not look, or not delete. Nobody else can do it for us.
    Forbidden,
    Yet(KeptWhy),
}

impl From<CallError> for No {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(Refusal::NoNode) => Self::Gone,
            CallError::Refused(Refusal::NoAuth) => Self::Forbidden,
            CallError::NotSent(_) | CallError::Unknown => Self::Yet(KeptWhy::OutOfContact),
            CallError::NotNow(why) => Self::Yet(KeptWhy::ForNow(why.to_string())),
            // Nothing of that says that the node is gone.
            CallError::Refused(refusal) => Self::Yet(KeptWhy::ForNow(refusal.to_string())),
            CallError::Left(error) => Self::Yet(KeptWhy::ForNow(error.to_string())),
        }
    }
}

/// Of one orphan: the nodes that are ours and must go.
type Meant = Result<Vec<String>, No>;

impl Session {
    /// Removes what it can of these.
    pub(super) fn remove_all(self: &Arc<Self>, slice: Vec<OwnedOrphan>) -> Swept {
        let mut swept = Swept::default();
        let alive = slice.into_iter().filter(|(_, of)| of.is_alive());
        let mut orphans: Vec<_> = alive.collect();
        let Ok(contact) = self.contact() else {
            swept.kept = orphans;
            swept.why = Some(KeptWhy::OutOfContact);
            return swept;
        };
        // The others went with their session.
        orphans.retain(|(_, of)| of.number() == contact.epoch().number());
        let results = delete(&contact, look_for(&contact, &orphans));
        for (left, result) in orphans.into_iter().zip(results) {
            match result {
                Ok(()) | Err(No::Gone) => swept.removed += 1,
                Err(No::Forbidden) => say!(
                    self,
                    Warn,
                    "{}: cannot remove {}: access refused; it stays until the session ends",
                    self.target(),
                    left.0
                ),
                Err(No::Yet(why)) => swept.keep(left, why),
            }
        }
        swept
    }
}

impl Swept {
    fn keep(&mut self, left: OwnedOrphan, why: KeptWhy) {
        self.kept.push(left);
        if !matches!(self.why, Some(KeptWhy::OutOfContact)) {
            self.why = Some(why);
        }
    }
}

/// Finds out which nodes are meant.
///
/// A list may come from a server that lags behind the one that took a create, and an earlier delete
/// of ours may still be on its way. So a write goes before all looks, in the same packet; see
/// [`created`](super::created). Owners are looked at for the reason that is told there.
fn look_for(contact: &Contact<'_>, orphans: &[OwnedOrphan]) -> Vec<Meant> {
    let mut looks = Looks::at(contact, orphans);
    let session_id = contact.epoch().session_id();
    let mut candidates = Vec::new();
    let mut meant: Vec<Meant> = Vec::with_capacity(orphans.len());
    for (at, (orphan, _)) in orphans.iter().enumerate() {
        meant.push(match orphan {
            Orphan::Node { path } => Ok(vec![path.clone()]),
            Orphan::Created { folder, prefix } => looks.list(folder).map(|children| {
                let found = children.iter().filter(|name| name.starts_with(prefix));
                candidates.extend(found.map(|name| (at, format!("{folder}/{name}"))));
                Vec::new()
            }),
            Orphan::Plain { path, proof } => looks.data().map(|(data, stat)| {
                let known = proof.is_of(&data, stat.czxid);
                let ours = known && stat.ephemeral_owner == session_id;
                ours.then(|| path.clone()).into_iter().collect()
            }),
        });
    }
    let stats = candidates.iter().map(|(_, path)| exists(path, false));
    let stats = ask(contact, stats.collect());
    for ((at, path), stat) in candidates.into_iter().zip(stats) {
        match (stat, &mut meant[at]) {
            (Ok(Reply::Stat(stat)), Ok(paths)) if stat.ephemeral_owner == session_id => {
                paths.push(path);
            }
            // Of the others that may be meant this says nothing.
            (Err(No::Gone), _) => {}
            (Err(no), result) => *result = Err(no),
            _ => {}
        }
    }
    meant
}

/// The looks where orphans may be.
struct Looks<'a> {
    lists: BTreeMap<&'a str, Result<Children, No>>,
    /// Of the plain ones, in their order.
    data: std::vec::IntoIter<Result<Reply, No>>,
    /// The write before has failed, so nothing of this says anything.
    unsure: Option<No>,
}

impl<'a> Looks<'a> {
    fn at(contact: &Contact<'_>, orphans: &'a [OwnedOrphan]) -> Self {
        let (mut flush, mut lists, mut data) = (None, BTreeMap::new(), Vec::new());
        for (orphan, _) in orphans {
            let missing = match orphan {
                Orphan::Node { .. } => continue,
                Orphan::Created { folder, prefix } => {
                    lists.insert(folder.as_str(), Err(No::Gone));
                    format!("{folder}/{prefix}flush")
                }
                Orphan::Plain { path, .. } => {
                    let path = path.clone();
                    let missing = format!("{path}/flush");
                    data.push(Request::GetData { path, watch: false });
                    missing
                }
            };
            flush.get_or_insert(missing);
        }
        let flush = flush.map(|path| Request::Delete {
            path,
            version: ANY_VERSION,
        });
        let is_flushed = flush.is_some();
        let folders = lists.keys().map(|folder| list(folder, false));
        let requests = flush.into_iter().chain(folders).chain(data);
        let mut answers = ask(contact, requests.collect()).into_iter();
        let unsure = match is_flushed.then(|| answers.next()).flatten() {
            // That an ACL forbids it is said after a write as well.
            None | Some(Ok(_) | Err(No::Gone | No::Forbidden)) => None,
            Some(Err(no)) => Some(no),
        };
        for list in lists.values_mut() {
            *list = answers.next().expect("one for each request").map(names_in);
        }
        let data = answers.collect::<Vec<_>>().into_iter();
        Self {
            lists,
            data,
            unsure,
        }
    }

    fn list(&self, folder: &str) -> Result<&Children, No> {
        if let Some(no) = &self.unsure {
            return Err(no.clone());
        }
        let list = self.lists.get(folder).expect("each folder was listed");
        list.as_ref().map_err(Clone::clone)
    }

    /// Of the next plain one.
    fn data(&mut self) -> Result<Seen, No> {
        let data = self.data.next().expect("each was looked at");
        if let Some(no) = &self.unsure {
            return Err(no.clone());
        }
        data.map(seen)
    }
}

/// Deletes the nodes that are meant. An orphan is gone when all of its nodes are.
fn delete(contact: &Contact<'_>, meant: Vec<Meant>) -> Vec<Result<(), No>> {
    let paths = meant.iter().flatten().flatten();
    let mut answers = ask(contact, deletes(paths)).into_iter();
    let each = meant.into_iter().map(|paths| {
        let mut result = Ok(());
        for _ in paths? {
            match answers.next().expect("one for each request") {
                Ok(_) | Err(No::Gone) => {}
                Err(no) => result = Err(no),
            }
        }
        result
    });
    each.collect()
}

/// Sends requests together, and waits for all answers.
fn ask(contact: &Contact<'_>, requests: Vec<Request>) -> Vec<Result<Reply, No>> {
    let count = requests.len();
    if count == 0 {
        return Vec::new();
    }
    match contact.send_in(Batching::Never, requests) {
        Ok(answers) => answers
            .into_iter()
            .map(|answer| contact.judge(answer).map_err(No::from))
            .collect(),
        Err(error) => {
            let no = No::from(error);
            (0..count).map(|_| Err(no.clone())).collect()
        }
    }
}
