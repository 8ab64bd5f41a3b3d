//! A number for each thread.

/// A number for this thread that no other thread of the process ever has. Never 0.
#[inline]
pub(super) fn thread_number() -> u64 {
    #[cfg(not(shuttle))]
    {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        MINE.with(|mine| *mine)
    }
    #[cfg(shuttle)]
    {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        shuttle::thread::current().id().hash(&mut hasher);
        hasher.finish() | 1
    }
}
