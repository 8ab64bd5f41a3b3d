//! Where the two directions meet: what is in flight, and what is still to be sent.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use zklock_protocol::WatchKind;

use zklock_protocol::EventKind;

use super::ahead::Ahead;
use super::alarm::Alarm;
use super::clock::Moment;
use super::core::answer::NotSent;
use super::core::chain::{Opening, ProbeIntervals};
use super::core::completed::Completed;
use super::core::frame::{self, RequestHeader};
use super::core::group::Group;
use super::core::probing::Probing;
use super::core::waiting::Waiting;
use super::epoch::Epoch;
use super::guest::{Guest, Interest, TakenOff};
use super::in_flight::{Ended, Held, HeldBack, InFlight};
use super::stream::Stream;
use super::{LinkConfig, LinkEvent, LinkObserver};

/// Has a line logged where a logger that is stuck holds up nobody.
macro_rules! say {
    ($wire:expr, $level:ident, $($line:tt)+) => {
        if log::Level::$level <= log::max_level() {
            $wire.log(log::Level::$level, module_path!(), format!($($line)+));
        }
    };
}
pub(super) use say;

/// What is kept for a server that takes it slowly; twice of it while some is being sent.
pub(super) const MOST_OUTGOING_BYTES: usize = 8 << 20;

/// For the good-bye of a link that ends by itself.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A connection to a server, after its handshake.
pub(super) struct Server {
    pub(super) stream: Stream,
    pub(super) epoch: Arc<Epoch>,
    /// Counts the connections of one link, from 1.
    pub(super) connection: u64,
    /// The right to send on it, and what is being sent. Only [`Wire::flush`] takes it: a thread
    /// that finds it taken goes away and relies on its holder to send for both.
    writing: Mutex<Unsent>,
    /// The socket took less than there was: `zklock-down` sends the rest when it takes more.
    pub(super) full: AtomicBool,
    /// While it is full: when it took something last, or became so. Held for no more than a look.
    stuck_since: Mutex<Option<Instant>>,
    /// How much of ours a probe stands behind.
    pub(super) ahead: Ahead,
    /// We have ended it, and not the other side.
    cut: AtomicBool,
    /// Because it was too slow.
    late: AtomicBool,
}

/// Encoded bytes of which a part may have gone.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
    /// Of this connection, all that the kernel has taken.
    taken: u64,
    /// When the last of it was handed over.
    taken_at: Option<Moment>,
}

impl Server {
    pub(super) fn new(stream: Stream, epoch: Arc<Epoch>, connection: u64) -> Self {
        let ahead = Ahead::new(epoch.lease().timeout());
        stream.keep_unsent_below(ahead.bytes());
        Self {
            ahead,
            stream,
            epoch,
            connection,
            writing: Mutex::default(),
            full: AtomicBool::new(false),
            stuck_since: Mutex::new(None),
            cut: AtomicBool::new(false),
            late: AtomicBool::new(false),
        }
    }

    /// Ends reads and writes that are under way, on all threads.
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.stream.cut();
    }

    /// As [`cut`](Self::cut), because of what it did not take or answer in time.
    pub(super) fn cut_as_too_slow(&self) {
        self.late.store(true, Ordering::Release);
        self.cut();
    }

    /// Whether the other side ended it.
    pub(super) fn hung_up(&self) -> bool {
        !self.cut.load(Ordering::Acquire)
    }

    fn ended(&self) -> Ended {
        if self.hung_up() {
            Ended::ByServer
        } else if self.late.load(Ordering::Acquire) {
            Ended::TooSlow
        } else {
            Ended::ByUs
        }
    }

    /// For how long the socket has taken nothing, though there was something.
    pub(super) fn stuck_for(&self) -> Option<Duration> {
        if !self.full.load(Ordering::Acquire) {
            return None;
        }
        let since = *self.stuck_since.lock();
        since.map(|since| since.elapsed())
    }

    /// Whether the socket has taken nothing for longer than `limit`, though there was something.
    pub(super) fn is_stuck(&self, limit: Duration) -> bool {
        self.stuck_for().is_some_and(|stuck| stuck > limit)
    }

    /// The socket takes no more now. Called with the right to send, like the two below.
    fn filled(&self, taken: u64) {
        if self.ahead.filled(taken, self.epoch.now()) {
            self.stream.keep_unsent_below(self.ahead.bytes());
        }
        if !self.full.load(Ordering::Acquire) {
            // First, so that nobody mistakes the time of the last time for this one's.
            *self.stuck_since.lock() = Some(Instant::now());
            self.full.store(true, Ordering::Release);
            self.stream.wake();
        }
    }

    fn took_some(&self) {
        if self.full.load(Ordering::Acquire) {
            *self.stuck_since.lock() = Some(Instant::now());
        }
    }

    fn drained(&self) {
        self.ahead.drained();
        self.full.store(false, Ordering::Release);
    }
}

