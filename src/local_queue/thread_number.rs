//! A number for each thread.

#[cfg(not(shuttle))]
pub(super) use self::numbers::Named;
pub(super) use self::numbers::thread_number;

#[cfg(not(shuttle))]
mod numbers {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread::{self, Thread};
    use std::time::Duration;

    use parking_lot::Mutex;

    /// The threads that have a number and live. Only looked at to show them.
    static NAMES: Mutex<BTreeMap<u64, Thread>> = Mutex::new(BTreeMap::new());

    /// In a forked child the names may be locked by a thread that is not there. Nothing waits for
    /// them for longer, and what finds no name shows a number.
    const PATIENCE: Duration = Duration::from_millis(10);

    thread_local! {
        static MINE: u64 = begin();
        static END: End = const { End(Cell::new(0)) };
    }

    /// A number for this thread that no other thread of the process ever has. Never 0.
    #[inline]
    pub(in super::super) fn thread_number() -> u64 {
        MINE.with(|mine| *mine)
    }

    fn begin() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Not for a thread that is at its end already: nothing would take its name out again.
        if END.try_with(|end| end.0.set(number)).is_ok()
            && let Some(mut names) = NAMES.try_lock_for(PATIENCE)
        {
            names.insert(number, thread::current());
        }
        number
    }

    /// Takes the name of this thread out at its end.
    struct End(Cell<u64>);

    impl Drop for End {
        fn drop(&mut self) {
            if let Some(mut names) = NAMES.try_lock_for(PATIENCE) {
                names.remove(&self.0.get());
            }
        }
    }

    /// A thread, to be shown.
    pub(in super::super) struct Named(pub(in super::super) u64);

    impl std::fmt::Debug for Named {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let names = NAMES.try_lock_for(PATIENCE);
            let thread = names.and_then(|names| names.get(&self.0).cloned());
            match thread {
                Some(thread) => {
                    let name = thread.name().unwrap_or("<unnamed>");
                    write!(f, "{name:?} {:?}", thread.id())
                }
                None => write!(f, "thread number {}", self.0),
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_thread_is_shown_by_its_name_as_long_as_it_lives() {
            let (tell, told) = crossbeam_channel::bounded(1);
            let (end, ends) = crossbeam_channel::bounded::<()>(0);
            let named = thread::Builder::new().name("porter".into());
            let lives = named.spawn(move || {
                let _ = tell.send(thread_number());
                let _ = ends.recv();
            });
            let lives = lives.expect("a thread");
            let number = told.recv().expect("it runs");
            let id = lives.thread().id();
            assert_eq!(format!("{:?}", Named(number)), format!("\"porter\" {id:?}"));
            drop(end);
            lives.join().expect("no panic");
            let number_alone = format!("thread number {number}");
            assert_eq!(format!("{:?}", Named(number)), number_alone);
        }
    }
}

#[cfg(shuttle)]
mod numbers {
    use std::hash::{DefaultHasher, Hash, Hasher};

    /// A number for this thread that no other thread of the process ever has. Never 0.
    pub(in super::super) fn thread_number() -> u64 {
        let mut hasher = DefaultHasher::new();
        shuttle::thread::current().id().hash(&mut hasher);
        hasher.finish() | 1
    }
}
