//! The lead: the right and duty to go to the global queue for all threads of a process; and how a
//! sleeping thread comes to it, or to the lock itself. Both local queues share this.

use std::sync::Arc;

use super::wait_queue::{Offer, ParkedThread, Woken};
use crate::error::{Error, Result};
use crate::global_queue::Contender;

/// A queue of this process's threads, of which one leads.
pub(super) trait Leads {
    /// A lead was not won, or is not needed any more: the next thread goes on with `contender`.
    fn pass_on(&self, contender: Contender);
    /// A thread waits no longer.
    fn vacate(&self, parked: &Arc<ParkedThread>);
    /// The lock's path, for messages.
    fn name(&self) -> &str;
}

/// See the [module](self). Dropping it passes it on, with the contender as it is, to the next
/// thread.
pub(super) struct Lead<'a, Q: Leads> {
    queue: &'a Q,
    /// Empty once won.
    contender: Option<Contender>,
}

impl<'a, Q: Leads> Lead<'a, Q> {
    pub(super) fn new(queue: &'a Q, contender: Contender) -> Self {
        Self {
            queue,
            contender: Some(contender),
        }
    }

    pub(super) fn contender(&mut self) -> &mut Contender {
        self.contender.as_mut().expect("not won yet")
    }

    /// This thread holds now: nobody goes on from here.
    pub(super) fn acquired(mut self) {
        self.contender = None;
    }
}

impl<Q: Leads> Drop for Lead<'_, Q> {
    fn drop(&mut self) {
        if let Some(contender) = self.contender.take() {
            self.queue.pass_on(contender);
        }
    }
}

/// How a thread came out of the local queue.
pub(super) enum TurnOutcome<'a, Q: Leads> {
    Held,
    Lead(Lead<'a, Q>),
}

/// Sleeps until this thread holds, or leads.
pub(super) fn wait_for_turn<'a, Q: Leads>(
    queue: &'a Q,
    parked: &Arc<ParkedThread>,
) -> Result<TurnOutcome<'a, Q>> {
    match parked.wait() {
        Woken::Offered(offer) => accept(queue, offer),
        Woken::Over(error) => {
            queue.vacate(parked);
            Err(error.context(queue.name()))
        }
        // A lead is no use at the deadline, and goes on to the next when it is dropped.
        Woken::Both(error, offer) => match accept(queue, offer)? {
            TurnOutcome::Held => Ok(TurnOutcome::Held),
            TurnOutcome::Lead(_) => Err(error.context(queue.name())),
        },
    }
}

fn accept<Q: Leads>(queue: &Q, offer: Offer) -> Result<TurnOutcome<'_, Q>> {
    match offer {
        Offer::Granted => Ok(TurnOutcome::Held),
        Offer::Lead(contender) => Ok(TurnOutcome::Lead(Lead::new(queue, contender))),
        Offer::Closed => Err(Error::closed()),
        Offer::Waiting | Offer::Left => unreachable!("never offered"),
    }
}
