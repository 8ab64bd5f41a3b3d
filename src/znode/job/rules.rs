//! What a holder of the job's lock may make of its record.

use std::collections::HashSet;

use super::record::{JobRecord, Loss, Occasion, Reset, RunRecord, RunState, Times};
use super::text::write_run;
use super::utc::Moment;
use crate::znode::identity::Identity;

/// Half of what ZooKeeper takes in one request by default.
pub(super) const MOST_BYTES: usize = 512 * 1024;

/// Of what is said of a failure.
pub(super) const MOST_WHY_BYTES: usize = 1024;

/// Whether a run that failed or died is followed by another one of the same period or key; see
/// [`OncePerBuilder`](crate::OncePerBuilder::after_failure).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rerun {
    /// Whoever comes next runs it again.
    Again,
    /// Whoever comes next gets an error, whose
    /// [`is_unsettled_run`](crate::Error::is_unsettled_run) is true, until somebody has looked at it
    /// and called [`OncePer::allow_again`](crate::OncePer::allow_again).
    WhenTold,
}

/// The settings of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) after_failure: Rerun,
    pub(crate) after_death: Rerun,
    /// So many missed periods, the latest, get a run each.
    pub(crate) catch_up: u32,
    /// So many runs are remembered; at least one.
    pub(crate) keep: usize,
}

/// Who asks for a run.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) id: String,
    pub(crate) token: u64,
    pub(crate) node: String,
    pub(crate) who: Identity,
}

/// What comes of a wish to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// The run has its place in the record, at the end. To be written.
    Begin,
    /// It was done; or, if it is our own id, was begun before.
    Settled(Box<RunRecord>),
    /// It has failed or died, and nobody has said that it may be run again.
    Unsettled(Box<RunRecord>),
    /// The record is ahead of the clock by more than one period.
    Ahead { greatest: i64, clock: i64 },
}

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Failed(Option<String>),
}

/// What comes of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// To be written.
    Now,
    /// It was written before.
    Already,
    /// The record does not have the run, or has another end of it.
    NotOurs,
}

impl JobRecord {
    /// The lock is ours, so nobody else holds it: whoever has begun and not ended is over. `lost` has
    /// what this process remembers of runs of its own. Returns whether anything has changed.
    pub(crate) fn bury(&mut self, now: Moment, own: &str, lost: &[(String, Loss)]) -> bool {
        let mut changed = false;
        for run in &mut self.runs {
            let is_open = run.state == RunState::Running && run.id != own;
            let remembered = lost.iter().find(|(id, _)| *id == run.id);
            let state = match remembered {
                Some((_, Loss::Session)) => RunState::SessionLost,
                Some((_, Loss::Removed)) => RunState::LockRemoved,
                Some((_, Loss::NotGivenOut)) => RunState::Failed,
                None => RunState::Died,
            };
            // Another may have found it dead before we came to say why.
            let is_news = is_open || (run.state == RunState::Died && state != RunState::Died);
            if is_news {
                if state == RunState::Failed {
                    run.was_not_given_out();
                }
                run.state = state;
                run.ended.get_or_insert(now);
                changed = true;
            }
        }
        changed
    }

    /// The run of this id, if it was begun and has not ended.
    pub(crate) fn open_run(&self, id: &str) -> Option<&RunRecord> {
        let is_it = |run: &&RunRecord| run.id == id && run.state == RunState::Running;
        self.runs.iter().find(is_it)
    }

    /// Ends the run of this id, which nobody got; returns whether it was there.
    pub(crate) fn take_back(&mut self, id: &str, at: Moment) -> bool {
        let is_ended = self.end(id, &End::Failed(None), at) == Ended::Now;
        let mut runs = self.runs.iter_mut();
        if let Some(run) = runs.find(|run| is_ended && run.id == id) {
            run.was_not_given_out();
        }
        is_ended
    }

