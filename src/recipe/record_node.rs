//! The node that has a job's record: read by anybody, written by who holds the job's lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result, StepRefusal};
use crate::recipe::hold::Holding;
use crate::recipe::mutex::MutexGuard;
use crate::recipe::transaction::Outcome;
use crate::session::{Session, Waiter, found};
use crate::wait::limits::WaitLimits;
use crate::znode::job::{JobRecord, Moment, Times};
use crate::znode::path::LockPath;

/// Between two tries of a write; doubled each time, to 0.8 s.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MOST_DOUBLINGS: u32 = 4;

/// In the folder in which the contenders queue.
const NAME: &str = "record";

/// What was read, and when that was written.
pub(super) struct Kept {
    pub(super) record: JobRecord,
    pub(super) version: i32,
    /// The servers' clock at that write.
    pub(super) written: Moment,
}

/// What became of a write.
pub(super) enum Written {
    /// The record has this version now.
    As(i32),
    /// Nothing was written, as the record is another than the one that was read.
    NotThat,
    /// It was executed or not, or the servers would not do it for now: read it, after a [`pause`].
    Unknown(Error),
}

/// What came of asking the servers for their time.
pub(super) enum Asked {
    Told(Kept),
    /// Somebody else has written meanwhile.
    NotThat,
    /// As a write that is unknown.
    Unknown(Error),
}

/// Waits a little before a write is made again that was unknown `times` before: servers that would
/// not do it for now have too much to do. Ends early when the lock is lost, and fails when the caller
/// waits no longer.
pub(super) fn pause(guard: &MutexGuard, limits: &WaitLimits, times: u32) -> Result<()> {
    limits
        .check()
        .map_err(|error| error.context(guard.path()))?;
    let pause = FIRST_PAUSE * 2_u32.saturating_pow(times.min(MOST_DOUBLINGS));
    let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    let pause = limits.deadline.map_or(pause, |end| pause.min(left(end)));
    // What it says is asked again before the next write.
    let _ = guard.lost().recv_timeout(pause);
    Ok(())
}

#[derive(Clone, Debug)]
pub(super) struct RecordNode {
    path: Arc<str>,
}

impl RecordNode {
    pub(super) fn of(folder: &LockPath) -> Self {
        Self {
            path: folder.child(NAME).into(),
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Reads it within the limits, as new as every write that was answered before; a guard's, only as
    /// long as it holds.
    pub(super) fn read(
        &self,
        session: &Arc<Session>,
        limits: &WaitLimits,
        guard: Option<&MutexGuard>,
    ) -> Result<Option<Kept>> {
        let still_ours = || guard.map_or(Ok(()), |guard| guard.tenure().refuse_lost());
        let waiter = Waiter::new(session, limits).only_while(&still_ours);
        let read = |contact: &crate::session::Contact<'_>| found(contact.newest_data(&self.path));
        let read = waiter.retry(&self.path, |contact| read(contact).map(Some))?;
        let Some((data, stat)) = read else {
            return Ok(None);
        };
        let refused = |why: String| Error::invalid(format!("{}: {why}", self.path));
        let text = String::from_utf8(data).map_err(|_| refused("it is no text".to_owned()))?;
        let written = Moment::from_millis(stat.mtime).ok_or_else(|| {
            let millis = stat.mtime;
            refused(format!(
                "the servers' clock said {millis} ms since 1970, which is no date"
            ))
        })?;
        Ok(Some(Kept {
            record: text.parse().map_err(refused)?,
            version: stat.version,
            written,
        }))
    }

    /// Writes it if it has this version still, or creates it, only if the guard's lock is ours then.
    pub(super) fn write(
        &self,
        guard: &MutexGuard,
        record: &JobRecord,
        version: Option<i32>,
    ) -> Result<Written> {
        let transaction = guard.transaction();
        let text = record.to_string();
        let transaction = match version {
            Some(version) => transaction.set(&self.path, text, Some(version)),
            None => transaction.create(&self.path, text),
        };
        match transaction.commit() {
            Ok(outcomes) => match outcomes.first() {
                Some(Outcome::Set { version }) => Ok(Written::As(*version)),
                _ => Ok(Written::As(0)),
            },
            Err(error) => match error.failed_step().map(|step| step.why) {
                Some(StepRefusal::BadVersion | StepRefusal::NoNode | StepRefusal::NodeExists) => {
                    Ok(Written::NotThat)
                }
                None if error.is_connection_loss() => Ok(Written::Unknown(error)),
                _ => Err(error),
            },
        }
    }

    /// Has the servers write what is there, for the time that they write it at; returns that with what
    /// is there.
    pub(super) fn ask_the_time(
        &self,
        session: &Arc<Session>,
        limits: &WaitLimits,
        guard: &MutexGuard,
        kept: Option<Kept>,
        times: Times,
    ) -> Result<Asked> {
        let (record, version) = match kept {
            Some(kept) => (kept.record, Some(kept.version)),
            None => (JobRecord::new(times), None),
        };
        let version = match self.write(guard, &record, version)? {
            Written::As(version) => version,
            Written::NotThat => return Ok(Asked::NotThat),
            Written::Unknown(error) => return Ok(Asked::Unknown(error)),
        };
        let seen = self.read(session, limits, Some(guard))?;
        // A later write's time would be another's, who may be no holder.
        let seen = seen.filter(|seen| seen.version == version);
        Ok(seen.map_or(Asked::NotThat, Asked::Told))
    }
}
