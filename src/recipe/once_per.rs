//! [`OncePer`]: a job that is done once for each period or key, over all machines.

mod builder;
mod under_lock;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub use self::builder::OncePerBuilder;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::recipe::job_run::{JobRun, LostRuns};
use crate::recipe::mutex::Mutex;
use crate::recipe::record_node::RecordNode;
use crate::recipe::shown::show;
use crate::session::{Session, Waiter};
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};
use crate::znode::identity::Identity;
use crate::znode::job::{JobRecord, RunRecord, RunState, Terms, Times};
use crate::znode::path::LockPath;

/// A job that is done once for each period (a day, an hour), or once for each key (a date, a batch),
/// over all machines, whatever their clocks say.
///
/// Every machine has the job in its crontab. Each calls [`begin`](Self::begin): one gets the run, the
/// others hear who did it and when. A lock alone cannot do this: a machine whose clock is late comes when
/// the lock is free again. So there is a [record](JobRecord) beside the lock, and it is written only
/// by who holds the lock, in the same transaction that checks that it does.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// # fn make_the_report() {}
/// use std::time::Duration;
/// use zklock::{Begun, OncePer};
///
/// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// let nightly = OncePer::new(&client, "/jobs/nightly", DAY)?;
/// match nightly.begin()? {
///     Begun::Run(run) => {
///         make_the_report();
///         run.done()?;
///     }
///     Begun::Done(before) => println!("nothing to do: {before}"),
/// }
/// # assert!(matches!(nightly.begin()?, Begun::Done(_)));
/// # Ok(())
/// # }
/// ```
///
/// # Semantics
/// - **No two runs at once**, of one path, whatever their periods or keys; and a second run of one
///   period or key only after one that *failed* or *died*, if it was built so
///   ([`after_failure`](OncePerBuilder::after_failure), [`after_death`](OncePerBuilder::after_death)).
///   A run is done when [`JobRun::done`] has returned `Ok`. What "at once" is worth when a process is
///   stopped for longer than its session lives is the same as with any lock: see
///   [`FencingToken`](crate::FencingToken).
/// - **The clock is the servers'**: the time that the ensemble's leader gave to a write of the holder.
///   The clocks of the machines that call do not count. The record keeps the greatest period begun, and
///   no smaller one begins. So a leader with a wrong clock may make a run early or late, and never two. If the
///   record is ahead of the clock by one period, the clock is at a border, and the greatest period counts; by
///   more, an error says so ([`is_record_ahead`](Error::is_record_ahead)), until the clock has come there or
///   somebody calls [`reset`](Self::reset).
/// - **A period is a length of UTC**, counted from 1970 or from an
///   [anchor](OncePerBuilder::anchor). For days of a calendar, with their summer time, take the
///   date as the key.
/// - **Missed periods are told** by [`JobRun::missed`] and stay in the record; a job that
///   [catches up](OncePerBuilder::catch_up) has a run for each of the last of them first.
/// - **A key is forgotten** when runs of [as many](OncePerBuilder::keep) other keys came after it, and would then
///   run again. Further attempts of one key make none forgotten.
/// - **Fair**, as the [`Mutex`] that it holds. **Not re-entrant**: who has a run and begins another by the
///   same object or its clone gets an error ([`is_would_deadlock`](Error::is_would_deadlock)). Another object
///   of that path, such as that of another key, waits for the run to end: end one before you begin the next.
/// - **When contact or the session is lost, on panic, when the process dies**: see [`JobRun`].
///
/// Its path is a folder for it alone: the lock's contenders stand in it, and the node `record`. Whoever
/// deletes that has the job forget all, and what was done is run again. All programs
/// that share a path must agree on the length and the anchor, or that it is for keys; who differs gets an error.
#[derive(Clone)]
pub struct OncePer {
    lock: Mutex,
    node: RecordNode,
    times: Times,
    key: Option<Arc<str>>,
    terms: Terms,
    lost: LostRuns,
}

/// What [`OncePer::begin`] came to.
#[derive(Debug)]
#[must_use = "a run that is dropped without `done` has failed"]
pub enum Begun {
    /// The run is ours.
    Run(JobRun),
    /// It was done before, as this says.
    Done(RunRecord),
}

impl OncePer {
    /// A job that is done once for each period of this length, counted from 1970-01-01T00:00Z, with the
    /// default settings. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path or the length is not possible.
    pub fn new(client: &Client, path: &str, every: Duration) -> Result<Self> {
        Self::builder(client, path).every(every).build()
    }

