//! Where N members meet: all go in together, and out together.
//!
//! Each member has a node in the folder. Whoever finds that all are there makes one node more,
//! `ready`. A member goes on when `ready` is *younger than its own node*: then it was counted among
//! those who were there. A count alone would not do: the fast members may have left before the slow
//! ones look. An older `ready` belongs to members who have not all left yet, or who all died; in
//! the latter case the first of those who wait removes it.

mod way_out;

use zklock_protocol::{Children, Stat, WatchKind};

use crate::session::observe::say;
use std::sync::Arc;

use super::acquire::AcquireRequest;
use super::contender::Contender;
use super::folder::{Folder, make_node};
use crate::error::Result;
use crate::session::{
    CallError, Contact, Refusal, Session, Step, Waiter, Wake, Watch, found, gone,
};
use crate::tenure::{NewTenure, Tenure};
use crate::znode::names::{Class, Grammar};
use crate::znode::path::{LockPath, split};

/// The name of the node that says that all are there.
const READY: &str = "ready";

/// The folder in which members meet.
pub(crate) struct Rendezvous {
    folder: Arc<Folder>,
    /// How many must meet.
    members: usize,
}

/// A member that is inside.
pub(crate) struct Member {
    pub(crate) tenure: Arc<Tenure>,
    /// The names of those who were in the folder when we went in, ours among them.
    met: Vec<String>,
    /// The transaction that made our `ready`, unless it was gone by then.
    ready: Option<i64>,
    way_out: WayOut,
}

/// How far a member has come in leaving.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WayOut {
    Inside,
    /// Its node's delete was asked for, and is not confirmed.
    Leaving,
    /// Its node is gone.
    Gone,
}

/// How often one try looks again when something changes under its eyes: a stale `ready` goes, one
/// of ours is made, and is seen.
const TRIES: usize = 5;

/// The outcome of one look.
enum Looked {
    In(Member),
    Again,
    /// Somebody is missing, or those before us are still inside.
    Missing {
        was_not_ready: bool,
        met: Vec<String>,
        /// Of our own node.
        czxid: i64,
    },
}

/// One member on its way in, and the watches that it has left.
struct Arrival<'a> {
    at: &'a Rendezvous,
    contender: Contender,
    request: &'a AcquireRequest<'a>,
    /// Our node and its own transaction, asked for once for each node, unless the create told it.
    own: Option<(String, i64)>,
    /// On the folder, for its children.
    folder_watch: Option<Watch>,
    /// On `ready`.
    ready_watch: Option<Watch>,
    /// Our node (its own transaction), if the last look found no `ready`.
    looked_without: Option<i64>,
    /// Our node, if it was there when `ready` was made: then it was counted, whatever became of
    /// `ready` since.
    counted: Option<i64>,
}

