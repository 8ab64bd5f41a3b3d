//! The lock that a command runs under: its kinds behind one face.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never};
use zklock::{
    AcquireOptions, Begun, CancelToken, Client, JobRun, LockState, LossReason, Mutex, MutexGuard,
    OncePer, Permit, RunRecord, RwLock, RwReadGuard, RwWriteGuard, Semaphore,
};

use super::certainty::{self, Certainty};
use super::supervisor::Ending;
use crate::arguments::{Dialect, Once, Wanted, signal_name};
use crate::connect::Connection;
use crate::look::kind::{self, Kind};
use crate::status::{Failure, Status};

pub(crate) enum Lock {
    Plain(Mutex),
    Shared(RwLock),
    Write(RwLock),
    Permits(Semaphore),
    Job(OncePer),
}

pub(crate) enum Guard {
    Plain(MutexGuard),
    Shared(RwReadGuard),
    Write(RwWriteGuard),
    Permit(Permit),
    Job(JobRun),
}

/// What came of asking for a lock.
pub(crate) enum Acquired {
    Ours(Guard),
    Busy,
    /// A job that was done before.
    Done(RunRecord),
}

/// How long to wait for it.
pub(crate) enum Patience {
    None,
    Until(Option<Instant>),
}

impl Lock {
    pub(crate) fn new(
        client: &Client,
        connection: &Connection,
        arguments: &Wanted,
        once: Option<&Once>,
    ) -> Result<Self, Failure> {
        let (path, dialect) = (arguments.path.as_str(), connection.dialect.into());
        if let Some(once) = once {
            let job = OncePer::builder(client, path)
                .dialect(dialect)
                .revocable(true)
                .catch_up(once.catch_up)
                .after_failure(once.after_failure.into())
                .after_death(once.after_death.into());
            if let Some(every) = once.once_per {
                return Ok(Self::Job(job.every(every).build()?));
            }
            if let Some(key) = &once.once {
                return Ok(Self::Job(job.key(key).build()?));
            }
        }
        let readers_and_writers = || {
            let builder = RwLock::builder(client, path);
            builder.dialect(dialect).revocable(true).build()
        };
        let lock = if arguments.shared {
            Self::Shared(readers_and_writers()?)
        } else if arguments.write {
            Self::Write(readers_and_writers()?)
        } else if let Some(max) = arguments.semaphore {
            let builder = Semaphore::builder(client, path).dialect(dialect);
            Self::Permits(builder.max(max).build()?)
        } else {
            let builder = Mutex::builder(client, path);
            Self::Plain(builder.dialect(dialect).revocable(true).build()?)
        };
        Ok(lock)
    }

