//! Courses of a command's life, told as lists of what happens and what is done about it.

use signal_hook::consts::{SIGINT, SIGKILL, SIGSTOP, SIGUSR1};

use super::*;

const KILL_AFTER: Duration = Duration::from_secs(2);

/// A supervisor and a clock that only this test moves.
struct Story {
    supervisor: Supervisor,
    begun: Instant,
    now: Instant,
    certainty: Certainty,
}

/// A lock of which no end is near.
const LONG: Duration = Duration::from_secs(3600);

impl Story {
    fn with(change: impl FnOnce(&mut Settings, Instant)) -> Self {
        let begun = Instant::now();
        let mut settings = Settings {
            kill_after: KILL_AFTER,
            signal: SIGTERM,
            hold_until: begun,
            end_by: None,
            end_grace: KILL_AFTER,
            leave_children: false,
            again: false,
            job_control: true,
        };
        change(&mut settings, begun);
        Self {
            supervisor: Supervisor::new(settings),
            begun,
            now: begun,
            certainty: Certainty::Until(begun + LONG),
        }
    }

    fn new() -> Self {
        Self::with(|_, _| {})
    }

    fn at(&self, seconds: u64) -> Instant {
        self.begun + Duration::from_secs(seconds)
    }

    /// Lets it be so many seconds after the beginning.
    #[track_caller]
    fn wait_until(&mut self, seconds: u64) -> Vec<Action> {
        self.now = self.at(seconds);
        self.happens(Input::Time)
    }

    fn know(&mut self, certainty: Certainty) -> Vec<Action> {
        self.certainty = certainty;
        self.happens(Input::Time)
    }

    fn happens(&mut self, input: Input) -> Vec<Action> {
        self.supervisor.step(self.now, self.certainty, input)
    }

    fn wake_at(&self) -> Option<Instant> {
        self.supervisor.wake_at(self.now, self.certainty)
    }

    fn ends(&mut self, ending: Ending) -> Option<Outcome> {
        assert_eq!(self.happens(Input::Ended(ending)), [Action::TakeTerminal]);
        assert_eq!(self.happens(Input::Emptied), []);
        self.supervisor.outcome()
    }
}

const ASKED: [Action; 1] = [Action::Ask(SIGTERM)];

#[test]
fn a_quiet_life() {
    let mut story = Story::new();
    assert_eq!(story.wake_at(), Some(story.at(3600) - KILL_AFTER));
    assert_eq!(story.wait_until(1000), []);
    let ending = Ending::Exit(3);
    let lost = None;
    assert_eq!(story.ends(ending), Some(Outcome { ending, lost }));
}

#[test]
fn a_lock_that_ends_is_left_in_time() {
    let mut story = Story::new();
    let end = story.at(10);
    assert_eq!(story.know(Certainty::Until(end)), []);
    assert_eq!(story.wake_at(), Some(story.at(8)));
    assert_eq!(story.wait_until(7), []);
    let asked = story.wait_until(8);
    assert_eq!(asked[..1], ASKED);
    assert_eq!(asked[1..], [Action::Tell(Notice::Doubtful)]);
    assert_eq!(story.wake_at(), Some(end));
    assert_eq!(story.wait_until(9), []);
    let killed = [Action::Kill, Action::Tell(Notice::Lost)];
    assert_eq!(story.wait_until(10), killed);
    assert_eq!(story.wake_at(), Some(story.at(10) + KILL_EVERY));
    assert!(story.supervisor.is_killing());
    assert_eq!(story.wait_until(11), []);
    let ending = Ending::Signal(SIGKILL);
    let lost = Some(Cause::Lock);
    assert_eq!(story.ends(ending), Some(Outcome { ending, lost }));
}

#[test]
fn contact_that_comes_back_in_time_changes_nothing() {
    let mut story = Story::new();
    let end = story.at(10);
    assert_eq!(story.know(Certainty::Until(end)), []);
    story.wait_until(7);
    assert_eq!(story.know(Certainty::Until(story.at(3600))), []);
    assert_eq!(story.wake_at(), Some(story.at(3600) - KILL_AFTER));
    assert_eq!(story.wait_until(20), []);
    assert_eq!(
        story.ends(Ending::Exit(0)).map(|outcome| outcome.lost),
        Some(None)
    );
}

