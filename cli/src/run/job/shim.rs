//! What stands between the watchdog and the command: our own program, started again, which ties its
//! life to the watchdog's, waits for a word, and becomes the command.
//!
//! It does by safe calls what would else be done between fork and exec. The word, and the standard
//! input that the command shall have, come over a socket, which stands in for the standard input
//! until then; so no descriptor of ours is left open in the command.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::getppid;
use rustix::stdio::dup2_stdin;

use super::super::signals;
use super::parcel::{receive, send};
use crate::status::Status;

/// What only we start ourselves with; no verb, so that nobody is shown it.
pub(crate) const MARK: &str = "__shim";

/// If this process is a shim: ends as the command, or returns what to exit with.
pub(crate) fn if_we_are_it() -> Option<u8> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next()? != MARK {
        return None;
    }
    let parent = arguments.next()?.to_str()?.parse().ok()?;
    let mask = signals::Mask::parse(arguments.next()?.to_str()?)?;
    let command: Vec<_> = arguments.collect();
    (!command.is_empty()).then(|| become_the_command(parent, mask, &command))
}

/// Ends as `timeout(1)` does when the command cannot be run.
fn become_the_command(parent: i32, mask: signals::Mask, command: &[OsString]) -> u8 {
    match prepare(parent, mask) {
        Ok(mut line) => {
            let error = Command::new(&command[0]).args(&command[1..]).exec();
            let code = error.raw_os_error().unwrap_or_default();
            // They tell the user, who knows us, not this program.
            let _ = line.write_all(&code.to_ne_bytes());
            cannot_run(&error).code()
        }
        // They are gone, or have thought better of it.
        Err(_) => Status::Internal.code(),
    }
}

pub(crate) fn cannot_run(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::NotFound => Status::NotFound,
        _ => Status::CannotRun,
    }
}

fn prepare(parent: i32, mask: signals::Mask) -> io::Result<UnixStream> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // Who died before that line could not kill us by dying.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let line = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    dup2_stdin(receive_go(&line)?)?;
    // Last, so that no signal meets the shim in the command's place.
    mask.restore()?;
    Ok(line)
}

/// Waits for the word; returns the standard input that comes with it.
fn receive_go(line: &UnixStream) -> io::Result<OwnedFd> {
    loop {
        match receive(line, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok((_, stdin)) => return stdin.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Our end of the socket.
#[derive(Debug)]
pub(crate) struct Line(UnixStream);

impl Line {
    /// Our end, and the shim's.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self(ours), theirs.into()))
    }

    /// Has the shim become the command, with this standard input.
    pub(crate) fn go(&self, stdin: impl AsFd) -> io::Result<()> {
        send(&self.0, "g", Some(stdin.as_fd()), SendFlags::empty())
    }

    /// Why the shim could not become the command. To be asked when it has ended.
    pub(crate) fn failure(&self) -> Option<i32> {
        let mut code = [0; size_of::<i32>()];
        // The end of the line comes at exec, or with the shim.
        (&self.0).read_exact(&mut code).ok()?;
        Some(i32::from_ne_bytes(code))
    }
}
