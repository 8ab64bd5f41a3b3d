//! [`Leadership`]: the guard of an election, and what it gives to those who work for the leader.

use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::error::{Error, Result};
use crate::local_queue::{LocalQueue, Owned};
use crate::recipe::guard::{
    fencing_token_method, guard_traits, holding_methods, log_release, revocation_method,
    transaction_method,
};
use crate::recipe::hold::OwnHold;
use crate::recipe::view::HoldView;
use crate::session::{LossReason, Session};
use crate::tenure::{LockState, Tenure};
use crate::wait::limits::deadline_after;
use crate::wait::once_event::Listener;

/// This process leads, until it [resigns](Self::resign), drops this, or
/// [loses](Self::lost) the leadership.
///
/// It is `Send`: whatever thread drops it steps down. Its [`fencing_token`](Self::fencing_token) is
/// the term: it rises from each leader to the next, so stores that compare it refuse who comes late.
///
/// # Stepping down
/// Whoever steps down while its own threads work lets the next leader work beside them. So each
/// thread that works for this leader gets a [`worker`](Self::worker), and the next leader cannot
/// come before the last of those has gone:
///
/// 1. [`resign`](Self::resign), or a drop, tells every worker and every [view](Self::view): they say
///    [`Lost`](crate::LockState::Lost), with the reason [`Released`](crate::LossReason::Released).
///    The node stands: nobody else leads as long as the session lives.
/// 2. Each worker ends its step and drops its [`LeaderWorker`]. `resign` waits for that; a drop does
///    not wait.
/// 3. The node goes, in `resign` or with the last worker, and the next one leads.
///
/// A view keeps nothing: it is for threads that only show who leads. Where workers have views all
/// the same, [`resign_after`](Self::resign_after) has its caller wait for them between the first step
/// and the third.
///
/// After a loss there is nothing to wait for: workers hear of it before anybody else can lead, by
/// [`lost`](crate::HoldView::lost), and during a last step by
/// [`leadership_lost`](LeaderWorker::leadership_lost).
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// # fn step() {}
/// let election = zklock::Election::new(&client, "/leaders/indexer")?;
/// let leadership = election.campaign()?;
/// let worker = leadership.worker();
/// std::thread::spawn(move || {
///     let pause = std::time::Duration::from_millis(10);
///     while worker.lost().recv_timeout(pause).is_err() {
///         if worker.is_held() {
///             step(); // not while there is no contact, and again when it is back
///         }
///     }
/// });
/// // Somebody asks us to step down.
/// leadership.resign()?; // the worker's last step is over, and the next one leads
/// # Ok(())
/// # }
/// ```
#[clippy::has_significant_drop]
#[must_use = "who drops it steps down"]
pub struct Leadership(Term);

/// What a leadership owns. In this order: all are told before the hold can go.
struct Term {
    resigns: Resigns,
    hold: Arc<LeaderHold>,
    /// Disconnected once the last worker has gone.
    workers: Receiver<Infallible>,
    /// What workers have a clone of.
    at_work: Sender<Infallible>,
}

impl Term {
    fn tenure(&self) -> &Arc<Tenure> {
        &self.hold.tenure
    }

    fn session(&self) -> &Arc<Session> {
        self.hold.tenure.session()
    }

    fn own(&self) -> &Arc<OwnHold> {
        &self.hold.own
    }
}

impl Leadership {
    /// For a thread that has just acquired, and is not the owner of what it holds.
    pub(super) fn begin(queue: &Arc<Owned<LocalQueue>>) -> Self {
        let tenure = queue.tenure();
        queue.disown();
        let (at_work, workers) = bounded(0);
        let hold = Arc::new(LeaderHold {
            queue: Arc::clone(queue),
            own: OwnHold::of([Arc::clone(&tenure)], true),
            tenure,
            is_given_back: false,
        });
        Self(Term {
            resigns: Resigns(Arc::clone(&hold.own)),
            hold,
            workers,
            at_work,
        })
    }

    holding_methods!();
    fencing_token_method!();
    revocation_method!();

    transaction_method!();

    pub(super) fn own_hold(&self) -> &Arc<OwnHold> {
        &self.0.hold.own
    }

    /// What a thread that works for this leader takes along: the state of the leadership, and the
    /// right to end its step before anybody else leads.
    ///
    /// The node goes when the leadership and all of its workers have gone. So a worker that never
    /// ends keeps others from leading as long as the session lives.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let parts = crossbeam_channel::never::<u32>();
    /// let election = zklock::Election::new(&client, "/leaders/indexer")?;
    /// let leadership = election.campaign()?;
    /// let worker = leadership.worker();
    /// let thread = std::thread::spawn(move || {
    ///     loop {
    ///         crossbeam_channel::select! {
    ///             recv(parts) -> part => println!("indexing {part:?}"),
    ///             recv(worker.lost()) -> why => break why, // lost, or resigned
    ///         }
    ///     }
    /// });
    /// leadership.resign()?;
    /// assert_eq!(thread.join().expect("no panic"), Ok(zklock::LossReason::Released));
    /// # Ok(())
    /// # }
    /// ```
    pub fn worker(&self) -> LeaderWorker {
        LeaderWorker {
            view: self.view(),
            loss: self.0.hold.own.listen_to_loss(),
            hold: Arc::clone(&self.0.hold),
            at_work: self.0.at_work.clone(),
        }
    }

