//! One thread of a client for code that is somebody else's: an observer, a logger.
//!
//! Such code may block for ever, or panic. Whoever has something to say to it leaves a job here and
//! goes on; what does not fit into the backlog any more is left out and counted.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::sync::{self, Condvar, Mutex};

/// Jobs that are kept for a thread that is stuck.
const BACKLOG: usize = 4096;

type Job = Box<dyn FnOnce() + Send>;

/// See the [module](self). The thread is started with the first job, and ends after
/// [`Aside::close`], when it has done what was left to do.
#[derive(Default)]
pub(crate) struct Aside {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is a job, or nothing more will come.
    work: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    runs: bool,
    closed: bool,
    left_out: u64,
}

impl Aside {
    /// Has `job` run soon, after those that were left before. Never blocks.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        if state.closed || state.jobs.len() >= BACKLOG {
            state.left_out += 1;
            return;
        }
        state.jobs.push_back(Box::new(job));
        let start = !std::mem::replace(&mut state.runs, true);
        drop(state);
        if start {
            self.start();
        } else {
            self.shared.work.notify_one();
        }
    }

    fn start(&self) {
        let shared = Arc::clone(&self.shared);
        if sync::spawn("zklock-aside", move || shared.work_off()).is_err() {
            // Whoever comes next tries again. Nobody is here to be told.
            self.shared.state.lock().runs = false;
        }
    }

    /// How many jobs did not fit, or came after the end.
    pub(crate) fn left_out(&self) -> u64 {
        self.shared.state.lock().left_out
    }

    /// Takes no further job.
    pub(crate) fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
    }

    /// Waits until all jobs are done and the thread has ended, until `deadline` at most. Returns
    /// whether it has. A job that closes the client does not wait for itself.
    pub(crate) fn wait_ended(&self, deadline: Instant) -> bool {
        if std::thread::current().name() == Some("zklock-aside") {
            return true;
        }
        let mut state = self.shared.state.lock();
        while state.runs {
            if sync::wait_until(&self.shared.ended, &mut state, Some(deadline)) {
                return !state.runs;
            }
        }
        true
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn work_off(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // The panic hook has said what there is to say.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock();
            } else if state.closed {
                break;
            } else {
                sync::wait_until(&self.work, &mut state, None);
            }
        }
        state.runs = false;
        drop(state);
        self.ended.notify_all();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use crossbeam_channel::{bounded, unbounded};

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    #[test]
    fn runs_all_in_order_and_ends() {
        let aside = Aside::default();
        let (tell, told) = unbounded();
        for number in 0..100 {
            let tell = tell.clone();
            aside.run(move || {
                let _ = tell.send(number);
            });
        }
        aside.close();
        assert!(aside.wait_ended(Instant::now() + SOON));
        assert_eq!(
            told.try_iter().collect::<Vec<_>>(),
            (0..100).collect::<Vec<_>>()
        );
        aside.run(|| unreachable!("closed"));
        assert_eq!(aside.left_out(), 1);
    }

    #[test]
    fn outlives_a_panic() {
        let aside = Aside::default();
        let (tell, told) = bounded(1);
        aside.run(|| std::panic::resume_unwind(Box::new(())));
        aside.run(move || {
            let _ = tell.send(());
        });
        assert_eq!(told.recv_timeout(SOON), Ok(()));
        aside.close();
        assert!(aside.wait_ended(Instant::now() + SOON));
    }

    #[test]
    fn what_is_stuck_holds_up_nobody_and_keeps_no_more_than_the_backlog() {
        let aside = Aside::default();
        let (entered, begun) = bounded(1);
        let (release, stuck) = bounded::<()>(0);
        aside.run(move || {
            let _ = entered.send(());
            let _ = stuck.recv();
        });
        begun.recv_timeout(SOON).expect("it runs");
        for _ in 0..BACKLOG + 7 {
            aside.run(|| {});
        }
        assert_eq!(aside.left_out(), 7);
        aside.close();
        assert!(!aside.wait_ended(Instant::now()));
        drop(release);
        assert!(aside.wait_ended(Instant::now() + SOON));
    }
}
