//! Exit statuses, by the names and numbers of `sysexits.h` and `timeout(1)`.

use std::{fmt, io};

use crate::words;

/// What the command ends with when it speaks for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nothing to do: the job was done before.
    Done,
    /// The caller asked for what cannot be.
    Usage,
    /// The job's record says that somebody has to look at it first.
    Unsettled,
    /// No server could be reached.
    Unreachable,
    /// Anything else of ours.
    Internal,
    /// Somebody else holds the lock, and the time that we may wait is over.
    Busy,
    /// Access refused.
    Refused,
    /// The lock was lost while the command ran.
    Lost,
    /// The command was found, and cannot be run.
    CannotRun,
    /// The command was not found.
    NotFound,
    /// A signal ended our wait.
    Interrupted(i32),
}

impl Status {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Usage => 64,
            Self::Unsettled => 65,
            Self::Unreachable => 69,
            Self::Internal => 70,
            Self::Busy => 75,
            Self::Refused => 77,
            Self::Lost => 79,
            Self::CannotRun => 126,
            Self::NotFound => 127,
            Self::Interrupted(signal) => of_signal(signal),
        }
    }

    /// One word for programs.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Usage => "usage",
            Self::Unsettled => "unsettled",
            Self::Unreachable => "unreachable",
            Self::Internal => "internal",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Lost => "lost",
            Self::CannotRun => "cannot-run",
            Self::NotFound => "not-found",
            Self::Interrupted(_) => "interrupted",
        }
    }
}

/// The status of what a signal ended, as shells have it.
pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Why the command ends without having done what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// What happened, where, and what to do.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl fmt::Display) -> Self {
        Self {
            status,
            message: message.to_string(),
        }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Status::Usage, message)
    }

    /// Where no server was reached: what to do next.
    pub(crate) fn advised(mut self) -> Self {
        if self.status == Status::Unreachable {
            self.message += "; `zklock doctor` asks each server what it is";
        }
        self
    }

    pub(crate) fn internal(message: impl fmt::Display) -> Self {
        Self::new(Status::Internal, message)
    }
}

impl From<zklock::Error> for Failure {
    fn from(error: zklock::Error) -> Self {
        let status = if error.is_invalid() {
            Status::Usage
        } else if error.is_unsettled_run() || error.is_record_ahead() {
            Status::Unsettled
        } else if error.is_timeout() {
            Status::Busy
        } else if error.is_no_auth() {
            Status::Refused
        } else if error.is_lock_lost() {
            Status::Lost
        } else if error.is_connection_loss() {
            Status::Unreachable
        } else {
            Status::Internal
        };
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        let message = words::of_the_command(&message).into_owned();
        Self { status, message }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            // As who writes into a pipe that nobody reads: SIGPIPE is 13.
            return Self::new(Status::Interrupted(13), "the reader of our output has gone");
        }
        Self::internal(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!(Status::Interrupted(2).code(), 130);
        assert_eq!(of_signal(9), 137);
        assert_eq!(of_signal(64), 192);
    }
}
