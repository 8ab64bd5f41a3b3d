//! [`JobRun`]: one run of a job that is done once for each period or key.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::recipe::hold::Holding;
use crate::recipe::mutex::MutexGuard;
use crate::recipe::record_node::{Kept, RecordNode, Written, pause};
use crate::session::observe::say;
use crate::sync::Mutex;
use crate::wait::limits::WaitLimits;
use crate::znode::job::{End, Ended, JobRecord, Loss, Moment, Period, RunRecord};

/// So many runs of its own that it has lost are remembered by one process.
const MOST_LOST: usize = 64;

/// The runs of this process whose lock was lost, until the record says so.
#[derive(Clone, Default)]
pub(super) struct LostRuns(Arc<Mutex<Vec<(String, Loss)>>>);

impl LostRuns {
    pub(super) fn all(&self) -> Vec<(String, Loss)> {
        self.0.lock().clone()
    }

    pub(super) fn forget(&self, told: &[(String, Loss)]) {
        self.0.lock().retain(|lost| !told.contains(lost));
    }

    pub(super) fn add(&self, id: &str, loss: Loss) {
        let mut lost = self.0.lock();
        if lost.len() == MOST_LOST {
            lost.remove(0);
        }
        lost.push((id.to_owned(), loss));
    }
}

/// One run of a job, from [`OncePer::begin`](crate::OncePer::begin): do the work, then call
/// [`done`](Self::done).
///
/// It holds the job's lock, and is a [`MutexGuard`] in all but its end: by `Deref` it has
/// [`lost`](MutexGuard::lost), [`ensure_for`](MutexGuard::ensure_for), [`view`](MutexGuard::view),
/// [`fencing_token`](MutexGuard::fencing_token) for writes to a store, and
/// [`transaction`](MutexGuard::transaction) for writes to ZooKeeper. As a guard it belongs to its
/// thread.
///
/// # Semantics
/// - **Dropped without `done()` it has failed**, also by `?` and by a panic. The drop writes that down
///   and gives the lock back; it blocks for at most about a sixth of the session timeout, and never
///   panics. It writes once: out of contact at that moment, it has *died*.
/// - **When its lock is lost**, nobody can write any more how it ended: neither this run, however late it
///   wakes up, nor anybody in its name. Whoever takes the lock next finds that it has *died*. If the next
///   one is the `OncePer` that gave out the run, or its clone, it writes how the lock was lost instead.
/// - **The record is not the work.** Between the end of the work and the answer to `done()` the process
///   can die, and then work that was done has died. Have the work write its fencing token, or be such
///   that it can be done again; or put it into the same store by one transaction with a mark of its
///   own.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// # let job = zklock::OncePer::for_key(&client, "/jobs/import", "batch 17")?;
/// # fn rows() -> std::ops::Range<u32> { 0..3 }
/// # fn import(row: u32, token: u64) -> Result<(), String> { Ok(()) }
/// use zklock::Begun;
///
/// if let Begun::Run(run) = job.begin()? {
///     let token = run.fencing_token()?.as_u64();
///     for row in rows() {
///         if !run.is_held() {
///             return Ok(()); // lost or doubtful: dropped, it has failed or died
///         }
///         if let Err(why) = import(row, token) {
///             return run.failed(why);
///         }
///     }
///     run.done()?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a run that is dropped without `done` has failed"]
pub struct JobRun {
    guard: MutexGuard,
    /// None once its end was written down, or could not be.
    open: Option<Box<Open>>,
    run: Box<RunRecord>,
    previous: Option<Box<RunRecord>>,
}

/// What it takes to write a run's end.
struct Open {
    node: RecordNode,
    record: JobRecord,
    version: i32,
    /// The servers' clock when it began, and ours.
    started: (Moment, Instant),
    lost: LostRuns,
}

impl JobRun {
    /// Of the run at the end of the record that was just written.
    pub(super) fn begun(
        guard: MutexGuard,
        node: RecordNode,
        kept: Kept,
        run: Box<RunRecord>,
        lost: LostRuns,
    ) -> Self {
        let is_before = |other: &&RunRecord| other.id() != run.id();
        let previous = kept.record.runs().iter().rev().find(is_before);
        Self {
            guard,
            previous: previous.cloned().map(Box::new),
            open: Some(Box::new(Open {
                node,
                record: kept.record,
                version: kept.version,
                started: (kept.written, Instant::now()),
                lost,
            })),
            run,
        }
    }

    /// What the record says of this run: its period or key, its attempt, when it was begun.
    #[must_use]
    pub fn record(&self) -> &RunRecord {
        &self.run
    }

    /// Its period; `None` if the job is done for each key.
    #[must_use]
    pub fn period(&self) -> Option<Period> {
        self.run.period()
    }

