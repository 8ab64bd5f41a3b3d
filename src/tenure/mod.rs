//! A tenure: the time in which this process owns what a recipe gives: the head of a queue, a
//! reader's place, leases.

mod own_nodes;

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use crossbeam_channel::Receiver;

use self::own_nodes::OwnNodes;
pub(crate) use self::own_nodes::{REVOKE, Recalled};
use crate::error::{Error, Result};
use crate::link::Epoch;
use crate::session::keeper::{NodeStat, Reply, Request};
use crate::session::{CallError, Session};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{self, Mutex};
use crate::wait::announcement::Announcement;
use crate::znode::fencing::FencingToken;

/// How sure a holder can be of its lock, from a guard's `state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// The lock is ours: our node was seen at the head on the connection that stands, and the
    /// session cannot have expired.
    Held,
    /// There is no contact with ZooKeeper, or our node was not yet seen again after a reconnect.
    /// The session cannot have expired yet, so nobody else has the lock, but that may change.
    /// Finish what is safe, start nothing new.
    Suspect,
    /// The lock may be somebody else's. Final.
    Lost,
}

/// Why a lock was lost; what a guard's `lost` channel delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The session ended, or could have ended as far as this process can know.
    Session,
    /// Somebody removed our node.
    Removed,
    /// The client was closed while the lock was held.
    Closed,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "the session was lost",
            Self::Removed => "our node was removed by somebody else",
            Self::Closed => "the client was closed",
        })
    }
}

/// Our nodes, as long as they give us what we hold. Mostly one; several for several leases.
pub(crate) struct Tenure {
    session: Arc<Session>,
    epoch: Arc<Epoch>,
    /// The paths of our nodes, in the order of their creation. Never empty.
    nodes: Vec<String>,
    begun: Instant,
    /// The connection on which our nodes were last seen to give us what we hold.
    proven_on: AtomicU64,
    lost: AtomicBool,
    loss: Announcement<LossReason>,
    /// Those who hold several tenures as one, and hear of the loss of any.
    unions: Mutex<Vec<Weak<Announcement<LossReason>>>>,
    own_nodes: OwnNodes,
    token: OnceLock<FencingToken>,
    /// See [`Tenure::end_with_this_turn`].
    last_turn: AtomicBool,
    is_sole: bool,
    /// In the session's list of those who must hear of a loss.
    key: OnceLock<u64>,
}

/// What a tenure begins with.
pub(crate) struct Founding {
    pub(crate) epoch: Arc<Epoch>,
    pub(crate) nodes: Vec<String>,
    /// The connection on which they were seen to hold.
    pub(crate) proven_on: u64,
    /// If it is known, or is another's: a downgraded writer keeps its token.
    pub(crate) token: Option<FencingToken>,
    /// Others make nodes of the same name; the token tells them apart.
    pub(crate) is_sole: bool,
}

impl Tenure {
    /// A tenure whose nodes were seen to hold on connection `proven_on`. `None` when that
    /// connection does not stand any more: then it proves nothing, and must be looked at again.
    pub(crate) fn begin(session: &Arc<Session>, founding: Founding) -> Option<Arc<Self>> {
        let Founding {
            epoch,
            nodes,
            proven_on,
            token,
            is_sole,
        } = founding;
        let tenure = Arc::new(Self {
            session: Arc::clone(session),
            epoch,
            nodes,
            begun: sync::now(),
            proven_on: AtomicU64::new(proven_on),
            lost: AtomicBool::new(false),
            loss: Announcement::new(),
            unions: Mutex::new(Vec::new()),
            own_nodes: OwnNodes::default(),
            token: token.map(OnceLock::from).unwrap_or_default(),
            last_turn: AtomicBool::new(false),
            is_sole,
            key: OnceLock::new(),
        });
        let key = session.add_tenure(&tenure, proven_on)?;
        tenure.key.set(key).expect("set once");
        Some(tenure)
    }

