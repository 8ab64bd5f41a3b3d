//! The reaper: removes nodes that were left behind in ZooKeeper.
//!
//! These are nodes whose delete was not confirmed, and nodes that a lost create may have made. Each
//! is tried until the server has confirmed the delete, or until its epoch has ended: then the
//! server removes the node together with the session. Of what a server may say to a delete, only
//! that there is no such node, or that an ACL forbids it, ends the matter; see
//! [`refusal`](super::refusal).
//!
//! Thousands can be left behind at once, by threads whose deadlines passed while the servers were
//! silent. So they go in [slices](super::sweep), and between two slices the worker does what else it
//! has to do: it also looks at nodes of ours that somebody has removed, and tells who holds by them.

use crate::session::observe::say;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::Session;
use super::orphan::{Orphan, OwnedOrphan};
use super::sweep::{KeptWhy, Swept};
use crate::link::Epoch;
use crate::sync::Mutex;

/// So many are removed in one job of the worker, in three round trips.
pub(super) const SLICE: usize = 64;

#[derive(Default)]
pub(super) struct Orphans {
    state: Mutex<OrphanQueue>,
}

#[derive(Default)]
struct OrphanQueue {
    queue: VecDeque<OwnedOrphan>,
    sweeper: Sweeper,
    /// There is a new connection since the present slice was begun.
    again: bool,
    /// Slices in a row of which the servers would have nothing for now.
    put_off: u32,
}

/// Changed together with a look at the queue, so that whoever adds an orphan either is seen by the
/// sweeper or starts it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Sweeper {
    /// There was nothing to do, or no connection to do it on.
    #[default]
    Idle,
    /// A job of the worker is at it, or will be.
    AtWork,
    /// Something was refused for now. A timer goes on, or the next connection.
    Pausing,
}

impl Session {
    /// Takes over the removal of `orphan`, which belongs to `epoch`.
    pub(crate) fn reap(self: &Arc<Self>, orphan: Orphan, epoch: &Arc<Epoch>) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.is_forked() {
            return;
        }
        let mut state = self.orphans.state.lock();
        state.queue.push_back((orphan, Arc::clone(epoch)));
        let begins = state.sweeper == Sweeper::Idle;
        if begins {
            state.sweeper = Sweeper::AtWork;
        }
        drop(state);
        if begins {
            self.sweep_next();
        }
    }

    /// There is a new connection: what could not be removed on the last one may go now.
    pub(super) fn sweep_orphans(self: &Arc<Self>) {
        let mut state = self.orphans.state.lock();
        // Before the look at the queue: the sweep may have taken the last orphan out, and be about
        // to put it back.
        if state.sweeper == Sweeper::AtWork {
            state.again = true;
            return;
        }
        if state.queue.is_empty() {
            return;
        }
        state.sweeper = Sweeper::AtWork;
        drop(state);
        self.sweep_next();
    }

    /// Behind whatever else the worker has to do.
    fn sweep_next(self: &Arc<Self>) {
        let session = Arc::clone(self);
        self.submit(move || session.sweep());
    }

    fn sweep_after_pause(self: &Arc<Self>) {
        let mut state = self.orphans.state.lock();
        // A connection may have ended that pause. That this one is another's does no harm.
        if state.sweeper != Sweeper::Pausing {
            return;
        }
        state.sweeper = Sweeper::AtWork;
        drop(state);
        self.sweep();
    }

    fn sweep(self: &Arc<Self>) {
        let (slice, left) = {
            let mut state = self.orphans.state.lock();
            state.again = false;
            let count = state.queue.len().min(SLICE);
            let slice: Vec<_> = state.queue.drain(..count).collect();
            (slice, state.queue.len())
        };
        let Swept { removed, kept, why } = self.remove_all(slice);
        let mut left = left + removed + kept.len();
        for _ in 0..removed {
            left -= 1;
            self.observation().orphan_cleaned(left);
        }
        if let Some(KeptWhy::ForNow(why)) = &why {
            let target = &self.target;
            say!(
                self,
                Debug,
                "{target}: {} orphans stay for now: {why}",
                kept.len()
            );
        }
        self.swept(removed, kept, why.as_ref());
    }

    /// Puts back what stays, and says when to go on.
    fn swept(self: &Arc<Self>, removed: usize, kept: Vec<OwnedOrphan>, why: Option<&KeptWhy>) {
        let mut state = self.orphans.state.lock();
        // Behind the others, of which there may be some that nobody refuses.
        state.queue.extend(kept);
        if removed > 0 {
            state.put_off = 0;
        }
        if state.queue.is_empty() {
            state.sweeper = Sweeper::Idle;
            return;
        }
        match why {
            _ if state.again => {}
            None => {}
            Some(KeptWhy::OutOfContact) => {
                state.sweeper = Sweeper::Idle;
                return;
            }
            Some(KeptWhy::ForNow(_)) => {
                let times = state.put_off;
                state.put_off += 1;
                state.sweeper = Sweeper::Pausing;
                drop(state);
                let session: Weak<Self> = Arc::downgrade(self);
                self.after_pause(times, move || {
                    if let Some(session) = session.upgrade() {
                        session.sweep_after_pause();
                    }
                });
                return;
            }
        }
        drop(state);
        self.sweep_next();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::{Duration, Instant};

    use zklock_protocol::{Reply, Request};

    use super::*;
    use crate::session::ConnectionState;
    use crate::session::RetryPolicy;
    use crate::session::scripted::stage;
    use crate::sync::atomic::{AtomicBool, Ordering};

    fn node(path: &str) -> Orphan {
        let path = path.to_owned();
        Orphan::Node { path }
    }

    /// A slice of orphans was lost with the panic, and nobody ever swept again: their locks stayed
    /// taken for as long as the client lived, and it looked well.
    #[test]
    fn a_panic_of_the_reaper_is_the_end_of_the_session() {
        let panicked = AtomicBool::new(false);
        let stage = stage(RetryPolicy::new(), move |request| {
            assert!(matches!(request, Request::Delete { .. }), "{request:?}");
            if !panicked.swap(true, Ordering::AcqRel) {
                std::panic::resume_unwind(Box::new("a bug of ours"));
            }
            Ok(Reply::Nothing)
        });
        let session = &stage.session;
        session.reap(node("/locks/a"), &stage.epoch);
        assert!(
            session
                .background
                .wait_ended(Instant::now() + Duration::from_secs(30))
        );
        assert_eq!(session.state(), ConnectionState::Closed);
        assert!(stage.closed.load(Ordering::Acquire));
    }
}
