//! [`OncePer`]: a job that is done once for each period or key, over all machines.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::recipe::job_run::{JobRun, LostRuns};
use crate::recipe::mutex::{Mutex, MutexGuard};
use crate::recipe::record_node::{Asked, Kept, RecordNode, Written, pause};
use crate::recipe::shown::show;
use crate::session::observe::observer::Label;
use crate::session::{Session, Waiter};
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits, deadline_after};
use crate::znode::identity::Identity;
use crate::znode::job::{
    Claim, JobRecord, Loss, Periods, Rerun, Ruling, RunRecord, RunState, Terms, Times,
};
use crate::znode::names::Dialect;
use crate::znode::path::{LockPath, split};

/// How often a record is looked at that somebody else changes all the time, and how often a write is
/// made again whose answers are lost, or that the servers will not do for now: with its pauses, for 6 s.
const MOST_LOOKS: u32 = 10;

/// So long a run that nobody got is looked for, when the caller has an error to hear.
const A_MOMENT: Duration = Duration::from_secs(1);

/// Longer keys are refused, as every run of a record has one.
const MOST_KEY_BYTES: usize = 255;

/// The most runs that a record can be told to keep.
const MOST_KEPT: usize = 10_000;

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
        OncePerBuilder {
            client,
            path,
            every: None,
            anchor: UNIX_EPOCH,
            key: None,
            after_failure: Rerun::Again,
            after_death: Rerun::WhenTold,
            catch_up: 0,
            keep: None,
            dialect: Dialect::default(),
            revocable: false,
            label: None,
        }
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

    fn begin_within(&self, limits: &WaitLimits) -> Result<Begun> {
        if let Some(done) = self.look_for_key(limits)? {
            return Ok(done);
        }
        let guard = self.lock.take(limits)?;
        self.begin_holding(guard, limits)
    }

    /// A key that is done is done, whoever holds the lock: nobody needs to wait to hear that.
    fn look_for_key(&self, limits: &WaitLimits) -> Result<Option<Begun>> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        // Who holds already asks once more, and is told so.
        if self.lock.is_held_by_current_thread() {
            return Ok(None);
        }
        let Some(kept) = self.read(limits, None)? else {
            return Ok(None);
        };
        Ok(kept.record.done_key(key).cloned().map(Begun::Done))
    }

    fn begin_holding(&self, guard: MutexGuard, limits: &WaitLimits) -> Result<Begun> {
        let claim = Claim {
            id: Uuid::new_v4().simple().to_string(),
            token: guard.fencing_token()?.as_u64(),
            node: split(guard.path()).1.to_owned(),
            who: Identity::current(SystemTime::now()),
        };
        let mut looks = Looks::default();
        let begun = self.begin_or_learn(&guard, &claim, limits, &mut looks);
        if begun.is_err() && looks.may_be_begun {
            self.take_back(&guard, &claim.id);
        }
        let (kept, run) = begun?;
        let Some(kept) = kept else {
            return Ok(Begun::Done(*run));
        };
        let (node, lost) = (self.node.clone(), self.lost.clone());
        Ok(Begun::Run(JobRun::begun(guard, node, *kept, run, lost)))
    }

    /// Looks and writes until it is known what came of it: our run with its record, or that which did it.
    fn begin_or_learn(
        &self,
        guard: &MutexGuard,
        claim: &Claim,
        limits: &WaitLimits,
        looks: &mut Looks,
    ) -> Result<(Option<Box<Kept>>, Box<RunRecord>)> {
        loop {
            match self.try_to_begin(guard, claim, limits, looks)? {
                Step::Begun(kept, run) => return Ok((Some(kept), run)),
                Step::Done(run) => return Ok((None, run)),
                Step::Again(unknown) => {
                    let unlimited = WaitLimits::none();
                    let limits = if looks.may_be_begun {
                        &unlimited
                    } else {
                        limits
                    };
                    self.look_again(looks, unknown, guard, limits)?;
                }
            }
        }
    }

    /// Writes down that nobody got the run that may be in the record, or remembers it for the next time:
    /// no work was begun, so nobody needs to look at what is left of it.
    fn take_back(&self, guard: &MutexGuard, id: &str) {
        let limits = WaitLimits::until(deadline_after(A_MOMENT));
        let is_told = match self.read(&limits, Some(guard)) {
            Ok(Some(mut kept)) => {
                let written = kept.written;
                !kept.record.take_back(id, written)
                    || matches!(
                        self.node.write(guard, &kept.record, Some(kept.version)),
                        Ok(Written::As(_))
                    )
            }
            Ok(None) => true,
            Err(_) => false,
        };
        if !is_told {
            self.lost.add(id, Loss::NotGivenOut);
        }
    }

    /// Before the record is read again, as it was not what was written to, or nobody knows. An error
    /// once that has happened too often in a row.
    fn look_again(
        &self,
        looks: &mut Looks,
        unknown: Option<Error>,
        guard: &MutexGuard,
        limits: &WaitLimits,
    ) -> Result<()> {
        match unknown {
            Some(error) if looks.unknown == MOST_LOOKS => Err(error),
            Some(_) => {
                looks.unknown += 1;
                pause(guard, limits, looks.unknown - 1)
            }
            None if looks.changed == MOST_LOOKS => Err(self.restless()),
            None => {
                looks.changed += 1;
                Ok(())
            }
        }
    }

    /// One look at the record, and the write that follows from it. Whatever is not known after a write
    /// is read again.
    fn try_to_begin(
        &self,
        guard: &MutexGuard,
        claim: &Claim,
        limits: &WaitLimits,
        looks: &mut Looks,
    ) -> Result<Step> {
        // A begin that may be in the record is looked for also when the caller waits no longer: left alone it
        // would look like a run that died.
        let unlimited = WaitLimits::none();
        let reads = if looks.may_be_begun {
            &unlimited
        } else {
            limits
        };
        let kept = self.read(reads, Some(guard))?;
        if let Some(kept) = kept {
            // A begin whose answer was lost.
            if let Some(run) = kept.record.open_run(&claim.id).cloned() {
                return Ok(Step::Begun(Box::new(kept), Box::new(run)));
            }
            if let Some(run) = self.key.as_ref().and_then(|key| kept.record.done_key(key)) {
                return Ok(Step::Done(Box::new(run.clone())));
            }
            looks.may_be_begun = false;
            return self.rule_and_write(guard, claim, limits, Some(kept), looks);
        }
        looks.may_be_begun = false;
        self.rule_and_write(guard, claim, limits, None, looks)
    }

    fn rule_and_write(
        &self,
        guard: &MutexGuard,
        claim: &Claim,
        limits: &WaitLimits,
        kept: Option<Kept>,
        looks: &mut Looks,
    ) -> Result<Step> {
        let session = self.session();
        let asked = self
            .node
            .ask_the_time(session, limits, guard, kept, self.times)?;
        let mut kept = match asked {
            Asked::Told(kept) => kept,
            Asked::NotThat => return Ok(Step::Again(None)),
            Asked::Unknown(error) => return Ok(Step::Again(Some(error))),
        };
        let lost = self.lost.all();
        let buried = kept.record.bury(kept.written, &claim.id, &lost);
        let key = self.key.as_deref();
        let ruling = kept.record.begin(key, claim, kept.written, &self.terms);
        if buried || ruling == Ruling::Begin {
            looks.may_be_begun = ruling == Ruling::Begin;
            match self.node.write(guard, &kept.record, Some(kept.version))? {
                Written::As(version) => kept.version = version,
                Written::NotThat => return Ok(Step::Again(None)),
                Written::Unknown(error) => return Ok(Step::Again(Some(error))),
            }
            self.lost.forget(&lost);
        }
        match ruling {
            Ruling::Begin => {
                let run = kept.record.open_run(&claim.id).cloned();
                let run = run.expect("its place is in the record that was written");
                Ok(Step::Begun(Box::new(kept), Box::new(run)))
            }
            Ruling::Settled(run) => Ok(Step::Done(run)),
            Ruling::Unsettled(run) => Err(Error::unsettled_run(format!("{}: {run}", self.path()))),
            Ruling::Ahead { greatest, clock } => Err(self.ahead(greatest, clock)),
        }
    }

    fn ahead(&self, greatest: i64, clock: i64) -> Error {
        let shown = |number| match self.times {
            Times::Periods(periods) => match periods.period(number) {
                Some(period) => format!("{number} ({period})"),
                None => number.to_string(),
            },
            Times::Keys => number.to_string(),
        };
        Error::record_ahead(format!(
            "{}: period {} was begun, and the servers' clock is in period {}",
            self.path(),
            shown(greatest),
            shown(clock)
        ))
    }

    fn restless(&self) -> Error {
        let path = self.node.path();
        Error::refused(format!(
            "{path}: somebody who does not hold the lock changes the record all the time"
        ))
    }

    fn read(&self, limits: &WaitLimits, guard: Option<&MutexGuard>) -> Result<Option<Kept>> {
        let kept = self.node.read(self.session(), limits, guard)?;
        if let Some(Kept { record, .. }) = &kept
            && record.times() != self.times
        {
            return Err(Error::invalid(format!(
                "{}: the record is of {}, and this job is built for {}",
                self.node.path(),
                record.times(),
                self.times
            )));
        }
        Ok(kept)
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

    /// Changes the record under the lock, and writes it if `change` says so.
    fn change<T>(
        &self,
        mut change: impl FnMut(&mut JobRecord, crate::znode::job::Moment) -> (bool, T),
    ) -> Result<T> {
        let limits = WaitLimits::none();
        let guard = self.lock.take(&limits)?;
        let mut looks = Looks::default();
        loop {
            let kept = self.read(&limits, Some(&guard))?;
            let session = self.session();
            let asked = self
                .node
                .ask_the_time(session, &limits, &guard, kept, self.times)?;
            let mut kept = match asked {
                Asked::Told(kept) => kept,
                Asked::NotThat => {
                    self.look_again(&mut looks, None, &guard, &limits)?;
                    continue;
                }
                Asked::Unknown(error) => {
                    self.look_again(&mut looks, Some(error), &guard, &limits)?;
                    continue;
                }
            };
            let lost = self.lost.all();
            let buried = kept.record.bury(kept.written, "", &lost);
            let (changed, result) = change(&mut kept.record, kept.written);
            if !buried && !changed {
                return Ok(result);
            }
            match self.node.write(&guard, &kept.record, Some(kept.version))? {
                Written::As(_) => {
                    self.lost.forget(&lost);
                    return Ok(result);
                }
                Written::NotThat => self.look_again(&mut looks, None, &guard, &limits)?,
                Written::Unknown(error) => {
                    self.look_again(&mut looks, Some(error), &guard, &limits)?;
                }
            }
        }
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

enum Step {
    Begun(Box<Kept>, Box<RunRecord>),
    Done(Box<RunRecord>),
    /// Why a write is unknown, if it is.
    Again(Option<Error>),
}

/// How often a record was looked at again.
#[derive(Default)]
struct Looks {
    changed: u32,
    unknown: u32,
    /// A begin of ours was sent, and not yet seen to be absent.
    may_be_begun: bool,
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

/// Settings of a [`OncePer`]; made by [`OncePer::builder`].
#[derive(Debug)]
#[must_use]
pub struct OncePerBuilder<'a> {
    client: &'a Client,
    path: &'a str,
    every: Option<Duration>,
    anchor: SystemTime,
    key: Option<&'a str>,
    after_failure: Rerun,
    after_death: Rerun,
    catch_up: u32,
    keep: Option<usize>,
    dialect: Dialect,
    revocable: bool,
    label: Label,
}

impl<'a> OncePerBuilder<'a> {
    /// Once for each period of this length: whole milliseconds, up to 100 years.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// A moment at which a period begins. Defaults to 1970-01-01T00:00Z: a day begins at midnight UTC,
    /// and a week on a Thursday.
    pub fn anchor(mut self, anchor: SystemTime) -> Self {
        self.anchor = anchor;
        self
    }

    /// Once for each key, and this one: any text of 1 to 255 bytes. Others can read it.
    pub fn key(mut self, key: &'a str) -> Self {
        self.key = Some(key);
        self
    }

    /// What follows a run that failed. Defaults to [`Rerun::Again`]: whoever comes next in the same
    /// period tries it.
    pub fn after_failure(mut self, rerun: Rerun) -> Self {
        self.after_failure = rerun;
        self
    }

    /// What follows a run that died. Defaults to [`Rerun::WhenTold`]: its work may have been done, all
    /// but the last word. Take [`Rerun::Again`] if the work can be done twice.
    ///
    /// The next period, or another key, begins in any case; [`JobRun::previous`] says what came before.
    pub fn after_death(mut self, rerun: Rerun) -> Self {
        self.after_death = rerun;
        self
    }

    /// Gives so many missed periods, the latest ones, a run each, the oldest first, before the present
    /// one: call [`OncePer::begin`] until it says that it is done. So is the last one begun, if it failed or died and may be run again.
    /// Defaults to 0: the present period alone is run.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// use std::time::Duration;
    /// use zklock::{Begun, OncePer};
    ///
    /// let hourly = OncePer::builder(&client, "/jobs/invoices").every(Duration::from_secs(3600));
    /// let hourly = hourly.catch_up(24).build()?;
    /// # let mut hours = Vec::new();
    /// # if let Begun::Run(run) = hourly.begin()? { run.done()?; }
    /// # server.advance_clock(Duration::from_secs(3 * 3600));
    /// while let Begun::Run(run) = hourly.begin()? {
    ///     let hour = run.period().expect("built with a length");
    ///     println!("invoices of the hour from {hour}");
    /// #   hours.push(hour.number());
    ///     run.done()?;
    /// }
    /// # assert_eq!(hours.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn catch_up(mut self, most: u32) -> Self {
        self.catch_up = most;
        self
    }

    /// How many runs the record keeps, 1 to 10,000. Defaults to 100 for periods, and to 1,000 for keys.
    /// Attempts that another attempt followed are forgotten first, then the oldest runs: so it keeps as many
    /// keys as this. It keeps fewer once the text has 512 KiB; a run takes some 300 bytes, and what its key and
    /// its failure's reason have.
    ///
    /// Of periods nothing depends on it, as the greatest is kept apart. A key that is forgotten counts as
    /// new: keep more than can come again. Whoever begins a run forgets by its own number, so give all
    /// programs of one path the same.
    pub fn keep(mut self, runs: usize) -> Self {
        self.keep = Some(runs);
        self
    }

    /// Whose node names the lock uses; see [`MutexBuilder::dialect`](crate::MutexBuilder::dialect).
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Whether others may ask a run to end; see
    /// [`MutexBuilder::revocable`](crate::MutexBuilder::revocable). Defaults to no.
    pub fn revocable(mut self, revocable: bool) -> Self {
        self.revocable = revocable;
        self
    }

    /// The name under which the client's [`Observer`](crate::Observer) hears of the lock; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to none.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Builds the job. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path, the length, the key or a setting is not possible,
    /// or there is neither a length nor a key, or both; [`is_forked`](Error::is_forked).
    pub fn build(self) -> Result<OncePer> {
        let folder = LockPath::parse(self.path).map_err(Error::invalid)?;
        let refused = |why: String| Error::invalid(format!("{folder}: {why}"));
        let times = match (self.every, self.key) {
            (Some(every), None) => {
                Times::Periods(Periods::new(every, self.anchor).map_err(refused)?)
            }
            (None, Some(key)) if (1..=MOST_KEY_BYTES).contains(&key.len()) => Times::Keys,
            (None, Some(key)) => {
                let bytes = key.len();
                return Err(refused(format!(
                    "a key of {bytes} bytes; it has 1 to {MOST_KEY_BYTES}"
                )));
            }
            _ => return Err(refused("a job needs a length or a key".to_owned())),
        };
        let keep = self.keep.unwrap_or(match times {
            Times::Periods(_) => 100,
            Times::Keys => 1_000,
        });
        if !(1..=MOST_KEPT).contains(&keep) {
            return Err(refused(format!("a record keeps 1 to {MOST_KEPT} runs")));
        }
        let lock = Mutex::builder(self.client, self.path)
            .dialect(self.dialect)
            // Each run has a node, and so a token, of its own.
            .local_hand_off(false)
            // Who has a run would find it dead.
            .reentrant(false)
            .revocable(self.revocable);
        let lock = match self.label {
            Some(label) => lock.label(label),
            None => lock,
        };
        Ok(OncePer {
            lock: lock.build()?,
            node: RecordNode::of(&folder),
            times,
            key: self.key.map(Arc::from),
            terms: Terms {
                after_failure: self.after_failure,
                after_death: self.after_death,
                catch_up: self.catch_up,
                keep,
            },
            lost: LostRuns::default(),
        })
    }
}
