//! A TCP proxy between client and server that knows ZooKeeper's frames and
//! does harm on request: delay, silence, resets, refusals, one lost reply.
//!
//! One thread moves all bytes and applies all orders, one after the other.
//! Each method returns when its order has been carried out, so that what a test
//! does next happens under the new regime. Bytes of one connection and
//! direction never overtake one another.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::ports::Port;

mod connection;
mod frames;
mod lane;
mod relay;
mod rules;

use relay::{Relay, Route, Speech};
pub use rules::{Action, Matcher};

/// How long a method waits for the relay thread to carry out its order; it
/// only ever blocks in poll(2), which an order ends.
const OBEYED: Duration = Duration::from_secs(10);

/// The numbers of the requests, as the protocol has them.
pub mod opcode {
    /// The handshake of a connection. It has no header; the proxy counts and
    /// matches it under this number.
    pub const CONNECT: i32 = 0;
    /// Also counted and matched where it says [`CREATE2`].
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    /// Only as a step of a multi.
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    /// A create whose answer brings the node's stat. Matched, and counted with the others.
    pub const CREATE2: i32 = 15;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const MULTI_READ: i32 = 22;
    pub const AUTH: i32 = 100;
    pub const CLOSE: i32 = -11;
    /// Where a multi has no further step.
    pub const NO_STEP: i32 = -1;
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
    Both,
}

/// What has passed through the proxy since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections open now.
    pub open: u64,
    /// Requests read from clients, by opcode, lost and held ones included.
    pub requests: BTreeMap<i32, u64>,
    /// Replies read from the server, by the opcode of their request, lost and
    /// held ones included.
    pub replies: BTreeMap<i32, u64>,
    /// Notifications of watches read from the server.
    pub notifications: u64,
    /// Those of the requests that only prove that the session lives.
    pub probes: u64,
    /// How often clients have written, other than probes alone: what is written at once is read at once.
    pub writes: u64,
    /// Frames that were swallowed by a rule.
    pub dropped: u64,
}

impl Counters {
    /// The number of requests with this opcode.
    pub fn requested(&self, opcode: i32) -> u64 {
        self.requests.get(&opcode).copied().unwrap_or_default()
    }

    /// The number of replies to requests with this opcode.
    pub fn replied(&self, opcode: i32) -> u64 {
        self.replies.get(&opcode).copied().unwrap_or_default()
    }
}

/// A running proxy. Dropping it resets its connections and frees its port.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    desk: Arc<Desk>,
    relay: Option<JoinHandle<()>>,
}

/// A fault in waiting, as `on_request` and `on_reply` set it.
#[derive(Debug)]
pub struct Trap {
    desk: Arc<Desk>,
    rule: RuleId,
}

/// A request or reply that is to be held back, as `hold_request` and
/// `hold_reply` ask for. Dropping this releases nothing.
#[derive(Debug)]
pub struct Hold(Trap);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RuleId(u64);

/// Where the tests' threads and the relay thread meet.
#[derive(Debug)]
struct Desk {
    orders: Mutex<Sender<Order>>,
    wake: UnixStream,
    seen: Arc<Seen>,
}

/// What the relay thread has seen, for others to read and wait for.
#[derive(Debug, Default)]
struct Seen {
    state: Mutex<SeenState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SeenState {
    counters: Counters,
    /// How often each rule has struck.
    struck: BTreeMap<RuleId, u64>,
}

type Order = Box<dyn FnOnce(&mut Relay) + Send>;

impl Proxy {
    /// Starts a proxy before `target`, which need not be listening yet.
    pub fn start(target: SocketAddr) -> Proxy {
        Proxy::start_speaking(target, Speech::ZooKeeper)
    }

    /// As [`Proxy::start`], for a protocol that it does not know: it passes
    /// bytes as they come, counts no requests, and no rule strikes.
    pub fn start_raw(target: SocketAddr) -> Proxy {
        Proxy::start_speaking(target, Speech::Unknown)
    }

