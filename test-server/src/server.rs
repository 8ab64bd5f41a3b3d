//! [`Server`]: the server that tests start.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zklock_protocol::ErrorCode;

use crate::builder::ServerBuilder;
use crate::cluster::Cluster;
use crate::connections::Connections;
use crate::core::Settings;
use crate::driver::{Bell, Driver, Order, Port, Seat};
use crate::op::{Asked, Matcher, Op};
use crate::trap::{Hold, Trap};
use crate::trouble::{Effect, Loss, Phase, Whom};
use crate::view::{self, Node, Session, Watch};

/// A ZooKeeper server in memory, in this process, on a port of the loopback interface.
///
/// It serves from [`Server::start`] on until it is dropped: then its port is free, its connections
/// are reset, and its one thread has ended. It keeps nothing on disk.
///
/// Every verb has taken effect when it returns. Between two verbs the server goes on as a real one
/// does: what clients do meanwhile is theirs.
///
/// # Examples
/// ```
/// let server = zklock_test::Server::start()?;
/// let client = zklock::Client::connect(&server.connect_string())?;
/// let _guard = zklock::Mutex::new(&client, "/locks/nightly")?.lock()?;
/// assert_eq!(server.node("/locks/nightly").expect("made by the lock").children.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// Where other threads meet the server's own.
#[derive(Debug)]
pub(crate) struct Desk {
    inbox: Arc<Inbox>,
    /// Which of the servers on that thread is meant.
    member: usize,
}

/// What other threads have the servers' thread do.
#[derive(Debug)]
pub(crate) struct Inbox {
    orders: Mutex<Sender<Order>>,
    wake: UnixStream,
    bell: Arc<Bell>,
}

impl Server {
    /// Starts a server on a free port, with the settings that [`ServerBuilder`] begins with.
    ///
    /// # Errors
    /// If the system gives no port or no thread.
    ///
    /// # Examples
    /// ```
    /// let server = zklock_test::Server::start()?;
    /// assert!(server.connect_string().starts_with("127.0.0.1:"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// A server that is still to be set up.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }

    pub(crate) fn launch(settings: Settings, port: u16) -> io::Result<Self> {
        let port = Port::claim(port)?;
        let address = port.address();
        let (inbox, thread) = Inbox::open(Cluster::alone(settings), vec![port])?;
        log::info!(
            "a ZooKeeper for tests serves at {address}, on loopback alone, and keeps nothing on disk"
        );
        let mut server = Self::of_ensemble(address, inbox, 0);
        server.thread = Some(thread);
        Ok(server)
    }

    /// One whose thread is somebody else's.
    pub(crate) fn of_ensemble(address: SocketAddr, inbox: Arc<Inbox>, member: usize) -> Self {
        Self {
            address,
            desk: Arc::new(Desk { inbox, member }),
            thread: None,
        }
    }

    /// `127.0.0.1:port`, for clients to connect to.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends a session as if its time were over: its ephemeral nodes are gone when this returns, and
    /// its connection is closed. The client hears of it when it connects again, as from a real
    /// server. Says whether there was such a session: there is none for a client that has none.
    ///
    /// Here somebody ends a session before its time, so for a moment two can hold a lock: one that
    /// has got it, and one that has not heard yet. No lock on ZooKeeper can promise more about
    /// sessions that are ended by hand. Where you test that two never hold, let time do it: cut the
    /// holder off with [`Connections::hold`].
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let server = zklock_test::Server::start()?;
    /// let client = zklock::Client::connect(&server.connect_string())?;
    /// let guard = zklock::Mutex::new(&client, "/locks/nightly")?.lock()?;
    /// assert!(server.expire(client.session_id()));
    /// assert!(guard.lost().recv_timeout(Duration::from_secs(10)).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::must_use_candidate, reason = "the effect is what counts")]
    pub fn expire(&self, session_id: impl Into<Option<i64>>) -> bool {
        let Some(session_id) = session_id.into() else {
            return false;
        };
        self.desk.tell(move |driver| driver.expire(session_id))
    }