    /// Refuses a path that others use now for a lock of another kind: they would not exclude us,
    /// nor we them. A mistake that is found, not one that cannot happen: both may come at once.
    pub(crate) fn refuse_mixing(
        &self,
        client: &Client,
        connection: &Connection,
        path: &str,
    ) -> Result<(), Failure> {
        // kazoo's writers exclude its mutexes: their nodes have the same names.
        if connection.dialect == Dialect::Kazoo {
            return Ok(());
        }
        // Who cannot be asked about now will be asked for the lock, with more patience.
        let Ok(in_use) = kind::Lock::all_at(client, path, connection.dialect.into()) else {
            return Ok(());
        };
        for other in in_use {
            let is_another = match self {
                Self::Plain(_) | Self::Job(_) => other.kind != Kind::Mutex,
                Self::Shared(_) | Self::Write(_) => other.kind != Kind::ReadersAndWriters,
                Self::Permits(_) => other.kind != Kind::Semaphore,
            };
            if !is_another {
                continue;
            }
            match other.queue() {
                // Folders of a semaphore stay when nobody uses it.
                Ok(queue) if queue.is_empty() => continue,
                // Then nobody knows whether somebody uses it.
                Err(error) if error.is_no_auth() => return Err(error.into()),
                _ => {}
            }
            let advice = match other.kind {
                Kind::ReadersAndWriters => "use --shared or --write as they do",
                Kind::Semaphore => "use --semaphore as they do",
                Kind::Mutex | Kind::Simple | Kind::Election => "yours needs a path of its own",
            };
            return Err(Failure::usage(format!(
                "{path}: others use it as a {} now, which your lock, a {}, would not exclude; {advice}",
                other.kind.name(),
                self.kind().name()
            )));
        }
        Ok(())
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Plain(_) | Self::Job(_) => Kind::Mutex,
            Self::Shared(_) | Self::Write(_) => Kind::ReadersAndWriters,
            Self::Permits(_) => Kind::Semaphore,
        }
    }

    /// Refuses a lock that somebody above us holds, and would hold until we end.
    pub(crate) fn refuse_nesting(&self, client: &Client, path: &str) -> Result<(), Failure> {
        let held = std::env::var(super::HELD).unwrap_or_default();
        for node in held.lines() {
            let below = node
                .strip_prefix(path)
                .and_then(|node| node.strip_prefix('/'));
            let Some(name) = below else {
                continue;
            };
            let may_share = match self {
                Self::Plain(_) | Self::Write(_) | Self::Job(_) => false,
                Self::Shared(_) => name.contains("__READ__") || name.contains("__rlock__"),
                Self::Permits(permits) => permits.max().is_ok_and(|max| max > 1),
            };
            // Somebody's from a tree of other servers, or of one that has ended, is not there.
            if !may_share && client.node(node).is_ok_and(|node| node.is_some()) {
                return Err(Failure::usage(format!(
                    "{path}: this runs under that lock already (ZKLOCK_HELD names {node}), and \
                     would wait for itself"
                )));
            }
        }
        Ok(())
    }

    /// Waits for the lock, but not for too long.
    pub(crate) fn acquire(
        &self,
        patience: &Patience,
        stop: &CancelToken,
    ) -> zklock::Result<Acquired> {
        let ours_or_busy = |guard: Option<Guard>| guard.map_or(Acquired::Busy, Acquired::Ours);
        let Patience::Until(deadline) = patience else {
            let guard = match self {
                Self::Plain(lock) => lock.try_lock()?.map(Guard::Plain),
                Self::Shared(lock) => lock.try_read()?.map(Guard::Shared),
                Self::Write(lock) => lock.try_write()?.map(Guard::Write),
                Self::Permits(lock) => lock.try_acquire()?.map(Guard::Permit),
                Self::Job(job) => {
                    return Ok(job.try_begin()?.map_or(Acquired::Busy, Acquired::of));
                }
            };
            return Ok(ours_or_busy(guard));
        };
        let mut options = AcquireOptions::new().cancel(stop);
        if let Some(deadline) = deadline {
            options = options.deadline(*deadline);
        }
        let acquired = match self {
            Self::Plain(lock) => lock.lock_with(options).map(Guard::Plain),
            Self::Shared(lock) => lock.read_with(options).map(Guard::Shared),
            Self::Write(lock) => lock.write_with(options).map(Guard::Write),
            Self::Permits(lock) => lock.acquire_with(options).map(Guard::Permit),
            Self::Job(job) => match job.begin_with(options) {
                Err(error) if error.is_timeout() => return Ok(Acquired::Busy),
                begun => return begun.map(Acquired::of),
            },
        };
        match acquired {
            Ok(guard) => Ok(Acquired::Ours(guard)),
            Err(error) if error.is_timeout() => Ok(Acquired::Busy),
            Err(error) => Err(error),
        }
    }
}

impl Acquired {
    fn of(begun: Begun) -> Self {
        match begun {
            Begun::Run(run) => Self::Ours(Guard::Job(run)),
            Begun::Done(before) => Self::Done(before),
        }
    }
}

impl Guard {
    fn state(&self) -> LockState {
        match self {
            Self::Plain(guard) => guard.state(),
            Self::Job(run) => run.state(),
            Self::Shared(guard) => guard.state(),
            Self::Write(guard) => guard.state(),
            Self::Permit(guard) => guard.state(),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::Plain(guard) => guard.remaining(),
            Self::Job(run) => run.remaining(),
            Self::Shared(guard) => guard.remaining(),
            Self::Write(guard) => guard.remaining(),
            Self::Permit(guard) => guard.remaining(),
        }
    }

