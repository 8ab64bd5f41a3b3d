//! What a lock shows of the threads of this process to somebody who debugs.
//!
//! A look at memory, under no lock for longer than it takes to copy that. Not to be taken in a
//! forked child, where the queue may be locked by a thread that is not there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::thread_number::Named;
use super::{LocalQueue, SharedQueue, Turn};
use crate::sync;
use crate::sync::atomic::Ordering;
use crate::tenure::{LockState, Tenure};

/// The threads of this process at one lock, at one moment.
#[derive(Debug)]
#[expect(dead_code, reason = "only shown")]
pub(crate) struct Glance {
    turn: Shown,
    /// Threads that wait, the one that asks ZooKeeper for them included.
    waiting: usize,
}

#[derive(Debug)]
#[expect(dead_code, reason = "only shown")]
enum Shown {
    /// Nobody has it.
    Free,
    /// A thread asks ZooKeeper.
    Asking,
    Held {
        by: Named,
        depth: u32,
        node: Node,
    },
    /// Kept for the next thread.
    Idle {
        node: Node,
        since: Duration,
    },
    /// A thread gives it back.
    Between,
}

/// A node of ours, and how sure it is.
#[derive(Debug)]
#[expect(dead_code, reason = "only shown")]
struct Node {
    path: String,
    state: LockState,
}

impl Node {
    fn of(tenure: &Tenure) -> Self {
        Self {
            path: tenure.node().to_owned(),
            state: tenure.state(),
        }
    }
}

/// What [`Glance`] is made of, copied under the lock.
enum Seen {
    Free,
    Leading,
    Held(Arc<Tenure>),
    Idle(Arc<Tenure>, Instant),
    Between,
}

/// The reading threads of this process at one lock, at one moment.
#[derive(Debug)]
#[expect(dead_code, reason = "only shown")]
pub(crate) struct ReadersGlance {
    holders: Vec<Reader>,
    /// Kept for the next reader, and since when.
    kept: Option<(Node, Duration)>,
    /// Threads that wait, the one that asks ZooKeeper for them included.
    waiting: usize,
}

#[derive(Debug)]
#[expect(dead_code, reason = "only shown")]
struct Reader {
    by: Named,
    depth: u32,
    node: Node,
}

impl SharedQueue {
    pub(crate) fn glance(&self) -> ReadersGlance {
        let (holders, waiting) = self.holders();
        let kept = self.kept().map(|(tenure, since)| {
            let since = sync::now().saturating_duration_since(since);
            (Node::of(&tenure), since)
        });
        let mut holders: Vec<_> = holders
            .into_iter()
            .map(|(thread, depth, tenure)| Reader {
                by: Named(thread),
                depth,
                node: Node::of(&tenure),
            })
            .collect();
        holders.sort_by_key(|reader| reader.by.0);
        ReadersGlance {
            holders,
            kept,
            waiting,
        }
    }
}

impl LocalQueue {
    pub(crate) fn glance(&self) -> Glance {
        let (seen, asleep, by, depth) = {
            let local = self.state.lock();
            let seen = match &local.turn {
                Turn::Free => Seen::Free,
                Turn::Leading => Seen::Leading,
                Turn::Held(tenure_use) => Seen::Held(Arc::clone(&tenure_use.tenure)),
                Turn::Idle { tenure_use, since } => {
                    Seen::Idle(Arc::clone(&tenure_use.tenure), *since)
                }
                Turn::Between => Seen::Between,
            };
            let by = self.owner.load(Ordering::Relaxed);
            let depth = self.holds(&local);
            (seen, local.wait_queue.len(), by, depth)
        };
        let leads = matches!(seen, Seen::Leading);
        let turn = match seen {
            Seen::Free => Shown::Free,
            Seen::Leading => Shown::Asking,
            Seen::Held(tenure) => Shown::Held {
                by: Named(by),
                depth,
                node: Node::of(&tenure),
            },
            Seen::Idle(tenure, since) => Shown::Idle {
                node: Node::of(&tenure),
                since: sync::now().saturating_duration_since(since),
            },
            Seen::Between => Shown::Between,
        };
        Glance {
            turn,
            waiting: asleep + usize::from(leads),
        }
    }
}
