//! [`HoldView`]: what other threads may know of a guard.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::hold::OwnHold;
use crate::error::{Error, Result};
use crate::session::LossReason;
use crate::tenure::LockState;
use crate::wait::once_event::Listener;
use crate::znode::fencing::FencingToken;

/// Shows other threads the state of a guard: for worker threads that act under a lock which another
/// thread holds for them.
///
/// A guard's `view()` makes it; the guard's thread goes on owning the lock. A view can be cloned
/// and sent; it cannot release or write. It belongs to this one hold: once the guard
/// [retires](crate::MutexGuard::retire) or is given back, the view is [`Lost`](LockState::Lost)
/// with the reason [`Released`](LossReason::Released), even when another thread of the process holds
/// the lock by then. That a view says so does not wait for anybody who looks at it: to give a lock
/// back only when the workers have heard, retire the guard and join them first.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// # let lock = zklock::Mutex::new(&client, "/locks/import")?;
/// let guard = lock.lock()?;
/// let view = guard.view();
/// std::thread::scope(|scope| {
///     for part in 0..4 {
///         let view = view.clone();
///         scope.spawn(move || {
///             if view.is_held() {
///                 println!("importing part {part}");
///             }
///         });
///     }
/// });
/// guard.unlock()?;
/// assert!(!view.is_held());
/// # Ok(())
/// # }
/// ```
pub struct HoldView {
    own: Arc<OwnHold>,
    lost: Listener<LossReason>,
}

impl HoldView {
    pub(super) fn of(own: &Arc<OwnHold>) -> Self {
        Self {
            own: Arc::clone(own),
            lost: own.listen(),
        }
    }

    /// How sure the holder can be of its lock, by all that this process knows now; of a multi-lock,
    /// the state of the least sure part. Looks at the clock and at memory, and sends nothing.
    #[must_use]
    pub fn state(&self) -> LockState {
        self.own.state()
    }

    /// Whether [`state`](Self::state) is [`LockState::Held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state() == LockState::Held
    }

    /// How long the lock is certainly held, counted from now; zero once it is lost or given back. See
    /// [`MutexGuard::remaining`](crate::MutexGuard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.own.remaining()
    }

    /// A channel that delivers the reason when what is held is lost or given back, once; see
    /// [`MutexGuard::lost`](crate::MutexGuard::lost). Each view and each clone has its own, and it
    /// ends with that view: keep the view for as long as the channel is listened to.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/import")?;
    /// # let parts = crossbeam_channel::never::<u32>();
    /// use zklock::LossReason;
    ///
    /// let guard = lock.lock()?;
    /// let view = guard.view();
    /// let worker = std::thread::spawn(move || {
    ///     loop {
    ///         crossbeam_channel::select! {
    ///             recv(parts) -> part => println!("importing part {part:?}"),
    ///             recv(view.lost()) -> why => match why {
    ///                 Ok(LossReason::Released) => break, // our side is done
    ///                 why => panic!("stopped half-way: {why:?}"),
    ///             },
    ///         }
    ///     }
    /// });
    /// guard.unlock()?;
    /// worker.join().expect("imported all");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lost(&self) -> &Receiver<LossReason> {
        &self.lost
    }

    /// The fencing token of the hold, to send along with each write. It stays known after the
    /// release.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the guard has no token, or several; otherwise as
    /// [`MutexGuard::fencing_token`](crate::MutexGuard::fencing_token).
    pub fn fencing_token(&self) -> Result<FencingToken> {
        match self.own.tenure_of_token() {
            Some(tenure) => tenure.fencing_token(),
            None => Err(Error::invalid(format!(
                "{}: this hold has no fencing token, or several",
                self.own.tenures()[0].node()
            ))),
        }
    }
}

impl Clone for HoldView {
    fn clone(&self) -> Self {
        Self::of(&self.own)
    }
}

impl fmt::Debug for HoldView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.own.tenures().iter().map(|tenure| tenure.node());
        f.debug_struct("HoldView")
            .field("nodes", &nodes.collect::<Vec<_>>())
            .field("state", &self.state())
            .finish()
    }
}