/// What sending came to.
enum Sent {
    All,
    /// The socket takes no more now.
    Full,
    /// The connection is broken.
    Broken(io::Error),
}

/// Shared by `zklock-clock`, `zklock-down`, the doors and the session's threads.
pub(super) struct Wire {
    pub(super) config: LinkConfig,
    observer: Arc<dyn LinkObserver>,
    pub(super) state: Mutex<State>,
    /// Something changed that a thread of the link waits for: closing, an abandoned session, the
    /// last reply, a thread's end.
    pub(super) changed: Condvar,
    /// Has `zklock-clock` look now.
    pub(super) alarm: Alarm,
}

/// Whoever answers a handle of the crate holds this from taking a request off `in_flight` until its
/// answer is among what goes out, because the crate takes the first answer for the first request.
pub(super) struct State {
    /// Handles of the crate.
    pub(super) guests: Vec<Arc<Guest>>,
    pub(super) server: Option<Arc<Server>>,
    /// A session of this client has survived the end of its connection.
    pub(super) sessions_survive: bool,
    pub(super) in_flight: InFlight,
    /// Behind that.
    pub(super) waiting: Waiting,
    /// For `server`, encoded, in the order of their numbers.
    outgoing: Vec<u8>,
    /// Of all that was ever in there for `server`.
    outgoing_end: u64,
    /// The last change of the data that the session has seen.
    pub(super) last_zxid: i64,
    /// As that was when all watches of handles were on a server last: what has changed since then is
    /// to be told when they are left again.
    pub(super) watched_zxid: i64,
    /// Counts the events of watches, over all connections.
    pub(super) events: u64,
    /// Of the present connection.
    pub(super) probing: Option<Probing>,
    pub(super) closing: bool,
    /// Until when a client that is being closed may try to close its session.
    pub(super) close_by: Option<Instant>,
    /// `zklock-down` has done what it could for that.
    pub(super) parted: bool,
    /// A server has answered that the session is closed.
    pub(super) session_closed: bool,
    /// Threads that have not ended.
    pub(super) threads: usize,
}

