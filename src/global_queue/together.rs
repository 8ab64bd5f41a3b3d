//! Several queues entered at once: our nodes are all created by one transaction, or none is, and
//! the lists of all folders come back with it.
//!
//! # No circle
//! Whoever takes several locks one by one, in the canonical order, waits for one while it holds
//! those before it and has nothing in the queues of those after it. Such waiters never wait in a
//! circle: somebody among them waits for the last lock of all that are waited for, whose holder
//! waits for none.
//!
//! Here nodes stand in all queues at once, so a node of ours may keep others waiting at a later
//! lock while somebody is ahead of us at an earlier one. But nobody *waits* then: the request is
//! answered whatever others do, or its connection breaks. Before this thread waits for the first
//! lock at which the lists do not show it first, it has
//! - begun tenures at the locks before that one, so that it holds them as if it had taken them one
//!   by one,
//! - kept its node there: it is the one that it would have made now,
//! - sent one transaction that takes back the nodes at all locks after it, and given up its
//!   process's lead there. That transaction needs nobody's consent; refused or lost, its deletes
//!   go on in the background until they are confirmed or the session has ended.
//!
//! So whenever it waits for a lock, it stands as if it had come there one by one. Others who met
//! one of our nodes in its short life wait for its deletion, as for that of any other, and wake.
//!
//! # Held means proven
//! Each list is the same proof as after a create by itself: it was made on the connection that the
//! tenure begins on, and it shows our node with nobody ahead. The transaction answers with the
//! nodes' names, but not with its own number, so a fencing token is asked for when it is wanted.

use zklock_protocol::{Children, Request};

use super::acquire::{AcquireRequest, Acquisition};
use super::contender::Contender;
use super::queue::{GlobalQueue, Obstacle};
use crate::error::Error;
use crate::session::observe::say;
use crate::session::{
    CallError, ChangedAndListed, Changes, Contact, Created, Listing, Step, Wake, Watch, new_node,
};
use crate::znode::path::split;
use crate::znode::verdict::Verdict;
use std::sync::Arc;

/// One of several queues to enter: our contender, which has no node yet, and what for.
pub(crate) struct Entrant<'a> {
    pub(crate) queue: &'a GlobalQueue,
    pub(crate) contender: &'a mut Contender,
    pub(crate) request: AcquireRequest<'a>,
}

/// The outcome of entering several queues.
#[derive(Default)]
pub(crate) struct Entered {
    /// For the first of them, as many as were won.
    pub(crate) acquired: Vec<Acquisition>,
    /// The watch that was left on the folder of the next one, where our node stays. To be kept
    /// until there is another, so that it is not taken off the server in between.
    pub(crate) watch: Option<Watch>,
}

/// The outcome of a try of several queues.
pub(crate) enum Tried {
    Held(Vec<Acquisition>),
    /// There was somebody in this one.
    Busy(usize),
    /// To be tried one by one: folders are missing, or one is kept, perhaps with nobody inside.
    Singly,
}

/// Enters all queues at once. Wins the first of them, up to one that is not free; there the
/// contender is kept, and waits to be gone on from; and from the others all is taken back.
///
/// An error is that the caller's limits are over, or that the requests break connections.
pub(crate) fn enter_together(contact: &Contact<'_>, entrants: &mut [Entrant<'_>]) -> Step<Entered> {
    let EnteredAll { mut looks, .. } = enter(contact, entrants)?;
    let acquired = win(contact, entrants, &mut looks);
    // The contender is kept at the first that was not won.
    let kept = acquired.len();
    let watch = looks.get_mut(kept).and_then(|look| look.watch.take());
    if kept < entrants.len() {
        let behind = looks.split_off(kept + 1);
        take_back(contact, &mut entrants[kept + 1..], behind);
    }
    Ok(Entered { acquired, watch })
}

