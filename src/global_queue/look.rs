//! The second step: a list of the folder, and what it says about us.

use std::sync::Arc;
use std::time::Duration;

use super::place::{Claim, News, Place, Watching, Won};
use super::wait::sleep_until_fired;
use super::{Contest, WaitStrategy};
use crate::error::{Error, Result};
use crate::session::keeper::{KeeperError, Reply, Request, WatchKind};
use crate::session::watches::Wake;
use crate::session::{CallError, Contact, Step, Waiter, WatchGuard};
use crate::sync::atomic::Ordering;
use crate::sync::now;
use crate::tenure::{Founding, Tenure};
use crate::znode::path::split;
use crate::znode::verdict::{TieOrder, Verdict, nobody_behind, verdict_by};

/// Where a list has shown us.
enum Found {
    Won(Won),
    Ahead {
        /// The node to wait for.
        on: String,
        /// Nobody else is ahead of us.
        sole: bool,
        /// Where the list came from.
        contact: Contact,
    },
    Again,
}

impl Contest {
    /// Looks at the queue, and waits once if somebody is ahead.
    pub(super) fn look(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        watching: &mut Watching,
        claim: &Claim<'_>,
    ) -> Step<Option<Won>> {
        // Whoever wants to know its position must hear of every change ahead.
        let strategy = match claim.reporter {
            Some(_) if self.strategy == WaitStrategy::PredecessorWatch => WaitStrategy::ParentWatch,
            _ => self.strategy,
        };
        let by_folder = strategy == WaitStrategy::ParentWatch;
        let arm = claim.curious || by_folder || self.second_lately.load(Ordering::Relaxed);
        let found = self.find(place, waiter, &mut watching.folder, arm, claim)?;
        let (on, sole, contact) = match found {
            Found::Won(won) => return Ok(Some(won)),
            Found::Again => return Ok(None),
            Found::Ahead { on, sole, contact } => (on, sole, contact),
        };
        match strategy {
            WaitStrategy::PredecessorWatch => {
                self.second_lately.store(sole, Ordering::Relaxed);
                return self.wait_for(&on, sole, place, waiter, watching, &contact);
            }
            WaitStrategy::ParentWatch => {
                let folder = watching.folder.as_ref().expect("armed with the list");
                sleep_until_fired(folder.notice(), waiter, &contact)?;
            }
            WaitStrategy::Polling(pause) => {
                let until = now().checked_add(pause.max(Duration::from_millis(1)));
                waiter.sleep(until).map_err(CallError::Left)?;
            }
        }
        Ok(None)
    }

