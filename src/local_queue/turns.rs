//! [`Turns`]: a queue of this process' threads, as the guards of those who hold see it.

use std::sync::Arc;

use super::{LocalQueue, SharedQueue};
use crate::error::Result;
use crate::global_queue::{PendingRelease, ReleaseMode};
use crate::session::Session;
use crate::tenure::Tenure;

/// See the [module](self).
pub(crate) trait Turns {
    /// A holder excludes all others.
    const IS_EXCLUSIVE: bool;

    fn session(&self) -> &Arc<Session>;
    /// The tenure in which the calling thread holds.
    fn tenure(&self) -> Arc<Tenure>;
    /// Begins to give one hold of the calling thread back.
    fn start_release(&self, mode: ReleaseMode) -> PendingRelease;

    /// Gives one hold of the calling thread back, and returns when ZooKeeper has confirmed it.
    #[inline]
    fn release(&self) -> Result<()> {
        self.start_release(ReleaseMode::Foreground).confirm()
    }

    /// As [`release`](Self::release), and says also if the lock was lost before. Many a
    /// release asks nothing of ZooKeeper (of an inner hold, to another thread, of a tenure that is
    /// kept), and then the clock is all that knows.
    fn unlock(&self) -> Result<()> {
        self.session().refuse_child()?;
        let was_ours = self.tenure().refuse_lost();
        let released = self.release();
        was_ours.and(released)
    }
}

macro_rules! turns {
    ($($queue:ty, $is_exclusive:literal;)*) => {$(
        impl Turns for $queue {
            const IS_EXCLUSIVE: bool = $is_exclusive;

            fn session(&self) -> &Arc<Session> {
                self.session()
            }
            fn tenure(&self) -> Arc<Tenure> {
                self.tenure()
            }
            #[inline]
            fn start_release(&self, mode: ReleaseMode) -> PendingRelease {
                self.start_release(mode)
            }
        }
    )*};
}

turns! {
    LocalQueue, true;
    SharedQueue, false;
}
