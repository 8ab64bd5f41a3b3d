//! The locks, condition variables and threads that the engine is built on: those of `parking_lot`
//! and `std`, or those of the `shuttle` explorer when the model tests are compiled
//! (`--cfg shuttle`).
//!
//! Everything above the seam ([`crate::session::backend`]) takes its primitives from here, so that
//! the explorer sees every step at which one thread can overtake another.

use std::time::Instant;

#[cfg(not(shuttle))]
mod real {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread::ThreadId;
    use std::time::Instant;

    /// Waits to be notified, until `deadline` at most. Returns whether the deadline ended the wait.
    pub(crate) fn wait_until<T>(
        condvar: &Condvar,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Instant>,
    ) -> bool {
        match deadline {
            Some(deadline) => condvar.wait_until(guard, deadline).timed_out(),
            None => {
                condvar.wait(guard);
                false
            }
        }
    }

    pub(crate) fn this_thread() -> ThreadId {
        std::thread::current().id()
    }

    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
            .map(drop)
    }
}

#[cfg(shuttle)]
mod explored {
    use std::time::Instant;

    use shuttle::rand::Rng;
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread::ThreadId;

    /// `shuttle`'s mutex with the face of `parking_lot`'s.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);
    /// The option is empty only while its thread waits on a condvar.
    pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    shuttle::thread_local! {
        static LOCKED: std::cell::Cell<usize> = std::cell::Cell::new(0);
    }

    /// How many mutexes this thread has locked.
    pub(crate) fn locked() -> usize {
        LOCKED.with(std::cell::Cell::get)
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            LOCKED.with(|locked| locked.set(locked.get() - 1));
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            // A model thread that panics fails the whole schedule, so poison carries no news.
            let guard = self
                .0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            LOCKED.with(|locked| locked.set(locked.get() + 1));
            MutexGuard(Some(guard))
        }
    }

    impl<T> std::ops::Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("not waiting")
        }
    }
    impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("not waiting")
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(shuttle::sync::Condvar::new())
        }
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// As the real one, except that time is an event of the schedule: a wait with a deadline may
    /// end at any moment, and the explorer chooses whether it does.
    pub(crate) fn wait_until<T>(
        condvar: &Condvar,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Instant>,
    ) -> bool {
        if deadline.is_some() && shuttle::rand::thread_rng().gen_bool(0.5) {
            return true;
        }
        let inner = guard.0.take().expect("not waiting");
        guard.0 = Some(
            condvar
                .0
                .wait(inner)
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        false
    }

    pub(crate) fn this_thread() -> ThreadId {
        shuttle::thread::current().id()
    }

    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        shuttle::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
            .map(drop)
    }
}

#[cfg(not(shuttle))]
pub(crate) use real::*;

#[cfg(shuttle)]
pub(crate) use explored::*;

/// The present moment on the monotonic clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}
