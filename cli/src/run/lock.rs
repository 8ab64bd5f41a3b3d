//! The lock that a command runs under: its kinds behind one face.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never};
use zklock::{
    AcquireOptions, CancelToken, Client, LockState, LossReason, Mutex, MutexGuard, Permit, RwLock,
    RwReadGuard, RwWriteGuard, Semaphore,
};

use super::certainty::{self, Certainty};
use crate::arguments::{Dialect, Wanted};
use crate::connect::Connection;
use crate::look::kind::{self, Kind};
use crate::status::Failure;

pub(crate) enum Lock {
    Plain(Mutex),
    Shared(RwLock),
    Write(RwLock),
    Permits(Semaphore),
}

pub(crate) enum Guard {
    Plain(MutexGuard),
    Shared(RwReadGuard),
    Write(RwWriteGuard),
    Permit(Permit),
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
    ) -> Result<Self, Failure> {
        let (path, dialect) = (arguments.path.as_str(), connection.dialect.into());
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
                Self::Plain(_) => other.kind != Kind::Mutex,
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
            Self::Plain(_) => Kind::Mutex,
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
                Self::Plain(_) | Self::Write(_) => false,
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

    /// Waits for the lock; `None` if it is busy, or was for too long.
    pub(crate) fn acquire(
        &self,
        patience: &Patience,
        stop: &CancelToken,
    ) -> zklock::Result<Option<Guard>> {
        let Patience::Until(deadline) = patience else {
            return match self {
                Self::Plain(lock) => Ok(lock.try_lock()?.map(Guard::Plain)),
                Self::Shared(lock) => Ok(lock.try_read()?.map(Guard::Shared)),
                Self::Write(lock) => Ok(lock.try_write()?.map(Guard::Write)),
                Self::Permits(lock) => Ok(lock.try_acquire()?.map(Guard::Permit)),
            };
        };
        let mut options = AcquireOptions::new().cancel(stop);
        if let Some(deadline) = deadline {
            options = options.deadline(*deadline);
        }
        let guard = match self {
            Self::Plain(lock) => lock.lock_with(options).map(Guard::Plain),
            Self::Shared(lock) => lock.read_with(options).map(Guard::Shared),
            Self::Write(lock) => lock.write_with(options).map(Guard::Write),
            Self::Permits(lock) => lock.acquire_with(options).map(Guard::Permit),
        };
        match guard {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Guard {
    fn state(&self) -> LockState {
        match self {
            Self::Plain(guard) => guard.state(),
            Self::Shared(guard) => guard.state(),
            Self::Write(guard) => guard.state(),
            Self::Permit(guard) => guard.state(),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::Plain(guard) => guard.remaining(),
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
            Self::Shared(guard) => guard.lost().clone(),
            Self::Write(guard) => guard.lost().clone(),
            Self::Permit(guard) => guard.lost().clone(),
        }
    }

    pub(crate) fn revocation(&self) -> Receiver<()> {
        match self {
            Self::Plain(guard) => guard.revocation().clone(),
            Self::Shared(guard) => guard.revocation().clone(),
            Self::Write(guard) => guard.revocation().clone(),
            Self::Permit(_) => never(),
        }
    }

    /// The path of our node.
    pub(crate) fn node(&self) -> &str {
        match self {
            Self::Plain(guard) => guard.path(),
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
            Self::Write(guard) => guard.fencing_token()?,
            Self::Shared(_) | Self::Permit(_) => return Ok(None),
        };
        Ok(Some(token.to_string()))
    }

    pub(crate) fn release(self) -> zklock::Result<()> {
        match self {
            Self::Plain(guard) => guard.unlock(),
            Self::Shared(guard) => guard.unlock(),
            Self::Write(guard) => guard.unlock(),
            Self::Permit(guard) => guard.release(),
        }
    }
}
