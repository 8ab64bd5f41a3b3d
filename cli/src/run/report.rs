//! The line of JSON for `--status-fd`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde::Serialize;

use super::supervisor::Ending;
use crate::status::{Failure, Status, of_signal};

/// How a run ended, and who says so.
#[derive(Serialize, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// `zklock`, or `command` if the status is the command's own.
    from: &'static str,
    /// What we exit with.
    pub(crate) status: u8,
    /// `exit` or `signal` of a command, or our reason in one word.
    reason: &'static str,
    /// What the command exited with, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    command_exit: Option<i32>,
    /// What killed the command, if it was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    command_signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Report {
    pub(crate) fn of_command(ending: Ending) -> Self {
        let (status, reason) = match ending {
            Ending::Exit(code) => (u8::try_from(code & 0xff).unwrap_or(u8::MAX), "exit"),
            Ending::Signal(signal) => (of_signal(signal), "signal"),
            // Nobody can say more of what a watchdog buried that has died.
            Ending::Unknown => (Status::Internal.code(), "internal"),
        };
        let report = Self {
            from: "command",
            status,
            reason,
            command_exit: None,
            command_signal: None,
            message: None,
        };
        report.with(ending)
    }

    /// Ours; `ending` is the command's, if it was started.
    pub(crate) fn of_failure(failure: &Failure, ending: Option<Ending>) -> Self {
        let report = Self {
            from: "zklock",
            status: failure.status.code(),
            reason: failure.status.reason(),
            command_exit: None,
            command_signal: None,
            message: Some(failure.message.clone()),
        };
        match ending {
            Some(ending) => report.with(ending),
            None => report,
        }
    }

    fn with(mut self, ending: Ending) -> Self {
        match ending {
            Ending::Exit(code) => self.command_exit = Some(code),
            Ending::Signal(signal) => self.command_signal = Some(signal),
            Ending::Unknown => {}
        }
        self
    }
}

/// Where the line goes.
pub(crate) struct StatusFd(File);

impl StatusFd {
    /// Takes the descriptor that our caller has opened for us, and keeps it from the command.
    pub(crate) fn take(number: i32) -> Result<Self, Failure> {
        let refuse = |error: io::Error| Failure::usage(format!("--status-fd {number}: {error}"));
        // By its name, as a number alone cannot be owned without unsafe code.
        let file = OpenOptions::new()
            .append(true)
            .open(format!("/proc/self/fd/{number}"))
            .map_err(refuse)?;
        // Those three the command is to have, whatever we write there.
        if number > 2 {
            fcntl(number, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
                .map_err(|error| refuse(error.into()))?;
        }
        Ok(Self(file))
    }

    pub(crate) fn write(mut self, report: &Report) -> io::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}