    fn start_speaking(target: SocketAddr, speech: Speech) -> Proxy {
        let port = Port::claim();
        let (wake, woken) = UnixStream::pair().expect("a socket pair can be made");
        // A full pipe means that the relay thread will wake anyway.
        wake.set_nonblocking(true).expect("it is a socket");
        let (orders, inbox) = mpsc::channel();
        let seen = Arc::new(Seen::default());
        let route = Route {
            listens_at: port.addr(),
            target,
            speech,
        };
        let mut relay = Relay::new(route, woken, inbox, Arc::clone(&seen));
        relay.listen();
        let relay = thread::Builder::new()
            .name("test-proxy".to_owned())
            .spawn(move || relay.run())
            .expect("a thread can be started");
        Proxy {
            port,
            desk: Arc::new(Desk {
                orders: Mutex::new(orders),
                wake,
                seen,
            }),
            relay: Some(relay),
        }
    }

    /// `127.0.0.1:port`, without a chroot.
    pub fn connect_string(&self) -> String {
        self.addr().to_string()
    }

    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Ends every fault: accepts, heals, delays nothing, forgets all rules and
    /// releases whatever they held back.
    pub fn pass(&self) {
        self.desk.tell(|relay| {
            relay.listen();
            relay.delay(Direction::Both, Duration::ZERO);
            relay.forget_rules();
            relay.heal();
        });
    }

    /// Lets every frame arrive `delay` later, in each direction: latency, not
    /// a limit to the rate. Frames under way keep their time.
    pub fn delay(&self, delay: Duration) {
        self.delay_direction(Direction::Both, delay);
    }

    pub fn delay_direction(&self, direction: Direction, delay: Duration) {
        self.desk.tell(move |relay| relay.delay(direction, delay));
    }

    /// Lets so many bytes a second through to the server, and keeps few on the way, as a narrow
    /// network does. To be called before the connections that are meant; holds for good.
    pub fn limit_rate(&self, bytes_per_second: u32) {
        self.desk
            .tell(move |relay| relay.limit_rate(bytes_per_second));
    }

    /// Keeps and accepts connections, but moves not a byte: neither data nor
    /// the end of a connection gets through. What is under way is kept, and
    /// arrives after [`Proxy::heal`].
    pub fn black_hole(&self, direction: Direction) {
        self.desk.tell(move |relay| relay.silence(direction));
    }

    /// Ends the black hole of one direction, or of both; those of single
    /// connections stay.
    pub fn heal_direction(&self, direction: Direction) {
        self.desk.tell(move |relay| relay.speak(direction));
    }

    /// Replaces a text in what clients send from now on by another of the same
    /// length. Works on raw proxies only, and on texts that arrive in one piece.
    pub fn rewrite(&self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len(), "lengths are part of protocols");
        let (from, to) = (from.as_bytes().to_vec(), to.as_bytes().to_vec());
        self.desk.tell(move |relay| relay.rewrite(from, to));
    }

    /// Ends the black holes, those of single connections included.
    pub fn heal(&self) {
        self.desk.tell(Relay::heal);
    }

    /// Resets every open connection, towards both sides (a TCP RST, not an
    /// orderly end); what was under way is lost.
    pub fn reset_all(&self) {
        self.desk.tell(Relay::reset_all);
    }

    /// Stops listening: connection attempts are refused from now on. Open
    /// connections stay.
    pub fn refuse(&self) {
        self.desk.tell(Relay::refuse);
    }

    /// Listens again after [`Proxy::refuse`].
    pub fn accept(&self) {
        self.desk.tell(Relay::listen);
    }

    /// Lets later connections go to another server.
    pub fn retarget(&self, target: SocketAddr) {
        self.desk.tell(move |relay| relay.retarget(target));
    }

    /// Swallows a request before the server sees it, then acts. With [`Action::Refuse`] the server
    /// has not done what the client is refused.
    pub fn on_request(&self, matcher: impl Into<Matcher>, action: Action) -> Trap {
        let matcher = matcher.into();
        self.trap(move |relay| relay.on_request(matcher, action.into()))
    }

    /// Swallows the reply to a request (which the server has carried out by
    /// then), then acts. The requests are counted, not the replies. With [`Action::Refuse`] the
    /// server has done what the client is refused.
    pub fn on_reply(&self, matcher: impl Into<Matcher>, action: Action) -> Trap {
        let matcher = matcher.into();
        self.trap(move |relay| relay.on_reply(matcher, action.into()))
    }

