//! The watchdog: the process between the supervisor and the job. It buries the job, says when nobody
//! of it is left, and kills it when the supervisor is gone, stopped or late.
//!
//! It has one thread, holds no lock, and writes nothing while anything is to be killed. That the
//! supervisor has died is told by the end of their socket; a parent-death signal would come when the
//! thread ends that started us, and would say no more.

use std::env;
use std::ffi::{CString, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, set_child_subreaper, wait,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::super::signals;
use super::super::supervisor::Ending;
use super::cgroup::Cgroup;
use super::shim::{self, Line};
use super::walk::{Below, Process, Survivor};
use super::wire::{Order, Report, Wire};
use crate::status::Status;

/// What the kernel shows of us.
const NAME: &str = "watchdog";
/// What only we start ourselves with.
pub(crate) const MARK: &str = "__watchdog";
/// What stands for "none" where a control group could be named.
pub(crate) const NO_CGROUP: &str = "-";
/// Between two rounds of killing, while somebody is left.
const AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// If this process is a watchdog: watches, and returns what to exit with.
pub(crate) fn if_we_are_it() -> Option<u8> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next()? != MARK {
        return None;
    }
    let mask = arguments.next()?;
    let cgroup = arguments.next()?;
    let command: Vec<_> = arguments.collect();
    // So that who kills by the name of the program leaves one who clears up.
    let _ = CString::new(NAME).map(|name| rustix::thread::set_name(&name));
    let watchdog = Watchdog::start(&mask, cgroup, &command);
    let watched = watchdog.and_then(Watchdog::watch);
    Some(watched.map_or_else(|_| Status::Internal.code(), |()| 0))
}

/// What there is to do for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Watch,
    /// Everybody is to be killed, again and again until nobody is left.
    Kill,
}

struct Watchdog {
    /// `None` when the supervisor has gone.
    wire: Option<Wire>,
    line: Line,
    leader: Pid,
    /// The command has not been buried: its number is its own.
    leader_stands: bool,
    cgroup: Option<Cgroup>,
    signals: SignalFd,
    /// Of `CLOCK_BOOTTIME`, which goes on while the machine sleeps.
    timer: OwnedFd,
    /// What the timer is set to, in nanoseconds.
    deadline: Option<u64>,
    duty: Duty,
    survivors: Vec<Survivor>,
}

