//! The processes below one, as `/proc` shows them, and signals to exactly these.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

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
    /// That of its main thread.
    state: char,
    threads: u32,
    pub(crate) name: String,
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
    /// `None` if there is no such process, or none that `/proc` shows us. An error says nothing of it.
    pub(crate) fn look_up(pid: i32) -> io::Result<Option<Self>> {
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(stat) => Ok(Self::parse(pid, &String::from_utf8_lossy(&stat))),
            Err(error) => match Errno::from_io_error(&error) {
                // The last comes when it ends between opening and reading.
                Some(Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::SRCH) => Ok(None),
                _ => Err(error),
            },
        }
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
            // The 20th and the 22nd of all.
            threads: fields.nth(14)?.parse().ok()?,
            start: fields.nth(1)?.parse().ok()?,
        })
    }

    /// It has ended, and nobody has buried it yet. Where only the main thread has ended, the state is
    /// the same, and others of its threads work on.
    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }

    fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// The number and the start.
    pub(crate) fn key(&self) -> (i32, u64) {
        (self.pid, self.start)
    }

    pub(crate) fn ignores(&self, signal: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        ignored.is_some_and(|ignored| ignored >> (signal - 1) & 1 == 1)
    }

    /// Sends a signal to this process, and to no other that has got its number since.
    fn send(&self, signal: Signal) -> Result<(), Errno> {
        self.send_by(signal, open)
    }

    /// Where `open` opens nothing (kernels before 5.3, and containers that do not know the call and
    /// refuse it), the number is looked at just before it is used. Another process could get it between,
    /// if whoever has to bury this one did so at that moment; nobody could be killed without.
    fn send_by(
        &self,
        signal: Signal,
        open: impl Fn(Pid) -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Err(Errno::SRCH);
        };
        let held = match open(pid) {
            Err(Errno::SRCH) => return Err(Errno::SRCH),
            held => held.ok(),
        };
        // What was opened is what was seen if it still has the number's start.
        match Self::look_up(self.pid) {
            Ok(Some(now)) if now.start == self.start => {}
            Ok(_) => return Err(Errno::SRCH),
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
        match held.map(|held| pidfd_send_signal(held, signal)) {
            // A refusal may be that of the call.
            None | Some(Err(Errno::NOSYS | Errno::PERM)) => kill_process(pid, signal),
            Some(sent) => sent,
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

fn open(pid: Pid) -> Result<OwnedFd, Errno> {
    pidfd_open(pid, PidfdFlags::empty())
}

/// Whether a process can be signalled without a doubt about who has its number.
pub(crate) fn is_exact() -> bool {
    open(getpid()).is_ok()
}

/// Every process that we can see. An error if not all could be looked at: as when no descriptor is
/// left to look by.
fn everybody() -> io::Result<Vec<Process>> {
    if !is_possible() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
            all.extend(Process::look_up(pid)?);
        }
    }
    Ok(all)
}

/// The descendants of `root`, without itself and those who have ended; what is in `except`, and what
/// is below that, is none of them.
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

    /// An error says nothing of who is there.
    pub(crate) fn all(&self) -> io::Result<Vec<Process>> {
        Ok(below_in(self.root, &everybody()?, &self.except))
    }

    /// Those whom we can see now.
    fn seen(&self) -> Vec<Process> {
        self.all().unwrap_or_default()
    }

    /// Whom `choose` chooses.
    pub(crate) fn find(&self, choose: impl Fn(&Process) -> bool) -> HashSet<(i32, u64)> {
        let seen = self.seen().into_iter();
        seen.filter(choose).map(|process| process.key()).collect()
    }

    /// Sends a signal once to everybody whom `choose` chooses.
    pub(crate) fn signal(&self, signal: Signal, choose: impl Fn(&Process) -> bool) {
        for process in self.seen().iter().filter(|process| choose(process)) {
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
            let mut new = self.seen();
            new.retain(|process| !process.is_stopped() && !reached.contains(&process.key()));
            if new.is_empty() {
                break;
            }
            for process in new {
                let _ = process.send(Signal::STOP);
                reached.insert(process.key());
            }
        }
        let mut survivors = Vec::new();
        for process in self.seen() {
            match process.send(Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(why) => survivors.push(process.survives(why)),
            }
        }
        survivors
    }

    /// Those who live, as they are named to the user.
    pub(crate) fn survivors(&self) -> io::Result<Vec<Survivor>> {
        let all = self.all()?.into_iter();
        let survivors = all.map(|process| {
            let why = match process.send(Signal::KILL) {
                Err(why) => why,
                Ok(()) => Errno::AGAIN,
            };
            process.survives(why)
        });
        let live = |survivor: &Survivor| survivor.why != Errno::SRCH;
        Ok(survivors.filter(live).collect())
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
            threads: 1,
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
        let line = "7 (a ) (b) R 3 5 2 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 12 0 4711 9 9 9";
        let process = Process::parse(7, line).expect("complete");
        assert_eq!((process.parent, process.group), (3, 5));
        assert_eq!((process.start, process.state), (4711, 'R'));
        assert_eq!(process.threads, 12);
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
    fn who_goes_on_without_its_main_thread_has_not_ended() {
        let mut works = process(3, 2);
        works.state = 'Z';
        works.threads = 2;
        assert_eq!(pids(&below_in(2, &[works], &HashSet::new())), [3]);
    }

    fn ourselves() -> Process {
        let ours = Process::look_up(getpid().as_raw_nonzero().get());
        ours.expect("/proc is there").expect("we live")
    }

    #[test]
    fn a_number_that_is_used_again_is_left_alone() {
        let mut another = ourselves();
        another.start += 1;
        assert_eq!(another.send(Signal::CONT), Err(Errno::SRCH));
        let refused = |_| Err(Errno::PERM);
        assert_eq!(another.send_by(Signal::CONT, refused), Err(Errno::SRCH));
    }

    /// The descendants of zklock were taken for another user's, and lived.
    #[test]
    fn signals_are_sent_where_processes_cannot_be_opened() {
        for why in [Errno::NOSYS, Errno::PERM, Errno::MFILE] {
            assert_eq!(ourselves().send_by(Signal::CONT, |_| Err(why)), Ok(()));
        }
        let ended = |_| Err(Errno::SRCH);
        assert_eq!(ourselves().send_by(Signal::CONT, ended), Err(Errno::SRCH));
    }
}
