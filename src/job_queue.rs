//! One thread, and the jobs that it does one after the other.
//!
//! A client has two. One calls observers and loggers, which are somebody else's code and may block
//! for ever or panic. The other makes the requests that nobody waits for.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::sync::{self, Condvar, Mutex, ThreadId};

type Job = Box<dyn FnOnce() + Send>;

/// See the [module](self). The thread is started with the first job, and ends after
/// [`finish`](Self::finish) or [`stop`](Self::stop).
pub(crate) struct JobQueue {
    shared: Arc<Shared>,
}

struct Shared {
    /// Of the thread.
    name: &'static str,
    /// So many jobs are kept while the thread is stuck.
    most_kept: usize,
    /// What is to be done after a job that panicked.
    on_panic: Box<dyn Fn() + Send + Sync>,
    state: Mutex<QueuedJobs>,
    /// There is a job, or nothing more will come.
    work: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct QueuedJobs {
    jobs: VecDeque<Job>,
    /// By their times, and by a running number for equal times.
    timed: BTreeMap<(Instant, u64), Job>,
    next: u64,
    runs: bool,
    /// Known as soon as it runs.
    thread: Option<ThreadId>,
    closed: bool,
    left_out: u64,
}

impl JobQueue {
    /// A job that panics does not take the thread along; `on_panic` is called on it then, before
    /// the next job.
    pub(crate) fn new(
        name: &'static str,
        most_kept: usize,
        on_panic: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                name,
                most_kept,
                on_panic: Box::new(on_panic),
                state: Mutex::new(QueuedJobs::default()),
                work: Condvar::new(),
                ended: Condvar::new(),
            }),
        }
    }

    /// Has `job` run soon, after those that came before. Never blocks. A job that does not fit, or
    /// comes after the end, is left out.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.add(|state| state.jobs.push_back(Box::new(job)));
    }

    /// Has `job` run at this time or soon after. Never blocks.
    pub(crate) fn run_at(&self, at: Instant, job: impl FnOnce() + Send + 'static) {
        self.add(|state| {
            state.next += 1;
            state.timed.insert((at, state.next), Box::new(job));
        });
    }

    fn add(&self, put: impl FnOnce(&mut QueuedJobs)) {
        let mut state = self.shared.state.lock();
        if state.closed || state.jobs.len() >= self.shared.most_kept {
            state.left_out += 1;
            return;
        }
        put(&mut state);
        drop(state);
        self.shared.work.notify_one();
        self.see_to_thread();
    }

    /// Starts the thread if there is work and it does not run, or could not be started before.
    pub(crate) fn see_to_thread(&self) {
        let mut state = self.shared.state.lock();
        let work = !state.jobs.is_empty() || !state.timed.is_empty();
        if state.runs || state.closed || !work {
            return;
        }
        state.runs = true;
        drop(state);
        let shared = Arc::clone(&self.shared);
        if sync::spawn(self.shared.name, move || shared.work_off()).is_err() {
            // The next job tries again, or the next look at the clock. Nobody is here to be told.
            self.shared.state.lock().runs = false;
            self.shared.ended.notify_all();
        }
    }

    /// How many jobs did not fit, or came after the end.
    pub(crate) fn left_out(&self) -> u64 {
        self.shared.state.lock().left_out
    }

    /// Takes no further job. Those that wait for a time are dropped, the others are done.
    pub(crate) fn finish(&self) {
        self.close(false);
    }

    /// Takes no further job, and drops all that have not begun.
    pub(crate) fn stop(&self) {
        self.close(true);
    }

    fn close(&self, drop_all: bool) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let timed = std::mem::take(&mut state.timed);
        let jobs = drop_all.then(|| std::mem::take(&mut state.jobs));
        drop(state);
        self.shared.work.notify_all();
        // They may own things whose end is somebody else's code.
        drop((timed, jobs));
    }

    /// Whether this is the thread that does the jobs.
    pub(crate) fn is_current(&self) -> bool {
        self.shared.state.lock().thread == Some(sync::this_thread())
    }

    /// Waits until the thread has ended, until `deadline` at most. Returns whether it has. A job
    /// does not wait for itself.
    pub(crate) fn wait_ended(&self, deadline: Instant) -> bool {
        let mut state = self.shared.state.lock();
        while state.runs {
            if state.thread == Some(sync::this_thread()) {
                return true;
            }
            if sync::wait_until(&self.shared.ended, &mut state, Some(deadline)) {
                return !state.runs;
            }
        }
        true
    }
}

impl Drop for JobQueue {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn work_off(&self) {
        let mut state = self.state.lock();
        state.thread = Some(sync::this_thread());
        loop {
            if let Some(job) = state.next_job() {
                drop(state);
                // The panic hook has said what there is to say.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                    // Its Drop is somebody else's code, too.
                    std::mem::forget(panic);
                    (self.on_panic)();
                }
                state = self.state.lock();
            } else if state.closed {
                break;
            } else {
                let until = state.timed.first_key_value().map(|((at, _), _)| *at);
                sync::wait_until(&self.work, &mut state, until);
            }
        }
        state.runs = false;
        drop(state);
        self.ended.notify_all();
    }
}

