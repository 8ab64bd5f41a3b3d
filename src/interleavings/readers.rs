//! The read-write lock: many readers or one writer, and readers who share a node.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use super::{
    BROKEN_CONNECTIONS, Chaos, FOLDER, Inside, LOST_SESSION, Manner, PEACE, REFUSALS,
    REMOVED_WAITER, Right, SCHEDULES, explore, settle, until,
};
use crate::global_queue::{GlobalQueue, WaitStrategy};
use crate::local_queue::{LocalQueue, Policy, SharedQueue, Turns};
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
    pub(super) readers: Arc<SharedQueue>,
    pub(super) writers: Arc<LocalQueue>,
}

impl Process {
    fn start(ensemble: &Arc<Ensemble>) -> Arc<Self> {
        Self::start_with(ensemble, &Policy::default())
    }

    pub(super) fn start_with(ensemble: &Arc<Ensemble>, policy: &Policy) -> Arc<Self> {
        let (session, line) = ensemble.connect();
        let protocol = |class| {
            GlobalQueue::new(
                &session,
                LockPath::parse(FOLDER).expect("good"),
                Grammar::rw(Dialect::Curator),
                class,
                WaitStrategy::PredecessorWatch,
                class == Class::Read && !policy.read_linger.is_zero(),
            )
        };
        Arc::new(Self {
            readers: SharedQueue::new(protocol(Class::Read), policy.clone()),
            writers: LocalQueue::new(protocol(Class::Write), policy.clone()),
            session,
            line,
        })
    }

    pub(super) fn data() -> Arc<[u8]> {
        Arc::from([])
    }

    fn read(&self, inside: &Inside) {
        let held = Manner::any().ask(
            || self.readers.try_acquire(Self::data),
            |limits| self.readers.acquire(limits, Self::data),
        );
        if held {
            let tenure = self.readers.tenure();
            inside.enter(&tenure, Right::Shared);
            shuttle::thread::yield_now();
            if thread_rng().gen_bool(0.2) {
                // Again, by the same thread, whoever waits.
                let again = self.readers.acquire(&WaitLimits::none(), Self::data);
                match again {
                    Ok(()) => drop(self.readers.release()),
                    // Re-entry asks nobody, and never enters what is lost.
                    Err(error) => assert!(error.is_lock_lost(), "{error}"),
                }
            }
            inside.leave(&tenure);
            let _ = self.readers.release();
        }
    }

    fn write(&self, inside: &Inside) {
        // As another lock object of this process would not: its own readers hear of it either way.
        if thread_rng().gen_bool(0.5) {
            drop(self.readers.start_idle_release());
        }
        let held = Manner::any().ask(
            || self.writers.try_acquire(Self::data),
            |limits| self.writers.acquire(limits, Self::data),
        );
        if !held {
            return;
        }
        let writing = self.writers.tenure();
        inside.enter(&writing, Right::Alone);
        shuttle::thread::yield_now();
        inside.leave(&writing);
        let downgraded = thread_rng().gen_bool(0.3)
            && self
                .readers
                .acquire_under(&writing, &WaitLimits::none(), &Self::data())
                .is_ok();
        let _ = self.writers.release();
        if downgraded {
            let reading = self.readers.tenure();
            inside.enter(&reading, Right::Shared);
            shuttle::thread::yield_now();
            inside.leave(&reading);
            let _ = self.readers.release();
        }
    }
}

pub(super) fn end(ensemble: &Ensemble, processes: &[Arc<Process>]) {
    for process in processes {
        let _ = process.readers.end_idle();
    }
    let sessions: Vec<_> = processes.iter().map(|process| &process.session).collect();
    settle(ensemble, &sessions);
}

/// Readers who go when they have read, who stay for a while, and who stay until a writer comes.
fn policies() -> [Policy; 3] {
    [Duration::ZERO, Duration::from_secs(1), Duration::MAX].map(|read_linger| Policy {
        read_linger,
        ..Policy::default()
    })
}