    /// For who only looks, and has seen that the lock of this run is gone.
    pub(crate) fn has_died(&mut self, id: &str) {
        let mut runs = self.runs.iter_mut();
        let is_it = |run: &&mut RunRecord| run.id == id && run.state == RunState::Running;
        if let Some(run) = runs.find(is_it) {
            run.state = RunState::Died;
        }
    }

    /// Whether a key is done, which needs no clock.
    pub(crate) fn done_key(&self, key: &str) -> Option<&RunRecord> {
        self.of_key(key).filter(|run| run.state == RunState::Done)
    }

    /// A run for this key, or for the period that a run is due for, of a record in which nobody's
    /// run is open.
    pub(crate) fn begin(
        &mut self,
        key: Option<&str>,
        claim: &Claim,
        now: Moment,
        terms: &Terms,
    ) -> Ruling {
        let (occasion, missed) = match (self.times, key) {
            (Times::Periods(periods), _) => match self.due(periods.number_at(now), terms) {
                Ok((number, missed)) => (Occasion::Period(number), missed),
                Err(ahead) => return ahead,
            },
            (Times::Keys, key) => (Occasion::Key(key.unwrap_or_default().to_owned()), 0),
        };
        let mut attempt = 1;
        let mut missed = missed;
        if let Some(at) = self.last_of(&occasion) {
            let last = &self.runs[at];
            if !last.is_free(terms) {
                return match last.state {
                    RunState::Done | RunState::Running => Ruling::Settled(Box::new(last.clone())),
                    _ => Ruling::Unsettled(Box::new(last.clone())),
                };
            }
            attempt = last.attempt.saturating_add(1);
            // Told once.
            missed = 0;
        }
        let (period, greatest) = match (self.times, &occasion) {
            (Times::Periods(periods), Occasion::Period(number)) => {
                (periods.period(*number), Some(*number))
            }
            _ => (None, None),
        };
        self.greatest = greatest;
        self.runs.push(RunRecord {
            occasion,
            period,
            attempt,
            missed,
            state: RunState::Running,
            started: now,
            ended: None,
            token: claim.token,
            node: claim.node.clone(),
            id: claim.id.clone(),
            who: claim.who.clone(),
            why: None,
            again: false,
        });
        self.forget(terms.keep);
        Ruling::Begin
    }

    /// The period to run when the clock says `clock`, and how many before it were never begun.
    fn due(&self, clock: i64, terms: &Terms) -> Result<(i64, u64), Ruling> {
        let Some(greatest) = self.greatest else {
            return Ok((clock, 0));
        };
        if clock < greatest.saturating_sub(1) {
            return Err(Ruling::Ahead { greatest, clock });
        }
        // Behind by one is a clock at a border: the next leader's may be a little late.
        let clock = clock.max(greatest);
        if clock == greatest {
            return Ok((greatest, 0));
        }
        let is_open_to_us = self
            .last_of(&Occasion::Period(greatest))
            .is_some_and(|at| self.runs[at].is_free(terms));
        let next = greatest + 1;
        let oldest = if is_open_to_us { greatest } else { next };
        let number = oldest.max(clock - i64::from(terms.catch_up));
        let missed = u64::try_from(number.saturating_sub(next)).unwrap_or_default();
        Ok((number, missed))
    }

    /// Ends the run of this id.
    pub(crate) fn end(&mut self, id: &str, end: &End, at: Moment) -> Ended {
        let (state, why) = match end {
            End::Done => (RunState::Done, None),
            End::Failed(why) => (RunState::Failed, why.as_deref().map(beginning_of)),
        };
        let Some(run) = self.runs.iter_mut().find(|run| run.id == id) else {
            return Ended::NotOurs;
        };
        if run.state == state {
            return Ended::Already;
        }
        if run.state != RunState::Running {
            return Ended::NotOurs;
        }
        run.state = state;
        run.why = why;
        run.ended = Some(at);
        Ended::Now
    }

