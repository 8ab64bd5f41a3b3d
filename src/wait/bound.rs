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
/// Options can be kept, cloned and used for any number of calls: a
/// [`timeout`](Self::timeout) begins with each call anew.
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
#[derive(Clone, Debug, Default)]
pub struct AcquireOptions {
    limit: Limit,
    cancel: Option<CancelToken>,
    positions: Option<Sender<QueuePosition>>,
    data: Option<Vec<u8>>,
}

/// When a call stops waiting.
#[derive(Clone, Copy, Debug, Default)]
enum Limit {
    #[default]
    Never,
    At(Instant),
    /// From the beginning of the call.
    After(Duration),
}

impl AcquireOptions {
    /// No deadline, no cancel token, the lock's own node data.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives up at `deadline`, a moment on the monotonic clock. Defaults to never; takes the place
    /// of a [`timeout`](Self::timeout) that was set before. The call then returns an error whose
    /// [`is_timeout`](crate::Error::is_timeout) is true.
    ///
    /// A call that begins after the deadline tries once, as
    /// [`try_lock_until`](crate::Mutex::try_lock_until) does.
    #[must_use]
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.limit = Limit::At(deadline);
        self
    }

    /// Gives up after `timeout`, counted from the beginning of the call that these options are used
    /// for. Defaults to never; takes the place of a [`deadline`](Self::deadline) that was set
    /// before. A timeout too large for the clock means no deadline. The call then returns an error
    /// whose [`is_timeout`](crate::Error::is_timeout) is true.
    ///
    /// With zero the call tries once, as [`try_lock_for`](crate::Mutex::try_lock_for) does: it
    /// takes what is free, and an error whose `is_timeout` is true says that it is not. It does not
    /// wait for a connection either.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// use std::time::Duration;
    ///
    /// let settings = zklock::AcquireOptions::new().timeout(Duration::from_secs(30));
    /// for _ in 0..10 {
    ///     let _guard = lock.lock_with(settings.clone())?; // 30 s for each
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limit = Limit::After(timeout);
        self
    }

    /// Gives up when `token` is cancelled. The call then returns an error whose
    /// [`is_cancelled`](crate::Error::is_cancelled) is true.
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Sends to `to` how many are ahead, when this thread queues and whenever that changes.
    ///
    /// A send never blocks: what a full channel cannot take is left out. To hear of every change,
    /// the thread that queues in ZooKeeper for its process watches the whole folder instead of the
    /// one node ahead: each release ahead wakes it and costs a list. The threads behind it in the
    /// same process cost nothing more.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
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
        self.positions = Some(to.clone());
        self
    }

    /// The data of the contender's node, for others to read by
    /// [`Participant::data`](crate::Participant::data): less than 1 MiB. Defaults to who we are:
    /// host, process id, thread and time. Not used when the thread joins or takes over a node that
    /// its process has already.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
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

impl AcquireOptions {
    /// A call with these options begins now: how long it waits, and its own node data. An error if
    /// it was cancelled before.
    pub(crate) fn begin(self) -> Result<(Patience, Option<Vec<u8>>), Error> {
        let patience = match self.limit {
            Limit::Never => Patience(Some(Bound::none())),
            Limit::At(deadline) => Patience::until(deadline),
            Limit::After(timeout) => Patience::during(timeout),
        };
        let Patience(Some(bound)) = patience else {
            // A try does not wait, so nothing else would look at the token.
            if self.cancel.is_some_and(|token| token.is_cancelled()) {
                return Err(Error::cancelled());
            }
            return Ok((patience, self.data));
        };
        let patience = Patience(Some(Bound {
            cancel: self.cancel,
            reporter: self.positions.map(|to| Arc::new(Reporter::new(to))),
            ..bound
        }));
        Ok((patience, self.data))
    }
}

/// How long a timed call waits: not at all, or as its bound says.
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

    /// Tries, or waits; a deadline that is over, also that of a try, is an error about `path`.
    pub(crate) fn insist<T>(
        self,
        path: &str,
        at_once: impl FnOnce() -> Result<Option<T>, Error>,
        wait: impl FnOnce(&Bound) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.0 {
            Some(bound) => wait(&bound),
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
pub(crate) struct Bound {
    pub(crate) deadline: Option<Instant>,
    /// When the call began that has the deadline.
    pub(crate) began: Option<Instant>,
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
            return Err(self.over());
        }
        Ok(())
    }
}
