//! One thread that sleeps in a local queue, and the queue of them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Error;
use crate::global_queue::Contender;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait::cancel::CancelToken;
use crate::wait::limits::WaitLimits;
use crate::wait::signal::{Signal, Wakes};

/// One sleeping thread.
pub(super) struct ParkedThread {
    pub(super) thread: u64,
    signal: Arc<Signal>,
    offer: Mutex<Offer>,
    /// The limits of the thread's call, and with it the reporter of its positions.
    limits: WaitLimits,
    /// See [`ParkedThread::comes_first`].
    first: AtomicBool,
}

pub(super) enum Offer {
    Waiting,
    /// The lock is yours.
    Granted,
    /// Go to the global queue, and go on from there with this contender.
    Lead(Contender),
    Closed,
    /// The thread has left.
    Left,
}

/// How a thread came out of its sleep.
pub(super) enum Woken {
    Offered(Offer),
    /// Its deadline was over first, or its token cancelled.
    Over(Error),
    /// The same, and it was offered something at the last moment.
    Both(Error, Offer),
}

impl ParkedThread {
    pub(super) fn new(thread: u64, limits: &WaitLimits) -> Arc<Self> {
        Arc::new(Self {
            thread,
            signal: Arc::new(Signal::new()),
            offer: Mutex::new(Offer::Waiting),
            limits: limits.clone(),
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

    /// Sleeps until something is offered, or the caller's limits end the wait. In the latter case it has
    /// been left, and must be taken out of its queue.
    pub(super) fn wait(&self) -> Woken {
        let cancel = self.limits.cancel.as_ref();
        let _attached = cancel.map(|token| CancelToken::attach(token, &self.signal));
        loop {
            if let Some(offer) = self.take() {
                return Woken::Offered(offer);
            }
            let wakes = self.signal.wait(self.limits.deadline);
            let over = if wakes.has(Wakes::CANCEL) {
                Error::cancelled()
            } else if wakes.is_empty() {
                self.limits.over()
            } else {
                continue;
            };
            return match self.leave() {
                Ok(()) => Woken::Over(over),
                Err(offer) => Woken::Both(over, offer),
            };
        }
    }

    /// The offer, once.
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
    wants_position: usize,
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
        self.wants_position += usize::from(parked.limits.reporter.is_some());
        self.threads.push_back(parked);
        self.report();
    }

    pub(super) fn pop(&mut self) -> Option<Arc<ParkedThread>> {
        let parked = self.threads.pop_front()?;
        self.wants_position -= usize::from(parked.limits.reporter.is_some());
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
            self.wants_position -= usize::from(parked.limits.reporter.is_some());
            self.report();
        }
    }

    /// Offers the lead to the first who takes it; gives the contender back if nobody does.
    pub(super) fn offer_lead(
        &mut self,
        mut contender: Contender,
    ) -> std::result::Result<(), Contender> {
        while let Some(parked) = self.pop() {
            match parked.offer(Offer::Lead(contender)) {
                Ok(()) => return Ok(()),
                Err(Offer::Lead(back)) => contender = back,
                Err(_) => unreachable!("comes back as it went"),
            }
        }
        Err(contender)
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
        if self.wants_position == 0 {
            return;
        }
        for (ahead, parked) in self.threads.iter().enumerate() {
            if let Some(reporter) = &parked.limits.reporter {
                // And the one who leads or holds.
                reporter.report(ahead + 1, 0);
            }
        }
    }
}
