//! Where so many members meet: all go in together, and out together.
//!
//! Each member has a node in the folder; beside them stands `ready`, made by whoever finds that
//! all are there. A member goes on when `ready` is *younger than its own node*: then it was counted
//! among those who were there. A count alone would not do, as the fast ones may have left before
//! the slow ones look; and an older `ready` is that of members who have not all left yet, or of
//! members who all died, and is then removed by the first of those who wait.

use std::sync::Arc;

use super::Contest;
use super::enter::make_node;
use super::place::{Claim, News, Place, Watching};
use super::wait::sleep_until_any_fired;
use crate::error::Result;
use crate::session::keeper::{KeeperError, NodeStat, Reply, Request, WatchKind};
use crate::session::watches::Wake;
use crate::session::{CallError, Contact, Step, Waiter, WatchGuard};
use crate::sync::now;
use crate::tenure::{Founding, LockState, Tenure};
use crate::znode::names::Dialect;
use crate::znode::path::split;

/// The name of the node that says that all are there.
const READY: &str = "ready";

/// A member that is inside.
pub(crate) struct Member {
    pub(crate) tenure: Arc<Tenure>,
    /// The names of those who were in the folder when we went in, ours among them.
    met: Vec<String>,
    /// The transaction that made our `ready`, unless it was gone by then.
    ready: Option<i64>,
}

/// One with whom we go out. Other libraries use a name again in the next round, so it is the node
/// that counts.
struct Companion {
    name: String,
    czxid: i64,
}

impl Contest {
    /// Enters, and waits until `members` are there.
    pub(crate) fn meet(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
        members: usize,
    ) -> Result<Member> {
        // Our node's own transaction, asked for once for each node.
        let mut own: Option<(String, i64)> = None;
        let mut watching = Watching::default();
        self.persist(place, waiter, |place| {
            self.enter(place, waiter, claim)?;
            let node = place.queued().0[0].clone();
            let czxid = match &own {
                Some((known, czxid)) if *known == node => *czxid,
                _ => {
                    let (Reply::Stat(Some(stat)), _) = waiter.call(Request::stat(&*node))? else {
                        self.gone(place);
                        return Ok(None);
                    };
                    own = Some((node.clone(), stat.czxid));
                    stat.czxid
                }
            };
            // Both watches are left before the count, so nothing that happens after it is missed.
            let ready_path = self.folder.child(READY);
            let wake = Wake::Signal(Arc::clone(waiter.signal()));
            let fresh = WatchGuard::new(&self.session, &ready_path, WatchKind::Data, Some(wake));
            let ready_watch = fresh.of_reused_name().instead_of(&mut watching.node);
            let (ready, contact) = stat_of(waiter.call(Request::Stat {
                path: ready_path.clone(),
                watch: true,
            })?);
            ready_watch.armed(contact.connection);
            let folder = &mut watching.folder;
            let Some((children, listed)) = self.list_for(place, waiter, folder, true)? else {
                return Ok(None);
            };
            let met: Vec<_> = self.members(&children).map(str::to_owned).collect();
            if !met.iter().any(|name| name == split(&node).1) {
                self.gone(place);
                return Ok(None);
            }
            match ready {
                Some(ready) if ready.czxid > czxid => {
                    return Ok(self.go_in(place, met, Some(ready.czxid), &listed));
                }
                Some(ready) => {
                    if self.is_left_over(&ready, czxid, &met, waiter)? {
                        remove_exactly(&ready_path, ready.czxid, |request| waiter.call(request))?;
                        return Ok(None);
                    }
                }
                None if met.len() >= members => {
                    let data = Arc::clone(&claim.data);
                    make_node(&ready_path, &data, |request| waiter.call(request))?;
                    // The next look sees it, and that it is younger than we.
                    return Ok(None);
                }
                None => {
                    if let Some(reporter) = claim.reporter {
                        reporter.report(0, members - met.len());
                    }
                }
            }
            let folder = folder.as_ref().expect("armed with the list");
            let notices = [ready_watch.notice(), folder.notice()];
            sleep_until_any_fired(&notices, waiter, &contact)?;
            // It was made after our node, and we were counted; kazoo's members remove it as soon
            // as one of them leaves. Nobody came between the list and that, or we would not know
            // all whom we met.
            let made = ready_watch.notice();
            if ready.is_none() && made.says_created() && made.came_before(folder.notice()) {
                let (ready, contact) = stat_of(waiter.call(Request::stat(&*ready_path))?);
                let ready = ready.filter(|ready| ready.czxid > czxid);
                return Ok(self.go_in(place, met, ready.map(|ready| ready.czxid), &contact));
            }
            Ok(None)
        })
    }

