//! [`Error`]: one opaque type for everything that can go wrong, with predicates.

use std::fmt;
use std::time::Duration;

/// The result of zklock's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
///
/// The text says what happened, where, and what to do about it; programs decide by the predicates.
/// An error is one word wide, so that `Result<MutexGuard>` stays small.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
/// match lock.try_lock_for(std::time::Duration::from_secs(5)) {
///     Ok(Some(_guard)) => println!("it is ours"),
///     Ok(None) => println!("busy for five seconds"),
///     Err(error) if error.is_connection_loss() => println!("try again later: {error}"),
///     Err(error) if error.is_no_auth() => println!("ask the administrator: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<ErrorParts>);

#[derive(Debug)]
struct ErrorParts {
    kind: Kind,
    /// What was being done, and on which path or host.
    context: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Kind {
    #[error("the deadline passed{}", after(*.0))]
    Timeout(Option<Duration>),
    #[error("the wait was cancelled")]
    Cancelled,
    #[error("the client is closed")]
    Closed,
    #[error("this client belongs to the parent process; connect a new one in the forked child")]
    Forked,
    #[error(
        "the ZooKeeper session was lost, and everything it held with it; the client begins another: \
         stop what the lock protected, and take the lock again"
    )]
    SessionLost,
    #[error("the lock is held, but not surely for that long")]
    LeaseShort,
    #[error("the lock was lost: its node was removed by somebody else")]
    Removed,
    #[error("no connection to ZooKeeper")]
    ConnectionLoss,
    #[error("could not connect to ZooKeeper")]
    ConnectFailed,
    #[error("ZooKeeper does not do it for now")]
    NotNow,
    #[error("ZooKeeper refused access (NoAuth); check the node's ACL and the client's auth")]
    NoAuth,
    #[error("ZooKeeper refused the credentials (AuthFailed)")]
    AuthFailed,
    #[error("ZooKeeper refused the ACL (InvalidACL); creator-all needs credentials")]
    InvalidAcl,
    #[error("this wait could never end")]
    WouldDeadlock,
    #[error("invalid argument")]
    Invalid,
    #[error("ZooKeeper refused the request")]
    Refused,
    #[error(
        "the job's record is ahead of the servers' clock, so nothing may begin; wait, or have \
         somebody look at it and reset it"
    )]
    RecordAhead,
    #[error("the last run failed or died, and nobody has said that it may be run again")]
    UnsettledRun,
    #[error("nothing was written: step {} of the transaction failed {}", .0.index, .0.why)]
    Step(FailedStep),
}

/// What kind of thing went wrong, from [`Error::kind`]: for a `match`. Each has a predicate of
/// [`Error`] as well, and the text of an error says more than its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::is_timeout`].
    Timeout,
    /// [`Error::is_cancelled`].
    Cancelled,
    /// [`Error::is_closed`].
    Closed,
    /// [`Error::is_forked`].
    Forked,
    /// [`Error::is_session_lost`], and [`Error::is_lock_lost`].
    SessionLost,
    /// Somebody removed our node: [`Error::is_lock_lost`].
    Removed,
    /// [`Error::is_lease_short`].
    LeaseShort,
    /// [`Error::is_connection_loss`].
    ConnectionLoss,
    /// [`Error::is_no_auth`].
    NoAuth,
    /// [`Error::is_would_deadlock`].
    WouldDeadlock,
    /// [`Error::is_invalid`].
    Invalid,
    /// ZooKeeper refused the request; the text and the source say why.
    Refused,
    /// [`Error::failed_step`].
    FailedStep(FailedStep),
    /// [`Error::is_record_ahead`].
    RecordAhead,
    /// [`Error::is_unsettled_run`].
    UnsettledRun,
}

/// The step by which a [`Transaction`](crate::Transaction) failed, from [`Error::failed_step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedStep {
    /// Which of the steps it was, in the order in which they were added; the first is 0.
    pub index: usize,
    /// Why ZooKeeper refused it.
    pub why: StepRefusal,
}

