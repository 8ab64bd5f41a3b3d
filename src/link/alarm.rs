//! What `zklock-clock` sleeps on.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Ends a sleep of `zklock-clock`.
#[derive(Default)]
pub(super) struct Alarm {
    /// Since the last sleep ended.
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Alarm {
    /// Ends the sleep that is under way, or the next.
    pub(super) fn ring(&self) {
        *self.is_rung.lock() = true;
        self.rung.notify_one();
    }

    /// Sleeps for `limit`, or until it rings. `None`: until it rings.
    pub(super) fn sleep(&self, limit: Option<Duration>) {
        let mut is_rung = self.is_rung.lock();
        if !*is_rung {
            // Woken too early, it looks once more.
            match limit {
                Some(limit) => drop(self.rung.wait_for(&mut is_rung, limit)),
                None => self.rung.wait(&mut is_rung),
            }
        }
        *is_rung = false;
    }
}
