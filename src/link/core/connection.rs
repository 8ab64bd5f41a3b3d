//! One connection to a server, after its handshake: what is to be sent on it, and what it proves.

use std::sync::Arc;

use zklock_protocol::opcode;

use super::ahead::Ahead;
use super::answer::NotSent;
use super::chain::{Chain, Kind, Opening, ProbeIntervals, Sent};
use super::completed::Recipient;
use super::frame;
use super::group::Packet;
use super::in_flight::{Asked, InFlight};
use super::lease::Lease;
use super::moment::Moment;

/// A connection that has just been made.
pub(in crate::link) struct Opened {
    /// Counts the connections of one link, from 1.
    pub(in crate::link) number: u64,
    pub(in crate::link) lease: Arc<Lease>,
    pub(in crate::link) intervals: ProbeIntervals,
    pub(in crate::link) opening: Opening,
    /// When its handshake was sent.
    pub(in crate::link) sent_at: Moment,
}

/// Frames in the order of their numbers, and where each piece of them ends: the requests of a piece
/// count as taken together.
#[derive(Default)]
pub(in crate::link) struct ToSend {
    pub(in crate::link) frames: Vec<u8>,
    pub(in crate::link) pieces: Vec<usize>,
}

impl ToSend {
    fn len(&self) -> usize {
        self.frames.len()
    }

    fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Memory that one large request needed is given back.
    pub(in crate::link) fn clear(&mut self) {
        self.frames.clear();
        self.pieces.clear();
        if self.frames.capacity() > frame::MAX_REQUEST_BYTES {
            self.frames = Vec::new();
        }
    }
}

/// What the kernel has taken of a connection's bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::link) struct Took {
    /// Of the frames.
    pub(in crate::link) frames: u64,
    /// When the last of it was handed over.
    pub(in crate::link) at: Moment,
}

/// See the [module](self).
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) lease: Arc<Lease>,
    pub(super) chain: Chain,
    /// The number of the node of ours that was asked for last.
    pub(super) last_node: u64,
    /// That node was gone, and so nothing proved: the next probe goes out now.
    pub(super) at_once: bool,
    /// This server would not tell us of our nodes: writes ask for none.
    pub(super) blindly: bool,
    /// How much of ours a probe stands behind.
    pub(super) ahead: Ahead,
    outgoing: ToSend,
    /// Of all frames that were ever in there.
    queued: u64,
}

impl Connection {
    pub(super) fn new(opened: Opened) -> Self {
        let Opened {
            number,
            lease,
            intervals,
            opening,
            sent_at,
        } = opened;
        Self {
            number,
            chain: Chain::new(intervals, opening, sent_at),
            last_node: 0,
            at_once: false,
            blindly: false,
            ahead: Ahead::new(lease.timeout()),
            lease,
            outgoing: ToSend::default(),
            queued: 0,
        }
    }

    /// What is encoded and not yet taken away.
    pub(super) fn outgoing_bytes(&self) -> usize {
        self.outgoing.len()
    }

    /// A request of this kind is about to be given its number.
    pub(super) fn stamp(&mut self, opcode: i32, now: Moment) -> Sent {
        let kind = match opcode {
            opcode::SYNC => Kind::Sync,
            _ if opcode::is_write(opcode) => Kind::Write,
            _ => Kind::Read,
        };
        self.chain.sent(kind, now)
    }

    /// A request was done.
    pub(super) fn proved(&mut self, sent: Sent, now: Moment) {
        let bases = self.chain.answered(sent, now);
        self.lease.renewed(bases, now);
    }

    /// To be sent with the next bytes, under the lock under which their numbers were given.
    pub(super) fn queue(&mut self, in_flight: &mut InFlight, frames: &[u8]) {
        self.outgoing.frames.extend_from_slice(frames);
        self.outgoing.pieces.push(self.outgoing.len());
        self.queued += frames.len() as u64;
        in_flight.queued(self.queued);
    }

    /// Whether a request may be given its number and its place among the bytes now. Not while as
    /// much is ahead as a probe may stand behind.
    pub(super) fn may_queue(&self, in_flight: &InFlight, besides: usize) -> bool {
        !in_flight.holds_any() && self.outgoing.len() + besides < self.ahead.bytes()
    }

