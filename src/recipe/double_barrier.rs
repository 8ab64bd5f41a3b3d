//! [`DoubleBarrier`]: N members begin together and end together.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::{AcquireRequest, Member, Rendezvous};
use crate::recipe::guard::holding_methods;
use crate::recipe::hold::{Holding, OwnHold};
use crate::recipe::node_data::NodeData;
use crate::recipe::shown::show;
use crate::session::{Session, Waiter};
use crate::tenure::Tenure;
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};
use crate::znode::names::{Dialect, Grammar};
use crate::znode::path::LockPath;

/// N members go in together and come out together, over all processes that use the same path.
///
/// # Semantics
/// - [`enter`](Self::enter) waits until N members have entered; [`Membership::leave`] waits until
///   all of those have left.
/// - **A member is a call of `enter`**: two threads of one process that enter are two members.
/// - **It can be used again**: a member that has left can enter again, and waits for the others to
///   do so. A member that is late does not fall between two rounds, because members go by the order
///   of transactions, not by a count.
/// - A member whose session is lost, or whose [`Membership`] is dropped, has left. If that happens
///   before all are there, the others go on waiting for another member.
/// - An `enter` that fails, times out or is cancelled has not entered, and leaves nothing behind.
///   It may have been counted at the last moment: then the others are inside without it.
/// - More than N members can be inside if they come at the same moment.
///
/// It has the layout of Curator's `DistributedDoubleBarrier`, or kazoo's; see
/// [`DoubleBarrierBuilder::dialect`].
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// let client = zklock::Client::connect("localhost:2181")?;
/// let step = zklock::DoubleBarrier::new(&client, "/steps/shuffle", 3)?;
/// let inside = step.enter()?; // until three are there
/// // all three work now
/// inside.leave()?; // until all three are done
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DoubleBarrier {
    inner: Arc<BarrierState>,
}

struct BarrierState {
    rendezvous: Arc<Rendezvous>,
    data: NodeData,
    /// Keeps the session open.
    _client: Client,
}

impl DoubleBarrier {
    /// A barrier at `path` for `members` members. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible, or `members` is 0.
    pub fn new(client: &Client, path: &str, members: usize) -> Result<Self> {
        Self::builder(client, path, members).build()
    }

