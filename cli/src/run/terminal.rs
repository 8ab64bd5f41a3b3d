//! The controlling terminal: who has its foreground.

use std::fs::{self, File, OpenOptions};

use rustix::process::{Pid, getpgid, getpgrp, getpid, getsid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal of our session, if it has one.
///
/// Changes of the foreground that fail are no trouble of ours: the terminal has gone, or somebody
/// else has it.
pub(crate) struct Terminal {
    tty: Option<File>,
    ours: Pid,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        // Opening it for writing as well would do; it is never read or written.
        let tty = OpenOptions::new().read(true).open("/dev/tty");
        Self {
            tty: tty.ok(),
            ours: getpgrp(),
        }
    }

    /// Whether a shell runs us as a job that it can stop and continue.
    ///
    /// The kernel does not stop a group that has no such parent ("orphaned"), for example when we
    /// are all that runs on the terminal.
    pub(crate) fn has_job_control(&self) -> bool {
        self.tty.is_some() && is_job(self.ours).unwrap_or_default()
    }

    /// Whether our own group is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground() == Some(self.ours)
    }

    pub(crate) fn give_to(&self, group: Pid) {
        self.pass(self.ours, group);
    }

    pub(crate) fn take_from(&self, group: Pid) {
        self.pass(group, self.ours);
    }

    fn pass(&self, from: Pid, to: Pid) {
        if let Some(tty) = &self.tty
            && self.foreground() == Some(from)
        {
            let _ = tcsetpgrp(tty, to);
        }
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.tty.as_ref()?).ok()
    }
}

/// Whether somebody above us in our session is of another group than `ours`.
fn is_job(ours: Pid) -> Option<bool> {
    let session = getsid(None).ok()?;
    let mut above = parent(getpid())?;
    while getsid(Some(above)) == Ok(session) {
        if getpgid(Some(above)) != Ok(ours) {
            return Some(true);
        }
        above = parent(above)?;
    }
    Some(false)
}

fn parent(of: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", of.as_raw_nonzero())).ok()?;
    // The name before may hold any character; after it come the state and the parent.
    let (_, after_name) = stat.rsplit_once(')')?;
    let parent = after_name.split_whitespace().nth(1)?;
    Pid::from_raw(parent.parse().ok()?)
}
