//! Several locks asked for at once, beside threads that take them one by one in the same order.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use super::{
    BROKEN_CONNECTIONS, Chaos, Inside, LOST_SESSION, PEACE, REFUSALS, Right, SCHEDULES, explore,
    policies, settle,
};
use crate::global_queue::{GlobalQueue, WaitStrategy};
use crate::local_queue::{
    Candidates, LocalQueue, Policy, SharedQueue, Turns, take_together, try_together,
};
use crate::session::Session;
use crate::session::memory::{Ensemble, Line};
use crate::tenure::Tenure;
use crate::wait::limits::{WaitLimits, deadline_after};
use crate::znode::names::{Class, Dialect, Grammar};
use crate::znode::path::LockPath;

/// In canonical order. In the last one threads read who take all at once, and some others write.
const FOLDERS: [&str; 3] = ["/a", "/b", "/c"];

enum Part {
    Alone(Arc<LocalQueue>),
    Shared(Arc<SharedQueue>),
}

struct Process {
    session: Arc<Session>,
    line: Arc<Line>,
    parts: [Part; 3],
    /// Objects of their own for some who take them one by one: at the second of the folders, and at
    /// the last, to write.
    second: Part,
    writers: Part,
}

/// Every thread's, for every lock.
type AllInside = [Inside; 3];

fn queue(session: &Arc<Session>, folder: &str, class: Class, may_linger: bool) -> GlobalQueue {
    let grammar = match class {
        Class::Read | Class::Write => Grammar::rw(Dialect::Curator),
        _ => Grammar::mutex(Dialect::Curator, None),
    };
    let path = LockPath::parse(folder).expect("good");
    let strategy = WaitStrategy::PredecessorWatch;
    GlobalQueue::new(session, path, grammar, class, strategy, may_linger)
}

impl Part {
    fn take(&self, limits: &WaitLimits) -> crate::Result<()> {
        match self {
            Self::Alone(queue) => queue.acquire(limits, || Arc::from([])),
            Self::Shared(queue) => queue.acquire(limits, || Arc::from([])),
        }
    }

    fn release(&self) {
        // Whether it is confirmed is not this test's question.
        let _ = match self {
            Self::Alone(queue) => queue.release(),
            Self::Shared(queue) => queue.release(),
        };
    }

    fn tenure(&self) -> (Arc<Tenure>, Right) {
        match self {
            Self::Alone(queue) => (queue.tenure(), Right::Alone),
            Self::Shared(queue) => (queue.tenure(), Right::Shared),
        }
    }
}

impl Process {
    fn start(ensemble: &Arc<Ensemble>, policy: &Policy) -> Arc<Self> {
        let (session, line) = ensemble.connect();
        let [a, b, c] = FOLDERS;
        let lingers = !policy.linger.is_zero();
        let alone = |folder, class| {
            let protocol = queue(&session, folder, class, lingers);
            Part::Alone(LocalQueue::new(protocol, policy.clone()))
        };
        let readers = queue(&session, c, Class::Read, lingers);
        let shared = SharedQueue::new(readers, policy.clone());
        let exclusive = Class::Exclusive;
        let parts = [
            alone(a, exclusive),
            alone(b, exclusive),
            Part::Shared(shared),
        ];
        let (second, writers) = (alone(b, exclusive), alone(c, Class::Write));
        Arc::new(Self {
            session,
            line,
            parts,
            second,
            writers,
        })
    }