/// It ended after the lock had: what it did last, another may have seen.
#[test]
fn a_command_that_ends_after_its_lock_has_lost_it() {
    let mut story = Story::new();
    story.certainty = Certainty::Over;
    let actions = story.happens(Input::Ended(Ending::Exit(0)));
    // For those whom it left running.
    assert!(actions.contains(&Action::Kill), "{actions:?}");
    story.happens(Input::Emptied);
    assert!(
        story
            .supervisor
            .outcome()
            .is_some_and(|outcome| outcome.lost.is_some())
    );
}

#[test]
fn a_command_that_ends_in_doubt_has_not_lost_its_lock() {
    let mut story = Story::new();
    story.certainty = Certainty::Until(story.at(1));
    assert_eq!(
        story.ends(Ending::Exit(0)).map(|outcome| outcome.lost),
        Some(None)
    );
}

#[test]
fn what_is_left_running_gets_time_then_is_asked_then_killed() {
    let mut story = Story::new();
    let ending = Ending::Exit(0);
    assert_eq!(story.happens(Input::Ended(ending)), [Action::TakeTerminal]);
    assert_eq!(story.wait_until(1), []);
    let asked = story.wait_until(2);
    assert_eq!(asked[..1], ASKED);
    assert_eq!(
        asked[1..],
        [Action::Tell(Notice::LeftBehind { killed: false })]
    );
    assert_eq!(story.wait_until(3), []);
    let killed = story.wait_until(4);
    assert_eq!(killed[..1], [Action::Kill]);
    assert_eq!(story.wait_until(5), []);
    assert_eq!(story.supervisor.outcome(), None);
    assert_eq!(story.wait_until(6), [Action::Tell(Notice::Undying)]);
    // The lock is kept over the living.
    assert_eq!(story.wait_until(1000), []);
    assert_eq!(story.supervisor.outcome(), None);
    assert_eq!(story.happens(Input::Emptied), []);
    let lost = None;
    assert_eq!(story.supervisor.outcome(), Some(Outcome { ending, lost }));
}

/// The news that nobody is left comes after that of the end, also where nobody is given time.
#[test]
fn who_gives_no_time_hears_of_no_processes_that_are_not_there() {
    let without_time = || Story::with(|settings, _| settings.kill_after = Duration::ZERO);
    let mut story = without_time();
    let ended = story.happens(Input::Ended(Ending::Exit(0)));
    assert_eq!(ended, [Action::TakeTerminal]);
    assert_eq!(story.happens(Input::Emptied), []);
    assert!(story.supervisor.outcome().is_some());
    let mut story = without_time();
    story.happens(Input::Signal(SIGTERM));
    let ended = story.happens(Input::Ended(Ending::Signal(SIGTERM)));
    let (signal, heard) = (SIGTERM, SIGTERM);
    let asked = Action::AskOthers { signal, heard };
    assert_eq!(ended, [Action::TakeTerminal, asked]);
    assert_eq!(story.happens(Input::Time), []);
    assert_eq!(story.happens(Input::Emptied), []);
    // What is there is ended as ever.
    let mut story = without_time();
    story.happens(Input::Ended(Ending::Exit(0)));
    let told = Action::Tell(Notice::LeftBehind { killed: false });
    assert_eq!(story.wait_until(1), [ASKED[0], told]);
    assert_eq!(story.wait_until(2)[..1], [Action::Kill]);
}

#[test]
fn a_lost_lock_gives_no_time_to_what_is_left_running() {
    let mut story = Story::new();
    story.happens(Input::Ended(Ending::Exit(0)));
    let actions = story.know(Certainty::Over);
    assert_eq!(actions, [Action::Kill, Action::Tell(Notice::Lost)]);
}

#[test]
fn a_lock_is_held_for_at_least_so_long() {
    let mut story = Story::with(|settings, begun| {
        settings.hold_until = begun + Duration::from_secs(5);
    });
    story.now = story.at(1);
    let ending = Ending::Exit(0);
    assert_eq!(story.ends(ending), None);
    assert_eq!(story.wake_at(), Some(story.at(5)));
    assert_eq!(story.know(Certainty::Until(story.at(100))), []);
    assert_eq!(story.supervisor.outcome(), None);
    assert_eq!(story.wait_until(5), []);
    let lost = None;
    assert_eq!(story.supervisor.outcome(), Some(Outcome { ending, lost }));
}

#[test]
fn a_lock_that_went_is_not_held_on() {
    for went_before in [false, true] {
        let mut story = Story::with(|settings, begun| {
            settings.hold_until = begun + Duration::from_secs(5);
        });
        let ending = Ending::Signal(SIGKILL);
        if went_before {
            story.know(Certainty::Over);
        }
        story.ends(ending);
        assert_eq!(story.know(Certainty::Over), []);
        // The command that had ended before has come to no harm.
        let lost = went_before.then_some(Cause::Lock);
        let outcome = Outcome { ending, lost };
        assert_eq!(story.supervisor.outcome(), Some(outcome));
    }
}

