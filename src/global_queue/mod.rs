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
//! Failures are handled in one place, [`Waiter::retry`](crate::session::Waiter::retry): after a
//! call that was not answered, the step begins again at the top, on the next connection. Nothing is
//! ever concluded from what was seen on an earlier connection.

mod acquire;
mod contender;
pub(crate) mod count;
mod downgrade;
mod folder;
#[cfg(not(shuttle))]
mod head;
mod last_seen;
mod limit;
mod participants;
pub(crate) mod permits;
pub(crate) mod queue;
mod release;
pub(crate) mod rendezvous;
pub(crate) mod single_node;
mod take_over;
mod together;

pub(crate) use self::acquire::{AcquireRequest, Acquisition, OthersWaiting};
pub(crate) use self::contender::Contender;
pub(crate) use self::folder::make_node;
#[cfg(not(shuttle))]
pub(crate) use self::head::QueueHead;
pub(crate) use self::limit::Limit;
pub(crate) use self::participants::QueuedNode;
pub(crate) use self::permits::PermitFolder;
pub(crate) use self::queue::GlobalQueue;
pub use self::queue::WaitStrategy;
pub(crate) use self::release::{PendingRelease, ReleaseMode};
pub(crate) use self::rendezvous::{Member, Rendezvous};
pub(crate) use self::single_node::SingleNode;
pub(crate) use self::together::{Entered, Entrant, Tried, enter_together, try_entering};
use crate::error::Result;
use crate::session::{Contact, Session, Step, Waiter};
use crate::tenure::Tenure;
use crate::znode::path::LockPath;
use std::sync::Arc;

/// The protocol by which one thread acquires for all of its process: the head of a queue, or a
/// single node.
pub(crate) trait LockProtocol: Send + Sync {
    fn session(&self) -> &Arc<Session>;
    fn path(&self) -> &LockPath;
    /// Where an acquire begins.
    fn begin(&self) -> Contender;
    /// Waits until it is our turn. On an error `contender` says what still stands.
    fn acquire(
        &self,
        contender: &mut Contender,
        waiter: &Waiter<'_>,
        request: &AcquireRequest<'_>,
    ) -> Result<Acquisition>;
    /// Takes what is free, without waiting. Writes nothing if it is not.
    fn try_acquire(
        &self,
        waiter: &Waiter<'_>,
        request: &AcquireRequest<'_>,
    ) -> Result<Option<Acquisition>>;
    /// Looks whether others wait for what we hold, and leaves a watch that tells of any who come.
    /// Fails if our node does not hold any more.
    fn look_for_others(&self, tenure: &Tenure, contact: &Contact<'_>) -> Step<OthersWaiting>;
    /// Begins to end a tenure: our node is deleted.
    fn start_release(
        &self,
        tenure: &Arc<Tenure>,
        news: OthersWaiting,
        mode: ReleaseMode,
    ) -> PendingRelease;
    /// The nodes that stand, in order, with their data.
    fn participants(&self) -> Result<Vec<QueuedNode>>;
    /// Asks for the lock back. Returns whether the node was still there.
    fn revoke(&self, path: &str) -> Result<bool>;
    /// Deletes a contender's node. Returns whether it was still there.
    fn break_lock(&self, path: &str) -> Result<bool>;
    /// If it is a queue, which can be entered together with others.
    fn as_queue(&self) -> Option<&GlobalQueue> {
        None
    }
}
