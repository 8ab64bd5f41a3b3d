//! The line of JSON for `--status-fd`.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::RecvFlags;
use serde::Serialize;

use super::job::receive;
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

/// A descriptor of our own for what a number names.
///
/// A number alone cannot be owned without unsafe code, and `/proc/self/fd` opens the file again, which
/// needs a right that we may have given up since. So the number is sent to ourselves.
fn take(number: i32) -> io::Result<File> {
    let (ours, theirs) = UnixStream::pair()?;
    let rights = [number];
    let rights = [ControlMessage::ScmRights(&rights)];
    let bytes = [IoSlice::new(b"f")];
    sendmsg::<()>(theirs.as_raw_fd(), &bytes, &rights, MsgFlags::empty(), None)?;
    let (_, received) = receive(&ours, RecvFlags::empty())?;
    let received = received.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(File::from(received))
}

/// Where the line goes.
pub(crate) struct StatusFd(File);

impl StatusFd {
    /// Takes the descriptor that our caller has opened for us, and keeps it from the command.
    pub(crate) fn take(number: i32) -> Result<Self, Failure> {
        let refuse = |error: io::Error| Failure::usage(format!("--status-fd {number}: {error}"));
        let file = take(number).map_err(refuse)?;
        let flags = fcntl_getfl(&file).map_err(|error| refuse(error.into()))?;
        if flags & OFlags::RWMODE == OFlags::RDONLY {
            return Err(refuse(io::ErrorKind::PermissionDenied.into()));
        }
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