/// Two processes, two readers in the first of them; what goes wrong is chosen by `chaos`.
fn crowd(policy: Policy, chaos: Chaos) -> impl Fn() + Send + Sync + Clone {
    move || {
        let ensemble = Ensemble::new();
        let inside = Arc::new(Inside::default());
        let processes: Vec<_> = (0..2)
            .map(|_| Process::start_with(&ensemble, &policy))
            .collect();
        let mut threads = Vec::new();
        for process in [&processes[0], &processes[0], &processes[1]] {
            let (process, inside) = (Arc::clone(process), Arc::clone(&inside));
            threads.push(shuttle::thread::spawn(move || {
                for _ in 0..2 {
                    if thread_rng().gen_bool(0.6) {
                        process.read(&inside);
                    } else {
                        process.write(&inside);
                    }
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
        explore(SCHEDULES * 2 / 3, crowd(policy, chaos));
    }
}

#[test]
fn model_of_readers_in_peace() {
    model_crowd(PEACE);
}

#[test]
fn model_of_readers_and_a_lost_session() {
    model_crowd(LOST_SESSION);
}

#[test]
fn model_of_readers_and_broken_connections() {
    model_crowd(BROKEN_CONNECTIONS);
}

#[test]
fn model_of_readers_and_refusals_for_now() {
    model_crowd(REFUSALS);
}

#[test]
fn model_of_readers_and_a_removed_waiter() {
    // Behind readers who stay until a writer comes, one whose node was removed finds that out by
    // time alone, and a sleep that has begun has none here.
    let [at_once, for_a_while, _] = policies();
    for policy in [at_once, for_a_while] {
        explore(SCHEDULES, crowd(policy, REMOVED_WAITER));
    }
}

/// A place that is kept with nobody inside ends for a writer, whom no reader overtakes that comes
/// when this process has heard of it; and it does not end for another process's readers.
#[test]
fn model_of_a_writer_that_ends_what_lingers() {
    let [_, _, lingering] = policies();
    explore(SCHEDULES / 2, move || {
        let ensemble = Ensemble::new();
        let processes = [lingering.clone(), Policy::default()]
            .map(|policy| Process::start_with(&ensemble, &policy));
        let [first, second] = &processes;
        let read = |process: &Process| {
            let read = process.readers.acquire(&WaitLimits::none(), Process::data);
            read.expect("its turn");
            let node = process.readers.tenure().node().to_owned();
            let _ = process.readers.release();
            node
        };
        let node = read(first);
        for _ in 0..2 {
            read(second);
        }
        assert_eq!(read(first), node, "for readers it is kept");
        let served = Arc::new(Mutex::new(Vec::new()));
        let writer = {
            let (second, served) = (Arc::clone(second), Arc::clone(&served));
            shuttle::thread::spawn(move || {
                let write = second.writers.acquire(&WaitLimits::none(), Process::data);
                write.expect("its turn");
                served.lock().push("writer");
                let _ = second.writers.release();
            })
        };
        until(&ensemble, || {
            let queued = ensemble.children_of(FOLDER);
            let is_there = queued.iter().any(|name| name.contains("__WRIT__"));
            (is_there || !served.lock().is_empty()) && first.line.has_heard_all()
        });
        assert_ne!(read(first), node);
        served.lock().push("reader");
        writer.join().expect("no panic");
        assert_eq!(*served.lock(), ["writer", "reader"]);
        end(&ensemble, &processes);
    });
}

/// A reader that comes after a writer that waits does not overtake it, though others of its process
/// read.
#[test]
fn model_of_a_writer_that_is_not_overtaken() {
    explore(SCHEDULES / 2, || {
        let ensemble = Ensemble::new();
        let processes: Vec<_> = (0..2).map(|_| Process::start(&ensemble)).collect();
        let served = Arc::new(Mutex::new(Vec::new()));
        let first = &processes[0];
        let read = first.readers.acquire(&WaitLimits::none(), Process::data);
        read.expect("free");
        let writer = {
            let (process, served) = (Arc::clone(&processes[1]), Arc::clone(&served));
            shuttle::thread::spawn(move || {
                let write = process.writers.acquire(&WaitLimits::none(), Process::data);
                write.expect("its turn");
                served.lock().push("writer");
                let _ = process.writers.release();
            })
        };
        // It stands in the queue, and the event that tells of it was delivered.
        while ensemble.children_of(FOLDER).len() < 2 || !first.line.has_heard_all() {
            shuttle::thread::yield_now();
        }
        let reader = {
            let (process, served) = (Arc::clone(first), Arc::clone(&served));
            shuttle::thread::spawn(move || {
                let read = process.readers.acquire(&WaitLimits::none(), Process::data);
                read.expect("its turn");
                served.lock().push("reader");
                let _ = process.readers.release();
            })
        };
        let _ = first.readers.release();
        writer.join().expect("no panic");
        reader.join().expect("no panic");
        assert_eq!(*served.lock(), ["writer", "reader"]);
        end(&ensemble, &processes);
    });
}

/// Readers who came before a writer that waits share the node of the one who leads, also when that
/// one itself still waits for an earlier writer.
#[test]
fn model_of_readers_who_came_first() {
    explore(SCHEDULES / 2, || {
        let ensemble = Ensemble::new();
        let processes: Vec<_> = (0..3).map(|_| Process::start(&ensemble)).collect();
        let served = Arc::new(Mutex::new(Vec::new()));
        let write = processes[0]
            .writers
            .acquire(&WaitLimits::none(), Process::data);
        write.expect("free");
        let mut threads = Vec::new();
        for number in 0..2 {
            let (process, served) = (Arc::clone(&processes[1]), Arc::clone(&served));
            threads.push(shuttle::thread::spawn(move || {
                let read = process.readers.acquire(&WaitLimits::none(), Process::data);
                read.expect("its turn");
                served.lock().push("reader");
                let _ = process.readers.release();
            }));
            // The second has looked, and sleeps.
            while ensemble.children_of(FOLDER).len() < 2 || !process_sleeps(&processes[1], number) {
                shuttle::thread::yield_now();
            }
        }
        let (process, served_) = (Arc::clone(&processes[2]), Arc::clone(&served));
        threads.push(shuttle::thread::spawn(move || {
            let write = process.writers.acquire(&WaitLimits::none(), Process::data);
            write.expect("its turn");
            served_.lock().push("writer");
            let _ = process.writers.release();
        }));
        while ensemble.children_of(FOLDER).len() < 3 {
            shuttle::thread::yield_now();
        }
        let _ = processes[0].writers.release();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(*served.lock(), ["reader", "reader", "writer"]);
        end(&ensemble, &processes);
    });
}

fn process_sleeps(process: &Process, threads: usize) -> bool {
    process.readers.sleeping_first() >= threads
}

/// Closing wakes everybody, wherever they wait.
#[test]
fn model_of_readers_and_a_close() {
    for policy in policies() {
        explore(SCHEDULES / 4, move || close(&policy));
    }
}

fn close(policy: &Policy) {
    let ensemble = Ensemble::new();
    let process = Process::start_with(&ensemble, policy);
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let process = Arc::clone(&process);
            shuttle::thread::spawn(move || {
                let result = if number == 0 {
                    let held = process.writers.acquire(&WaitLimits::none(), Process::data);
                    held.map(|()| {
                        let _ = process.writers.release();
                    })
                } else {
                    let held = process.readers.acquire(&WaitLimits::none(), Process::data);
                    held.map(|()| {
                        let _ = process.readers.release();
                    })
                };
                if let Err(error) = result {
                    assert!(error.is_closed(), "{error}");
                }
            })
        })
        .collect();
    process.session.close(Duration::from_secs(1));
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(ensemble.children_of(FOLDER).is_empty());
}