impl Rendezvous {
    pub(crate) fn new(
        session: &Arc<Session>,
        path: LockPath,
        grammar: Grammar,
        members: usize,
    ) -> Self {
        Self {
            folder: Folder::of_marked_nodes(session, path, grammar, true),
            members,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.folder.session()
    }

    pub(crate) fn path(&self) -> &LockPath {
        self.folder.path()
    }

    pub(crate) fn members(&self) -> usize {
        self.members
    }

    /// Enters, and waits until all members are there.
    pub(crate) fn meet(&self, waiter: &Waiter<'_>, request: &AcquireRequest<'_>) -> Result<Member> {
        let mut attempt = self.attempt(request);
        self.folder.retry(waiter, |contact| attempt.step(contact))
    }

    /// As [`Rendezvous::meet`], without waiting: goes in if all the others are there.
    pub(crate) fn try_meet(
        &self,
        waiter: &Waiter<'_>,
        request: &AcquireRequest<'_>,
    ) -> Result<Option<Member>> {
        let mut attempt = self.attempt(request);
        let met = waiter.contact_now().and_then(|contact| {
            for _ in 0..TRIES {
                match attempt.look(&contact)? {
                    Looked::In(member) => return Ok(Some(member)),
                    Looked::Again => {}
                    Looked::Missing { .. } => return Ok(None),
                }
            }
            Ok(None)
        });
        met.map_err(|error| self.folder.failure(error))
    }

    fn attempt<'a>(&'a self, request: &'a AcquireRequest<'a>) -> Arrival<'a> {
        Arrival {
            at: self,
            contender: Contender::new(&self.folder),
            request,
            own: None,
            folder_watch: None,
            ready_watch: None,
            looked_without: None,
            counted: None,
        }
    }

    fn members_among<'a>(&self, children: &'a Children) -> impl Iterator<Item = &'a str> {
        children
            .iter()
            .filter(|name| self.folder.grammar().parse(name).is_some())
    }

    /// Whether a `ready` that is older than our node belongs to nobody any more, and it is up to
    /// us, the oldest of those who are there, to remove it.
    fn is_left_over(
        &self,
        ready: &Stat,
        own: i64,
        met: &[String],
        contact: &Contact<'_>,
    ) -> Step<bool> {
        for name in met {
            let stat = self.folder.stat(contact, name)?;
            // A member older than `ready` is still inside; one older than we are removes `ready`.
            if stat.is_some_and(|stat| stat.czxid < ready.czxid || stat.czxid < own) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Arrival<'_> {
    fn step(&mut self, contact: &Contact<'_>) -> Step<Option<Member>> {
        match self.look(contact)? {
            Looked::In(member) => Ok(Some(member)),
            Looked::Again => Ok(None),
            Looked::Missing {
                was_not_ready,
                met,
                czxid,
            } => self.wait(contact, was_not_ready, met, czxid),
        }
    }

    fn look(&mut self, contact: &Contact<'_>) -> Step<Looked> {
        let at = self.at;
        if !self.contender.is_entered(contact) {
            // The list comes with the create at no cost; what counts is the one below.
            let entered =
                self.contender
                    .enter_and_list(contact, Class::Member, self.request, None)?;
            if entered.children.is_none() {
                return Ok(Looked::Again);
            }
        }
        let Some((node, czxid)) = self.own_transaction(contact)? else {
            self.contender.removed();
            return Ok(Looked::Again);
        };
        // Both watches are left before the count, so nothing that happens after it is missed.
        let ready_path = at.folder.child(READY);
        let Some((ready, children)) = self.look_around(contact, &ready_path, czxid)? else {
            return Ok(Looked::Again);
        };
        let Some(children) = children else {
            self.contender.folder_gone();
            return Ok(Looked::Again);
        };
        let met: Vec<_> = at.members_among(&children).map(str::to_owned).collect();
        if !met.iter().any(|name| name == split(&node).1) {
            self.contender.removed();
            return Ok(Looked::Again);
        }
        match ready {
            Some(ready) if ready.czxid > czxid => {
                let member = self.go_in(contact, met, Some(ready.czxid))?;
                return Ok(member.map_or(Looked::Again, Looked::In));
            }
            Some(ready) => {
                if at.is_left_over(&ready, czxid, &met, contact)? {
                    remove_exactly(contact, &ready_path, ready.czxid)?;
                    return Ok(Looked::Again);
                }
            }
            // kazoo's members remove it as soon as one of them leaves. With whom we were counted is not
            // known then: with all who are there.
            None if self.counted == Some(czxid) => {
                let member = self.go_in(contact, met, None)?;
                return Ok(member.map_or(Looked::Again, Looked::In));
            }
            None if met.len() >= at.members => {
                make_node(contact, &ready_path, &self.request.data)?;
                // The next look sees it, and that it is younger than we.
                return Ok(Looked::Again);
            }
            None => self.request.report(at.members - met.len()),
        }
        Ok(Looked::Missing {
            was_not_ready: ready.is_none(),
            met,
            czxid,
        })
    }

    /// Takes note of it if `ready` was made while our node was there, by the word of this watch on it.
    fn note_ready(&mut self, watch: Option<&Watch>) {
        if let (Some(czxid), Some(watch)) = (self.looked_without, watch)
            && watch.state().created_at().is_some()
        {
            self.counted = Some(czxid);
        }
    }

    /// Whether `ready` was made after the last look, by the word of the watch of the look before. The
    /// event can be here before the look's answers are taken; then these say neither that `ready` is
    /// gone again nor who has come.
    fn has_come_since(&self, watch_before: Option<&Watch>) -> bool {
        let created = watch_before.and_then(|watch| watch.state().created_at());
        let looked = self.ready_watch.as_ref();
        created.is_some_and(|event| looked.is_some_and(|look| look.was_left_before(event)))
    }

    fn own_transaction(&mut self, contact: &Contact<'_>) -> Step<Option<(String, i64)>> {
        let node = &self.contender.nodes()[0];
        if let Some(czxid) = node.czxid {
            return Ok(Some((node.path.clone(), czxid)));
        }
        if self
            .own
            .as_ref()
            .is_none_or(|(known, _)| *known != node.path)
        {
            let stat = contact.stat(&node.path)?;
            self.own = stat.map(|stat| (node.path.clone(), stat.czxid));
        }
        Ok(self.own.clone())
    }

    /// `ready`, and who is there, in this order and one write. No children if the folder is gone;
    /// `None` if `ready` came after the look. `own` is our node.
    ///
    /// Either can be refused for now, and `ready` may be gone when it is looked at again. So whatever
    /// was told of `ready` counts at once, and the watch before this look's stays until that is there.
    /// (Whether our node still stands, the list says before we go in.)
    fn look_around(
        &mut self,
        contact: &Contact<'_>,
        ready: &str,
        own: i64,
    ) -> Step<Option<(Option<Stat>, Option<Children>)>> {
        let watch_before = self.ready_watch.take();
        self.note_ready(watch_before.as_ref());
        let wake = || Some(Wake::Signal(Arc::clone(contact.signal())));
        let ready = Watch::new(contact, ready, WatchKind::DATA, wake());
        let folder = self.at.folder.watch(contact, wake());
        let folder = self.folder_watch.insert(folder);
        let looked = contact.watch_stat_and_children(&ready, folder);
        self.note_ready(watch_before.as_ref());
        let (seen, listed) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                self.ready_watch = watch_before;
                return Err(error);
            }
        };
        self.ready_watch = Some(ready);
        self.looked_without = seen.is_none().then_some(own);
        if seen.is_some_and(|ready| ready.czxid > own) {
            self.counted = Some(own);
        }
        if seen.is_none() && self.has_come_since(watch_before.as_ref()) {
            return Ok(None);
        }
        Ok(Some((seen, found(listed)?)))
    }

    /// Waits once. Those of `met` were there when we looked, and `ready` was not if
    /// `was_not_ready`.
    fn wait(
        &mut self,
        contact: &Contact<'_>,
        was_not_ready: bool,
        met: Vec<String>,
        czxid: i64,
    ) -> Step<Option<Member>> {
        let (Some(ready), Some(folder)) = (&self.ready_watch, &self.folder_watch) else {
            unreachable!("left with the looks");
        };
        contact.sleep_until_any(&[ready, folder])?;
        // It was made after our node, and we were counted; kazoo's members remove it as soon as one
        // of them leaves. Nobody came between the list and that, or we would not know all whom we
        // met.
        let Some(created) = ready.state().created_at().filter(|_| was_not_ready) else {
            return Ok(None);
        };
        if !folder.is_sure(contact) || !folder.state().is_silent_before(created) {
            return Ok(None);
        }
        let stat = self.at.folder.stat(contact, READY)?;
        let ready = stat.filter(|ready| ready.czxid > czxid);
        self.go_in(contact, met, ready.map(|ready| ready.czxid))
    }

    fn go_in(
        &mut self,
        contact: &Contact<'_>,
        met: Vec<String>,
        ready: Option<i64>,
    ) -> Step<Option<Member>> {
        let Some(tenure) = Tenure::begin(contact, NewTenure::of(self.contender.nodes()))? else {
            return Ok(None);
        };
        self.contender.disown();
        let (node, there) = (tenure.node(), met.len());
        say!(
            contact.session(),
            Debug,
            "{node}: entered, {there} are there"
        );
        Ok(Some(Member {
            tenure,
            met,
            ready,
            way_out: WayOut::Inside,
        }))
    }
}

