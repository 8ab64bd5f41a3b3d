//! Requests of our own: sent now, soon, together or again.

use std::time::Duration;

use super::Core;
use super::answer::{Batching, NotSent};
use super::batch::{Batch, Packing};
use super::completed::{Recipient, Rest};
use super::group::Group;
use super::moment::Moment;

/// What becomes of what was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Submitted {
    /// There is something to send.
    Send,
    /// It waits for others, and is sent with them or after a [`tick`](Core::tick).
    Wait,
    /// It waits, and that tick must come sooner than was said.
    WaitAndTick,
}

impl Core {
    /// Takes requests on for exactly this connection. If it does not, it gives them back, and
    /// nothing is ever completed.
    pub(in crate::link) fn submit(
        &mut self,
        connection: u64,
        group: Box<Group>,
        batching: Batching,
        now: Moment,
    ) -> Result<Submitted, (NotSent, Box<Group>)> {
        if let Err(why) = self.admits_group(connection, &group, now) {
            return Err((why, group));
        }
        Ok(match batching {
            Batching::Allowed => self.send_soon(*group, now),
            Batching::Never => {
                // Nothing overtakes what was submitted before it.
                self.send_waiting(now);
                self.send_alone(*group, now);
                Submitted::Send
            }
        })
    }

    fn admits_group(&self, number: u64, group: &Group, now: Moment) -> Result<(), NotSent> {
        let open = self.connection.as_ref().filter(|_| self.is_open(number));
        let connection = open.ok_or(NotSent::NotOpen)?;
        self.has_room(group.bytes())?;
        connection.has_time_for(group.longest(), now)
    }

    /// Sends a group now, or has it wait for a moment.
    fn send_soon(&mut self, group: Group, now: Moment) -> Submitted {
        self.waiting.add(group);
        if self.may_wait(now).is_none() {
            self.send_waiting(now);
            Submitted::Send
        } else if self.waiting.begin_wait(now) {
            Submitted::WaitAndTick
        } else {
            Submitted::Wait
        }
    }

    /// Sends all that waits, now. Without a connection nothing does: [`broke`](Core::broke) has handed
    /// it out. A group that was dropped here would tell its caller, under its owner's lock.
    pub(super) fn send_waiting(&mut self, now: Moment) {
        if self.connection.is_none() {
            return;
        }
        let is_harmless = self.would_harm_nobody();
        while let Some((groups, packing)) = self.waiting.next_batch(is_harmless, now) {
            self.send_together(groups, packing, now);
        }
    }

    /// Sends what waits, if answers have made room or it has waited long enough. Returns for how
    /// long it may still wait.
    pub(super) fn send_what_is_due(&mut self, now: Moment) -> Option<Duration> {
        let left = self.may_wait(now);
        if left.is_none() {
            self.send_waiting(now);
        }
        left
    }

    fn may_wait(&self, now: Moment) -> Option<Duration> {
        self.waiting.may_wait(self.in_flight.own(), now)
    }

    /// Sends groups now, in as few packets as `packing` allows.
    fn send_together(&mut self, mut groups: Vec<Group>, packing: Packing, now: Moment) {
        if packing.is_none() && groups.len() == 1 && groups[0].is_fresh() {
            return groups
                .drain(..)
                .for_each(|group| self.send_alone(group, now));
        }
        let Some(connection) = &mut self.connection else {
            return;
        };
        let batch = Batch::new(groups, packing);
        let mut frames = Vec::new();
        let packets = batch.write(&mut frames);
        let recipient = Recipient::Batch(Box::new(batch));
        connection.send_packets(&mut self.in_flight, frames, packets, recipient, now);
    }

    /// Sends a group now, each request in a packet of its own.
    fn send_alone(&mut self, group: Group, now: Moment) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let (frames, packets, caller) = group.into_packets();
        let recipient = Recipient::Caller(caller);
        connection.send_packets(&mut self.in_flight, frames, packets, recipient, now);
    }

    /// Takes note of how sharing packets has gone on this connection, and asks again, each by
    /// itself, what came to nothing because of others. Returns those who have lost their connection.
    #[must_use]
    pub(in crate::link) fn ask_again(
        &mut self,
        connection: u64,
        rest: Rest,
        now: Moment,
    ) -> Vec<Group> {
        self.waiting.note(connection, rest.outcome, now);
        if !self.is_open(connection) {
            return rest.again;
        }
        if !rest.again.is_empty() {
            self.send_together(rest.again, Packing::NONE, now);
        }
        Vec::new()
    }
}