#[test]
fn a_signal_ends_holding_on() {
    let mut story = Story::with(|settings, begun| {
        settings.hold_until = begun + Duration::from_secs(5);
    });
    assert_eq!(story.ends(Ending::Exit(0)), None);
    assert_eq!(story.happens(Input::Signal(SIGTERM)), []);
    assert!(story.supervisor.outcome().is_some());
}

#[test]
fn signals_are_passed_on() {
    let mut story = Story::new();
    for signal in [SIGINT, SIGUSR1] {
        assert_eq!(
            story.happens(Input::Signal(signal)),
            [Action::Signal(signal)]
        );
    }
    // What is stopped could not act on it.
    let passed_on = [Action::Signal(SIGTERM), Action::Signal(SIGCONT)];
    assert_eq!(story.happens(Input::Signal(SIGTERM)), passed_on);
    story.happens(Input::Ended(Ending::Exit(0)));
    assert_eq!(
        story.happens(Input::Signal(SIGINT)),
        [Action::Signal(SIGINT)]
    );
}

const STOPPED: Input = Input::Stopped {
    signal: SIGTSTP,
    foreground: false,
};

#[test]
fn a_command_that_stops_stops_us_and_goes_on_with_us() {
    let mut story = Story::new();
    let suspended = [Action::TakeTerminal, Action::Suspend(SIGTSTP)];
    assert_eq!(story.happens(STOPPED), suspended);
    let resumed = [Action::GiveTerminal, Action::Signal(SIGCONT)];
    assert_eq!(story.happens(Input::Resumed), resumed);
    // A second SIGCONT, as shells send it, does nothing to what runs.
    assert_eq!(story.happens(Input::Resumed), []);
}

#[test]
fn a_stopped_command_does_not_go_on_when_its_lock_has_gone_meanwhile() {
    let mut story = Story::new();
    story.happens(STOPPED);
    story.certainty = Certainty::Over;
    let killed = [Action::Kill, Action::Tell(Notice::Lost)];
    assert_eq!(story.happens(Input::Resumed), killed);
}

#[test]
fn without_a_shell_nobody_would_continue_us() {
    let mut story = Story::with(|settings, _| settings.job_control = false);
    assert_eq!(story.happens(STOPPED), [Action::Signal(SIGCONT)]);
    story.happens(Input::Continued);
    // This one somebody meant.
    let stopped = Input::Stopped {
        signal: SIGSTOP,
        foreground: true,
    };
    assert_eq!(story.happens(stopped), []);
    assert_eq!(
        story.happens(Input::Resumed),
        [Action::GiveTerminal, Action::Signal(SIGCONT)]
    );
}

/// A shell's `fg` of a job that runs gives us the terminal and tells nobody.
#[test]
fn a_command_that_needs_the_terminal_gets_it_if_we_have_it() {
    let mut story = Story::new();
    let stopped = Input::Stopped {
        signal: SIGTTIN,
        foreground: true,
    };
    let actions = story.happens(stopped);
    assert_eq!(actions, [Action::GiveTerminal, Action::Signal(SIGCONT)]);
}

#[test]
fn a_lock_that_is_asked_for_asks_the_command_once_and_does_not_kill_it() {
    let mut story = Story::new();
    assert_eq!(story.happens(Input::Revoked)[..1], ASKED);
    assert_eq!(story.wait_until(1000), []);
    assert_eq!(
        story.ends(Ending::Exit(0)).map(|outcome| outcome.lost),
        Some(None)
    );
}

#[test]
fn what_does_not_die_outlives_the_lock_at_the_worst() {
    let mut story = Story::new();
    let killed = [Action::Kill, Action::Tell(Notice::Lost)];
    assert_eq!(story.know(Certainty::Over), killed);
    assert_eq!(story.wait_until(1), []);
    assert_eq!(story.wait_until(2), [Action::Tell(Notice::Outlived)]);
    let (ending, lost) = (Ending::Unknown, Some(Cause::Lock));
    assert_eq!(story.supervisor.outcome(), Some(Outcome { ending, lost }));
}

