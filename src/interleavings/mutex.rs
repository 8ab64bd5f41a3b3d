//! The mutex: one at a time, first come, first served.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use super::{
    BROKEN_CONNECTIONS, Chaos, FOLDER, Inside, LOST_SESSION, Manner, PEACE, REFUSALS,
    REMOVED_WAITER, Right, SCHEDULES, explore, policies, settle,
};
use crate::global_queue::{GlobalQueue, WaitStrategy};
use crate::local_queue::{LocalQueue, Policy, Turns};
use crate::session::Session;
use crate::session::memory::{Ensemble, Line};
use crate::sync::Mutex;
use crate::wait::limits::WaitLimits;
use crate::znode::names::{Class, Dialect, Grammar};
use crate::znode::path::LockPath;

/// One process.
pub(super) struct Process {
    pub(super) session: Arc<Session>,
    pub(super) line: Arc<Line>,
    pub(super) queue: Arc<LocalQueue>,
}

/// How a process makes its lock.
pub(super) type Make = fn(&Arc<Session>, &Policy) -> Arc<LocalQueue>;

/// A lock by a queue.
pub(super) fn by_queue(session: &Arc<Session>, policy: &Policy) -> Arc<LocalQueue> {
    let protocol = GlobalQueue::new(
        session,
        LockPath::parse(FOLDER).expect("good"),
        Grammar::mutex(Dialect::Curator, None),
        Class::Exclusive,
        WaitStrategy::PredecessorWatch,
        !policy.linger.is_zero(),
    );
    LocalQueue::new(protocol, policy.clone())
}

impl Process {
    pub(super) fn start(ensemble: &Arc<Ensemble>, policy: &Policy, make: Make) -> Arc<Self> {
        let (session, line) = ensemble.connect();
        let queue = make(&session, policy);
        Arc::new(Self {
            session,
            line,
            queue,
        })
    }

    pub(super) fn data() -> Arc<[u8]> {
        Arc::from([])
    }

    pub(super) fn lock(&self, limits: &WaitLimits) -> crate::Result<()> {
        self.queue.acquire(limits, Self::data)
    }

    /// A section, in which other threads may run.
    fn section(&self, inside: &Inside) {
        let tenure = self.queue.tenure();
        inside.enter(&tenure, Right::Alone);
        shuttle::thread::yield_now();
        if thread_rng().gen_bool(0.2) {
            // Again, by the same thread.
            match self.lock(&WaitLimits::none()) {
                Ok(()) => {
                    assert_eq!(self.queue.depth(), 2);
                    let _ = self.queue.release();
                }
                // Re-entry asks nobody, and never enters what is lost.
                Err(error) => assert!(error.is_lock_lost(), "{error}"),
            }
        }
        inside.leave(&tenure);
    }

    /// One acquire, in one of the ways there are, and a section if it succeeds.
    fn act(&self, inside: &Inside) {
        let held = Manner::any().ask(
            || self.queue.try_acquire(Self::data),
            |limits| self.lock(limits),
        );
        if held {
            self.section(inside);
            // Whether the release is confirmed is not this test's question.
            let _ = self.queue.release();
        }
    }
}

impl Process {
    /// One acquire, and a section without re-entry if it succeeds.
    fn enter_all(&self, insides: &[&Inside]) {
        let held = Manner::any().ask(
            || self.queue.try_acquire(Self::data),
            |limits| self.lock(limits),
        );
        if held {
            self.section_in(insides);
        }
    }

    /// A section of a thread that holds, and its release.
    fn section_in(&self, insides: &[&Inside]) {
        let tenure = self.queue.tenure();
        for inside in insides {
            inside.enter(&tenure, Right::Alone);
        }
        shuttle::thread::yield_now();
        for inside in insides {
            inside.leave(&tenure);
        }
        let _ = self.queue.release();
    }
}

/// Nothing is left when all have gone.
pub(super) fn end(ensemble: &Ensemble, processes: &[Arc<Process>]) {
    for process in processes {
        let _ = process.queue.end_idle();
    }
    let sessions: Vec<_> = processes.iter().map(|process| &process.session).collect();
    settle(ensemble, &sessions);
}

/// Two processes with two threads each; what goes wrong is chosen by `chaos`.
pub(super) fn crowd(make: Make, policy: Policy, chaos: Chaos) -> impl Fn() + Send + Sync + Clone {
    move || {
        let ensemble = Ensemble::new();
        let inside = Arc::new(Inside::default());
        let processes: Vec<_> = (0..2)
            .map(|_| Process::start(&ensemble, &policy, make))
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
        let (ensemble_, victim) = (Arc::clone(&ensemble), Arc::clone(&processes[0].line));
        threads.push(shuttle::thread::spawn(move || chaos(&ensemble_, &victim)));
        for thread in threads {
            thread.join().expect("no panic");
        }
        end(&ensemble, &processes);
    }
}

