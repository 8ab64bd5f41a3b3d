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
//! - **A guard means proof.** A call returns a guard only after ZooKeeper has shown our node at the
//!   head of the queue, on the connection that is open now.
//! - **A holder is told.** When a lock is lost with its session, every guard of it says so before
//!   any other process can have it: [`MutexGuard::lost`] is a channel to `select!` on,
//!   [`MutexGuard::state`] a look at the clock and at memory, [`MutexGuard::ensure_for`] the
//!   question whether a step still fits.
//! - **Nothing is left behind** by an acquire that fails, times out, is cancelled or panics.
//! - **No call outlasts its deadline**, even when ZooKeeper is silent.
//! - **[`FencingToken`]s rise** from holder to holder, for stores that compare them.
//!
//! # What it does not
//! Holding a lock is not proof that nobody else acts. The system can stop a process for longer than
//! its session lives, and the process then acts before it can look at its lock. Where that would do
//! harm, have the store check [fencing tokens](FencingToken); or write to ZooKeeper by a
//! [`Transaction`], which the servers execute only while the lock is ours.
//!
//! # Keep the guard
//! What is guarded is held as long as the guard lives, and Rust drops at once what has no name.
//! The name `_guard` is one, and `_` is none:
//!
//! ```
//! # fn main() -> zklock::Result<()> {
//! # let server = zklock_test::Server::start().expect("a port");
//! # let client = zklock::Client::connect(&server.connect_string())?;
//! # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
//! # fn work() {}
//! let _ = lock.lock()?; // WRONG: given back at once
//! work();
//! if lock.try_lock()?.is_some() {
//!     work(); // WRONG: was given back before
//! }
//!
//! if let Some(_guard) = lock.try_lock()? {
//!     work(); // right: held to the end of the block
//! }
//! let _guard = lock.lock()?;
//! work(); // right: held to the end of the function
//! # Ok(())
//! # }
//! ```
//!
//! The compiler warns of `lock.lock()?;` by itself. To be warned of `let _ = ..` and of
//! `lock.try_lock()?;`, put `#![warn(let_underscore_drop, unused_results)]` into your program.
//! Nothing warns of `.is_some()`.
//!
//! # On an executor
//! Every call blocks its thread, and so does dropping a guard: for a round trip, and for a sixth of
//! the session timeout when a server falls silent. Re-entry goes by thread, so two tasks on one
//! thread of an executor do not exclude each other. `docs/executors.md` has the bounds, and a
//! pattern for tokio that `examples/executor.rs` makes a function of.
//!
//! # Where to start
//! [`Client`] connects. Then, by what you need:
//!
//! | you need | take |
//! |---|---|
//! | one at a time | [`Mutex`] |
//! | one at a time, and another thread ends what one began | [`SemaphoreMutex`] |
//! | one at a time, with peers that create one plain node | [`SimpleMutex`] |
//! | many readers or one writer | [`RwLock`] |
//! | at most N at once | [`Semaphore`]; with a [`SharedCount`] if N changes |
//! | several locks at once | [`MultiLock`] |
//! | a lock for each of many things | [`LockRegistry`] |
//! | to wait for a gate to open | [`Barrier`] |
//! | to begin together and end together | [`DoubleBarrier`] |
//! | one leader for long, and to know who it is | [`Election`] |
//! | a job done once a day, or once for each key | [`OncePer`] |
//!
//! All locks have the same verbs: one that waits; `try_..`, which does not wait; `.._for` and
//! `.._until` with a deadline; and `.._with`, whose [`AcquireOptions`] also take a [`CancelToken`]
//! and report positions. Guards own what they need and have no lifetime; a [`HoldView`] lets other
//! threads look at one. [`Mutex::participants`] shows the holder and the waiters, [`Mutex::revoke`]
//! asks for a lock, and [`Mutex::break_lock`] takes it.
//!
//! [`RetryPolicy`] says how long calls wait while there is no connection, [`Client::events`] what
//! happens to the connection, [`Error`] what went wrong, [`Observer`] and [`Stats`] what the locks
//! do.
//!
//! The repository has pages on semantics (each event, and what each party sees of it), for those
//! who come from Curator or kazoo, on the design with its proofs, and on performance, in `docs/`.
//!
//! # Features
//! On by default is `zookeeper` alone.
//!
//! - `zookeeper`: `Client::zookeeper` gives a handle of the `zookeeper` crate on the client's session, and
//!   its types are taken where ours are. Locks need nothing of it.
//! - `tls`: connections over TLS, client certificates included.
//! - `sasl`: logging in by SASL DIGEST-MD5.
//! - `serde`: [`ClientConfig`] can be read from files of settings.
//! - `metrics`: `MetricsObserver` records waits, holds, losses and more by the `metrics` facade.

