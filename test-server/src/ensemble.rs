//! [`Ensemble`]: several servers with a leader.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::builder::ServerBuilder;
use crate::cluster::{Cluster, Terms};
use crate::core::quorum::Limits;
use crate::driver::{Driver, Port};
use crate::server::{Inbox, Server};

/// How long a verb waits for what the servers have to settle among themselves.
const SETTLED: Duration = Duration::from_secs(60);

/// Several servers in memory, in this process, of which one leads.
///
/// It is for tests of what happens to locks when servers and the network between them fail: when a
/// leader dies, when a server that a client is connected to is cut off from the others, when one of
/// them has not heard yet what the others have done. Clients connect to [any of
/// them](Self::connect_string), each on a port of its own. Each [server](Self::server) has all the verbs of
/// one that stands alone; those of the ensemble are here.
///
/// Servers are counted from 0. All of them run on one thread, which ends when this is dropped.
///
/// # What it is a model of
/// Of what clients can see of a ZooKeeper ensemble, and not of its atomic broadcast:
///
/// - Writes and new sessions go to the leader, and are done when most servers have them. A server
///   answers reads by itself, and lags behind the leader by what [`lag`](Self::lag) says.
/// - The leader alone ends sessions. It hears of the sessions of the others' clients by what those tell
///   it in answer to its PINGs, one every half tick. A new leader gives every session its whole time.
/// - A follower that hears nothing from its leader for `sync_limit` ticks hangs up on its clients,
///   and refuses them until there is a leader again. Until it notices it answers pings and reads;
///   writes, `sync`s and new connections hang, and so does all that a client asks after them.
/// - A leader without most of the others leads until it notices. Until then it answers reads and
///   `sync`s and resumes sessions, though another may lead already; nothing that it is asked to
///   write is done.
/// - A request that reaches a server other than the one that its session has moved to ends its connection.
///
/// Who leads is not voted for by messages: as soon as most servers without a leader hear each other,
/// they have one, after [`election_time`](EnsembleBuilder::election_time). A server that joins gets
/// the leader's whole state at once. Observers, read-only servers and reconfiguration are not there.
///
/// # Examples
/// A lock outlives its leader:
/// ```
/// # use std::time::Duration;
/// let ensemble = zklock_test::Ensemble::start(3)?;
/// let client = zklock::Client::connect(&ensemble.connect_string())?;
/// let guard = zklock::Mutex::new(&client, "/locks/nightly")?.lock()?;
///
/// let old = ensemble.leader();
/// ensemble.kill(old);
/// assert_ne!(ensemble.leader(), old); // The others have elected another.
///
/// // Waits until the client is back, as every call does.
/// let other = zklock::Mutex::new(&client, "/locks/other")?.lock()?;
/// assert!(ensemble.wait_until(Duration::from_secs(10), |_| guard.is_held()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

/// How an ensemble is set up. Begin with [`Ensemble::builder`].
#[derive(Clone, Debug)]
#[must_use = "starts nothing by itself"]
pub struct EnsembleBuilder {
    size: usize,
    servers: ServerBuilder,
    init_limit: u32,
    sync_limit: u32,
    election: Option<Duration>,
}

impl EnsembleBuilder {
    /// How each of the servers is set up: all are alike. Of several, a
    /// [`port`](ServerBuilder::port) is that of the first, and the next ones follow. Defaults to what
    /// [`Server::builder`] begins with.
    pub fn servers(mut self, builder: ServerBuilder) -> Self {
        self.servers = builder;
        self
    }

    /// For how many ticks a leader and a follower bear each other's silence. Defaults to 5, as
    /// ZooKeeper's examples of a configuration have it: with ticks of 100 ms that is half a second.
    pub fn sync_limit(mut self, ticks: u32) -> Self {
        self.sync_limit = ticks.max(1);
        self
    }

    /// For how many ticks a server that joins waits for the leader's state, and a new leader for
    /// most of the others. Defaults to 10.
    pub fn init_limit(mut self, ticks: u32) -> Self {
        self.init_limit = ticks.max(1);
        self
    }

