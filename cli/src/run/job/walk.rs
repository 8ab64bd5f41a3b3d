//! The processes below one, as `/proc` shows them, and signals to exactly these.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// How often everybody is stopped again, for those who were started meanwhile. Each round stops all
/// that the last one has not seen, so that only what starts processes faster than we read `/proc`
/// is left; it is killed as it is then.
const ROUNDS: usize = 32;

/// A process as it was at one moment. Its number and the start make it unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// Its process group.
    pub(crate) group: i32,
    /// In the kernel's ticks since it booted.
    start: u64,
    state: char,
    name: String,
}

/// Whom a signal did not reach, though it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Survivor {
    pub(crate) pid: i32,
    name: String,
    user: Option<u32>,
    why: Errno,
}

impl Survivor {
    /// Not even we may kill it.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.why == Errno::PERM
    }
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name.escape_debug())?;
        if let Some(user) = self.user {
            write!(f, " of user {user}")?;
        }
        match self.why {
            Errno::AGAIN => f.write_str(": it was killed and does not end"),
            why => write!(f, ": {why}"),
        }
    }
}

impl Process {
    pub(crate) fn look_up(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &String::from_utf8_lossy(&stat))
    }

    fn parse(pid: i32, stat: &str) -> Option<Self> {
        // The name may hold any character, brackets and spaces too.
        let (front, after_name) = stat.rsplit_once(')')?;
        let (_, name) = front.split_once('(')?;
        let mut fields = after_name.split_ascii_whitespace();
        Some(Self {
            pid,
            name: name.to_owned(),
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            // The 22nd of all, the 20th after the name.
            start: fields.nth(16)?.parse().ok()?,
        })
    }

    /// It has ended, and nobody has buried it yet.
    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// The number and the start.
    pub(crate) fn key(&self) -> (i32, u64) {
        (self.pid, self.start)
    }

    /// Sends a signal to this process, and to no other that has got its number since.
    fn send(&self, signal: Signal) -> Result<(), Errno> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Err(Errno::SRCH);
        };
        let held = pidfd_open(pid, PidfdFlags::empty())?;
        // What was opened is what was seen if it still has the number's start.
        match Self::look_up(self.pid) {
            Some(now) if now.start == self.start => pidfd_send_signal(held, signal),
            _ => Err(Errno::SRCH),
        }
    }

    fn survives(&self, why: Errno) -> Survivor {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        Survivor {
            pid: self.pid,
            name: self.name.clone(),
            user: users.and_then(|users| users.split_whitespace().next()?.parse().ok()),
            why,
        }
    }
}

/// Whether `/proc` is there and shows the processes by the numbers that they have for us.
pub(crate) fn is_possible() -> bool {
    fs::read_link("/proc/self")
        .is_ok_and(|ours| ours.to_str() == Some(&*getpid().as_raw_nonzero().to_string()))
}

/// Every process that we can see.
fn everybody() -> Vec<Process> {
    if !is_possible() {
        return Vec::new();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::look_up)
        .collect()
}

/// The descendants of `root`, without itself and those who have ended; what is in `except`, and what is below that, is none of them.
fn below_in(root: i32, all: &[Process], except: &HashSet<(i32, u64)>) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut to_visit = vec![root];
    while let Some(parent) = to_visit.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            // A number that was used again between two readings could close a circle.
            if except.contains(&child.key()) || !seen.insert(child.pid) {
                continue;
            }
            to_visit.push(child.pid);
            if !child.has_ended() {
                found.push((*child).clone());
            }
        }
    }
    found
}

/// Everybody below one process, but for some who are nobody's business.
#[derive(Debug)]
pub(crate) struct Below {
    pub(crate) root: i32,
    pub(crate) except: HashSet<(i32, u64)>,
}

impl Below {
    pub(crate) fn of(root: i32) -> Self {
        Self {
            root,
            except: HashSet::new(),
        }
    }