// The model leaves out the public face, so what only that calls looks unused in it. The ordinary build
// looks for dead code.
#![warn(missing_debug_implementations, missing_docs)]
#![cfg_attr(shuttle, allow(dead_code, unused_imports))]

#[cfg(not(shuttle))]
mod client;
mod error;
mod fork;
mod global_queue;
#[cfg(all(test, shuttle))]
mod interleavings;
mod job_queue;
mod link;
mod local_queue;
#[cfg(not(shuttle))]
mod recipe;
mod session;
mod sync;
mod tenure;
mod wait;
mod znode;

#[cfg(all(feature = "zookeeper", not(shuttle)))]
pub use client::ZooKeeperHandle;
#[cfg(not(shuttle))]
pub use client::{AuthConfig, Client, ClientBuilder, ClientConfig, Node, SaslConfig, TlsConfig};
pub use error::{Error, ErrorKind, FailedStep, Result, StepRefusal};
pub use global_queue::WaitStrategy;
#[cfg(feature = "tls")]
pub use link::Tls;
#[cfg(not(shuttle))]
pub use recipe::{
    Barrier, Begun, CountChanges, DoubleBarrier, DoubleBarrierBuilder, DowngradeError, Election,
    ElectionBuilder, HoldView, JobRun, Leader, LeaderChanges, LeaderWorker, Leadership,
    LockRegistry, LockRegistryBuilder, Lockable, Membership, MultiLock, MultiLockBuilder,
    MultiLockGuard, Mutex, MutexBuilder, MutexGuard, OncePer, OncePerBuilder, Outcome, Participant,
    Permit, Permits, ReadSide, RwLock, RwLockBuilder, RwReadGuard, RwWriteGuard, Semaphore,
    SemaphoreBuilder, SemaphoreMutex, SemaphoreMutexBuilder, SemaphoreMutexGuard, SharedCount,
    SimpleMutex, SimpleMutexBuilder, SimpleMutexGuard, Transaction, WhoLeads, WriteSide,
};
#[cfg(feature = "metrics")]
pub use session::observe::MetricsObserver;
pub use session::observe::Stats;
pub use session::observe::observer::Observer;
pub use session::{Acl, ConnectionEvent, ConnectionState, LossReason, Permissions, RetryPolicy};
pub use tenure::LockState;
pub use wait::acquire_options::AcquireOptions;
pub use wait::cancel::CancelToken;
pub use wait::position::QueuePosition;
pub use znode::fencing::FencingToken;
pub use znode::identity::Identity;
pub use znode::job::{JobRecord, Period, Rerun, RunRecord, RunState};
pub use znode::label::LockName;
pub use znode::names::Dialect;
/// The `zookeeper` crate, whose types a [`ZooKeeperHandle`] speaks in.
#[cfg(feature = "zookeeper")]
pub use zookeeper;

/// What an [`Observer`] is told.
pub mod event {
    pub use crate::session::observe::observer::{
        Acquired, Label, Lost, Miss, Missed, OrphanCleaned, Queued, Released, Retrying,
        TenureEnded, Way,
    };
}
