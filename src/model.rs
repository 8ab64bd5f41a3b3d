//! The local queue, the tenure and the global queue under an explorer of interleavings, on the
//! seam in memory: threads that lock, try, time out, cancel, panic and drop, in two processes,
//! while sessions are lost, connections break and nodes are removed at any step.
//!
//! What must hold in every schedule: never two holders who both believe it; never a lost wake-up
//! (the explorer reports a deadlock); never a contender or a watch left; first come, first served
//! among the threads of a process.
//!
//! Time is an event: a wait with a deadline may end at any moment. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test --release --lib model`.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::bound::{Bound, deadline_after};
use crate::cancel::CancelToken;
use crate::contend::{Contest, WaitStrategy};
use crate::local_queue::{LocalQueue, Policy};
use crate::names::{Dialect, Grammar};
use crate::path::LockPath;
use crate::session::Session;
use crate::session::memory::{Ensemble, Fault, Line};
use crate::sync::{Mutex, now};
use crate::tenure::{LockState, Tenure};

const FOLDER: &str = "/lock";

/// Schedules of each of the big scenarios, with each of the two schedulers.
const SCHEDULES: usize = 9_000;

/// One process.
struct Process {
    session: Arc<Session>,
    line: Arc<Line>,
    queue: Arc<LocalQueue>,
}

/// Who is inside, and by what right.
#[derive(Default)]
struct Inside(Mutex<Vec<Arc<Tenure>>>);

impl Inside {
    /// Everybody who is inside already must know, on a look, that its lock is lost.
    fn enter(&self, tenure: &Arc<Tenure>) {
        let mut inside = self.0.lock();
        if tenure.state(now()) != LockState::Lost {
            for other in inside.iter() {
                assert_eq!(
                    other.state(now()),
                    LockState::Lost,
                    "two hold at once: {other:?} and {tenure:?}"
                );
            }
        }
        inside.push(Arc::clone(tenure));
    }

    fn leave(&self, tenure: &Arc<Tenure>) {
        let mut inside = self.0.lock();
        let mine = inside.iter().position(|other| Arc::ptr_eq(other, tenure));
        inside.swap_remove(mine.expect("entered before"));
    }
}

impl Process {
    fn start(ensemble: &Arc<Ensemble>, policy: &Policy, strategy: WaitStrategy) -> Arc<Self> {
        let (session, line) = ensemble.connect();
        let contest = Contest::new(
            Arc::clone(&session),
            LockPath::parse(FOLDER).expect("good"),
            Grammar::mutex(Dialect::Curator, None),
            strategy,
        );
        Arc::new(Self {
            session,
            line,
            queue: LocalQueue::new(contest, policy.clone()),
        })
    }

    fn data() -> Arc<[u8]> {
        Arc::from([])
    }

    fn lock(&self, bound: &Bound) -> crate::Result<()> {
        self.queue.acquire(bound, Self::data)
    }

    /// A section, in which other threads may run.
    fn section(&self, inside: &Inside) {
        let tenure = self.queue.tenure();
        inside.enter(&tenure);
        shuttle::thread::yield_now();
        if thread_rng().gen_bool(0.2) {
            // Again, by the same thread.
            self.lock(&Bound::none()).expect("re-entry asks nobody");
            assert_eq!(self.queue.depth(), 2);
            let _ = self.queue.release();
        }
        inside.leave(&tenure);
    }

    /// One acquire, in one of the ways there are, and a section if it succeeds.
    fn act(&self, inside: &Inside) {
        let held = match thread_rng().gen_range(0..6) {
            0 => self.queue.try_acquire(Self::data).unwrap_or(false),
            1 => {
                let bound = Bound::until(deadline_after(Duration::from_secs(1)));
                self.lock(&bound).is_ok()
            }
            2 => {
                let token = CancelToken::new();
                let bound = Bound {
                    deadline: None,
                    cancel: Some(token.clone()),
                };
                let canceller = shuttle::thread::spawn(move || token.cancel());
                let held = self.lock(&bound).is_ok();
                canceller.join().expect("no panic");
                held
            }
            _ => {
                self.lock(&Bound::none())
                    .expect("waits until it is its turn");
                true
            }
        };
        if held {
            self.section(inside);
            // Whether the release is confirmed is not this test's question.
            let _ = self.queue.release();
        }
    }
}

/// All contenders and watches go, though some of them in the background.
fn settle(ensemble: &Ensemble, processes: &[Arc<Process>]) {
    for process in processes {
        let _ = process.queue.end_idle();
    }
    let mut looks = 0;
    let settled = || {
        ensemble.children_of(FOLDER).is_empty()
            && ensemble.watch_count() == 0
            && processes
                .iter()
                .all(|process| process.session.watches.len() == 0)
    };
    while !settled() {
        looks += 1;
        assert!(looks < 10_000, "left behind: {ensemble:?}");
        shuttle::thread::yield_now();
    }
    for process in processes {
        process.session.close(Duration::from_secs(1));
    }
}

