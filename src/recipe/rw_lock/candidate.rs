//! The sides of a read-write lock as parts of what is asked for at once.

use super::{RwLock, RwReadGuard, RwWriteGuard};
use crate::local_queue::Candidate;
use crate::recipe::hold::Hold;

impl RwLock {
    /// This thread as a candidate to read, if nobody of this process comes first.
    pub(in crate::recipe) fn stand_to_read(&self) -> Option<Box<dyn Candidate + '_>> {
        self.session().refuse_child().ok()?;
        // A writer's reader queues in the writer's place.
        if self.writers.is_owner() {
            return None;
        }
        self.readers.stand(|| self.data.now())
    }

    /// This thread as a candidate to write, if nobody of this process comes first.
    pub(in crate::recipe) fn stand_to_write(&self) -> Option<Box<dyn Candidate + '_>> {
        self.session().refuse_child().ok()?;
        // A re-entry, or an error.
        if self.readers.depth() > 0 {
            return None;
        }
        // Readers of ours who only linger would keep us out.
        drop(self.readers.start_idle_release());
        self.writers.stand(|| self.data.now())
    }

    /// The guard of a candidate that has won.
    pub(in crate::recipe) fn reads(&self) -> RwReadGuard {
        RwReadGuard(Hold::new(&self.readers))
    }

    /// As [`RwLock::reads`], to write.
    pub(in crate::recipe) fn writes(&self) -> RwWriteGuard {
        RwWriteGuard(Hold::new(&self.writers), self.clone())
    }
}
