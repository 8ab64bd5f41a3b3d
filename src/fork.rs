//! Refuses a client that was inherited through `fork`.
//!
//! The child of a fork has the parent's socket and memory, but none of its threads: a call would
//! wait for ever for a thread that is not there, and what it wrote would speak for the parent's
//! session. (kazoo's users met this with `multiprocessing`.) Each client therefore remembers how
//! often its process line had forked when it was made.

use crate::error::Error;

#[derive(Clone, Debug)]
pub(crate) struct ForkCheck(forkguard::Guard);

impl ForkCheck {
    pub(crate) fn new() -> Self {
        Self(forkguard::new())
    }

    /// Whether this is a child that was forked after [`ForkCheck::new`]. One load, no system call.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.0.clone().detected_fork()
    }

    #[inline]
    pub(crate) fn refuse_child(&self) -> Result<(), Error> {
        if self.forked() {
            return Err(Error::forked());
        }
        Ok(())
    }
}
