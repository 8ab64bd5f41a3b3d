//! Permits: several of them at once, behind a lock that lets one process at a time count.

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};

use super::{
    BROKEN_CONNECTIONS, Chaos, FOLDER, LOST_SESSION, Manner, PEACE, REFUSALS, REMOVED_WAITER,
    SCHEDULES, explore, settle,
};
use crate::global_queue::{
    AcquireRequest, GlobalQueue, Limit, PermitFolder, ReleaseMode, WaitStrategy,
};
use crate::local_queue::{LocalQueue, Policy, Turns};
use crate::session::memory::{Ensemble, Line};
use crate::session::{Session, Waiter};
use crate::sync::Mutex;
use crate::tenure::{LockState, Tenure};
use crate::wait::limits::WaitLimits;
use crate::znode::names::{Class, Dialect, Grammar};
use crate::znode::path::LockPath;

/// Where each permit is a node. The queue in front of them is in [`FOLDER`].
const PERMITS: &str = "/permits";

/// Says how many there may be.
const COUNT: &str = "/count";

/// How many there may be, where that does not change.
const MOST: usize = 3;

/// One process.
struct Process {
    session: Arc<Session>,
    line: Arc<Line>,
    front: Arc<LocalQueue>,
    permits: PermitFolder,
}

impl Process {
    fn start(ensemble: &Arc<Ensemble>, limit: Limit) -> Arc<Self> {
        let (session, line) = ensemble.connect();
        let path = |path| LockPath::parse(path).expect("good");
        let front = GlobalQueue::new(
            &session,
            path(FOLDER),
            Grammar::mutex(Dialect::Curator, None),
            Class::Exclusive,
            WaitStrategy::PredecessorWatch,
            false,
        );
        let grammar = Grammar::lease(Dialect::Curator);
        Arc::new(Self {
            permits: PermitFolder::new(&session, path(PERMITS), grammar, limit),
            front: LocalQueue::new(front, Policy::default()),
            session,
            line,
        })
    }

    fn data() -> Arc<[u8]> {
        Arc::from([])
    }

    fn request(count: usize) -> AcquireRequest<'static> {
        AcquireRequest {
            count,
            ..AcquireRequest::plain(Self::data())
        }
    }

    /// As a semaphore does it: the lock in front, then the permits.
    fn acquire(&self, count: usize, limits: &WaitLimits) -> crate::Result<Arc<Tenure>> {
        loop {
            self.front.acquire(limits, Self::data)?;
            let waiter = Waiter::new(&self.session, limits);
            let in_front = self.front.tenure();
            let permits = self
                .permits
                .acquire(&waiter, &Self::request(count), &in_front);
            if limits.is_none() {
                let _ = self.front.release();
            } else {
                drop(self.front.start_release(ReleaseMode::Background));
            }
            match permits {
                Err(error) if error.is_lock_lost() => {}
                permits => return permits,
            }
        }
    }

    fn try_acquire(&self, count: usize) -> crate::Result<Option<Arc<Tenure>>> {
        if !self.permits.has_free(count)? || !self.front.try_acquire(Self::data)? {
            return Ok(None);
        }
        let limits = WaitLimits::none();
        let waiter = Waiter::new(&self.session, &limits);
        let permits = self.permits.try_acquire(&waiter, &Self::request(count));
        let _ = self.front.release();
        permits
    }

    /// One acquire, in one of the ways there are, and a section if it succeeds.
    fn act(&self, inside: &Inside) {
        let count = thread_rng().gen_range(1..=2);
        let (mut tried, mut waited) = (None, None);
        let held = Manner::any().ask(
            || {
                tried = self.try_acquire(count)?;
                Ok(tried.is_some())
            },
            |limits| {
                waited = Some(self.acquire(count, limits)?);
                Ok(())
            },
        );
        if !held {
            return;
        }
        let tenure = tried.or(waited).expect("held");
        assert_eq!(tenure.nodes().len(), count);
        inside.enter(&tenure);
        shuttle::thread::yield_now();
        inside.leave(&tenure);
        // Whether the release is confirmed is not this test's question.
        if thread_rng().gen_bool(0.3) {
            drop(self.permits.start_release(&tenure));
        } else {
            let _ = self.permits.start_release(&tenure).confirm();
        }
    }
}

/// Who has permits.
#[derive(Default)]
struct Inside(Mutex<Vec<Arc<Tenure>>>);

