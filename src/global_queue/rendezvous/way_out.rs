//! The way out of a rendezvous: each member's node goes first, `ready` last.

use std::sync::Arc;

use zklock_protocol::{Children, WatchKind};

use super::{Member, READY, Rendezvous, WayOut, remove_exactly, remove_version};
use crate::error::Result;
use crate::global_queue::acquire::OthersWaiting;
use crate::global_queue::release;
use crate::session::observe::say;
use crate::session::{CallError, Contact, Step, Waiter, Wake, Watch, found, gone};
use crate::tenure::Tenure;
use crate::znode::names::Dialect;
use crate::znode::path::split;

/// A member with whom we go out. Other libraries use a name again in the next round, so the node
/// counts, and not its name.
struct Peer {
    name: String,
    czxid: i64,
    /// One of this library's: it goes in and out by what this page says.
    is_ours: bool,
}

impl Rendezvous {
    /// Leaves, and waits until all have left with whom we entered.
    ///
    /// The first by name stays until the others have gone, and then removes `ready`: so `ready` is
    /// there for as long as one of them may still have to see it. All others go at once. (Whoever
    /// sees the first one sees it as the first: it stays for as long as any other does.)
    ///
    /// Nobody removes `ready` before its own node is certainly gone: whoever comes for the next
    /// round would find no `ready`, and count that node.
    pub(crate) fn part(&self, member: &mut Member, waiter: &Waiter<'_>) -> Result<()> {
        let tenure = Arc::clone(&member.tenure);
        if tenure.is_lost() {
            return Err(tenure.loss());
        }
        let (_, own) = split(tenure.node());
        let alone = member.met.iter().all(|met| met == own);
        let mut with = self.folder.retry(waiter, |contact| {
            if alone {
                return Ok(Some(Vec::new()));
            }
            let children = self.folder.list(contact)?.unwrap_or_default();
            self.peers(member, own, &children, contact).map(Some)
        })?;
        // The first by name comes last.
        with.sort_by(|a, b| b.name.cmp(&a.name));
        let stays = with.last().is_none_or(|first| own < first.name.as_str());
        let mut left = Ok(());
        if !stays {
            left = self.go_out(member, waiter)?;
        }
        for (at, peer) in with.iter().enumerate() {
            let is_last = at + 1 == with.len();
            let of_kazoo = self.folder.grammar().dialect() == Dialect::Kazoo && !peer.is_ours;
            if is_last && !stays && of_kazoo {
                // A first member of kazoo's takes `ready` for another member, and waits for it. One
                // of ours may not have seen it yet.
                self.clear_ready(member, waiter)?;
            }
            self.see_off(peer, stays.then_some(&*tenure), waiter)?;
        }
        if stays {
            left = self.go_out(member, waiter)?;
        }
        self.clear_ready(member, waiter)?;
        left
    }

    /// Removes our own node, and returns when it is gone: an error inside if somebody else has
    /// removed it.
    fn go_out(&self, member: &mut Member, waiter: &Waiter<'_>) -> Result<Result<()>> {
        member.way_out = WayOut::Leaving;
        let left = release::release_for_certain(&self.folder, &member.tenure, waiter);
        let is_gone = match &left {
            Ok(()) => true,
            // What was lost with its session may still be there.
            Err(error) => error.is_lock_lost() && member.tenure.epoch().is_alive(),
        };
        if !is_gone {
            return left.map(Ok);
        }
        member.way_out = WayOut::Gone;
        Ok(left)
    }

    /// Leaves without waiting for the others, in the background, what of that is not done yet. The
    /// last one to go takes `ready` along: left behind, it would let Curator's next members pass one
    /// by one.
    pub(crate) fn abandon(self: &Arc<Self>, member: Member) {
        let session = Arc::clone(self.session());
        if member.ready.is_none() || session.is_forked() {
            if member.way_out == WayOut::Inside {
                let news = OthersWaiting::Unknown(None);
                drop(release::start_release(&self.folder, &member.tenure, news));
            }
            return;
        }
        let this = Arc::clone(self);
        // Nobody else may be there to remove `ready` when this client has gone.
        session.submit_departure(move || {
            let left = match member.way_out {
                WayOut::Gone => Ok(()),
                // What is not confirmed is reaped, and then others clear it.
                WayOut::Inside => {
                    let news = OthersWaiting::Unknown(None);
                    release::start_release(&this.folder, &member.tenure, news).confirm()
                }
                // It is being reaped.
                WayOut::Leaving => this.see_gone(&member.tenure),
            };
            let cleared = left.and_then(|()| this.clear_if_alone(&member));
            if let Err(error) = cleared {
                let session = this.folder.session();
                say!(
                    session,
                    Debug,
                    "{}: left in the background: {error}",
                    this.path()
                );
            }
        });
    }