    /// Steps down: tells workers and views, waits for the workers, and then lets the next one lead.
    /// See [Stepping down](Self#stepping-down).
    ///
    /// It waits for [workers](Self::worker) as long as the leadership is not lost and the client not
    /// closed, so not for one of the calling thread's own; with a bound,
    /// [`resign_for`](Self::resign_for) and [`resign_until`](Self::resign_until). Workers that are at
    /// it still after a loss keep this process, and it alone, from leading again.
    ///
    /// # Errors
    /// - [`is_lock_lost`](Error::is_lock_lost): the leadership was lost before, or meanwhile, or the
    ///   client closed; somebody else may have led at the same time.
    /// - [`is_connection_loss`](Error::is_connection_loss): ZooKeeper has not confirmed it yet; the
    ///   node is removed in the background.
    pub fn resign(self) -> Result<()> {
        self.resign_by(None, None)
    }

    /// As [`resign`](Self::resign), and waits for the workers for at most `timeout`.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let election = zklock::Election::new(&client, "/leaders/indexer")?;
    /// let leadership = election.campaign()?;
    /// let stuck = leadership.worker(); // of a step that does not end
    /// let late = leadership.resign_for(std::time::Duration::from_millis(50));
    /// assert!(late.is_err_and(|error| error.is_timeout()));
    /// assert!(election.try_campaign()?.is_none()); // nobody leads beside it
    /// drop(stuck);
    /// assert!(election.try_campaign()?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`resign`](Self::resign); also [`is_timeout`](Error::is_timeout) if workers are left then.
    /// The last of them lets the next one lead.
    pub fn resign_for(self, timeout: Duration) -> Result<()> {
        self.resign_by(deadline_after(timeout), Some(timeout))
    }

    /// As [`resign`](Self::resign), and waits for the workers until `deadline`.
    ///
    /// # Errors
    /// As [`resign_for`](Self::resign_for).
    pub fn resign_until(self, deadline: Instant) -> Result<()> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        self.resign_by(Some(deadline), Some(timeout))
    }

    /// Steps down, and calls `join` between telling those who work and letting the next one lead:
    /// for threads that have [views](Self::view), which nothing else waits for.
    ///
    /// If `join` panics, the panic goes on, and the next one leads.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let election = zklock::Election::new(&client, "/leaders/indexer")?;
    /// # fn step() {}
    /// let leadership = election.campaign()?;
    /// let view = leadership.view();
    /// let thread = std::thread::spawn(move || {
    ///     let pause = std::time::Duration::from_millis(10);
    ///     while view.lost().recv_timeout(pause).is_err() {
    ///         if view.is_held() {
    ///             step();
    ///         }
    ///     }
    /// });
    /// leadership.resign_after(|| thread.join().expect("no panic"))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`resign`](Self::resign).
    pub fn resign_after(self, join: impl FnOnce()) -> Result<()> {
        self.retire();
        join();
        self.resign()
    }

    fn resign_by(self, deadline: Option<Instant>, timeout: Option<Duration>) -> Result<()> {
        // A copy of a worker that a forked child has never ends there.
        self.0.session().refuse_child()?;
        let Term {
            resigns,
            hold,
            workers,
            at_work,
        } = self.0;
        drop(resigns);
        drop(at_work);
        let over = deadline.map_or_else(crossbeam_channel::never, crossbeam_channel::at);
        // A worker lets go of the hold first, and then is gone. After a loss there is no node that
        // the workers could keep, and a closed client is not to be waited for.
        select! {
            recv(workers) -> _ => {}
            recv(hold.own.lost()) -> _ => {}
            recv(over) -> _ => {}
        }
        let tenure = Arc::clone(&hold.tenure);
        // Who lets go last gives it back: this, also when the last worker went just at the deadline,
        // or a worker.
        if let Some(hold) = Arc::into_inner(hold) {
            return hold.give_back();
        }
        tenure.refuse_lost()?;
        let error = timeout.map_or_else(Error::timeout, Error::timeout_after);
        let node = tenure.node();
        Err(error.context(format!("{node}: workers of this leader are at it still")))
    }
}

guard_traits!(Leadership, "Leadership");

/// Tells views and workers at the end of a leadership.
struct Resigns(Arc<OwnHold>);

