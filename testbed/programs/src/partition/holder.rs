//! A holder that looks at its lock all the time, and notes when it knew what.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use zklock::{Client, Election, LockState, LossReason};

use super::doors::{Doors, Reach};
use super::{Case, Prize};

/// How often the holder looks at its state: far more often than anything here changes.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How often a busy holder makes a call: enough for its connection never to be idle.
const CALL_EVERY: Duration = Duration::from_millis(20);

const A_CALL: Duration = Duration::from_millis(500);

/// What else a holder's session is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Idle,
    Reading,
    /// It takes other locks and gives them back.
    Writing,
}

impl Doing {
    pub const ALL: [Doing; 3] = [Doing::Idle, Doing::Reading, Doing::Writing];
}

/// A client of its own that holds one lock. Dropping this gives it back.
#[derive(Debug)]
pub(super) struct Holder {
    path: String,
    reach: Reach,
    doing: Doing,
    client: Client,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    knew: Mutex<Knew>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Knew {
    suspect: Option<Instant>,
    lost: Option<Instant>,
    told: Option<Instant>,
}

impl Holder {
    pub(super) fn take(doors: &Doors, case: Case, path: &str, doing: Doing) -> Holder {
        let client = Client::builder(&doors.connect_string())
            .session_timeout(case.session)
            .connect()
            .expect("the seat serves");
        let shared = Arc::new(Shared::default());
        let mut holder = Holder {
            path: path.to_owned(),
            reach: doors.reach(),
            doing,
            client,
            shared,
            threads: Vec::new(),
        };
        let held = Arc::new(Barrier::new(2));
        holder.spawn({
            let held = Arc::clone(&held);
            move |client, path, shared| match case.prize {
                Prize::Mutex => hold(client, path, shared, &held),
                Prize::Leadership => lead(client, path, shared, &held),
            }
        });
        held.wait();
        match doing {
            Doing::Idle => {}
            Doing::Reading => holder.spawn(read),
            Doing::Writing => holder.spawn(write),
        }
        holder
    }

    fn spawn(&mut self, run: impl FnOnce(&Client, &str, &Shared) + Send + 'static) {
        let (client, path) = (self.client.clone(), self.path.clone());
        let shared = Arc::clone(&self.shared);
        let thread = thread::spawn(move || run(&client, &path, &shared));
        self.threads.push(thread);
    }

    /// Has the server answer a request, if it can.
    pub(super) fn ask(&self) {
        let other = other_lock(&self.client, &self.path);
        let _ = other.participants();
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    pub(super) fn doing(&self) -> Doing {
        self.doing
    }

    /// When `state()` was first not `Held`.
    pub(super) fn suspect_at(&self) -> Option<Instant> {
        self.shared.knew().suspect
    }

    /// When `state()` was first `Lost`.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        self.shared.knew().lost
    }

    /// When `lost()` spoke.
    pub(super) fn told_at(&self) -> Option<Instant> {
        self.shared.knew().told
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // Its panic has been reported, and a second one here would hide the first.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }

    fn knew(&self) -> Knew {
        *self.knew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: impl FnOnce(&mut Knew)) {
        note(&mut self.knew.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn hold(client: &Client, path: &str, shared: &Shared, held: &Barrier) {
    let lock = zklock::Mutex::new(client, path).expect("a good path");
    let guard = lock.lock().expect("nobody has it");
    held.wait();
    note_loss(guard.lost(), || guard.state(), shared);
}

fn lead(client: &Client, path: &str, shared: &Shared, held: &Barrier) {
    let election = Election::new(client, path).expect("a good path");
    let leadership = election.campaign().expect("nobody leads");
    held.wait();
    let worker = leadership.worker();
    note_loss(worker.lost(), || worker.state(), shared);
}

fn note_loss(lost: &Receiver<LossReason>, state: impl Fn() -> LockState, shared: &Shared) {
    thread::scope(|scope| {
        scope.spawn(|| {
            while !shared.ends() {
                // Without a reason the guard was given back.
                if lost.recv_timeout(A_CALL).is_ok() {
                    let now = Instant::now();
                    shared.note(|knew| knew.told = Some(now));
                    return;
                }
            }
        });
        look(state, shared);
    });
}

/// Looks until the end. A loss is noted as late as it was seen, not as early as it may have been.
fn look(state: impl Fn() -> LockState, shared: &Shared) {
    while !shared.ends() {
        let state = state();
        let now = Instant::now();
        shared.note(|knew| {
            if state != LockState::Held {
                knew.suspect.get_or_insert(now);
            }
            if state == LockState::Lost {
                knew.lost.get_or_insert(now);
            }
        });
        thread::sleep(LOOK_EVERY);
    }
}

fn read(client: &Client, path: &str, shared: &Shared) {
    let other = other_lock(client, path);
    while !shared.ends() {
        // It may fail, or take long: that is the trouble.
        let _ = other.participants();
        thread::sleep(CALL_EVERY);
    }
}

fn write(client: &Client, path: &str, shared: &Shared) {
    let other = other_lock(client, path);
    while !shared.ends() {
        let _ = other.try_lock_for(A_CALL);
        thread::sleep(CALL_EVERY);
    }
}

fn other_lock(client: &Client, path: &str) -> zklock::Mutex {
    zklock::Mutex::new(client, &format!("{path}-other")).expect("a good path")
}
