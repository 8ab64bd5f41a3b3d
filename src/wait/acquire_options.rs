//! [`AcquireOptions`]: the settings of one call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::error::Error;
use crate::wait::cancel::CancelToken;
use crate::wait::limits::{TryOrWait, WaitLimits};
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
    deadline: Deadline,
    cancel: Option<CancelToken>,
    positions: Option<Sender<QueuePosition>>,
    data: Option<Vec<u8>>,
}

/// When a call stops waiting.
#[derive(Clone, Copy, Debug, Default)]
enum Deadline {
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
        self.deadline = Deadline::At(deadline);
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
        self.deadline = Deadline::After(timeout);
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
    pub(crate) fn begin(self) -> Result<(TryOrWait, Option<Vec<u8>>), Error> {
        let try_or_wait = match self.deadline {
            Deadline::Never => TryOrWait(Some(WaitLimits::none())),
            Deadline::At(deadline) => TryOrWait::until(deadline),
            Deadline::After(timeout) => TryOrWait::during(timeout),
        };
        let TryOrWait(Some(limits)) = try_or_wait else {
            // A try does not wait, so nothing else would look at the token.
            if self.cancel.is_some_and(|token| token.is_cancelled()) {
                return Err(Error::cancelled());
            }
            return Ok((try_or_wait, self.data));
        };
        let try_or_wait = TryOrWait(Some(WaitLimits {
            cancel: self.cancel,
            reporter: self.positions.map(|to| Arc::new(Reporter::new(to))),
            ..limits
        }));
        Ok((try_or_wait, self.data))
    }
}
