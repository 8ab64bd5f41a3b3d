//! [`EpochBound`]: what stands and falls with a session.

use std::sync::Arc;
use std::time::Instant;

use super::call_error::Step;
use super::contact::Contact;
use super::loss::LossReason;
use super::verbs::Seen;
use super::watches::Watch;

/// Lost with its session: a tenure, as the session sees it.
pub(crate) trait EpochBound: Send + Sync {
    /// The session is over, or the client was closed.
    fn lose(&self, reason: LossReason);
    /// Watches on our nodes, which the reads of these are to leave; none if nobody need look.
    fn begin_look(self: Arc<Self>, contact: &Contact<'_>) -> Vec<Watch>;
    /// Our nodes were read with these watches on `contact`. On `zklock-chores`.
    fn looked(self: Arc<Self>, contact: &Contact<'_>, watches: Vec<Watch>, seen: Vec<Step<Seen>>);
    /// When this began, if nobody watches our nodes.
    fn unwatched_since(&self) -> Option<Instant>;
    /// The paths of our nodes.
    fn nodes(&self) -> &[String];
}
