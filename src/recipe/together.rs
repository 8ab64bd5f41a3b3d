//! How the parts of a [`MultiLock`](crate::MultiLock) are taken: as many at once as can be, one by
//! one where somebody is in the way, and always as if they had been taken in their order.

use std::sync::Arc;

use crate::error::Result;
use crate::local_queue::{Candidates, take_together, try_together};
use crate::recipe::lockable::{Guard, LockOrder, Lockable};
use crate::session::Session;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait::limits::WaitLimits;

/// How often one call asks for several at once in vain, at the cost of a create and a delete for each
/// lock behind the one where somebody was ahead.
const MOST_IN_VAIN: u32 = 2;

/// What is asked for at once is kept this small. One node can have data of up to a megabyte; many
/// in one request could be more than a server takes, though each by itself is not.
const MOST_BYTES: usize = 0x8000;

/// The locks of a multi-lock, in canonical order.
pub(super) struct Parts {
    locks: Box<[(LockOrder, Lockable)]>,
    /// Others were ahead at the first of them, when that was last taken: the next call begins with
    /// that one alone, and asks for the rest when it has it. Where several contend for the same
    /// locks, they meet there, and do not disturb each other at the rest.
    behind_lately: AtomicBool,
}

/// Guards, in the order of the locks.
type Guards = Vec<Box<dyn Guard>>;

impl Parts {
    /// Of at least one lock, in canonical order.
    pub(super) fn new(locks: Vec<(LockOrder, Lockable)>) -> Self {
        Self {
            locks: locks.into(),
            behind_lately: AtomicBool::new(false),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(LockOrder, Lockable)> {
        self.locks.iter()
    }

    /// That of the first lock.
    pub(super) fn session(&self) -> &Arc<Session> {
        self.locks[0].1.0.session()
    }

    /// Takes all locks. On an error, `held` are those that were taken before.
    pub(super) fn take_all(&self, limits: &WaitLimits, held: &mut Guards) -> Result<()> {
        let mut in_vain = 0;
        while held.len() < self.locks.len() {
            let is_first = held.is_empty();
            let alone = is_first && self.behind_lately.load(Ordering::Relaxed);
            let most = if alone || in_vain == MOST_IN_VAIN {
                1
            } else {
                usize::MAX
            };
            let candidates = self.candidates(held.len(), most);
            let (_, next) = &self.locks[held.len()];
            if candidates.is_empty() {
                held.push(next.0.take(limits)?);
                continue;
            }
            let session = next.0.session();
            let others_ahead = take_together(session, candidates, limits, || self.push(held))?;
            in_vain += u32::from(others_ahead);
            if is_first {
                self.behind_lately.store(others_ahead, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Takes all locks if they are free, and says whether they were. `None`: they are to be tried
    /// one by one.
    pub(super) fn try_all(&self, held: &mut Guards) -> Result<Option<bool>> {
        let candidates = self.candidates(0, usize::MAX);
        if candidates.len() < self.locks.len() || candidates.len() == 1 {
            return Ok(None);
        }
        try_together(self.session(), candidates, || self.push(held))
    }

    /// This thread as a candidate for the lock at `from`, and for as many of those after it as can
    /// be asked for together with it.
    fn candidates(&self, from: usize, most: usize) -> Candidates<'_> {
        let mut candidates = Vec::new();
        let mut bytes = 0;
        let session = self.locks[from].1.0.session();
        for (_, lock) in self.locks[from..].iter().take(most) {
            if !Arc::ptr_eq(lock.0.session(), session) {
                break;
            }
            let Some(mut candidate) = lock.0.stand() else {
                break;
            };
            bytes += candidate.entrant().bytes();
            if bytes > MOST_BYTES && !candidates.is_empty() {
                break;
            }
            candidates.push(candidate);
        }
        candidates
    }

    /// This thread has become the holder of the next of the locks.
    fn push(&self, held: &mut Guards) {
        let (_, next) = &self.locks[held.len()];
        held.push(next.0.guard());
    }
}
