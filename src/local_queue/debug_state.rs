//! [`DebugState`]: a lock and the threads of this process, for somebody who debugs.
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
pub(crate) struct DebugState {
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
        node: ShownNode,
    },
    /// Kept for the next thread.
    Idle { node: ShownNode, since: Duration },
    /// A thread gives it back.
    Between,
}

/// A node of ours, and how sure it is.
#[derive(Debug)]
#[expect(dead_code, reason = "only shown")]
struct ShownNode {
    path: String,
    state: LockState,
}

impl ShownNode {
    fn of(tenure: &Tenure) -> Self {
        Self {
            path: tenure.node().to_owned(),
            state: tenure.state(),
        }
    }
}

/// A copy of the turn, made under the lock.
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
pub(crate) struct ReadersDebugState {
    holders: Vec<ShownReader>,
    /// Kept for the next reader, and since when.
    kept: Option<(ShownNode, Duration)>,
    /// Threads that wait, the one that asks ZooKeeper for them included.
    waiting: usize,
}

#[derive(Debug)]
#[expect(dead_code, reason = "only shown")]
struct ShownReader {
    by: Named,
    depth: u32,
    node: ShownNode,
}

impl SharedQueue {
    pub(crate) fn debug_state(&self) -> ReadersDebugState {
        let (holders, waiting) = self.holders();
        let kept = self.kept().map(|(tenure, since)| {
            let since = sync::now().saturating_duration_since(since);
            (ShownNode::of(&tenure), since)
        });
        let mut holders: Vec<_> = holders
            .into_iter()
            .map(|(thread, depth, tenure)| ShownReader {
                by: Named(thread),
                depth,
                node: ShownNode::of(&tenure),
            })
            .collect();
        holders.sort_by_key(|reader| reader.by.0);
        ReadersDebugState {
            holders,
            kept,
            waiting,
        }
    }
}

impl LocalQueue {
    pub(crate) fn debug_state(&self) -> DebugState {
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
                node: ShownNode::of(&tenure),
            },
            Seen::Idle(tenure, since) => Shown::Idle {
                node: ShownNode::of(&tenure),
                since: sync::now().saturating_duration_since(since),
            },
            Seen::Between => Shown::Between,
        };
        DebugState {
            turn,
            waiting: asleep + usize::from(leads),
        }
    }
}