    pub(crate) fn all(&self) -> Vec<Process> {
        below_in(self.root, &everybody(), &self.except)
    }

    /// Sends a signal once to everybody whom `choose` chooses.
    pub(crate) fn signal(&self, signal: Signal, choose: impl Fn(&Process) -> bool) {
        for process in self.all().iter().filter(|process| choose(process)) {
            // Who has ended, or is another user's, is not asked.
            let _ = process.send(signal);
        }
    }

    /// Stops everybody, then kills everybody. Returns those who could not be sent it.
    ///
    /// Stopped first, because what sees its children die may start others in their place.
    pub(crate) fn kill(&self) -> Vec<Survivor> {
        let mut reached = HashSet::new();
        for _ in 0..ROUNDS {
            let new: Vec<_> = self.all();
            let new = new
                .into_iter()
                .filter(|process| !process.is_stopped() && !reached.contains(&process.key()));
            let new: Vec<_> = new.collect();
            if new.is_empty() {
                break;
            }
            for process in new {
                let _ = process.send(Signal::STOP);
                reached.insert(process.key());
            }
        }
        let mut survivors = Vec::new();
        for process in self.all() {
            match process.send(Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(why) => survivors.push(process.survives(why)),
            }
        }
        survivors
    }

    /// Those who live, as they are named to the user.
    pub(crate) fn survivors(&self) -> Vec<Survivor> {
        let all = self.all().into_iter();
        all.map(|process| {
            let why = match process.send(Signal::KILL) {
                Err(why) => why,
                Ok(()) => Errno::AGAIN,
            };
            process.survives(why)
        })
        .filter(|survivor| survivor.why != Errno::SRCH)
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process {
            pid,
            parent,
            group: pid,
            start: 1,
            state: 'S',
            name: String::new(),
        }
    }

    fn pids(found: &[Process]) -> Vec<i32> {
        let mut pids: Vec<_> = found.iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn a_line_of_proc_is_read_whatever_the_name_is() {
        let line = "7 (a ) (b) R 3 5 2 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9 9";
        let process = Process::parse(7, line).expect("complete");
        assert_eq!((process.parent, process.group), (3, 5));
        assert_eq!((process.start, process.state), (4711, 'R'));
        assert_eq!(process.name, "a ) (b");
        assert_eq!(Process::parse(7, "7 (a) R 3"), None);
    }

    #[test]
    fn descendants_are_those_below_and_no_others() {
        let all = [
            process(1, 0),
            process(2, 1),
            process(3, 2),
            process(4, 3),
            process(5, 1),
            process(6, 5),
        ];
        assert_eq!(pids(&below_in(2, &all, &HashSet::new())), [3, 4]);
        assert_eq!(
            pids(&below_in(1, &all, &HashSet::from([(5, 1)]))),
            [2, 3, 4]
        );
        assert_eq!(pids(&below_in(6, &all, &HashSet::new())), [0_i32; 0]);
    }

    /// One whose parent was read before it ended, and one who was read after it got the number.
    #[test]
    fn a_circle_ends() {
        let all = [process(2, 3), process(3, 2), process(4, 4)];
        assert_eq!(pids(&below_in(2, &all, &HashSet::new())), [3]);
        assert_eq!(pids(&below_in(4, &all, &HashSet::new())), [0_i32; 0]);
    }

    #[test]
    fn who_has_ended_is_passed_through_and_not_counted() {
        let mut ended = process(3, 2);
        ended.state = 'Z';
        let all = [ended, process(4, 3)];
        assert_eq!(pids(&below_in(2, &all, &HashSet::new())), [4]);
    }

    #[test]
    fn a_number_that_is_used_again_is_left_alone() {
        let mut ours = Process::look_up(getpid().as_raw_nonzero().get()).expect("we live");
        ours.start += 1;
        assert_eq!(ours.send(Signal::CONT), Err(Errno::SRCH));
    }
}
