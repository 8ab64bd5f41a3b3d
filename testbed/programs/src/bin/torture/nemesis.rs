//! Who decides what goes wrong when.

use std::thread;
use std::time::{Duration, Instant};

use crate::aim;
use crate::faults::{Fault, restart_the_dead};
use crate::stage::Stage;
use testbed_programs::random::Random;

/// How many faults there are at once, at the most.
const AT_ONCE: usize = 2;

/// One fault after the other, sometimes two, by a seed.
pub(crate) struct Nemesis {
    random: Random,
    under_way: Vec<(Instant, Fault)>,
    /// How many servers in a hundred, of those that fall silent, stay so until they are given up.
    given_up_percent: u64,
    /// Servers do no other harm than to refuse for now.
    only_refusals: bool,
}

impl Nemesis {
    pub(crate) fn new(seed: u64, only_refusals: bool) -> Nemesis {
        Nemesis {
            random: Random::new(seed),
            under_way: Vec::new(),
            given_up_percent: 0,
            only_refusals,
        }
    }

    /// Does harm for this time, and then mends all of it.
    pub(crate) fn play(mut self, stage: &mut Stage<'_>, time: Duration) {
        let end = Instant::now() + time;
        // A shorter run would have time for little else.
        if time >= stage.plan.given_up_after() * 8 {
            self.given_up_percent = 10;
        }
        let mut next = Instant::now();
        while Instant::now() < end {
            self.mend_what_is_due(stage, Instant::now());
            if Instant::now() >= next {
                self.strike(stage);
                next = Instant::now() + self.pause(stage);
            }
            let mends = self.under_way.iter().map(|(due, _)| *due);
            let wake = mends.chain([next, end]).min().unwrap_or(end);
            // This is the schedule, not a wait for anything.
            thread::sleep(wake.saturating_duration_since(Instant::now()));
        }
        for (_, fault) in std::mem::take(&mut self.under_way) {
            fault.mend(stage);
        }
        restart_the_dead(stage);
    }

    fn strike(&mut self, stage: &mut Stage<'_>) {
        let mut fault = if self.only_refusals {
            Fault::pick_refusal(&mut self.random)
        } else {
            Fault::pick(&mut self.random)
        };
        if self.random.percent(70)
            && let Some(worker) = aim::holder(stage)
        {
            fault = fault.aimed_at(worker);
        }
        let lasts = self.lasts(stage, fault);
        // All is chosen before it is refused, so that the seed's choices stay the same.
        let goes = self.under_way.len() < AT_ONCE
            && self
                .under_way
                .iter()
                .all(|(_, other)| fault.goes_with(*other));
        let mut own_choices = Random::new(self.random.draw());
        if goes {
            fault.strike(stage, &mut own_choices);
            self.under_way.push((Instant::now() + lasts, fault));
        }
    }

    /// From a hiccup to more than a session; what cuts a worker off is for longer as often as not. In a
    /// run that has the time, a server is at times silent until the others have given it up, and comes
    /// back to another leader.
    fn lasts(&mut self, stage: &Stage<'_>, fault: Fault) -> Duration {
        let session = stage.plan.session;
        let longer_than_session = (session * 5 / 4, session * 3);
        let given_up = stage.plan.given_up_after();
        let (often_long, (least, most)) = match fault {
            Fault::ShareOfPartition(..) => (100, longer_than_session),
            Fault::WorkerCutOff(..) | Fault::WorkerRefused(_) => (50, longer_than_session),
            Fault::ServerStopped(_)
            | Fault::ServerCutOff(_)
            | Fault::ServerMuted(_)
            | Fault::ServerDeafened(_) => (self.given_up_percent, (given_up, given_up + session)),
            _ => (0, longer_than_session),
        };
        if self.random.percent(often_long) {
            return self.random.between(least, most);
        }
        let most = self
            .random
            .of(&[session / 10, session / 2, session * 5 / 4, session * 2]);
        self.random.between(Duration::from_millis(10), most)
    }

    /// Mostly short; at times long enough for all to go well again.
    fn pause(&mut self, stage: &Stage<'_>) -> Duration {
        let session = stage.plan.session;
        let most = if self.random.percent(20) {
            session * 2
        } else {
            session / 3
        };
        self.random.between(Duration::from_millis(50), most)
    }

    fn mend_what_is_due(&mut self, stage: &mut Stage<'_>, now: Instant) {
        let (due, later) = self.under_way.iter().partition(|(due, _)| *due <= now);
        self.under_way = later;
        let due: Vec<(Instant, Fault)> = due;
        for (_, fault) in due {
            fault.mend(stage);
        }
        restart_what_did_not_start(&self.under_way, stage);
    }
}

/// A server whose port was taken for a moment when it was started.
fn restart_what_did_not_start(under_way: &[(Instant, Fault)], stage: &Stage<'_>) {
    let killed = |fault: &Fault| matches!(fault, Fault::ServerKilled(_) | Fault::MajorityKilled(_));
    if !under_way.iter().any(|(_, fault)| killed(fault)) {
        restart_the_dead(stage);
    }
}
