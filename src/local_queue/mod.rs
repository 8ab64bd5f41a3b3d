//! The local queue: the threads of this process, first come first served. One of them goes to the
//! global queue for all, and inside a tenure they hand the lock to each other.
//!
//! # Who may change what
//!
//! [`LocalQueue::state`] guards [`Local`]; nothing is called under it that blocks or calls back.
//! `turn` says who is responsible for the lock in this process:
//!
//! | `turn`       | who                              | ends when                                   |
//! |--------------|----------------------------------|---------------------------------------------|
//! | `Free`       | nobody                           | a thread comes: it leads                     |
//! | `Leading`    | the thread that holds a [`Lead`] | it wins (`Held`), or passes the lead on      |
//! | `Held`       | the thread in `owner`, if any    | it releases                                  |
//! | `Between`    | the thread that released         | it has looked for others, or left the queue  |
//! | `Idle`       | nobody; the tenure is kept       | a thread comes, another process does, or time|
//!
//! A thread that finds the turn taken sleeps in the queue, as a [`ParkedThread`]. Whoever ends a turn
//! offers what comes next to the first of them, under `state`; it takes that, or has left: one
//! transition, under its own lock, so that a thread at its deadline and the one who serves it agree
//! on who was first.
//!
//! # Holds
//!
//! `depth` counts the holds that stay with the owner's thread: its guards. `Local::detached` counts
//! those that may go to another thread: a guard inside an error. The turn lasts until both are zero;
//! whoever gives the last one back ends it, on any thread, and the owner is the owner until then.
//! Only it takes holds, detaches them and takes them back, so a hold that was sent away gives nobody
//! else a way in. A leadership is nobody's from its beginning: its one hold is detached, and its
//! thread is no owner any more (`disown`), as it may be given back anywhere and is not entered again.
//!
//! - `owner` is written under `state`: by whoever makes a thread the holder, before that thread can
//!   see it, and by whoever ends the turn or disowns its hold. It is read without only by a thread
//!   that looks whether it is the owner itself. "No" is true: nobody makes a thread the owner while
//!   that thread looks. "Yes" may be over, if all of its holds were detached, and is asked again under
//!   `state` by whoever relies on it; but a thread that has a guard is the owner for as long.
//! - `depth` is written by the owner alone while it is one. It comes from 0 to 1 and from 1 to 0
//!   under `state`, so whoever gives a detached hold back sees there whether it is 0. Between 1 and
//!   more no lock is needed: what others may read meanwhile is never 0.

mod acquire;
mod candidate;
#[cfg(not(shuttle))]
mod debug_state;
mod detached;
mod events;
mod idle;
mod lead;
mod owned;
mod release;
mod shared;
mod tenure_use;
mod thread_number;
mod turns;
mod wait_queue;

use std::sync::{Arc, Weak};
use std::time::Instant;

pub(crate) use self::candidate::{Candidate, Candidates, take_together, try_together};
use self::lead::Leads;
pub(crate) use self::owned::Owned;
pub(crate) use self::shared::SharedQueue;
pub(crate) use self::tenure_use::Policy;
use self::tenure_use::TenureUse;
use self::thread_number::thread_number;
pub(crate) use self::turns::Turns;
use self::wait_queue::{ParkedThread, WaitQueue};
use crate::error::{Error, Result};
#[cfg(not(shuttle))]
use crate::global_queue::GlobalQueue;
use crate::global_queue::{Contender, LockProtocol, QueuedNode, ReleaseMode};
#[cfg(not(shuttle))]
use crate::session::observe::observer::Label;
use crate::session::{LocalLock, Session};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::tenure::Tenure;
use crate::znode::path::LockPath;

/// The threads of this process at one lock.
pub(crate) struct LocalQueue {
    session: Arc<Session>,
    protocol: Box<dyn LockProtocol>,
    policy: Policy,
    /// The number of the thread that holds, 0 for none.
    owner: AtomicU64,
    /// How many guards the owner has; see [Holds](self#holds).
    depth: AtomicU32,
    state: Mutex<Local>,
    this: Weak<Self>,
    key: u64,
}

struct Local {
    turn: Turn,
    /// How many holds may be on any thread. Each is a value in memory, so the count does not
    /// overflow.
    detached: usize,
    wait_queue: WaitQueue,
    /// A timer runs that will look at an idle tenure.
    timed: bool,
    closed: bool,
}

/// In boxes: what is passed from turn to turn moves often.
enum Turn {
    Free,
    Leading,
    Held(Box<TenureUse>),
    Between,
    Idle {
        tenure_use: Box<TenureUse>,
        since: Instant,
    },
}

