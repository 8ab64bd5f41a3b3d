//! The seam: what the session asks of what carries its requests.
//!
//! Above it are the session and the locks, below it the link or, in tests that need thousands of
//! interleavings, a store in memory ([`super::memory`]). Both speak the one vocabulary: requests and
//! replies are those of the protocol, ready to be sent (see [`site`](super::site)).

use std::sync::Arc;
use std::time::Duration;

use zklock_protocol::{Reply, Request};

pub(crate) use super::refusal::{NotNow, Refusal};
use crate::link::Epoch;
pub(crate) use crate::link::{Answer, Batching, Completion, NoReply, NotSent};

/// Carries requests to ZooKeeper. Each is answered in bounded time: when the connection breaks, as
/// lost.
pub(crate) trait Backend: Send + Sync {
    /// Sends `requests` in one write, in this order, if exactly this connection is open. Does not
    /// block. If nothing was sent, nothing is ever completed.
    fn submit(
        &self,
        connection: u64,
        requests: &[Request],
        batching: Batching,
        completion: Arc<dyn Completion>,
    ) -> Result<(), NotSent>;

    /// Whether the end of this connection would cost nobody a lock.
    fn is_harmless(&self, connection: u64) -> bool;

    /// Has somebody look at the clock of the lease, now or soon after; see
    /// [`LinkObserver::on_clock`](crate::link::LinkObserver::on_clock).
    fn look_soon(&self) {}

    /// Ends a session that we do not believe in any more; a new one is made.
    fn abandon(&self, epoch: &Epoch);
    /// Ends the session and every thread below the seam, within `bound`.
    fn close(&self, bound: Duration);
}

/// A node that was made.
#[derive(Clone, Debug)]
pub(crate) struct Created {
    pub(crate) path: String,
    /// The transaction that made it, if the server has told.
    pub(crate) czxid: Option<i64>,
}

impl Created {
    /// The node that this answers the creation of.
    pub(crate) fn of(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Path(path) => Some(Self { path, czxid: None }),
            Reply::Created { path, stat } => Some(Self {
                path,
                czxid: Some(stat.czxid),
            }),
            _ => None,
        }
    }
}
