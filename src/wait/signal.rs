//! One parked thread, and what can wake it.

use std::fmt;
use std::time::Instant;

use crate::sync::{self, Condvar, Mutex};

/// Reasons to wake up, as a set: what was raised since the last look.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wakes(u8);

impl Wakes {
    /// A watched node changed.
    pub(crate) const EVENT: Self = Self(1);
    /// The connection or the session changed, or the client was closed.
    pub(crate) const SESSION: Self = Self(2);
    /// The caller's cancel token was cancelled.
    pub(crate) const CANCEL: Self = Self(4);
    /// What this thread waits for was done for it: a hand-over, or the end of a call.
    pub(crate) const DONE: Self = Self(8);

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Debug for Wakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wakes({:#06b})", self.0)
    }
}

/// A place for one thread to sleep. Whoever has news raises it; nothing is lost when it is raised
/// before the thread sleeps, because the reasons are kept until they are taken.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    pending: Mutex<Wakes>,
    raised: Condvar,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self {
            pending: Mutex::new(Wakes::default()),
            raised: Condvar::new(),
        }
    }

    pub(crate) fn raise(&self, reason: Wakes) {
        let mut pending = self.pending.lock();
        pending.0 |= reason.0;
        drop(pending);
        self.raised.notify_one();
    }

    /// Sleeps until something is raised or `deadline` is over, and takes the reasons. An empty set
    /// says that the deadline ended the wait.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Wakes {
        let mut pending = self.pending.lock();
        while pending.is_empty() {
            if sync::wait_until(&self.raised, &mut pending, deadline) {
                break;
            }
        }
        std::mem::take(&mut *pending)
    }
}