/// The next of `--again` ran beside it.
#[test]
fn what_outlives_the_lock_keeps_the_next_of_ours_away() {
    let mut story = Story::with(|settings, _| settings.again = true);
    story.know(Certainty::Over);
    assert_eq!(story.wait_until(2), [Action::Tell(Notice::Outlived)]);
    assert_eq!(story.wait_until(1000), []);
    assert!(story.supervisor.is_killing());
    assert_eq!(story.supervisor.outcome(), None);
    let ending = Ending::Signal(SIGKILL);
    let lost = Some(Cause::Lock);
    assert_eq!(story.ends(ending), Some(Outcome { ending, lost }));
}

#[test]
fn who_waits_for_what_outlives_the_lock_can_be_told_to_end() {
    let mut story = Story::with(|settings, _| settings.again = true);
    story.know(Certainty::Over);
    story.wait_until(2);
    story.happens(Input::Signal(SIGUSR1));
    assert_eq!(story.supervisor.outcome(), None);
    story.happens(Input::Signal(SIGTERM));
    assert!(story.supervisor.outcome().is_some());
}

#[test]
fn a_command_that_takes_too_long_is_asked_and_killed() {
    let mut story = Story::with(|settings, begun| {
        settings.end_by = Some(begun + Duration::from_secs(10));
    });
    assert_eq!(story.wake_at(), Some(story.at(8)));
    let end = story.supervisor.deadline(story.certainty);
    assert_eq!(end, Some(story.at(10)));
    let told = Action::Tell(Notice::TooLong { killed: false });
    assert_eq!(story.wait_until(8), [ASKED[0], told]);
    let told = Action::Tell(Notice::TooLong { killed: true });
    assert_eq!(story.wait_until(10), [Action::Kill, told]);
    // The lock is ours, so it is kept over what does not die.
    assert_eq!(story.wait_until(12), [Action::Tell(Notice::Undying)]);
    assert_eq!(story.supervisor.outcome(), None);
    let ending = Ending::Signal(SIGKILL);
    let lost = Some(Cause::TooLong);
    assert_eq!(story.ends(ending), Some(Outcome { ending, lost }));
}

/// It was asked as it began.
#[test]
fn a_short_time_to_run_is_not_all_spent_on_asking() {
    let mut story = Story::with(|settings, begun| {
        settings.end_by = Some(begun + Duration::from_secs(2));
        settings.end_grace = Duration::from_secs(1);
    });
    assert_eq!(story.wake_at(), Some(story.at(1)));
    assert_eq!(story.wait_until(0), []);
    assert_eq!(story.wait_until(1)[..1], ASKED);
    assert_eq!(story.wait_until(2)[..1], [Action::Kill]);
}

/// A service's TERM, a terminal's Ctrl-C: whoever sent it did not mean to wait.
#[test]
fn who_was_told_to_end_takes_the_rest_with_it() {
    for heard in [SIGTERM, SIGINT] {
        let mut story = Story::new();
        story.happens(Input::Signal(heard));
        story.happens(Input::Signal(SIGUSR1));
        let ended = story.happens(Input::Ended(Ending::Signal(heard)));
        let signal = SIGTERM;
        let asked = Action::AskOthers { signal, heard };
        assert_eq!(ended, [Action::TakeTerminal, asked]);
        assert_eq!(story.wait_until(1), []);
        assert_eq!(story.wait_until(2)[..1], [Action::Kill]);
    }
}

#[test]
fn who_has_heard_it_from_the_sender_does_not_hear_it_again() {
    let mut story = Story::new();
    assert_eq!(story.happens(Input::Known(SIGTERM)), []);
    let ended = story.happens(Input::Ended(Ending::Signal(SIGTERM)));
    assert_eq!(ended, [Action::TakeTerminal]);
    assert_eq!(story.wait_until(2)[..1], [Action::Kill]);
}

#[test]
fn daemons_may_be_left_but_not_over_a_loss() {
    for is_lost in [false, true] {
        let mut story = Story::with(|settings, _| settings.leave_children = true);
        if is_lost {
            story.know(Certainty::Over);
        }
        let ended = story.happens(Input::Ended(Ending::Exit(0)));
        assert_eq!(ended.contains(&Action::Leave), !is_lost);
        assert_eq!(story.supervisor.outcome().is_some(), !is_lost);
    }
}

#[test]
fn without_a_watchdog_nothing_goes_on() {
    let mut story = Story::new();
    let killed = [Action::Kill, Action::Tell(Notice::Unguarded)];
    assert_eq!(story.happens(Input::Unguarded), killed);
    let ending = Ending::Signal(SIGKILL);
    let lost = Some(Cause::Unguarded);
    assert_eq!(story.ends(ending), Some(Outcome { ending, lost }));
}
