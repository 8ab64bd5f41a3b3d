//! Threads that take turns, measured once all of them are in line.
//!
//! A thread that starts first could run through a good part of its share before the others are
//! even awake, and make any queue look as fast as an idle lock. So the clock starts in the first
//! section after every thread has had one (each queues again at once), and stops in a section.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `threads` threads that call `in_turn` again and again, which calls what it is given inside
/// a critical section; returns how long `sections` of them took.
///
/// # Panics
/// If two sections overlap.
pub fn time_of(threads: u32, sections: u64, in_turn: impl Fn(&dyn Fn()) + Sync) -> Duration {
    let meter = Meter::new(threads, sections);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut first = true;
                while !meter.over.load(Ordering::Relaxed) {
                    in_turn(&|| meter.section(first));
                    first = false;
                }
            });
        }
    });
    meter.elapsed()
}

struct Meter {
    threads: u32,
    sections: u64,
    inside: AtomicBool,
    arrived: AtomicU32,
    done: AtomicU64,
    over: AtomicBool,
    /// The first and the last section that count.
    window: Mutex<(Option<Instant>, Option<Instant>)>,
}

impl Meter {
    fn new(threads: u32, sections: u64) -> Meter {
        Meter {
            threads,
            sections,
            inside: AtomicBool::new(false),
            arrived: AtomicU32::new(0),
            done: AtomicU64::new(0),
            over: AtomicBool::new(false),
            window: Mutex::new((None, None)),
        }
    }

    fn section(&self, first: bool) {
        assert!(
            !self.inside.swap(true, Ordering::AcqRel),
            "two in a section"
        );
        if first {
            self.arrived.fetch_add(1, Ordering::Relaxed);
        } else if self.arrived.load(Ordering::Relaxed) == self.threads {
            let done = self.done.load(Ordering::Relaxed);
            self.done.store(done + 1, Ordering::Relaxed);
            if done == 0 || done == self.sections {
                self.mark(done == self.sections);
            }
        }
        self.inside.store(false, Ordering::Release);
    }

    #[cold]
    fn mark(&self, end: bool) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if end {
            window.1 = Some(Instant::now());
            self.over.store(true, Ordering::Relaxed);
        } else {
            window.0 = Some(Instant::now());
        }
    }

    fn elapsed(&self) -> Duration {
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        match *window {
            (Some(start), Some(end)) => end - start,
            _ => unreachable!("the threads end when the window has"),
        }
    }
}
