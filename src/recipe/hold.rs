//! One hold: what a guard has for itself, apart from the tenure that it shares with others.

use std::cell::OnceCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::guard::log_release;
use crate::error::Result;
use crate::global_queue::{PendingRelease, ReleaseMode};
use crate::local_queue::{LocalQueue, Owned, Turns};
use crate::session::{LossReason, Session};
use crate::tenure::{LockState, Tenure};
use crate::wait::cancel::OnCancel;
use crate::wait::once_event::{Listener, OnceEvent};

/// What one guard, and the views of it, know of what it holds. It is made when it is first asked
/// for, to keep the fast paths free of it.
pub(super) struct OwnHold {
    /// Never empty; several for a multi-lock.
    tenures: Box<[Arc<Tenure>]>,
    /// What is held excludes others, so its token orders it among all holders.
    is_exclusive: bool,
    /// That it was lost: for the guard, to whom its own release is no loss.
    loss: Arc<OnceEvent<LossReason>>,
    /// That it was lost or given back: for the views.
    end: Arc<OnceEvent<LossReason>>,
    lost: OnceLock<Listener<LossReason>>,
    /// None where nobody can ask.
    revocation: OnceLock<Option<Listener<()>>>,
    silence: Receiver<()>,
}

impl OwnHold {
    pub(crate) fn of(
        tenures: impl IntoIterator<Item = Arc<Tenure>>,
        is_exclusive: bool,
    ) -> Arc<Self> {
        let own = Arc::new(Self {
            tenures: tenures.into_iter().collect(),
            is_exclusive,
            loss: Arc::new(OnceEvent::new()),
            end: Arc::new(OnceEvent::new()),
            lost: OnceLock::new(),
            revocation: OnceLock::new(),
            silence: crossbeam_channel::never(),
        });
        if own.is_forked() {
            return own;
        }
        for tenure in &own.tenures {
            tenure.loss_event().pass_on_to(&own.loss);
        }
        own.loss.pass_on_to(&own.end);
        own
    }

    /// In a forked child a lock may be held by a thread that is not there; so this comes first.
    fn is_forked(&self) -> bool {
        self.session().is_forked()
    }

    pub(crate) fn tenures(&self) -> &[Arc<Tenure>] {
        &self.tenures
    }

    /// The one tenure whose token orders this hold among all.
    pub(super) fn tenure_of_token(&self) -> Option<&Arc<Tenure>> {
        match &*self.tenures {
            [tenure] if self.is_exclusive => Some(tenure),
            _ => None,
        }
    }

    /// The state of the least sure of the tenures; `Lost` after the release.
    pub(crate) fn state(&self) -> LockState {
        if self.is_forked() || self.end.get().is_some() {
            return LockState::Lost;
        }
        least_sure(&self.tenures)
    }

    /// What remains of the least sure of the tenures; nothing after the release.
    pub(crate) fn remaining(&self) -> Duration {
        if self.state() == LockState::Lost {
            return Duration::ZERO;
        }
        let each = self.tenures.iter().map(|tenure| tenure.remaining());
        each.min().unwrap_or_default()
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        self.tenures[0].session()
    }

    /// The guard's own channel.
    pub(crate) fn lost(&self) -> &Receiver<LossReason> {
        self.lost.get_or_init(|| match self.is_forked() {
            true => Listener::never(),
            false => self.loss.listen(),
        })
    }

    /// A channel of a view's.
    pub(crate) fn listen(&self) -> Listener<LossReason> {
        if self.is_forked() {
            return Listener::never();
        }
        self.end.listen()
    }

    /// A channel for one who must hear of a loss after the release has begun.
    pub(super) fn listen_to_loss(&self) -> Listener<LossReason> {
        if self.is_forked() {
            return Listener::never();
        }
        self.loss.listen()
    }

    /// The guard's own channel that tells that somebody asks for the lock.
    pub(crate) fn revocation(&self) -> &Receiver<()> {
        let asked = self.revocation.get_or_init(|| {
            let mut tenures = self.tenures.iter().filter(|_| !self.is_forked());
            let asked = tenures.find_map(|tenure| tenure.revocation());
            asked.map(OnceEvent::listen)
        });
        asked.as_deref().unwrap_or(&self.silence)
    }

    /// The guard is about to be given back, now or once its caller has waited for those who have
    /// views: before anybody else can hold, these say so.
    pub(crate) fn release(&self) {
        if !self.is_forked() {
            self.end.tell(LossReason::Released);
        }
    }
}

/// A leadership is to end when its token is cancelled: those who have views hear it at once.
impl OnCancel for OwnHold {
    fn on_cancel(&self) {
        self.release();
    }
}

pub(super) fn least_sure(tenures: &[Arc<Tenure>]) -> LockState {
    let states = tenures.iter().map(|tenure| tenure.state());
    states.fold(LockState::Held, |least, state| match (least, state) {
        (LockState::Lost, _) | (_, LockState::Lost) => LockState::Lost,
        (LockState::Suspect, _) | (_, LockState::Suspect) => LockState::Suspect,
        _ => LockState::Held,
    })
}

/// Nothing: its name is for the compiler's error when a guard is to be moved to another thread. Who
/// holds is a thread, as re-entry goes by thread; a [`HoldView`](crate::HoldView) may be moved.
#[derive(Debug)]
pub(super) struct GuardStaysOnItsThread;

