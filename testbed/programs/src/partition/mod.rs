//! Cases in which a holder and those who want its lock are on two sides of a
//! trouble inside the ensemble: who knew what when.
//!
//! The promise under test: a holder is told that its lock is lost before anybody
//! else can have it. Each case seats holders at one server, harms that server or
//! its way to the others, and notes on one clock when a contender on the healthy
//! side got in, and when `state()` and `lost()` of the holder first said so.
//! Whether a session that the ensemble keeps is kept is noted, not judged.

use std::time::{Duration, Instant};

mod contender;
mod doors;
mod holder;
mod outcome;
mod servers;
mod trouble;

use contender::Contenders;
use doors::Doors;
pub use doors::Reach;
pub use holder::Doing;
use holder::Holder;
pub use outcome::{Outcome, table};
pub use servers::Servers;
pub use trouble::Trouble;

/// What may pass until a promise that was kept or broken is known to be so, whatever the machine
/// does meanwhile.
const AT_LAST: Duration = Duration::from_secs(90);

/// What is held, and wanted by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prize {
    Mutex,
    /// The holder goes by what a worker of its leadership knows.
    Leadership,
}

/// One trouble under one setting of timeouts.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub trouble: Trouble,
    pub prize: Prize,
    /// The session timeout of the holders.
    pub session: Duration,
    /// After how many ticks of silence a follower and a leader give each other up.
    pub sync_limit: u32,
}

impl Case {
    /// Plays the case on servers of its limit, under paths that begin with `root`, and mends what it
    /// harmed.
    pub fn run(self, servers: &Servers, root: &str) -> Vec<Outcome> {
        let led = servers.leader();
        let seat = if self.trouble.harms_leader() {
            led
        } else {
            servers.follower()
        };
        let doors: Vec<Doors> = Reach::ALL
            .iter()
            .map(|reach| Doors::before(servers, seat, *reach))
            .collect();
        let mut holders = Vec::new();
        for doors in &doors {
            for doing in Doing::ALL {
                let path = format!("{root}/{:?}/{doing:?}", doors.reach());
                holders.push(Holder::take(doors, self, &path, doing));
            }
        }
        let paths: Vec<String> = holders
            .iter()
            .map(|holder| holder.path().to_owned())
            .collect();
        let contenders = Contenders::queue(servers, seat, &paths, self.prize);
        doors.iter().for_each(Doors::take_side);
        let began = Instant::now();
        self.trouble.strike(servers, seat, &holders);
        // From now on a session that was not ended in time will not be: a leader, also a new one,
        // gives it its timeout and rounds up to a tick.
        let settled = Instant::now() + self.session + servers.tick() * 3;
        let outcomes = || -> Vec<Outcome> {
            let outcomes = holders.iter().map(|holder| Outcome {
                case: self,
                tick: servers.tick(),
                reach: holder.reach(),
                doing: holder.doing(),
                next_in: since(began, contenders.got_in(holder.path())),
                suspect: since(began, holder.suspect_at()),
                lost: since(began, holder.lost_at()),
                told: since(began, holder.told_at()),
            });
            outcomes.collect()
        };
        // What is judged is what was waited for: a look later another holder may have lost its lock.
        let at_last = testbed::wait_for_some(AT_LAST, || {
            let is_settled = Instant::now() >= settled;
            let outcomes = outcomes();
            let are_over = outcomes.iter().all(|outcome| outcome.is_over(is_settled));
            are_over.then_some(outcomes)
        });
        let outcomes = at_last.unwrap_or_else(outcomes);
        self.trouble.mend(servers, seat, led);
        doors.iter().for_each(Doors::mend);
        drop((contenders, holders));
        servers.wait_until_all_serve();
        outcomes
    }
}

fn since(began: Instant, at: Option<Instant>) -> Option<Duration> {
    // What came before the trouble began counts as its beginning.
    at.map(|at| at.saturating_duration_since(began))
}
