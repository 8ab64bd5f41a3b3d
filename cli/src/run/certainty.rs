//! Until when a lock is certainly ours: the one place that knows how a guard says so.

use std::time::Instant;

use zklock::LockState;

/// What is known of the lock at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// Ours, and in contact: no end is in sight.
    Ours,
    /// Ours until then at least.
    #[cfg_attr(not(test), allow(dead_code, reason = "no guard says so yet"))]
    Until(Instant),
    /// Ours, but it may end at any moment.
    Doubtful,
    /// It may be somebody else's.
    Over,
}

/// What the guard knows now. A guard out of contact is ours for an unknown time: it says when that
/// is over, not before.
pub(crate) fn of_state(state: LockState) -> Certainty {
    match state {
        LockState::Held => Certainty::Ours,
        LockState::Suspect => Certainty::Doubtful,
        LockState::Lost => Certainty::Over,
    }
}