impl Inside {
    /// Those who do not know, on a look, that their permits are lost have no more than there are.
    fn enter(&self, tenure: &Arc<Tenure>) {
        let mut inside = self.0.lock();
        inside.push(Arc::clone(tenure));
        let believed = inside
            .iter()
            .filter(|tenure| tenure.state() != LockState::Lost);
        let held: usize = believed.map(|tenure| tenure.nodes().len()).sum();
        assert!(held <= MOST, "{held} of {MOST} are held: {:?}", *inside);
    }

    fn leave(&self, tenure: &Arc<Tenure>) {
        let mut inside = self.0.lock();
        inside.retain(|other| !Arc::ptr_eq(other, tenure));
    }
}

/// Two processes, two threads in the first of them; what goes wrong is chosen by `chaos`.
fn crowd(chaos: Chaos) -> impl Fn() + Send + Sync + Clone {
    move || {
        let ensemble = Ensemble::new();
        let inside = Arc::new(Inside::default());
        let home = || LockPath::parse(COUNT).expect("good");
        let limit = || Limit::fixed(u32::try_from(MOST).expect("small"), home(), false);
        let processes: Vec<_> = (0..2).map(|_| Process::start(&ensemble, limit())).collect();
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
        let of = |process: &Arc<Process>| Arc::clone(&process.session);
        let sessions: Vec<_> = processes.iter().map(of).collect();
        // What is known of the maximum is watched for as long as the lock is there.
        drop(processes);
        settle(&ensemble, &sessions.iter().collect::<Vec<_>>());
    }
}

#[test]
fn model_of_permits_in_peace() {
    explore(SCHEDULES, crowd(PEACE));
}

/// Of two permits, one was once made in the old session and one in the new, and both were booked as
/// the new one's: one more was held than there are. All permits of an acquire are made, and
/// counted, on contacts of one session.
#[test]
fn model_of_permits_and_a_lost_session() {
    explore(SCHEDULES, crowd(LOST_SESSION));
}

#[test]
fn model_of_permits_and_broken_connections() {
    explore(SCHEDULES, crowd(BROKEN_CONNECTIONS));
}

#[test]
fn model_of_permits_and_refusals_for_now() {
    explore(SCHEDULES, crowd(REFUSALS));
}

#[test]
fn model_of_permits_and_a_removed_waiter_in_front() {
    explore(SCHEDULES, crowd(REMOVED_WAITER));
}

/// Two creates in one write, and somebody makes the folder between them: the first is refused, and
/// the second one's node once stood forgotten until the session's end, a permit that nobody had.
#[test]
fn model_of_permits_whose_folder_is_made_between_two() {
    explore(SCHEDULES, || {
        let ensemble = Ensemble::new();
        let home = LockPath::parse(COUNT).expect("good");
        let process = Process::start(&ensemble, Limit::fixed(3, home, false));
        let maker = {
            let ensemble = Arc::clone(&ensemble);
            shuttle::thread::spawn(move || ensemble.write(PERMITS, &[]))
        };
        let held = process.acquire(2, &WaitLimits::none()).expect("free");
        assert_eq!(held.nodes().len(), 2);
        maker.join().expect("no panic");
        let _ = process.permits.start_release(&held).confirm();
        let session = Arc::clone(&process.session);
        drop(process);
        settle(&ensemble, &[&session]);
    });
}

/// A waiter once slept with the watch on the maximum left on a connection that had broken, and the
/// one on the permits on the next: it never heard that there may be more. The limit and the list
/// are of one connection, and when it goes both are looked at again.
#[test]
fn model_of_a_maximum_that_is_raised_during_a_break() {
    explore(SCHEDULES, || {
        let ensemble = Ensemble::new();
        let one = 1_i32.to_be_bytes();
        ensemble.write(COUNT, &one);
        let count = || LockPath::parse(COUNT).expect("good");
        let start = || Process::start(&ensemble, Limit::shared(count(), 1));
        let processes = [start(), start()];
        let held = processes[0].acquire(1, &WaitLimits::none()).expect("free");
        let waiter = {
            let process = Arc::clone(&processes[1]);
            shuttle::thread::spawn(move || {
                let second = process.acquire(1, &WaitLimits::none());
                let second = second.expect("waits for its turn");
                let _ = process.permits.start_release(&second).confirm();
            })
        };
        let breaker = {
            let line = Arc::clone(&processes[1].line);
            shuttle::thread::spawn(move || line.reset())
        };
        shuttle::thread::yield_now();
        ensemble.write(COUNT, &2_i32.to_be_bytes());
        // The first permit is not given back before.
        waiter.join().expect("no panic");
        breaker.join().expect("no panic");
        let _ = processes[0].permits.start_release(&held).confirm();
        let sessions = processes.map(|process| Arc::clone(&process.session));
        settle(&ensemble, &sessions.each_ref());
    });
}