    /// How long servers without a leader need to agree upon one. Defaults to half a tick. ZooKeeper takes
    /// 200 ms and more.
    pub fn election_time(mut self, time: Duration) -> Self {
        self.election = Some(time);
        self
    }

    /// Starts the servers. When this returns one leads, and all serve.
    ///
    /// # Errors
    /// If a port is taken, or the system gives no thread.
    pub fn start(self) -> io::Result<Ensemble> {
        let tick = self.servers.tick_time();
        let secret = RandomState::new().hash_one(self.size);
        let settings = (1..=self.size).map(|number| {
            let id = u8::try_from(number).expect("sizes are limited");
            self.servers.settings(id, secret)
        });
        let terms = Terms {
            limits: Limits {
                size: self.size,
                tick,
                init: self.init_limit,
                sync: self.sync_limit,
            },
            election: self.election.unwrap_or(tick / 2),
        };
        let cluster = Cluster::of(settings.collect(), terms, Duration::ZERO);
        let first = self.servers.first_port();
        let ports: io::Result<Vec<_>> = (0..self.size)
            .map(|index| {
                let offset = u16::try_from(index).expect("sizes are limited");
                let number = match first {
                    0 => 0,
                    first => first
                        .checked_add(offset)
                        .ok_or(io::ErrorKind::AddrNotAvailable)?,
                };
                Port::claim(number)
            })
            .collect();
        let ports = ports?;
        let addresses: Vec<_> = ports.iter().map(Port::address).collect();
        let (inbox, thread) = Inbox::open(cluster, ports)?;
        log::info!("an ensemble for tests serves at {addresses:?}, and keeps nothing on disk");
        let servers = addresses.into_iter().enumerate();
        Ok(Ensemble {
            servers: servers
                .map(|(member, address)| Server::of_ensemble(address, Arc::clone(&inbox), member))
                .collect(),
            inbox,
            thread: Some(thread),
        })
    }
}

impl Ensemble {
    /// Starts so many servers on free ports, with the settings that [`EnsembleBuilder`] begins with.
    ///
    /// # Errors
    /// If the system gives no port or no thread.
    ///
    /// # Panics
    /// As [`Ensemble::builder`] does.
    pub fn start(size: usize) -> io::Result<Self> {
        Self::builder(size).start()
    }

    /// An ensemble of so many servers that is still to be set up.
    ///
    /// # Panics
    /// If there are none, or more than 99.
    #[track_caller]
    pub fn builder(size: usize) -> EnsembleBuilder {
        assert!((1..100).contains(&size), "an ensemble of {size} servers");
        EnsembleBuilder {
            size,
            servers: Server::builder(),
            init_limit: 10,
            sync_limit: 5,
            election: None,
        }
    }

