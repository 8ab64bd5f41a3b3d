//! What all guards have in common: they look at a tenure.

use std::sync::Arc;

use crate::session::Session;
use crate::tenure::Tenure;

/// What stands behind a guard.
pub(crate) trait Holding {
    fn tenure(&self) -> &Arc<Tenure>;
    fn session(&self) -> &Arc<Session>;
}

/// The methods that every guard over one tenure has.
macro_rules! holding_methods {
    () => {
        /// How sure this holder can be of what it holds, by all that this process knows now. One
        /// look at the clock and at memory; asks nobody.
        #[must_use]
        pub fn state(&self) -> $crate::LockState {
            use $crate::guard::Holding;
            if self.session().fork().forked() {
                return $crate::LockState::Lost;
            }
            self.tenure().state($crate::sync::now())
        }

        /// Whether [`state`](Self::state) is [`LockState::Held`](crate::LockState::Held).
        #[must_use]
        pub fn is_held(&self) -> bool {
            self.state() == $crate::LockState::Held
        }

        /// A channel that speaks when what is held is lost: it delivers the reason once and is
        /// disconnected from then on, so a `select!` over it is ready for good.
        ///
        /// A lost session is told before any other process can hold. A removal of our node by
        /// somebody else is told at once, as soon as it has been held for 100 to 200 ms: from then
        /// on ZooKeeper watches the node for us.
        ///
        /// ```no_run
        /// # fn main() -> zklock::Result<()> {
        /// # let client = zklock::Client::connect("localhost:2181")?;
        /// # let lock = zklock::Mutex::new(&client, "/locks/feed")?;
        /// # let work = crossbeam_channel::never::<u32>();
        /// let guard = lock.lock()?;
        /// loop {
        ///     crossbeam_channel::select! {
        ///         recv(work) -> item => println!("working on {item:?}"),
        ///         recv(guard.lost()) -> why => {
        ///             println!("stopping: {why:?}");
        ///             break;
        ///         }
        ///     }
        /// }
        /// # Ok(())
        /// # }
        /// ```
        #[must_use]
        pub fn lost(&self) -> &crossbeam_channel::Receiver<$crate::LossReason> {
            use $crate::guard::Holding;
            self.tenure().told()
        }

        /// The number to send along with writes, so that a store can refuse late ones. Asks
        /// ZooKeeper once for each acquire that went there.
        ///
        /// # Errors
        /// [`is_lock_lost`](crate::Error::is_lock_lost) if it is not ours any more;
        /// [`is_connection_loss`](crate::Error::is_connection_loss) if ZooKeeper did not answer.
        pub fn fencing_token(&self) -> $crate::Result<$crate::FencingToken> {
            use $crate::guard::Holding;
            self.tenure().fencing_token()
        }

        /// The path of our node, without the chroot.
        #[must_use]
        pub fn path(&self) -> &str {
            use $crate::guard::Holding;
            self.tenure().node()
        }
    };
}

/// The one more method of guards of locks that can be built revocable.
macro_rules! revocation_method {
    () => {
        /// A channel that speaks when somebody asks for the lock back (see
        /// [`Mutex::revoke`](crate::Mutex::revoke)): it delivers once and is disconnected from
        /// then on. Whether to give the lock back is this holder's decision.
        ///
        /// Only a lock that was built revocable hears of it; of any other this never speaks.
        #[must_use]
        pub fn revocation(&self) -> &crossbeam_channel::Receiver<()> {
            use $crate::guard::Holding;
            match self.tenure().asked_back() {
                Some(asked) => asked.told(),
                None => $crate::guard::never(),
            }
        }
    };
}

pub(crate) use {holding_methods, revocation_method};

/// A receiver that never speaks.
pub(crate) fn never() -> &'static crossbeam_channel::Receiver<()> {
    static NEVER: std::sync::OnceLock<crossbeam_channel::Receiver<()>> = std::sync::OnceLock::new();
    NEVER.get_or_init(crossbeam_channel::never)
}

/// A guard was dropped, and its release did not go well.
#[cold]
pub(crate) fn log_release(result: crate::Result<()>) {
    match result {
        // Nothing was to be done, and a logger may not work in a forked child.
        Ok(()) => {}
        Err(error) if error.is_forked() => {}
        Err(error) => log::warn!("release: {error}"),
    }
}
