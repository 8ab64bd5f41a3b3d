//! The command's course under the lock: tells the supervisor what happens, and does what it says.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never, select};
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGHUP, SIGTERM};
use zklock::{ConnectionEvent, LossReason};

use super::certainty::Certainty;
use super::job::{Event, Job};
use super::lock::Guard;
use super::signals::{Inbox, Sent};
use super::supervisor::{Action, Input, Notice, Outcome, Supervisor};
use super::terminal::Terminal;
use crate::arguments::signal_name;
use crate::say;

/// How long a service manager takes to send one signal to all processes of a service.
const MANAGER: Duration = Duration::from_millis(200);

/// Everything that a command's course touches.
pub(crate) struct Course<'a> {
    pub(crate) path: &'a str,
    pub(crate) guard: &'a Guard,
    pub(crate) job: &'a mut Job,
    pub(crate) terminal: &'a Terminal,
    pub(crate) inbox: &'a Inbox,
    pub(crate) connection: Receiver<ConnectionEvent>,
    pub(crate) supervisor: Supervisor,
    /// How often the watchdog is told that we live.
    pub(crate) beat: Duration,
    pub(crate) known: Known,
    pub(crate) managed: Managed,
}

/// What became known on the way.
#[derive(Default)]
pub(crate) struct Known {
    /// Why the lock was lost.
    pub(crate) loss: Option<LossReason>,
    /// Why the command could not be run.
    pub(crate) failure: Option<io::Error>,
}

/// Signals of a service manager, which sends them to us, to the watchdog and to the command.
#[derive(Default)]
pub(crate) struct Managed {
    /// What has come to us, and until when the watchdog may say the same.
    pending: Option<(Sent, Instant)>,
    /// What has come to the watchdog.
    heard: Vec<Sent>,
}