fn model_crowd(chaos: Chaos) {
    for policy in policies() {
        explore(SCHEDULES, crowd(by_queue, policy, chaos));
    }
}

#[test]
fn model_of_peace() {
    model_crowd(PEACE);
}

#[test]
fn model_of_a_lost_session() {
    model_crowd(LOST_SESSION);
}

#[test]
fn model_of_broken_connections() {
    model_crowd(BROKEN_CONNECTIONS);
}

#[test]
fn model_of_refusals_for_now() {
    model_crowd(REFUSALS);
}

#[test]
fn model_of_a_removed_waiter() {
    model_crowd(REMOVED_WAITER);
}

/// Threads of one process are served in the order in which they queued, whatever they queued
/// behind.
#[test]
fn model_of_first_come_first_served() {
    for policy in policies() {
        explore(SCHEDULES / 2, move || {
            let ensemble = Ensemble::new();
            let process = Process::start(&ensemble, &policy, by_queue);
            let served = Arc::new(Mutex::new(Vec::new()));
            process.lock(&WaitLimits::none()).expect("free");
            let mut threads = Vec::new();
            for number in 0..3 {
                let (process_, served) = (Arc::clone(&process), Arc::clone(&served));
                threads.push(shuttle::thread::spawn(move || {
                    process_.lock(&WaitLimits::none()).expect("its turn");
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
            end(&ensemble, &[process]);
        });
    }
}

/// Detached holds are given back by another thread than the one that took them, while that one
/// enters again, and others want the lock.
#[test]
fn model_of_holds_that_another_thread_gives_back() {
    for policy in policies() {
        explore(SCHEDULES, move || {
            let ensemble = Ensemble::new();
            let processes: Vec<_> = (0..2)
                .map(|_| Process::start(&ensemble, &policy, by_queue))
                .collect();
            // Sections exclude each other. The thread that takes a second hold for a section is in
            // the other one all the time that it has the first.
            let (sections, detached) = (Arc::<Inside>::default(), Arc::<Inside>::default());
            let mut threads = Vec::new();
            for process in &processes {
                let process = Arc::clone(process);
                let (sections, detached) = (Arc::clone(&sections), Arc::clone(&detached));
                threads.push(shuttle::thread::spawn(move || {
                    for _ in 0..2 {
                        process.enter_all(&[&sections, &detached]);
                    }
                }));
            }
            let process = Arc::clone(&processes[0]);
            threads.push(shuttle::thread::spawn(move || {
                detached_holds(&process, &sections, &detached);
            }));
            for thread in threads {
                thread.join().expect("no panic");
            }
            end(&ensemble, &processes);
        });
    }
}

fn detached_holds(process: &Arc<Process>, sections: &Inside, detached: &Arc<Inside>) {
    let queue = &process.queue;
    process.lock(&WaitLimits::none()).expect("its turn");
    process.lock(&WaitLimits::none()).expect("held");
    let tenure = queue.tenure();
    detached.enter(&tenure, Right::Alone);
    queue.detach();
    queue.detach();
    let keeps_one = thread_rng().gen_bool(0.5);
    let other = {
        let (process, detached) = (Arc::clone(process), Arc::clone(detached));
        shuttle::thread::spawn(move || {
            assert_eq!(process.queue.depth(), 0, "of this thread");
            assert!(!process.queue.attach(), "not this thread's");
            let _ = process.queue.release_detached();
            if !keeps_one {
                detached.leave(&tenure);
                let _ = process.queue.release_detached();
            }
        })
    };
    for _ in 0..2 {
        process.enter_all(&[sections]);
        let again = if thread_rng().gen_bool(0.5) {
            queue.hold_on()
        } else {
            queue.reenter()
        };
        if again.expect("neither lost nor deep") {
            process.section_in(&[sections]);
        }
    }
    if keeps_one {
        assert!(queue.attach(), "still the owner");
        detached.leave(&queue.tenure());
        process.section_in(&[sections]);
    }
    other.join().expect("no panic");
    assert_eq!(queue.depth(), 0);
}

/// Closing wakes everybody, wherever they wait.
#[test]
fn model_of_a_close() {
    for policy in policies() {
        explore(SCHEDULES / 2, move || {
            let ensemble = Ensemble::new();
            let process = Process::start(&ensemble, &policy, by_queue);
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let process = Arc::clone(&process);
                    shuttle::thread::spawn(move || match process.lock(&WaitLimits::none()) {
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
            assert!(ensemble.children_of(FOLDER).is_empty());
        });
    }
}
