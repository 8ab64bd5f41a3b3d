//! How long a caller waits: computed at the public call, and passed down through the layers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::sync;
use crate::wait::cancel::CancelToken;
use crate::wait::position::Reporter;

/// How long a timed call waits: not at all, or as its limits say.
pub(crate) struct TryOrWait(pub(super) Option<WaitLimits>);

impl TryOrWait {
    /// Does not wait if `timeout` is zero; waits without end if it is too large for the clock.
    pub(crate) fn during(timeout: Duration) -> Self {
        Self((!timeout.is_zero()).then(|| WaitLimits::until(deadline_after(timeout))))
    }

    pub(crate) fn until(deadline: Instant) -> Self {
        Self((deadline > sync::now()).then(|| WaitLimits::until(Some(deadline))))
    }

    /// Tries, or waits; a deadline that is over is no error.
    pub(crate) fn attempt<T>(
        self,
        at_once: impl FnOnce() -> Result<Option<T>, Error>,
        wait: impl FnOnce(&WaitLimits) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let Some(limits) = self.0 else {
            return at_once();
        };
        match wait(&limits) {
            Ok(got) => Ok(Some(got)),
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tries, or waits; a deadline that is over, also that of a try, is an error about `path`.
    pub(crate) fn insist<T>(
        self,
        path: &str,
        at_once: impl FnOnce() -> Result<Option<T>, Error>,
        wait: impl FnOnce(&WaitLimits) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.0 {
            Some(limits) => wait(&limits),
            None => at_once()?.ok_or_else(|| Error::timeout().context(path)),
        }
    }
}

/// The moment `timeout` from now; `None` when that is beyond what the clock can say.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Instant> {
    sync::now().checked_add(timeout)
}

/// How long a caller waits: computed once at the public call, and passed down unchanged.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitLimits {
    pub(crate) deadline: Option<Instant>,
    /// When the call began that has the deadline.
    pub(crate) began: Option<Instant>,
    pub(crate) cancel: Option<CancelToken>,
    /// Reports how many are ahead, if the caller asked for that.
    pub(crate) reporter: Option<Arc<Reporter>>,
}

impl WaitLimits {
    pub(crate) fn none() -> Self {
        Self::default()
    }

    pub(crate) fn until(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            began: deadline.map(|_| sync::now()),
            ..Self::default()
        }
    }

    /// The deadline has passed.
    pub(crate) fn over(&self) -> Error {
        match self.began {
            Some(began) => Error::timeout_after(sync::now().saturating_duration_since(began)),
            None => Error::timeout(),
        }
    }

    /// The same limits for another acquire, whose positions are reported from the start.
    pub(crate) fn renewed(&self) -> Self {
        Self {
            reporter: self
                .reporter
                .as_ref()
                .map(|reporter| Arc::new(reporter.renewed())),
            ..self.clone()
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.deadline.is_none() && self.cancel.is_none()
    }

    /// An error when the caller has stopped waiting.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(Error::cancelled());
        }
        if self
            .deadline
            .is_some_and(|deadline| deadline <= sync::now())
        {
            return Err(self.over());
        }
        Ok(())
    }
}