    /// How many servers there are, those that do not run included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.servers.len()
    }

    /// One of the servers, with the verbs of a server: a connection is cut and a reply lost at the server that
    /// a client is connected to, and each shows the nodes as it knows them.
    /// [`expire`](Server::expire) has the leader do it: while nobody leads, or the leader is frozen, it
    /// does nothing and says `false`. [`advance_clock`](Server::advance_clock) moves the clock of all.
    ///
    /// # Panics
    /// If there is no such server, as all verbs that take one.
    #[must_use]
    #[track_caller]
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// All servers, `127.0.0.1:port` each, separated by commas.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses = self.servers.iter().map(Server::connect_string);
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The server that leads, and that most have for their leader. Waits for an election that is
    /// under way. (A leader that is paused or cut off leads until the others have elected another.)
    ///
    /// # Panics
    /// If nobody leads within a minute: too few of them run, or hear each other, or what they send takes
    /// too [long](Self::lag).
    #[must_use]
    #[track_caller]
    pub fn leader(&self) -> usize {
        let found = self.wait_for(Self::current_leader);
        found.expect("a leader: most servers run, and hear each other")
    }

    /// As [`leader`](Self::leader), if there is one now.
    #[must_use]
    pub fn current_leader(&self) -> Option<usize> {
        self.inbox.tell(|driver| driver.cluster.leader())
    }

    /// A server that runs, follows the [`leader`](Self::leader), and serves. Waits for one. (One that was
    /// cut off is still a follower until it notices.)
    ///
    /// # Panics
    /// If there is none within a minute.
    #[must_use]
    #[track_caller]
    pub fn follower(&self) -> usize {
        let found = self.wait_for(|ensemble| {
            let find = |driver: &mut Driver| driver.cluster.follower();
            ensemble.inbox.tell(find)
        });
        found.expect("a follower: most servers run, and hear each other")
    }

    /// Whether a server has a leader or is it, as far as it knows: it takes clients.
    #[must_use]
    #[track_caller]
    pub fn serves(&self, index: usize) -> bool {
        let index = self.known(index);
        self.inbox.tell(move |driver| driver.cluster.serves(index))
    }

    /// Kills a server, as [`Server::stop`] does. What it had accepted is on its disk.
    #[track_caller]
    pub fn kill(&self, index: usize) {
        self.server(index).stop();
    }

    /// Starts a server that was killed; when this returns it has joined the others, if they have a
    /// leader that it can reach.
    ///
    /// # Errors
    /// As [`Server::restart`].
    #[track_caller]
    pub fn restart(&self, index: usize) -> io::Result<()> {
        self.server(index).restart()?;
        if self.current_leader().is_some() {
            // It may be cut off from them: then it does not serve, and that is how it is.
            let joins = |ensemble: &Self| ensemble.serves(index).then_some(());
            self.wait_for_at_most(Duration::from_secs(5), joins);
        }
        Ok(())
    }

    /// Freezes a server, as [`Server::pause`] does.
    #[track_caller]
    pub fn pause(&self, index: usize) {
        self.server(index).pause();
    }

    /// Lets a frozen server go on, as [`Server::resume`] does. A leader goes on leading until it has
    /// noticed that another does, for a tick.
    #[track_caller]
    pub fn resume(&self, index: usize) {
        self.server(index).resume();
    }

    /// Swallows what one server sends to another. Neither is told; what was under way arrives when it
    /// passes again, if the two still listen to each other then. Clients reach both as before.
    #[track_caller]
    pub fn cut(&self, from: usize, to: usize) {
        self.change_wires(&[(self.known(from), self.known(to))], true);
    }

    /// Lets what one server sends to another pass again.
    #[track_caller]
    pub fn join(&self, from: usize, to: usize) {
        self.change_wires(&[(self.known(from), self.known(to))], false);
    }

    /// Cuts each server of one side off from each of the other, both ways.
    ///
    /// # Examples
    /// The leader is cut off with one of its clients; the others elect another.
    /// ```
    /// let ensemble = zklock_test::Ensemble::start(3)?;
    /// let old = ensemble.leader();
    /// let others: Vec<_> = (0..3).filter(|index| *index != old).collect();
    /// ensemble.partition(&[old], &others);
    /// assert!(ensemble.wait_until(std::time::Duration::from_secs(10), |ensemble| {
    ///     ensemble.current_leader().is_some_and(|leader| leader != old)
    /// }));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn partition(&self, one: &[usize], other: &[usize]) {
        let pairs = one.iter().flat_map(|one| {
            let others = other.iter();
            others.flat_map(|other| [(*one, *other), (*other, *one)])
        });
        self.change_wires(&pairs.collect::<Vec<_>>(), true);
    }

    /// Cuts a server off from all others, both ways.
    #[track_caller]
    pub fn isolate(&self, index: usize) {
        self.partition(&[index], &self.others(index));
    }

    /// No other server hears this one.
    #[track_caller]
    pub fn mute(&self, index: usize) {
        let others = self.others(index).into_iter();
        self.change_wires(
            &others.map(|other| (index, other)).collect::<Vec<_>>(),
            true,
        );
    }

    /// This server hears none of the others.
    #[track_caller]
    pub fn deafen(&self, index: usize) {
        let others = self.others(index).into_iter();
        self.change_wires(
            &others.map(|other| (other, index)).collect::<Vec<_>>(),
            true,
        );
    }

    /// Lets everything that passes between this server and the others arrive so much later from now on: it
    /// knows later than they what was done, and its clients' writes take longer.
    ///
    /// # Examples
    /// A read at a server that lags misses what was written elsewhere; after a `sync` it does not.
    /// ```
    /// # use std::time::Duration;
    /// let ensemble = zklock_test::Ensemble::start(3)?;
    /// let (leader, slow) = (ensemble.leader(), ensemble.follower());
    /// ensemble.lag(slow, Duration::from_millis(100));
    /// let client = zklock::Client::connect(&ensemble.server(leader).connect_string())?;
    /// let _guard = zklock::Mutex::new(&client, "/locks/nightly")?.lock()?;
    /// assert!(ensemble.server(leader).node("/locks/nightly").is_some());
    /// assert!(ensemble.server(slow).node("/locks/nightly").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn lag(&self, index: usize, by: Duration) {
        let index = self.known(index);
        self.inbox.tell(move |driver| {
            let now = driver.now();
            driver.order(|cluster| cluster.lag(index, by, now));
        });
    }

    /// Makes a server the leader, whoever leads now: those that vote for it give their leader up, with
    /// their clients' connections, and follow it. A server votes for it if both run and hear each other,
    /// and it knows no less. Any other keeps the leader that it believes in until it notices: a leader
    /// that hears nobody leads on for a while.
    ///
    /// Says whether it leads when this returns: not if it does not run, or if its voters are not most of
    /// all; then nobody has given up a leader.
    ///
    /// Where servers [lag](Self::lag), this waits until most of them have said that they have its state, for a
    /// minute at most, and says `false` when that was too short. With a lag beyond what
    /// [`init_limit`](EnsembleBuilder::init_limit) allows, they give each other up and begin again, nobody
    /// leads for as long as the lag lasts, and [`leader`](Self::leader) panics after its minute.
    ///
    /// # Examples
    /// ```
    /// let ensemble = zklock_test::Ensemble::start(3)?;
    /// let next = ensemble.follower();
    /// assert!(ensemble.elect(next));
    /// assert_eq!(ensemble.leader(), next);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    #[allow(clippy::must_use_candidate, reason = "the effect is what counts")]
    pub fn elect(&self, index: usize) -> bool {
        let index = self.known(index);
        let is_elected = self.inbox.tell(move |driver| {
            let now = driver.now();
            driver.order(|cluster| cluster.make_leader(index, now))
        });
        // Where servers lag, it has to be told that most have its state.
        is_elected && self.wait_for(Self::current_leader) == Some(index)
    }

    /// Ends everything that was done between servers, and to their clients' connections, requests and
    /// replies. Servers that were killed or paused stay so.
    pub fn heal(&self) {
        self.inbox.tell(|driver| {
            let now = driver.now();
            driver.order(|cluster| cluster.mend(now));
        });
        self.servers.iter().for_each(Server::heal);
    }

    /// Waits until the ensemble is as `condition` wants it, and says whether it is: it looks each time
    /// that something has happened at a server, and at the end.
    #[must_use]
    pub fn wait_until(&self, within: Duration, mut condition: impl FnMut(&Self) -> bool) -> bool {
        self.inbox.wait_until(within, || condition(self))
    }

    fn wait_for<T>(&self, found: impl Fn(&Self) -> Option<T>) -> Option<T> {
        self.wait_for_at_most(SETTLED, found)
    }

    fn wait_for_at_most<T>(
        &self,
        within: Duration,
        found: impl Fn(&Self) -> Option<T>,
    ) -> Option<T> {
        let mut result = None;
        // What it finds is what counts.
        let _ = self.wait_until(within, |ensemble| {
            result = found(ensemble);
            result.is_some()
        });
        result
    }

    fn change_wires(&self, ways: &[(usize, usize)], is_cut: bool) {
        let ways: Vec<_> = ways
            .iter()
            .map(|(from, to)| (self.known(*from), self.known(*to)))
            .collect();
        self.inbox.tell(move |driver: &mut Driver| {
            let now = driver.now();
            driver.order(|cluster| {
                for (from, to) in ways {
                    cluster.cut(from, to, is_cut, now);
                }
            });
        });
    }

    fn others(&self, index: usize) -> Vec<usize> {
        (0..self.size()).filter(|other| *other != index).collect()
    }

    #[track_caller]
    fn known(&self, index: usize) -> usize {
        assert!(index < self.size(), "there is no server {index}");
        index
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.inbox.close(thread);
        }
    }
}
