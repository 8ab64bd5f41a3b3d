//! The recipes: one public type and its guard in each file, and what they share.

mod barrier;
mod count_changes;
mod double_barrier;
mod election;
mod following;
mod guard;
mod hold;
mod job_run;
mod key;
mod lock_registry;
mod lockable;
mod multi_lock;
mod mutex;
mod node_data;
mod once_per;
mod participant;
mod permit_pool;
mod record_node;
mod rw_lock;
mod semaphore;
mod semaphore_mutex;
mod shared_count;
mod shown;
mod simple_mutex;
mod together;
mod transaction;
#[cfg(doctest)]
mod traps;
mod view;

pub use self::barrier::Barrier;
pub use self::count_changes::CountChanges;
pub use self::double_barrier::{DoubleBarrier, DoubleBarrierBuilder, Membership};
pub use self::election::{
    Election, ElectionBuilder, Leader, LeaderChanges, LeaderWorker, Leadership, WhoLeads,
};
pub use self::job_run::JobRun;
pub use self::lock_registry::{LockRegistry, LockRegistryBuilder};
pub use self::lockable::{Lockable, Permits, ReadSide, WriteSide};
pub use self::multi_lock::{MultiLock, MultiLockBuilder, MultiLockGuard};
pub use self::mutex::{Mutex, MutexBuilder, MutexGuard};
pub use self::once_per::{Begun, OncePer, OncePerBuilder};
pub use self::participant::Participant;
pub use self::rw_lock::{DowngradeError, RwLock, RwLockBuilder, RwReadGuard, RwWriteGuard};
pub use self::semaphore::{Permit, Semaphore, SemaphoreBuilder};
pub use self::semaphore_mutex::{SemaphoreMutex, SemaphoreMutexBuilder, SemaphoreMutexGuard};
pub use self::shared_count::SharedCount;
pub use self::simple_mutex::{SimpleMutex, SimpleMutexBuilder, SimpleMutexGuard};
pub use self::transaction::{Outcome, Transaction};
pub use self::view::HoldView;

/// The programs on the pages run, but for the leader, who never ends; the tests run that one.
#[cfg(doctest)]
#[doc = include_str!("../../docs/coming-from.md")]
struct Pages;

/// What can be shared between threads or sent to another is part of each type's promise.
#[cfg(test)]
mod tests {
    use crate::*;

    const fn shared<T: Send + Sync>() {}
    const fn sent<T: Send>() {}

    const _: () = {
        shared::<Client>();
        shared::<Mutex>();
        shared::<SemaphoreMutex>();
        shared::<RwLock>();
        shared::<Semaphore>();
        shared::<SharedCount>();
        shared::<OncePer>();
        shared::<JobRecord>();
        shared::<SimpleMutex>();
        shared::<MultiLock>();
        shared::<HoldView>();
        shared::<Barrier>();
        shared::<DoubleBarrier>();
        shared::<Election>();
        shared::<Leader>();
        shared::<LeaderChanges>();
        shared::<LeaderWorker>();
        shared::<LockRegistry>();
        shared::<CancelToken>();
        shared::<Error>();
        shared::<DowngradeError>();
        sent::<SemaphoreMutexGuard>();
        sent::<Permit>();
        sent::<Membership>();
        sent::<Leadership>();
    };
}
