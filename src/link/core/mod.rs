//! What the link decides: pure.
//!
//! ```text
//!  requests -> submit    --.                  .--> take          bytes for the server
//!  a handle -> forward   --+--->  Core  ------+--> Received      answers, events: told without locks
//!  frames   -> receive   --|                  +--> Tick, TooSlow the next deadline, "cut it"
//!  time     -> tick      --'                  '--> take_for      bytes for a handle
//! ```
//!
//! A [`Core`] has all that the link knows of one client: the connection that there is, what is in
//! flight on it, what waits to share a packet, what is kept back so that probes go before it, what
//! was learnt of requests that break connections, the handles of the crate and their watches. It is
//! handed bytes and the time, and hands out bytes, answers and events.
//!
//! No thread, socket, clock, lock, chance or log line is in this folder: `scripts/layers` checks that.
//! It calls nobody but who is told: a value that it hands out ([`Completed`], [`Group`]) tells its
//! callers when its owner has it do so, and if it is dropped. The methods of [`Core`] do neither, and
//! are called under the one lock that its owner has it under (see [`wire`](super::wire)); such
//! values are told and dropped after that is let go. Requests of callers are encoded before it is
//! taken, and their answers decoded after it. Only the [lease](lease) is read by others without it.

mod ahead;
pub(in crate::link) mod answer;
pub(in crate::link) mod batch;
mod caller;
pub(in crate::link) mod chain;
mod completed;
mod connection;
pub(in crate::link) mod frame;
mod from_handle;
mod group;
mod handles;
mod in_flight;
mod known;
pub(in crate::link) mod lease;
pub(in crate::link) mod moment;
pub(in crate::link) mod opening;
pub(in crate::link) mod packet;
mod poison;
mod probes;
mod receive;
mod reply;
mod submit;
#[cfg(all(test, not(shuttle)))]
pub(in crate::link) mod tests;
mod untaken;
pub(in crate::link) mod waiting;

use std::sync::Arc;
use std::time::Duration;

pub(in crate::link) use self::ahead::MOST_BYTES as MOST_IN_KERNEL;
pub(in crate::link) use self::completed::{Completed, Rest};
pub(in crate::link) use self::connection::{Opened, ToSend, Took};
pub(in crate::link) use self::group::Group;
pub(crate) use self::handles::Interest;
pub(in crate::link) use self::handles::{HandleId, Watching};
pub(in crate::link) use self::in_flight::Ended;
#[cfg(all(test, not(shuttle)))]
pub(in crate::link) use self::in_flight::Waits;
pub(crate) use self::known::Known;
pub(in crate::link) use self::receive::{News, Received};
pub(in crate::link) use self::submit::Submitted;

use self::answer::NotSent;
use self::connection::Connection;
use self::handles::Handles;
use self::in_flight::InFlight;
use self::moment::Moment;
use self::waiting::Waiting;

/// What is kept for a server that takes it slowly; twice of it while some is being sent.
pub(in crate::link) const MOST_OUTGOING_BYTES: usize = 8 << 20;

/// See the [module](self).
pub(in crate::link) struct Core {
    /// In front of the paths of nodes that probes ask for.
    chroot: String,
    connection: Option<Connection>,
    in_flight: InFlight,
    /// Behind that.
    waiting: Waiting,
    handles: Handles,
    /// A session of this client has survived the end of its connection.
    sessions_survive: bool,
    /// The last change of the data that the session has seen.
    last_zxid: i64,
    /// As that was when all watches of handles were on a server last: what has changed since then is
    /// to be told when they are left again.
    watched_zxid: i64,
    /// Counts the events of watches, over all connections.
    events: u64,
    /// No more requests are taken: the client is being closed.
    is_closing: bool,
    /// A server has answered that the session is closed.
    session_closed: bool,
}

/// What is to be seen to without locks, when a connection has gone.
pub(in crate::link) struct Broken {
    /// Who is told.
    pub(in crate::link) completed: Vec<Completed>,
    /// Those who were never sent.
    pub(in crate::link) unsent: Vec<Group>,
    /// To be dropped.
    pub(in crate::link) over: Vec<Arc<dyn Interest>>,
}

impl Core {
    /// `longest_wait`: for others to share a packet.
    pub(in crate::link) fn new(chroot: String, longest_wait: Duration) -> Self {
        Self {
            handles: Handles::new(chroot.clone()),
            chroot,
            connection: None,
            in_flight: InFlight::default(),
            waiting: Waiting::new(longest_wait),
            sessions_survive: false,
            last_zxid: 0,
            watched_zxid: 0,
            events: 0,
            is_closing: false,
            session_closed: false,
        }
    }

    // ---- its phases ----

    /// A new session has seen nothing.
    pub(in crate::link) fn session_begins(&mut self) {
        (self.last_zxid, self.watched_zxid) = (0, 0);
    }

    /// What a server must have seen to resume the session.
    pub(in crate::link) fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// There is a new connection.
    pub(in crate::link) fn opened(&mut self, opened: Opened) {
        self.connection = Some(Connection::new(opened));
    }

