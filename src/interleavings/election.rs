//! The election: a hold that is no thread's, given back by whoever has the last share of it.

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};

use super::mutex::{Process, end};
use super::{
    BROKEN_CONNECTIONS, Chaos, FOLDER, Inside, LOST_SESSION, Manner, PEACE, REFUSALS,
    REMOVED_WAITER, Right, SCHEDULES, explore,
};
use crate::global_queue::{GlobalQueue, WaitStrategy};
use crate::local_queue::{LocalQueue, Policy};
use crate::session::Session;
use crate::session::memory::Ensemble;
use crate::tenure::Tenure;
use crate::wait::limits::WaitLimits;
use crate::znode::names::{Class, Dialect, Grammar};
use crate::znode::path::LockPath;

/// As the recipe builds it.
fn policy() -> Policy {
    Policy {
        hand_off: false,
        reentrant: false,
        ..Policy::default()
    }
}

fn candidates(session: &Arc<Session>, policy: &Policy) -> Arc<LocalQueue> {
    let protocol = GlobalQueue::new(
        session,
        LockPath::parse(FOLDER).expect("good"),
        Grammar::election(Dialect::Curator),
        Class::Leader,
        WaitStrategy::PredecessorWatch,
        false,
    );
    LocalQueue::new(protocol, policy.clone())
}

/// What a leadership and its workers share; the last of them gives it back, as the recipe's does.
struct Term {
    process: Arc<Process>,
    tenure: Arc<Tenure>,
    inside: Arc<Inside>,
}

impl Term {
    fn begin(process: &Arc<Process>, inside: &Arc<Inside>) -> Arc<Self> {
        let tenure = process.queue.tenure();
        process.queue.disown();
        inside.enter(&tenure, Right::Alone);
        Arc::new(Self {
            process: Arc::clone(process),
            tenure,
            inside: Arc::clone(inside),
        })
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.inside.leave(&self.tenure);
        // Whether the release is confirmed is not this test's question.
        let _ = self.process.queue.release_detached();
    }
}

/// One campaign, in one of the ways there are, and a term with a worker if it succeeds.
fn stand(process: &Arc<Process>, inside: &Arc<Inside>) {
    let leads = Manner::any().ask(
        || process.queue.try_acquire(Process::data),
        |limits| process.lock(limits),
    );
    if !leads {
        return;
    }
    let term = Term::begin(process, inside);
    assert!(!process.queue.is_owner(), "the thread that stood");
    if thread_rng().gen_bool(0.3) {
        // A thread that leads is a candidate like any other, and does not lead twice.
        let again = process.queue.try_acquire(Process::data);
        assert!(!again.expect("asks nobody"), "this term stands");
    }
    let worker = Arc::clone(&term);
    let worker = shuttle::thread::spawn(move || {
        shuttle::thread::yield_now();
        drop(worker);
    });
    shuttle::thread::yield_now();
    drop(term);
    if thread_rng().gen_bool(0.5) {
        worker.join().expect("no panic");
    }
}

fn model(chaos: Chaos) {
    explore(SCHEDULES, move || {
        let ensemble = Ensemble::new();
        let inside = Arc::new(Inside::default());
        let processes: Vec<_> = (0..2)
            .map(|_| Process::start(&ensemble, &policy(), candidates))
            .collect();
        let mut threads = Vec::new();
        for process in [&processes[0], &processes[0], &processes[1]] {
            let (process, inside) = (Arc::clone(process), Arc::clone(&inside));
            threads.push(shuttle::thread::spawn(move || {
                for _ in 0..2 {
                    stand(&process, &inside);
                }
            }));
        }
        let (ensemble_, victim) = (Arc::clone(&ensemble), Arc::clone(&processes[0].line));
        threads.push(shuttle::thread::spawn(move || chaos(&ensemble_, &victim)));
        for thread in threads {
            thread.join().expect("no panic");
        }
        // A worker that nobody waited for may be at it still: who stands now comes after it.
        for process in &processes {
            process.lock(&WaitLimits::none()).expect("its turn");
            drop(Term::begin(process, &inside));
        }
        end(&ensemble, &processes);
    });
}

#[test]
fn model_of_terms_in_peace() {
    model(PEACE);
}

#[test]
fn model_of_terms_that_lose_their_session() {
    model(LOST_SESSION);
}

#[test]
fn model_of_terms_on_broken_connections() {
    model(BROKEN_CONNECTIONS);
}

#[test]
fn model_of_terms_that_are_refused_for_now() {
    model(REFUSALS);
}

#[test]
fn model_of_terms_with_a_removed_candidate() {
    model(REMOVED_WAITER);
}
