//! The command's course under the lock: tells the supervisor what happens, and does what it says.

use std::io;
use std::time::Instant;

use crossbeam_channel::{Receiver, never, select};
use rustix::process::{Signal, kill_current_process_group};
use zklock::{ConnectionEvent, LossReason};

use super::group::{Change, Group};
use super::lock::Guard;
use super::signals::Inbox;
use super::supervisor::{Action, Input, Notice, Outcome, Supervisor};
use super::terminal::Terminal;
use crate::say;

/// Everything that a command's course touches.
pub(crate) struct Course<'a> {
    pub(crate) path: &'a str,
    pub(crate) guard: &'a Guard,
    pub(crate) group: &'a Group,
    pub(crate) terminal: &'a Terminal,
    pub(crate) inbox: &'a Inbox,
    pub(crate) connection: Receiver<ConnectionEvent>,
    pub(crate) supervisor: Supervisor,
    pub(crate) known: Known,
}

/// What became known on the way.
#[derive(Default)]
pub(crate) struct Known {
    /// Why the lock was lost.
    pub(crate) loss: Option<LossReason>,
    /// Why the command could not be run.
    pub(crate) failure: Option<io::Error>,
}

impl Course<'_> {
    /// Returns when nobody of the group is left and the lock may be given back.
    pub(crate) fn follow(mut self) -> (Outcome, Known) {
        let mut lost = self.guard.lost();
        let mut revocation = self.guard.revocation();
        loop {
            if let Some(outcome) = self.supervisor.outcome() {
                return (outcome, self.known);
            }
            let now = Instant::now();
            let wake = self.supervisor.wake_at(now, self.guard.certainty());
            let timer = wake.map_or_else(never, crossbeam_channel::at);
            select! {
                recv(self.inbox.forwarded) -> signal => {
                    if let Ok(signal) = signal {
                        self.step(Input::Signal(signal));
                    }
                }
                recv(self.inbox.children) -> _ => self.bury(),
                recv(self.inbox.resumed) -> _ => self.step(Input::Resumed),
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
                recv(timer) -> _ => self.step(Input::Time),
            }
            if self.supervisor.is_leaving() && self.group.is_empty() {
                self.step(Input::Emptied);
            }
        }
    }

    fn bury(&mut self) {
        for change in self.group.changes() {
            if let Change::Ended(_) = change {
                self.known.failure = self.group.failure();
                if self.known.failure.is_some() {
                    self.supervisor.hold_no_longer(Instant::now());
                }
            }
            self.step(match change {
                Change::Ended(ending) => Input::Ended(ending),
                Change::Stopped(signal) => Input::Stopped {
                    signal,
                    foreground: self.terminal.is_ours(),
                },
                Change::Continued => Input::Continued,
            });
        }
    }

    fn step(&mut self, input: Input) {
        // Asked each time: the lock is looked at before anything is done about the command.
        let certainty = self.guard.certainty();
        for action in self.supervisor.step(Instant::now(), certainty, input) {
            self.act(action);
        }
    }

    fn act(&self, action: Action) {
        match action {
            Action::Signal(signal) => self.group.signal(signal),
            Action::TakeTerminal => self.terminal.take_from(self.group.id()),
            Action::GiveTerminal => self.terminal.give_to(self.group.id()),
            Action::Suspend(signal) => {
                // All of our group, as the terminal would have done: there may be a pipeline. When
                // it is over a SIGCONT comes; until then nothing is done for the command. One from
                // before would let it go on while we stop.
                while self.inbox.resumed.try_recv().is_ok() {}
                if let Some(signal) = Signal::from_named_raw(signal) {
                    let _ = kill_current_process_group(signal);
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
            Notice::LeftBehind { killed: false } => say(format_args!(
                "{path}: the command has left processes running; asking them to end"
            )),
            Notice::LeftBehind { killed: true } => say(format_args!(
                "{path}: the command has left processes running; killing them"
            )),
            Notice::Undying => say(format_args!(
                "{path}: process group {} does not end; giving up on it",
                self.group.id().as_raw_nonzero()
            )),
            Notice::Revoked => say(format_args!(
                "{path}: somebody asks for the lock; asking the command to end"
            )),
        }
    }
}
