//! What to do with the command, and when: a state machine. No clock, no process and no lock is
//! touched here; `course` feeds it and does what it says.

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};

use super::certainty::Certainty;

/// How often to kill again what a kill has not ended.
const KILL_EVERY: Duration = Duration::from_millis(50);

/// How long the news may take that nobody is left: it comes behind that of the command's end. Before,
/// nobody is said to be left, however little time is given.
const EMPTIED: Duration = Duration::from_millis(100);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Some time has passed, or there is news of the lock.
    Time,
    /// The command itself ended; others of the job may live.
    Ended(Ending),
    /// Nobody of the job is left.
    Emptied,
    /// The command was stopped by a signal. `foreground`: our own group has the terminal.
    Stopped { signal: i32, foreground: bool },
    /// The command goes on, by whomever.
    Continued,
    /// We were continued.
    Resumed,
    /// Somebody sent us this.
    Signal(i32),
    /// Somebody sent this to us and to the command.
    Known(i32),
    /// The key that stops was sent to us.
    StopKey,
    /// Somebody asks for the lock.
    Revoked,
    /// The watchdog has killed the job: it was not told in time that the lock is ours.
    Late,
    /// The watchdog has died.
    Unguarded,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Exit(i32),
    Signal(i32),
    /// Nobody knows, or it lives.
    Unknown,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send this to the command's process group.
    Signal(i32),
    /// Send this to everybody of the job, and have them go on.
    Ask(i32),
    /// The same, but for those of the command's group who have heard the other signal.
    AskOthers {
        signal: i32,
        heard: i32,
    },
    /// Kill everybody of the job.
    Kill,
    /// Let go of what the command has left running.
    Leave,
    /// Take the terminal back if the group has it.
    TakeTerminal,
    /// Give the group the terminal if we have it.
    GiveTerminal,
    /// Stop our own group, as the command was stopped.
    Suspend(i32),
    Tell(Notice),
}

/// What the user should hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The lock may be lost soon; the job was asked to end.
    Doubtful,
    /// The lock is lost; the job was killed.
    Lost,
    /// `--at-most` is nearly over; the job was asked to end, or it is over, and it was killed.
    TooLong { killed: bool },
    /// The watchdog has died; the job was killed.
    Unguarded,
    /// The watchdog has killed the job.
    Late,
    /// The command has ended; what it left running was asked to end, or killed.
    LeftBehind { killed: bool },
    /// Not even SIGKILL has ended what is left; the lock is kept.
    Undying,
    /// The lock is over, and somebody lives.
    Outlived,
    /// Somebody asks for the lock; the job was asked to end.
    Revoked,
}

/// Why we ended the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The lock was lost, or about to be.
    Lock,
    /// `--at-most`.
    TooLong,
    /// The watchdog had not heard from us in time.
    Late,
    /// The watchdog was gone.
    Unguarded,
}

/// How it all ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) ending: Ending,
    /// Why we ended the command, if we did.
    pub(crate) lost: Option<Cause>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) kill_after: Duration,
    /// What asks the command to end.
    pub(crate) signal: i32,
    /// `--at-least`.
    pub(crate) hold_until: Instant,
    /// `--at-most`.
    pub(crate) end_by: Option<Instant>,
    /// How long before that to ask: less than `kill_after` in a time that is hardly longer.
    pub(crate) end_grace: Duration,
    /// `--leave-children`.
    pub(crate) leave_children: bool,
    /// `--again`: the next command of ours shall not meet what is left of this one either.
    pub(crate) again: bool,
    /// A shell runs us as a job, which it can continue when we have stopped.
    pub(crate) job_control: bool,
}

/// Where the job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The command lives.
    Running,
    /// It ended at that moment, and others of the job live.
    Leaving {
        ending: Ending,
        since: Instant,
    },
    /// Nobody is left; the lock is held on.
    Keeping(Ending),
    Over(Ending),
}

/// How hard we have tried to end the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pressure {
    None,
    Asked { at: Instant },
    Killed { at: Instant },
}