impl Wire {
    pub(super) fn new(config: LinkConfig, observer: Arc<dyn LinkObserver>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new(config.longest_wait)),
            config,
            observer,
            changed: Condvar::new(),
            alarm: Alarm::default(),
        })
    }

    /// To be called with `state` unlocked: the session has locks of its own.
    pub(super) fn tell(&self, event: LinkEvent) {
        self.observer.on_link(event);
    }

    /// See [`LinkObserver::observe`]. To be called with `state` unlocked.
    pub(super) fn observe(
        &self,
        kind: WatchKind,
        path: &str,
        connection: u64,
        taken_off: TakenOff,
    ) -> Option<Arc<dyn Interest>> {
        self.observer.observe(kind, path, connection, taken_off)
    }

    /// See [`LinkObserver::let_go`]. To be called with `state` unlocked.
    pub(super) fn let_go(&self, interests: Vec<Arc<dyn Interest>>) {
        if !interests.is_empty() {
            self.observer.let_go(interests);
        }
    }

    /// The handles of a session that is over hear that their watches are. To be called with `state`
    /// unlocked.
    pub(super) fn expire_guests(&self) {
        let guests = self.state.lock().guests.clone();
        let over = |guest: &&Arc<Guest>| !guest.epoch.is_alive() || self.is_closing();
        for guest in guests.iter().filter(over) {
            self.let_go(guest.expire());
            guest.flush();
        }
    }

    /// To be called with `state` unlocked.
    pub(super) fn tell_event(&self, event: EventKind, path: &str, number: u64) {
        self.observer.on_event(event, path, number);
    }

    /// Has the clock looked at until the link is closed. `zklock-clock` waits for nothing else: no
    /// server, no logger, no lock that is held for long. Its panic is the end of the link (see
    /// [`spawn`](Self::spawn)), because nobody else would declare a session lost.
    pub(super) fn watch_clock(self: &Arc<Self>) {
        // Whoever closes rings after that.
        while !self.is_closing() {
            self.alarm.sleep(self.observer.on_clock());
        }
    }

    /// Has a line logged; a logger may block, and this thread must not. See [`say`].
    pub(super) fn log(&self, level: log::Level, target: &'static str, line: String) {
        self.observer.log(level, target, line);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    pub(super) fn wait_until_closing(&self) {
        let mut state = self.state.lock();
        while !state.closing {
            self.changed.wait(&mut state);
        }
    }

    /// Sends what is outgoing, as far as the socket takes it. Never waits: one thread sends for
    /// all, and what does not go now is sent by `zklock-down`.
    pub(super) fn flush(&self, server: &Server) {
        loop {
            let Some(mut unsent) = server.writing.try_lock() else {
                return;
            };
            let sent = self.send_outgoing(server, &mut unsent);
            drop(unsent);
            match sent {
                Sent::All => {}
                Sent::Full => return,
                Sent::Broken(error) => {
                    say!(self, Debug, "to the server: {error}");
                    return;
                }
            }
            // Another thread may have added to it after this one had found nothing more, and have
            // gone away because this one still had the right to send.
            if self.state.lock().outgoing_to(server).is_none() {
                return;
            }
        }
    }

    fn send_outgoing(&self, server: &Server, unsent: &mut Unsent) -> Sent {
        loop {
            if unsent.sent == unsent.bytes.len() && !self.take_outgoing(server, unsent) {
                server.drained();
                return Sent::All;
            }
            let now = server.epoch.now();
            match server.stream.send(&unsent.bytes[unsent.sent..]) {
                Ok(sent) => {
                    unsent.taken_at = Some(now);
                    unsent.sent += sent;
                    unsent.taken += sent as u64;
                    server.took_some();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    server.filled(unsent.taken);
                    self.state.lock().taken(server, unsent);
                    return Sent::Full;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    server.stream.cut();
                    return Sent::Broken(error);
                }
            }
        }
    }

    /// Returns whether there is more to send.
    fn take_outgoing(&self, server: &Server, unsent: &mut Unsent) -> bool {
        unsent.sent = 0;
        unsent.bytes.clear();
        if unsent.bytes.capacity() > frame::MAX_REQUEST_BYTES {
            unsent.bytes = Vec::new();
        }
        let mut state = self.state.lock();
        state.taken(server, unsent);
        match state.outgoing_to(server) {
            Some(outgoing) => {
                std::mem::swap(outgoing, &mut unsent.bytes);
                true
            }
            None => false,
        }
    }

    /// Ends a connection: nothing of it is in flight afterwards. The session hears of it last.
    pub(super) fn drop_connection(&self, server: &Server) {
        let ended = server.ended();
        server.cut();
        let mut state = self.state.lock();
        state.server = None;
        state.outgoing = Vec::new();
        state.outgoing_end = 0;
        state.probing = None;
        let lost = state.in_flight.all_lost(ended, server.epoch.now());
        let unsaid = state.waiting.take_all();
        let guests = state.guests.clone();
        drop(state);
        self.changed.notify_all();
        guests.iter().for_each(|guest| guest.flush());
        drop(lost.over);
        self.tell_lost(server.connection, lost.completed);
        unsaid.into_iter().for_each(Group::tell_lost);
        self.tell(LinkEvent::Suspended {
            epoch: Arc::clone(&server.epoch),
            connection: server.connection,
        });
    }

    /// Tells those whose requests went down with a connection. A reply among what they had heard
    /// before may be malformed: the connection is gone already.
    pub(super) fn tell_lost(&self, connection: u64, told: Vec<Completed>) {
        for said in told {
            let rest = said.tell();
            rest.again.into_iter().for_each(Group::tell_lost);
            let now = self.config.clock.now();
            self.state
                .lock()
                .waiting
                .note(connection, rest.outcome, now);
        }
    }

    /// The link ends by itself: a thread has panicked. Nothing works from now
    /// on. The session above is told first, and with it every holder; then the session is closed
    /// at the servers, as it would be when the client is closed, so that others need not wait.
    pub(super) fn end_by_itself(&self) {
        let mut state = self.state.lock();
        let news = !std::mem::replace(&mut state.closing, true);
        state.close_by.get_or_insert(Instant::now() + LAST_WORDS);
        let server = state.server.clone();
        drop(state);
        if news {
            // Whatever is wrong there must not keep us from what follows.
            let _ = catch_unwind(AssertUnwindSafe(|| self.tell(LinkEvent::Closed)));
            let _ = catch_unwind(AssertUnwindSafe(|| self.expire_guests()));
        }
        if let Some(server) = server.filter(|_| news) {
            server.cut();
        }
        self.changed.notify_all();
        self.alarm.ring();
    }

    /// As [`drop_connection`](Self::drop_connection) of the one that is there, when the thread that
    /// has panicked is the one that would see its end.
    pub(super) fn drop_what_is_left(&self) {
        let server = self.state.lock().server.clone();
        if let Some(server) = server {
            self.drop_connection(&server);
        }
    }

    /// Runs `body` on a thread that is counted until it ends. A panic of it is the end of the link.
    pub(super) fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> io::Result<()> {
        struct Counted(Arc<Wire>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.state.lock().threads -= 1;
                self.0.changed.notify_all();
            }
        }
        self.state.lock().threads += 1;
        let counted = Counted(Arc::clone(self));
        let run = move || {
            let wire = &counted.0;
            if catch_unwind(AssertUnwindSafe(|| body(wire))).is_err() {
                wire.end_by_itself();
            }
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map(drop)
    }
}

