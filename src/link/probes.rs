//! Probes: requests of the link's own, to prove that the session is alive.
//!
//! One probe serves everything that is held. While a node of ours stands, the probe is a committed
//! check of one such node, which changes and wakes nothing; otherwise it is a `sync`, which writes
//! nothing. Any request of the right kind counts as a probe, so a busy connection sends none.

use std::time::Duration;

use zklock_protocol::{ANY_VERSION, Expected, Request, opcode};

use super::clock::Moment;
use super::core::chain::{Kind, Sent};
use super::core::frame;
use super::core::packet;
use super::core::probing::Probing;
use super::in_flight::{Probed, Waits};
use super::wire::{Server, State, Wire};

/// No wait is shorter: what is due in less than this is as good as now, and a thread does not spin.
const SHORTEST: Duration = Duration::from_millis(1);

impl State {
    /// A request of this kind is about to be given its number.
    pub(super) fn stamp(&mut self, server: &Server, opcode: i32) -> Sent {
        let kind = match opcode {
            opcode::SYNC => Kind::Sync,
            _ if opcode::is_write(opcode) => Kind::Write,
            _ => Kind::Read,
        };
        self.stamp_as(server, kind)
    }

    fn stamp_as(&mut self, server: &Server, kind: Kind) -> Sent {
        let now = server.epoch.now();
        self.probing().chain.sent(kind, now)
    }

    fn probing(&mut self) -> &mut Probing {
        let probing = self.probing.as_mut();
        probing.expect("a connection stands, and was begun with it")
    }

    /// A request was done.
    pub(super) fn proved(&mut self, server: &Server, sent: Sent) {
        let now = server.epoch.now();
        let bases = self.probing().chain.answered(sent, now);
        server.epoch.lease().renewed(bases, now);
    }

    /// A probe was answered. Returns the path of a node of ours that turned out to be gone.
    pub(super) fn probed(&mut self, server: &Server, probed: &Probed) -> Option<String> {
        match probed {
            Probed::Done(sent) => {
                self.proved(server, *sent);
                None
            }
            Probed::NodeGone(number) => {
                self.probing().at_once = true;
                let path = server.epoch.node_gone(*number);
                path.map(|path| path.to_string())
            }
            // It has proved nothing, and the next one is asked as ever.
            Probed::PutOff => None,
            Probed::Refused => {
                let probing = self.probing();
                probing.at_once = !probing.blindly;
                probing.blindly = true;
                None
            }
        }
    }

    /// Queues the probe that is due, if one is. Returns when to look again.
    pub(super) fn probe(&mut self, server: &Server, chroot: &str) -> Moment {
        let now = server.epoch.now();
        let last_node = self.probing().last_node;
        let writes = server.epoch.lease().wants_writes();
        // None may be there although writes are wanted: it was found to be gone.
        let node = server.epoch.node_after(last_node).filter(|_| writes);
        let probing = self.probing();
        let due = probing.chain.next_probe(node.is_some()).due;
        let overdue = |state: &Self, patience| match state.in_flight.waits_since() {
            Waits::Since(at) => Some(at.plus(patience)),
            Waits::ForNothing | Waits::ForTheKernel => None,
        };
        let patience = probing.chain.patience();
        if due > now && !probing.at_once {
            return overdue(self, patience).map_or(due, |at| at.min(due));
        }
        probing.at_once = false;
        let (request, kind, number) = match node {
            Some((number, path)) => {
                probing.last_node = number;
                let steps = if probing.blindly {
                    Vec::new()
                } else {
                    vec![Request::Check {
                        path: format!("{chroot}{path}"),
                        version: ANY_VERSION,
                    }]
                };
                let number = (!steps.is_empty()).then_some(number);
                (Request::Multi(steps), Kind::Write, number)
            }
            None => {
                let path = if chroot.is_empty() { "/" } else { chroot };
                let path = path.to_owned();
                (Request::Sync { path }, Kind::Sync, None)
            }
        };
        let mut bytes = Vec::new();
        let encoded = packet::encode(&request, &mut bytes, frame::MAX_REQUEST_BYTES);
        encoded.expect("a path that a server has taken");
        let sent = self.stamp_as(server, kind);
        let xid = self.in_flight.probe(Expected::of(&request), sent, number);
        frame::set_xid(&mut bytes, xid);
        self.queue(server, &bytes);
        self.probe(server, chroot)
    }
}

impl Wire {
    /// Sends the probe that is due, if one is. Returns how long until there is something to do.
    pub(super) fn probe(&self, server: &Server) -> Duration {
        let mut state = self.state.lock();
        let again = state.probe(server, &self.config.chroot);
        drop(state);
        self.flush(server);
        again.since(server.epoch.now()).max(SHORTEST)
    }

    /// For how long the server has owed us something, if for too long: an answer, or that it takes
    /// what there is to send.
    pub(super) fn is_overdue(&self, server: &Server) -> Option<Duration> {
        let mut state = self.state.lock();
        let waited = match state.in_flight.waits_since() {
            Waits::ForNothing => return None,
            Waits::ForTheKernel => server.stuck_for()?,
            Waits::Since(taken) => server.epoch.now().since(taken),
        };
        (waited >= state.probing().chain.patience()).then_some(waited)
    }
}
