//! [`Observer`]: hears what a client and its locks do; and the events that it is told.

use std::sync::Arc;
use std::time::Duration;

use super::super::connection::ConnectionEvent;
use super::super::loss::LossReason;
use crate::error::Error;

/// Hears what a client and its locks do; given to
/// [`ClientBuilder::observer`](crate::ClientBuilder::observer).
///
/// The default of each method does nothing. The client calls them one after the other, in the order
/// in which one thread or one lock saw the events, on a thread of its own (`zklock-aside`), and
/// never while anything of the library is locked. So a method may block without holding up a lock;
/// but once 4,096 events wait for it, further ones are left out (see
/// [`Stats::left_out`](crate::Stats::left_out)). A method may call the library. One that panics is
/// called again with the next event.
///
/// # What is reported
/// | | reported as |
/// |---|---|
/// | [`Mutex`](crate::Mutex), [`SimpleMutex`](crate::SimpleMutex), a side of a [`RwLock`](crate::RwLock), a lock of a [`LockRegistry`](crate::LockRegistry) | a lock |
/// | permits of a [`Semaphore`](crate::Semaphore) that are acquired together, a [`SemaphoreMutex`](crate::SemaphoreMutex) | a lock; the lock in front of them is not reported separately |
/// | [`MultiLock`](crate::MultiLock) | its parts, each as the lock that it is. With a [label](crate::MultiLockBuilder::label), the whole as well: each call that acquires it or does not, and each release; [`Way::Parts`] |
///
/// Not reported are
/// - **re-entries**, neither entering nor leaving: a report would cost more than the re-entry, and
///   nobody waits;
/// - **[`Barrier`](crate::Barrier) and [`DoubleBarrier`](crate::DoubleBarrier)**: waiting for the
///   others is their purpose, and would distort the times of locks. What happens to their
///   connection and their nodes is reported;
/// - **calls in a forked child**, where nothing of the client runs.
///
/// ```
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
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = Client::builder(&servers).observer(Slow).connect()?;
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
    /// A thread has stopped trying to acquire a lock.
    fn missed(&self, missed: &Missed) {}
    /// A thread has given a lock back.
    fn released(&self, released: &Released) {}
    /// A tenure has ended: this process has removed, or left to the background, what it had in
    /// ZooKeeper for a lock.
    fn tenure_ended(&self, ended: &TenureEnded) {}
    /// A lock was lost while it was held, or kept for the next thread.
    fn lost(&self, lost: &Lost) {}
    /// A node that could not be removed in time is gone now.
    fn orphan_cleaned(&self, cleaned: &OrphanCleaned) {}
    /// A step failed with its connection, and is repeated on the next.
    fn retrying(&self, retrying: &Retrying) {}
}

/// The name that a lock was given by its builder's `label`; `None` if it has none.
pub type Label = Option<Arc<str>>;

/// For [`Observer::queued`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Queued {
    /// The lock's name.
    pub label: Label,
}

/// For [`Observer::acquired`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Acquired {
    /// The lock's name.
    pub label: Label,
    /// The time from the call to the hold.
    pub waited: Duration,
    /// How.
    pub by: Way,
}

/// How a lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// ZooKeeper was asked.
    Asked,
    /// Another thread of this process handed it over.
    HandedOver,
    /// Other threads of this process read under it, and share their place.
    Shared,
    /// It was kept for the next thread of this process.
    Lingering,
    /// One after the other, as the parts of a [`MultiLock`](crate::MultiLock) that has a label. Each
    /// of them is reported, and counted in [`Stats`](crate::Stats), by itself.
    Parts,
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
    /// The lock's name.
    pub label: Label,
    /// The time from the call to its end.
    pub waited: Duration,
    /// Why.
    pub why: Miss,
}

/// Why a lock was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Miss {
    /// Somebody else had it, and the call does not wait.
    Busy,
    /// The deadline passed.
    TimedOut,
    /// The caller's token was cancelled.
    Cancelled,
    /// Another error.
    Failed,
}

impl Miss {
    pub(crate) fn of(error: &Error) -> Self {
        if error.is_timeout() {
            Self::TimedOut
        } else if error.is_cancelled() {
            Self::Cancelled
        } else {
            Self::Failed
        }
    }
}

/// For [`Observer::released`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Released {
    /// The lock's name.
    pub label: Label,
    /// The time from the acquire to the beginning of the release.
    pub held_for: Duration,
    /// Whether the release is complete: ZooKeeper has confirmed it, or the lock stays in this
    /// process. Otherwise the lock was lost, or the release goes on in the background.
    pub confirmed: bool,
}

/// For [`Observer::tenure_ended`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TenureEnded {
    /// The lock's name.
    pub label: Label,
    /// How long this process had it, over all threads that took turns.
    pub lasted: Duration,
}

/// For [`Observer::lost`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lost {
    /// The lock's name.
    pub label: Label,
    /// Why.
    pub reason: LossReason,
}

/// For [`Observer::orphan_cleaned`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OrphanCleaned {
    /// How many nodes are still to be removed.
    pub left: usize,
}

/// For [`Observer::retrying`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Retrying {
    /// How many times this call has been repeated so far.
    pub times: u32,
}