impl State {
    fn new(longest_wait: Duration) -> Self {
        Self {
            guests: Vec::new(),
            server: None,
            sessions_survive: false,
            in_flight: InFlight::default(),
            waiting: Waiting::new(longest_wait),
            outgoing: Vec::new(),
            outgoing_end: 0,
            last_zxid: 0,
            watched_zxid: 0,
            events: 0,
            probing: None,
            closing: false,
            close_by: None,
            parted: false,
            session_closed: false,
            threads: 0,
        }
    }

    /// There is a new connection, by a handshake that was sent at `sent_at`.
    pub(super) fn connected(
        &mut self,
        server: &Arc<Server>,
        intervals: ProbeIntervals,
        opening: Opening,
        sent_at: Moment,
    ) {
        self.server = Some(Arc::clone(server));
        self.probing = Some(Probing::new(intervals, opening, sent_at));
    }

    /// A new session has seen nothing.
    pub(super) fn begins_to_see(&mut self) {
        (self.last_zxid, self.watched_zxid) = (0, 0);
    }

    /// A reply came, from a server that has seen this transaction.
    pub(super) fn saw(&mut self, zxid: i64) {
        self.last_zxid = self.last_zxid.max(zxid);
        // Until the watches are there, a server tells of no change: that of a probe that overtakes them
        // may be of a later time than a change that nobody was told of, and the connection may break
        // again before they are.
        if !self.in_flight.leaves_any_again() {
            self.watched_zxid = self.last_zxid;
        }
    }

    /// The connection that there is, unless the link is being closed.
    pub(super) fn open_server(&self) -> Option<&Arc<Server>> {
        self.server.as_ref().filter(|_| !self.closing)
    }

    /// The connection that there is, if it is of this session.
    pub(super) fn server_of(&self, epoch: &Epoch) -> Option<Arc<Server>> {
        let server = self.open_server()?;
        (server.epoch.number() == epoch.number()).then(|| Arc::clone(server))
    }

    /// Whether requests go out on this connection.
    pub(super) fn is_open(&self, server: &Server) -> bool {
        self.stands(server) && !self.closing
    }

    /// Exactly this connection, if it is there.
    pub(super) fn server(&self, connection: u64) -> Option<Arc<Server>> {
        let server = self.open_server()?;
        (server.connection == connection).then(|| Arc::clone(server))
    }