    /// All connections, those to come included.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let server = zklock_test::Server::start()?;
    /// server.connections().slow(Duration::from_millis(20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connections(&self) -> Connections<'_> {
        Connections::new(&self.desk, Whom::All)
    }

    /// The connection that speaks for a session now. One that it makes later suffers nothing.
    pub fn connection_of(&self, session_id: impl Into<Option<i64>>) -> Connections<'_> {
        // No session has this number, so it means nobody.
        let session_id = session_id.into().unwrap_or_default();
        Connections::new(&self.desk, Whom::Session(session_id))
    }

    /// Ends everything that was done to connections, requests and replies: all pass again, in their
    /// order, and what was held goes on.
    pub fn heal(&self) {
        self.desk.tell(|driver| {
            let now = driver.now();
            driver.order(|machine| machine.heal(now));
        });
    }

    /// Loses a request before the server has seen it.
    ///
    /// # Examples
    /// A client whose create never arrives, and whose connection breaks over it:
    /// ```
    /// use zklock_test::{Loss, Op, Server};
    ///
    /// let server = Server::start()?;
    /// let client = zklock::Client::connect(&server.connect_string())?;
    /// let trap = server.lose_request(Op::Create, Loss::Cut);
    /// let _guard = zklock::Mutex::new(&client, "/locks/nightly")?.lock()?;
    /// assert_eq!(trap.times_sprung(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::must_use_candidate, reason = "a trap need not be watched")]
    pub fn lose_request(&self, matcher: impl Into<Matcher>, loss: Loss) -> Trap {
        self.trap(Phase::Request, matcher.into(), Effect::Lose(loss))
    }

    /// Loses the reply to a request, which the server has carried out by then.
    ///
    /// # Examples
    /// ```
    /// use zklock_test::{Loss, Op, Server};
    ///
    /// let server = Server::start()?;
    /// let client = zklock::Client::connect(&server.connect_string())?;
    /// server.lose_reply(Op::Create.nth(1).with_path_containing("lock-"), Loss::Cut);
    /// let guard = zklock::Mutex::new(&client, "/locks/nightly")?.lock()?;
    /// // The node whose create was not answered is the lock's: there is no second one.
    /// assert_eq!(server.node("/locks/nightly").expect("it is there").children.len(), 1);
    /// # drop(guard);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::must_use_candidate, reason = "a trap need not be watched")]
    pub fn lose_reply(&self, matcher: impl Into<Matcher>, loss: Loss) -> Trap {
        self.trap(Phase::Reply, matcher.into(), Effect::Lose(loss))
    }

    /// Holds back a request, and all that follows it on its connection, until it is released.
    #[allow(clippy::must_use_candidate, reason = "heal releases it as well")]
    pub fn hold_request(&self, matcher: impl Into<Matcher>) -> Hold {
        Hold(self.trap(Phase::Request, matcher.into(), Effect::Hold))
    }

    /// Holds back the reply to a request (which is carried out), and all that follows it on its
    /// connection, until it is released.
    #[allow(clippy::must_use_candidate, reason = "heal releases it as well")]
    pub fn hold_reply(&self, matcher: impl Into<Matcher>) -> Hold {
        Hold(self.trap(Phase::Reply, matcher.into(), Effect::Hold))
    }

    /// Answers a request with an error, and does not do it.
    ///
    /// # Examples
    /// ```
    /// use zklock_test::{ErrorCode, Op, Server};
    ///
    /// let server = Server::start()?;
    /// let client = zklock::Client::connect(&server.connect_string())?;
    /// server.answer(Op::Create, ErrorCode::NO_AUTH);
    /// let refused = zklock::Mutex::new(&client, "/locks/nightly")?.lock();
    /// assert!(refused.is_err_and(|error| error.is_no_auth()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the code says that all is well: a success takes an answer that fits the request. Also for
    /// [`Op::Connect`]: the answer to a handshake has no place for an error.
    #[allow(clippy::must_use_candidate, reason = "a trap need not be watched")]
    pub fn answer(&self, matcher: impl Into<Matcher>, error: ErrorCode) -> Trap {
        assert_ne!(error, ErrorCode::OK, "not an error");
        let matcher = matcher.into();
        assert_ne!(matcher.op(), Op::Connect, "a handshake takes no error");
        self.trap(Phase::Request, matcher, Effect::Answer(error))
    }

    /// Stops everything, as if the process had been frozen: connections stay, and the system still
    /// accepts new ones, but nothing is heard, said or done. Verbs work, but what
    /// follows from them comes when it goes on: a session that [`Server::expire`] ends is gone at
    /// once, and the client hears of it then.
    pub fn pause(&self) {
        self.desk.tell(|driver| {
            driver.pause();
        });
    }

    /// Goes on after [`Server::pause`]. Sessions whose time is over have expired before anything
    /// that was sent meanwhile is heard.
    pub fn resume(&self) {
        self.desk.tell(|driver| {
            driver.resume();
        });
    }

    /// Ends the server, as if its process had been killed: connections are reset, and who connects
    /// is refused. What was committed stays, for [`Server::restart`]; so does the port.
    ///
    /// # Examples
    /// ```
    /// let server = zklock_test::Server::start()?;
    /// let client = zklock::Client::connect(&server.connect_string())?;
    /// let guard = zklock::Mutex::new(&client, "/locks/nightly")?.lock()?;
    /// server.stop();
    /// server.restart()?;
    /// // The session lives, and with it the node that holds the lock.
    /// assert_eq!(server.node("/locks/nightly").expect("the folder").children.len(), 1);
    /// # drop(guard);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop(&self) {
        self.desk.tell(|driver| {
            driver.stop();
        });
    }

    /// Starts again after [`Server::stop`], on the same port, with what was committed. Every session
    /// has its whole time again, as ZooKeeper gives it. A server that was not stopped is stopped
    /// first.
    ///
    /// # Errors
    /// If the system does not give the port back. It is kept for the server, so nobody else takes it.
    pub fn restart(&self) -> io::Result<()> {
        #[allow(
            clippy::redundant_closure_for_method_calls,
            reason = "the method is of a seat of one lifetime, not of any"
        )]
        self.desk.tell(|driver| driver.restart())
    }

    /// Moves the server's clock. Sessions whose time is over then have expired when this returns,
    /// and containers that were used up are gone, though no client has seen time pass: so for them
    /// it is as [`Server::expire`]. On a paused server it happens when that goes on, and on a stopped
    /// one time ends nothing.
    pub fn advance_clock(&self, by: Duration) {
        self.desk.tell(move |driver| driver.move_clock(by));
    }

    /// A node; none if it is not there.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<Node> {
        let path = path.to_owned();
        self.desk
            .tell(move |driver| view::node(driver.machine(), &path))
    }

    /// The paths of all nodes but those that every server has, sorted.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        self.desk.tell(|driver| view::nodes(driver.machine()))
    }

    /// All sessions, the oldest first.
    #[must_use]
    pub fn sessions(&self) -> Vec<Session> {
        self.desk
            .tell(|driver| view::sessions(driver.machine(), driver.now()))
    }

    /// All watches, by path.
    #[must_use]
    pub fn watches(&self) -> Vec<Watch> {
        self.desk.tell(|driver| view::watches(driver.machine()))
    }

    /// What was asked so far, lost and held requests included: the last 100,000 of them, or fewer
    /// where they would take more than 64 MiB.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.desk
            .tell(|driver| driver.machine().seen.asked.iter().cloned().collect())
    }

    /// How many requests of a kind were sent so far, parts of a multi included.
    #[must_use]
    pub fn count(&self, op: Op) -> usize {
        self.desk.tell(move |driver| {
            let counts = &driver.machine().seen.counts;
            counts.get(&op).copied().unwrap_or_default()
        })
    }

    /// Waits until the server is as `condition` wants it, and says whether it is: it looks each time
    /// that something has happened there, and at the end.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let server = zklock_test::Server::start()?;
    /// # let servers = server.connect_string();
    /// let waiter = std::thread::spawn(move || {
    ///     let client = zklock::Client::connect(&servers).expect("it serves");
    ///     let _guard = zklock::Mutex::new(&client, "/m").expect("a path").lock();
    /// });
    /// assert!(server.wait_until(Duration::from_secs(10), |server| server.node("/m").is_some()));
    /// # waiter.join().expect("no panic");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wait_until(&self, within: Duration, condition: impl FnMut(&Self) -> bool) -> bool {
        let mut condition = condition;
        self.desk.wait_until(within, || condition(self))
    }

    fn trap(&self, phase: Phase, matcher: Matcher, effect: Effect) -> Trap {
        let rule = self
            .desk
            .tell(move |driver| driver.machine_mut().add_rule(phase, matcher, effect));
        Trap::new(Arc::clone(&self.desk), rule)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.desk.inbox.close(thread);
        }
    }
}

