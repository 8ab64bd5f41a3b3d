//! [`Lockable`]: what can be a part of a [`MultiLock`](crate::MultiLock), and the guards of such parts.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::global_queue::{PendingRelease, ReleaseMode};
use crate::link::{ConnectString, HostPort};
use crate::local_queue::Candidate;
use crate::recipe::hold::Holding;
use crate::recipe::mutex::{Mutex, MutexGuard};
use crate::recipe::rw_lock::{RwLock, RwReadGuard, RwWriteGuard};
use crate::recipe::semaphore::{Permit, Semaphore};
use crate::recipe::semaphore_mutex::{SemaphoreMutex, SemaphoreMutexGuard};
use crate::recipe::simple_mutex::{SimpleMutex, SimpleMutexGuard};
use crate::session::Session;
use crate::wait::limits::WaitLimits;

/// A part of a [`MultiLock`](crate::MultiLock): a [`Mutex`], a [`SemaphoreMutex`], a [`SimpleMutex`], one
/// [side](RwLock::read_side) of a [`RwLock`], or [permits](Semaphore::permits) of a [`Semaphore`].
pub struct Lockable(pub(super) Box<dyn LockPart>);

pub(super) trait LockPart: fmt::Debug + Send + Sync {
    fn session(&self) -> &Arc<Session>;
    fn order(&self) -> LockOrder;
    fn take(&self, limits: &WaitLimits) -> Result<Box<dyn Guard>>;
    fn try_take(&self) -> Result<Option<Box<dyn Guard>>>;
    /// This thread as a candidate, to ask for several locks at once. `None`: the lock is to be
    /// asked for by itself.
    fn stand(&self) -> Option<Box<dyn Candidate + '_>>;
    /// The guard of a candidate that has won.
    fn guard(&self) -> Box<dyn Guard>;
}

impl fmt::Debug for Lockable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a lock stands in the canonical order: by its path from the root of the ensemble, whatever
/// chroot it is reached through. Then by the ensemble, and by the name that tells it from other
/// locks in its folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LockOrder {
    pub(super) path: String,
    /// The servers, sorted: two clients may name them in another order, with or without a port.
    ensemble: Vec<String>,
    name: String,
}

impl LockOrder {
    fn of(session: &Session, path: &str, name: String) -> Self {
        let to = session.target().parse::<ConnectString>();
        let ConnectString { hosts, chroot } = to.expect("the client has parsed it");
        let mut ensemble: Vec<_> = hosts.iter().map(HostPort::canonical).collect();
        ensemble.sort_unstable();
        ensemble.dedup();
        Self {
            path: format!("{}{path}", chroot.unwrap_or_default()),
            ensemble,
            name,
        }
    }
}

/// A guard of any kind.
pub(super) trait Guard: Holding {
    /// Begins to give it back. The guard keeps alive what it stands on until it is dropped.
    fn start_release(&mut self, mode: ReleaseMode) -> PendingRelease;
}

macro_rules! guards {
    ($($guard:ty;)*) => {$(
        impl Guard for $guard {
            fn start_release(&mut self, mode: ReleaseMode) -> PendingRelease {
                self.start_release(mode)
            }
        }
    )*};
}

guards! {
    MutexGuard;
    SimpleMutexGuard;
    SemaphoreMutexGuard;
    RwReadGuard;
    RwWriteGuard;
    Permit;
}

/// The reading side of a [`RwLock`], as a part of a [`MultiLock`](crate::MultiLock).
#[derive(Clone, Debug)]
pub struct ReadSide(RwLock);

/// The writing side of a [`RwLock`], as a part of a [`MultiLock`](crate::MultiLock).
#[derive(Clone, Debug)]
pub struct WriteSide(RwLock);

/// Permits of a [`Semaphore`], as a part of a [`MultiLock`](crate::MultiLock).
#[derive(Clone, Debug)]
pub struct Permits {
    semaphore: Semaphore,
    count: u32,
}