#[derive(Debug)]
pub(crate) struct Supervisor {
    settings: Settings,
    phase: Phase,
    stopped: bool,
    pressure: Pressure,
    /// Why we pressed, if not to clear away what the command had left.
    lost: Option<Cause>,
    /// A signal that ends was passed on to the command's group.
    told_to_end: Option<i32>,
    /// Everybody of the job has heard it, from whoever sent it to us.
    all_told: bool,
    /// It was said that somebody does not die.
    undying: bool,
    /// It was said that somebody lives though the lock is over.
    outlived: bool,
}

impl Supervisor {
    /// For a command that is about to start.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            phase: Phase::Running,
            stopped: false,
            pressure: Pressure::None,
            lost: None,
            told_to_end: None,
            all_told: false,
            undying: false,
            outlived: false,
        }
    }

    /// Takes what happened at `now`, when `certainty` was known of the lock, and says what to do.
    ///
    /// The lock comes first: whatever happened, a job whose lock is over is killed before it is
    /// let go on. And a kill comes before what is said of it.
    pub(crate) fn step(&mut self, now: Instant, certainty: Certainty, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        self.judge(now, certainty, input, &mut actions);
        match input {
            Input::Ended(ending) => self.ended(now, ending, &mut actions),
            Input::Emptied => self.emptied(),
            Input::Stopped { signal, foreground } => {
                self.was_stopped(signal, foreground, &mut actions);
            }
            Input::Continued => self.stopped = false,
            Input::Resumed => self.resume(&mut actions),
            Input::Signal(signal) => self.forward(signal, &mut actions),
            Input::Known(signal) => {
                self.heard(signal);
                self.all_told = self.told_to_end.is_some();
            }
            Input::StopKey if self.phase == Phase::Running => {
                actions.push(Action::Signal(SIGTSTP));
            }
            Input::StopKey | Input::Time => {}
            Input::Revoked => self.revoked(&mut actions),
            Input::Late => self.too_late(now, Cause::Late, Notice::Late, &mut actions),
            Input::Unguarded => {
                self.too_late(now, Cause::Unguarded, Notice::Unguarded, &mut actions);
            }
        }
        self.clear_away(now, certainty, &mut actions);
        if let Phase::Keeping(ending) = self.phase {
            let is_gone = self.lost.is_some() || certainty == Certainty::Over;
            if is_gone || now >= self.settings.hold_until {
                self.phase = Phase::Over(ending);
            }
        }
        actions
    }

    /// The command could not be run: there is nothing to hold the lock for.
    pub(crate) fn hold_no_longer(&mut self, now: Instant) {
        self.settings.hold_until = now;
    }

    /// When to step again at the latest, if nothing happens.
    pub(crate) fn wake_at(&self, now: Instant, certainty: Certainty) -> Option<Instant> {
        let of_the_lock = match (self.end(certainty), self.pressure) {
            _ if !self.has_job() => None,
            (_, Pressure::Killed { .. }) => Some(now + KILL_EVERY),
            (Certainty::Until(end), Pressure::None) => Some(self.ask_at(end)),
            (Certainty::Until(end), Pressure::Asked { .. }) => Some(end),
            (Certainty::Over, _) => None,
        };
        let of_the_phase = match (self.phase, self.pressure) {
            (Phase::Leaving { since, .. }, Pressure::None) => Some(self.later(since)),
            (Phase::Leaving { .. }, Pressure::Asked { at }) => Some(self.later(at)),
            (Phase::Keeping(_), _) => Some(self.settings.hold_until),
            _ => None,
        };
        of_the_lock.into_iter().chain(of_the_phase).min()
    }

    /// Set once all is over.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self.phase {
            Phase::Over(ending) => Some(Outcome {
                ending,
                lost: self.lost,
            }),
            _ => None,
        }
    }

    /// Until when the job may run, for all that is known: for the watchdog.
    pub(crate) fn deadline(&self, certainty: Certainty) -> Option<Instant> {
        match self.end(certainty) {
            Certainty::Until(end) if self.has_job() => Some(end),
            _ => None,
        }
    }

    /// Whether everybody of the job is to be killed, again and again.
    pub(crate) fn is_killing(&self) -> bool {
        self.has_job() && matches!(self.pressure, Pressure::Killed { .. })
    }

    fn has_job(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Leaving { .. })
    }

    /// The end of the lock, or of the time that the job may take.
    fn end(&self, certainty: Certainty) -> Certainty {
        match (certainty, self.settings.end_by) {
            (Certainty::Until(end), Some(end_by)) => Certainty::Until(end.min(end_by)),
            (certainty, _) => certainty,
        }
    }

    /// When to ask, so that there is time to end.
    fn ask_at(&self, end: Instant) -> Instant {
        let grace = if self.settings.end_by == Some(end) {
            self.settings.end_grace
        } else {
            self.settings.kill_after
        };
        end.checked_sub(grace).unwrap_or(end)
    }

    fn later(&self, since: Instant) -> Instant {
        since + self.settings.kill_after.max(EMPTIED)
    }

    /// Acts on what is known of the lock.
    fn judge(
        &mut self,
        now: Instant,
        certainty: Certainty,
        input: Input,
        actions: &mut Vec<Action>,
    ) {
        if !self.has_job() {
            return;
        }
        let (cause, doubtful, over) = match self.end(certainty) {
            Certainty::Until(end) => {
                let cause = match certainty {
                    Certainty::Until(lock) if end < lock => Cause::TooLong,
                    _ => Cause::Lock,
                };
                (cause, now >= self.ask_at(end), now >= end)
            }
            Certainty::Over => (Cause::Lock, true, true),
        };
        let notice = |killed| match cause {
            Cause::TooLong => Notice::TooLong { killed },
            _ if killed => Notice::Lost,
            _ => Notice::Doubtful,
        };
        if over {
            // Also when the last of the job has just ended: it may have ended after the lock.
            self.too_late(now, cause, notice(true), actions);
        } else if doubtful && self.pressure == Pressure::None && !is_an_end(input) {
            self.lost.get_or_insert(cause);
            self.ask(now, actions);
            actions.push(Action::Tell(notice(false)));
        }
    }

    fn too_late(&mut self, now: Instant, cause: Cause, notice: Notice, actions: &mut Vec<Action>) {
        if !self.has_job() {
            return;
        }
        let is_news = self.lost.is_none() || !matches!(self.pressure, Pressure::Killed { .. });
        self.lost.get_or_insert(cause);
        if !matches!(self.pressure, Pressure::Killed { .. }) {
            self.kill(now, actions);
        }
        if is_news {
            actions.push(Action::Tell(notice));
        }
    }

    fn ask(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.pressure = Pressure::Asked { at: now };
        actions.push(Action::Ask(self.settings.signal));
    }

    fn kill(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.pressure = Pressure::Killed { at: now };
        actions.push(Action::Kill);
    }

    fn ended(&mut self, now: Instant, ending: Ending, actions: &mut Vec<Action>) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Leaving { ending, since: now };
        self.stopped = false;
        actions.push(Action::TakeTerminal);
        if self.settings.leave_children && self.pressure == Pressure::None {
            self.phase = Phase::Keeping(ending);
            actions.push(Action::Leave);
        }
    }

    fn emptied(&mut self) {
        match self.phase {
            Phase::Leaving { ending, .. } => self.phase = Phase::Keeping(ending),
            // Its end was not told, as with a watchdog that died.
            Phase::Running => self.phase = Phase::Keeping(Ending::Unknown),
            Phase::Keeping(_) | Phase::Over(_) => {}
        }
    }

    fn was_stopped(&mut self, signal: i32, foreground: bool, actions: &mut Vec<Action>) {
        if self.phase != Phase::Running {
            return;
        }
        self.stopped = true;
        if foreground && matches!(signal, SIGTTIN | SIGTTOU) {
            // It wants the terminal, which a shell has given to us since it started.
            self.resume(actions);
        } else if self.settings.job_control {
            actions.push(Action::TakeTerminal);
            actions.push(Action::Suspend(signal));
        } else if signal == SIGTSTP {
            // A key that does nothing where there is no shell to go back to.
            actions.push(Action::Signal(SIGCONT));
        }
        // Else nobody would continue us, and what only continued the command would find it
        // without a guard.
    }

    fn resume(&mut self, actions: &mut Vec<Action>) {
        let doomed = matches!(self.pressure, Pressure::Killed { .. });
        if self.stopped && self.phase == Phase::Running && !doomed {
            self.stopped = false;
            actions.push(Action::GiveTerminal);
            actions.push(Action::Signal(SIGCONT));
        }
    }

    fn forward(&mut self, signal: i32, actions: &mut Vec<Action>) {
        self.heard(signal);
        match self.phase {
            Phase::Running | Phase::Leaving { .. } => {
                actions.push(Action::Signal(signal));
                if matches!(signal, SIGTERM | SIGHUP) {
                    actions.push(Action::Signal(SIGCONT));
                }
            }
            Phase::Keeping(ending) => self.phase = Phase::Over(ending),
            Phase::Over(_) => {}
        }
    }

    fn heard(&mut self, signal: i32) {
        // Who has heard what asks needs not be asked, whatever else it has heard.
        if matches!(signal, SIGTERM | SIGHUP | SIGINT | SIGQUIT)
            && self.told_to_end != Some(self.settings.signal)
        {
            self.told_to_end = Some(signal);
        }
    }

    /// The command is asked once, and does what it wants.
    fn revoked(&mut self, actions: &mut Vec<Action>) {
        if self.has_job() && self.pressure == Pressure::None {
            actions.push(Action::Ask(self.settings.signal));
            actions.push(Action::Tell(Notice::Revoked));
        }
    }

    /// Ends what the command left running: it gets some time to end by itself (a filter at the end
    /// of a pipe has to read what is in it), then some after it was asked. Who was told to end takes
    /// what it left with it: those who have heard it too are not asked again, as some programs take a
    /// second TERM for impatience.
    fn clear_away(&mut self, now: Instant, certainty: Certainty, actions: &mut Vec<Action>) {
        let (ending, since) = match self.phase {
            Phase::Leaving { ending, since } => (ending, Some(since)),
            Phase::Running => (Ending::Unknown, None),
            Phase::Keeping(_) | Phase::Over(_) => return,
        };
        match (self.pressure, since) {
            (Pressure::None, Some(since)) => match self.told_to_end {
                Some(heard) => {
                    self.pressure = Pressure::Asked { at: now };
                    if !self.all_told {
                        let signal = self.settings.signal;
                        actions.push(Action::AskOthers { signal, heard });
                    }
                }
                None if now >= self.later(since) => {
                    self.ask(now, actions);
                    actions.push(Action::Tell(Notice::LeftBehind { killed: false }));
                }
                None => {}
            },
            (Pressure::Asked { at }, Some(since)) if now >= self.later(at.max(since)) => {
                self.kill(now, actions);
                actions.push(Action::Tell(Notice::LeftBehind { killed: true }));
            }
            (Pressure::Killed { at }, _) if now >= self.later(at).max(at + KILL_EVERY) => {
                // In the kernel's hands, or another user's. Nobody else may meet it for as long
                // as we can help it.
                if certainty == Certainty::Over {
                    self.lost.get_or_insert(Cause::Lock);
                    if !self.outlived {
                        self.outlived = true;
                        actions.push(Action::Tell(Notice::Outlived));
                    }
                    if !self.settings.again || self.told_to_end.is_some() {
                        self.phase = Phase::Over(ending);
                    }
                } else if !self.undying {
                    self.undying = true;
                    actions.push(Action::Tell(Notice::Undying));
                }
            }
            _ => {}
        }
    }
}

/// Who has just ended needs not be asked to.
fn is_an_end(input: Input) -> bool {
    matches!(input, Input::Ended(_) | Input::Emptied)
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