    /// Removes our node, if it is still there.
    fn see_gone(&self, tenure: &Tenure) -> Result<()> {
        let left = self.session().contact().and_then(|contact| {
            tenure.stands_on(&contact)?;
            gone(contact.delete(tenure.node(), None)).map(drop)
        });
        left.map_err(|error| self.folder.failure(error))
    }

    /// Removes the `ready` that let us in if nobody is inside any more.
    fn clear_if_alone(&self, member: &Member) -> Result<()> {
        let (_, own) = split(member.tenure.node());
        let peers = self.session().contact().and_then(|contact| {
            let children = self.folder.list(&contact)?.unwrap_or_default();
            let with = self.peers(member, own, &children, &contact)?;
            if let (true, Some(czxid)) = (with.is_empty(), member.ready) {
                self.remove_ready(&contact, czxid)?;
            }
            Ok(())
        });
        peers.map_err(|error| self.folder.failure(error))
    }

    /// Those of the list who entered together with us: they were there when we went in, and their
    /// nodes are older than `ready`. (A younger one has come too early for the next round.)
    fn peers(
        &self,
        member: &Member,
        own: &str,
        children: &Children,
        contact: &Contact<'_>,
    ) -> Step<Vec<Peer>> {
        let mut with = Vec::new();
        for name in self.members_among(children) {
            if name == own || !member.met.iter().any(|met| met == name) {
                continue;
            }
            let Some(stat) = self.folder.stat(contact, name)? else {
                continue;
            };
            if member.ready.is_none_or(|ready| stat.czxid < ready) {
                let contender = self.folder.grammar().parse(name);
                with.push(Peer {
                    name: name.to_owned(),
                    czxid: stat.czxid,
                    is_ours: contender.is_some_and(|one| one.is_ours()),
                });
            }
        }
        Ok(with)
    }

    /// Waits until a peer's node is gone. If our own is still there meanwhile, it must stay
    /// ours.
    fn see_off(&self, peer: &Peer, inside: Option<&Tenure>, waiter: &Waiter<'_>) -> Result<()> {
        let path = self.folder.child(&peer.name);
        let mut watching = None;
        self.folder.retry(waiter, |contact| {
            // Those who entered with us take us for gone.
            if let Some(tenure) = inside
                && tenure.is_lost()
            {
                return Err(CallError::Left(tenure.loss()));
            }
            let wake = Wake::Signal(Arc::clone(contact.signal()));
            let watch = Watch::new(contact, &path, WatchKind::DATA, Some(wake));
            let watch = watching.insert(watch);
            match found(contact.watch_data(watch))? {
                Some((_, stat)) if stat.czxid == peer.czxid => {
                    contact.sleep_until_any(&[watch])?;
                    Ok(None)
                }
                _ => Ok(Some(())),
            }
        })
    }

    /// Removes the `ready` that let us in, if it is still there.
    fn clear_ready(&self, member: &Member, waiter: &Waiter<'_>) -> Result<()> {
        let Some(czxid) = member.ready else {
            return Ok(());
        };
        self.folder.retry(waiter, |contact| {
            self.remove_ready(contact, czxid).map(Some)
        })
    }

    fn remove_ready(&self, contact: &Contact<'_>, czxid: i64) -> Step<()> {
        let path = self.folder.child(READY);
        if self.folder.grammar().dialect() != Dialect::Kazoo {
            return remove_exactly(contact, &path, czxid);
        }
        // kazoo's members watch it, and take the event of a change for all that will come.
        let stat = contact.stat(&path)?;
        if let Some(stat) = stat.filter(|stat| stat.czxid == czxid) {
            remove_version(contact, &path, &stat)?;
        }
        Ok(())
    }
}
