//! A client's events: to an [`Observer`], to the log, and as [`Stats`].
//!
//! Nothing here blocks or calls anybody back: events and lines go to a thread of their own. So a
//! caller may tell of something under the lock of a local queue or of the session, which keeps the
//! order. Without an observer, each event costs one plain load.

mod counts;
#[cfg(feature = "metrics")]
mod metrics_observer;
pub(crate) mod observer;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use self::counts::Stats;
use self::counts::{Counts, WaitingCount};
#[cfg(feature = "metrics")]
pub use self::metrics_observer::MetricsObserver;
use self::observer::{
    Acquired, Label, Lost, Miss, Missed, Observer, OrphanCleaned, Queued, Released, Retrying,
    TenureEnded, Way,
};
use super::connection::ConnectionEvent;
use super::loss::LossReason;
use crate::error::Error;
use crate::fork::ForkCheck;
use crate::job_queue::JobQueue;

/// Events kept for an observer or a logger that is stuck.
const BACKLOG: usize = 4096;

/// See the [module](self).
pub(crate) struct Observation {
    /// Each hears all, in this order.
    observers: Arc<[Box<dyn Observer>]>,
    /// Runs what is somebody else's.
    callbacks: JobQueue,
    counts: Counts,
    fork: ForkCheck,
}

impl Observation {
    pub(crate) fn new(observers: Vec<Box<dyn Observer>>, fork: ForkCheck) -> Self {
        Self {
            observers: observers.into(),
            // What panics there is not ours, and nothing of ours is lost with it.
            callbacks: JobQueue::new("zklock-aside", BACKLOG, || {}),
            counts: Counts::default(),
            fork,
        }
    }

    /// Whether anybody observes.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.observers.is_empty()
    }

    /// All that is counted here.
    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.counts.stats();
        if !self.fork.forked() {
            stats.left_out = self.callbacks.left_out();
        }
        stats
    }

    /// One more thread waits, as long as the answer is there.
    pub(crate) fn waits(&self) -> WaitingCount<'_> {
        self.counts.waits()
    }

    pub(super) fn callbacks(&self) -> &JobQueue {
        &self.callbacks
    }

    fn tell(&self, event: impl Fn(&dyn Observer) + Send + 'static) {
        // In a forked child nothing runs aside, and what is locked there may stay so for ever.
        if !self.is_on() || self.fork.forked() {
            return;
        }
        let observers = Arc::clone(&self.observers);
        self.callbacks.run(move || {
            for observer in &*observers {
                // One that panics keeps nothing from those after it. The panic hook has said what
                // there is to say.
                let told = catch_unwind(AssertUnwindSafe(|| event(&**observer)));
                told.unwrap_or_else(std::mem::forget);
            }
        });
    }

    /// Has a line logged where a logger that is stuck holds up nobody. Asks the logger nothing on
    /// this thread.
    pub(crate) fn log(
        &self,
        level: log::Level,
        target: &'static str,
        line: impl FnOnce() -> String,
    ) {
        if level <= log::max_level() && !self.fork.forked() {
            let line = line();
            self.callbacks
                .run(move || log::log!(target: target, level, "{line}"));
        }
    }

    pub(super) fn connection(&self, event: &ConnectionEvent) {
        self.counts.connection(event);
        if self.is_on() {
            let event = event.clone();
            self.tell(move |observer| observer.connection(&event));
        }
    }

    pub(crate) fn queued(&self, label: &Label) {
        if self.is_on() {
            let label = label.clone();
            let queued = Queued { label };
            self.tell(move |observer| observer.queued(&queued));
        }
    }

    /// A take of a lingering lock is not counted: it is the fastest path.
    pub(crate) fn acquired(&self, label: &Label, waited: Duration, by: Way) {
        match by {
            Way::Asked => self.counts.asked(waited),
            Way::HandedOver => self.counts.handed_over(),
            Way::Shared => self.counts.shared(),
            Way::Lingering | Way::Parts => {}
        }
        if self.is_on() {
            let label = label.clone();
            let acquired = Acquired { label, waited, by };
            self.tell(move |observer| observer.acquired(&acquired));
        }
    }

    pub(crate) fn failed(&self, label: &Label, waited: Duration, error: &Error) {
        self.missed(label, waited, Miss::of(error));
    }

    pub(crate) fn missed(&self, label: &Label, waited: Duration, why: Miss) {
        self.counts.missed(why);
        self.missed_whole(label, waited, why);
    }

    /// Of something whose parts are counted.
    pub(crate) fn missed_whole(&self, label: &Label, waited: Duration, why: Miss) {
        if self.is_on() {
            let label = label.clone();
            let missed = Missed { label, waited, why };
            self.tell(move |observer| observer.missed(&missed));
        }
    }

    pub(crate) fn released(&self, label: &Label, held_for: Duration, confirmed: bool) {
        if self.is_on() {
            let released = Released {
                label: label.clone(),
                held_for,
                confirmed,
            };
            self.tell(move |observer| observer.released(&released));
        }
    }

    pub(crate) fn tenure_ended(&self, label: &Label, lasted: Duration, confirmed: bool) {
        self.counts.tenure_ended(lasted, confirmed);
        if self.is_on() {
            let label = label.clone();
            let ended = TenureEnded { label, lasted };
            self.tell(move |observer| observer.tenure_ended(&ended));
        }
    }

    pub(crate) fn lost(&self, label: &Label, reason: LossReason) {
        self.counts.lost();
        if self.is_on() {
            let label = label.clone();
            let lost = Lost { label, reason };
            self.tell(move |observer| observer.lost(&lost));
        }
    }

    pub(super) fn orphan_cleaned(&self, left: usize) {
        self.counts.orphan_cleaned();
        self.tell(move |observer| observer.orphan_cleaned(&OrphanCleaned { left }));
    }

    pub(super) fn put_off(&self) {
        self.counts.put_off();
    }

    pub(super) fn retrying(&self, times: u32) {
        self.counts.retrying();
        self.tell(move |observer| observer.retrying(&Retrying { times }));
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation")
            .field("is_on", &self.is_on())
            .finish_non_exhaustive()
    }
}

/// Has a line logged by the thread that a stuck logger may hold up, for a session's sake.
macro_rules! say {
    ($session:expr, $level:ident, $($line:tt)+) => {
        $session.observation().log(log::Level::$level, module_path!(), || format!($($line)+))
    };
}
pub(crate) use say;
