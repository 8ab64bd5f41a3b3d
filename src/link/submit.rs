//! Saying requests of our own: now, soon, together or again.

use std::sync::Arc;
use std::time::Duration;

use zklock_protocol::Request;

use super::Link;
use super::clock::Moment;
use super::core::answer::{Batching, Completion, NotSent};
use super::core::batch::{Batch, Packing};
use super::core::completed::{Recipient, Rest};
use super::core::frame::{self, RequestHeader};
use super::core::group::{Group, Packet};
use super::core::packet::{self, Shape};
use super::guest::{Guest, Interest, Watching};
use super::in_flight::{Held, HeldBack};
use super::wire::{Server, State, Wire};

impl Link {
    /// Says `requests` on exactly this connection, and returns before they are answered: never
    /// blocks, but for the lock of the link. If they are not sent, nothing is ever completed; if they
    /// are, it is called once, perhaps before this returns.
    pub(crate) fn submit(
        &self,
        connection: u64,
        requests: &[Request],
        batching: Batching,
        completion: Arc<dyn Completion>,
    ) -> Result<(), NotSent> {
        if requests.is_empty() {
            completion.completed(Vec::new());
            return Ok(());
        }
        let group = Group::encode(requests, completion)?;
        let mut state = self.wire.state.lock();
        let server = match state.takes(connection, &group) {
            Ok(server) => server,
            Err(why) => {
                drop(state);
                group.forget();
                return Err(why);
            }
        };
        let goes = match batching {
            Batching::Allowed => state.say_soon(&server, group),
            Batching::Never => {
                // Nothing overtakes what was said before it.
                state.say_waiting(&server);
                state.say(&server, group);
                true
            }
        };
        drop(state);
        if goes {
            self.wire.flush(&server);
        }
        Ok(())
    }
}

impl Server {
    /// Whether a request can be sent in good time: while it is on its way nothing proves that the
    /// session is alive.
    pub(super) fn has_time_for(&self, bytes: usize) -> Result<(), NotSent> {
        let most = self.epoch.lease().timeout() / 3;
        match self.ahead.takes(bytes, self.epoch.now()) {
            Some(takes) if takes > most => Err(NotSent::TooSlow { bytes, takes, most }),
            _ => Ok(()),
        }
    }
}

impl State {
    /// The server to which a group may go.
    fn takes(&self, connection: u64, group: &Group) -> Result<Arc<Server>, NotSent> {
        let server = self.server(connection).ok_or(NotSent::NotOpen)?;
        self.has_room(group.bytes())?;
        server.has_time_for(group.longest())?;
        Ok(server)
    }

    /// Says a group now, or has it wait for a moment. Returns whether there is something to send.
    fn say_soon(&mut self, server: &Server, group: Group) -> bool {
        self.waiting.add(group);
        let now = server.epoch.now();
        if self.may_wait(now).is_none() {
            self.say_waiting(server);
            return true;
        }
        if self.waiting.begin_wait(now) {
            // It must not sleep for longer than this one may wait.
            server.stream.wake();
        }
        false
    }

    /// Says all that waits, now.
    pub(super) fn say_waiting(&mut self, server: &Server) {
        let is_harmless = self.is_harmless(server);
        let now = server.epoch.now();
        while let Some((groups, packing)) = self.waiting.next_batch(is_harmless, now) {
            self.say_together(server, groups, packing);
        }
    }

    /// Says what waits, if answers have made room or it has waited long enough. Returns for how
    /// long it may still wait.
    pub(super) fn say_what_is_due(&mut self, server: &Server) -> Option<Duration> {
        let left = self.may_wait(server.epoch.now());
        if left.is_none() {
            self.say_waiting(server);
        }
        left
    }

    fn may_wait(&self, now: Moment) -> Option<Duration> {
        self.waiting.may_wait(self.in_flight.own(), now)
    }

    /// Says groups now, in as few packets as `packing` allows.
    fn say_together(&mut self, server: &Server, mut groups: Vec<Group>, packing: Packing) {
        if packing.is_none() && groups.len() == 1 && groups[0].is_fresh() {
            return groups.drain(..).for_each(|group| self.say(server, group));
        }
        let batch = Batch::new(groups, packing);
        let mut frames = Vec::new();
        let packets = batch.write(&mut frames);
        self.send(server, frames, packets, Recipient::Batch(Box::new(batch)));
    }

