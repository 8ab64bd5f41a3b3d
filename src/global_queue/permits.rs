//! Permits: as many contenders as the limit allows hold at once, in no order.
//!
//! Only one contender at a time may wait for a permit: a lock in front of the permits lets one
//! create its nodes and count. So it may have more nodes in the folder than fit, and misleads
//! nobody.

use std::sync::Arc;

use super::acquire::AcquireRequest;
use super::contender::{Contender, Listed};
use super::folder::Folder;
use super::limit::{Limit, Said};
use super::{OthersWaiting, PendingRelease, QueuedNode, participants, release};
use crate::error::{Error, Result};
use crate::session::{CallError, Contact, Session, Step, Waiter, Wake, Watch};
use crate::tenure::{NewTenure, Tenure};
use crate::znode::names::{Class, Grammar};
use crate::znode::path::LockPath;

/// The folder in which each permit is a node.
pub(crate) struct PermitFolder {
    folder: Arc<Folder>,
    limit: Limit,
}

/// How often one try looks again when the folder or the limit changes under its eyes.
const TRIES: usize = 3;

/// One acquire on its way, and the watch that it has left.
struct PermitAttempt<'a> {
    permits: &'a PermitFolder,
    contender: Contender,
    request: &'a AcquireRequest<'a>,
    watch: Option<Watch>,
    /// The first look leaves no watch, which would have to be taken off again if it is also the
    /// last.
    arm: bool,
}

/// The outcome of a count of the permits.
enum PermitCount {
    Fit(Arc<Tenure>),
    /// There are `over` more than the limit allows.
    TooMany {
        over: u32,
        /// Tells of another limit.
        limit: Arc<Watch>,
    },
    Again,
}

impl PermitFolder {
    pub(crate) fn new(
        session: &Arc<Session>,
        path: LockPath,
        grammar: Grammar,
        limit: Limit,
    ) -> Self {
        Self {
            folder: Folder::new(session, path, grammar),
            limit,
        }
    }

    /// Whether no two can hold at once.
    pub(crate) fn admits_one(&self) -> bool {
        self.limit.is_always_one()
    }

    /// The folder's, without the chroot.
    pub(crate) fn path(&self) -> &str {
        self.folder.path().as_str()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.folder.session()
    }

    fn attempt<'a>(&'a self, request: &'a AcquireRequest<'a>) -> PermitAttempt<'a> {
        PermitAttempt {
            permits: self,
            contender: Contender::new(&self.folder),
            request,
            watch: None,
            arm: false,
        }
    }

    /// Waits until as many permits as claimed are ours. One caller at a time, by the right of
    /// `in_front`; fails when that right is lost.
    pub(crate) fn acquire(
        &self,
        waiter: &Waiter<'_>,
        request: &AcquireRequest<'_>,
        in_front: &Tenure,
    ) -> Result<Arc<Tenure>> {
        let mut attempt = self.attempt(request);
        self.folder.retry(waiter, |contact| {
            // Two who count and wait at once would wait for each other's permits.
            if in_front.is_lost() {
                return Err(CallError::Left(in_front.loss()));
            }
            match attempt.count(contact)? {
                PermitCount::Fit(tenure) => return Ok(Some(tenure)),
                PermitCount::Again => {}
                PermitCount::TooMany { over, limit } => {
                    request.report(usize::try_from(over).unwrap_or(usize::MAX));
                    attempt.wait(contact, &limit, in_front)?;
                }
            }
            Ok(None)
        })
    }

    /// As [`PermitFolder::acquire`], without waiting.
    pub(crate) fn try_acquire(
        &self,
        waiter: &Waiter<'_>,
        request: &AcquireRequest<'_>,
    ) -> Result<Option<Arc<Tenure>>> {
        let mut attempt = self.attempt(request);
        let tried = waiter.contact_now().and_then(|contact| {
            for _ in 0..TRIES {
                match attempt.count(&contact)? {
                    PermitCount::Fit(tenure) => return Ok(Some(tenure)),
                    PermitCount::TooMany { .. } => return Ok(None),
                    PermitCount::Again => {}
                }
            }
            Ok(None)
        });
        tried.map_err(|error| self.folder.failure(error))
    }

    /// Whether this many permits are free. Writes nothing.
    pub(crate) fn has_free(&self, wanted: usize) -> Result<bool> {
        self.folder.look(|contact| {
            let said = self.limit.ask(contact)?;
            let taken = self.taken_now(contact)?;
            let max = self.max_of(said, taken)?;
            self.check_fits(wanted, max)?;
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
            Ok(taken.saturating_add(wanted) <= max)
        })
    }

    /// The limit at this moment.
    pub(crate) fn limit_now(&self) -> Result<u32> {
        self.folder.look(|contact| match self.limit.ask(contact)? {
            Said::Agreed(max) => Ok(max),
            other @ Said::Other { .. } => self.max_of(other, self.taken_now(contact)?),
        })
    }

    /// Changes the limit, for all who use it.
    pub(crate) fn change_limit(&self, max: u32) -> Result<()> {
        self.limit.change(self.session(), max)
    }

    /// The maximum to go by when so many permits are taken: ours, if nobody goes by the other one.
    fn max_of(&self, said: Said, taken: u32) -> Step<u32> {
        match (said, self.limit.ours()) {
            (Said::Agreed(max), _) => Ok(max),
            (Said::Other { may_go: true, .. }, Some(ours)) if taken == 0 => Ok(ours),
            (Said::Other { theirs, .. }, _) => self.limit.disagree(theirs),
        }
    }

    /// How many permits are taken now.
    pub(crate) fn taken(&self) -> Result<u32> {
        self.folder.look(|contact| self.taken_now(contact))
    }

    fn taken_now(&self, contact: &Contact<'_>) -> Step<u32> {
        let children = self.folder.list(contact)?.unwrap_or_default();
        Ok(self.count(children.iter()))
    }

    /// Begins to give permits back.
    pub(crate) fn start_release(&self, tenure: &Arc<Tenure>) -> PendingRelease {
        release::start_release(&self.folder, tenure, OthersWaiting::Unknown(None))
    }

    pub(crate) fn participants(&self) -> Result<Vec<QueuedNode>> {
        participants::of(&self.folder)
    }

    pub(crate) fn break_lock(&self, path: &str) -> Result<bool> {
        participants::break_lock(&self.folder, path)
    }

    fn count<'a>(&self, children: impl Iterator<Item = &'a str>) -> u32 {
        let grammar = self.folder.grammar();
        let permits = children.filter(|name| grammar.parse(name).is_some());
        u32::try_from(permits.count()).unwrap_or(u32::MAX)
    }

    /// A maximum of 0 is a pause: what may be had after it is not known.
    fn check_fits(&self, wanted: usize, max: u32) -> Step<()> {
        if max == 0 || u32::try_from(wanted).is_ok_and(|wanted| wanted <= max) {
            return Ok(());
        }
        let folder = self.folder.path();
        Err(CallError::Left(Error::invalid(format!(
            "{folder}: {wanted} permits at once can never be free: there are at most {max}"
        ))))
    }
}

