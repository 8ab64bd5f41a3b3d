//! A candidate: a thread's lead at one lock, which it took without waiting, to ask for several locks
//! at once.
//!
//! Leads are taken in the canonical order of the locks, and nobody waits for one: where somebody of
//! this process comes first, the lock is asked for by itself, in its turn. While a thread has
//! several leads it waits for ZooKeeper's answers alone, which come whatever others do. Before it
//! waits for a lock, it has given up its leads at all locks after that one. So what
//! [`together`](crate::global_queue) says of nodes is true of leads: whoever waits stands as if it
//! had come there one by one.

use std::sync::Arc;
use std::time::Instant;

use super::lead::Lead;
use super::thread_number::thread_number;
use super::{LocalQueue, Turn};
use crate::error::{Error, Result};
use crate::global_queue::{
    AcquireRequest, Acquisition, Entered, Entrant, GlobalQueue, Tried, enter_together, try_entering,
};
use crate::session::observe::observer::Miss;
use crate::session::{CallError, Session, Waiter};
use crate::sync;
use crate::wait::limits::WaitLimits;

/// See the [module](self). Dropping it gives the lead up; observers are told nothing, as this thread
/// asks for the lock again.
pub(crate) trait Candidate {
    /// Our contender in the global queue.
    fn entrant(&mut self) -> Entrant<'_>;
    /// This thread holds now.
    fn win(self: Box<Self>, acquired: Acquisition);
    /// Waits until this thread holds, from where it stands. Returns whether others were
    /// seen ahead.
    fn wait(self: Box<Self>, limits: &WaitLimits) -> Result<bool>;
    /// This thread does not hold, and asks no more.
    fn miss(self: Box<Self>, why: Miss);
}

struct QueueCandidate<'a> {
    queue: &'a LocalQueue,
    protocol: &'a GlobalQueue,
    lead: Lead<'a, LocalQueue>,
    thread: u64,
    data: Arc<[u8]>,
    began: Instant,
}

impl LocalQueue {
    /// This thread as a candidate, if no thread of this process holds or leads, and no tenure is
    /// kept.
    pub(crate) fn stand(
        &self,
        data: impl FnOnce() -> Arc<[u8]>,
    ) -> Option<Box<dyn Candidate + '_>> {
        self.session.refuse_child().ok()?;
        let protocol = self.protocol.as_queue()?;
        {
            let mut local = self.state.lock();
            if local.closed || !matches!(local.turn, Turn::Free) {
                return None;
            }
            local.turn = Turn::Leading;
        }
        // From here on: also when this panics, the others must not wait for this thread.
        let lead = self.lead();
        Some(Box::new(QueueCandidate {
            queue: self,
            protocol,
            lead,
            thread: thread_number(),
            data: data(),
            began: sync::now(),
        }))
    }
}

impl Candidate for QueueCandidate<'_> {
    fn entrant(&mut self) -> Entrant<'_> {
        Entrant {
            queue: self.protocol,
            contender: self.lead.contender(),
            request: AcquireRequest {
                wants_news: self.queue.wants_news(),
                ..AcquireRequest::plain(Arc::clone(&self.data))
            },
        }
    }

    fn win(self: Box<Self>, acquired: Acquisition) {
        let Self {
            queue,
            lead,
            thread,
            began,
            ..
        } = *self;
        queue.hold(lead, thread, acquired, began);
    }

    fn wait(self: Box<Self>, limits: &WaitLimits) -> Result<bool> {
        let Self {
            queue,
            lead,
            thread,
            data,
            began,
            ..
        } = *self;
        let result = queue.contend(lead, thread, limits, data, began);
        result.inspect_err(|error| queue.tell_failed(error, began))
    }

    fn miss(self: Box<Self>, why: Miss) {
        self.queue.tell_missed(self.began, why);
    }
}

/// A candidate at each of several locks of one session, in canonical order.
pub(crate) type Candidates<'a> = Vec<Box<dyn Candidate + 'a>>;

/// Asks for all at once, and for the first that is not free, waits. Calls `held` for each that this
/// thread holds then: the first one at least, unless there is an error. Returns whether others were
/// seen ahead.
pub(crate) fn take_together(
    session: &Arc<Session>,
    mut candidates: Candidates<'_>,
    limits: &WaitLimits,
    mut held: impl FnMut(),
) -> Result<bool> {
    let _waits = session.observation().waits();
    let entered = if candidates.len() > 1 {
        enter_all(session, &mut candidates, limits)
    } else {
        Ok(Entered::default())
    };
    let mut candidates = candidates.into_iter();
    let Entered { acquired, watch } = match entered {
        Ok(entered) => entered,
        Err(error) => {
            let first = candidates.next().expect("there is one");
            drop(candidates);
            first.miss(Miss::of(&error));
            return Err(error);
        }
    };
    for acquired in acquired {
        let candidate = candidates.next().expect("one for each that was won");
        candidate.win(acquired);
        held();
    }
    let next = candidates.next();
    // No thread of ours is to wait for one that waits for an earlier lock.
    drop(candidates);
    let Some(candidate) = next else {
        return Ok(false);
    };
    let others_ahead = candidate.wait(&limits.renewed())?;
    held();
    drop(watch);
    Ok(others_ahead)
}

fn enter_all(
    session: &Arc<Session>,
    candidates: &mut Candidates<'_>,
    limits: &WaitLimits,
) -> Result<Entered> {
    let waiter = Waiter::new(session, limits);
    let mut entrants = entrants(candidates);
    let entered = waiter
        .contact_now()
        .and_then(|contact| enter_together(&contact, &mut entrants));
    match entered {
        Ok(entered) => Ok(entered),
        // Nothing was sent. The first one waits for a connection.
        Err(CallError::NotSent(_)) => Ok(Entered::default()),
        Err(error) => Err(failure(&entrants, error)),
    }
}

/// Takes all, if all are free. `None`: they are to be tried one by one.
pub(crate) fn try_together(
    session: &Arc<Session>,
    mut candidates: Candidates<'_>,
    mut held: impl FnMut(),
) -> Result<Option<bool>> {
    let tried = {
        let limits = WaitLimits::none();
        let waiter = Waiter::new(session, &limits);
        let mut entrants = entrants(&mut candidates);
        let tried = waiter
            .contact_now()
            .and_then(|contact| try_entering(&contact, &mut entrants));
        tried.map_err(|error| failure(&entrants, error))
    };
    let many = candidates.len();
    let mut candidates = candidates.into_iter();
    match tried {
        Ok(Tried::Held(acquired)) => {
            let is_all = acquired.len() == many;
            for acquired in acquired {
                let candidate = candidates.next().expect("one for each that was won");
                candidate.win(acquired);
                held();
            }
            if let Some(next) = candidates.next() {
                next.miss(Miss::Busy);
            }
            Ok(Some(is_all))
        }
        Ok(Tried::Busy(at)) => {
            let busy = candidates.nth(at).expect("one of them");
            busy.miss(Miss::Busy);
            Ok(Some(false))
        }
        Ok(Tried::Singly) => Ok(None),
        Err(error) => {
            let first = candidates.next().expect("there are several");
            first.miss(Miss::of(&error));
            Err(error)
        }
    }
}

fn entrants<'a>(candidates: &'a mut Candidates<'_>) -> Vec<Entrant<'a>> {
    let each = candidates.iter_mut();
    each.map(|candidate| candidate.entrant()).collect()
}

fn failure(entrants: &[Entrant<'_>], error: CallError) -> Error {
    entrants[0].failure(error)
}