impl FailedStep {
    /// The step `index`, counted from 0, failed, and why.
    #[must_use]
    pub fn new(index: usize, why: StepRefusal) -> Self {
        Self { index, why }
    }
}

/// Why ZooKeeper refused a step of a [`Transaction`](crate::Transaction).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepRefusal {
    /// There is no such node; for a create, there is no parent.
    #[error("because there is no such node, or no parent")]
    NoNode,
    /// The node to create exists.
    #[error("because the node exists already")]
    NodeExists,
    /// The data has another version.
    #[error("because the data has another version")]
    BadVersion,
    /// The node to delete has children.
    #[error("because the node has children")]
    NotEmpty,
    /// The parent of the node to create is ephemeral, and cannot have children.
    #[error("because the parent is ephemeral")]
    EphemeralParent,
    /// An ACL forbids this step.
    #[error("because an ACL forbids it")]
    NoAuth,
    /// Something else; the error's `source` says what.
    #[error("because ZooKeeper refused it")]
    Other,
}

/// For a text: no more digits than tell something.
fn after(waited: Option<Duration>) -> String {
    let Some(waited) = waited else {
        return String::new();
    };
    let whole = if waited < Duration::from_millis(10) {
        waited.as_micros() * 1_000
    } else {
        waited.as_millis() * 1_000_000
    };
    let shown = Duration::from_nanos(u64::try_from(whole).unwrap_or(u64::MAX));
    format!(" after {shown:?}")
}

