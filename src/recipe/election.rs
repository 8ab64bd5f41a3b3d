//! [`Election`]: one leader of many processes, and who that is.

mod leader;
mod leadership;
mod serve;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::leader::{Leader, LeaderChanges, WhoLeads};
pub use self::leadership::{LeaderWorker, Leadership};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::{GlobalQueue, QueueHead, WaitStrategy};
use crate::local_queue::{LocalQueue, Owned, Policy};
use crate::recipe::node_data::NodeData;
use crate::recipe::participant::Participant;
use crate::recipe::shown::show;
use crate::session::Session;
use crate::wait::acquire_options::AcquireOptions;
use crate::wait::limits::{TryOrWait, WaitLimits};
use crate::znode::names::{Class, Dialect, Grammar};
use crate::znode::path::LockPath;

/// An election: one leader at a time of all processes that use the same path.
///
/// [`serve`](Self::serve) is the whole life of a candidate: it stands, leads, steps down and stands
/// again. The verbs of one term are those of a lock, from [`campaign`](Self::campaign) to
/// [`Leadership::resign`]. Who only wants to know who leads asks [`leader`](Self::leader) or follows
/// [`leaders`](Self::leaders).
///
/// # Semantics
/// - **Not leader is heard before the successor's leader.** A leader whose session may end is told
///   before another process can lead. One who steps down tells its workers first, and the next one
///   cannot lead before the last [`LeaderWorker`] is gone; see [`Leadership`].
/// - **Fair**: candidates lead in the order in which they stood, and who stands again does so at the
///   end of the queue.
/// - **One candidate in each process**: threads that campaign through one `Election` object or its
///   clones queue for each other, and have one node in ZooKeeper at a time. Each leadership is a
///   term of its own, with a node and a [fencing token](Leadership::fencing_token) of its own.
/// - **Not re-entrant**: a thread that leads and campaigns again waits, as the leadership may be with
///   another thread by then.
/// - **The guard is `Send`** and keeps the session open.
/// - **When contact is lost** the leader is [`Suspect`](crate::LockState::Suspect), and leads nothing
///   new until contact is back; candidates go on waiting.
/// - **When the session is lost** the leadership is [`Lost`](crate::LockState::Lost), and candidates
///   queue again.
/// - **When a thread panics** that has the leadership, it is dropped: it steps down. The panic of a
///   thread that has a worker ends that worker alone, and the process goes on leading with nobody at
///   work. So whoever leads should end with its workers, as `lead` in
///   examples/leader.rs does.
/// - **When the process dies** the next one leads after the session timeout.
///
/// In Curator's dialect candidates stand beside Curator's `LeaderLatch`, in kazoo's beside kazoo's
/// `Election`.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let election = zklock::Election::new(&client, "/leaders/indexer")?;
/// let leadership = election.campaign()?; // waits until this process leads
/// println!("leading, in term {}", leadership.fencing_token()?);
/// leadership.resign()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    queue: Arc<Owned<LocalQueue>>,
    head: Arc<QueueHead>,
    data: NodeData,
    pause: Duration,
    client: Client,
}

impl Election {
    /// An election at `path` with the default settings. Nothing is asked of ZooKeeper yet.
    ///
    /// `path` is the folder in which candidates queue. It is created when one first stands, with the
    /// folders above it.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible.
    pub fn new(client: &Client, path: &str) -> Result<Self> {
        Self::builder(client, path).build()
    }

    /// Begins to build an election at `path`.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// use zklock::{Dialect, Election};
    ///
    /// // Stands beside Python's `client.Election("/leaders/indexer", "host-7")`.
    /// let election = Election::builder(&client, "/leaders/indexer")
    ///     .dialect(Dialect::Kazoo)
    ///     .id("host-8")
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder<'a>(client: &'a Client, path: &'a str) -> ElectionBuilder<'a> {
        ElectionBuilder {
            client,
            path,
            dialect: Dialect::default(),
            strategy: WaitStrategy::default(),
            id: None,
            pause: Duration::from_secs(1),
            policy: Policy {
                // A term is one leader's.
                hand_off: false,
                reentrant: false,
                ..Policy::default()
            },
        }
    }

    /// Stands for leader, and waits until this process leads. [Keep the
    /// guard](crate#keep-the-guard).
    ///
    /// While ZooKeeper cannot be reached it waits as long as the client's
    /// [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); [`is_invalid`](Error::is_invalid) also if a lock of
    /// another kind is in use at this path, as the two do not exclude each other: in Curator's
    /// dialect a mutex, as that of Curator's `LeaderSelector`; in kazoo's, where an election and a
    /// mutex are one queue, a read-write lock.
    pub fn campaign(&self) -> Result<Leadership> {
        self.campaign_within(&WaitLimits::none(), &self.data)
    }

