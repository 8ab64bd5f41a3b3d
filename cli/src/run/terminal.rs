//! The controlling terminal: who has its foreground.

use std::fs::{File, OpenOptions};

use rustix::process::{Pid, getpgrp};
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

    pub(crate) fn is_there(&self) -> bool {
        self.tty.is_some()
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