impl Drop for Resigns {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The hold of a leadership and of its workers. The last of them gives it back.
struct LeaderHold {
    queue: Arc<Owned<LocalQueue>>,
    tenure: Arc<Tenure>,
    own: Arc<OwnHold>,
    is_given_back: bool,
}

impl LeaderHold {
    /// As dropping it, but says whether that went well, and whether it was ours until then.
    fn give_back(mut self) -> Result<()> {
        self.is_given_back = true;
        let was_ours = self.tenure.refuse_lost();
        let released = self.queue.release_detached();
        was_ours.and(released)
    }
}

impl Drop for LeaderHold {
    fn drop(&mut self) {
        if self.is_given_back {
            return;
        }
        let released = self.queue.release_detached();
        if released.is_err() {
            log_release(self.queue.session(), released);
        }
    }
}

/// What a thread has that works for a leader; made by [`Leadership::worker`].
///
/// It shows the leadership as a [`HoldView`] does, which it dereferences to. Besides, it keeps the
/// next leader out: the node goes when the leadership and every worker of it have been dropped. So
/// look at it between two steps, or wait for its [`lost`](HoldView::lost), and drop it when the last
/// step is over. It can be cloned and sent.
///
/// `lost` tells once, so a worker that has heard `Released` hears no more by it. Its last step goes by
/// the leadership itself, which the session may still lose: by
/// [`ensure_for`](Self::ensure_for), [`leadership_state`](Self::leadership_state) and
/// [`leadership_lost`](Self::leadership_lost).
///
/// Dropping the last one gives the leadership back, which blocks for at most about a sixth of the
/// session timeout.
#[must_use = "the next one may lead as soon as this is dropped"]
pub struct LeaderWorker {
    // In this order: who waits for the workers then has the last hold.
    view: HoldView,
    loss: Listener<LossReason>,
    hold: Arc<LeaderHold>,
    at_work: Sender<Infallible>,
}

impl LeaderWorker {
    /// How sure it is that nobody else leads, whether or not this leader is stepping down: what the
    /// [`state`](HoldView::state) of the view was before that.
    #[must_use]
    pub fn leadership_state(&self) -> LockState {
        if self.hold.tenure.session().is_forked() {
            return LockState::Lost;
        }
        self.hold.tenure.state()
    }

    /// A channel that delivers the reason when the leadership is lost, before anybody else can lead,
    /// and stays silent when it is given back: for a last step that takes long. Each worker has its
    /// own, and it ends with that worker.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let flushed = crossbeam_channel::bounded::<()>(0).1;
    /// let election = zklock::Election::new(&client, "/leaders/indexer")?;
    /// let leadership = election.campaign()?;
    /// let worker = leadership.worker();
    /// drop(leadership); // somewhere else: this process steps down
    /// assert_eq!(worker.lost().recv(), Ok(zklock::LossReason::Released));
    /// crossbeam_channel::select! {
    ///     recv(flushed) -> _ => println!("the last step is over"),
    ///     recv(worker.leadership_lost()) -> why => println!("cut off in it: {why:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn leadership_lost(&self) -> &Receiver<LossReason> {
        &self.loss
    }

    /// An error unless nobody else can lead for at least as long, as known now and as long as nobody
    /// removes the node by hand. To be asked before a last step, too.
    ///
    /// # Errors
    /// As [`Leadership::ensure_for`].
    pub fn ensure_for(&self, needed: Duration) -> Result<()> {
        self.hold.tenure.session().refuse_child()?;
        self.hold.tenure.ensure_for(needed)
    }
}

impl Deref for LeaderWorker {
    type Target = HoldView;

    fn deref(&self) -> &HoldView {
        &self.view
    }
}

impl Clone for LeaderWorker {
    fn clone(&self) -> Self {
        Self {
            view: self.view.clone(),
            loss: self.hold.own.listen_to_loss(),
            hold: Arc::clone(&self.hold),
            at_work: self.at_work.clone(),
        }
    }
}

impl fmt::Debug for LeaderWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderWorker")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::{Client, Election};

    /// It said that workers were left, and what came of giving the node back was not told.
    #[test]
    fn who_is_the_last_to_let_go_at_the_deadline_hears_how_that_went() {
        let server = zklock_test::Server::start().expect("a port");
        let client = Client::connect(&server.connect_string()).expect("it listens");
        let election = Election::new(&client, "/leaders").expect("a good path");
        let leadership = election.campaign().expect("nobody else");
        let LeaderWorker {
            view,
            loss,
            hold,
            at_work,
        } = leadership.worker();
        // A worker between letting go and being gone.
        drop((view, loss, hold));
        let resigned = leadership.resign_for(Duration::from_millis(1));
        resigned.expect("the last to let go");
        drop(at_work);
        assert!(election.try_campaign().expect("answers").is_some());
    }
}
