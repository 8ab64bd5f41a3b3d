//! A first-come-first-served queue of threads with one condition variable each: the physical
//! limit of handing over in order inside one process, without ZooKeeper.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// The queue. Not a lock for use: nothing guards against a thread that forgets to leave.
#[derive(Default)]
pub struct Fifo {
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    taken: bool,
    waiting: VecDeque<Arc<Place>>,
}

#[derive(Default)]
struct Place {
    granted: Mutex<bool>,
    was_granted: Condvar,
}

impl Fifo {
    pub fn enter(&self) {
        let mut line = self.line.lock();
        if !line.taken {
            line.taken = true;
            return;
        }
        let place = Arc::new(Place::default());
        line.waiting.push_back(Arc::clone(&place));
        drop(line);
        let mut granted = place.granted.lock();
        while !*granted {
            place.was_granted.wait(&mut granted);
        }
    }

    pub fn leave(&self) {
        let mut line = self.line.lock();
        let Some(next) = line.waiting.pop_front() else {
            line.taken = false;
            return;
        };
        drop(line);
        *next.granted.lock() = true;
        next.was_granted.notify_one();
    }
}
