//! The record of a job, read and changed by who holds its lock.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::{Begun, OncePer};
use crate::error::{Error, Result};
use crate::recipe::job_run::JobRun;
use crate::recipe::mutex::MutexGuard;
use crate::recipe::record_node::{Asked, Kept, Written, pause};
use crate::wait::limits::{WaitLimits, deadline_after};
use crate::znode::identity::Identity;
use crate::znode::job::{Claim, JobRecord, Loss, Moment, Ruling, RunRecord, Times};
use crate::znode::path::split;

/// How often a record is looked at that somebody else changes all the time, and how often a write is
/// made again whose answers are lost, or that the servers will not do for now: with its pauses, for 6 s.
const MOST_LOOKS: u32 = 10;

/// So long a run that nobody got is looked for, when the caller has an error to hear.
const A_MOMENT: Duration = Duration::from_secs(1);

impl OncePer {
    pub(super) fn begin_within(&self, limits: &WaitLimits) -> Result<Begun> {
        if let Some(done) = self.look_for_key(limits)? {
            return Ok(done);
        }
        let guard = self.lock.take(limits)?;
        self.begin_holding(guard, limits)
    }

    /// A key that is done is done, whoever holds the lock: nobody needs to wait to hear that.
    pub(super) fn look_for_key(&self, limits: &WaitLimits) -> Result<Option<Begun>> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        // Who holds already asks once more, and is told so.
        if self.lock.is_held_by_current_thread() {
            return Ok(None);
        }
        let Some(kept) = self.read(limits, None)? else {
            return Ok(None);
        };
        Ok(kept.record.done_key(key).cloned().map(Begun::Done))
    }

    pub(super) fn begin_holding(&self, guard: MutexGuard, limits: &WaitLimits) -> Result<Begun> {
        let claim = Claim {
            id: Uuid::new_v4().simple().to_string(),
            token: guard.fencing_token()?.as_u64(),
            node: split(guard.path()).1.to_owned(),
            who: Identity::current(SystemTime::now()),
        };
        let mut looks = Looks::default();
        let begun = self.begin_or_learn(&guard, &claim, limits, &mut looks);
        if begun.is_err() && looks.may_be_begun {
            self.take_back(&guard, &claim.id);
        }
        let (kept, run) = begun?;
        let Some(kept) = kept else {
            return Ok(Begun::Done(*run));
        };
        let (node, lost) = (self.node.clone(), self.lost.clone());
        Ok(Begun::Run(JobRun::begun(guard, node, *kept, run, lost)))
    }

    /// Looks and writes until it is known what came of it: our run with its record, or that which did it.
    fn begin_or_learn(
        &self,
        guard: &MutexGuard,
        claim: &Claim,
        limits: &WaitLimits,
        looks: &mut Looks,
    ) -> Result<(Option<Box<Kept>>, Box<RunRecord>)> {
        loop {
            match self.try_to_begin(guard, claim, limits, looks)? {
                Step::Begun(kept, run) => return Ok((Some(kept), run)),
                Step::Done(run) => return Ok((None, run)),
                Step::Again(unknown) => {
                    let unlimited = WaitLimits::none();
                    let limits = if looks.may_be_begun {
                        &unlimited
                    } else {
                        limits
                    };
                    self.look_again(looks, unknown, guard, limits)?;
                }
            }
        }
    }

    /// Writes down that nobody got the run that may be in the record, or remembers it for the next time:
    /// no work was begun, so nobody needs to look at what is left of it.
    fn take_back(&self, guard: &MutexGuard, id: &str) {
        let limits = WaitLimits::until(deadline_after(A_MOMENT));
        let is_told = match self.read(&limits, Some(guard)) {
            Ok(Some(mut kept)) => {
                let written = kept.written;
                !kept.record.take_back(id, written)
                    || matches!(
                        self.node.write(guard, &kept.record, Some(kept.version)),
                        Ok(Written::As(_))
                    )
            }
            Ok(None) => true,
            Err(_) => false,
        };
        if !is_told {
            self.lost.add(id, Loss::NotGivenOut);
        }
    }

    /// Before the record is read again, as it was not what was written to, or nobody knows. An error
    /// once that has happened too often in a row.
    fn look_again(
        &self,
        looks: &mut Looks,
        unknown: Option<Error>,
        guard: &MutexGuard,
        limits: &WaitLimits,
    ) -> Result<()> {
        match unknown {
            Some(error) if looks.unknown == MOST_LOOKS => Err(error),
            Some(_) => {
                looks.unknown += 1;
                pause(guard, limits, looks.unknown - 1)
            }
            None if looks.changed == MOST_LOOKS => Err(self.restless()),
            None => {
                looks.changed += 1;
                Ok(())
            }
        }
    }

    /// One look at the record, and the write that follows from it. Whatever is not known after a write
    /// is read again.
    fn try_to_begin(
        &self,
        guard: &MutexGuard,
        claim: &Claim,
        limits: &WaitLimits,
        looks: &mut Looks,
    ) -> Result<Step> {
        // A begin that may be in the record is looked for also when the caller waits no longer: left alone it
        // would look like a run that died.
        let unlimited = WaitLimits::none();
        let reads = if looks.may_be_begun {
            &unlimited
        } else {
            limits
        };
        let kept = self.read(reads, Some(guard))?;
        if let Some(kept) = kept {
            // A begin whose answer was lost.
            if let Some(run) = kept.record.open_run(&claim.id).cloned() {
                return Ok(Step::Begun(Box::new(kept), Box::new(run)));
            }
            if let Some(run) = self.key.as_ref().and_then(|key| kept.record.done_key(key)) {
                return Ok(Step::Done(Box::new(run.clone())));
            }
            looks.may_be_begun = false;
            return self.rule_and_write(guard, claim, limits, Some(kept), looks);
        }
        looks.may_be_begun = false;
        self.rule_and_write(guard, claim, limits, None, looks)
    }

    fn rule_and_write(
        &self,
        guard: &MutexGuard,
        claim: &Claim,
        limits: &WaitLimits,
        kept: Option<Kept>,
        looks: &mut Looks,
    ) -> Result<Step> {
        let session = self.session();
        let asked = self
            .node
            .ask_the_time(session, limits, guard, kept, self.times)?;
        let mut kept = match asked {
            Asked::Told(kept) => kept,
            Asked::NotThat => return Ok(Step::Again(None)),
            Asked::Unknown(error) => return Ok(Step::Again(Some(error))),
        };
        let lost = self.lost.all();
        let buried = kept.record.bury(kept.written, &claim.id, &lost);
        let key = self.key.as_deref();
        let ruling = kept.record.begin(key, claim, kept.written, &self.terms);
        if buried || ruling == Ruling::Begin {
            looks.may_be_begun = ruling == Ruling::Begin;
            match self.node.write(guard, &kept.record, Some(kept.version))? {
                Written::As(version) => kept.version = version,
                Written::NotThat => return Ok(Step::Again(None)),
                Written::Unknown(error) => return Ok(Step::Again(Some(error))),
            }
            self.lost.forget(&lost);
        }
        match ruling {
            Ruling::Begin => {
                let run = kept.record.open_run(&claim.id).cloned();
                let run = run.expect("its place is in the record that was written");
                Ok(Step::Begun(Box::new(kept), Box::new(run)))
            }
            Ruling::Settled(run) => Ok(Step::Done(run)),
            Ruling::Unsettled(run) => Err(Error::unsettled_run(format!("{}: {run}", self.path()))),
            Ruling::Ahead { greatest, clock } => Err(self.ahead(greatest, clock)),
        }
    }

    fn ahead(&self, greatest: i64, clock: i64) -> Error {
        let shown = |number| match self.times {
            Times::Periods(periods) => match periods.period(number) {
                Some(period) => format!("{number} ({period})"),
                None => number.to_string(),
            },
            Times::Keys => number.to_string(),
        };
        Error::record_ahead(format!(
            "{}: period {} was begun, and the servers' clock is in period {}",
            self.path(),
            shown(greatest),
            shown(clock)
        ))
    }

    fn restless(&self) -> Error {
        let path = self.node.path();
        Error::refused(format!(
            "{path}: somebody who does not hold the lock changes the record all the time"
        ))
    }

    fn read(&self, limits: &WaitLimits, guard: Option<&MutexGuard>) -> Result<Option<Kept>> {
        let kept = self.node.read(self.session(), limits, guard)?;
        if let Some(Kept { record, .. }) = &kept
            && record.times() != self.times
        {
            return Err(Error::invalid(format!(
                "{}: the record is of {}, and this job is built for {}",
                self.node.path(),
                record.times(),
                self.times
            )));
        }
        Ok(kept)
    }

    /// Changes the record under the lock, and writes it if `change` says so.
    pub(super) fn change<T>(
        &self,
        mut change: impl FnMut(&mut JobRecord, Moment) -> (bool, T),
    ) -> Result<T> {
        let limits = WaitLimits::none();
        let guard = self.lock.take(&limits)?;
        let mut looks = Looks::default();
        loop {
            let kept = self.read(&limits, Some(&guard))?;
            let session = self.session();
            let asked = self
                .node
                .ask_the_time(session, &limits, &guard, kept, self.times)?;
            let mut kept = match asked {
                Asked::Told(kept) => kept,
                Asked::NotThat => {
                    self.look_again(&mut looks, None, &guard, &limits)?;
                    continue;
                }
                Asked::Unknown(error) => {
                    self.look_again(&mut looks, Some(error), &guard, &limits)?;
                    continue;
                }
            };
            let lost = self.lost.all();
            let buried = kept.record.bury(kept.written, "", &lost);
            let (changed, result) = change(&mut kept.record, kept.written);
            if !buried && !changed {
                return Ok(result);
            }
            match self.node.write(&guard, &kept.record, Some(kept.version))? {
                Written::As(_) => {
                    self.lost.forget(&lost);
                    return Ok(result);
                }
                Written::NotThat => self.look_again(&mut looks, None, &guard, &limits)?,
                Written::Unknown(error) => {
                    self.look_again(&mut looks, Some(error), &guard, &limits)?;
                }
            }
        }
    }
}

enum Step {
    Begun(Box<Kept>, Box<RunRecord>),
    Done(Box<RunRecord>),
    /// Why a write is unknown, if it is.
    Again(Option<Error>),
}

/// How often a record was looked at again.
#[derive(Default)]
struct Looks {
    changed: u32,
    unknown: u32,
    /// A begin of ours was sent, and not yet seen to be absent.
    may_be_begun: bool,
}
