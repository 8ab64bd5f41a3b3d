//! A tenure as the local queue uses it up: its turns so far, and how many it may take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::global_queue::{OthersWaiting, WaitStrategy};
use crate::session::observe::observer::Label;
use crate::sync;
use crate::tenure::Tenure;
use crate::znode::path::LockPath;

/// How long a tenure may go on.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Local threads take turns inside a tenure.
    pub(crate) hand_off: bool,
    /// Turns more, once another process waits.
    pub(crate) max_handoffs: Option<u32>,
    /// Time more, once another process waits.
    pub(crate) max_tenure: Option<Duration>,
    /// How long an idle tenure is kept.
    pub(crate) linger: Duration,
    /// The same of readers, where there are any.
    pub(crate) read_linger: Duration,
    /// The thread that holds may enter again.
    pub(crate) reentrant: bool,
    /// Others may ask for the lock.
    pub(crate) revocable: bool,
    /// The lock's name, for observers.
    pub(crate) label: Label,
    /// The lock is a part of something that observers hear of by itself.
    pub(crate) is_part: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            hand_off: true,
            max_handoffs: None,
            max_tenure: None,
            linger: Duration::ZERO,
            read_linger: Duration::ZERO,
            reentrant: true,
            revocable: false,
            label: None,
            is_part: false,
        }
    }
}

impl Policy {
    /// An error if one setting says the opposite of another at this path.
    pub(crate) fn check(&self, path: &LockPath, strategy: WaitStrategy) -> Result<()> {
        let lingers = !(self.linger.is_zero() && self.read_linger.is_zero());
        if lingers && matches!(strategy, WaitStrategy::Polling(_)) {
            return Err(Error::invalid(format!(
                "{path}: what lingers is given up when a watch tells of others, and \
                 WaitStrategy::Polling is for servers that deliver none: others would wait until the \
                 time is over; leave one of them out"
            )));
        }
        let hands_off = self.max_handoffs.is_some_and(|most| most > 0) || self.max_tenure.is_some();
        if self.hand_off || !hands_off {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{path}: local_hand_off(false) says that threads never hand the lock to each other, and \
             max_handoffs or max_tenure how often they do; leave one of them out"
        )))
    }

    /// Whether the lock may change hands once more inside this process, though others wait.
    pub(super) fn has_turns_left(&self, tenure_use: &TenureUse) -> bool {
        let Self {
            max_handoffs,
            max_tenure,
            ..
        } = *self;
        let turns = match (max_handoffs, max_tenure) {
            (None, None) => false,
            (Some(most), _) => tenure_use.handoffs < most,
            (None, Some(_)) => true,
        };
        turns
            && max_tenure.is_none_or(|most| {
                let now = sync::now();
                let since = tenure_use.others_wait_since.unwrap_or(now);
                now.saturating_duration_since(since) < most
            })
    }
}

/// A tenure, and how far it has been used up.
pub(super) struct TenureUse {
    pub(super) tenure: Arc<Tenure>,
    pub(super) news: OthersWaiting,
    /// Local hand-overs since others were, or may have been, known to wait.
    pub(super) handoffs: u32,
    /// Since when.
    pub(super) others_wait_since: Option<Instant>,
    /// Since when the thread holds that does, if somebody observes.
    pub(super) held_since: Option<Instant>,
}

/// Whether other processes wait.
pub(super) enum Others {
    NoneWaits,
    SomeoneWaits,
    Unknown,
}

pub(super) fn others(news: &OthersWaiting) -> Others {
    match news {
        OthersWaiting::No(watch) if watch.is_live() => Others::NoneWaits,
        OthersWaiting::No(_) | OthersWaiting::Unknown(_) => Others::Unknown,
        OthersWaiting::Yes(_) => Others::SomeoneWaits,
    }
}

impl TenureUse {
    pub(super) fn others(&self) -> Others {
        others(&self.news)
    }

    /// Whether a thread may enter without asking ZooKeeper.
    pub(super) fn is_good(&self) -> bool {
        self.tenure.is_held()
            && !self.tenure.is_revocation_requested()
            && matches!(self.others(), Others::NoneWaits)
    }
}