    /// What [`Contest::try_acquire`] does in a queue.
    pub(super) fn try_steps(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
    ) -> Step<Option<Won>> {
        let children = match self.list(waiter, false) {
            Ok((children, _)) => children,
            Err(CallError::Refused(KeeperError::NoNode)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let blocks = |name: &String| {
            let contender = self.grammar.parse(name);
            contender.is_some_and(|other| self.rule.is_blocked_by(other.class))
        };
        if children.iter().any(blocks) {
            return Ok(None);
        }
        self.enter(place, waiter, claim)?;
        match self.find(place, waiter, &mut None, claim.curious, claim)? {
            Found::Won(won) => Ok(Some(won)),
            Found::Ahead { .. } | Found::Again => Ok(None),
        }
    }

    /// Looks whether others wait for what we hold, and leaves a watch that tells of any who come.
    /// Fails if our node does not hold any more.
    pub(crate) fn look_for_others(
        &self,
        tenure: &Tenure,
        call: impl FnOnce(Request) -> Step<(Reply, Contact)>,
    ) -> Result<News> {
        let watch = self.watch_folder(None);
        let request = Request::Children {
            path: self.folder.as_str().to_owned(),
            watch: true,
        };
        let (reply, contact) = call(request).map_err(|error| self.failure(error))?;
        let children = children_of(reply);
        watch.armed(contact.connection);
        let (_, own) = split(tenure.node());
        let ties = TieOrder::default();
        match verdict_by(self.rule, &self.grammar, own, &children, &ties) {
            Verdict::Held { others_behind } => Ok(if others_behind {
                News::Company(Some(watch))
            } else {
                News::Alone(watch)
            }),
            // One number for two nodes, so there is another contender.
            Verdict::Tied { .. } => Ok(News::Company(Some(watch))),
            Verdict::Wait { .. } | Verdict::Gone => Err(Error::removed(tenure.node())),
        }
    }

    /// Whether nobody stands behind this node of ours, who waits for it. The node itself may be
    /// waiting.
    pub(crate) fn nobody_waits_for(&self, own: &str, waiter: &Waiter<'_>) -> Step<bool> {
        let (children, _) = self.list(waiter, false)?;
        Ok(nobody_behind(self.rule, &self.grammar, own, &children))
    }

    /// Lists, and says where we stand. With `arm`, leaves `watch` on the folder.
    fn find(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        watch: &mut Option<WatchGuard>,
        arm: bool,
        claim: &Claim<'_>,
    ) -> Step<Found> {
        let Some((children, contact)) = self.list_for(place, waiter, watch, arm)? else {
            return Ok(Found::Again);
        };
        let (nodes, epoch) = place.queued();
        let (_, name) = split(&nodes[0]);
        let mut ties = TieOrder::default();
        loop {
            match verdict_by(self.rule, &self.grammar, name, &children, &ties) {
                Verdict::Held { others_behind } => {
                    let founding = Founding {
                        epoch: Arc::clone(epoch),
                        nodes: nodes.to_vec(),
                        proven_on: contact.connection,
                        token: None,
                        is_sole: false,
                    };
                    let Some(tenure) = Tenure::begin(&self.session, founding) else {
                        return Ok(Found::Again);
                    };
                    *place = Place::Nowhere;
                    log::debug!("{}: acquired", tenure.node());
                    let news = match (others_behind, watch.take()) {
                        (true, watch) => News::Company(watch),
                        (false, Some(watch)) if watch.is_live() => News::Alone(watch),
                        (false, watch) => News::Unknown(watch),
                    };
                    return Ok(Found::Won(Won { tenure, news }));
                }
                Verdict::Wait { on, ahead } => {
                    log::debug!("{}: {ahead} ahead of {name}", self.folder);
                    if let Some(reporter) = claim.reporter {
                        reporter.report(0, ahead);
                    }
                    let sole = ahead == 1;
                    return Ok(Found::Ahead { on, sole, contact });
                }
                Verdict::Gone => {
                    self.gone(place);
                    return Ok(Found::Again);
                }
                Verdict::Tied { with } => {
                    for name in with {
                        match waiter.call(Request::stat(self.folder.child(&name)))? {
                            (Reply::Stat(Some(stat)), _) => {
                                ties.insert(name, stat.czxid);
                            }
                            // It went since the list.
                            _ => return Ok(Found::Again),
                        }
                    }
                }
            }
        }
    }

    /// Somebody removed a node of ours that waits: all that is left of this place goes.
    pub(super) fn gone(&self, place: &mut Place) {
        log::warn!("{}: somebody removed our node; queueing again", self.folder);
        self.withdraw(std::mem::take(place));
    }

    /// Lists the folder that `place` is in. With `arm`, leaves `watch` on it. `None` if the folder
    /// is gone, and with it our place.
    pub(super) fn list_for(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        watch: &mut Option<WatchGuard>,
        arm: bool,
    ) -> Step<Option<(Vec<String>, Contact)>> {
        if arm && !watch.as_ref().is_some_and(WatchGuard::is_live) {
            // The new interest is added before the old one is dropped, so that the watch that
            // both mean is not taken off the server in between.
            *watch = Some(self.watch_folder(Some(Wake::Signal(Arc::clone(waiter.signal())))));
        }
        let (children, contact) = match self.list(waiter, arm) {
            Ok(listed) => listed,
            Err(CallError::Refused(KeeperError::NoNode)) => {
                log::debug!("{}: the folder was deleted; queueing again", self.folder);
                *place = Place::Nowhere;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if let (true, Some(watch)) = (arm, watch.as_ref()) {
            watch.armed(contact.connection);
        }
        Ok(Some((children, contact)))
    }

    fn watch_folder(&self, wake: Option<Wake>) -> WatchGuard {
        WatchGuard::new(
            &self.session,
            self.folder.as_str(),
            WatchKind::Children,
            wake,
        )
    }

    pub(crate) fn list(&self, waiter: &Waiter<'_>, watch: bool) -> Step<(Vec<String>, Contact)> {
        let path = self.folder.as_str().to_owned();
        let (reply, contact) = waiter.call(Request::Children { path, watch })?;
        Ok((children_of(reply), contact))
    }
}

pub(super) fn children_of(reply: Reply) -> Vec<String> {
    let Reply::Children(children) = reply else {
        unreachable!("a list is answered with names");
    };
    children
}
