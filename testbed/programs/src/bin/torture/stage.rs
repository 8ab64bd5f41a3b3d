//! Servers, workers, and the proxies between all of them.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::crew::Crew;
use crate::leftovers;
use testbed::{Ensemble, Server};
use testbed_programs::history::History;
use testbed_programs::random::Random;

pub(crate) const LOCKS: [&str; 8] = [
    "mutex",
    "rw",
    "semaphore",
    "semaphore-mutex",
    "simple-mutex",
    "multi",
    "election",
    "once",
];

/// The mutexes and elections of other libraries. They are not among all locks: what they promise is
/// theirs to say.
pub(crate) const PEERS: [&str; 4] = [
    "kazoo-mutex",
    "curator-mutex",
    "kazoo-election",
    "curator-latch",
];

/// How many permits a semaphore has; as the workers build it.
const PERMITS: u32 = 3;

/// How late a call may return on a machine that is busy with all this.
const SLACK: Duration = Duration::from_secs(3);

/// For how long the last calls may go on once all harm is over.
const LAST_CALLS: Duration = Duration::from_secs(60);

/// What is played.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) lock: String,
    pub(crate) seed: u64,
    pub(crate) session: Duration,
    pub(crate) tick_ms: u32,
    pub(crate) sync_limit: u32,
    /// For the history.
    pub(crate) folder: PathBuf,
}

impl Plan {
    /// For how long a server is silent before its peers give it up.
    pub(crate) fn given_up_after(&self) -> Duration {
        Duration::from_millis(self.tick_ms.into()) * self.sync_limit
    }
}

/// Everything that the nemesis can do harm to.
pub(crate) struct Stage<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) ensemble: Ensemble,
    pub(crate) crew: Crew,
    pub(crate) history: History,
}

impl<'a> Stage<'a> {
    /// Starts three servers and the workers.
    pub(crate) fn set(plan: &'a Plan) -> Stage<'a> {
        // Of an earlier run with this seed.
        let _ = fs::remove_dir_all(&plan.folder);
        fs::create_dir_all(&plan.folder).expect("a place for the history");
        let history = History::open(&plan.folder.join("nemesis.history"));
        let history = history.expect("a place for the history");
        history.note(
            "nemesis",
            format_args!(
                "begin lock={} max={PERMITS} session_ms={} slack_ms={}",
                plan.lock,
                plan.session.as_millis(),
                SLACK.as_millis()
            ),
        );
        let builder = Server::builder()
            .tick_ms(plan.tick_ms)
            .setting("syncLimit", &plan.sync_limit.to_string());
        let ensemble = Ensemble::start_proxied(3, &builder);
        let crew = Crew::hire(plan, &ensemble, &history, &mut Random::new(plan.seed));
        Stage {
            plan,
            ensemble,
            crew,
            history,
        }
    }

    pub(crate) fn note(&self, event: fmt::Arguments<'_>) {
        self.history.note("nemesis", event);
    }

    /// When no harm is done any more: lets the last calls end, counts what is left, and sends all
    /// home. Who does not go is killed, and has not ended by itself.
    pub(crate) fn end(&mut self) {
        self.ensemble.wait_until_awake_serve();
        let deadline = Instant::now() + LAST_CALLS;
        self.crew.rest(deadline);
        let (nodes, watches) = leftovers::count(&self.ensemble, self.plan);
        self.note(format_args!("left nodes={nodes} watches={watches}"));
        self.crew.close(Instant::now() + LAST_CALLS);
        self.note(format_args!("end"));
    }
}