    /// Sends one request, or keeps it back if a probe would stand behind it for too long.
    pub(super) fn send(
        &mut self,
        in_flight: &mut InFlight,
        frame: &mut [u8],
        asked: Asked,
        now: Moment,
    ) {
        if self.may_queue(in_flight, 0) {
            self.send_now(in_flight, frame, asked, now);
        } else {
            in_flight.hold(frame.to_vec(), asked);
        }
    }

    pub(super) fn send_now(
        &mut self,
        in_flight: &mut InFlight,
        frame: &mut [u8],
        asked: Asked,
        now: Moment,
    ) {
        let sent = asked.opcode().map(|opcode| self.stamp(opcode, now));
        let xid = in_flight.add(asked, sent);
        frame::set_xid(frame, xid);
        self.queue(in_flight, frame);
    }

    /// Numbers the packets in `frames`, and queues them, or keeps back those behind which a probe
    /// would stand for too long.
    pub(super) fn send_packets(
        &mut self,
        in_flight: &mut InFlight,
        mut frames: Vec<u8>,
        packets: Vec<Packet>,
        recipient: Recipient,
        now: Moment,
    ) {
        let mut recipient = Some(recipient);
        let last = packets.len() - 1;
        let mut numbered = 0;
        for (index, packet) in packets.into_iter().enumerate() {
            let Packet {
                frame,
                shape,
                expected,
            } = packet;
            let asked = Asked::Own {
                shape,
                expected,
                recipient: recipient.take_if(|_| index == last),
            };
            if self.may_queue(in_flight, numbered) {
                numbered = frame.end;
                let sent = self.stamp(shape.opcode, now);
                let xid = in_flight.add(asked, Some(sent));
                frame::set_xid(&mut frames[frame], xid);
            } else {
                in_flight.hold(frames[frame].to_vec(), asked);
            }
        }
        if numbered > 0 {
            self.queue(in_flight, &frames[..numbered]);
        }
    }

    /// Queues what was kept back, until so much is ahead. Returns whether some of it is answered by
    /// us.
    fn queue_held(&mut self, in_flight: &mut InFlight, most: usize, now: Moment) -> bool {
        let mut is_local = false;
        while self.outgoing.len() < most {
            let Some(mut held) = in_flight.release() else {
                break;
            };
            if let Asked::Local { .. } = held.asked {
                in_flight.its_turn(held.asked);
                is_local = true;
            } else {
                self.send_now(in_flight, &mut held.frame, held.asked, now);
            }
        }
        is_local
    }

    /// Queues all that was kept back: nothing that comes later may go before it.
    pub(super) fn queue_all_held(&mut self, in_flight: &mut InFlight, now: Moment) -> bool {
        self.queue_held(in_flight, usize::MAX, now)
    }

    /// Fills what is to be sent from what was kept back, if there is nothing else. Returns whether
    /// some of it is answered by us.
    pub(super) fn refill(&mut self, in_flight: &mut InFlight, now: Moment) -> bool {
        self.outgoing.is_empty() && self.queue_held(in_flight, self.ahead.bytes(), now)
    }

    /// Swaps what is to be sent into `bytes`, which is clear. Returns whether there is anything.
    pub(super) fn take(&mut self, bytes: &mut ToSend) -> bool {
        if self.outgoing.is_empty() {
            self.ahead.drained();
            return false;
        }
        std::mem::swap(&mut self.outgoing, bytes);
        true
    }

    pub(super) fn has_something_to_send(&self, in_flight: &InFlight) -> bool {
        !self.outgoing.is_empty() || in_flight.holds_any()
    }

    /// Whether a request can be sent in good time: while it is on its way nothing proves that the
    /// session is alive.
    pub(super) fn has_time_for(&self, bytes: usize, now: Moment) -> Result<(), NotSent> {
        let most = self.lease.timeout() / 3;
        match self.ahead.takes(bytes, now) {
            Some(takes) if takes > most => Err(NotSent::TooSlow { bytes, takes, most }),
            _ => Ok(()),
        }
    }
}