    /// Until when it is certainly ours.
    pub(crate) fn certainty(&self) -> Certainty {
        let asked = Instant::now();
        certainty::of(asked, self.state(), self.remaining())
    }

    pub(crate) fn lost(&self) -> Receiver<LossReason> {
        match self {
            Self::Plain(guard) => guard.lost().clone(),
            Self::Job(run) => run.lost().clone(),
            Self::Shared(guard) => guard.lost().clone(),
            Self::Write(guard) => guard.lost().clone(),
            Self::Permit(guard) => guard.lost().clone(),
        }
    }

    pub(crate) fn revocation(&self) -> Receiver<()> {
        match self {
            Self::Plain(guard) => guard.revocation().clone(),
            Self::Job(run) => run.revocation().clone(),
            Self::Shared(guard) => guard.revocation().clone(),
            Self::Write(guard) => guard.revocation().clone(),
            Self::Permit(_) => never(),
        }
    }

    /// The path of our node.
    pub(crate) fn node(&self) -> &str {
        match self {
            Self::Plain(guard) => guard.path(),
            Self::Job(run) => run.path(),
            Self::Shared(guard) => guard.path(),
            Self::Write(guard) => guard.path(),
            Self::Permit(guard) => guard.path(),
        }
    }

    /// The number for stores that refuse late writes. Only of what excludes everybody: holders
    /// that share would have theirs refused for no reason.
    pub(crate) fn fencing_token(&self) -> zklock::Result<Option<String>> {
        let token = match self {
            Self::Plain(guard) => guard.fencing_token()?,
            Self::Job(run) => run.fencing_token()?,
            Self::Write(guard) => guard.fencing_token()?,
            Self::Shared(_) | Self::Permit(_) => return Ok(None),
        };
        Ok(Some(token.to_string()))
    }

    /// What a job's command is told of its run, beside what every command is told.
    pub(crate) fn of_the_run(&self) -> Vec<(&'static str, Option<String>)> {
        let Self::Job(run) = self else {
            return Vec::new();
        };
        let record = run.record();
        vec![
            (
                "ZKLOCK_PERIOD",
                record.period().map(|period| period.to_string()),
            ),
            ("ZKLOCK_KEY", record.key().map(str::to_owned)),
            ("ZKLOCK_ATTEMPT", Some(record.attempt().to_string())),
            ("ZKLOCK_MISSED", Some(record.missed().to_string())),
        ]
    }

    /// Gives the lock back. A job's run is written down as done if its command ended so.
    pub(crate) fn release(self, ended: Result<Ending, &Failure>) -> zklock::Result<()> {
        match (self, ended) {
            (Self::Plain(guard), _) => guard.unlock(),
            (Self::Shared(guard), _) => guard.unlock(),
            (Self::Write(guard), _) => guard.unlock(),
            (Self::Permit(guard), _) => guard.release(),
            (Self::Job(run), Ok(Ending::Exit(0))) => run.done(),
            (Self::Job(run), Ok(Ending::Exit(status))) => run.failed(format!("status {status}")),
            (Self::Job(run), Ok(Ending::Signal(signal))) => run.failed(match signal_name(signal) {
                Some(name) => format!("ended by {name}"),
                None => format!("ended by signal {signal}"),
            }),
            (Self::Job(run), Ok(Ending::Unknown)) => run.failed("nobody saw how it ended"),
            // The message may have the command in it, and the record is for everybody.
            (Self::Job(run), Err(failure)) => run.failed(match failure.status {
                Status::Lost => "the command was stopped, as the lock was lost or over",
                Status::CannotRun | Status::NotFound => "the command cannot be run",
                Status::Interrupted(_) => "a signal came before the command was started",
                _ => "zklock failed",
            }),
        }
    }
}
