//! A tenure: the time in which this process owns what a recipe gives: the head of a queue, a
//! reader's place, permits.

mod own_nodes;

use zklock_protocol::Stat;

use crate::session::observe::say;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use self::own_nodes::OwnNodes;
pub(crate) use self::own_nodes::{OnRevoke, REVOKE};
use crate::error::{Error, Result};
use crate::link::{Epoch, RelyOnLease};
use crate::session::observe::observer::Label;
use crate::session::{
    CallError, Contact, Created, EpochBound, LossReason, Seen, Session, Step, Watch,
};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{self, Mutex};
use crate::wait::once_event::OnceEvent;
use crate::wait::signal::{Signal, Wakes};
use crate::znode::fencing::FencingToken;

/// How sure a holder can be of its lock, from a guard's `state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// The lock is ours: our node was seen at the head of the queue on the connection that is open
    /// now, and it is proven that the session cannot have expired.
    Held,
    /// There is no contact with ZooKeeper, or our node was not yet seen again after a reconnect.
    /// The session cannot have expired yet, so it has let nobody else in. But it may end soon, and
    /// somebody may have removed our node by hand meanwhile. Finish what is safe, and start nothing
    /// new. (A thread that holds can enter again, as a step of what it has begun.)
    Suspect,
    /// The lock may be somebody else's by now. Final: a lost guard never becomes held again.
    Lost,
}

/// Our nodes, as long as they give us what we hold. Mostly one; several for several permits.
pub(crate) struct Tenure {
    session: Arc<Session>,
    epoch: Arc<Epoch>,
    /// The paths of our nodes, in the order of their creation. Never empty.
    nodes: Vec<String>,
    begun: Instant,
    /// The connection on which our nodes were last seen to give us what we hold. Only grows: two
    /// looks at the nodes may be recorded in the wrong order.
    proven_on: AtomicU64,
    lost: AtomicBool,
    loss: OnceEvent<LossReason>,
    /// The thread that waits for something else by the right of this tenure.
    sleeper: Mutex<Option<Arc<Signal>>>,
    own_nodes: OwnNodes,
    token: OnceLock<FencingToken>,
    /// The transaction that made our one node, where others make nodes of the same name.
    made: Option<i64>,
    /// See [`Tenure::end_with_this_turn`].
    last_turn: AtomicBool,
    /// Until it is lost.
    stands: Mutex<Option<RelyOnLease>>,
    /// The lock's name, if observers hear of it; `None` within for a lock without a name.
    told_as: OnceLock<Label>,
    /// An observer was told of the loss.
    loss_told: AtomicBool,
    /// How often in a row a look at our nodes was refused for now.
    put_off: AtomicU32,
    /// Such a look is to be repeated.
    looks_again: AtomicBool,
    /// In the session's list of those who must hear of a loss.
    key: OnceLock<u64>,
}

/// The beginning of a tenure.
pub(crate) struct NewTenure {
    /// The paths of our nodes, which were seen to hold.
    pub(crate) nodes: Vec<String>,
    /// If it is known, or is another's: a downgraded writer keeps its token.
    pub(crate) token: Option<FencingToken>,
    /// The transaction that made the node, where others make nodes of the same name.
    pub(crate) made: Option<i64>,
}

impl NewTenure {
    /// With nodes whose names are nobody else's.
    pub(crate) fn of(nodes: &[Created]) -> Self {
        let czxid = nodes.first().and_then(|node| node.czxid);
        Self {
            nodes: nodes.iter().map(|node| node.path.clone()).collect(),
            token: czxid.and_then(|czxid| FencingToken::made_by(czxid).ok()),
            made: None,
        }
    }
}