    /// Says a group now, each request in a packet of its own.
    fn say(&mut self, server: &Server, group: Group) {
        let (frames, packets, caller) = group.into_packets();
        self.send(server, frames, packets, Recipient::Caller(caller));
    }

    /// Numbers the packets in `frames`, and queues them, or keeps back those behind which a probe
    /// would stand for too long.
    fn send(
        &mut self,
        server: &Server,
        mut frames: Vec<u8>,
        packets: Vec<Packet>,
        recipient: Recipient,
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
            let recipient = recipient.take_if(|_| index == last);
            if self.may_queue(server, numbered) {
                numbered = frame.end;
                let sent = self.stamp(server, shape.opcode);
                let xid = self.in_flight.say(shape, expected, recipient, sent);
                frame::set_xid(&mut frames[frame], xid);
            } else {
                let frame = frames[frame].to_vec();
                let what = HeldBack::Own {
                    shape,
                    expected,
                    recipient,
                };
                self.in_flight.hold(Held { frame, what });
            }
        }
        self.queue(server, &frames[..numbered]);
    }

    /// A request of the crate goes to the server.
    pub(super) fn forward(
        &mut self,
        server: &Server,
        guest: &Arc<Guest>,
        header: RequestHeader,
        frame: &mut [u8],
        watching: Option<&Watching>,
    ) {
        let (guest, watching) = (Arc::clone(guest), watching.cloned());
        if self.may_queue(server, 0) {
            let sent = self.stamp(server, header.opcode);
            let bytes = frame::body_bytes(frame);
            let xid = self.in_flight.forward(guest, header, bytes, watching, sent);
            frame::set_xid(frame, xid);
            self.queue(server, frame);
        } else {
            let frame = frame.to_vec();
            let what = HeldBack::Crate {
                guest,
                header,
                watching,
            };
            self.in_flight.hold(Held { frame, what });
        }
    }

    /// Leaves a handle's watches again, on a connection that has just been made. Where that is not to
    /// be tried, the handle is told to look again. Returns what is dropped without locks.
    #[must_use]
    pub(super) fn leave_again(
        &mut self,
        server: &Server,
        guest: &Arc<Guest>,
        watches: &[Watching],
    ) -> Vec<Arc<dyn Interest>> {
        let mut in_vain = guest.in_vain(watches);
        for (request, watches) in guest.leave_again(watches, self.watched_zxid) {
            let mut frame = Vec::new();
            let request = Request::SetWatches(request);
            let shape = packet::encode(&request, &mut frame, frame::MAX_REQUEST_BYTES);
            let may = |shape: &Shape| self.admits(server, *shape).is_ok();
            let Some(shape) = shape.ok().filter(may) else {
                in_vain.extend(watches);
                continue;
            };
            let guest = Arc::clone(guest);
            if self.may_queue(server, 0) {
                let sent = self.stamp(server, shape.opcode);
                let xid = self.in_flight.leave_again(guest, watches, shape, sent);
                frame::set_xid(&mut frame, xid);
                self.queue(server, &frame);
            } else {
                let what = HeldBack::Again {
                    guest,
                    shape,
                    watches,
                };
                self.in_flight.hold(Held { frame, what });
            }
        }
        let told = in_vain.iter().map(|watching| guest.look_again(watching));
        told.flatten().collect()
    }
}

impl Wire {
    /// Sends what has waited long enough. Returns when to look again, if something waits.
    pub(super) fn send_what_is_due(&self, server: &Server) -> Option<Duration> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            return None;
        }
        let due = state.say_what_is_due(server);
        drop(state);
        if due.is_none() {
            self.flush(server);
        }
        due
    }

    /// Takes note of how sharing packets has gone, and asks again, each by itself, what came to
    /// nothing because of others. To be called without locks.
    pub(super) fn ask_again(&self, connection: u64, rest: Rest) {
        if rest.is_nothing() {
            return;
        }
        let mut state = self.state.lock();
        state
            .waiting
            .note(connection, rest.outcome, self.config.clock.now());
        if rest.again.is_empty() {
            return;
        }
        let Some(server) = state.server(connection) else {
            drop(state);
            rest.again.into_iter().for_each(Group::tell_lost);
            return;
        };
        state.say_together(&server, rest.again, Packing::NONE);
        drop(state);
        self.flush(&server);
    }
}