    /// A job that is done once for each key, and this key. Nothing is asked of ZooKeeper yet.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// use zklock::{Begun, OncePer};
    ///
    /// // A day as the business counts it.
    /// let today = "2026-11-22";
    /// if let Begun::Run(run) = OncePer::for_key(&client, "/jobs/closing", today)?.begin()? {
    ///     println!("closing the books of {today}");
    ///     run.done()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path or the key is not possible.
    pub fn for_key(client: &Client, path: &str, key: &str) -> Result<Self> {
        Self::builder(client, path).key(key).build()
    }

    /// Begins to build a job. It needs [`every`](OncePerBuilder::every) or
    /// [`key`](OncePerBuilder::key).
    pub fn builder<'a>(client: &'a Client, path: &'a str) -> OncePerBuilder<'a> {
        OncePerBuilder::new(client, path)
    }

    /// Begins the run that is due, or says who did it. Waits as long as somebody else has a run.
    ///
    /// The period is that of the servers' clock when the lock is ours, not when this was called.
    ///
    /// # Errors
    /// - [`is_unsettled_run`](Error::is_unsettled_run): the last run failed or died, and the job was
    ///   built so that somebody has to say that it may be run again.
    /// - [`is_record_ahead`](Error::is_record_ahead): the record is ahead of the servers' clock.
    /// - [`is_invalid`](Error::is_invalid): the record is none of this version, or of another length of
    ///   periods; or nobody may read the nodes that the client makes.
    /// - [`is_lock_lost`](Error::is_lock_lost), before the run was given out. It may stand in the record as one
    ///   that died, until this object begins again: then as one that failed, and that may be run again.
    /// - Otherwise as [`Mutex::lock`].
    pub fn begin(&self) -> Result<Begun> {
        self.begin_within(&WaitLimits::none())
    }

    /// As [`begin`](Self::begin), but returns `None` if somebody else has a run, or is about to begin
    /// one.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let job = zklock::OncePer::new(&client, "/jobs/hourly", std::time::Duration::from_secs(3600))?;
    /// use zklock::Begun;
    ///
    /// match job.try_begin()? {
    ///     Some(Begun::Run(run)) => run.done()?,
    ///     Some(Begun::Done(before)) => println!("{before}"),
    ///     None => println!("somebody is at it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`begin`](Self::begin); [`is_connection_loss`](Error::is_connection_loss) at once when there
    /// is no connection.
    pub fn try_begin(&self) -> Result<Option<Begun>> {
        // What a key asks first waits for a connection.
        let session = self.session();
        let contact = session.contact().map(drop);
        contact.map_err(|error| error.into_error(session.target(), self.path()))?;
        if let Some(done) = self.look_for_key(&WaitLimits::none())? {
            return Ok(Some(done));
        }
        match self.lock.try_lock()? {
            Some(guard) => self.begin_holding(guard, &WaitLimits::none()).map(Some),
            None => Ok(None),
        }
    }