impl Desk {
    /// Has the servers' thread carry out an order about this one, and returns its result.
    pub(crate) fn tell<R: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Seat<'_>) -> R + Send + 'static,
    ) -> R {
        let member = self.member;
        self.inbox
            .tell(move |driver| order(&mut driver.seat(member)))
    }

    pub(crate) fn wait_until(&self, within: Duration, condition: impl FnMut() -> bool) -> bool {
        self.inbox.wait_until(within, condition)
    }
}

impl Inbox {
    /// Starts the thread that serves at these ports, one for each member.
    pub(crate) fn open(
        cluster: Cluster,
        ports: Vec<Port>,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let (wake, woken) = UnixStream::pair()?;
        // A full pipe means that the thread will wake anyway.
        wake.set_nonblocking(true)?;
        let (orders, inbox) = mpsc::channel();
        let bell = Arc::new(Bell::default());
        let driver = Driver::new(cluster, ports, inbox, woken, Arc::clone(&bell))?;
        let thread = thread::Builder::new()
            .name("zklock-test-server".to_owned())
            .spawn(move || driver.run())?;
        let inbox = Self {
            orders: Mutex::new(orders),
            wake,
            bell,
        };
        Ok((Arc::new(inbox), thread))
    }

    /// Ends the thread.
    pub(crate) fn close(&self, thread: JoinHandle<()>) {
        self.send(Box::new(Driver::quit));
        // It has panicked where this fails, and has said so itself.
        let _ = thread.join();
    }

    /// Has the servers' thread carry out an order, and returns its result.
    pub(crate) fn tell<R: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Driver) -> R + Send + 'static,
    ) -> R {
        let (result, done): (SyncSender<R>, _) = mpsc::sync_channel(1);
        self.send(Box::new(move |driver| {
            // Whoever asked waits for it.
            let _ = result.send(order(driver));
        }));
        done.recv()
            .expect("the server's thread runs until the server is dropped")
    }

    pub(crate) fn wait_until(&self, within: Duration, mut condition: impl FnMut() -> bool) -> bool {
        // A time that no clock can tell never comes.
        let deadline = Instant::now().checked_add(within);
        loop {
            let heard = self.bell.count();
            if condition() {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            self.bell.wait(heard, deadline);
        }
    }

    fn send(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a receiver the thread is gone; whoever waits will say so.
        let _ = orders.send(order);
        let _ = (&self.wake).write(&[1]);
    }
}