    /// Our node; the first of them.
    pub(crate) fn node(&self) -> &str {
        &self.nodes[0]
    }

    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    #[inline]
    pub(crate) fn state(&self, now: Instant) -> LockState {
        if self.lost.load(Ordering::Acquire) {
            return LockState::Lost;
        }
        if !self.epoch.lease().alive(now) {
            self.lose(LossReason::Session);
            return LockState::Lost;
        }
        if self.proven_on.load(Ordering::Acquire) == self.session.connection() {
            LockState::Held
        } else {
            LockState::Suspect
        }
    }

    #[inline]
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.state(now) == LockState::Held
    }

    /// Our nodes were seen to stand again.
    pub(crate) fn prove(&self, connection: u64) {
        self.proven_on.store(connection, Ordering::Release);
    }

    /// What we hold is not ours any more. Final; the first reason is the one that is told.
    #[cold]
    pub(crate) fn lose(&self, reason: LossReason) {
        if self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        self.loss.tell(reason);
        for union in self.unions.lock().drain(..) {
            if let Some(union) = union.upgrade() {
                union.tell(reason);
            }
        }
    }

    /// No other thread of this process may take over: a reader has come to stand in the place that
    /// this tenure holds by.
    pub(crate) fn end_with_this_turn(&self) {
        self.last_turn.store(true, Ordering::Release);
    }

    /// Whether this tenure must end when its holder releases.
    pub(crate) fn is_in_last_turn(&self) -> bool {
        self.last_turn.load(Ordering::Acquire) || self.is_asked_back()
    }

    pub(crate) fn told(&self) -> &Receiver<LossReason> {
        self.loss.told()
    }

    /// Has the loss told to `union`, too.
    pub(crate) fn tell_also(&self, union: &Arc<Announcement<LossReason>>) {
        let mut unions = self.unions.lock();
        // A tenure that is kept for long is part of many, one after the other.
        unions.retain(|union| union.strong_count() > 0);
        unions.push(Arc::downgrade(union));
        drop(unions);
        // `lose` tells first and then empties the list, so one of the two finds the other.
        if let Some(reason) = self.loss.said() {
            union.tell(reason);
        }
    }

    /// The token, if nobody needs to be asked for it.
    pub(crate) fn known_token(&self) -> Option<FencingToken> {
        self.token.get().copied()
    }

    /// What the loss of this tenure is as an error.
    pub(crate) fn loss(&self) -> Error {
        if self.epoch.lease().alive(sync::now()) {
            Error::removed(self.node())
        } else {
            Error::session_lost().context(self.node())
        }
    }

    /// Whether `stat` is that of a node of ours.
    pub(crate) fn is_own(&self, stat: &NodeStat) -> bool {
        stat.ephemeral_owner == self.epoch.session_id()
            && (!self.is_sole || FencingToken::of(stat).ok() == self.known_token())
    }

    /// The transaction that created our node: asks ZooKeeper once.
    pub(crate) fn fencing_token(&self) -> Result<FencingToken> {
        if let Some(token) = self.token.get() {
            return Ok(*token);
        }
        self.session.fork().refuse_child()?;
        match self.session.call(&Request::stat(self.node())) {
            Ok((Reply::Stat(Some(stat)), _)) if self.is_own(&stat) => {
                let token = FencingToken::of(&stat)?;
                Ok(*self.token.get_or_init(|| token))
            }
            Ok(_) => {
                self.lose(LossReason::Removed);
                Err(self.loss())
            }
            Err(CallError::Refused(error)) => Err(Error::refused(self.node()).source(error)),
            Err(CallError::Left(error)) => Err(error),
            Err(CallError::NotSent(_) | CallError::Unknown(_)) => {
                if self.state(sync::now()) == LockState::Lost {
                    return Err(self.loss());
                }
                Err(Error::connection_loss(self.node()))
            }
        }
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if let Some(key) = self.key.get() {
            self.session.remove_tenure(*key);
        }
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("nodes", &self.nodes)
            .field("lost", &self.lost.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