    fn go_in(
        &self,
        place: &mut Place,
        met: Vec<String>,
        ready: Option<i64>,
        contact: &Contact,
    ) -> Option<Member> {
        let (nodes, epoch) = place.queued();
        let founding = Founding {
            epoch: Arc::clone(epoch),
            nodes: nodes.to_vec(),
            proven_on: contact.connection,
            token: None,
            is_sole: false,
        };
        let tenure = Tenure::begin(&self.session, founding)?;
        *place = Place::Nowhere;
        log::debug!("{}: entered, {} are there", tenure.node(), met.len());
        Some(Member { tenure, met, ready })
    }

    /// Whether a `ready` that is older than our node belongs to nobody any more, and it is up to
    /// us, the oldest of those who are there, to remove it.
    fn is_left_over(
        &self,
        ready: &NodeStat,
        own: i64,
        met: &[String],
        waiter: &Waiter<'_>,
    ) -> Step<bool> {
        for name in met {
            let (stat, _) = stat_of(waiter.call(Request::stat(self.folder.child(name)))?);
            // Who is older than `ready` is inside still; who is older than we are does it.
            if stat.is_some_and(|stat| stat.czxid < ready.czxid || stat.czxid < own) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Leaves, and waits until all have left with whom we entered.
    ///
    /// The first by name stays until the others have gone, and then removes `ready`: so `ready`
    /// stands for as long as one of them may still have to see it. All others go at once. (Whoever sees the first one sees it as the first: it
    /// stays for as long as any other does.)
    pub(crate) fn part(&self, member: &Member, waiter: &Waiter<'_>) -> Result<()> {
        let tenure = &member.tenure;
        if tenure.state(now()) == LockState::Lost {
            return Err(tenure.loss());
        }
        let (_, own) = split(tenure.node());
        let mut place = Place::Nowhere;
        let mut with = self.persist(&mut place, waiter, |place| {
            let Some((children, _)) = self.list_for(place, waiter, &mut None, false)? else {
                return Ok(Some(Vec::new()));
            };
            self.companions(member, own, &children, waiter).map(Some)
        })?;
        // The first by name comes last.
        with.sort_by(|a, b| b.name.cmp(&a.name));
        let stays = with.last().is_none_or(|first| own < first.name.as_str());
        if !stays {
            self.persist(&mut place, waiter, |_| {
                self.go_out(tenure, waiter).map(Some)
            })?;
        }
        for (at, companion) in with.iter().enumerate() {
            let is_last = at + 1 == with.len();
            if is_last && !stays && self.grammar.dialect() == Dialect::Kazoo {
                // A first member of kazoo's takes `ready` for another member, and waits for it.
                self.clear_ready(member, waiter)?;
            }
            self.see_off(companion, stays.then_some(&**tenure), waiter)?;
        }
        if stays {
            self.persist(&mut place, waiter, |_| {
                self.go_out(tenure, waiter).map(Some)
            })?;
        }
        // Not before: who waits for the next round would find no `ready`, and count us.
        self.clear_ready(member, waiter)
    }

    /// Those of the list who entered together with us: they were there when we went in, and their
    /// nodes are older than `ready`. (A younger one has come too early for the next round.)
    fn companions(
        &self,
        member: &Member,
        own: &str,
        children: &[String],
        waiter: &Waiter<'_>,
    ) -> Step<Vec<Companion>> {
        let mut with = Vec::new();
        for name in self.members(children) {
            if name == own || !member.met.iter().any(|met| met == name) {
                continue;
            }
            let (stat, _) = stat_of(waiter.call(Request::stat(self.folder.child(name)))?);
            let Some(czxid) = stat.map(|stat| stat.czxid) else {
                continue;
            };
            if member.ready.is_none_or(|ready| czxid < ready) {
                let name = name.to_owned();
                with.push(Companion { name, czxid });
            }
        }
        Ok(with)
    }

    /// Waits until a companion's node is gone. If our own stands meanwhile, it must stay ours.
    fn see_off(
        &self,
        companion: &Companion,
        inside: Option<&Tenure>,
        waiter: &Waiter<'_>,
    ) -> Result<()> {
        let path = self.folder.child(&companion.name);
        let mut watch = None;
        self.persist(&mut Place::Nowhere, waiter, |_| {
            // Those who entered with us take us for gone.
            if let Some(tenure) = inside
                && tenure.state(now()) == LockState::Lost
            {
                return Err(CallError::Left(tenure.loss()));
            }
            let wake = Wake::Signal(Arc::clone(waiter.signal()));
            let fresh = WatchGuard::new(&self.session, &path, WatchKind::Data, Some(wake));
            let watch = fresh.of_reused_name().instead_of(&mut watch);
            let request = Request::Data {
                path: path.clone(),
                watch: true,
            };
            match waiter.call(request) {
                Ok((Reply::Data(_, stat), contact)) => {
                    watch.armed(contact.connection);
                    if stat.czxid != companion.czxid {
                        return Ok(Some(()));
                    }
                    sleep_until_any_fired(&[watch.notice()], waiter, &contact)?;
                    Ok(None)
                }
                Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => Ok(Some(())),
                Err(error) => Err(error),
            }
        })
    }

    /// Removes our own node; if that is not confirmed, it goes on in the background.
    fn go_out(&self, tenure: &Tenure, waiter: &Waiter<'_>) -> Step<()> {
        if !waiter.has_time() {
            self.abandon(tenure, News::Unknown(None));
            return Ok(());
        }
        match self.leave(tenure, News::Unknown(None)) {
            Err(error) if error.is_lock_lost() => Err(CallError::Left(error)),
            _ => Ok(()),
        }
    }

    /// Removes the `ready` that let us in, if it is still there.
    fn clear_ready(&self, member: &Member, waiter: &Waiter<'_>) -> Result<()> {
        let Some(czxid) = member.ready else {
            return Ok(());
        };
        let path = self.folder.child(READY);
        self.persist(&mut Place::Nowhere, waiter, |_| {
            if self.grammar.dialect() == Dialect::Kazoo {
                // kazoo's members watch it, and take the event of a change for all that will come.
                let (stat, _) = stat_of(waiter.call(Request::stat(&*path))?);
                if let Some(stat) = stat.filter(|stat| stat.czxid == czxid) {
                    remove_version(path.clone(), &stat, |request| waiter.call(request))?;
                }
            } else {
                remove_exactly(&path, czxid, |request| waiter.call(request))?;
            }
            Ok(Some(()))
        })
    }

    fn members<'a>(&self, children: &'a [String]) -> impl Iterator<Item = &'a str> {
        let names = children.iter().map(String::as_str);
        names.filter(|name| self.grammar.parse(name).is_some())
    }
}

