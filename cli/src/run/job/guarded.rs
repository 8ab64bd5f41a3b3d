//! A job under a watchdog.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use log::{debug, info};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait, waitpid,
};
use rustix::time::{ClockId, clock_gettime};

use super::cgroup::Cgroup;
use super::walk::{self, Below, Survivor};
use super::watchdog::{MARK, NO_CGROUP};
use super::wire::{Order, Report, Wire};
use super::{Event, Start};
use crate::run::supervisor::Ending;

/// For two processes to start, on a machine that has other things to do.
const START: Duration = Duration::from_secs(60);

/// The command and all its descendants.
#[derive(Debug)]
pub(crate) struct Job {
    watchdog: Pid,
    leader: Pid,
    wire: Wire,
    cgroup: Option<Cgroup>,
    events: Receiver<Event>,
    to_events: Sender<Event>,
    /// The watchdog has said its last word: nobody of the job is left, or we do without it.
    over: Arc<AtomicBool>,
    /// Passes on what the watchdog says, until it has died.
    relay: Option<JoinHandle<()>>,
    /// The watchdog has died, and what it guarded is ours.
    unguarded: bool,
    /// Our children from before, whom our program had when it was another.
    strangers: HashSet<(i32, u64)>,
}

impl Job {
    /// Starts a process that will be the command after [`Job::go`].
    pub(crate) fn start(start: &Start<'_>) -> io::Result<Self> {
        // Where nobody can be seen, nobody will be taken for ours either.
        let strangers = Below::of(ours()).all().unwrap_or_default();
        // If the watchdog dies, the job is ours to kill.
        set_child_subreaper(Some(getpid()))?;
        let cgroup = if start.cgroup { make_cgroup() } else { None };
        let made = Self::spawn(start, cgroup.as_ref());
        let (watchdog, wire) = made.inspect_err(|_| {
            if let Some(cgroup) = &cgroup {
                cgroup.remove();
            }
        })?;
        if !walk::is_possible() {
            info!("/proc shows no processes: what leaves the command's group cannot be found");
        }
        if !walk::is_exact() {
            info!(
                "processes are signalled by their numbers, as they cannot be opened (pidfd_open)"
            );
        }
        let (to_events, events) = unbounded();
        let over = Arc::new(AtomicBool::new(false));
        let (relay, reports) = relay(wire.another()?, to_events.clone(), Arc::clone(&over))?;
        let started = reports.recv_timeout(START);
        let (leader, in_cgroup) = started.map_err(|_| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                "the watchdog process did not start",
            )
        })?;
        if cgroup.is_some() && !in_cgroup {
            info!("the command could not be put into a control group; doing without");
        }
        Ok(Self {
            watchdog,
            leader,
            wire,
            cgroup,
            events,
            to_events,
            over,
            relay: Some(relay),
            unguarded: false,
            strangers: strangers.iter().map(walk::Process::key).collect(),
        })
    }

    fn spawn(start: &Start<'_>, cgroup: Option<&Cgroup>) -> io::Result<(Pid, Wire)> {
        let (wire, theirs) = Wire::pair()?;
        let mut command = Command::new(super::our_program()?);
        command.arg0("watchdog").arg(MARK).arg(start.mask.text());
        match cgroup {
            Some(cgroup) => command.arg(cgroup.folder()),
            None => command.arg(NO_CGROUP),
        };
        command
            .args(start.command)
            .process_group(0)
            .stdin(Stdio::from(theirs));
        start.set_variables(&mut command);
        let child = command.spawn()?;
        let watchdog = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok((watchdog.ok_or(io::ErrorKind::InvalidData)?, wire))
    }

    /// The process id of the command, and of its process group.
    pub(crate) fn id(&self) -> Pid {
        self.leader
    }

    pub(crate) fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    /// Has the command begin, with our standard input.
    pub(crate) fn go(&self) -> io::Result<()> {
        self.wire.order(Order::Go, Some(io::stdin().as_fd()))
    }

    /// Ends what has not begun. Returns when nobody of it is left.
    pub(crate) fn call_off(&mut self) {
        let _ = kill_process(self.watchdog, Signal::KILL);
        Self::await_end(self.watchdog);
        // The shim is ours now, and dies by the death of its parent, or by this.
        self.unguarded = true;
        self.kill();
        Self::await_end(self.leader);
    }

    /// Buries a child that is about to end.
    fn await_end(child: Pid) {
        while matches!(waitpid(Some(child), WaitOptions::empty()), Err(Errno::INTR)) {}
    }

    /// Tells the watchdog until when the lock is certain.
    pub(crate) fn tell_deadline(&self, end: Instant) {
        // In this order: whoever is stopped between the two tells a moment that is too early.
        let now = clock_gettime(ClockId::Boottime);
        let left = end.saturating_duration_since(Instant::now());
        let now = Duration::try_from(now).unwrap_or_default();
        let end = u64::try_from((now + left).as_nanos()).unwrap_or(u64::MAX);
        self.order(Order::Until(end));
    }

    /// Sends a signal to the command's process group.
    pub(crate) fn signal(&self, signal: i32) {
        self.order(Order::Signal(signal));
    }

    /// Sends a signal to everybody of the job, but for those of the command's group who have `heard`
    /// another; and lets all of them go on.
    pub(crate) fn ask(&self, signal: i32, heard: Option<i32>) {
        self.order(Order::Ask { signal, heard });
    }

    /// Kills everybody of the job, with the watchdog and without it.
    pub(crate) fn kill(&self) {
        if self.over.load(Ordering::SeqCst) && !self.unguarded {
            return;
        }
        if let Some(cgroup) = &self.cgroup
            && let Err(error) = cgroup.kill()
        {
            debug!("cgroup.kill: {error}");
        }
        self.order(Order::Kill);
        self.everybody().kill();
    }

    /// The command has ended, and what it left running may go on.
    pub(crate) fn leave(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.order(Order::Leave);
    }

    /// Those who live.
    pub(crate) fn survivors(&self) -> io::Result<Vec<Survivor>> {
        self.everybody().survivors()
    }

    /// To be called when a child has changed: buries whoever is ours, and sees to the watchdog.
    pub(crate) fn bury(&mut self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        let has_children = loop {
            match wait(options) {
                Ok(Some((pid, status))) if pid == self.watchdog => {
                    if status.stopped() {
                        // Nobody needs it so; and who stopped it did not mean the command.
                        let _ = kill_process(pid, Signal::CONT);
                    } else {
                        self.lose_watchdog();
                    }
                }
                Ok(Some((pid, status))) if pid == self.leader && !status.stopped() => {
                    // Ours since the watchdog died.
                    let ending = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Ending::Exit(code),
                        (None, Some(signal)) => Ending::Signal(signal),
                        (None, None) => Ending::Unknown,
                    };
                    let _ = self.to_events.send(Event::Ended(ending));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        if self.unguarded && !(has_children && self.may_have_somebody()) {
            let _ = self.to_events.send(Event::Ended(Ending::Unknown));
            let _ = self.to_events.send(Event::Emptied);
        }
    }

    /// Who cannot look (no descriptor is left, or there is no `/proc`) does not know that nobody lives.
    fn may_have_somebody(&self) -> bool {
        self.everybody().all().map_or(true, |all| !all.is_empty())
    }

    fn lose_watchdog(&mut self) {
        // Its last word may still be on the way. The end of the socket follows it.
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
        if !self.over.load(Ordering::SeqCst) {
            self.unguarded = true;
            let _ = self.to_events.send(Event::Unguarded);
        }
    }

    /// Below the watchdog; or below us, if it has died.
    fn everybody(&self) -> Below {
        if self.unguarded {
            Below {
                root: ours(),
                except: self.strangers.clone(),
            }
        } else {
            Below::of(self.watchdog.as_raw_nonzero().get())
        }
    }

    fn order(&self, order: Order) {
        if let Err(error) = self.wire.order(order, None) {
            debug!("the watchdog was not told: {error}");
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The relay has our end as well, and would keep the watchdog from seeing that we have gone.
        self.wire.hang_up();
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }
}

fn ours() -> i32 {
    getpid().as_raw_nonzero().get()
}

fn make_cgroup() -> Option<Cgroup> {
    match Cgroup::make() {
        Ok(cgroup) => {
            info!("control group {}", cgroup.folder().display());
            Some(cgroup)
        }
        Err(error) => {
            info!("no control group can be made ({error}); doing without");
            None
        }
    }
}

/// The thread that passes on what the watchdog says, and where the number of the command's process
/// comes, with whether it is in the control group.
type Relay = (JoinHandle<()>, Receiver<(Pid, bool)>);

/// Passes on what the watchdog says.
fn relay(wire: Wire, events: Sender<Event>, over: Arc<AtomicBool>) -> io::Result<Relay> {
    let (to_started, started) = unbounded();
    let thread = thread::Builder::new().name("watchdog".to_owned());
    let relay = thread.spawn(move || {
        while let Some(report) = wire.next_report() {
            let event = match report {
                Report::Started { pid, in_cgroup } => {
                    if let Some(pid) = Pid::from_raw(pid) {
                        let _ = to_started.send((pid, in_cgroup));
                    }
                    continue;
                }
                Report::Failed(error) => Event::Failed(error),
                Report::Ended(ending) => Event::Ended(ending),
                Report::Stopped(signal) => Event::Stopped(signal),
                Report::Continued => Event::Continued,
                Report::Late => Event::Late,
                Report::Refused(signal) => Event::Refused(signal),
                Report::Heard { signal, sender } => Event::Heard { signal, sender },
                Report::Emptied => {
                    // Before its end is seen.
                    over.store(true, Ordering::SeqCst);
                    Event::Emptied
                }
            };
            if events.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok((relay, started))
}