impl Watchdog {
    fn start(mask: &OsString, cgroup: OsString, command: &[OsString]) -> io::Result<Self> {
        let wire = Wire::from_other_end(io::stdin().as_fd().try_clone_to_owned()?);
        // Those whose parents have gone become our children.
        set_child_subreaper(Some(getpid()))?;
        let heard = signals::block_all()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&heard, flags)?;
        let timer = timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let cgroup = (cgroup != NO_CGROUP)
            .then(|| Cgroup::open(&PathBuf::from(cgroup)).ok())
            .flatten();
        let (line, theirs) = Line::pair()?;
        let mut shim = Command::new(super::our_program()?);
        shim.arg0("zklock")
            .arg(shim::MARK)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(mask)
            .args(command)
            .process_group(0)
            .stdin(Stdio::from(theirs));
        let child = shim.spawn()?;
        let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let leader = leader.ok_or(io::ErrorKind::InvalidData)?;
        let pid = leader.as_raw_nonzero().get();
        let cgroup = cgroup.filter(|cgroup| cgroup.add(pid).is_ok());
        let in_cgroup = cgroup.is_some();
        wire.report(Report::Started { pid, in_cgroup })?;
        let nothing = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        // Whoever reads the command's output shall see it end.
        dup2_stdin(&nothing)?;
        dup2_stdout(&nothing)?;
        Ok(Self {
            wire: Some(wire),
            line,
            leader,
            leader_stands: true,
            cgroup,
            signals,
            timer,
            deadline: None,
            duty: Duty::Watch,
            survivors: Vec::new(),
        })
    }

    /// Returns when nobody of the job is left, or when it may go on without us.
    fn watch(mut self) -> io::Result<()> {
        loop {
            if self.is_over() {
                self.tell(Report::Emptied);
                self.clear_up();
                return Ok(());
            }
            if self.duty == Duty::Kill {
                self.kill();
                if self.is_beaten() {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
            }
            self.wait()?;
            self.look_at_the_clock();
            self.hear();
            if self.obey()? {
                return Ok(());
            }
        }
    }

    /// Waits until anything may have happened.
    fn wait(&self) -> io::Result<()> {
        let mut descriptors = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        if let Some(wire) = &self.wire {
            descriptors.push(PollFd::new(wire, PollFlags::IN));
        }
        let bound = (self.duty == Duty::Kill).then_some(&AGAIN);
        match poll(&mut descriptors, bound) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn look_at_the_clock(&mut self) {
        let mut times = [0; 8];
        if rustix::io::read(&self.timer, &mut times).is_ok() {
            self.be_late();
        }
    }

    fn be_late(&mut self) {
        self.duty = Duty::Kill;
        self.kill();
        self.tell(Report::Late);
    }

    /// Whether the lock may have ended since the supervisor had the command begin.
    fn is_late(&self) -> bool {
        let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or(Duration::MAX);
        self.deadline
            .is_some_and(|deadline| now >= Duration::from_nanos(deadline))
    }

    /// Tells which signals have come to us: a service manager sends them to all processes of a
    /// service, and so to the command. We do not act on them.
    fn hear(&self) {
        while let Ok(Some(heard)) = self.signals.read_signal() {
            let signal = i32::try_from(heard.ssi_signo).unwrap_or_default();
            if signals::FORWARDED.contains(&signal) {
                let sender = heard.ssi_pid;
                self.tell(Report::Heard { signal, sender });
            }
        }
    }

    /// Does what the supervisor says. Returns whether we are not needed any more.
    fn obey(&mut self) -> io::Result<bool> {
        loop {
            let Some(wire) = &self.wire else {
                return Ok(false);
            };
            match wire.next_order() {
                Ok(None) => return Ok(false),
                Ok(Some((Order::Go, _))) if self.is_late() => self.be_late(),
                Ok(Some((Order::Go, stdin))) => {
                    let stdin = stdin.ok_or(io::ErrorKind::InvalidData)?;
                    // A shim that has gone will be buried.
                    let _ = self.line.go(stdin);
                }
                Ok(Some((Order::Until(when), _))) => self.set_clock(when)?,
                Ok(Some((Order::Signal(signal), _))) => self.signal(signal),
                Ok(Some((Order::Ask { signal, heard }, _))) => self.ask(signal, heard),
                Ok(Some((Order::Kill, _))) => {
                    self.duty = Duty::Kill;
                    self.kill();
                }
                Ok(Some((Order::Leave, _))) if !self.leader_stands => return Ok(true),
                Ok(Some((Order::Leave, _))) => {}
                // The supervisor is dead: that is what we are here for.
                Err(_) => {
                    self.wire = None;
                    self.duty = Duty::Kill;
                    return Ok(false);
                }
            }
        }
    }

    fn set_clock(&mut self, when: u64) -> io::Result<()> {
        const SECOND: u64 = 1_000_000_000;
        let nothing = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Zero would take the alarm away.
        let when = when.max(1);
        self.deadline = Some(when);
        let alarm = Itimerspec {
            it_interval: nothing,
            it_value: Timespec {
                tv_sec: i64::try_from(when / SECOND).unwrap_or(i64::MAX),
                tv_nsec: (when % SECOND).cast_signed(),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &alarm)?;
        Ok(())
    }

    fn everybody() -> Below {
        Below::of(getpid().as_raw_nonzero().get())
    }

    /// The command's group, as a terminal would do. The number is the group's for as long as the
    /// command is not buried; after that, those are looked for who are still of it.
    fn signal(&self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return;
        };
        if self.leader_stands {
            let sent = kill_process_group(self.leader, signal);
            if sent == Err(Errno::PERM) && signal != Signal::CONT {
                self.tell(Report::Refused(signal.as_raw()));
            }
        } else {
            let group = self.leader.as_raw_nonzero().get();
            Self::everybody().signal(signal, |process| process.group == group);
        }
    }

    /// Everybody, once each; of the command's group only who ignores what the others have heard, if
    /// they have. The job of a run in this one is asked by its own supervisor, who hears this.
    fn ask(&self, signal: i32, heard: Option<i32>) {
        let group = self.leader.as_raw_nonzero().get();
        let mut all = Self::everybody();
        if signals::FORWARDED.contains(&signal) {
            all.except = all.find(is_watchdog);
        }
        if heard.is_none() {
            self.signal(signal);
        }
        if let Some(signal) = Signal::from_named_raw(signal) {
            // Who has been started since by one of the group is of the group, and in the same state
            // as before it was asked.
            all.signal(signal, |process| {
                process.group != group || heard.is_some_and(|heard| process.ignores(heard))
            });
        }
        self.signal(Signal::CONT.as_raw());
        all.signal(Signal::CONT, |process| process.group != group);
    }

    fn kill(&mut self) {
        if let Some(cgroup) = &self.cgroup {
            let _ = cgroup.kill();
        }
        if self.leader_stands {
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
        self.survivors = Self::everybody().kill();
    }

    /// Whether nobody of the job is left. Buries who has ended.
    fn is_over(&mut self) -> bool {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            match wait(options) {
                Ok(Some((pid, status))) if pid == self.leader => self.leader_changed(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    fn leader_changed(&mut self, status: WaitStatus) {
        let ending = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Ending::Exit(code)),
            (None, Some(signal)) => Some(Ending::Signal(signal)),
            (None, None) => None,
        };
        if let Some(ending) = ending {
            self.leader_stands = false;
            if let Some(error) = self.line.failure() {
                self.tell(Report::Failed(error));
            }
            self.tell(Report::Ended(ending));
        } else if let Some(signal) = status.stopping_signal() {
            self.tell(Report::Stopped(signal));
        } else if status.continued() {
            self.tell(Report::Continued);
        }
    }

    /// Without a supervisor, and with nobody left whom we may kill, there is nothing to do here.
    fn is_beaten(&self) -> bool {
        if self.wire.is_some() || self.survivors.is_empty() {
            return false;
        }
        let Ok(left) = Self::everybody().survivors() else {
            return false;
        };
        let beaten = !left.is_empty() && left.iter().all(Survivor::is_out_of_reach);
        if beaten {
            for survivor in left {
                complain(&format!(
                    "zklock was killed, and the command lives: {survivor}"
                ));
            }
        }
        beaten
    }

    fn tell(&self, report: Report) {
        if let Some(wire) = &self.wire {
            // Who does not listen will see that we have gone.
            let _ = wire.report(report);
        }
    }

    /// What the supervisor does not do any more.
    fn clear_up(&self) {
        if self.wire.is_none()
            && let Some(cgroup) = &self.cgroup
        {
            cgroup.remove();
        }
    }
}

fn is_watchdog(process: &Process) -> bool {
    let arguments = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    process.name == NAME && arguments.split(|byte| *byte == 0).nth(1) == Some(MARK.as_bytes())
}

/// Writes a line if it can be written at once.
fn complain(what: &str) {
    let stderr = io::stderr();
    let mut descriptors = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    if poll(&mut descriptors, Some(&now)) == Ok(1) {
        let _ = writeln!(io::stderr(), "zklock: {what}");
    }
}