    /// Leads if nobody does or waits to; otherwise returns `None`, and writes nothing to ZooKeeper.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let election = zklock::Election::new(&client, "/leaders/indexer")?;
    /// match election.try_campaign()? {
    ///     Some(leadership) => println!("leading: {leadership:?}"),
    ///     None => println!("somebody leads: {:?}", election.leader()?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign); [`is_connection_loss`](Error::is_connection_loss) at once
    /// when there is no connection.
    pub fn try_campaign(&self) -> Result<Option<Leadership>> {
        self.try_within(&self.data)
    }

    /// Stands for leader for at most `timeout`; returns `None` when the time is over, even when
    /// ZooKeeper is silent. A zero timeout means [`try_campaign`](Self::try_campaign).
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    pub fn try_campaign_for(&self, timeout: Duration) -> Result<Option<Leadership>> {
        self.attempt(TryOrWait::during(timeout))
    }

    /// Stands for leader until `deadline`; returns `None` when it has passed. A deadline in the past
    /// means [`try_campaign`](Self::try_campaign).
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    pub fn try_campaign_until(&self, deadline: Instant) -> Result<Option<Leadership>> {
        self.attempt(TryOrWait::until(deadline))
    }

    /// Stands for leader with a deadline, a cancel token, an id of its own
    /// ([`data`](AcquireOptions::data)) or a report of positions for this one time. An error when the
    /// deadline passes.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let election = zklock::Election::new(&client, "/leaders/indexer")?;
    /// let stop = zklock::CancelToken::new();
    /// # stop.cancel();
    /// match election.campaign_with(zklock::AcquireOptions::new().cancel(&stop)) {
    ///     Ok(leadership) => println!("leading: {leadership:?}"),
    ///     Err(error) if error.is_cancelled() => println!("we are to stop"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign); also [`is_timeout`](Error::is_timeout),
    /// [`is_cancelled`](Error::is_cancelled), and [`is_invalid`](Error::is_invalid) for data that
    /// ZooKeeper would not take.
    pub fn campaign_with(&self, options: AcquireOptions) -> Result<Leadership> {
        let (try_or_wait, data) = options
            .begin()
            .map_err(|error| error.context(self.path()))?;
        let data = self.data.or(self.queue.path(), data)?;
        try_or_wait.insist(
            self.path(),
            || self.try_within(&data),
            |limits| self.campaign_within(limits, &data),
        )
    }

    fn attempt(&self, try_or_wait: TryOrWait) -> Result<Option<Leadership>> {
        let wait = |limits: &WaitLimits| self.campaign_within(limits, &self.data);
        try_or_wait.attempt(|| self.try_campaign(), wait)
    }

    fn campaign_within(&self, limits: &WaitLimits, data: &NodeData) -> Result<Leadership> {
        self.queue.acquire(limits, || data.now())?;
        Ok(Leadership::begin(&self.queue))
    }

    fn try_within(&self, data: &NodeData) -> Result<Option<Leadership>> {
        let leads = self.queue.try_acquire(|| data.now())?;
        Ok(leads.then(|| Leadership::begin(&self.queue)))
    }

    /// Who leads now, over all processes; `None` if nobody stands. One look at what the server knows
    /// that this client is connected to, which may be out of date when it arrives. Costs two
    /// requests and writes nothing.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let election = zklock::Election::builder(&client, "/leaders/indexer").id("host-8").build()?;
    /// assert!(election.leader()?.is_none());
    /// let _leadership = election.campaign()?;
    /// let leader = election.leader()?.expect("we lead");
    /// assert_eq!(leader.id(), "host-8");
    /// assert!(leader.is_ours());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`try_campaign`](Self::try_campaign).
    pub fn leader(&self) -> Result<Option<Leader>> {
        self.session().refuse_child()?;
        leader::leader(&self.head)
    }