    /// How many periods before this one nobody began, counted from the greatest that was begun. They
    /// are told with this run alone, and are over, unless the job was built to
    /// [catch up](crate::OncePerBuilder::catch_up).
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.run.missed()
    }

    /// The run before this one, of whatever period or key, as far as it is remembered: what came of
    /// it says what may be left half-done.
    #[must_use]
    pub fn previous(&self) -> Option<&RunRecord> {
        self.previous.as_deref()
    }

    /// Writes down that it is done, and gives the lock back. `Ok` means that nobody will run it
    /// again.
    ///
    /// If the connection breaks meanwhile, it asks again for as long as the lock is ours.
    ///
    /// # Errors
    /// - [`is_lock_lost`](Error::is_lock_lost): the lock was lost, before or meanwhile, and the record
    ///   says that the run died, or will; unless only the answer was lost, and then it says that
    ///   it is done. Read it with [`OncePer::record`](crate::OncePer::record).
    /// - [`is_connection_loss`](Error::is_connection_loss): ZooKeeper could not be asked for as long as
    ///   the client's [`RetryPolicy`](crate::RetryPolicy) says. The same holds.
    /// - A refusal, if somebody has removed the record or reset it meanwhile.
    pub fn done(mut self) -> Result<()> {
        self.end(&End::Done)
    }

    /// Writes down that it failed, and why, and gives the lock back. Others can read the text: say
    /// nothing secret. Its first 1,024 bytes are kept.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    pub fn failed(mut self, why: impl Into<String>) -> Result<()> {
        self.end(&End::Failed(Some(why.into())))
    }

    fn end(&mut self, end: &End) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let ended = open.end(&self.guard, self.run.id(), end);
        if ended.is_err() {
            open.remember_loss(&self.guard, self.run.id());
        }
        ended
    }
}

impl Open {
    fn now(&self) -> Moment {
        let (started, began) = self.started;
        started.later_by(began.elapsed())
    }

    /// Writes the end until it is known that it is written, or cannot be.
    fn end(&self, guard: &MutexGuard, id: &str, end: &End) -> Result<()> {
        let (mut record, mut version) = (self.record.clone(), self.version);
        let mut unknown = 0;
        loop {
            match record.end(id, end, self.now()) {
                Ended::Now => {}
                Ended::Already => return Ok(()),
                Ended::NotOurs => {
                    let path = self.node.path();
                    let what =
                        format!("{path}: the record has this run no more, or another end of it");
                    return Err(Error::refused(what));
                }
            }
            match self.node.write(guard, &record, Some(version))? {
                Written::As(_) => return Ok(()),
                Written::NotThat => {}
                Written::Unknown(_) => {
                    pause(guard, &WaitLimits::none(), unknown)?;
                    unknown += 1;
                }
            }
            // What we have written may be there: then it says so.
            let seen = self
                .node
                .read(guard.session(), &WaitLimits::none(), Some(guard))?;
            let Some(seen) = seen else {
                let path = self.node.path();
                return Err(Error::refused(format!("{path}: the record is gone")));
            };
            (record, version) = (seen.record, seen.version);
        }
    }

    /// Writes it once: a drop has no time for more.
    fn end_at_once(&self, guard: &MutexGuard, id: &str, end: &End) -> Result<()> {
        let mut record = self.record.clone();
        if record.end(id, end, self.now()) != Ended::Now {
            return Ok(());
        }
        match self.node.write(guard, &record, Some(self.version))? {
            Written::As(_) => Ok(()),
            Written::NotThat => Err(Error::refused(format!(
                "{}: somebody has changed the record",
                self.node.path()
            ))),
            Written::Unknown(error) => Err(error),
        }
    }

    fn remember_loss(&self, guard: &MutexGuard, id: &str) {
        match guard.tenure().refuse_lost() {
            Err(error) if error.is_session_lost() => self.lost.add(id, Loss::Session),
            Err(_) => self.lost.add(id, Loss::Removed),
            Ok(()) => {}
        }
    }
}

impl Drop for JobRun {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        let session = self.guard.session();
        // What a forked child has inherited is its parent's run.
        if session.is_forked() {
            return;
        }
        let why = std::thread::panicking().then(|| "it panicked".to_owned());
        if let Err(error) = open.end_at_once(&self.guard, self.run.id(), &End::Failed(why)) {
            open.remember_loss(&self.guard, self.run.id());
            say!(
                session,
                Warn,
                "a run ended without a word, and that is not written down: {error}"
            );
        }
        // Then the guard is dropped, and gives the lock back.
    }
}

/// The lock under which it runs. The run ends by [`done`](JobRun::done), [`failed`](JobRun::failed) or
/// its drop, and the lock with it.
impl Deref for JobRun {
    type Target = MutexGuard;

    fn deref(&self) -> &MutexGuard {
        &self.guard
    }
}

impl fmt::Debug for JobRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRun")
            .field("run", &self.run)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}