impl Course<'_> {
    /// Returns when nobody of the job is left and the lock may be given back, or when it is not
    /// ours any more.
    pub(crate) fn follow(mut self) -> (Outcome, Known) {
        let mut lost = self.guard.lost();
        let mut revocation = self.guard.revocation();
        let events = self.job.events().clone();
        loop {
            if let Some(outcome) = self.supervisor.outcome() {
                return (outcome, self.known);
            }
            let timer = crossbeam_channel::at(self.tell_and_plan());
            select! {
                recv(self.inbox.forwarded) -> sent => {
                    if let Ok(sent) = sent {
                        self.signalled(sent);
                    }
                }
                recv(self.inbox.children) -> _ => self.job.bury(),
                recv(self.inbox.resumed) -> _ => self.step(Input::Resumed),
                recv(self.inbox.stop_key) -> _ => self.step(Input::StopKey),
                recv(events) -> event => {
                    if let Ok(event) = event {
                        self.happened(event);
                    }
                }
                recv(lost) -> reason => {
                    self.known.loss = reason.ok();
                    // It stays ready for good.
                    lost = never();
                    self.step(Input::Time);
                }
                recv(revocation) -> _ => {
                    revocation = never();
                    self.step(Input::Revoked);
                }
                recv(self.connection) -> event => {
                    if event.is_err() {
                        self.connection = never();
                    }
                    self.step(Input::Time);
                }
                recv(timer) -> _ => self.tick(),
            }
        }
    }

    /// Tells the watchdog until when the lock is ours; returns when to look again at the latest.
    fn tell_and_plan(&self) -> Instant {
        let certainty = self.guard.certainty();
        let now = Instant::now();
        if let Some(deadline) = self.supervisor.deadline(certainty) {
            self.job.tell_deadline(deadline);
        }
        let wake = self.supervisor.wake_at(now, certainty);
        let manager = self.managed.pending.map(|(_, until)| until);
        let beat = now + self.beat;
        wake.into_iter().chain(manager).fold(beat, Instant::min)
    }

    fn tick(&mut self) {
        if let Some((sent, until)) = self.managed.pending
            && Instant::now() >= until
        {
            self.managed.pending = None;
            self.step(Input::Signal(sent.signal));
        }
        // Where nothing announces that the last of the job has ended.
        self.job.bury();
        self.step(Input::Time);
        if self.supervisor.is_killing() {
            self.job.kill();
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Failed(error) => {
                self.known.failure = Some(io::Error::from_raw_os_error(error));
                self.supervisor.hold_no_longer(Instant::now());
            }
            Event::Ended(ending) => self.step(Input::Ended(ending)),
            Event::Stopped(signal) => self.step(Input::Stopped {
                signal,
                foreground: self.terminal.is_ours(),
            }),
            Event::Continued => self.step(Input::Continued),
            Event::Emptied => self.step(Input::Emptied),
            Event::Late => self.step(Input::Late),
            Event::Refused(signal) => say(format_args!(
                "{}: {} may not be sent to the command, which is another user's",
                self.path,
                signal_name(signal).unwrap_or("a signal")
            )),
            Event::Unguarded => self.step(Input::Unguarded),
            Event::Heard { signal, sender } => self.heard(Sent {
                signal,
                sender: Some(sender),
            }),
        }
    }

    /// A signal came to us. One of a service manager waits a little for the watchdog to hear the
    /// same: then the command has heard it too.
    fn signalled(&mut self, sent: Sent) {
        if !matches!(sent.signal, SIGTERM | SIGHUP) || !is_manager(sent.sender) {
            self.step(Input::Signal(sent.signal));
        } else if let Some(at) = self.managed.heard.iter().position(|heard| *heard == sent) {
            self.managed.heard.swap_remove(at);
            self.step(Input::Known(sent.signal));
        } else if let Some((first, _)) = self
            .managed
            .pending
            .replace((sent, Instant::now() + MANAGER))
        {
            self.step(Input::Signal(first.signal));
        }
    }

    fn heard(&mut self, heard: Sent) {
        match self.managed.pending {
            Some((sent, _)) if sent == heard => {
                self.managed.pending = None;
                self.step(Input::Known(heard.signal));
            }
            _ if is_manager(heard.sender) => self.managed.heard.push(heard),
            // Meant for the watchdog alone, or for all programs of our name: we were told as well.
            _ => {}
        }
    }

    fn step(&mut self, input: Input) {
        // Asked each time: the lock is looked at before anything is done about the command.
        let certainty: Certainty = self.guard.certainty();
        for action in self.supervisor.step(Instant::now(), certainty, input) {
            self.act(action);
        }
    }

    fn act(&self, action: Action) {
        match action {
            Action::Signal(signal) => self.job.signal(signal),
            Action::Ask(signal) => self.job.ask(signal, None),
            Action::AskOthers { signal, heard } => self.job.ask(signal, Some(heard)),
            Action::Kill => self.job.kill(),
            Action::Leave => self.job.leave(),
            Action::TakeTerminal => self.terminal.take_from(self.job.id()),
            Action::GiveTerminal => self.terminal.give_to(self.job.id()),
            Action::Suspend(signal) => {
                // All of our group, as the terminal would have done: there may be a pipeline. When
                // it is over a SIGCONT comes; until then nothing is done for the command. One from
                // before would let it go on while we stop.
                while self.inbox.resumed.try_recv().is_ok() {}
                if let Some(signal) = Signal::from_named_raw(signal) {
                    let _ = kill_current_process_group(signal);
                }
                // We have these blocked.
                if signal != Signal::STOP.as_raw() {
                    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
                }
            }
            Action::Tell(notice) => self.tell(notice),
        }
    }

    fn tell(&self, notice: Notice) {
        let path = self.path;
        match notice {
            Notice::Doubtful => say(format_args!(
                "{path}: no contact with ZooKeeper, and the lock may be lost soon; \
                 asking the command to end"
            )),
            Notice::Lost => say(format_args!(
                "{path}: the lock is lost; killing the command"
            )),
            Notice::TooLong { killed: false } => say(format_args!(
                "{path}: --at-most is nearly over; asking the command to end"
            )),
            Notice::TooLong { killed: true } => say(format_args!(
                "{path}: --at-most is over; killing the command"
            )),
            Notice::Unguarded => say(format_args!(
                "{path}: the watchdog process has died; killing the command"
            )),
            Notice::Late => say(format_args!(
                "{path}: the lock is lost, or zklock was stopped for too long; \
                 the watchdog has killed the command"
            )),
            Notice::LeftBehind { killed: false } => say(format_args!(
                "{path}: the command has left processes running; asking them to end"
            )),
            Notice::LeftBehind { killed: true } => say(format_args!(
                "{path}: the command has left processes running; killing them"
            )),
            Notice::Undying => {
                self.name_survivors("cannot be ended; keeping the lock as long as it can be kept");
            }
            Notice::Outlived => {
                self.name_survivors("lives though the lock is over, and cannot be ended");
            }
            Notice::Revoked => say(format_args!(
                "{path}: somebody asks for the lock; asking the command to end"
            )),
        }
    }

    fn name_survivors(&self, what: &str) {
        let path = self.path;
        match self.job.survivors() {
            Ok(survivors) => {
                for survivor in survivors {
                    say(format_args!("{path}: {survivor}; it {what}"));
                }
            }
            Err(error) => say(format_args!(
                "{path}: a process that cannot be named, as /proc cannot be read ({error}); it {what}"
            )),
        }
    }
}

/// Whether a process is a service manager that signals all processes of a service.
fn is_manager(sender: Option<u32>) -> bool {
    let name = sender.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    name.is_some_and(|name| name.trim_end() == "systemd")
}