/// Deletes a node, but not one that was made in its place meanwhile.
///
/// A delete can be made to depend on the data's version, which is 0 for the old node and for a new
/// one alike. So the data is set first, whose answer tells which node it was; the version that this
/// node has now is one that no other has.
///
/// Several may be at it. Whoever finds that another was faster looks again: that one may be
/// cancelled before its delete.
fn remove_exactly(contact: &Contact<'_>, path: &str, czxid: i64) -> Step<()> {
    let is_it = |stat: &Stat| stat.czxid == czxid;
    loop {
        let Some(seen) = contact.stat(path)?.filter(is_it) else {
            return Ok(());
        };
        let set = match contact.set(path, &[], Some(seen.version)) {
            Ok(set) => set,
            Err(CallError::Refused(Refusal::NoNode | Refusal::BadVersion)) => continue,
            Err(error) => return Err(error),
        };
        if !is_it(&set) {
            return Ok(());
        }
        if remove_version(contact, path, &set)? {
            return Ok(());
        }
    }
}

/// Deletes a node if its data has not been changed since. Returns whether it is gone.
fn remove_version(contact: &Contact<'_>, path: &str, node: &Stat) -> Step<bool> {
    match gone(contact.delete(path, Some(node.version))) {
        Ok(_) => Ok(true),
        Err(CallError::Refused(Refusal::BadVersion)) => Ok(false),
        Err(error) => Err(error),
    }
}
