//! Distributed locks on Apache ZooKeeper for threaded programs: blocking calls and RAII guards.
//!
//! ```no_run
//! # fn main() -> zklock::Result<()> {
//! let client = zklock::Client::connect("zk1:2181,zk2:2181,zk3:2181")?;
//! let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
//! {
//!     let _guard = lock.lock()?;
//!     // One thread of one process on one machine at a time.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//! - A guard is returned only after ZooKeeper has shown our node at the head of the queue.
//! - A holder is told when its lock is lost with its session, before any other process can have it:
//!   [`MutexGuard::lost`] is a channel to `select!` on, [`MutexGuard::state`] a look.
//! - A failed, timed-out, cancelled or panicked acquire leaves nothing behind.
//! - No call waits longer than its deadline, also when ZooKeeper is silent.
//! - [`FencingToken`]s rise from holder to holder, for stores that check them.
//!
//! # What it does not
//! Holding a lock is not proof that nobody else acts: a process that is stopped and goes on later
//! acts before it can look at its lock. Where that would do harm, have the store check
//! [fencing tokens](FencingToken).
//!
//! # Where to start
//! [`Client`] connects. Then, by what is needed:
//!
//! - one at a time: [`Mutex`]; if another thread ends what one began, [`SemaphoreMutex`]; with peers
//!   that create one plain node, [`SimpleMutex`]
//! - many readers or one writer: [`RwLock`]
//! - at most so many: [`Semaphore`]
//! - several locks at once: [`MultiLock`]
//! - a lock for each of many things: [`LockRegistry`]
//! - waiting for a gate to open: [`Barrier`]; beginning and ending together: [`DoubleBarrier`]
//!
//! [`CancelToken`] and [`AcquireOptions`] end waits and report positions;
//! [`Mutex::participants`] shows who holds and who waits, [`Mutex::revoke`] asks for a lock and
//! [`Mutex::break_lock`] takes it.

mod acl;
mod announcement;
#[cfg(not(shuttle))]
mod barrier;
mod bound;
mod cancel;
#[cfg(not(shuttle))]
mod client;
mod connection;
mod contend;
#[cfg(not(shuttle))]
mod double_barrier;
mod error;
mod fencing;
#[cfg(not(shuttle))]
mod folders;
mod fork;
#[cfg(not(shuttle))]
mod guard;
mod identity;
#[cfg(not(shuttle))]
mod key;
#[cfg(not(shuttle))]
mod leasing;
mod link;
mod local_queue;
#[cfg(not(shuttle))]
mod lock_registry;
#[cfg(all(test, shuttle))]
mod model;
#[cfg(not(shuttle))]
mod multi_lock;
#[cfg(not(shuttle))]
mod mutex;
mod names;
#[cfg(not(shuttle))]
mod node_data;
#[cfg(not(shuttle))]
mod participant;
mod path;
mod position;
mod retry;
#[cfg(not(shuttle))]
mod rw_lock;
#[cfg(not(shuttle))]
mod semaphore;
#[cfg(not(shuttle))]
mod semaphore_mutex;
mod sequence;
mod session;
#[cfg(not(shuttle))]
mod shared_count;
mod signal;
#[cfg(not(shuttle))]
mod simple_mutex;
mod sync;
mod tenure;
mod verdict;

pub use acl::{Acl, Permissions};
#[cfg(not(shuttle))]
pub use barrier::Barrier;
pub use bound::AcquireOptions;
pub use cancel::CancelToken;
#[cfg(not(shuttle))]
pub use client::{Client, ClientBuilder};
pub use connection::{ConnectionEvent, ConnectionState};
pub use contend::WaitStrategy;
#[cfg(not(shuttle))]
pub use double_barrier::{DoubleBarrier, DoubleBarrierBuilder, Membership};
pub use error::{Error, Result};
pub use fencing::FencingToken;
pub use identity::Identity;
#[cfg(not(shuttle))]
pub use lock_registry::{LockRegistry, LockRegistryBuilder};
#[cfg(not(shuttle))]
pub use multi_lock::{Lockable, MultiLock, MultiLockBuilder, MultiLockGuard, ReadSide, WriteSide};
#[cfg(not(shuttle))]
pub use mutex::{Mutex, MutexBuilder, MutexGuard};
pub use names::{Dialect, LockName};
#[cfg(not(shuttle))]
pub use participant::Participant;
pub use position::QueuePosition;
pub use retry::RetryPolicy;
#[cfg(not(shuttle))]
pub use rw_lock::{RwLock, RwLockBuilder, RwReadGuard, RwWriteGuard};
#[cfg(not(shuttle))]
pub use semaphore::{Permit, Semaphore, SemaphoreBuilder};
#[cfg(not(shuttle))]
pub use semaphore_mutex::{SemaphoreMutex, SemaphoreMutexBuilder, SemaphoreMutexGuard};
#[cfg(not(shuttle))]
pub use shared_count::SharedCount;
#[cfg(not(shuttle))]
pub use simple_mutex::{SimpleMutex, SimpleMutexBuilder, SimpleMutexGuard};
pub use tenure::{LockState, LossReason};

/// What can be shared between threads or sent to another is part of each type's promise.
#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const fn shared<T: Send + Sync>() {}
    const fn sent<T: Send>() {}

    const _: () = {
        shared::<Client>();
        shared::<Mutex>();
        shared::<SemaphoreMutex>();
        shared::<RwLock>();
        shared::<Semaphore>();
        shared::<SharedCount>();
        shared::<SimpleMutex>();
        shared::<MultiLock<'_>>();
        shared::<Barrier>();
        shared::<DoubleBarrier>();
        shared::<LockRegistry>();
        shared::<CancelToken>();
        shared::<Error>();
        sent::<SemaphoreMutexGuard>();
        sent::<Permit>();
        sent::<Membership>();
    };
}