impl RwLock {
    /// The reading side, as a part of a [`MultiLock`](crate::MultiLock).
    #[must_use]
    pub fn read_side(&self) -> ReadSide {
        ReadSide(self.clone())
    }

    /// The writing side, as a part of a [`MultiLock`](crate::MultiLock).
    #[must_use]
    pub fn write_side(&self) -> WriteSide {
        WriteSide(self.clone())
    }
}

impl Semaphore {
    /// So many permits at once, as a part of a [`MultiLock`](crate::MultiLock).
    #[must_use]
    pub fn permits(&self, count: u32) -> Permits {
        Permits {
            semaphore: self.clone(),
            count,
        }
    }
}

fn read_candidate(side: &ReadSide) -> Option<Box<dyn Candidate + '_>> {
    side.0.stand_to_read()
}

fn write_candidate(side: &WriteSide) -> Option<Box<dyn Candidate + '_>> {
    side.0.stand_to_write()
}

macro_rules! lockables {
    (@named $lock:ident) => {
        String::new()
    };
    (@named $lock:ident $named:expr) => {
        $named
    };
    (@stand $lock:ident) => {{
        let _ = $lock;
        None
    }};
    (@stand $lock:ident $stand:expr) => {
        $stand($lock)
    };
    (@won $lock:ident) => {{
        let _ = $lock;
        unreachable!("never a candidate")
    }};
    (@won $lock:ident $won:expr) => {
        Box::new($won($lock))
    };
    ($($lock:ty, $this:ident => $inner:expr $(=> $named:expr)?, $take:expr, $try:expr $(, $stand:expr, $won:expr)?;)*) => {$(
        impl From<$lock> for Lockable {
            fn from(lock: $lock) -> Self {
                Self(Box::new(lock))
            }
        }

        impl From<&$lock> for Lockable {
            fn from(lock: &$lock) -> Self {
                Self(Box::new(lock.clone()))
            }
        }

        impl LockPart for $lock {
            fn session(&self) -> &Arc<Session> {
                let $this = self;
                $inner.session()
            }
            fn order(&self) -> LockOrder {
                let $this = self;
                let name = lockables!(@named $this $($named)?);
                LockOrder::of($inner.session(), $inner.path(), name)
            }
            fn take(&self, limits: &WaitLimits) -> Result<Box<dyn Guard>> {
                // What is reported of one part is no news of the next.
                let guard = $take(self, &limits.renewed())?;
                Ok(Box::new(guard))
            }
            fn try_take(&self) -> Result<Option<Box<dyn Guard>>> {
                let guard = $try(self)?;
                Ok(guard.map(|guard| Box::new(guard) as Box<dyn Guard>))
            }
            fn stand(&self) -> Option<Box<dyn Candidate + '_>> {
                lockables!(@stand self $($stand)?)
            }
            fn guard(&self) -> Box<dyn Guard> {
                lockables!(@won self $($won)?)
            }
        }
    )*};
}

lockables! {
    Mutex, this => this => this.name(), Self::take, Self::try_lock, Self::stand, Self::won;
    SemaphoreMutex, this => this, Self::take, Self::try_lock;
    SimpleMutex, this => this, Self::take, Self::try_lock;
    ReadSide, this => this.0 => this.0.name(),
        |side: &Self, limits: &_| side.0.take_to_read(limits), |side: &Self| side.0.try_read(),
        read_candidate, |side: &Self| side.0.reads();
    WriteSide, this => this.0 => this.0.name(),
        |side: &Self, limits: &_| side.0.take_to_write(limits), |side: &Self| side.0.try_write(),
        write_candidate, |side: &Self| side.0.writes();
    Permits, this => this.semaphore,
        |some: &Self, limits: &_| some.semaphore.take(some.count, limits),
        |some: &Self| some.semaphore.try_acquire_many(some.count);
}
