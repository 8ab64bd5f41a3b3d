//! Jobs of the background that outlast a session if that ends first, as they remove a persistent node that a
//! member of a rendezvous is to take along. The end of a client waits for it, for a while.

use std::sync::Arc;
use std::time::Instant;

use crate::sync::{self, Condvar, Mutex};

pub(super) struct Departures {
    under_way: Mutex<usize>,
    over: Condvar,
}

/// One that is under way. Dropped when it is over, or was dropped with its queue.
pub(super) struct UnderWay(Arc<Departures>);

impl Departures {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            under_way: Mutex::new(0),
            over: Condvar::new(),
        })
    }

    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        *self.under_way.lock() += 1;
        UnderWay(Arc::clone(self))
    }

    /// Waits until none is under way, until `deadline` at most.
    pub(super) fn wait_until_over(&self, deadline: Instant) {
        let mut under_way = self.under_way.lock();
        while *under_way > 0 {
            if sync::wait_until(&self.over, &mut under_way, Some(deadline)) {
                return;
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.0.under_way.lock() -= 1;
        self.0.over.notify_all();
    }
}
