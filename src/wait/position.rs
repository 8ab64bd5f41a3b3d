//! [`QueuePosition`]: how many are ahead of a thread that waits.

use std::fmt;

use crossbeam_channel::Sender;

use crate::sync::Mutex;

/// How many are ahead of a thread that waits for a lock, as reported to
/// [`AcquireOptions::positions`](crate::AcquireOptions::positions).
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
/// let (to, positions) = crossbeam_channel::bounded(16);
/// let options = zklock::AcquireOptions::new().positions(&to);
/// drop(to); // so that the channel ends with the wait
/// let waiter = std::thread::spawn(move || lock.lock_with(options).map(drop));
/// for position in positions {
///     let (processes, threads) = (position.contenders_ahead(), position.threads_ahead());
///     println!("{processes} processes and {threads} threads of ours are ahead");
/// }
/// waiter.join().expect("no panic")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    pub(crate) threads: usize,
    pub(crate) contenders: usize,
}

impl QueuePosition {
    /// How many are ahead in all, as far as this process knows: the sum of
    /// [`threads_ahead`](Self::threads_ahead) and [`contenders_ahead`](Self::contenders_ahead).
    #[must_use]
    pub fn ahead(self) -> usize {
        self.threads + self.contenders
    }

    /// How many threads of this process come first. One of them queues in ZooKeeper for all, or
    /// holds the lock.
    #[must_use]
    pub fn threads_ahead(self) -> usize {
        self.threads
    }

    /// How many contenders in ZooKeeper's queue come before this process's; each is a process with
    /// any number of threads. Known to the thread that queues there for its process; 0 for the
    /// threads behind it.
    #[must_use]
    pub fn contenders_ahead(self) -> usize {
        self.contenders
    }
}

impl fmt::Display for QueuePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ahead", self.ahead())
    }
}

/// Tells a receiver of each change.
#[derive(Debug)]
pub(crate) struct Reporter {
    to: Sender<QueuePosition>,
    last: Mutex<Option<QueuePosition>>,
}

impl Reporter {
    pub(crate) fn new(to: Sender<QueuePosition>) -> Self {
        Self {
            to,
            last: Mutex::new(None),
        }
    }

    /// For another acquire: nothing was reported of it yet.
    pub(crate) fn renewed(&self) -> Self {
        Self::new(self.to.clone())
    }

    pub(crate) fn report(&self, threads: usize, contenders: usize) {
        let position = QueuePosition {
            threads,
            contenders,
        };
        let before = self.last.lock().replace(position);
        if before != Some(position) {
            // One who does not read, or has gone, misses it.
            let _ = self.to.try_send(position);
        }
    }
}
