//! Holds that may leave their thread; see [Holds](super#holds).

use super::LocalQueue;
use super::thread_number::thread_number;
use crate::error::Result;
use crate::global_queue::ReleaseMode;
use crate::sync::atomic::Ordering;

impl LocalQueue {
    /// One guard of this thread, the owner, becomes a hold that may be given back by any thread.
    pub(crate) fn detach(&self) {
        // What a forked child has inherited stays its parent's, whatever becomes of it there; and
        // `state` may be locked by a thread that is not there.
        if self.session.is_forked() {
            return;
        }
        let mut local = self.state.lock();
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth - 1, Ordering::Relaxed);
        local.detached += 1;
    }

    /// The one guard of this thread, the owner, becomes a hold that any thread may give back, and no
    /// thread is the owner until then: this one waits like any other if it asks again.
    pub(crate) fn disown(&self) {
        if self.session.is_forked() {
            return;
        }
        let mut local = self.state.lock();
        debug_assert_eq!(self.depth.load(Ordering::Relaxed), 1, "not entered again");
        self.depth.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
        local.detached += 1;
    }

    /// A detached hold becomes a guard of this thread again, if this is the owner. Returns whether
    /// it did. Another thread's guard would be beside whatever the owner does: it may have other
    /// guards, or read.
    pub(crate) fn attach(&self) -> bool {
        if self.session.is_forked() {
            return self.is_owner();
        }
        let Some(mut local) = self.lock_as_owner(thread_number()) else {
            return false;
        };
        let attached = self.deepen(&local).is_ok();
        local.detached -= usize::from(attached);
        attached
    }

    /// Gives a detached hold back, on any thread.
    pub(crate) fn release_detached(&self) -> Result<()> {
        self.session.refuse_child()?;
        let next = {
            let mut local = self.state.lock();
            local.detached -= 1;
            self.end_turn_without_holds(&mut local)
        };
        self.release_slowly(next, ReleaseMode::Foreground).confirm()
    }
}
