//! What is under way between members: one lane each way, in order.

use std::time::Duration;

use crate::core::quorum::{Message, Packet};
use crate::trouble::line::Lane;

#[derive(Debug)]
pub(super) struct Wires {
    /// `lanes[from][to]`.
    lanes: Vec<Vec<Wire>>,
    lags: Vec<Duration>,
}

#[derive(Debug)]
struct Wire {
    lane: Lane<Packet>,
    is_cut: bool,
}

impl Wires {
    pub(super) fn between(size: usize) -> Self {
        let wire = || Wire {
            lane: Lane::new(),
            is_cut: false,
        };
        let row = || (0..size).map(|_| wire()).collect();
        Self {
            lanes: (0..size).map(|_| row()).collect(),
            lags: vec![Duration::ZERO; size],
        }
    }

    pub(super) fn send(&mut self, from: usize, to: usize, packet: Packet, now: Duration) {
        let lag = self.lags[from].saturating_add(self.lags[to]);
        let due = now.saturating_add(lag);
        self.lanes[from][to].lane.push(due, packet);
    }

    /// What arrives next at somebody who hears, with its way.
    pub(super) fn take(
        &mut self,
        now: Duration,
        hears: impl Fn(usize) -> bool,
    ) -> Option<(usize, usize, Packet)> {
        for (from, row) in self.lanes.iter_mut().enumerate() {
            for (to, wire) in row.iter_mut().enumerate() {
                if !wire.is_cut
                    && hears(to)
                    && let Some(packet) = wire.lane.pop(now)
                {
                    return Some((from, to, packet));
                }
            }
        }
        None
    }

    /// When something arrives next at somebody who hears.
    pub(super) fn next_due(&self, hears: impl Fn(usize) -> bool) -> Option<Duration> {
        let wires = self.lanes.iter().flat_map(|row| row.iter().enumerate());
        let open = wires.filter(|(to, wire)| !wire.is_cut && hears(*to));
        open.filter_map(|(_, wire)| wire.lane.next_due()).min()
    }

    /// The system of a machine whose server does not run refuses connections.
    pub(super) fn answer_for_the_dead(
        &mut self,
        dead: usize,
        to: usize,
        packet: &Packet,
        now: Duration,
    ) {
        if let Packet::On(connection, Message::Join) = packet {
            let refusal = Packet::On(*connection, Message::Closed);
            self.send(dead, to, refusal, now);
        }
    }

    /// A member has ended: each of the others hears so after all that it has sent.
    pub(super) fn reset(&mut self, member: usize, now: Duration) {
        for other in (0..self.lanes.len()).filter(|other| *other != member) {
            self.send(member, other, Packet::Reset, now);
        }
    }

    pub(super) fn cut(&mut self, from: usize, to: usize, is_cut: bool) {
        self.lanes[from][to].is_cut = is_cut;
    }

    pub(super) fn lag(&mut self, member: usize, by: Duration) {
        self.lags[member] = by;
    }

    pub(super) fn mend(&mut self) {
        self.lags.fill(Duration::ZERO);
        for wire in self.lanes.iter_mut().flatten() {
            wire.is_cut = false;
        }
    }

    /// Whether each hears the other.
    pub(super) fn are_joined(&self, one: usize, other: usize) -> bool {
        !self.lanes[one][other].is_cut && !self.lanes[other][one].is_cut
    }

    /// What is under way to a member arrives now, whatever its lag.
    pub(super) fn hurry(&mut self, to: usize, now: Duration) {
        for row in &mut self.lanes {
            row[to].lane.hurry(now);
        }
    }
}