impl Tenure {
    /// A tenure whose nodes were seen to hold on `contact`. `None` when that connection is not open
    /// any more: then it proves nothing, and the caller must look again.
    ///
    /// It must also be proven that the session is alive. The proof can have lapsed while we held
    /// nothing, and then one write proves it again. An error says that there is no proof.
    pub(crate) fn begin(contact: &Contact<'_>, new: NewTenure) -> Step<Option<Arc<Self>>> {
        let Some(stands) = contact.stands(&new.nodes[0])? else {
            return Ok(None);
        };
        let tenure = Arc::new(Self {
            session: Arc::clone(contact.session()),
            epoch: Arc::clone(contact.epoch()),
            nodes: new.nodes,
            begun: sync::now(),
            proven_on: AtomicU64::new(contact.number()),
            lost: AtomicBool::new(false),
            loss: OnceEvent::new(),
            sleeper: Mutex::new(None),
            own_nodes: OwnNodes::default(),
            token: new.token.map(OnceLock::from).unwrap_or_default(),
            made: new.made,
            last_turn: AtomicBool::new(false),
            stands: Mutex::new(Some(stands)),
            told_as: OnceLock::new(),
            loss_told: AtomicBool::new(false),
            put_off: AtomicU32::new(0),
            looks_again: AtomicBool::new(false),
            key: OnceLock::new(),
        });
        let weak: Weak<Self> = Arc::downgrade(&tenure);
        let Some(key) = tenure.session.add_tenure(weak, contact) else {
            return Ok(None);
        };
        tenure.key.set(key).expect("set once");
        Ok(Some(tenure))
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

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    #[inline]
    pub(crate) fn state(&self) -> LockState {
        if self.lost.load(Ordering::Acquire) {
            return LockState::Lost;
        }
        if !self.epoch.lease().proven(self.epoch.now()) {
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
    pub(crate) fn is_held(&self) -> bool {
        self.state() == LockState::Held
    }

    /// As [`is_held`](Self::is_held), as far as is known without a look at the clock. Nobody may
    /// be let in by it.
    #[inline]
    pub(crate) fn was_held(&self) -> bool {
        !self.lost.load(Ordering::Acquire)
            && self.proven_on.load(Ordering::Acquire) == self.session.connection()
    }

    /// An error once it is lost. One look at the clock.
    #[inline]
    pub(crate) fn refuse_lost(&self) -> Result<()> {
        if self.is_lost() {
            return Err(self.loss());
        }
        Ok(())
    }

    /// For how long no loss of the session can let anybody else in, as known now. Zero when lost.
    pub(crate) fn remaining(&self) -> Duration {
        if self.is_lost() {
            return Duration::ZERO;
        }
        self.epoch.lease().remaining(self.epoch.now())
    }

    /// An error unless at least this long is [remaining](Self::remaining).
    pub(crate) fn ensure_for(&self, needed: Duration) -> Result<()> {
        let remaining = self.remaining();
        if remaining.is_zero() {
            return Err(self.loss());
        }
        if remaining < needed {
            let node = self.node();
            let what = format!("{node}: {needed:?} were asked for, {remaining:?} are sure");
            return Err(Error::lease_short(what));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.state() == LockState::Lost
    }

    /// Whether this is a tenure of the session that `contact` is of. Its nodes are gone from any
    /// other.
    pub(crate) fn stands_on(&self, contact: &Contact<'_>) -> Step<()> {
        if self.epoch.number() == contact.epoch().number() {
            return Ok(());
        }
        Err(CallError::Left(self.loss()))
    }

    /// We hold no longer. Final; the first reason is the one that is told.
    #[cold]
    pub(crate) fn lose(&self, reason: LossReason) {
        if self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        // Probes ask for our node no more.
        drop(self.stands.lock().take());
        self.loss.tell(reason);
        let sleeper = self.sleeper.lock().take();
        if let Some(signal) = sleeper {
            signal.raise(Wakes::EVENT);
        }
        self.tell_loss();
    }

    /// Has a loss wake `signal`. For a loss that came before, the caller looks at the state after
    /// this call.
    pub(crate) fn wake_at_loss(&self, signal: &Arc<Signal>) {
        *self.sleeper.lock() = Some(Arc::clone(signal));
    }

    /// This tenure is that of a lock which observers hear of, from now on under this name.
    pub(crate) fn tell_as(&self, label: &Label) {
        let before = self.told_as.set(label.clone());
        debug_assert!(before.is_ok(), "once");
        // It may have been lost before it had a name.
        self.tell_loss();
    }

    fn tell_loss(&self) {
        // The two who may tell, in whatever order: the later one of them finds both.
        if let (Some(label), Some(reason)) = (self.told_as.get(), self.loss.get())
            && !self.loss_told.swap(true, Ordering::Relaxed)
        {
            self.session.observation().lost(label, reason);
        }
    }

    /// It was given back: with ZooKeeper's word, or without.
    pub(crate) fn tell_end(&self, confirmed: bool) {
        if let Some(label) = self.told_as.get() {
            let lasted = sync::now().saturating_duration_since(self.begun);
            let observation = self.session.observation();
            observation.tenure_ended(label, lasted, confirmed);
        }
    }

    /// No other thread of this process may take over: a reader now has the place that this tenure
    /// holds by.
    pub(crate) fn end_with_this_turn(&self) {
        self.last_turn.store(true, Ordering::Release);
    }

    /// Whether this tenure must end when its holder releases.
    pub(crate) fn is_in_last_turn(&self) -> bool {
        self.last_turn.load(Ordering::Acquire) || self.is_revocation_requested()
    }

    /// The event of the loss.
    pub(crate) fn loss_event(&self) -> &OnceEvent<LossReason> {
        &self.loss
    }

    /// The transaction that made our node, where its name does not tell it from others.
    pub(crate) fn made(&self) -> Option<i64> {
        self.made
    }

    /// The loss of this tenure, as an error.
    pub(crate) fn loss(&self) -> Error {
        if self.epoch.is_alive() {
            Error::removed(self.node())
        } else {
            Error::session_lost().context(self.node())
        }
    }

    /// Whether `stat` is that of a node of ours.
    pub(crate) fn is_own(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.epoch.session_id()
            && self.made.is_none_or(|made| stat.czxid == made)
    }

    /// The transaction that created our node: asks ZooKeeper once.
    pub(crate) fn fencing_token(&self) -> Result<FencingToken> {
        if let Some(token) = self.token.get() {
            return Ok(*token);
        }
        let asked = self.session.contact().and_then(|contact| {
            self.stands_on(&contact)?;
            self.token_by(&contact)
        });
        match asked {
            Ok(token) => Ok(token),
            Err(CallError::Refused(error)) => Err(Error::refused(self.node()).source(error)),
            Err(CallError::NotNow(why)) if !self.is_lost() => {
                Err(Error::not_now(format!("{}: {why}", self.node())))
            }
            Err(CallError::Left(error)) => Err(error),
            Err(CallError::NotSent(why)) if !self.is_lost() => Err(why.into_error(self.node())),
            Err(CallError::Unknown) if !self.is_lost() => Err(Error::connection_loss(self.node())),
            Err(CallError::NotSent(_) | CallError::Unknown | CallError::NotNow(_)) => {
                Err(self.loss())
            }
        }
    }

    /// As [`Tenure::fencing_token`], on a contact of the same epoch.
    pub(crate) fn token_by(&self, contact: &Contact<'_>) -> Step<FencingToken> {
        if let Some(token) = self.token.get() {
            return Ok(*token);
        }
        match contact.stat(self.node())? {
            Some(stat) if self.is_own(&stat) => {
                let token = FencingToken::of(&stat).map_err(CallError::Left)?;
                Ok(*self.token.get_or_init(|| token))
            }
            _ => {
                self.lose(LossReason::Removed);
                Err(CallError::Left(self.loss()))
            }
        }
    }
}

impl Tenure {
    /// Looks at our nodes. On `zklock-chores`.
    fn verify(self: Arc<Self>) {
        let session = Arc::clone(&self.session);
        session.verify(vec![self]);
    }

    /// Once more after a pause, however many looks were refused.
    fn verify_later(self: &Arc<Self>) {
        if self.looks_again.swap(true, Ordering::AcqRel) {
            return;
        }
        let times = self.put_off.fetch_add(1, Ordering::Relaxed);
        let this: Weak<Self> = Arc::downgrade(self);
        self.session.after_pause(times, move || {
            if let Some(this) = this.upgrade() {
                this.looks_again.store(false, Ordering::Release);
                this.verify();
            }
        });
    }
}

impl EpochBound for Tenure {
    fn lose(&self, reason: LossReason) {
        self.lose(reason);
    }

    fn begin_look(self: Arc<Self>, contact: &Contact<'_>) -> Vec<Watch> {
        self.begin_look_at_own_nodes(contact)
    }

    fn looked(self: Arc<Self>, contact: &Contact<'_>, watches: Vec<Watch>, seen: Vec<Step<Seen>>) {
        match self.own_nodes_seen(watches, seen) {
            Ok(true) => {
                self.proven_on.fetch_max(contact.number(), Ordering::AcqRel);
            }
            // It was lost or is ended; or the next reconnect verifies.
            Ok(false) | Err(CallError::NotSent(_) | CallError::Unknown | CallError::Left(_)) => {}
            Err(CallError::Refused(error)) => {
                say!(
                    self.session,
                    Warn,
                    "{}: cannot look at our node: {error}",
                    self.node()
                );
            }
            Err(CallError::NotNow(why)) => {
                say!(
                    self.session,
                    Debug,
                    "{}: cannot look at our node yet: {why}",
                    self.node()
                );
                self.verify_later();
                return;
            }
        }
        self.put_off.store(0, Ordering::Relaxed);
    }

    fn unwatched_since(&self) -> Option<Instant> {
        (!self.is_watched()).then_some(self.begun)
    }

    fn nodes(&self) -> &[String] {
        &self.nodes
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

/// The watches that a tenure had on its own nodes, at its end.
pub(crate) struct OwnWatches(Vec<Watch>);

impl OwnWatches {
    /// Whether our nodes were watched all the time, and nothing was told.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.0.iter().any(Watch::is_undisturbed)
    }

    /// Our nodes were removed, or will be: their watches have fired with that.
    pub(crate) fn forget(self) {
        for watch in self.0 {
            watch.forget();
        }
    }
}