impl QueuedJobs {
    fn next_job(&mut self) -> Option<Job> {
        let timed = self.timed.first_entry();
        if let Some(due) = timed.filter(|first| first.key().0 <= sync::now()) {
            return Some(due.remove());
        }
        self.jobs.pop_front()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use crossbeam_channel::{Sender, bounded, unbounded};

    use super::*;

    const SOON: Duration = Duration::from_secs(30);
    const BACKLOG: usize = 100;

    fn queue() -> JobQueue {
        JobQueue::new("test", BACKLOG, || {})
    }

    /// Has the thread stick in a job until what is returned is dropped.
    fn stick(queue: &JobQueue) -> Sender<()> {
        let (entered, begun) = bounded(1);
        let (release, stuck) = bounded(0);
        queue.run(move || {
            let _ = entered.send(());
            let _ = stuck.recv();
        });
        begun.recv_timeout(SOON).expect("it runs");
        release
    }

    #[test]
    fn runs_all_in_order_and_ends() {
        let queue = queue();
        let (tell, told) = unbounded();
        for number in 0..100 {
            let tell = tell.clone();
            queue.run(move || {
                let _ = tell.send(number);
            });
        }
        queue.finish();
        assert!(queue.wait_ended(Instant::now() + SOON));
        assert_eq!(
            told.try_iter().collect::<Vec<_>>(),
            (0..100).collect::<Vec<_>>()
        );
        queue.run(|| unreachable!("closed"));
        assert_eq!(queue.left_out(), 1);
    }

    #[test]
    fn outlives_a_panic_and_tells_of_it() {
        let (tell, told) = unbounded();
        let tell_panic = tell.clone();
        let queue = JobQueue::new("test", BACKLOG, move || {
            let _ = tell_panic.send("panicked");
        });
        queue.run(|| std::panic::resume_unwind(Box::new(())));
        queue.run(move || {
            let _ = tell.send("goes on");
        });
        assert_eq!(told.recv_timeout(SOON), Ok("panicked"));
        assert_eq!(told.recv_timeout(SOON), Ok("goes on"));
        queue.finish();
        assert!(queue.wait_ended(Instant::now() + SOON));
    }

    #[test]
    fn what_is_stuck_holds_up_nobody_and_keeps_no_more_than_the_backlog() {
        let queue = queue();
        let release = stick(&queue);
        for _ in 0..BACKLOG + 7 {
            queue.run(|| {});
        }
        assert_eq!(queue.left_out(), 7);
        queue.finish();
        assert!(!queue.wait_ended(Instant::now()));
        drop(release);
        assert!(queue.wait_ended(Instant::now() + SOON));
    }

    #[test]
    fn does_at_its_time_what_has_one_and_the_rest_meanwhile() {
        let queue = queue();
        let (tell, told) = unbounded();
        let say = |what: &'static str| {
            let tell = tell.clone();
            move || {
                let _ = tell.send((what, Instant::now()));
            }
        };
        let (soon, sooner) = (Duration::from_millis(40), Duration::from_millis(20));
        let begun = Instant::now();
        queue.run_at(begun + soon, say("soon"));
        queue.run_at(begun + SOON, say("never"));
        queue.run_at(begun + sooner, say("sooner"));
        queue.run(say("now"));
        for (what, not_before) in [("now", Duration::ZERO), ("sooner", sooner), ("soon", soon)] {
            let (said, at) = told.recv_timeout(SOON).expect("it runs");
            assert_eq!(said, what);
            assert!(at >= begun + not_before, "{what}");
        }
        queue.finish();
        assert!(queue.wait_ended(Instant::now() + SOON));
        assert!(told.is_empty());
    }

    #[test]
    fn stops_with_what_it_is_at() {
        let queue = queue();
        let release = stick(&queue);
        queue.run(|| unreachable!("stopped"));
        queue.stop();
        drop(release);
        assert!(queue.wait_ended(Instant::now() + SOON));
    }

    /// Threads of other clients have the same name.
    #[test]
    fn a_job_waits_for_the_end_of_another_queue_and_not_of_its_own() {
        let (one, other) = (Arc::new(queue()), Arc::new(queue()));
        let (tell, told) = bounded(1);
        let release = stick(&other);
        let (own, foreign) = (Arc::clone(&one), Arc::clone(&other));
        one.run(move || {
            let now = Instant::now();
            let _ = tell.send((own.wait_ended(now), foreign.wait_ended(now)));
        });
        assert_eq!(told.recv_timeout(SOON), Ok((true, false)));
        drop(release);
    }
}
