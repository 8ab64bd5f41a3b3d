//! What each lock promises in peace: one file for each recipe, and one for what several share.

mod barriers;
mod election;
mod election_ends;
mod fenced_writes;
mod guards;
mod lock_registry;
mod maximum;
mod multi_lock;
mod mutex;
mod once_per;
mod once_per_clock;
mod options;
mod positions;
mod reentry;
mod revocation;
mod rw_lock;
mod semaphore;
mod simple_mutex;
