//! A tenure: the time in which this process owns the head contender of a lock.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use crate::error::{Error, Result};
use crate::fencing::FencingToken;
use crate::link::Epoch;
use crate::session::keeper::{Reply, Request};
use crate::session::{CallError, Session};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{self, Mutex};

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

/// Our node at the head of a lock's queue.
pub(crate) struct Tenure {
    session: Arc<Session>,
    epoch: Arc<Epoch>,
    /// The path of our node.
    node: String,
    /// The connection on which our node was last seen at the head.
    proven_on: AtomicU64,
    lost: AtomicBool,
    /// Dropped on loss, after the reason was sent: the receiver is then ready for ever.
    tell: Mutex<Option<Sender<LossReason>>>,
    told: Receiver<LossReason>,
    token: OnceLock<FencingToken>,
    /// In the session's list of those who must hear of a loss.
    key: OnceLock<u64>,
}

impl Tenure {
    /// A tenure whose node was seen at the head on connection `proven_on`. `None` when that
    /// connection does not stand any more: then it proves nothing, and must be looked at again.
    pub(crate) fn begin(
        session: &Arc<Session>,
        epoch: &Arc<Epoch>,
        node: String,
        proven_on: u64,
    ) -> Option<Arc<Self>> {
        let (tell, told) = crossbeam_channel::bounded(1);
        let tenure = Arc::new(Self {
            session: Arc::clone(session),
            epoch: Arc::clone(epoch),
            node,
            proven_on: AtomicU64::new(proven_on),
            lost: AtomicBool::new(false),
            tell: Mutex::new(Some(tell)),
            told,
            token: OnceLock::new(),
            key: OnceLock::new(),
        });
        let key = session.add_tenure(&tenure, proven_on)?;
        tenure.key.set(key).expect("set once");
        Some(tenure)
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
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

    /// The node was seen at the head again.
    pub(crate) fn proven_on(&self, connection: u64) {
        self.proven_on.store(connection, Ordering::Release);
    }

    /// The lock is not ours any more. Final; the first reason is the one that is told.
    #[cold]
    pub(crate) fn lose(&self, reason: LossReason) {
        if self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(tell) = self.tell.lock().take() {
            // The channel has room for one, and this is the one.
            let _ = tell.try_send(reason);
        }
    }

    pub(crate) fn told(&self) -> &Receiver<LossReason> {
        &self.told
    }

    /// What the loss of this tenure is as an error.
    pub(crate) fn loss(&self) -> Error {
        if self.epoch.lease().alive(sync::now()) {
            Error::removed(&self.node)
        } else {
            Error::session_lost().context(&self.node)
        }
    }

    /// The transaction that created our node: asks ZooKeeper once.
    pub(crate) fn fencing_token(&self) -> Result<FencingToken> {
        if let Some(token) = self.token.get() {
            return Ok(*token);
        }
        self.session.fork().refuse_child()?;
        let path = self.node.clone();
        match self.session.call(&Request::Stat { path }) {
            Ok((Reply::Stat(Some(stat)), _)) if stat.ephemeral_owner == self.epoch.session_id() => {
                let czxid = u64::try_from(stat.czxid)
                    .map_err(|_| Error::refused("a negative transaction number"))?;
                Ok(*self.token.get_or_init(|| FencingToken(czxid)))
            }
            Ok(_) => {
                self.lose(LossReason::Removed);
                Err(self.loss())
            }
            Err(CallError::Refused(error)) => Err(Error::refused(&self.node).source(error)),
            Err(CallError::Left(error)) => Err(error),
            Err(CallError::NotSent(_) | CallError::Unknown(_)) => {
                if self.state(sync::now()) == LockState::Lost {
                    return Err(self.loss());
                }
                Err(Error::connection_loss(&self.node))
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
            .field("node", &self.node)
            .field("lost", &self.lost.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
