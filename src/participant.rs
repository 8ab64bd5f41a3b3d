//! [`Participant`]: one contender, as everybody can see it.

use std::fmt;

use crate::identity::Identity;

/// Who holds a lock or waits for it: one node in the lock's folder. See
/// [`Mutex::participants`](crate::Mutex::participants).
///
/// A process stands in a lock's queue with one node for all its threads, so this is a process, not
/// a thread; the identity is that of the thread that queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    pub(crate) path: String,
    pub(crate) position: usize,
    pub(crate) data: Vec<u8>,
    pub(crate) ours: bool,
    pub(crate) idle: bool,
}

impl Participant {
    /// The path of its node, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How many are ahead: 0 for the holder.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Whether it is the first in the queue.
    #[must_use]
    pub fn is_holder(&self) -> bool {
        self.position == 0
    }

    /// Whether it was made by the lock object that was asked.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// Whether it is ours, and kept with no thread inside (see
    /// [`linger`](crate::MutexBuilder::linger)). Of other processes this is not known: telling
    /// them would take a write each time.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// What it left for others to read.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Who it is, if it left the default data of this library.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        Identity::parse(&self.data)
    }
}

impl fmt::Display for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.is_holder() { "holds" } else { "waits" };
        write!(f, "{} {role} ", self.path)?;
        match self.identity() {
            Some(identity) => identity.fmt(f),
            None => String::from_utf8_lossy(&self.data).escape_debug().fmt(f),
        }
    }
}
