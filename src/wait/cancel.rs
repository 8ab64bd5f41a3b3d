//! [`CancelToken`]: ends the waits of other threads.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait::signal::{Signal, Wakes};

/// Ends waits from another thread.
///
/// Give it to [`AcquireOptions::cancel`](crate::AcquireOptions::cancel). When any clone is
/// cancelled, every acquire that waits with one of them returns an error whose
/// [`is_cancelled`](crate::Error::is_cancelled) is true, and leaves nothing behind in ZooKeeper.
/// Cancelling is final; any thread can do it, any number of times. It never takes away a lock that
/// is already held. (The token of [`Election::serve`](crate::Election::serve) tells those who work for
/// a leader that it steps down.)
///
/// ```
/// let token = zklock::CancelToken::new();
/// let for_the_worker = token.clone();
/// token.cancel();
/// assert!(for_the_worker.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<CancelState>);

/// Who must hear that a token was cancelled. It is told on the thread that cancels, with no lock
/// held, and does no more than pass it on.
pub(crate) trait OnCancel: Send + Sync {
    fn on_cancel(&self);
}

impl OnCancel for Signal {
    fn on_cancel(&self) {
        self.raise(Wakes::CANCEL);
    }
}

#[derive(Default)]
struct CancelState {
    cancelled: AtomicBool,
    /// Those who wait with this token now. `cancelled` is set before this is read, and read by a new
    /// one after it has added itself, so one of the two always sees the other.
    waiting: Mutex<Vec<Weak<dyn OnCancel>>>,
}

impl fmt::Debug for CancelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelState")
            .field("cancelled", &self.cancelled.load(Ordering::SeqCst))
            .finish_non_exhaustive()
    }
}

impl CancelToken {
    /// Makes a token that nobody has cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every wait that uses this token, now and from now on.
    ///
    /// One token for all waits of a program:
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// use zklock::{AcquireOptions, CancelToken};
    ///
    /// let shutdown = CancelToken::new();
    /// let options = AcquireOptions::new().cancel(&shutdown);
    /// let waiter = std::thread::spawn(move || lock.lock_with(options).map(drop));
    /// shutdown.cancel(); // from a handler of signals, say
    /// if let Err(error) = waiter.join().expect("no panic") {
    ///     assert!(error.is_cancelled());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        for one in waiting.iter().filter_map(Weak::upgrade) {
            one.on_cancel();
        }
    }

    /// Whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Has `one` told when the token is cancelled, until the attachment is dropped.
    pub(crate) fn attach<T: OnCancel + 'static>(&self, one: &Arc<T>) -> Attachment {
        let attached: Weak<dyn OnCancel> = Arc::<T>::downgrade(one);
        self.0.waiting.lock().push(Weak::clone(&attached));
        if self.is_cancelled() {
            one.on_cancel();
        }
        Attachment {
            token: self.clone(),
            attached,
        }
    }
}

/// See [`CancelToken::attach`].
pub(crate) struct Attachment {
    token: CancelToken,
    attached: Weak<dyn OnCancel>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut waiting = self.token.0.waiting.lock();
        if let Some(mine) = waiting.iter().position(|one| one.ptr_eq(&self.attached)) {
            waiting.swap_remove(mine);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn raises_those_who_came_before_and_after() {
        let token = CancelToken::new();
        let before = Arc::new(Signal::new());
        let _attached = token.attach(&before);
        token.cancel();
        assert!(before.wait(None).has(Wakes::CANCEL));

        let after = Arc::new(Signal::new());
        let _attached = token.attach(&after);
        assert!(after.wait(None).has(Wakes::CANCEL));
    }

    #[test]
    fn forgets_a_wait_that_ended() {
        let token = CancelToken::new();
        for _ in 0..100 {
            drop(token.attach(&Arc::new(Signal::new())));
        }
        assert!(token.0.waiting.lock().is_empty());
    }
}