    /// As [`begin`](Self::begin), but waits for at most `timeout`; returns `None` when the time is
    /// over. A zero timeout means [`try_begin`](Self::try_begin).
    ///
    /// Once the lock is ours, the record is read and written. When ZooKeeper falls silent at that
    /// moment, a write waits on for up to a sixth of the session timeout. When the answer to the write that
    /// begins the run is lost, it waits until it knows what came of it, or the lock is lost: so it may return
    /// the run late.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn try_begin_for(&self, timeout: Duration) -> Result<Option<Begun>> {
        self.attempt(TryOrWait::during(timeout))
    }

    /// As [`try_begin_for`](Self::try_begin_for), until `deadline`.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn try_begin_until(&self, deadline: Instant) -> Result<Option<Begun>> {
        self.attempt(TryOrWait::until(deadline))
    }

    fn attempt(&self, try_or_wait: TryOrWait) -> Result<Option<Begun>> {
        try_or_wait.attempt(|| self.try_begin(), |limits| self.begin_within(limits))
    }

    /// As [`begin`](Self::begin), with a deadline, a cancel token or a report of positions. Unlike
    /// [`try_begin_for`](Self::try_begin_for), it returns an error when the deadline passes. There is no
    /// node data of one's own: what is written says who runs.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); also [`is_timeout`](Error::is_timeout),
    /// [`is_cancelled`](Error::is_cancelled), and [`is_invalid`](Error::is_invalid) if the options have
    /// data.
    pub fn begin_with(&self, options: AcquireOptions) -> Result<Begun> {
        let (try_or_wait, data) = options
            .begin()
            .map_err(|error| error.context(self.path()))?;
        if data.is_some() {
            let what = format!("{}: a run takes no node data", self.path());
            return Err(Error::invalid(what));
        }
        try_or_wait.insist(
            self.path(),
            || self.try_begin(),
            |limits| self.begin_within(limits),
        )
    }

    /// The record: which runs there were, who ran them, and what came of them. `None` before the
    /// first. Takes no lock, and writes nothing.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let job = zklock::OncePer::for_key(&client, "/jobs/import", "batch 17")?;
    /// # if let zklock::Begun::Run(run) = job.begin()? { run.done()?; }
    /// for run in job.record()?.iter().flat_map(|record| record.runs()) {
    ///     println!("{run}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if it is no record of this version; otherwise as
    /// [`Mutex::lock`].
    pub fn record(&self) -> Result<Option<JobRecord>> {
        record_at(self.session(), &self.node, self.lock.path())
    }

    /// As [`record`](Self::record), for tools that do not know what the job is done for.
    ///
    /// # Errors
    /// As [`record`](Self::record); also if the path is not possible.
    pub fn record_at(client: &Client, path: &str) -> Result<Option<JobRecord>> {
        client.session().refuse_child()?;
        let folder = LockPath::parse(path).map_err(Error::invalid)?;
        record_at(client.session(), &RecordNode::of(&folder), folder.as_str())
    }

    /// Says that the last run may be run again: that of this key, or of the greatest period. Returns
    /// that run; `None` if it was done, or there is none. It waits while somebody has a run.
    ///
    /// For somebody who has looked at what the run that failed or died has left behind. The word is for one
    /// more attempt.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// use zklock::{Begun, OncePer, Rerun};
    ///
    /// let job = OncePer::builder(&client, "/jobs/payments").key("2026-11-22");
    /// let job = job.after_failure(Rerun::WhenTold).build()?;
    /// if let Begun::Run(run) = job.begin()? {
    ///     run.failed("the bank does not answer")?;
    /// }
    /// assert!(job.begin().is_err_and(|error| error.is_unsettled_run()));
    /// // An operator has looked at it.
    /// job.allow_again()?;
    /// assert!(matches!(job.begin()?, Begun::Run(_)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn allow_again(&self) -> Result<Option<RunRecord>> {
        let key = self.key.as_deref();
        self.change(|record, _| {
            let allowed = record.allow_again(key).cloned();
            (allowed.is_some(), allowed)
        })
    }

    /// Sets the record back to the servers' clock, if it is ahead of it, and forgets the runs of the
    /// periods that are to come. Returns whether it was ahead. It waits while somebody has a run.
    ///
    /// For somebody who has seen to it that the servers' clocks are right. A period that was run early, by
    /// a wrong clock, will run again when it comes. So will the period of the clock, if it was done and its run
    /// has been [forgotten](OncePerBuilder::keep) since: look at the [record](Self::record) first.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn reset(&self) -> Result<bool> {
        let who = Identity::current(SystemTime::now());
        self.change(|record, now| {
            let was_ahead = record.reset(now, &who);
            (was_ahead, was_ahead)
        })
    }

    /// The folder of the job, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// The lock that a run holds: who has it and who waits
    /// ([`participants`](Mutex::participants)), and what can be done about that.
    #[must_use]
    pub fn lock(&self) -> &Mutex {
        &self.lock
    }

    fn session(&self) -> &Arc<Session> {
        self.lock.session()
    }
}

/// Reads a record, and looks whether a run that has not ended has its lock still.
fn record_at(session: &Arc<Session>, node: &RecordNode, folder: &str) -> Result<Option<JobRecord>> {
    let limits = WaitLimits::none();
    let read = || Ok::<_, Error>(node.read(session, &limits, None)?.map(|kept| kept.record));
    let Some(record) = read()? else {
        return Ok(None);
    };
    let open = record
        .runs()
        .iter()
        .find(|run| run.state() == RunState::Running);
    let Some(open) = open else {
        return Ok(Some(record));
    };
    let path = format!("{folder}/{}", open.node());
    let waiter = Waiter::new(session, &limits);
    let stands = waiter.retry(&path, |contact| contact.stat(&path).map(Some))?;
    if stands.is_some() {
        return Ok(Some(record));
    }
    // It may have ended before its node went: then that is in the record by now.
    let id = open.id().to_owned();
    let newer = read()?.map(|mut record| {
        record.has_died(&id);
        record
    });
    Ok(newer)
}

impl fmt::Debug for OncePer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, "OncePer", self.path(), self.session(), |shown| {
            shown.field("times", &self.times).field("key", &self.key);
        })
    }
}