/// Takes all or none, without waiting, and writes nothing if somebody is seen in one of them.
pub(crate) fn try_entering(contact: &Contact<'_>, entrants: &mut [Entrant<'_>]) -> Step<Tried> {
    let folders: Vec<_> = entrants.iter().map(|one| one.listing(None)).collect();
    let lists = contact.list_all(&folders)?;
    let mut singly = false;
    for (at, (entrant, children)) in entrants.iter().zip(lists).enumerate() {
        let obstacle = children.and_then(|children| {
            entrant.queue.refuse_other_kind(None, &children)?;
            Ok(entrant.queue.obstacle(&children))
        });
        match obstacle {
            Ok(Obstacle::Nothing) => {}
            Ok(Obstacle::Somebody) => return Ok(Tried::Busy(at)),
            Ok(Obstacle::PerhapsNobodyInside) | Err(CallError::Refused(_)) => singly = true,
            Err(error) => return Err(error),
        }
    }
    if singly {
        return Ok(Tried::Singly);
    }
    let EnteredAll { mut looks, made } = enter(contact, entrants)?;
    match made {
        Ok(()) => {}
        Err(CallError::Refused(_)) => return Ok(Tried::Singly),
        // What may stand is looked for by the sweep.
        Err(error) => return Err(error),
    }
    if let Some(at) = looks.iter().position(|look| look.verdict.is_none()) {
        take_back(contact, entrants, looks);
        return Ok(Tried::Busy(at));
    }
    let acquired = win(contact, entrants, &mut looks);
    let not_won = looks.split_off(acquired.len());
    take_back(contact, &mut entrants[acquired.len()..], not_won);
    Ok(Tried::Held(acquired))
}

/// The outcome of creating our nodes and listing their folders.
struct EnteredAll {
    looks: Vec<FolderLook>,
    /// Whether our nodes were created; if not, none was.
    made: Step<()>,
}

/// Our place in one folder, by its list.
struct FolderLook {
    /// If we are first: whether others are behind us.
    verdict: Option<bool>,
    watch: Option<Watch>,
    /// Our node is in the list, so its deletion fires the watch.
    is_listed: bool,
}

fn enter(contact: &Contact<'_>, entrants: &mut [Entrant<'_>]) -> Step<EnteredAll> {
    let fresh = |one: &Entrant<'_>| one.queue.folder.fresh_name(one.queue.class);
    let names: Vec<_> = entrants.iter().map(fresh).collect();
    let creates = entrants.iter().zip(&names);
    let creates = creates.map(|(entrant, name)| entrant.create(name));
    let watches: Vec<_> = entrants.iter().map(|one| one.watch(contact)).collect();
    let listings = entrants.iter().zip(&watches);
    let listings: Vec<_> = listings
        .map(|(entrant, watch)| entrant.listing(watch.as_ref()))
        .collect();
    let ChangedAndListed { changed, lists } =
        contact.change_all_and_list(creates.collect(), &listings)?;
    let made = note_created(contact, entrants, names, changed);
    if let Err(CallError::Left(error)) = made {
        return Err(CallError::Left(error));
    }
    let each = entrants.iter().zip(lists).zip(watches);
    let looks = each.map(|((entrant, children), watch)| entrant.look(contact, children, watch));
    let looks = looks.collect();
    Ok(EnteredAll { looks, made })
}

