//! Probes, which prove that the session is alive, and all else that is due by the clock.
//!
//! One probe serves everything that is held. While a node of ours stands, the probe is a committed
//! check of one such node, which changes and wakes nothing; otherwise it is a `sync`, which writes
//! nothing. Any request of the right kind counts as a probe, so a busy connection sends none.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use zklock_protocol::{ANY_VERSION, Expected, Request};

use super::Core;
use super::connection::Connection;
use super::frame;
use super::in_flight::{Asked, InFlight, Waits};
use super::moment::Moment;
use super::packet;
use super::reply::Probed;

/// No wait is shorter: what is due in less than this is as good as now, and a thread does not spin.
const SHORTEST: Duration = Duration::from_millis(1);

/// An idle connection is looked after in each such part of the session's timeout.
const BEATS: u32 = 12;

/// What the clock has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) struct Tick {
    /// Until the next one, at the latest.
    pub(in crate::link) wait: Duration,
    pub(in crate::link) has_something_to_send: bool,
}

/// Why a connection is to be cut: it is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum TooSlow {
    /// An answer has not come for so long, or the kernel has not taken the request.
    Silent(Duration),
    /// The kernel takes nothing.
    Stuck(Duration),
    /// The session's lease is over.
    Lapsed,
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(waited) => write!(f, "an answer was waited for in vain for {waited:?}"),
            Self::Stuck(limit) => write!(f, "it took nothing for {limit:?}"),
            Self::Lapsed => f.write_str("the session's lease has run out"),
        }
    }
}

impl Core {
    /// Time has come to `now`. Queues the probe that is due, if one is, and what has waited long
    /// enough for others. `node` is the next of ours to be asked for, after
    /// [`last_node`](Self::last_node).
    pub(in crate::link) fn tick(&mut self, node: Option<(u64, Arc<str>)>, now: Moment) -> Tick {
        let mut wait = self.probe(node, now).since(now).max(SHORTEST);
        // What is wanted of probes may change meanwhile.
        if let Some(connection) = &self.connection {
            wait = wait.min((connection.lease.timeout() / BEATS).max(SHORTEST));
        }
        if !self.waiting.is_empty()
            && let Some(due) = self.send_what_is_due(now)
        {
            wait = wait.min(due);
        }
        let connection = self.connection.as_ref();
        Tick {
            wait,
            has_something_to_send: connection
                .is_some_and(|one| one.has_something_to_send(&self.in_flight)),
        }
    }

    /// The number of the node of ours that the last probe has asked for.
    pub(in crate::link) fn last_node(&self) -> u64 {
        let connection = self.connection.as_ref();
        connection.map_or(0, |connection| connection.last_node)
    }

    /// Queues the probe that is due, if one is. Returns when to look again.
    pub(in crate::link) fn probe(&mut self, node: Option<(u64, Arc<str>)>, now: Moment) -> Moment {
        let Some(connection) = &mut self.connection else {
            return now;
        };
        // None may be there although writes are wanted: it was found to be gone.
        let node = node.filter(|_| connection.lease.wants_writes());
        let writes = node.is_some();
        if connection.at_once || connection.chain.next_probe(writes).due <= now {
            connection.at_once = false;
            connection.send_probe(&mut self.in_flight, node, &self.chroot, now);
        }
        let due = connection.chain.next_probe(writes).due;
        match self.in_flight.waits_since() {
            Waits::Since(at) => due.min(at.plus(connection.chain.patience())),
            Waits::ForNothing | Waits::ForTheKernel => due,
        }
    }

    /// A probe was answered. Returns the number of a node of ours that turned out to be gone.
    pub(super) fn probed(&mut self, probed: Probed) -> Option<u64> {
        let connection = self.connection.as_mut()?;
        match probed {
            // It has proved something, or else nothing, and the next one is asked as ever.
            Probed::Done | Probed::PutOff => None,
            Probed::NodeGone(number) => {
                connection.at_once = true;
                Some(number)
            }
            Probed::Refused => {
                connection.at_once = !connection.blindly;
                connection.blindly = true;
                None
            }
        }
    }

    /// Whether the connection is of no use any more. `stuck_for`: the kernel has taken nothing for so
    /// long, though there was something. `has_read`: something came just now. A process that was
    /// stopped for long reads first what came meanwhile.
    pub(in crate::link) fn is_too_slow(
        &self,
        stuck_for: Option<Duration>,
        has_read: bool,
        now: Moment,
    ) -> Option<TooSlow> {
        let connection = self.connection.as_ref()?;
        if !has_read {
            let waited = match self.in_flight.waits_since() {
                Waits::ForNothing => None,
                Waits::ForTheKernel => stuck_for,
                Waits::Since(taken) => Some(now.since(taken)),
            };
            let patience = connection.chain.patience();
            if let Some(waited) = waited.filter(|waited| *waited >= patience) {
                return Some(TooSlow::Silent(waited));
            }
        }
        let stuck = connection.lease.timeout() / 3;
        if stuck_for.is_some_and(|since| since > stuck.max(SHORTEST)) {
            return Some(TooSlow::Stuck(stuck));
        }
        // The good-bye of a client that is being closed goes out and is waited for all the same.
        let is_over = !self.is_closing && !connection.lease.alive(now);
        is_over.then_some(TooSlow::Lapsed)
    }
}

impl Connection {
    fn send_probe(
        &mut self,
        in_flight: &mut InFlight,
        node: Option<(u64, Arc<str>)>,
        chroot: &str,
        now: Moment,
    ) {
        let (request, node) = match node {
            Some((number, path)) => {
                self.last_node = number;
                let steps = if self.blindly {
                    Vec::new()
                } else {
                    vec![Request::Check {
                        path: format!("{chroot}{path}"),
                        version: ANY_VERSION,
                    }]
                };
                let number = (!steps.is_empty()).then_some(number);
                (Request::Multi(steps), number)
            }
            None => {
                let path = if chroot.is_empty() { "/" } else { chroot };
                let path = path.to_owned();
                (Request::Sync { path }, None)
            }
        };
        let mut bytes = Vec::new();
        let encoded = packet::encode(&request, &mut bytes, frame::MAX_REQUEST_BYTES);
        let shape = encoded.expect("a path that a server has taken");
        let expected = Expected::of(&request);
        let sent = self.stamp(shape.opcode, now);
        let xid = in_flight.add(Asked::Probe { expected, node }, Some(sent));
        frame::set_xid(&mut bytes, xid);
        self.queue(in_flight, &bytes);
    }
}