    /// This thread as a candidate for the locks from one on, as far as nobody comes first.
    fn candidates(&self, from: usize) -> Candidates<'_> {
        let parts = self.parts[from..].iter();
        let data = || Arc::from([]);
        parts
            .map_while(|part| match part {
                Part::Alone(queue) => queue.stand(data),
                Part::Shared(queue) => queue.stand(data),
            })
            .collect()
    }

    /// Takes all as a multi-lock does. Returns how many are held.
    fn take_all(&self, limits: &WaitLimits) -> (usize, crate::Result<()>) {
        let mut held = 0;
        while held < self.parts.len() {
            let candidates = self.candidates(held);
            let result = if candidates.is_empty() {
                self.parts[held].take(limits).map(|()| held += 1)
            } else {
                let before = held;
                let taken = take_together(&self.session, candidates, limits, || held += 1);
                assert!(taken.is_err() || held > before, "one more at least");
                taken.map(drop)
            };
            if result.is_err() {
                return (held, result);
            }
        }
        (held, Ok(()))
    }

    /// All at once or not at all.
    fn try_all(&self) -> usize {
        let candidates = self.candidates(0);
        if candidates.len() < self.parts.len() {
            return 0;
        }
        let mut held = 0;
        let tried = try_together(&self.session, candidates, || held += 1);
        if let Ok(Some(true)) = tried {
            assert_eq!(held, self.parts.len());
        }
        held
    }

    fn act(&self, inside: &AllInside) {
        let mut parts: Vec<_> = self.parts.iter().collect();
        let mut from = 0;
        let held = match thread_rng().gen_range(0..5) {
            0 => self.try_all(),
            1 => {
                let limits = WaitLimits::until(deadline_after(Duration::from_secs(1)));
                self.take_all(&limits).0
            }
            // One by one.
            2 => {
                if thread_rng().gen_bool(0.5) {
                    parts[1] = &self.second;
                }
                if thread_rng().gen_bool(0.5) {
                    parts[2] = &self.writers;
                }
                from = thread_rng().gen_range(0..parts.len());
                for part in &parts[from..] {
                    part.take(&WaitLimits::none()).expect("waits for its turn");
                }
                parts.len() - from
            }
            _ => {
                let (held, result) = self.take_all(&WaitLimits::none());
                result.expect("waits for its turn");
                held
            }
        };
        let parts = &parts[from..from + held];
        let tenures: Vec<_> = parts.iter().map(|part| part.tenure()).collect();
        for (inside, (tenure, right)) in inside[from..].iter().zip(&tenures) {
            inside.enter(tenure, *right);
        }
        shuttle::thread::yield_now();
        for (inside, (tenure, _)) in inside[from..].iter().zip(&tenures) {
            inside.leave(tenure);
        }
        parts.iter().rev().for_each(|part| part.release());
    }
}

fn crowd(policy: Policy, chaos: Chaos) -> impl Fn() + Send + Sync + Clone {
    move || {
        let ensemble = Ensemble::new();
        // Or the first who come make them, one by one.
        if thread_rng().gen_bool(0.8) {
            FOLDERS
                .iter()
                .for_each(|folder| ensemble.write(folder, b""));
        }
        let inside: Arc<AllInside> = Arc::default();
        let processes = [(), ()].map(|()| Process::start(&ensemble, &policy));
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
        for process in &processes {
            for part in process
                .parts
                .iter()
                .chain([&process.second, &process.writers])
            {
                let _ = match part {
                    Part::Alone(queue) => queue.end_idle(),
                    Part::Shared(queue) => queue.end_idle(),
                };
            }
        }
        let sessions: Vec<_> = processes.iter().map(|process| &process.session).collect();
        settle(&ensemble, &sessions);
    }
}

fn model_crowd(chaos: Chaos) {
    for policy in policies() {
        explore(SCHEDULES / 3, crowd(policy, chaos));
    }
}

#[test]
fn model_of_several_at_once_in_peace() {
    model_crowd(PEACE);
}

#[test]
fn model_of_several_at_once_and_a_lost_session() {
    model_crowd(LOST_SESSION);
}

#[test]
fn model_of_several_at_once_and_broken_connections() {
    model_crowd(BROKEN_CONNECTIONS);
}

#[test]
fn model_of_several_at_once_and_refusals_for_now() {
    model_crowd(REFUSALS);
}

/// Somebody removes nodes of ours that stand behind others, among them some that are being taken
/// back.
#[test]
fn model_of_several_at_once_and_a_removed_waiter() {
    model_crowd(|ensemble, _| {
        for _ in 0..6 {
            let folder = FOLDERS[thread_rng().gen_range(0..2)];
            ensemble.remove_last_waiter(folder);
            shuttle::thread::yield_now();
        }
    });
}