impl Error {
    /// An error of this kind, for programs that put something of their own in the place of a lock,
    /// as tests do. `context` says what was being done and where, and stands at the end of its text.
    ///
    /// ```
    /// use zklock::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::ConnectionLoss, "/locks/nightly, in a test");
    /// assert!(error.is_connection_loss());
    /// assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    /// ```
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        let kind = match kind {
            ErrorKind::Timeout => Kind::Timeout(None),
            ErrorKind::Cancelled => Kind::Cancelled,
            ErrorKind::Closed => Kind::Closed,
            ErrorKind::Forked => Kind::Forked,
            ErrorKind::SessionLost => Kind::SessionLost,
            ErrorKind::Removed => Kind::Removed,
            ErrorKind::LeaseShort => Kind::LeaseShort,
            ErrorKind::ConnectionLoss => Kind::ConnectionLoss,
            ErrorKind::NoAuth => Kind::NoAuth,
            ErrorKind::WouldDeadlock => Kind::WouldDeadlock,
            ErrorKind::Invalid => Kind::Invalid,
            ErrorKind::Refused => Kind::Refused,
            ErrorKind::FailedStep(failed) => Kind::Step(failed),
            ErrorKind::RecordAhead => Kind::RecordAhead,
            ErrorKind::UnsettledRun => Kind::UnsettledRun,
        };
        Self::said(kind, context)
    }

    /// What kind of thing went wrong.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// use zklock::ErrorKind;
    ///
    /// if let Err(error) = lock.lock() {
    ///     match error.kind() {
    ///         ErrorKind::ConnectionLoss => println!("later: {error}"),
    ///         ErrorKind::NoAuth | ErrorKind::Invalid => println!("never: {error}"),
    ///         _ => return Err(error),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.0.kind {
            Kind::Timeout(_) => ErrorKind::Timeout,
            Kind::Cancelled => ErrorKind::Cancelled,
            Kind::Closed => ErrorKind::Closed,
            Kind::Forked => ErrorKind::Forked,
            Kind::SessionLost => ErrorKind::SessionLost,
            Kind::LeaseShort => ErrorKind::LeaseShort,
            Kind::Removed => ErrorKind::Removed,
            Kind::ConnectionLoss | Kind::ConnectFailed | Kind::NotNow => ErrorKind::ConnectionLoss,
            Kind::NoAuth | Kind::AuthFailed | Kind::InvalidAcl => ErrorKind::NoAuth,
            Kind::WouldDeadlock => ErrorKind::WouldDeadlock,
            Kind::Invalid => ErrorKind::Invalid,
            Kind::Refused => ErrorKind::Refused,
            Kind::Step(failed) => ErrorKind::FailedStep(failed),
            Kind::RecordAhead => ErrorKind::RecordAhead,
            Kind::UnsettledRun => ErrorKind::UnsettledRun,
        }
    }

    fn of(kind: Kind) -> Self {
        Self(Box::new(ErrorParts {
            kind,
            context: None,
            source: None,
        }))
    }

    fn said(kind: Kind, context: impl Into<String>) -> Self {
        Self::of(kind).context(context)
    }

    /// Says where it happened. The innermost place is kept.
    pub(crate) fn context(mut self, context: impl Into<String>) -> Self {
        self.0.context.get_or_insert_with(|| context.into());
        self
    }

    pub(crate) fn source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn timeout() -> Self {
        Self::of(Kind::Timeout(None))
    }
    /// After a wait of this length.
    pub(crate) fn timeout_after(waited: Duration) -> Self {
        Self::of(Kind::Timeout(Some(waited)))
    }
    pub(crate) fn cancelled() -> Self {
        Self::of(Kind::Cancelled)
    }
    pub(crate) fn closed() -> Self {
        Self::of(Kind::Closed)
    }
    pub(crate) fn forked() -> Self {
        Self::of(Kind::Forked)
    }
    pub(crate) fn session_lost() -> Self {
        Self::of(Kind::SessionLost)
    }
    pub(crate) fn lease_short(context: impl Into<String>) -> Self {
        Self::said(Kind::LeaseShort, context)
    }
    pub(crate) fn removed(path: impl fmt::Display) -> Self {
        Self::said(Kind::Removed, path.to_string())
    }
    pub(crate) fn connection_loss(context: impl Into<String>) -> Self {
        Self::said(Kind::ConnectionLoss, context)
    }
    pub(crate) fn connect_failed(context: impl Into<String>) -> Self {
        Self::said(Kind::ConnectFailed, context)
    }
    pub(crate) fn not_now(context: impl Into<String>) -> Self {
        Self::said(Kind::NotNow, context)
    }
    pub(crate) fn no_auth() -> Self {
        Self::of(Kind::NoAuth)
    }
    pub(crate) fn auth_failed(context: impl Into<String>) -> Self {
        Self::said(Kind::AuthFailed, context)
    }
    pub(crate) fn invalid_acl() -> Self {
        Self::of(Kind::InvalidAcl)
    }
    pub(crate) fn would_deadlock(context: impl Into<String>) -> Self {
        Self::said(Kind::WouldDeadlock, context)
    }
    pub(crate) fn invalid(context: impl Into<String>) -> Self {
        Self::said(Kind::Invalid, context)
    }
    pub(crate) fn failed_at(index: usize, why: StepRefusal, path: &str) -> Self {
        Self::said(Kind::Step(FailedStep { index, why }), path)
    }
    pub(crate) fn refused(context: impl Into<String>) -> Self {
        Self::said(Kind::Refused, context)
    }
    pub(crate) fn record_ahead(context: impl Into<String>) -> Self {
        Self::said(Kind::RecordAhead, context)
    }
    pub(crate) fn unsettled_run(context: impl Into<String>) -> Self {
        Self::said(Kind::UnsettledRun, context)
    }

    /// The deadline passed first. Nothing was left behind in ZooKeeper.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, Kind::Timeout(_))
    }

    /// The lock is held, but not surely for as long as a guard's `ensure_for` was asked for (such
    /// as [`MutexGuard::ensure_for`](crate::MutexGuard::ensure_for)). Nothing has changed.
    #[must_use]
    pub fn is_lease_short(&self) -> bool {
        self.0.kind == Kind::LeaseShort
    }

    /// A [`CancelToken`](crate::CancelToken) ended the wait. Nothing was left behind.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.kind == Kind::Cancelled
    }

    /// The client was closed, before or during the call.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.kind == Kind::Closed
    }

    /// The client was made in a parent of this process, and does not work in the forked child.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.0.kind == Kind::Forked
    }

    /// The session ended, or may have ended as far as this process can know. Somebody else may have
    /// the lock by now.
    #[must_use]
    pub fn is_session_lost(&self) -> bool {
        self.0.kind == Kind::SessionLost
    }

    /// The lock is not ours any more: the session was lost, or somebody removed our node.
    #[must_use]
    pub fn is_lock_lost(&self) -> bool {
        matches!(self.0.kind, Kind::SessionLost | Kind::Removed)
    }

    /// ZooKeeper could not be reached, did not answer in time, or refused it for now, as an
    /// overloaded server does: try again later. The request may have been executed or not. (A failed
    /// acquire leaves nothing behind in either case.)
    #[must_use]
    pub fn is_connection_loss(&self) -> bool {
        matches!(
            self.0.kind,
            Kind::ConnectionLoss | Kind::ConnectFailed | Kind::NotNow
        )
    }

    /// An ACL forbids this client what it asked for, or its credentials were refused.
    #[must_use]
    pub fn is_no_auth(&self) -> bool {
        matches!(
            self.0.kind,
            Kind::NoAuth
                | Kind::AuthFailed
                | Kind::InvalidAcl
                | Kind::Step(FailedStep {
                    why: StepRefusal::NoAuth,
                    ..
                })
        )
    }

    /// The call would have waited for the calling thread itself.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let catalogue = zklock::RwLock::new(&client, "/locks/catalogue")?;
    /// let reading = catalogue.read()?;
    /// let refused = catalogue.write().expect_err("a reader cannot become a writer");
    /// assert!(refused.is_would_deadlock());
    /// drop(reading); // another writer may come first: look again at what was read
    /// let writing = catalogue.write()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_would_deadlock(&self) -> bool {
        self.0.kind == Kind::WouldDeadlock
    }

    /// Which step of a [`Transaction`](crate::Transaction) ZooKeeper refused, and why. Nothing was
    /// written, and the lock was ours at that moment.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// use zklock::StepRefusal;
    ///
    /// let guard = lock.lock()?;
    /// let done = guard.transaction().create("/done", "").commit();
    /// match done.as_ref().map_err(zklock::Error::failed_step) {
    ///     Ok(_) => println!("done"),
    ///     Err(Some(step)) if step.why == StepRefusal::NodeExists => println!("was done before"),
    ///     Err(_) => drop(done?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn failed_step(&self) -> Option<FailedStep> {
        match self.0.kind {
            Kind::Step(failed) => Some(failed),
            _ => None,
        }
    }

    /// A job's record is ahead of the servers' clock by more than one period, so no run may begin:
    /// the clock of the ensemble's leader is wrong, or was when the record was written. The text names
    /// both periods. [`OncePer::reset`](crate::OncePer::reset) sets the record back.
    #[must_use]
    pub fn is_record_ahead(&self) -> bool {
        self.0.kind == Kind::RecordAhead
    }

    /// The last run of a job's period or key failed or died, and the job was built so that somebody
    /// has to say that it may be run again: [`OncePer::allow_again`](crate::OncePer::allow_again). The
    /// text names the run.
    #[must_use]
    pub fn is_unsettled_run(&self) -> bool {
        self.0.kind == Kind::UnsettledRun
    }

    /// A path, name, size or setting is not possible, or differs from what other programs use.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.0.kind == Kind::Invalid
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.kind)?;
        if let Some(context) = &self.0.context {
            write!(f, ": {context}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, \"{self}\")", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn is_one_word_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn says_after_how_long() {
        let error = Error::timeout_after(Duration::from_nanos(5_003_400_000)).context("/a");
        assert!(error.is_timeout());
        assert_eq!(error.to_string(), "the deadline passed after 5.003s: /a");
        let error = Error::timeout_after(Duration::from_nanos(1_234_567));
        assert_eq!(error.to_string(), "the deadline passed after 1.234ms");
        assert_eq!(Error::timeout().to_string(), "the deadline passed");
    }

    #[test]
    fn is_of_the_kind_that_it_was_made_of() {
        let failed = FailedStep::new(2, StepRefusal::NodeExists);
        type IsIt = fn(&Error) -> bool;
        let kinds: [(ErrorKind, IsIt); 15] = [
            (ErrorKind::Timeout, Error::is_timeout),
            (ErrorKind::Cancelled, Error::is_cancelled),
            (ErrorKind::Closed, Error::is_closed),
            (ErrorKind::Forked, Error::is_forked),
            (ErrorKind::SessionLost, Error::is_session_lost),
            (ErrorKind::Removed, Error::is_lock_lost),
            (ErrorKind::LeaseShort, Error::is_lease_short),
            (ErrorKind::ConnectionLoss, Error::is_connection_loss),
            (ErrorKind::NoAuth, Error::is_no_auth),
            (ErrorKind::WouldDeadlock, Error::is_would_deadlock),
            (ErrorKind::Invalid, Error::is_invalid),
            (ErrorKind::Refused, |error| {
                error.kind() == ErrorKind::Refused
            }),
            (ErrorKind::FailedStep(failed), |error| {
                error.failed_step().is_some()
            }),
            (ErrorKind::RecordAhead, Error::is_record_ahead),
            (ErrorKind::UnsettledRun, Error::is_unsettled_run),
        ];
        for (at, (kind, is_it)) in kinds.iter().enumerate() {
            let error = Error::new(*kind, "here");
            assert_eq!(error.kind(), *kind);
            assert!(error.to_string().ends_with(": here"), "{error}");
            for (other, (_, is_other)) in kinds.iter().enumerate() {
                let lost = [*kind, kinds[other].0] == [ErrorKind::SessionLost, ErrorKind::Removed];
                assert_eq!(is_other(&error), at == other || lost, "{kind:?}");
            }
            assert!(is_it(&error));
        }
        assert_eq!(Error::connect_failed("").kind(), ErrorKind::ConnectionLoss);
        assert_eq!(Error::invalid_acl().kind(), ErrorKind::NoAuth);
    }

    #[test]
    fn says_what_and_where() {
        let error = Error::no_auth().context("/locks/a");
        assert!(error.is_no_auth());
        assert!(error.to_string().ends_with(": /locks/a"), "{error}");
        assert!(error.context("outer").to_string().ends_with(": /locks/a"));
    }
}

/// For functions that use locks and a handle of the `zookeeper` crate. The crate's error is the
/// [`source`](std::error::Error::source).
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
/// let guard = lock.lock()?;
/// guard.transaction().put("/progress", "17").commit()?;
/// let (progress, _) = client.zookeeper()?.get_data("/progress", false)?;
/// # drop(progress);
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "zookeeper")]
impl From<zookeeper::ZkError> for Error {
    fn from(error: zookeeper::ZkError) -> Self {
        use zookeeper::ZkError as E;
        let kind = match error {
            E::ConnectionLoss => Kind::ConnectionLoss,
            E::SessionExpired | E::SessionMoved => Kind::SessionLost,
            E::OperationTimeout => Kind::NotNow,
            E::NoAuth => Kind::NoAuth,
            E::AuthFailed => Kind::AuthFailed,
            E::InvalidACL => Kind::InvalidAcl,
            E::BadArguments | E::MarshallingError => Kind::Invalid,
            _ => Kind::Refused,
        };
        Self::of(kind).source(error)
    }
}
