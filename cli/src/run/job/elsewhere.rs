//! A job where there is no watchdog: the command's process group.
//!
//! What all Unixes have. Whoever leaves the group is out of reach, and nobody ends the command when
//! we are killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, test_kill_process_group, wait,
};

use super::shim::{Line, MARK};
use super::{Event, Start};
use crate::run::supervisor::Ending;

/// The command and those of its process group.
#[derive(Debug)]
pub(crate) struct Job {
    leader: Pid,
    line: Line,
    events: Receiver<Event>,
    to_events: Sender<Event>,
    /// The command has been buried.
    ended: bool,
}

/// Nobody is named: we do not know who is of the group.
pub(crate) type Survivor = String;

impl Job {
    /// Starts a process that will be the command after [`Job::go`].
    pub(crate) fn start(start: &Start<'_>) -> io::Result<Self> {
        let (line, theirs) = Line::pair()?;
        let mut shim = Command::new(super::our_program()?);
        shim.arg0("zklock")
            .arg(MARK)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(start.mask.text())
            .args(start.command)
            .process_group(0)
            .stdin(Stdio::from(theirs));
        start.set_variables(&mut shim);
        let child = shim.spawn()?;
        let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (to_events, events) = unbounded();
        Ok(Self {
            leader: leader.ok_or(io::ErrorKind::InvalidData)?,
            line,
            events,
            to_events,
            ended: false,
        })
    }

    pub(crate) fn id(&self) -> Pid {
        self.leader
    }

    pub(crate) fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    pub(crate) fn go(&self) -> io::Result<()> {
        self.line.go(io::stdin())
    }

    /// Ends what has not begun.
    pub(crate) fn call_off(&mut self) {
        self.kill();
        let _ = rustix::process::waitpid(Some(self.leader), WaitOptions::empty());
    }

    /// There is nobody to be told.
    pub(crate) fn tell_deadline(&self, _end: Instant) {}

    pub(crate) fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process_group(self.leader, signal);
        }
    }

    pub(crate) fn ask(&self, signal: i32, heard: Option<i32>) {
        if heard != Some(signal) {
            self.signal(signal);
        }
        self.signal(Signal::CONT.as_raw());
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL.as_raw());
    }

    pub(crate) fn leave(&self) {}

    pub(crate) fn survivors(&self) -> io::Result<Vec<Survivor>> {
        let group = self.leader.as_raw_nonzero();
        Ok(vec![format!("process group {group}")])
    }

    /// To be called when a child has changed, and now and then.
    pub(crate) fn bury(&mut self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            let (pid, status) = match wait(options) {
                Ok(Some(changed)) => changed,
                Err(Errno::INTR) => continue,
                Ok(None) | Err(_) => break,
            };
            if pid != self.leader {
                continue;
            }
            let event = if let Some(code) = status.exit_status() {
                Event::Ended(Ending::Exit(code))
            } else if let Some(signal) = status.terminating_signal() {
                Event::Ended(Ending::Signal(signal))
            } else if let Some(signal) = status.stopping_signal() {
                Event::Stopped(signal)
            } else {
                Event::Continued
            };
            if let Event::Ended(_) = event {
                self.ended = true;
                if let Some(error) = self.line.failure() {
                    let _ = self.to_events.send(Event::Failed(error));
                }
            }
            let _ = self.to_events.send(event);
        }
        if self.ended && test_kill_process_group(self.leader) == Err(Errno::SRCH) {
            let _ = self.to_events.send(Event::Emptied);
        }
    }
}