/// One hold of the calling thread, given back when this is dropped. It keeps alive what it stands
/// on until it is gone itself: the last handle of a client ends the session, and what was given
/// back just before is not confirmed then.
pub(super) struct Hold<Q: Turns> {
    queue: Arc<Owned<Q>>,
    given_back: bool,
    /// Looked up when it is first asked for, to keep the fast paths free of it.
    tenure: OnceCell<Arc<Tenure>>,
    own: OnceCell<Arc<OwnHold>>,
    /// Not `Send`.
    _of_this_thread: PhantomData<*const GuardStaysOnItsThread>,
}

impl<Q: Turns> Hold<Q> {
    /// For a thread that has just acquired.
    #[inline]
    pub(crate) fn new(queue: &Arc<Owned<Q>>) -> Self {
        Self {
            queue: Arc::clone(queue),
            given_back: false,
            tenure: OnceCell::new(),
            own: OnceCell::new(),
            _of_this_thread: PhantomData,
        }
    }

    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        self.tenure.get_or_init(|| self.queue.tenure())
    }

    pub(crate) fn own(&self) -> &Arc<OwnHold> {
        self.own
            .get_or_init(|| OwnHold::of([Arc::clone(self.tenure())], Q::IS_EXCLUSIVE))
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.queue.session()
    }

    /// As dropping it, but says whether that went well, and whether the lock was ours until then.
    pub(crate) fn unlock(mut self) -> Result<()> {
        if self.ends() {
            self.queue.unlock()
        } else {
            Ok(())
        }
    }

    /// Gives it back, and does not wait for ZooKeeper to confirm it.
    #[inline]
    pub(crate) fn start_release(&mut self, mode: ReleaseMode) -> PendingRelease {
        if self.ends() {
            self.queue.start_release(mode)
        } else {
            PendingRelease::over(Ok(()))
        }
    }

    /// Whether it is to be given back now: once.
    #[inline]
    fn ends(&mut self) -> bool {
        if std::mem::replace(&mut self.given_back, true) {
            return false;
        }
        if let Some(own) = self.own.get() {
            own.release();
        }
        true
    }
}

impl Hold<LocalQueue> {
    /// For a value that may go to another thread.
    pub(super) fn detach(mut self) -> DetachedHold {
        self.given_back = true;
        self.queue.detach();
        DetachedHold {
            queue: Arc::clone(&self.queue),
            goes_on: false,
            own: self.own.take(),
        }
    }
}

/// A hold that may be sent to another thread, and is given back wherever it is dropped. A guard only
/// on the thread that took it.
pub(super) struct DetachedHold {
    queue: Arc<Owned<LocalQueue>>,
    /// As a guard.
    goes_on: bool,
    own: Option<Arc<OwnHold>>,
}

impl DetachedHold {
    /// The hold as a guard has it; comes back as it is on any thread but its own.
    pub(super) fn attach(mut self) -> std::result::Result<Hold<LocalQueue>, Self> {
        if !self.queue.attach() {
            return Err(self);
        }
        self.goes_on = true;
        let mut hold = Hold::new(&self.queue);
        hold.own = self.own.take().map_or_else(OnceCell::new, OnceCell::from);
        Ok(hold)
    }
}

impl Drop for DetachedHold {
    fn drop(&mut self) {
        if self.goes_on {
            return;
        }
        if let Some(own) = &self.own {
            own.release();
        }
        let released = self.queue.release_detached();
        if released.is_err() {
            log_release(self.queue.session(), released);
        }
    }
}

impl<Q: Turns> Drop for Hold<Q> {
    #[inline]
    fn drop(&mut self) {
        if self.ends() {
            let released = self.queue.release();
            if released.is_err() {
                log_release(self.queue.session(), released);
            }
        }
    }
}

/// What stands behind a guard.
pub(crate) trait Holding {
    fn tenure(&self) -> &Arc<Tenure>;
    fn session(&self) -> &Arc<Session>;
    fn own(&self) -> &Arc<OwnHold>;
}

impl fmt::Debug for OwnHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnHold")
            .field("tenures", &self.tenures)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Weak;

    use zklock_protocol::ErrorCode;

    use super::*;
    use crate::recipe::view::HoldView;
    use crate::session::RetryPolicy;
    use crate::session::scripted::{Stage, stage};
    use crate::tenure::{NewTenure, OnRevoke};

    struct Nobody;

    impl OnRevoke for Nobody {
        fn on_revoke(&self) {}
    }

    fn tenure(stage: &Stage) -> Arc<Tenure> {
        let new = NewTenure {
            nodes: vec!["/locks/a/lock-1".to_owned()],
            token: None,
            made: None,
        };
        let contact = stage.session.contact().expect("open");
        let tenure = Tenure::begin(&contact, new).expect("proven");
        tenure.expect("on the open connection")
    }

    /// A tenure can last for days, with many holds one after the other, and a hold with many views.
    #[test]
    fn nothing_is_kept_of_holds_and_views_that_have_gone() {
        let stage = stage(RetryPolicy::new(), |_| Err(ErrorCode::THROTTLED_OP));
        let tenure = tenure(&stage);
        tenure.make_revocable(Weak::<Nobody>::new());
        for _ in 0..100 {
            let own = OwnHold::of([Arc::clone(&tenure)], true);
            assert!(own.revocation().is_empty());
            assert!(own.lost().is_empty());
        }
        let asked = tenure.revocation().expect("revocable");
        assert!(asked.listeners() <= 1, "{}", asked.listeners());
        assert!(tenure.loss_event().listeners() <= 1);
        let own = OwnHold::of([Arc::clone(&tenure)], true);
        let view = HoldView::of(&own);
        for _ in 0..100 {
            assert!(view.clone().lost().is_empty());
        }
        assert!(own.end.listeners() <= 2, "{}", own.end.listeners());
        own.release();
        assert_eq!(view.lost().recv(), Ok(LossReason::Released));
    }
}
