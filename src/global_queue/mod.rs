//! The global queue: how one contender gets from its create to what it asks for.
//!
//! ```text
//! create -> list -> our turn? ------------------------------> tenure
//!             ^       | no: watch the one ahead, sleep
//!             |       v
//!             +--- woken (its node changed, the connection changed)
//! ```
//!
//! A [`Folder`] is a small client for one folder's nodes. Four protocols are built on it: the
//! [queue](queue), the [permits](permits), the [rendezvous](rendezvous) and the [single
//! node](single_node). Each takes steps on a contact, which is one connection of one session.
//! Failures are handled in one place, [`Waiter::persist`](crate::session::Waiter::persist): after a
//! call that was not answered, the step begins again at the top, on the next connection. Nothing is
//! ever concluded from what was seen on an earlier connection.

pub(crate) mod count;
mod downgrade;
mod folder;
mod leave;
mod limit;
mod participants;
pub(crate) mod permits;
mod place;
pub(crate) mod queue;
pub(crate) mod rendezvous;
pub(crate) mod single_node;
mod tail;
mod take_over;
mod together;

pub(crate) use self::folder::make_node;
pub(crate) use self::leave::Departure;
pub(crate) use self::limit::Limit;
pub(crate) use self::participants::Queued;
pub(crate) use self::permits::PermitFolder;
pub(crate) use self::place::{Claim, OthersWaiting, Place, Won};
pub(crate) use self::queue::GlobalQueue;
pub use self::queue::WaitStrategy;
pub(crate) use self::rendezvous::{Member, Rendezvous};
pub(crate) use self::single_node::SingleNode;
pub(crate) use self::together::{Entered, Entrant, Tried, enter_together, try_entering};
use crate::error::Result;
use crate::session::{Contact, Session, Step, Waiter};
use crate::tenure::Tenure;
use crate::znode::path::LockPath;
use std::sync::Arc;

/// What one thread acquires for all of its process: a place at the head of a queue, or a single
/// node.
pub(crate) trait Contest: Send + Sync {
    fn session(&self) -> &Arc<Session>;
    fn path(&self) -> &LockPath;
    /// Where an acquire begins.
    fn begin(&self) -> Place;
    /// Waits until it is our turn. On an error `place` says what is still queued.
    fn acquire(&self, place: &mut Place, waiter: &Waiter<'_>, claim: &Claim<'_>) -> Result<Won>;
    /// Takes what is free, without waiting. Writes nothing if it is not.
    fn try_acquire(&self, waiter: &Waiter<'_>, claim: &Claim<'_>) -> Result<Option<Won>>;
    /// Looks whether others wait for what we hold, and leaves a watch that tells of any who come.
    /// Fails if our node does not hold any more.
    fn look_for_others(&self, tenure: &Tenure, contact: &Contact<'_>) -> Step<OthersWaiting>;
    /// Begins to end a tenure: our node is deleted.
    fn send_off(&self, tenure: &Arc<Tenure>, news: OthersWaiting) -> Departure;
    /// Ends a tenure. Asks nobody anything on this thread.
    fn abandon(&self, tenure: &Arc<Tenure>, news: OthersWaiting);
    /// The nodes that stand, in order, with their data.
    fn participants(&self) -> Result<Vec<Queued>>;
    /// Asks for the lock back. Returns whether the node was still there.
    fn revoke(&self, path: &str) -> Result<bool>;
    /// Deletes a contender's node. Returns whether it was still there.
    fn break_lock(&self, path: &str) -> Result<bool>;
    /// If it is a queue, which can be entered together with others.
    fn as_queue(&self) -> Option<&GlobalQueue> {
        None
    }
}