    /// A channel that tells who leads now and whenever that changes, for those who only watch.
    ///
    /// It says [`WhoLeads::Unknown`] when contact with ZooKeeper is lost, and who leads once it is
    /// back. Of changes in quick succession some may be left out, never the last; when 1,024 are
    /// unread, the oldest are left out. It is news, and may come late: the one leader who must know
    /// goes by its [`Leadership`].
    ///
    /// It costs one thread, `zklock-leader`, until the [`LeaderChanges`] is dropped or the client is
    /// closed, one watch, and two requests for each change.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// use zklock::WhoLeads;
    ///
    /// let election = zklock::Election::new(&client, "/leaders/indexer")?;
    /// let leaders = election.leaders()?;
    /// # let _leadership = election.campaign()?;
    /// for who in leaders.iter() {
    ///     match who {
    ///         WhoLeads::Leader(leader) => {
    ///             println!("{} leads, in term {}", leader.id(), leader.term());
    /// #           break;
    ///         }
    ///         WhoLeads::Nobody => println!("nobody leads"),
    ///         _ => println!("no contact: do not rely on what was said"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    pub fn leaders(&self) -> Result<LeaderChanges> {
        LeaderChanges::begin(&self.client, Arc::clone(&self.head))
    }

    /// The leader and after it the candidates, in order, over all processes; a snapshot. Costs one
    /// request and one more for each of them.
    ///
    /// # Errors
    /// As [`try_campaign`](Self::try_campaign).
    pub fn participants(&self) -> Result<Vec<Participant>> {
        let own: Vec<_> = self.queue.own_node().into_iter().collect();
        Ok(Participant::all(self.queue.participants()?, &own, &[]))
    }

    /// Asks a participant to step down; see [`Mutex::revoke`](crate::Mutex::revoke). A leader hears
    /// of it by [`Leadership::revocation`] if its election was built
    /// [`revocable`](ElectionBuilder::revocable).
    ///
    /// # Errors
    /// As [`Mutex::revoke`](crate::Mutex::revoke).
    pub fn revoke(&self, participant: &Participant) -> Result<bool> {
        self.queue.revoke(participant.path())
    }

    /// Deposes a participant by force, and returns whether its node was still there. Until it hears
    /// of it, two may lead; see [`Mutex::break_lock`](crate::Mutex::break_lock).
    ///
    /// # Errors
    /// As [`Mutex::revoke`](crate::Mutex::revoke).
    pub fn break_lock(&self, participant: &Participant) -> Result<bool> {
        self.queue.break_lock(participant.path())
    }

    /// The folder in which candidates queue, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.queue.path().as_str()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.queue.session()
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, "Election", self.path(), self.session(), |shown| {
            shown
                .field("label", &self.queue.label())
                .field("here", &self.queue.debug_state());
        })
    }
}

/// Settings of an [`Election`]; made by [`Election::builder`].
#[derive(Debug)]
#[must_use]
pub struct ElectionBuilder<'a> {
    client: &'a Client,
    path: &'a str,
    dialect: Dialect,
    strategy: WaitStrategy,
    id: Option<Vec<u8>>,
    pause: Duration,
    policy: Policy,
}

impl ElectionBuilder<'_> {
    /// Whose node names to use. Defaults to those of Curator's `LeaderLatch`. All programs that share
    /// a folder must agree.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// How to wait for those ahead. Defaults to [`WaitStrategy::PredecessorWatch`].
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Under what id this process stands, for others to read by [`Leader::id`]; they need not differ.
    /// It is the node's data, as a `LeaderLatch`'s id and a kazoo `Election`'s identifier are.
    /// Defaults to who we are: host, process id, thread and time (see
    /// [`Identity`](crate::Identity)).
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into().into_bytes());
        self
    }

    /// How long [`serve`](Election::serve) pauses after each leadership, however that ended, and at
    /// first after a campaign that failed, before it stands again. Defaults to 1 s. With zero a
    /// leader that steps down at once leads as often as it can.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Whether others may ask the leader to step down; see [`Leadership::revocation`]. Defaults to
    /// no. Costs one read in the background for each term.
    pub fn revocable(mut self, revocable: bool) -> Self {
        self.policy.revocable = revocable;
        self
    }

    /// The name under which the client's [`Observer`](crate::Observer) hears of this election; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to none.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.policy.label = Some(label.into());
        self
    }

    /// Builds the election. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path or a setting is not possible;
    /// [`is_forked`](Error::is_forked).
    pub fn build(self) -> Result<Election> {
        let session = self.client.session();
        session.refuse_child()?;
        let folder = LockPath::parse(self.path).map_err(Error::invalid)?;
        let data = NodeData::checked(&folder, self.id)?;
        let grammar = Grammar::election(self.dialect);
        let head = QueueHead::new(session, folder.clone(), grammar.clone());
        let queue = GlobalQueue::new(
            session,
            folder,
            grammar,
            Class::Leader,
            self.strategy,
            false,
        );
        Ok(Election {
            queue: Owned::new(LocalQueue::new(queue, self.policy), self.client.keep()),
            head: Arc::new(head),
            data,
            pause: self.pause,
            client: self.client.clone(),
        })
    }
}
