//! A few threads for what nobody waits for: orphans to remove, tenures to look at after a reconnect,
//! idle tenures to end. There are [`LIMIT`] threads at most; when all are stuck on a silent
//! connection, further jobs stay in the queue until the link has cut it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::sync::{self, Condvar, Mutex};

/// Threads for each client, at most. Four in flight keep a server busy (about 150 us a call), and
/// no more than four can hang on a dead one.
pub(crate) const LIMIT: usize = 4;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The pool. Threads are started when work comes and none is free, and end at [`Workers::close`].
#[derive(Default)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is a job, or the pool was closed.
    work: Condvar,
    /// A thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for `work`.
    idle: usize,
    closed: bool,
}

impl Workers {
    /// Has `job` run soon. After `close` it is dropped unrun.
    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.shared.state.lock();
        if state.closed {
            return;
        }
        state.jobs.push_back(job);
        let short_of_hands = state.jobs.len() > state.idle && state.threads < LIMIT;
        if short_of_hands {
            state.threads += 1;
            let number = state.threads;
            drop(state);
            let shared = Arc::clone(&self.shared);
            let name = format!("zklock-worker-{number}");
            if let Err(error) = sync::spawn(&name, move || shared.run()) {
                log::warn!("could not start thread {name} ({error}); calls with a deadline wait");
                self.shared.state.lock().threads -= 1;
            }
        } else {
            drop(state);
            self.shared.work.notify_one();
        }
    }

    /// Ends the threads when they have finished what they do; jobs that were not begun are
    /// dropped.
    pub(crate) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let unrun = std::mem::take(&mut state.jobs);
        drop(state);
        self.shared.work.notify_all();
        drop(unrun);
    }

    /// Waits until no thread is left, until `deadline` at most. Returns whether all have ended.
    pub(crate) fn wait_ended(&self, deadline: std::time::Instant) -> bool {
        let mut state = self.shared.state.lock();
        while state.threads > 0 {
            if sync::wait_until(&self.shared.ended, &mut state, Some(deadline)) {
                return state.threads == 0;
            }
        }
        true
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A job that panics must not take the thread along: others wait for it. The panic hook
                // has said what there is to say.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock();
            } else if state.closed {
                break;
            } else {
                state.idle += 1;
                sync::wait_until(&self.work, &mut state, None);
                state.idle -= 1;
            }
        }
        state.threads -= 1;
        drop(state);
        self.ended.notify_all();
    }
}