    /// Begins to build a barrier at `path` for `members` members.
    pub fn builder<'a>(
        client: &'a Client,
        path: &'a str,
        members: usize,
    ) -> DoubleBarrierBuilder<'a> {
        DoubleBarrierBuilder {
            client,
            path,
            members,
            dialect: Dialect::default(),
            data: None,
        }
    }

    /// Enters, and waits until all members have entered. While ZooKeeper cannot be reached it waits
    /// as long as the client's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn enter(&self) -> Result<Membership> {
        self.enter_within(&WaitLimits::none(), &self.inner.data)
    }

    /// Enters, and waits for at most `timeout` until all members have entered. Returns `None` when
    /// the time is over, even when ZooKeeper is silent; this member has then not entered. With a
    /// zero timeout it enters if all the others are there.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// use std::time::Duration;
    ///
    /// let step = zklock::DoubleBarrier::new(&client, "/steps/shuffle", 3)?;
    /// let Some(inside) = step.enter_for(Duration::from_secs(60))? else {
    ///     println!("not all three came within a minute");
    ///     return Ok(());
    /// };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn enter_for(&self, timeout: Duration) -> Result<Option<Membership>> {
        self.attempt(TryOrWait::during(timeout))
    }

    /// Enters, and waits until all members have entered, but not beyond `deadline`; `None` when
    /// that has passed, and this member has then not entered.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn enter_until(&self, deadline: Instant) -> Result<Option<Membership>> {
        self.attempt(TryOrWait::until(deadline))
    }

    fn try_enter(&self, data: &NodeData) -> Result<Option<Membership>> {
        let (rendezvous, limits) = (&self.inner.rendezvous, WaitLimits::none());
        let waiter = Waiter::new(rendezvous.session(), &limits);
        let request = AcquireRequest::plain(data.now());
        let member = rendezvous.try_meet(&waiter, &request)?;
        Ok(member.map(|member| self.membership(member)))
    }

    fn membership(&self, member: Member) -> Membership {
        Membership {
            inner: Arc::clone(&self.inner),
            member: Some(member),
            own: OnceLock::new(),
        }
    }

    fn attempt(&self, try_or_wait: TryOrWait) -> Result<Option<Membership>> {
        let wait = |limits: &WaitLimits| self.enter_within(limits, &self.inner.data);
        try_or_wait.attempt(|| self.try_enter(&self.inner.data), wait)
    }

    /// Enters, and waits until all members have entered, with a deadline, a cancel token or node
    /// data for this one time. A report of positions says how many members are missing.
    ///
    /// # Errors
    /// As [`Mutex::lock_with`](crate::Mutex::lock_with).
    pub fn enter_with(&self, options: AcquireOptions) -> Result<Membership> {
        let (try_or_wait, data) = options
            .begin()
            .map_err(|error| error.context(self.path()))?;
        let data = self.inner.data.or(self.inner.rendezvous.path(), data)?;
        try_or_wait.insist(
            self.path(),
            || self.try_enter(&data),
            |limits| self.enter_within(limits, &data),
        )
    }

    fn enter_within(&self, limits: &WaitLimits, data: &NodeData) -> Result<Membership> {
        let rendezvous = &self.inner.rendezvous;
        let waiter = Waiter::new(rendezvous.session(), limits);
        let request = AcquireRequest {
            reporter: limits.reporter.as_deref(),
            ..AcquireRequest::plain(data.now())
        };
        let member = rendezvous.meet(&waiter, &request)?;
        Ok(self.membership(member))
    }

    /// How many members must enter.
    #[must_use]
    pub fn members(&self) -> usize {
        self.inner.rendezvous.members()
    }

    /// The path, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.inner.rendezvous.path().as_str()
    }
}

impl fmt::Debug for DoubleBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = self.inner.rendezvous.session();
        show(f, "DoubleBarrier", self.path(), session, |shown| {
            shown.field("members", &self.members());
        })
    }
}

/// Settings of a [`DoubleBarrier`]; made by [`DoubleBarrier::builder`].
#[derive(Debug)]
#[must_use]
pub struct DoubleBarrierBuilder<'a> {
    client: &'a Client,
    path: &'a str,
    members: usize,
    dialect: Dialect,
    data: Option<Vec<u8>>,
}

impl DoubleBarrierBuilder<'_> {
    /// Whose node names to write: a GUID with dashes (Curator, the default) or without (kazoo).
    /// Members of both are recognised. But where kazoo's own members take part, the dialect must be
    /// kazoo's: the first of them by name waits until `ready` is gone, and only in kazoo's dialect
    /// does the last of the others remove it while that one is still inside.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// What a member's node holds for others to read. Defaults to who we are: host, process id,
    /// thread and time.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Builds the barrier. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path or a setting is not possible;
    /// [`is_forked`](Error::is_forked).
    pub fn build(self) -> Result<DoubleBarrier> {
        self.client.session().refuse_child()?;
        let folder = LockPath::parse(self.path).map_err(Error::invalid)?;
        if self.members == 0 {
            return Err(Error::invalid(format!("{folder}: a barrier of 0 members")));
        }
        let data = NodeData::checked(&folder, self.data)?;
        let grammar = Grammar::member(self.dialect);
        let rendezvous = Rendezvous::new(self.client.session(), folder, grammar, self.members);
        let rendezvous = Arc::new(rendezvous);
        Ok(DoubleBarrier {
            inner: Arc::new(BarrierState {
                rendezvous,
                data,
                _client: self.client.clone(),
            }),
        })
    }
}

