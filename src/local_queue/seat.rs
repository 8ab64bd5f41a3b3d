//! One thread that sleeps in a local queue, and the row of them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Error;
use crate::global_queue::Place;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait::bound::Bound;
use crate::wait::cancel::CancelToken;
use crate::wait::signal::{Signal, Wakes};

/// One sleeping thread.
pub(super) struct Seat {
    pub(super) thread: u64,
    signal: Arc<Signal>,
    offer: Mutex<Offer>,
    /// The bound of the thread's call, and with it the reporter of its positions.
    bound: Bound,
    /// See [`Seat::comes_first`].
    first: AtomicBool,
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

/// How a thread came out of its sleep.
pub(super) enum Woken {
    Offered(Offer),
    /// Its bound was over first.
    Over(Error),
    /// Its bound was over, and it was offered something at the last moment.
    Both(Error, Offer),
}

impl Seat {
    pub(super) fn new(thread: u64, bound: &Bound) -> Arc<Self> {
        Arc::new(Self {
            thread,
            signal: Arc::new(Signal::new()),
            offer: Mutex::new(Offer::Waiting),
            bound: bound.clone(),
            first: AtomicBool::new(false),
        })
    }

    /// This reader came before any writer that is behind the leader's node.
    pub(super) fn comes_first(&self) {
        self.first.store(true, Ordering::Release);
    }

    pub(super) fn came_first(&self) -> bool {
        self.first.load(Ordering::Acquire)
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

    /// Sleeps until something is offered, or the bound is over. In the latter case the seat has
    /// been left, and must be taken out of its row.
    pub(super) fn wait(&self) -> Woken {
        let cancel = self.bound.cancel.as_ref();
        let _attached = cancel.map(|token| CancelToken::attach(token, &self.signal));
        loop {
            if let Some(offer) = self.take() {
                return Woken::Offered(offer);
            }
            let wakes = self.signal.wait(self.bound.deadline);
            let over = if wakes.has(Wakes::CANCEL) {
                Error::cancelled()
            } else if wakes.is_empty() {
                Error::timeout()
            } else {
                continue;
            };
            return match self.leave() {
                Ok(()) => Woken::Over(over),
                Err(offer) => Woken::Both(over, offer),
            };
        }
    }

    /// What was offered, once.
    fn take(&self) -> Option<Offer> {
        let mut offer = self.offer.lock();
        match *offer {
            Offer::Waiting => None,
            _ => Some(std::mem::replace(&mut *offer, Offer::Left)),
        }
    }

    /// Leaves, unless something was offered before.
    fn leave(&self) -> std::result::Result<(), Offer> {
        match std::mem::replace(&mut *self.offer.lock(), Offer::Left) {
            Offer::Waiting | Offer::Left => Ok(()),
            offer => Err(offer),
        }
    }
}

/// The sleeping threads of one lock, first come first served.
#[derive(Default)]
pub(super) struct Row {
    seats: VecDeque<Arc<Seat>>,
    /// How many of them want to know their position.
    curious: usize,
}

impl Row {
    pub(super) fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.seats.len()
    }

    #[cfg(all(test, shuttle))]
    pub(super) fn first_comers(&self) -> usize {
        let seats = self.seats.iter();
        seats.filter(|seat| seat.came_first()).count()
    }

    pub(super) fn first(&self) -> Option<&Seat> {
        self.seats.front().map(|seat| &**seat)
    }

    pub(super) fn push(&mut self, seat: Arc<Seat>) {
        self.curious += usize::from(seat.bound.reporter.is_some());
        self.seats.push_back(seat);
        self.report();
    }

    pub(super) fn pop(&mut self) -> Option<Arc<Seat>> {
        let seat = self.seats.pop_front()?;
        self.curious -= usize::from(seat.bound.reporter.is_some());
        self.report();
        Some(seat)
    }

    pub(super) fn remove(&mut self, seat: &Arc<Seat>) {
        if let Some(at) = self.seats.iter().position(|other| Arc::ptr_eq(other, seat)) {
            self.seats.remove(at);
            self.curious -= usize::from(seat.bound.reporter.is_some());
            self.report();
        }
    }

    /// Offers the lead to the first who takes it; gives the place back if nobody does.
    pub(super) fn offer_lead(&mut self, mut place: Place) -> std::result::Result<(), Place> {
        while let Some(seat) = self.pop() {
            match seat.offer(Offer::Lead(place)) {
                Ok(()) => return Ok(()),
                Err(Offer::Lead(back)) => place = back,
                Err(_) => unreachable!("comes back as it went"),
            }
        }
        Err(place)
    }

    /// Nobody sleeps here any more.
    pub(super) fn close(&mut self) -> impl FnOnce() + use<> {
        let seats = std::mem::take(self).seats;
        move || {
            for seat in seats {
                let _ = seat.offer(Offer::Closed);
            }
        }
    }

    fn report(&self) {
        if self.curious == 0 {
            return;
        }
        for (ahead, seat) in self.seats.iter().enumerate() {
            if let Some(reporter) = &seat.bound.reporter {
                // And the one who leads or holds.
                reporter.report(ahead + 1, 0);
            }
        }
    }
}