    /// Lets the last run of this key, or of the greatest period, be run again if it failed or died.
    pub(crate) fn allow_again(&mut self, key: Option<&str>) -> Option<&RunRecord> {
        let occasion = match (self.times, key) {
            (Times::Periods(_), _) => Occasion::Period(self.greatest?),
            (Times::Keys, key) => Occasion::Key(key?.to_owned()),
        };
        let at = self.last_of(&occasion)?;
        let run = &mut self.runs[at];
        if !run.state.is_unsettled() {
            return None;
        }
        run.again = true;
        Some(run)
    }

    /// Sets the greatest period back to that of the clock, and forgets the runs of later ones, if the
    /// record is ahead.
    pub(crate) fn reset(&mut self, now: Moment, who: &Identity) -> bool {
        let (Times::Periods(periods), Some(greatest)) = (self.times, self.greatest) else {
            return false;
        };
        let clock = periods.number_at(now);
        if greatest <= clock {
            return false;
        }
        let is_later =
            |run: &RunRecord| matches!(run.occasion, Occasion::Period(number) if number > clock);
        self.runs.retain(|run| !is_later(run));
        self.greatest = Some(clock);
        self.reset = Some(Reset {
            at: now,
            from: greatest,
            to: clock,
            who: who.clone(),
        });
        true
    }

    /// Keeps `keep` runs, and of these as many as a record has room for. Attempts that another one followed
    /// go first, then the oldest: so a period or key that is tried again and again makes none forgotten
    /// that is done. The last run, which may be open, is always kept, and one more if that is the attempt
    /// before it.
    fn forget(&mut self, keep: usize) {
        let size = |run: &RunRecord| {
            let mut text = String::new();
            let written = write_run(&mut text, run);
            debug_assert!(written.is_ok(), "a String takes all");
            text.len()
        };
        let sizes: Vec<usize> = self.runs.iter().map(size).collect();
        let (mut count, mut bytes) = (sizes.len(), sizes.iter().sum::<usize>());
        let mut seen = HashSet::new();
        let mut is_followed = vec![false; count];
        for (run, is_followed) in self.runs.iter().zip(&mut is_followed).rev() {
            *is_followed = !seen.insert(&run.occasion);
        }
        let is_retried = is_followed.iter().rev().nth(1) == Some(&true);
        let most = keep + usize::from(is_retried);
        let mut is_kept = vec![true; count];
        for goes_first in [true, false] {
            for at in (0..sizes.len() - 1).filter(|at| is_followed[*at] == goes_first) {
                if count <= most && bytes <= MOST_BYTES {
                    break;
                }
                is_kept[at] = false;
                count -= 1;
                bytes -= sizes[at];
            }
        }
        let mut is_kept = is_kept.into_iter();
        self.runs.retain(|_| is_kept.next().unwrap_or(true));
    }
}

/// The beginning of a reason: the record is read and written whole, and what takes its room makes done
/// keys forgotten.
fn beginning_of(why: &str) -> String {
    let ends = why.char_indices().map(|(at, char)| at + char.len_utf8());
    let end = ends.take_while(|end| *end <= MOST_WHY_BYTES).last();
    why[..end.unwrap_or(0)].to_owned()
}

impl RunRecord {
    /// No work was begun: it may be run again, whatever was chosen for failures.
    fn was_not_given_out(&mut self) {
        self.why = Some("nobody got the run".to_owned());
        self.again = true;
    }

    /// Another attempt may follow.
    fn is_free(&self, terms: &Terms) -> bool {
        let rerun = match self.state {
            RunState::Running | RunState::Done => return false,
            RunState::Failed => terms.after_failure,
            RunState::Died | RunState::SessionLost | RunState::LockRemoved => terms.after_death,
        };
        self.again || rerun == Rerun::Again
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "rules_tests.rs"]
mod tests;