fn explore(schedules: usize, scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let _ = env_logger::builder().is_test(true).try_init();
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
        ..default.clone()
    };
    [default, generous, lingering]
}

/// Two processes with two threads each; what goes wrong is chosen by `chaos`.
fn crowd(policy: Policy, chaos: fn(&Ensemble, &Process)) -> impl Fn() + Send + Sync + Clone {
    move || {
        let ensemble = Ensemble::new();
        let inside = Arc::new(Inside::default());
        let processes: Vec<_> = (0..2)
            .map(|_| Process::start(&ensemble, &policy, WaitStrategy::PredecessorWatch))
            .collect();
        let mut threads = Vec::new();
        for process in [&processes[0], &processes[0], &processes[1]] {
            let (process, inside) = (Arc::clone(process), Arc::clone(&inside));
            threads.push(shuttle::thread::spawn(move || {
                for _ in 0..2 {
                    process.act(&inside);
                }
            }));
        }
        let (ensemble_, victim) = (Arc::clone(&ensemble), Arc::clone(&processes[0]));
        threads.push(shuttle::thread::spawn(move || chaos(&ensemble_, &victim)));
        for thread in threads {
            thread.join().expect("no panic");
        }
        settle(&ensemble, &processes);
    }
}

fn model_crowd(chaos: fn(&Ensemble, &Process)) {
    for policy in policies() {
        explore(SCHEDULES, crowd(policy, chaos));
    }
}

#[test]
fn model_of_peace() {
    model_crowd(|_, _| {});
}

#[test]
fn model_of_a_lost_session() {
    model_crowd(|_, victim| victim.line.expire());
}

#[test]
fn model_of_broken_connections() {
    model_crowd(|_, victim| {
        victim.line.strike(if thread_rng().gen_bool(0.5) {
            Fault::Before
        } else {
            Fault::After
        });
        shuttle::thread::yield_now();
        victim.line.reset();
    });
}

/// An administrator removes a waiting contender's node, at any moment.
///
/// (A *holder's* node removed by hand lets the next one in at once; that the holder learns of it
/// is another promise, which only a watch of its own could keep at every step.)
#[test]
fn model_of_a_removed_waiter() {
    model_crowd(|ensemble, _| {
        for _ in 0..4 {
            ensemble.remove_last_waiter(FOLDER);
            shuttle::thread::yield_now();
        }
    });
}

/// Threads of one process are served in the order in which they queued, whatever they queued
/// behind.
#[test]
fn model_of_first_come_first_served() {
    for policy in policies() {
        explore(SCHEDULES / 2, move || {
            let ensemble = Ensemble::new();
            let process = Process::start(&ensemble, &policy, WaitStrategy::PredecessorWatch);
            let served = Arc::new(Mutex::new(Vec::new()));
            process.lock(&Bound::none()).expect("free");
            let mut threads = Vec::new();
            for number in 0..3 {
                let (process_, served) = (Arc::clone(&process), Arc::clone(&served));
                threads.push(shuttle::thread::spawn(move || {
                    process_.lock(&Bound::none()).expect("its turn");
                    served.lock().push(number);
                    let _ = process_.queue.release();
                }));
                while process.queue.waiting() <= number {
                    shuttle::thread::yield_now();
                }
            }
            let breaker = {
                let process = Arc::clone(&process);
                shuttle::thread::spawn(move || process.line.reset())
            };
            let _ = process.queue.release();
            for thread in threads {
                thread.join().expect("no panic");
            }
            breaker.join().expect("no panic");
            assert_eq!(*served.lock(), [0, 1, 2]);
            settle(&ensemble, &[process]);
        });
    }
}

/// Closing wakes everybody, wherever they wait.
#[test]
fn model_of_a_close() {
    for policy in policies() {
        explore(SCHEDULES / 2, move || {
            let ensemble = Ensemble::new();
            let process = Process::start(&ensemble, &policy, WaitStrategy::PredecessorWatch);
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let process = Arc::clone(&process);
                    shuttle::thread::spawn(move || match process.lock(&Bound::none()) {
                        Ok(()) => {
                            shuttle::thread::yield_now();
                            let _ = process.queue.release();
                        }
                        Err(error) => assert!(error.is_closed(), "{error}"),
                    })
                })
                .collect();
            process.session.close(Duration::from_secs(1));
            for thread in threads {
                thread.join().expect("no panic");
            }
            assert_eq!(ensemble.children_of(FOLDER), [String::new(); 0]);
        });
    }
}
