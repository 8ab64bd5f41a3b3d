//! The global queue: how one contender gets from its create to what it asks for.
//!
//! ```text
//! create -> list -> our turn? ------------------------------> tenure
//!             ^       | no: watch the one ahead, sleep
//!             |       v
//!             +--- woken (its node changed, the connection changed)
//! ```
//!
//! What can fail on the way is handled in one place, [`Waiter::persist`]: a call that was not
//! answered leads back to the top once a new connection stands, where what is known is looked at
//! anew. Nothing is ever concluded from what was seen on an earlier connection.

pub(crate) mod count;
mod downgrade;
mod enter;
mod leases;
mod leave;
mod look;
mod participants;
mod place;
mod rendezvous;
mod sole;
mod wait;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::enter::make_node;
pub(crate) use self::leases::Limit;
pub(crate) use self::participants::Queued;
use self::place::Watching;
pub(crate) use self::place::{Claim, News, Place, Won};
pub(crate) use self::rendezvous::Member;
pub(crate) use self::wait::sleep_until_fired;
use crate::error::{Error, Result};
use crate::session::keeper::KeeperError;
use crate::session::{CallError, Session, Step, Waiter};
use crate::sync::atomic::AtomicBool;
use crate::znode::names::{Class, Grammar};
use crate::znode::path::LockPath;
use crate::znode::verdict::Rule;

/// How a contender that is not first waits for its turn. The guarantees are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Watches the node just ahead: a release wakes one waiter. The default.
    #[default]
    PredecessorWatch,
    /// Watches the folder: every release wakes every waiter (the "herd effect"). For comparison,
    /// and for folders with few waiters.
    ParentWatch,
    /// Lists again and again, after each pause of this length; leaves no watches on the server.
    /// A hand-over takes up to one pause longer. At least 1 ms.
    Polling(Duration),
}

/// One folder's global queue, as contenders of one class in this process see it.
pub(crate) struct Contest {
    pub(crate) session: Arc<Session>,
    pub(crate) folder: LockPath,
    pub(crate) grammar: Grammar,
    /// What we are in it.
    class: Class,
    rule: Rule,
    strategy: WaitStrategy,
    /// The last acquire found exactly one contender ahead of it: the next one may, too, so its
    /// first list leaves the watch that lets it take over without another list.
    second_lately: AtomicBool,
}

impl Contest {
    pub(crate) fn new(
        session: Arc<Session>,
        folder: LockPath,
        grammar: Grammar,
        class: Class,
        strategy: WaitStrategy,
    ) -> Self {
        Self {
            session,
            folder,
            grammar,
            class,
            rule: Rule::of(class),
            strategy,
            second_lately: AtomicBool::new(false),
        }
    }

    /// Waits until it is our turn. On an error `place` says what is still queued; the caller hands
    /// it to another thread or to [`Contest::withdraw`].
    pub(crate) fn acquire(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
    ) -> Result<Won> {
        let mut watching = Watching::default();
        self.persist(place, waiter, |place| {
            if self.class == Class::Sole {
                return self.seize(place, waiter, &mut watching, claim);
            }
            self.enter(place, waiter, claim)?;
            self.look(place, waiter, &mut watching, claim)
        })
    }

    /// Takes what is free, without waiting. Writes nothing if it is not.
    pub(crate) fn try_acquire(
        &self,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
    ) -> Result<Option<Won>> {
        let mut place = Place::Nowhere;
        let step = if self.class == Class::Sole {
            self.try_to_seize(&mut place, waiter, claim)
        } else {
            self.try_steps(&mut place, waiter, claim)
        };
        self.withdraw(std::mem::take(&mut place));
        step.map_err(|error| self.failure(error))
    }

    /// Takes steps until one comes to something, over broken connections and lost sessions.
    fn persist<T>(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        mut step: impl FnMut(&mut Place) -> Step<Option<T>>,
    ) -> Result<T> {
        waiter.persist(self.folder.as_str(), |contact| {
            // Nothing survives an epoch: the server removes our nodes with the session.
            if place
                .epoch()
                .is_some_and(|epoch| epoch.number() != contact.epoch.number())
            {
                log::debug!("{}: queueing again in a new session", self.folder);
                *place = Place::Nowhere;
            }
            step(place)
        })
    }

    /// The error of a call that is not tried again.
    pub(crate) fn failure(&self, error: CallError) -> Error {
        error.finally(self.session.target(), self.folder.as_str())
    }

    /// ZooKeeper's refusal, with the place and what to do.
    pub(crate) fn refusal(&self, error: KeeperError) -> Error {
        error.at(self.folder.as_str())
    }
}
