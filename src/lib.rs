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
//! - A holder is told when its lock is lost, before any other process can have it:
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
//! [`Client`] connects, [`Mutex`] is the lock. [`CancelToken`] and [`AcquireOptions`] end waits;
//! [`Mutex::participants`] shows who holds and who waits.

mod acl;
mod bound;
mod cancel;
#[cfg(not(shuttle))]
mod client;
mod connection;
mod contend;
mod error;
mod fencing;
mod fork;
mod identity;
mod link;
mod local_queue;
#[cfg(all(test, shuttle))]
mod model;
#[cfg(not(shuttle))]
mod mutex;
mod names;
#[cfg(not(shuttle))]
mod participant;
mod path;
mod retry;
mod sequence;
mod session;
mod signal;
mod sync;
mod tenure;
mod verdict;

pub use acl::{Acl, Permissions};
pub use bound::AcquireOptions;
pub use cancel::CancelToken;
#[cfg(not(shuttle))]
pub use client::{Client, ClientBuilder};
pub use connection::{ConnectionEvent, ConnectionState};
pub use contend::WaitStrategy;
pub use error::{Error, Result};
pub use fencing::FencingToken;
pub use identity::Identity;
#[cfg(not(shuttle))]
pub use mutex::{Mutex, MutexBuilder, MutexGuard};
pub use names::{Dialect, LockName};
#[cfg(not(shuttle))]
pub use participant::Participant;
pub use retry::RetryPolicy;
pub use tenure::{LockState, LossReason};