fn stat_of((reply, contact): (Reply, Contact)) -> (Option<NodeStat>, Contact) {
    match reply {
        Reply::Stat(stat) => (stat, contact),
        _ => unreachable!("a stat is answered with a stat"),
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
fn remove_exactly(
    path: &str,
    czxid: i64,
    mut call: impl FnMut(Request) -> Step<(Reply, Contact)>,
) -> Step<()> {
    let path = || path.to_owned();
    loop {
        let (found, _) = stat_of(call(Request::stat(path()))?);
        let Some(found) = found.filter(|found| found.czxid == czxid) else {
            return Ok(());
        };
        let set = Request::Set {
            path: path(),
            data: Arc::from([]),
            version: Some(found.version),
        };
        let set = match call(set) {
            Ok(answer) => stat_of(answer).0,
            Err(CallError::Refused(KeeperError::NoNode | KeeperError::BadVersion)) => continue,
            Err(error) => return Err(error),
        };
        let Some(set) = set.filter(|set| set.czxid == czxid) else {
            return Ok(());
        };
        if remove_version(path(), &set, &mut call)? {
            return Ok(());
        }
    }
}

/// Deletes a node if its data has not been changed since. Returns whether it is gone.
fn remove_version(
    path: String,
    node: &NodeStat,
    mut call: impl FnMut(Request) -> Step<(Reply, Contact)>,
) -> Step<bool> {
    let version = Some(node.version);
    match call(Request::Delete { path, version }) {
        Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => Ok(true),
        Err(CallError::Refused(KeeperError::BadVersion)) => Ok(false),
        Err(error) => Err(error),
    }
}