/// Takes note of what became of our nodes, and says whether they were created.
fn note_created(
    contact: &Contact<'_>,
    entrants: &mut [Entrant<'_>],
    names: Vec<String>,
    created: Step<Changes>,
) -> Step<()> {
    match created {
        Ok(Changes::Made(made)) => {
            let made = made.into_iter().map(Created::of);
            let mut unreadable = Ok(());
            for ((entrant, name), made) in entrants.iter_mut().zip(names).zip(made) {
                let made = made.expect("a create is answered with a node");
                entrant
                    .contender
                    .note_created(contact, vec![name], vec![Ok(made)])?;
                unreadable = unreadable.and(entrant.contender.refuse_unreadable());
                if entrant.contender.is_not_created() {
                    continue;
                }
                let (_, own) = split(&entrant.contender.nodes()[0].path);
                (entrant.request.entered)(own);
            }
            unreadable
        }
        Ok(Changes::Refused { index, refusal }) => {
            // Whoever asks for each by itself makes the folder that is missing, or says what is
            // wrong.
            let folder = &entrants[index].queue.folder;
            let (session, path) = (folder.session(), folder.path());
            say!(session, Debug, "{path}: {refusal}; not taken with others");
            Err(CallError::Refused(refusal))
        }
        Err(error) if error.may_be_done() => {
            for (entrant, name) in entrants.iter_mut().zip(names) {
                let unknown = Err(CallError::Unknown);
                // It is looked for by whoever goes on from there, or by the sweep.
                let _ = entrant
                    .contender
                    .note_created(contact, vec![name], vec![unknown]);
            }
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Begins tenures, as far as that goes: on a connection that is gone none begins.
fn win(
    contact: &Contact<'_>,
    entrants: &mut [Entrant<'_>],
    looks: &mut [FolderLook],
) -> Vec<Acquisition> {
    let each = entrants.iter_mut().zip(looks);
    each.map_while(|(entrant, look)| {
        let others_behind = look.verdict?;
        let mut attempt = entrant.queue.attempt(entrant.contender, &entrant.request);
        attempt.folder_watch = look.watch.take();
        // What is not proven is for whoever goes on from there.
        attempt.win(contact, others_behind).ok().flatten()
    })
    .collect()
}

/// Leaves these queues, in one transaction. A contender whose create was not answered is
/// left to whoever goes on from it.
fn take_back(contact: &Contact<'_>, entrants: &mut [Entrant<'_>], looks: Vec<FolderLook>) {
    let contenders = entrants.iter_mut().map(|entrant| &mut *entrant.contender);
    let nodes = contenders.flat_map(Contender::take_nodes);
    let nodes: Vec<_> = nodes.map(|node| node.path).collect();
    if !nodes.is_empty() {
        contact.take_back(nodes);
    }
    for look in looks {
        if let Some(watch) = look.watch.filter(|_| look.is_listed) {
            watch.forget();
        }
    }
}

impl Entrant<'_> {
    /// About how much of a request this makes.
    pub(crate) fn bytes(&self) -> usize {
        // A name, an access list, lengths.
        const OVERHEAD: usize = 256;
        self.queue.folder.path().as_str().len() + self.request.data.len() + OVERHEAD
    }

    /// The error of a call that is not tried again.
    pub(crate) fn failure(&self, error: CallError) -> Error {
        self.queue.folder.failure(error)
    }

    fn create(&self, name: &str) -> Request {
        let folder = &self.queue.folder;
        let mode = folder.grammar().mode(self.queue.class);
        new_node(folder.child(name), &self.request.data, mode)
    }

    fn watch(&self, contact: &Contact<'_>) -> Option<Watch> {
        let wake = || Wake::Signal(Arc::clone(contact.signal()));
        let wanted = self.request.wants_news;
        wanted.then(|| self.queue.folder.watch(contact, Some(wake())))
    }

    fn listing<'w>(&'w self, watch: Option<&'w Watch>) -> Listing<'w> {
        Listing {
            folder: self.queue.folder.path().as_str(),
            watch,
        }
    }

    fn look(
        &self,
        contact: &Contact<'_>,
        children: Step<Children>,
        watch: Option<Watch>,
    ) -> FolderLook {
        let mut look = FolderLook {
            verdict: None,
            watch,
            is_listed: false,
        };
        if let (Ok(children), true) = (children, self.contender.is_entered(contact)) {
            let (_, own) = split(&self.contender.nodes()[0].path);
            look.is_listed = children.iter().any(|child| child == own);
            // Where a tie must be broken, or a lock of another kind is refused, whoever goes on from
            // here does it.
            let alone = self.queue.refuse_other_kind(Some(own), &children);
            if alone.is_ok()
                && let Verdict::Held { others_behind } = self.queue.verdict(own, &children)
            {
                look.verdict = Some(others_behind);
            }
        }
        look
    }
}