impl PermitAttempt<'_> {
    /// Creates the permits if that is not done yet, and counts. The limit and the list are of one
    /// connection, and so are all of the permits.
    fn count(&mut self, contact: &Contact<'_>) -> Step<PermitCount> {
        let Self {
            permits, request, ..
        } = *self;
        let (mut max, mut limit) = self.agree(contact)?;
        permits.check_fits(request.count, max)?;
        let Listed {
            children,
            made_folder,
        } = self.enter_and_list(contact)?;
        if made_folder {
            permits.limit.forget();
            (max, limit) = self.agree(contact)?;
        }
        let Some(children) = children else {
            permits.limit.forget();
            return Ok(PermitCount::Again);
        };
        let mut missing = self.contender.names();
        for child in children.iter() {
            missing.remove(child);
        }
        if !missing.is_empty() {
            self.contender.removed();
            return Ok(PermitCount::Again);
        }
        // Whoever changes it by the lock in front has let us in there since.
        if !limit.is_live() {
            return Ok(PermitCount::Again);
        }
        let over = permits.count(children.iter()).saturating_sub(max);
        if over > 0 {
            return Ok(PermitCount::TooMany { over, limit });
        }
        let new = NewTenure::of(self.contender.nodes());
        let Some(tenure) = Tenure::begin(contact, new)? else {
            return Ok(PermitCount::Again);
        };
        self.contender.disown();
        Ok(PermitCount::Fit(tenure))
    }

    /// The maximum to go by, and what tells of another. If others went by another one than ours
    /// and have all gone, ours takes its place.
    fn agree(&self, contact: &Contact<'_>) -> Step<(u32, Arc<Watch>)> {
        let PermitFolder { folder, limit } = self.permits;
        loop {
            let (theirs, version, may_go) = match limit.watch(contact)? {
                (Said::Agreed(max), watch) => return Ok((max, watch)),
                (
                    Said::Other {
                        theirs,
                        version,
                        may_go,
                    },
                    _,
                ) => (theirs, version, may_go),
            };
            let children = folder.list(contact)?.unwrap_or_default();
            // Those of ours wait.
            let ours = self.contender.names();
            let others = children.iter().filter(|name| !ours.contains(name));
            if self.permits.count(others) > 0 || !may_go {
                return limit.disagree(theirs);
            }
            limit.adopt(contact, version)?;
        }
    }

    fn enter_and_list(&mut self, contact: &Contact<'_>) -> Step<Listed> {
        let Self {
            permits, request, ..
        } = *self;
        let watch = if self.arm {
            let wake = Wake::Signal(Arc::clone(contact.signal()));
            let watch = permits.folder.watch(contact, Some(wake));
            Some(&*self.watch.insert(watch))
        } else {
            None
        };
        self.contender
            .enter_and_list(contact, Class::Lease, request, watch)
    }

    /// Waits once for a permit to go, for another limit, or for the loss of the lock in front.
    fn wait(&mut self, contact: &Contact<'_>, limit: &Watch, in_front: &Tenure) -> Step<()> {
        if !std::mem::replace(&mut self.arm, true) {
            return Ok(());
        }
        let folder = self.watch.as_ref().expect("armed with the list");
        let wake = Wake::Signal(Arc::clone(contact.signal()));
        limit.state().redirect(wake);
        in_front.wake_at_loss(contact.signal());
        contact.sleep_until(|| {
            folder.state().has_fired() || limit.state().has_fired() || in_front.is_lost()
        })
    }
}
