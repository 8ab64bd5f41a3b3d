//! What to do with the command, and when: a state machine. No clock, no process and no lock is
//! touched here; `course` feeds it and does what it says.

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCONT, SIGHUP, SIGKILL, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};

use super::certainty::Certainty;

/// How often to look whether the group is empty, where nothing announces it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Some time has passed, or there is news of the lock.
    Time,
    /// The command itself ended; others of its group may live.
    Ended(Ending),
    /// Nobody of the group is left.
    Emptied,
    /// The command was stopped by a signal. `foreground`: our own group has the terminal.
    Stopped { signal: i32, foreground: bool },
    /// The command goes on, by whomever.
    Continued,
    /// We were continued.
    Resumed,
    /// Somebody sent us this.
    Signal(i32),
    /// Somebody asks for the lock.
    Revoked,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Exit(i32),
    Signal(i32),
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send this to the group.
    Signal(i32),
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
    /// The lock may be lost soon; the command was asked to end.
    Doubtful,
    /// The lock is lost; the command was killed.
    Lost,
    /// The command has ended; what it left running was asked to end, or killed.
    LeftBehind { killed: bool },
    /// Not even SIGKILL has ended what is left.
    Undying,
    /// Somebody asks for the lock; the command was asked to end.
    Revoked,
}

/// How it all ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) ending: Ending,
    /// We ended the command because the lock was lost, or about to be.
    pub(crate) lost: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) kill_after: Duration,
    /// What asks the command to end.
    pub(crate) signal: i32,
    /// `--at-least`.
    pub(crate) hold_until: Instant,
    /// A shell runs us as a job, which it can continue when we have stopped.
    pub(crate) job_control: bool,
}

/// Where the group is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The command lives.
    Running,
    /// It ended at that moment, and others of its group live.
    Leaving {
        ending: Ending,
        since: Instant,
    },
    /// Nobody is left; the lock is held on.
    Keeping(Ending),
    Over(Ending),
}

/// How hard we have tried to end the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pressure {
    None,
    Asked,
    Killed { at: Instant },
}

#[derive(Debug)]
pub(crate) struct Supervisor {
    settings: Settings,
    phase: Phase,
    stopped: bool,
    pressure: Pressure,
    /// We pressed because of the lock.
    lost: bool,
}

impl Supervisor {
    /// For a command that is about to start.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            phase: Phase::Running,
            stopped: false,
            pressure: Pressure::None,
            lost: false,
        }
    }

    /// Takes what happened at `now`, when `certainty` was known of the lock, and says what to do.
    ///
    /// The lock comes first: whatever happened, a group whose lock is over is killed before it is
    /// let go on.
    pub(crate) fn step(&mut self, now: Instant, certainty: Certainty, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        self.judge(now, certainty, input, &mut actions);
        match input {
            Input::Time => {}
            Input::Ended(ending) => self.ended(now, ending, &mut actions),
            Input::Emptied => self.emptied(),
            Input::Stopped { signal, foreground } => {
                self.was_stopped(signal, foreground, &mut actions);
            }
            Input::Continued => self.stopped = false,
            Input::Resumed => self.resume(&mut actions),
            Input::Signal(signal) => self.forward(signal, &mut actions),
            Input::Revoked => self.revoked(&mut actions),
        }
        self.clear_away(now, &mut actions);
        if let Phase::Keeping(ending) = self.phase {
            let is_gone = self.lost || certainty == Certainty::Over;
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
        let of_the_lock = match certainty {
            Certainty::Until(end) if self.has_group() => match self.pressure {
                Pressure::None => Some(self.ask_at(end)),
                Pressure::Asked => Some(end),
                Pressure::Killed { .. } => None,
            },
            _ => None,
        };
        let of_the_phase = match self.phase {
            Phase::Leaving { .. } => Some(now + LOOK_EVERY),
            Phase::Keeping(_) => Some(self.settings.hold_until),
            Phase::Running | Phase::Over(_) => None,
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

    /// Whether somebody of the group may live though the command has ended.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving { .. })
    }

    fn has_group(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Leaving { .. })
    }

    fn ask_at(&self, end: Instant) -> Instant {
        end.checked_sub(self.settings.kill_after).unwrap_or(end)
    }

    /// Acts on what is known of the lock.
    fn judge(
        &mut self,
        now: Instant,
        certainty: Certainty,
        input: Input,
        actions: &mut Vec<Action>,
    ) {
        if !self.has_group() {
            return;
        }
        let (doubtful, over) = match certainty {
            Certainty::Until(end) => (now >= self.ask_at(end), now >= end),
            Certainty::Over => (true, true),
        };
        if over {
            // Also when the last of the group has just ended: it may have ended after the lock.
            self.lost = true;
            if !matches!(self.pressure, Pressure::Killed { .. }) {
                actions.push(Action::Tell(Notice::Lost));
                self.kill(now, actions);
            }
        } else if doubtful && self.pressure == Pressure::None && !is_an_end(input) {
            self.lost = true;
            actions.push(Action::Tell(Notice::Doubtful));
            self.ask(actions);
        }
    }

    fn ask(&mut self, actions: &mut Vec<Action>) {
        self.pressure = Pressure::Asked;
        actions.push(Action::Signal(self.settings.signal));
        // What is stopped cannot act on it.
        actions.push(Action::Signal(SIGCONT));
    }

    fn kill(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.pressure = Pressure::Killed { at: now };
        actions.push(Action::Signal(SIGKILL));
    }

    fn ended(&mut self, now: Instant, ending: Ending, actions: &mut Vec<Action>) {
        if self.phase == Phase::Running {
            self.phase = Phase::Leaving { ending, since: now };
            self.stopped = false;
            actions.push(Action::TakeTerminal);
        }
    }

    fn emptied(&mut self) {
        if let Phase::Leaving { ending, .. } = self.phase {
            self.phase = Phase::Keeping(ending);
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

    /// The command is asked once, and does what it wants.
    fn revoked(&mut self, actions: &mut Vec<Action>) {
        if self.has_group() && self.pressure == Pressure::None {
            actions.push(Action::Tell(Notice::Revoked));
            actions.push(Action::Signal(self.settings.signal));
            actions.push(Action::Signal(SIGCONT));
        }
    }

    /// Ends what the command left running: it gets some time to end by itself (a filter at the end
    /// of a pipe has to read what is in it), then some after it was asked.
    fn clear_away(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Phase::Leaving { ending, since } = self.phase else {
            return;
        };
        let for_long = |times: u32| now >= since + self.settings.kill_after * times;
        match self.pressure {
            Pressure::None if for_long(1) => {
                actions.push(Action::Tell(Notice::LeftBehind { killed: false }));
                self.ask(actions);
            }
            Pressure::Asked if for_long(2) => {
                actions.push(Action::Tell(Notice::LeftBehind { killed: true }));
                self.kill(now, actions);
            }
            Pressure::Killed { at } if now >= at + self.settings.kill_after && for_long(1) => {
                // A process in the kernel's hands, or one that ended and that nobody has buried.
                actions.push(Action::Tell(Notice::Undying));
                self.phase = Phase::Keeping(ending);
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
