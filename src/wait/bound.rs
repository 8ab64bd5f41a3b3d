//! How long a caller waits: [`AcquireOptions`], and the bound that the layers pass down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::error::Error;
use crate::sync;
use crate::wait::cancel::CancelToken;
use crate::wait::position::{QueuePosition, Reporter};

/// The settings of a single acquire, beyond those of its lock: a deadline, a cancel token, node
/// data, a report of positions. For the `.._with` verbs, such as
/// [`Mutex::lock_with`](crate::Mutex::lock_with).
///
/// ```
/// use std::time::Duration;
/// use zklock::{AcquireOptions, CancelToken};
///
/// let stop = CancelToken::new();
/// let options = AcquireOptions::new()
///     .timeout(Duration::from_secs(30))
///     .cancel(&stop)
///     .data("nightly report");
/// # let _ = options;
/// ```
#[derive(Debug, Default)]
pub struct AcquireOptions {
    pub(crate) bound: Bound,
    pub(crate) data: Option<Vec<u8>>,
}

impl AcquireOptions {
    /// No deadline, no cancel token, the lock's own node data.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The options of a call that is part of another.
    pub(crate) fn bounded(bound: &Bound) -> Self {
        Self {
            bound: bound.renewed(),
            data: None,
        }
    }

    /// Gives up at `deadline`, a moment on the monotonic clock. Defaults to never. The call then
    /// returns an error whose [`is_timeout`](crate::Error::is_timeout) is true.
    #[must_use]
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.bound.deadline = Some(deadline);
        self
    }

    /// Gives up after `timeout`, counted from now on (not from the acquire). A timeout too large
    /// for the clock means no deadline.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.bound.deadline = deadline_after(timeout);
        self
    }

    /// Gives up when `token` is cancelled. The call then returns an error whose
    /// [`is_cancelled`](crate::Error::is_cancelled) is true.
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.bound.cancel = Some(token.clone());
        self
    }

    /// Sends to `to` how many are ahead, when this thread queues and whenever that changes.
    ///
    /// A send never blocks: what a full channel cannot take is left out. To hear of every change,
    /// the thread that queues in ZooKeeper for its process watches the whole folder instead of the
    /// one node ahead: each release ahead wakes it and costs a list. The threads behind it in the
    /// same process cost nothing more.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// let (to, positions) = crossbeam_channel::unbounded();
    /// std::thread::spawn(move || {
    ///     for position in positions {
    ///         println!("{position}");
    ///     }
    /// });
    /// let _guard = lock.lock_with(zklock::AcquireOptions::new().positions(&to))?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn positions(mut self, to: &Sender<QueuePosition>) -> Self {
        self.bound.reporter = Some(Arc::new(Reporter::new(to.clone())));
        self
    }

    /// The data of the contender's node, for others to read by
    /// [`Participant::data`](crate::Participant::data): less than 1 MiB. Defaults to who we are:
    /// host, process id, thread and time. Not used when the thread joins or takes over a node that
    /// its process has already.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// let options = zklock::AcquireOptions::new().data("ticket 4711, ask the night shift");
    /// let _guard = lock.lock_with(options)?;
    /// for one in lock.participants()? {
    ///     println!("{}: {}", one.position(), String::from_utf8_lossy(one.data()));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }
}

impl Clone for AcquireOptions {
    /// What was last reported is each acquire's own.
    fn clone(&self) -> Self {
        Self {
            bound: self.bound.renewed(),
            data: self.data.clone(),
        }
    }
}

/// How long a timed call waits: not at all, or until a deadline.
pub(crate) struct Patience(Option<Bound>);

impl Patience {
    /// Does not wait if `timeout` is zero; waits without end if it is too large for the clock.
    pub(crate) fn during(timeout: Duration) -> Self {
        Self((!timeout.is_zero()).then(|| Bound::until(deadline_after(timeout))))
    }

    pub(crate) fn until(deadline: Instant) -> Self {
        Self((deadline > sync::now()).then(|| Bound::until(Some(deadline))))
    }

    /// Tries, or waits; a deadline that is over is no error.
    pub(crate) fn attempt<T>(
        self,
        at_once: impl FnOnce() -> Result<Option<T>, Error>,
        wait: impl FnOnce(&Bound) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let Some(bound) = self.0 else {
            return at_once();
        };
        match wait(&bound) {
            Ok(got) => Ok(Some(got)),
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The moment `timeout` from now; `None` when that is beyond what the clock can say.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Instant> {
    sync::now().checked_add(timeout)
}

/// How long a caller waits: computed once at the public call, and passed down unchanged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound {
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<CancelToken>,
    /// Reports how many are ahead, if the caller asked for that.
    pub(crate) reporter: Option<Arc<Reporter>>,
}

impl Bound {
    pub(crate) fn none() -> Self {
        Self::default()
    }

    pub(crate) fn until(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            ..Self::default()
        }
    }

    /// The same bound for another acquire, whose positions are reported from the start.
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
            return Err(Error::timeout());
        }
        Ok(())
    }
}
