//! The controlling terminal: who has its foreground.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};

use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal of our session, if it has one.
///
/// Changes of the foreground that fail are no trouble of ours: the terminal has gone, or somebody
/// else has it.
pub(crate) struct Terminal {
    tty: Option<File>,
    /// None if it began outside of our PID namespace, where it has no number.
    ours: Option<Pid>,
    /// Others have had its foreground from us.
    given: Cell<bool>,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        // Opening it for writing as well would do; it is never read or written.
        let tty = OpenOptions::new().read(true).open("/dev/tty");
        Self {
            tty: tty.ok(),
            // That of `rustix` does not allow for zero.
            ours: Pid::from_raw(nix::unistd::getpgrp().as_raw()),
            given: Cell::new(false),
        }
    }

    /// Whether a shell runs us as a job that it can stop and continue.
    ///
    /// The kernel does not stop a group that has no such parent ("orphaned"), for example when we
    /// are all that runs on the terminal.
    pub(crate) fn has_job_control(&self) -> bool {
        self.tty.is_some() && is_job(Standing::look_up)
    }

    /// Whether others are in our process group, as in a pipeline: `zklock run .. | less`. They may
    /// need the terminal, and the command gets it when it asks for it.
    pub(crate) fn is_shared(&self) -> bool {
        let Some(ours) = self.ours.filter(|_| self.tty.is_some()) else {
            return false;
        };
        let ours = u32::try_from(ours.as_raw_nonzero().get()).unwrap_or_default();
        let entries = fs::read_dir("/proc").into_iter().flatten();
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| {
                name.parse::<u32>()
                    .is_ok_and(|pid| pid != std::process::id())
            })
            .any(|pid| {
                Standing::look_up(&pid).is_some_and(|standing| {
                    // A script's shell waits for us, and does not read.
                    standing.group == ours && Standing::is_beside(&pid)
                })
            })
    }

    /// Whether our own group is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.ours.is_some() && self.foreground() == self.ours
    }

    /// Whether it is our standard input. What a script puts in the background stays in the group that
    /// is in the foreground, and reads nothing; it gets the terminal when it asks for it.
    pub(crate) fn is_input() -> bool {
        tcgetpgrp(rustix::stdio::stdin()).is_ok()
    }

    /// For the next command.
    pub(crate) fn begin(&self) {
        self.given.set(false);
    }

    pub(crate) fn give_to(&self, group: Pid) {
        if self.pass(self.ours, Some(group)) {
            self.given.set(true);
        }
    }

    /// Whether keys that send signals went to the command alone.
    pub(crate) fn was_given(&self) -> bool {
        self.given.get()
    }

    pub(crate) fn take_from(&self, group: Pid) {
        self.pass(Some(group), self.ours);
    }

    fn pass(&self, from: Option<Pid>, to: Option<Pid>) -> bool {
        if let (Some(tty), Some(from), Some(to)) = (&self.tty, from, to)
            && self.foreground() == Some(from)
        {
            return tcsetpgrp(tty, to).is_ok();
        }
        false
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.tty.as_ref()?).ok()
    }
}

/// Where a process stands, as the kernel tells it in `/proc/PID/stat`.
///
/// A group or session that began outside of our PID namespace, as in a container that was entered,
/// has the number zero there, and so has a parent outside. `getsid` answers zero as well, which is
/// no process and which the types of `rustix` do not allow for.
#[derive(Clone, Copy)]
struct Standing {
    parent: u32,
    group: u32,
    session: u32,
}

impl Standing {
    /// `of` is a number, or `self`.
    fn look_up(of: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{of}/stat")).ok()?)
    }

    /// Whether it is none of our ancestors.
    fn is_beside(of: &str) -> bool {
        let mut above = Self::look_up("self").map_or(0, |ours| ours.parent);
        while above != 0 {
            if above.to_string() == of {
                return false;
            }
            above = Self::look_up(&above.to_string()).map_or(0, |standing| standing.parent);
        }
        true
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name before may hold any character; after it come the state and the numbers.
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut numbers = after_name.split_whitespace().skip(1);
        let mut next = || numbers.next()?.parse().ok();
        Some(Self {
            parent: next()?,
            group: next()?,
            session: next()?,
        })
    }
}

/// Whether somebody above us in our session is of another group than we are.
fn is_job(look_up: impl Fn(&str) -> Option<Standing>) -> bool {
    let Some(ours) = look_up("self") else {
        return false;
    };
    let mut parent = ours.parent;
    while let Some(above) = look_up(&parent.to_string())
        && above.session == ours.session
    {
        if above.group != ours.group {
            return true;
        }
        parent = above.parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Standing, is_job};

    /// Whether process 9, which is us, is a job, by lines of `/proc`.
    fn is_a_job(lines: &[&str]) -> bool {
        let line_of = |number: &str| {
            let number = if number == "self" { "9" } else { number };
            let begin = format!("{number} (");
            lines.iter().find(|line| line.starts_with(&begin))
        };
        is_job(|number| Standing::parse(line_of(number)?))
    }

    #[test]
    fn a_shell_with_job_control_gives_us_a_group_of_our_own() {
        assert!(is_a_job(&["5 (bash) S 1 5 5 0", "9 (zklock) S 5 9 5 0"]));
        let through_a_script = [
            "5 (bash) S 1 5 5 0",
            "8 (a ) b) S 5 8 5 0",
            "9 (zklock) S 8 8 5 0",
        ];
        assert!(is_a_job(&through_a_script));
    }

    #[test]
    fn who_has_the_session_or_the_group_alone_is_no_job() {
        assert!(!is_a_job(&["5 (sshd) S 1 5 5 0", "9 (zklock) S 5 9 9 0"]));
        assert!(!is_a_job(&["5 (sh) S 1 5 5 0", "9 (zklock) S 5 5 5 0"]));
        assert!(!is_a_job(&[]));
    }

    /// Zero stands for what began outside.
    #[test]
    fn sessions_from_outside_of_the_pid_namespace_are_told_from_ours() {
        assert!(!is_a_job(&["5 (init) S 0 0 0 0", "9 (zklock) S 5 9 9 0"]));
        assert!(!is_a_job(&["9 (zklock) S 0 9 0 0"]));
        // A shell in a namespace that was made within its session.
        assert!(is_a_job(&["1 (bash) S 0 1 0 0", "9 (zklock) S 1 9 0 0"]));
    }
}