    /// A connection came about with a session that there was before.
    pub(in crate::link) fn session_survived(&mut self) {
        self.sessions_survive = true;
    }

    /// The connection is gone: nothing of it is in flight afterwards.
    pub(in crate::link) fn broke(&mut self, ended: Ended, now: Moment) -> Broken {
        self.connection = None;
        let lost = self.in_flight.all_lost(ended, now, &mut self.handles);
        Broken {
            completed: lost.completed,
            unsent: self.waiting.take_all().into(),
            over: lost.over,
        }
    }

    /// The client is being closed. Returns whether that is news.
    pub(in crate::link) fn close(&mut self) -> bool {
        !std::mem::replace(&mut self.is_closing, true)
    }

    pub(in crate::link) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Says good-bye, behind all that is in flight: the server has done that before it answers.
    pub(in crate::link) fn say_goodbye(&mut self, now: Moment) {
        self.send_waiting(now);
        let Some(connection) = &mut self.connection else {
            return;
        };
        if connection.queue_all_held(&mut self.in_flight, now) {
            self.in_flight.give_what_is_due(&mut self.handles);
        }
        let mut farewell = frame::request(0, frame::OP_CLOSE);
        let asked = in_flight::Asked::Close;
        connection.send_now(&mut self.in_flight, &mut farewell, asked, now);
    }

    /// The session is closed at the servers.
    pub(in crate::link) fn session_is_closed(&mut self) {
        self.session_closed = true;
    }

    pub(in crate::link) fn is_session_closed(&self) -> bool {
        self.session_closed
    }

    // ---- its connection ----

    /// Whether requests go out on this connection.
    pub(in crate::link) fn is_open(&self, number: u64) -> bool {
        self.stands(number) && !self.is_closing
    }

    fn stands(&self, number: u64) -> bool {
        let present = self.connection.as_ref();
        present.is_some_and(|present| present.number == number)
    }

    /// Whether the end of this connection would cost nobody a lock.
    pub(in crate::link) fn is_harmless(&self, number: u64) -> bool {
        !self.is_open(number) || self.would_harm_nobody()
    }

    fn would_harm_nobody(&self) -> bool {
        let lease = self.connection.as_ref().map(|present| &present.lease);
        self.sessions_survive || lease.is_none_or(|lease| !lease.is_relied_on())
    }

    /// What a server has still to take.
    fn kept_bytes(&self) -> usize {
        let outgoing = self.connection.as_ref().map(Connection::outgoing_bytes);
        outgoing.unwrap_or(0) + self.waiting.bytes() + self.in_flight.held_bytes()
    }

    /// Whether so much more can be kept for a server that does not take it at once.
    fn has_room(&self, bytes: usize) -> Result<(), NotSent> {
        let bytes = self.kept_bytes() + bytes;
        if bytes <= MOST_OUTGOING_BYTES {
            return Ok(());
        }
        Err(NotSent::Backlogged {
            bytes,
            most: MOST_OUTGOING_BYTES,
        })
    }

    // ---- bytes to send ----

    /// Swaps what is to be sent on this connection into `bytes`, which is clear. Returns whether
    /// there is anything.
    pub(in crate::link) fn take(&mut self, number: u64, bytes: &mut ToSend, now: Moment) -> bool {
        let present = self.connection.as_mut();
        let Some(connection) = present.filter(|present| present.number == number) else {
            return false;
        };
        if connection.refill(&mut self.in_flight, now) {
            self.in_flight.give_what_is_due(&mut self.handles);
        }
        connection.take(bytes)
    }

    /// Whether [`take`](Self::take) would find something on this connection.
    pub(in crate::link) fn has_something_to_send(&self, number: u64) -> bool {
        let present = self.connection.as_ref();
        present.is_some_and(|present| {
            present.number == number && present.has_something_to_send(&self.in_flight)
        })
    }

    /// The kernel has taken so much.
    pub(in crate::link) fn took(&mut self, number: u64, took: Took) {
        if self.stands(number) {
            self.in_flight.taken(took.frames, took.at);
        }
    }

    /// The kernel takes no more now, after so much. Returns how much it is to keep from now on, if
    /// that has changed.
    pub(in crate::link) fn filled(
        &mut self,
        number: u64,
        taken: u64,
        now: Moment,
    ) -> Option<usize> {
        let present = self.connection.as_mut();
        let connection = present.filter(|present| present.number == number)?;
        let has_changed = connection.ahead.filled(taken, now);
        has_changed.then(|| connection.ahead.bytes())
    }
}

#[cfg(all(test, not(shuttle)))]
impl Core {
    pub(in crate::link) fn unanswered(&self) -> usize {
        self.in_flight.unanswered()
    }

    pub(in crate::link) fn has_probe(&self) -> bool {
        self.in_flight.has_probe()
    }

    pub(in crate::link) fn holds_any(&self) -> bool {
        self.in_flight.holds_any()
    }

    pub(in crate::link) fn waits_since(&self) -> Waits {
        self.in_flight.waits_since()
    }

    pub(in crate::link) fn chain(&self) -> &chain::Chain {
        &self.connection.as_ref().expect("connected").chain
    }
}
