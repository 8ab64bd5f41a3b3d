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
//! [fencing tokens](FencingToken), or write to ZooKeeper by a [`Transaction`], which is done only while
//! the lock is ours.
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

#[cfg(not(shuttle))]
mod client;
mod error;
mod fork;
mod global_queue;
#[cfg(all(test, shuttle))]
mod interleavings;
mod link;
mod local_queue;
#[cfg(not(shuttle))]
mod recipe;
mod session;
mod sync;
mod tenure;
mod wait;
mod znode;

#[cfg(not(shuttle))]
pub use client::config::{AuthConfig, ClientConfig, SaslConfig, TlsConfig};
#[cfg(not(shuttle))]
pub use client::{Client, ClientBuilder, Node};
pub use error::{Error, FailedStep, Result, StepRefusal};
pub use global_queue::WaitStrategy;
#[cfg(feature = "tls")]
pub use link::Tls;
#[cfg(not(shuttle))]
pub use recipe::{
    Barrier, CountChanges, DoubleBarrier, DoubleBarrierBuilder, DowngradeError, HoldView,
    LockRegistry, LockRegistryBuilder, Lockable, Membership, MultiLock, MultiLockBuilder,
    MultiLockGuard, Mutex, MutexBuilder, MutexGuard, Outcome, Participant, Permit, Permits,
    ReadSide, RwLock, RwLockBuilder, RwReadGuard, RwWriteGuard, Semaphore, SemaphoreBuilder,
    SemaphoreMutex, SemaphoreMutexBuilder, SemaphoreMutexGuard, SharedCount, SimpleMutex,
    SimpleMutexBuilder, SimpleMutexGuard, Transaction, WriteSide,
};
pub use session::LossReason;
pub use session::acl::{Acl, Permissions};
pub use session::connection::{ConnectionEvent, ConnectionState};
pub use session::retry::RetryPolicy;
pub use tenure::LockState;
pub use wait::bound::AcquireOptions;
pub use wait::cancel::CancelToken;
pub use wait::position::QueuePosition;
pub use znode::fencing::FencingToken;
pub use znode::identity::Identity;
pub use znode::label::LockName;
pub use znode::names::Dialect;

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
        shared::<MultiLock>();
        shared::<HoldView>();
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
