//! The local queues, the tenure and the global queue under an explorer of interleavings, on the
//! seam in memory: threads that lock, try, time out, cancel and drop, in two processes, while
//! sessions are lost, connections break and nodes are removed at any step.
//!
//! What must hold in every schedule: never two holders who both believe it; never a lost wake-up
//! (the explorer reports a deadlock); never a contender or a watch left; first come, first served
//! among the threads of a process; never more permits held than there are; a holder whose lock is
//! not lost is sure of it again in the end, and hears that somebody asks for it. In all of them the
//! servers refuse that a client deletes another session's node, and that a request is made with a
//! lock held.
//!
//! Time is an event: a wait with a deadline may end at any moment. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test --release --lib interleavings`; `ZKLOCK_MODEL_PERCENT=10` plays a
//! tenth of the schedules.

mod election;
mod mutex;
mod permits;
mod readers;
mod rendezvous;
mod single_node;
mod take_over;
mod tenures;
mod together;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::local_queue::Policy;
use crate::session::Session;
use crate::session::memory::{Ensemble, Fault, Line};
use crate::sync::Mutex;
use crate::tenure::{LockState, Tenure};
use crate::wait::cancel::CancelToken;
use crate::wait::limits::{WaitLimits, deadline_after};

const FOLDER: &str = "/lock";

/// Schedules of each of the big scenarios, with each of the two schedulers.
const SCHEDULES: usize = 9_000;

/// What a holder may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    /// With others who share.
    Shared,
    Alone,
}

/// Who is inside, and by what right.
#[derive(Default)]
struct Inside(Mutex<Vec<(Arc<Tenure>, Right)>>);

impl Inside {
    /// Everybody who is inside already and does not share must know, on a look, that its lock is
    /// lost. (One tenure can be inside twice: by re-entry, or by readers who share it.)
    fn enter(&self, tenure: &Arc<Tenure>, right: Right) {
        let mut inside = self.0.lock();
        if tenure.state() != LockState::Lost {
            for (other, theirs) in inside.iter() {
                assert!(
                    (right, *theirs) == (Right::Shared, Right::Shared)
                        || other.state() == LockState::Lost,
                    "two hold at once: {other:?} and {tenure:?}"
                );
            }
        }
        inside.push((Arc::clone(tenure), right));
    }

    fn leave(&self, tenure: &Arc<Tenure>) {
        let mut inside = self.0.lock();
        let mine = inside
            .iter()
            .position(|(other, _)| Arc::ptr_eq(other, tenure));
        inside.swap_remove(mine.expect("entered before"));
    }
}

/// All contenders and watches go, though some of them in the background.
fn settle(ensemble: &Ensemble, sessions: &[&Arc<Session>]) {
    until(ensemble, || {
        ensemble.ephemeral_nodes().is_empty()
            && ensemble.watch_count() == 0
            && sessions.iter().all(|session| session.watched_paths() == 0)
    });
    for session in sessions {
        session.close(Duration::from_secs(1));
    }
}

/// It comes to that without anybody's doing.
#[track_caller]
fn until(ensemble: &Ensemble, mut is_so: impl FnMut() -> bool) {
    let mut looks = 0;
    while !is_so() {
        looks += 1;
        assert!(looks < 10_000, "it does not come to that: {ensemble:?}");
        shuttle::thread::yield_now();
    }
}

/// `schedules` of a scenario with each scheduler, or the share of them that `ZKLOCK_MODEL_PERCENT` asks for.
fn explore(schedules: usize, scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let _ = env_logger::builder().is_test(true).try_init();
    let percent = std::env::var("ZKLOCK_MODEL_PERCENT").map_or(100, |percent| {
        percent.parse().expect("ZKLOCK_MODEL_PERCENT is a number")
    });
    let schedules = (schedules * percent).div_ceil(100);
    let seeds: [Box<dyn Scheduler + Send>; 2] = [
        Box::new(RandomScheduler::new(schedules)),
        Box::new(PctScheduler::new(3, schedules)),
    ];
    for scheduler in seeds {
        let mut config = Config::new();
        config.stack_size = 0x2_0000;
        config.max_steps = MaxSteps::FailAfter(200_000);
        config.failure_persistence = FailurePersistence::Print;
        let runner = Runner::new(scheduler, config);
        runner.run(scenario.clone());
    }
}

fn policies() -> [Policy; 3] {
    let default = Policy::default();
    let generous = Policy {
        max_handoffs: Some(1),
        ..default.clone()
    };
    let lingering = Policy {
        linger: Duration::from_secs(1),
        read_linger: Duration::from_secs(1),
        ..default.clone()
    };
    [default, generous, lingering]
}

/// What can go wrong with one client's session while others work.
type Chaos = fn(&Ensemble, &Arc<Line>);

const PEACE: Chaos = |_, _| {};

/// Its nodes go with it, or some time after.
const LOST_SESSION: Chaos = |ensemble, line| {
    if thread_rng().gen_bool(0.5) {
        line.expire();
    } else if let Some(session_id) = line.lapse() {
        for _ in 0..thread_rng().gen_range(0..8) {
            shuttle::thread::yield_now();
        }
        ensemble.end_session(session_id);
    }
};

const BROKEN_CONNECTIONS: Chaos = |_, line| {
    let faults = [Fault::Before, Fault::After, Fault::Late];
    line.strike(faults[thread_rng().gen_range(0..faults.len())]);
    shuttle::thread::yield_now();
    line.reset();
};

/// Its servers refuse some of what is asked, and have done some of that all the same.
const REFUSALS: Chaos = |_, line| {
    let faults = [Fault::Throttled, Fault::Unclear];
    for _ in 0..6 {
        line.strike(faults[thread_rng().gen_range(0..faults.len())]);
        for _ in 0..thread_rng().gen_range(1..8) {
            shuttle::thread::yield_now();
        }
    }
};

/// An administrator removes a waiting contender's node, at any moment.
///
/// (A *holder's* node removed by hand lets the next one in at once; that the holder learns of it is
/// another promise, which depends on the time that an event takes.)
const REMOVED_WAITER: Chaos = |ensemble, _| {
    for _ in 0..4 {
        ensemble.remove_last_waiter(FOLDER);
        shuttle::thread::yield_now();
    }
};

/// How a thread asks.
enum Manner {
    Try,
    Wait(WaitLimits),
    /// The token is cancelled at some moment.
    Cancelled(WaitLimits, CancelToken),
}

impl Manner {
    fn any() -> Self {
        match thread_rng().gen_range(0..6) {
            0 => Self::Try,
            1 => Self::Wait(WaitLimits::until(deadline_after(Duration::from_secs(1)))),
            2 => {
                let token = CancelToken::new();
                let limits = WaitLimits {
                    cancel: Some(token.clone()),
                    ..WaitLimits::none()
                };
                Self::Cancelled(limits, token)
            }
            _ => Self::Wait(WaitLimits::none()),
        }
    }

    /// Asks in this manner. Only a wait without a bound must succeed.
    fn ask(
        self,
        at_once: impl FnOnce() -> crate::Result<bool>,
        wait: impl FnOnce(&WaitLimits) -> crate::Result<()>,
    ) -> bool {
        match self {
            Self::Try => at_once().unwrap_or(false),
            Self::Wait(limits) if limits.is_none() => {
                wait(&limits).expect("waits until it is its turn");
                true
            }
            Self::Wait(limits) => wait(&limits).is_ok(),
            Self::Cancelled(limits, token) => {
                let canceller = shuttle::thread::spawn(move || token.cancel());
                let held = wait(&limits).is_ok();
                canceller.join().expect("no panic");
                held
            }
        }
    }
}