    /// Whether the end of this connection would cost nobody a lock.
    pub(super) fn is_harmless(&self, server: &Server) -> bool {
        self.sessions_survive || !server.epoch.lease().is_relied_on()
    }

    /// Whether so much more can be kept for a server that does not take it at once.
    pub(super) fn has_room(&self, bytes: usize) -> Result<(), NotSent> {
        let bytes = self.kept_bytes() + bytes;
        if bytes <= MOST_OUTGOING_BYTES {
            return Ok(());
        }
        Err(NotSent::Backlogged {
            bytes,
            most: MOST_OUTGOING_BYTES,
        })
    }

    /// What a server has still to take.
    pub(super) fn kept_bytes(&self) -> usize {
        self.outgoing.len() + self.waiting.bytes() + self.in_flight.held_bytes()
    }

    /// To be sent on `server` with the next [`Wire::flush`], under the lock under which their
    /// numbers were given.
    pub(super) fn queue(&mut self, server: &Server, frames: &[u8]) {
        let before = self.outgoing.len();
        server.stream.encode(frames, &mut self.outgoing);
        self.outgoing_end += (self.outgoing.len() - before) as u64;
        self.in_flight.queued(self.outgoing_end);
    }

    /// Whether a request may be given its number and its place among the bytes now. Not while as
    /// much is ahead as a probe may stand behind.
    pub(super) fn may_queue(&self, server: &Server, besides: usize) -> bool {
        !self.in_flight.holds_any() && self.outgoing.len() + besides < server.ahead.bytes()
    }

    /// Queues what was kept back, as far as there is room now.
    fn queue_held(&mut self, server: &Server) {
        let mut is_local = false;
        while self.outgoing.len() < server.ahead.bytes() {
            let Some(Held { mut frame, what }) = self.in_flight.release() else {
                break;
            };
            let xid = match what {
                HeldBack::Crate {
                    guest,
                    header,
                    watching,
                } => {
                    let sent = self.stamp(server, header.opcode);
                    let bytes = frame::body_bytes(&frame);
                    self.in_flight.forward(guest, header, bytes, watching, sent)
                }
                HeldBack::Again {
                    guest,
                    shape,
                    watches,
                } => {
                    let sent = self.stamp(server, shape.opcode);
                    self.in_flight.leave_again(guest, watches, shape, sent)
                }
                HeldBack::Own {
                    shape,
                    expected,
                    recipient,
                } => {
                    let sent = self.stamp(server, shape.opcode);
                    self.in_flight.say(shape, expected, recipient, sent)
                }
                HeldBack::Local { guest, number, err } => {
                    self.in_flight.its_turn(guest, number, err);
                    is_local = true;
                    continue;
                }
            };
            frame::set_xid(&mut frame, xid);
            self.queue(server, &frame);
        }
        if is_local {
            self.in_flight.give_what_is_due();
        }
    }

    /// Queues all that was kept back: nothing that comes later may go before it.
    pub(super) fn queue_all_held(&mut self, server: &Server) {
        while self.in_flight.holds_any() {
            let room = std::mem::take(&mut self.outgoing);
            self.queue_held(server);
            let queued = std::mem::replace(&mut self.outgoing, room);
            self.outgoing.extend_from_slice(&queued);
        }
    }

    fn taken(&mut self, server: &Server, unsent: &Unsent) {
        if let Some(at) = unsent.taken_at.filter(|_| self.stands(server)) {
            self.in_flight.taken(unsent.taken, at);
        }
    }

    fn stands(&self, server: &Server) -> bool {
        let present = self.server.as_ref();
        present.is_some_and(|present| present.connection == server.connection)
    }

    fn outgoing_to(&mut self, server: &Server) -> Option<&mut Vec<u8>> {
        if !self.stands(server) {
            return None;
        }
        if self.outgoing.is_empty() {
            self.queue_held(server);
        }
        (!self.outgoing.is_empty()).then_some(&mut self.outgoing)
    }

    /// A request of the crate is answered by us, when all before it are answered.
    pub(super) fn answer_locally(&mut self, guest: &Arc<Guest>, header: RequestHeader, err: i32) {
        self.in_flight
            .answer_locally(Arc::clone(guest), header, err);
        self.in_flight.give_what_is_due();
    }
}
