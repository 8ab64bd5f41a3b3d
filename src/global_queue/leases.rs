//! Leases: so many contenders as the limit allows hold at once, in no order.
//!
//! Who waits for a lease must be alone in that: a lock in front of the leases lets one at a time
//! create its nodes and count. So whoever counts may have more nodes in the folder than fit, and
//! nobody else is misled by that.

use std::cell::Cell;
use std::sync::Arc;

use super::Contest;
use super::count;
use super::enter::make_node;
use super::look::children_of;
use super::place::{Claim, Place};
use super::wait::sleep_until_any_fired;
use crate::error::{Error, Result};
use crate::session::keeper::{KeeperError, Reply, Request, WatchKind};
use crate::session::watches::{Notice, Wake};
use crate::session::{CallError, Contact, Session, Step, Waiter, WatchGuard};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, now};
use crate::tenure::{Founding, LockState, Tenure};
use crate::znode::path::{LockPath, split};

/// How many leases may be held at once.
pub(crate) enum Limit {
    /// As the program says, if all who share the semaphore say the same.
    Fixed {
        max: u32,
        /// The node whose data says the maximum, in decimal digits, as kazoo's does.
        home: LockPath,
        agreed: AtomicBool,
    },
    /// As a node says.
    Shared {
        count: LockPath,
        initial: i32,
        /// What it said, and the watch that tells when it says something else.
        known: Mutex<Option<(u32, WatchGuard)>>,
    },
}

impl Limit {
    pub(crate) fn fixed(max: u32, home: LockPath) -> Self {
        Self::Fixed {
            max,
            home,
            agreed: AtomicBool::new(false),
        }
    }

    pub(crate) fn shared(count: LockPath, initial: i32) -> Self {
        Self::Shared {
            count,
            initial,
            known: Mutex::new(None),
        }
    }

    /// The limit that stands now, and what tells when another does.
    pub(crate) fn read(
        &self,
        session: &Arc<Session>,
        mut call: impl FnMut(Request) -> Step<(Reply, Contact)>,
    ) -> Step<(u32, Option<Arc<Notice>>)> {
        match self {
            Self::Fixed { max, home, agreed } => {
                if !agreed.load(Ordering::Relaxed) {
                    agree(*max, home, &mut call)?;
                    agreed.store(true, Ordering::Relaxed);
                }
                Ok((*max, None))
            }
            Self::Shared {
                count,
                initial,
                known,
            } => {
                if let Some((max, watch)) = &*known.lock()
                    && watch.is_live()
                {
                    return Ok((*max, Some(Arc::clone(watch.notice()))));
                }
                let watch = WatchGuard::new(session, count.as_str(), WatchKind::Data, None);
                let (value, contact) = count::read(count, *initial, true, &mut call)?;
                watch.armed(contact.connection);
                let max = u32::try_from(value.number).unwrap_or(0);
                let notice = Arc::clone(watch.notice());
                let before = known.lock().replace((max, watch));
                drop(before);
                Ok((max, Some(notice)))
            }
        }
    }

    /// The folder of the leases was made anew: others may have agreed on something else.
    fn forget(&self) {
        if let Self::Fixed { agreed, .. } = self {
            agreed.store(false, Ordering::Relaxed);
        }
    }
}

