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

/// What a guard knows. Out of contact it is still ours for what remains, which was asked for after
/// `asked`: whoever is stopped between the two then knows of an end that is too early, not too late.
pub(crate) fn of(asked: Instant, state: LockState, remaining: Duration) -> Certainty {
    match asked.checked_add(remaining) {
        Some(end) if state != LockState::Lost => Certainty::Until(end),
        _ => Certainty::Over,
    }
}