impl LocalQueue {
    pub(crate) fn new(protocol: impl LockProtocol + 'static, policy: Policy) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let lock: Weak<dyn LocalLock> = this.clone();
            let session = Arc::clone(protocol.session());
            Self {
                key: session.add_lock(lock),
                session,
                protocol: Box::new(protocol),
                policy,
                owner: AtomicU64::new(0),
                depth: AtomicU32::new(0),
                state: Mutex::new(Local {
                    turn: Turn::Free,
                    detached: 0,
                    wait_queue: WaitQueue::default(),
                    timed: false,
                    closed: false,
                }),
                this: this.clone(),
            }
        })
    }

    // ---- what the lock's users can see ----

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn path(&self) -> &LockPath {
        self.protocol.path()
    }

    /// The lock's name, for observers.
    #[cfg(not(shuttle))]
    pub(crate) fn label(&self) -> &Label {
        &self.policy.label
    }

    /// The contenders in the global queue, in order.
    pub(crate) fn participants(&self) -> Result<Vec<QueuedNode>> {
        self.protocol.participants()
    }

    /// Asks for the lock back. Returns whether the node was still there.
    pub(crate) fn revoke(&self, path: &str) -> Result<bool> {
        self.protocol.revoke(path)
    }

    /// Deletes a contender's node. Returns whether it was still there.
    pub(crate) fn break_lock(&self, path: &str) -> Result<bool> {
        self.protocol.break_lock(path)
    }

    pub(crate) fn is_owner(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == thread_number()
    }

    /// The labels that tell the lock from others in its folder.
    #[cfg(not(shuttle))]
    pub(crate) fn own_labels(&self) -> String {
        let queue = self.protocol.as_queue();
        queue.map_or_else(String::new, GlobalQueue::folder_labels)
    }

    // In a forked child the lock may be held by a thread that is not there.

    /// Whether any thread of this process holds.
    pub(crate) fn is_held(&self) -> bool {
        !self.session.is_forked() && matches!(self.state.lock().turn, Turn::Held(_))
    }

    /// How many holds this thread took and nobody has given back.
    pub(crate) fn depth(&self) -> u32 {
        if self.session.is_forked() {
            return 0;
        }
        let local = self.lock_as_owner(thread_number());
        local.map_or(0, |local| self.holds(&local))
    }

    /// How many holds there are.
    fn holds(&self, local: &Local) -> u32 {
        let detached = u32::try_from(local.detached).unwrap_or(u32::MAX);
        self.depth.load(Ordering::Relaxed).saturating_add(detached)
    }

    /// The tenure in which this thread holds. Called for one of its holds.
    pub(crate) fn tenure(&self) -> Arc<Tenure> {
        match &self.state.lock().turn {
            Turn::Held(tenure_use) => Arc::clone(&tenure_use.tenure),
            _ => unreachable!("asked for a hold"),
        }
    }

    /// How many threads sleep in the local queue.
    #[cfg(all(test, shuttle))]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().wait_queue.len()
    }

    /// Our node at the head of the queue.
    pub(crate) fn own_node(&self) -> Option<String> {
        if self.session.is_forked() {
            return None;
        }
        match &self.state.lock().turn {
            Turn::Held(tenure_use) | Turn::Idle { tenure_use, .. } => {
                Some(tenure_use.tenure.node().to_owned())
            }
            _ => None,
        }
    }

    /// The node of a tenure that is kept with nobody inside.
    pub(crate) fn idle_node(&self) -> Option<String> {
        if self.session.is_forked() {
            return None;
        }
        match &self.state.lock().turn {
            Turn::Idle { tenure_use, .. } => Some(tenure_use.tenure.node().to_owned()),
            _ => None,
        }
    }
}

impl Leads for LocalQueue {
    fn pass_on(&self, contender: Contender) {
        self.pass_lead_on(contender);
    }

    fn vacate(&self, parked: &Arc<ParkedThread>) {
        self.state.lock().wait_queue.remove(parked);
    }

    fn name(&self) -> &str {
        self.path().as_str()
    }
}

impl Local {
    /// Begins a lead if nobody is responsible for the lock. An idle tenure, which the caller could
    /// not take, is given back to be ended.
    #[expect(
        clippy::option_option,
        reason = "outer: whether; inner: what to end first"
    )]
    fn begin_lead(&mut self) -> Option<Option<Box<TenureUse>>> {
        match std::mem::replace(&mut self.turn, Turn::Leading) {
            Turn::Free => Some(None),
            Turn::Idle { tenure_use, .. } => Some(Some(tenure_use)),
            turn => {
                self.turn = turn;
                None
            }
        }
    }
}

impl Drop for LocalQueue {
    fn drop(&mut self) {
        // A forked child has a copy of what is its parent's.
        if self.session.is_forked() {
            return;
        }
        self.session.remove_lock(self.key);
        // No guard is left, so the only tenure there can be is an idle one.
        let mut local = self.state.lock();
        if let Turn::Idle { tenure_use, .. } = std::mem::replace(&mut local.turn, Turn::Free) {
            drop(local);
            let TenureUse { tenure, news, .. } = *tenure_use;
            drop(
                self.protocol
                    .start_release(&tenure, news, ReleaseMode::Background),
            );
        }
    }
}

/// The refusal of a re-entry by a lock that was built without.
#[cold]
pub(crate) fn holds_already(path: &LockPath) -> Error {
    Error::would_deadlock(format!(
        "{path}: this thread holds it already, and it was built with reentrant(false)"
    ))
}

fn too_deep() -> Error {
    Error::invalid("the lock is held 4,294,967,295 times by this thread already")
}