/// Makes sure that `home` says the same maximum as we, or nothing about it.
fn agree<T>(
    max: u32,
    home: &LockPath,
    call: &mut impl FnMut(Request) -> Step<(Reply, T)>,
) -> Step<()> {
    let said: Arc<[u8]> = Arc::from(max.to_string().into_bytes());
    loop {
        let request = Request::Data {
            path: home.as_str().to_owned(),
            watch: false,
        };
        let (data, stat) = match call(request) {
            Ok((Reply::Data(data, stat), _)) => (data, stat),
            Ok(_) => unreachable!("data is answered with data"),
            Err(CallError::Refused(KeeperError::NoNode)) => {
                make_node(home.as_str(), &said, &mut *call)?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let theirs = std::str::from_utf8(&data).ok().map(str::parse::<u32>);
        match theirs {
            Some(Ok(theirs)) if theirs == max => return Ok(()),
            Some(Ok(theirs)) => {
                return Err(CallError::Left(Error::invalid(format!(
                    "{home}: this semaphore was built for at most {max}, and others use it with \
                     at most {theirs}; all must agree, or share a count"
                ))));
            }
            // Curator leaves it empty.
            _ if data.is_empty() => {
                let request = Request::Set {
                    path: home.as_str().to_owned(),
                    data: Arc::clone(&said),
                    version: Some(stat.version),
                };
                match call(request) {
                    // The next look sees what it says now.
                    Ok(_)
                    | Err(CallError::Refused(KeeperError::BadVersion | KeeperError::NoNode)) => {}
                    // We may use the semaphore and not write there; then nobody is told.
                    Err(CallError::Refused(KeeperError::NoAuth)) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            // Somebody's own data is not about the maximum.
            _ => return Ok(()),
        }
    }
}

/// What a count of the leases came to.
enum Counted {
    Fit(Arc<Tenure>),
    /// There are so many more than may be.
    TooMany {
        contact: Contact,
        over: u32,
        /// What tells of another limit.
        changed: Option<Arc<Notice>>,
    },
    Again,
}

impl Contest {
    /// Waits until as many leases as claimed are ours. Only for one at a time, by the right of
    /// `in_front`; fails when that is lost.
    pub(crate) fn acquire_leases(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
        limit: &Limit,
        in_front: &Tenure,
    ) -> Result<Arc<Tenure>> {
        let mut watch = None;
        let mut arm = false;
        self.persist(place, waiter, |place| {
            // Two who count and wait at once would wait for each other's leases.
            if in_front.state(now()) == LockState::Lost {
                return Err(CallError::Left(in_front.loss()));
            }
            let (contact, over, changed) =
                match self.count_leases(place, waiter, claim, limit, (&mut watch, arm))? {
                    Counted::Fit(tenure) => return Ok(Some(tenure)),
                    Counted::Again => return Ok(None),
                    Counted::TooMany {
                        contact,
                        over,
                        changed,
                    } => (contact, over, changed),
                };
            if let Some(reporter) = claim.reporter {
                reporter.report(0, usize::try_from(over).unwrap_or(usize::MAX));
            }
            // The first look leaves no watch, which would have to be taken off again if it is also
            // the last.
            if !std::mem::replace(&mut arm, true) {
                return Ok(None);
            }
            let folder = watch.as_ref().expect("armed with the list");
            if let Some(changed) = &changed {
                changed.redirect(Wake::Signal(Arc::clone(waiter.signal())));
            }
            let notices: Vec<_> = [Some(folder.notice()), changed.as_ref()]
                .into_iter()
                .flatten()
                .collect();
            sleep_until_any_fired(&notices, waiter, &contact)?;
            Ok(None)
        })
    }

    /// As [`Contest::acquire_leases`], without waiting.
    pub(crate) fn try_acquire_leases(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
        limit: &Limit,
    ) -> Result<Option<Arc<Tenure>>> {
        match self.count_leases(place, waiter, claim, limit, (&mut None, false)) {
            Ok(Counted::Fit(tenure)) => Ok(Some(tenure)),
            Ok(Counted::TooMany { .. } | Counted::Again) => Ok(None),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Creates the leases if that is not done yet, and counts.
    fn count_leases(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
        limit: &Limit,
        (watch, arm): (&mut Option<WatchGuard>, bool),
    ) -> Step<Counted> {
        let read = || limit.read(&self.session, |request| waiter.call(request));
        let (mut max, mut changed) = read()?;
        self.check_fits(claim.count, max)?;
        let made_anew = Cell::new(false);
        let new_folder = || made_anew.set(true);
        let claim = Claim {
            data: Arc::clone(&claim.data),
            new_folder: &new_folder,
            ..*claim
        };
        self.enter(place, waiter, &claim)?;
        if made_anew.get() {
            limit.forget();
            (max, changed) = read()?;
        }
        let Some((children, contact)) = self.list_for(place, waiter, watch, arm)? else {
            limit.forget();
            return Ok(Counted::Again);
        };
        let (nodes, epoch) = place.queued();
        let stands = |path: &String| children.iter().any(|child| child == split(path).1);
        if !nodes.iter().all(stands) {
            self.gone(place);
            return Ok(Counted::Again);
        }
        let over = self.count(&children).saturating_sub(max);
        if over > 0 {
            return Ok(Counted::TooMany {
                contact,
                over,
                changed,
            });
        }
        let founding = Founding {
            epoch: Arc::clone(epoch),
            nodes: nodes.to_vec(),
            proven_on: contact.connection,
            token: None,
            is_sole: false,
        };
        let Some(tenure) = Tenure::begin(&self.session, founding) else {
            return Ok(Counted::Again);
        };
        *place = Place::Nowhere;
        Ok(Counted::Fit(tenure))
    }

    /// Whether so many leases are free. Writes nothing.
    pub(crate) fn has_free_leases(&self, wanted: usize, limit: &Limit) -> Result<bool> {
        let max = self.limit_now(limit)?;
        self.check_fits(wanted, max)
            .map_err(|error| self.failure(error))?;
        let taken = self.leases_taken()?;
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        Ok(taken.saturating_add(wanted) <= max)
    }

    /// The limit that stands now.
    pub(crate) fn limit_now(&self, limit: &Limit) -> Result<u32> {
        self.session.fork().refuse_child()?;
        let read = limit.read(&self.session, |request| self.session.call(&request));
        let (max, _) = read.map_err(|error| self.failure(error))?;
        Ok(max)
    }

    /// How many leases there are now.
    pub(crate) fn leases_taken(&self) -> Result<u32> {
        let request = Request::Children {
            path: self.folder.as_str().to_owned(),
            watch: false,
        };
        match self.session.call(&request) {
            Ok((reply, _)) => Ok(self.count(&children_of(reply))),
            Err(CallError::Refused(KeeperError::NoNode)) => Ok(0),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn count(&self, children: &[String]) -> u32 {
        let leases = children
            .iter()
            .filter(|name| self.grammar.parse(name).is_some());
        u32::try_from(leases.count()).unwrap_or(u32::MAX)
    }

    fn check_fits(&self, wanted: usize, max: u32) -> Step<()> {
        if u32::try_from(wanted).is_ok_and(|wanted| wanted <= max) {
            return Ok(());
        }
        let folder = &self.folder;
        Err(CallError::Left(Error::invalid(format!(
            "{folder}: {wanted} permits at once, of at most {max}, will never be free"
        ))))
    }
}
