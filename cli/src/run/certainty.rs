//! Until when a lock is certainly ours: the one place that knows how a guard says so.

use std::time::{Duration, Instant};

use zklock::LockState;

/// What is known of the lock at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// Ours until then at least; the end moves on as long as there is contact.
    Until(Instant),
    /// It may be somebody else's.
    Over,
}

/// What a guard knows now. Out of contact it is still ours for what remains.
pub(crate) fn of(state: LockState, remaining: Duration) -> Certainty {
    match Instant::now().checked_add(remaining) {
        Some(end) if state != LockState::Lost => Certainty::Until(end),
        _ => Certainty::Over,
    }
}
