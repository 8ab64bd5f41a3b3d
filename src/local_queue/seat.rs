//! One thread that sleeps in the local queue.

use std::sync::Arc;

use crate::contend::Place;
use crate::signal::{Signal, Wakes};
use crate::sync::Mutex;

/// One sleeping thread.
pub(super) struct Seat {
    pub(super) thread: u64,
    pub(super) signal: Arc<Signal>,
    offer: Mutex<Offer>,
}

pub(super) enum Offer {
    Waiting,
    /// The lock is yours.
    Granted,
    /// Go to the global queue, from this place.
    Lead(Place),
    Closed,
    /// The thread has left.
    Left,
}

impl Seat {
    pub(super) fn new(thread: u64) -> Arc<Self> {
        Arc::new(Self {
            thread,
            signal: Arc::new(Signal::new()),
            offer: Mutex::new(Offer::Waiting),
        })
    }

    /// Gives the offer back if the thread has left.
    pub(super) fn offer(&self, offer: Offer) -> std::result::Result<(), Offer> {
        let mut current = self.offer.lock();
        if let Offer::Left = *current {
            return Err(offer);
        }
        *current = offer;
        drop(current);
        self.signal.raise(Wakes::DONE);
        Ok(())
    }

    /// What was offered, once.
    pub(super) fn take(&self) -> Option<Offer> {
        let mut offer = self.offer.lock();
        match *offer {
            Offer::Waiting => None,
            _ => Some(std::mem::replace(&mut *offer, Offer::Left)),
        }
    }

    /// Leaves, unless something was offered before.
    pub(super) fn leave(&self) -> std::result::Result<(), Offer> {
        match std::mem::replace(&mut *self.offer.lock(), Offer::Left) {
            Offer::Waiting | Offer::Left => Ok(()),
            offer => Err(offer),
        }
    }
}
