//! One thread that sleeps in a local queue, and the queue of them.

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
pub(super) struct ParkedThread {
    pub(super) thread: u64,
    signal: Arc<Signal>,
    offer: Mutex<Offer>,
    /// The bound of the thread's call, and with it the reporter of its positions.
    bound: Bound,
    /// See [`ParkedThread::comes_first`].
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

impl ParkedThread {
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

    /// Sleeps until something is offered, or the bound is over. In the latter case it has
    /// been left, and must be taken out of its queue.
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
                self.bound.over()
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
pub(super) struct WaitQueue {
    threads: VecDeque<Arc<ParkedThread>>,
    /// How many of them want to know their position.
    curious: usize,
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }

    #[cfg(all(test, shuttle))]
    pub(super) fn first_comers(&self) -> usize {
        let threads = self.threads.iter();
        threads.filter(|parked| parked.came_first()).count()
    }

    pub(super) fn first(&self) -> Option<&ParkedThread> {
        self.threads.front().map(|parked| &**parked)
    }

    pub(super) fn push(&mut self, parked: Arc<ParkedThread>) {
        self.curious += usize::from(parked.bound.reporter.is_some());
        self.threads.push_back(parked);
        self.report();
    }

    pub(super) fn pop(&mut self) -> Option<Arc<ParkedThread>> {
        let parked = self.threads.pop_front()?;
        self.curious -= usize::from(parked.bound.reporter.is_some());
        self.report();
        Some(parked)
    }

    pub(super) fn remove(&mut self, parked: &Arc<ParkedThread>) {
        if let Some(at) = self
            .threads
            .iter()
            .position(|other| Arc::ptr_eq(other, parked))
        {
            self.threads.remove(at);
            self.curious -= usize::from(parked.bound.reporter.is_some());
            self.report();
        }
    }

    /// Offers the lead to the first who takes it; gives the place back if nobody does.
    pub(super) fn offer_lead(&mut self, mut place: Place) -> std::result::Result<(), Place> {
        while let Some(parked) = self.pop() {
            match parked.offer(Offer::Lead(place)) {
                Ok(()) => return Ok(()),
                Err(Offer::Lead(back)) => place = back,
                Err(_) => unreachable!("comes back as it went"),
            }
        }
        Err(place)
    }

    /// Nobody sleeps here any more.
    pub(super) fn close(&mut self) -> impl FnOnce() + use<> {
        let threads = std::mem::take(self).threads;
        move || {
            for parked in threads {
                let _ = parked.offer(Offer::Closed);
            }
        }
    }

    fn report(&self) {
        if self.curious == 0 {
            return;
        }
        for (ahead, parked) in self.threads.iter().enumerate() {
            if let Some(reporter) = &parked.bound.reporter {
                // And the one who leads or holds.
                reporter.report(ahead + 1, 0);
            }
        }
    }
}
