//! [`Observer`]: who wants to hear what a client and its locks do, and what it is told.

use std::sync::Arc;
use std::time::Duration;

use super::super::connection::ConnectionEvent;
use super::super::loss::LossReason;

/// Hears what a client and its locks do; given to
/// [`ClientBuilder::observer`](crate::ClientBuilder::observer).
///
/// Every method does nothing unless it is written. They are called one after the other, in the
/// order of what happened as far as one thread or one lock saw it, on a thread of the client that
/// does nothing else (`zklock-aside`), and never while anything of the library is locked. So a
/// method may block: it holds up no lock, but after 4,096 events that wait for it further ones are
/// left out (see [`Stats::left_out`](crate::Stats::left_out)). It may call the library. One that
/// panics is called again with the next event.
///
/// A re-entry is told of neither when it is entered nor when it is left. The lock in front of a
/// [`Semaphore`](crate::Semaphore)'s permits is not told of apart from them.
///
/// ```no_run
/// use zklock::{Client, Observer, event};
///
/// struct Slow;
///
/// impl Observer for Slow {
///     fn acquired(&self, acquired: &event::Acquired) {
///         if acquired.waited.as_secs() > 1 {
///             eprintln!("{:?} took {:?}", acquired.label, acquired.waited);
///         }
///     }
/// }
///
/// # fn main() -> zklock::Result<()> {
/// let client = Client::builder("localhost:2181").observer(Slow).connect()?;
/// let lock = zklock::Mutex::builder(&client, "/locks/nightly").label("nightly").build()?;
/// # Ok(())
/// # }
/// ```
#[expect(
    unused_variables,
    reason = "the names are for those who write the methods"
)]
pub trait Observer: Send + Sync {
    /// The connection has changed.
    fn connection(&self, event: &ConnectionEvent) {}
    /// A thread has begun to wait for others: in the queue of this process, or in ZooKeeper's.
    fn queued(&self, queued: &Queued) {}
    /// A thread has acquired a lock.
    fn acquired(&self, acquired: &Acquired) {}
    /// A thread has not acquired a lock.
    fn missed(&self, missed: &Missed) {}
    /// A thread has given a lock back.
    fn released(&self, released: &Released) {}
    /// A tenure has ended: this process has given back, or handed to the background, what it had
    /// in ZooKeeper for a lock.
    fn tenure_ended(&self, ended: &TenureEnded) {}
    /// A lock was lost while it was held, or kept for the next thread.
    fn lost(&self, lost: &Lost) {}
    /// A node that could not be removed when it should have been is gone now.
    fn orphan_cleaned(&self, cleaned: &OrphanCleaned) {}
    /// A step failed with its connection, and is taken again on the next.
    fn retrying(&self, retrying: &Retrying) {}
}

/// What a lock was called by its builder; `None` if nothing.
pub type Label = Option<Arc<str>>;

/// For [`Observer::queued`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Queued {
    /// What the lock is called.
    pub label: Label,
}

/// For [`Observer::acquired`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Acquired {
    /// What the lock is called.
    pub label: Label,
    /// From the call to the hold.
    pub waited: Duration,
    /// By what way.
    pub by: Way,
}

/// By what way a lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// ZooKeeper was asked.
    Asked,
    /// Another thread of this process handed it over, or shares it.
    HandedOver,
    /// It was kept for the next thread of this process.
    Lingering,
}

/// For [`Observer::missed`].
///
/// ```no_run
/// use zklock::event::{Miss, Missed};
///
/// struct Alarm;
///
/// impl zklock::Observer for Alarm {
///     fn missed(&self, missed: &Missed) {
///         // That a lock is busy is no trouble; that a wait came to nothing is.
///         if missed.why != Miss::Busy {
///             eprintln!("{:?}: {:?} after {:?}", missed.label, missed.why, missed.waited);
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Missed {
    /// What the lock is called.
    pub label: Label,
    /// From the call to its end.
    pub waited: Duration,
    /// Why.
    pub why: Miss,
}

/// Why a lock was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Miss {
    /// Somebody else had it, and the call was not to wait.
    Busy,
    /// The deadline came first.
    TimedOut,
    /// The caller's token was cancelled.
    Cancelled,
    /// Another error.
    Failed,
}

/// For [`Observer::released`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Released {
    /// What the lock is called.
    pub label: Label,
    /// From the acquire to the release.
    pub held_for: Duration,
    /// Whether all that this release asks for is done: ZooKeeper has confirmed it, or the lock
    /// stays in this process. Else it was lost, or the release goes on in the background.
    pub confirmed: bool,
}

/// For [`Observer::tenure_ended`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TenureEnded {
    /// What the lock is called.
    pub label: Label,
    /// For how long this process had it, over all threads that took turns.
    pub lasted: Duration,
}

/// For [`Observer::lost`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lost {
    /// What the lock is called.
    pub label: Label,
    /// Why.
    pub reason: LossReason,
}

/// For [`Observer::orphan_cleaned`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OrphanCleaned {
    /// How many others are still to be removed.
    pub left: usize,
}

/// For [`Observer::retrying`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Retrying {
    /// How often this call has come to this so far.
    pub times: u32,
}
