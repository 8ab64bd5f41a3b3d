//! The command's process group.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper,
    test_kill_process_group, wait,
};

use super::shim::{Line, MARK};
use super::supervisor::Ending;

/// A command in a process group of its own; its process id is that of the group.
pub(crate) struct Group {
    leader: Pid,
    line: Line,
}

/// What became of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Ended(Ending),
    Stopped(i32),
    Continued,
}

impl Group {
    /// Starts a process that will be the command after [`Group::go`].
    ///
    /// To be called on the main thread: the kernel counts the end of the thread that started a
    /// process as the end of its parent.
    pub(crate) fn start(
        arguments: &super::Run,
        variables: &[(&str, Option<String>)],
    ) -> io::Result<Self> {
        // Those whose parents have gone become our children, so that we see them end.
        set_child_subreaper(Some(getpid()))?;
        let (line, theirs) = Line::pair()?;
        // The running program itself, also when its file has been replaced meanwhile.
        let mut shim = Command::new("/proc/self/exe");
        shim.arg0("zklock")
            .arg(MARK)
            .arg(getpid().as_raw_nonzero().to_string())
            .args(&arguments.command)
            .process_group(0)
            .stdin(Stdio::from(theirs));
        for (name, value) in variables {
            match value {
                Some(value) => shim.env(name, value),
                None => shim.env_remove(name),
            };
        }
        let child = shim.spawn()?;
        let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self {
            leader: leader.ok_or(io::ErrorKind::InvalidData)?,
            line,
        })
    }

    pub(crate) fn id(&self) -> Pid {
        self.leader
    }

    pub(crate) fn go(&self) -> io::Result<()> {
        self.line.go()
    }

    /// Sends a signal to all of the group. That nobody is left is no trouble.
    pub(crate) fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Whether nobody of the group is left, not even one that nobody has buried.
    pub(crate) fn is_empty(&self) -> bool {
        test_kill_process_group(self.leader) == Err(Errno::SRCH)
    }

    /// Buries whoever has ended, and says what became of the command.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            let (pid, status) = match wait(options) {
                Ok(Some(changed)) => changed,
                Err(Errno::INTR) => continue,
                // Nothing has changed, or nobody is left.
                Ok(None) | Err(_) => return changes,
            };
            if pid != self.leader {
                continue;
            }
            if let Some(code) = status.exit_status() {
                changes.push(Change::Ended(Ending::Exit(code)));
            } else if let Some(signal) = status.terminating_signal() {
                changes.push(Change::Ended(Ending::Signal(signal)));
            } else if let Some(signal) = status.stopping_signal() {
                changes.push(Change::Stopped(signal));
            } else if status.continued() {
                changes.push(Change::Continued);
            }
        }
    }

    /// Why the command could not be run, if it could not. To be asked when it has ended.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        self.line.failure()
    }
}