    /// Holds back a request, and all that follows it on its connection, until
    /// it is released.
    pub fn hold_request(&self, matcher: impl Into<Matcher>) -> Hold {
        let matcher = matcher.into();
        Hold(self.trap(move |relay| relay.on_request(matcher, rules::Effect::Hold)))
    }

    /// Holds back a reply, and all that follows it on its connection, until
    /// it is released.
    pub fn hold_reply(&self, matcher: impl Into<Matcher>) -> Hold {
        let matcher = matcher.into();
        Hold(self.trap(move |relay| relay.on_reply(matcher, rules::Effect::Hold)))
    }

    pub fn counters(&self) -> Counters {
        self.desk.seen.lock().counters.clone()
    }

    /// Waits until the counters are as the condition wants them.
    ///
    /// # Panics
    /// If they are not within the given time.
    #[track_caller]
    pub fn wait_for(&self, mut condition: impl FnMut(&Counters) -> bool, within: Duration) {
        let state = self
            .desk
            .seen
            .wait_until(within, |state| condition(&state.counters));
        if let Err(state) = state {
            panic!("not within {within:?}; the proxy saw {:?}", state.counters);
        }
    }

    fn trap(&self, order: impl FnOnce(&mut Relay) -> RuleId + Send + 'static) -> Trap {
        Trap {
            rule: self.desk.tell(order),
            desk: Arc::clone(&self.desk),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.desk.send(Box::new(Relay::quit));
        // It has panicked where this fails, and has said so itself.
        let _ = self.relay.take().map(JoinHandle::join);
    }
}

impl Trap {
    /// Waits until the fault has struck.
    ///
    /// # Panics
    /// If it does not within the given time.
    #[track_caller]
    pub fn wait_until_sprung(&self, within: Duration) {
        let state = self.desk.seen.wait_until(within, |state| {
            state.struck.get(&self.rule).is_some_and(|count| *count > 0)
        });
        if let Err(state) = state {
            panic!(
                "no matching frame came within {within:?}; the proxy saw {:?}",
                state.counters
            );
        }
    }

    /// How often the fault has struck.
    pub fn times_sprung(&self) -> u64 {
        let state = self.desk.seen.lock();
        state.struck.get(&self.rule).copied().unwrap_or_default()
    }

    /// Takes the fault away. What it did stays done; what it holds goes on.
    pub fn disarm(&self) {
        let rule = self.rule;
        self.desk.tell(move |relay| relay.forget_rule(rule));
    }
}

impl Hold {
    /// Waits until the frame has come and is held back.
    ///
    /// # Panics
    /// If it does not come within the given time.
    #[track_caller]
    pub fn wait_until_held(&self, within: Duration) {
        self.0.wait_until_sprung(within);
    }

    pub fn is_held(&self) -> bool {
        self.0.times_sprung() > 0
    }

    /// Lets the frame, and all behind it, go on. A frame that has not come yet
    /// will not be held.
    pub fn release(&self) {
        self.0.disarm();
    }
}

impl Desk {
    /// Has the relay thread carry out an order and returns its result.
    fn tell<R: Send + 'static>(&self, order: impl FnOnce(&mut Relay) -> R + Send + 'static) -> R {
        let (result, done): (SyncSender<R>, _) = mpsc::sync_channel(1);
        self.send(Box::new(move |relay| {
            // Nobody waits for it any more where the test has panicked.
            let _ = result.send(order(relay));
        }));
        done.recv_timeout(OBEYED)
            .expect("the proxy's thread runs and carries out orders")
    }

    fn send(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a receiver the thread is gone; whoever waits will say so.
        let _ = orders.send(order);
        let _ = (&self.wake).write(&[1]);
    }
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, SeenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut SeenState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// A rule has struck, and the frame goes on in another form.
    fn strikes(&self, rule: RuleId) {
        self.update(|state| *state.struck.entry(rule).or_default() += 1);
    }

    /// Waits for a condition; returns the state that fails it when time is up.
    fn wait_until(
        &self,
        within: Duration,
        mut condition: impl FnMut(&SeenState) -> bool,
    ) -> Result<(), MutexGuard<'_, SeenState>> {
        let deadline = Instant::now() + within;
        let mut state = self.lock();
        loop {
            if condition(&state) {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(state);
            }
            (state, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