/// A member that has entered a [`DoubleBarrier`].
///
/// Dropping it leaves without waiting for the others, in the background; the end of the client waits
/// for that, for up to a second. It can be sent to another thread.
#[clippy::has_significant_drop]
#[must_use = "the member leaves as soon as this is dropped"]
pub struct Membership {
    inner: Arc<BarrierState>,
    /// Empty once it has left.
    member: Option<Member>,
    own: OnceLock<Arc<OwnHold>>,
}

impl Membership {
    holding_methods!();

    /// Leaves, and waits until all members that entered together have left.
    ///
    /// # Errors
    /// [`is_lock_lost`](Error::is_lock_lost) if this member's node was gone before; otherwise as
    /// [`DoubleBarrier::enter`]. The member has left all the same, or leaves in the background.
    pub fn leave(self) -> Result<()> {
        self.leave_within(&WaitLimits::none())
    }

    /// Leaves, and waits for at most `timeout` until the others have left. Returns whether they
    /// have; this member has left in any case.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// # let step = zklock::DoubleBarrier::new(&client, "/steps/shuffle", 3)?;
    /// for round in 0..10 {
    ///     let inside = step.enter()?;
    ///     println!("round {round}");
    ///     if !inside.leave_for(std::time::Duration::from_secs(60))? {
    ///         println!("a member is slow; the next round begins when it has come");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`leave`](Self::leave).
    pub fn leave_for(self, timeout: Duration) -> Result<bool> {
        self.leave_attempt(TryOrWait::during(timeout))
    }

    /// Leaves, and waits until the others have left, but not beyond `deadline`. Returns whether
    /// they have; this member has left in any case.
    ///
    /// # Errors
    /// As [`leave`](Self::leave).
    pub fn leave_until(self, deadline: Instant) -> Result<bool> {
        self.leave_attempt(TryOrWait::until(deadline))
    }

    fn leave_attempt(self, try_or_wait: TryOrWait) -> Result<bool> {
        let left = try_or_wait.attempt(|| Ok(None), |limits| self.leave_within(limits))?;
        Ok(left.is_some())
    }

    /// Leaves, and waits until the others have left, with a deadline or a cancel token.
    ///
    /// # Errors
    /// As [`leave`](Self::leave); also [`is_timeout`](Error::is_timeout) and
    /// [`is_cancelled`](Error::is_cancelled).
    pub fn leave_with(self, options: AcquireOptions) -> Result<()> {
        let path = self.inner.rendezvous.path().to_string();
        let (try_or_wait, _) = options.begin().map_err(|error| error.context(&path))?;
        try_or_wait.insist(&path, || Ok(None), |limits| self.leave_within(limits))
    }

    fn leave_within(mut self, limits: &WaitLimits) -> Result<()> {
        let rendezvous = &self.inner.rendezvous;
        let waiter = Waiter::new(rendezvous.session(), limits);
        let member = self.member.as_mut().expect("has not left yet");
        rendezvous.part(member, &waiter)?;
        // Gone already: nothing is left for Drop.
        self.member = None;
        Ok(())
    }

    fn as_member(&self) -> &Member {
        self.member.as_ref().expect("has not left yet")
    }
}

impl Holding for Membership {
    fn tenure(&self) -> &Arc<Tenure> {
        &self.as_member().tenure
    }

    fn session(&self) -> &Arc<Session> {
        self.inner.rendezvous.session()
    }

    fn own(&self) -> &Arc<OwnHold> {
        let of_this = || OwnHold::of([Arc::clone(self.tenure())], false);
        self.own.get_or_init(of_this)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(own) = self.own.get() {
            own.release();
        }
        if let Some(member) = self.member.take() {
            self.inner.rendezvous.abandon(member);
        }
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership")
            .field("node", &self.path())
            .field("state", &self.state())
            .finish()
    }
}
