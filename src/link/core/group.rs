//! What one caller says together, as bytes.

use std::ops::Range;
use std::sync::Arc;

use zklock_protocol::{ErrorCode, Expected, Request, opcode};

use super::answer::{Answer, Completion, Lost, NoReply};
use super::caller::Caller;
use super::frame;
use super::packet::{self, Pack, Shape, TooLarge};

/// Requests that one caller hears the answers to.
pub(in crate::link) struct Group {
    frames: Vec<u8>,
    parts: Vec<Part>,
    /// In which it creates nodes, if in any: one for all.
    folder: Option<String>,
    /// The answers so far, one for each part.
    answers: Vec<Option<Answer>>,
    caller: Caller,
}

/// One request of a group.
struct Part {
    packet: Packet,
    pack: Pack,
}

/// A packet among others.
#[derive(Clone)]
pub(in crate::link) struct Packet {
    /// Where its frame is.
    pub(in crate::link) frame: Range<usize>,
    pub(in crate::link) shape: Shape,
    /// What its answer looks like.
    pub(in crate::link) expected: Expected,
}

impl Group {
    pub(in crate::link) fn encode(
        requests: &[Request],
        completion: Arc<dyn Completion>,
    ) -> Result<Self, TooLarge> {
        let mut frames = Vec::new();
        let mut parts = Vec::with_capacity(requests.len());
        let mut folder = None;
        for request in requests {
            let start = frames.len();
            folder = folder.or_else(|| packet::creates_in(request).map(str::to_owned));
            let shape = packet::encode(request, &mut frames, frame::MAX_REQUEST_BYTES)?;
            let packet = Packet {
                frame: start..frames.len(),
                shape,
                expected: Expected::of(request),
            };
            let pack = packet::pack_of(request);
            parts.push(Part { packet, pack });
        }
        Ok(Self {
            frames,
            answers: vec![None; parts.len()],
            parts,
            folder,
            caller: Caller::new(completion, requests.len()),
        })
    }

    pub(in crate::link) fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }

    pub(in crate::link) fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// Of its requests.
    pub(in crate::link) fn longest(&self) -> usize {
        let bytes = self.parts.iter().map(|part| part.packet.frame.len());
        bytes.max().unwrap_or(0)
    }

    /// How many requests it has.
    pub(in crate::link) fn len(&self) -> usize {
        self.parts.len()
    }

    /// How a part can share a packet.
    pub(in crate::link) fn pack(&self, part: usize) -> Pack {
        self.parts[part].pack
    }

    /// It will not be sent: its caller hears nothing.
    pub(in crate::link) fn forget(mut self) {
        self.caller.forget();
    }

    /// For a group that shares no packet: its frames, and its caller.
    pub(in crate::link) fn into_packets(self) -> (Vec<u8>, Vec<Packet>, Caller) {
        let packets = self.parts.into_iter().map(|part| part.packet);
        (self.frames, packets.collect(), self.caller)
    }

    /// Whether some of its requests can share a packet with each other.
    pub(in crate::link) fn can_share_alone(&self) -> bool {
        let several = |pack| self.parts.iter().filter(|part| part.pack == pack).count() > 1;
        several(Pack::Write) || several(Pack::List)
    }

    /// The kind of a part, and what is asked, without a header.
    pub(in crate::link) fn record(&self, part: usize) -> (i32, &[u8]) {
        let packet = &self.parts[part].packet;
        let frame = &self.frames[packet.frame.clone()];
        (packet.shape.opcode, frame::record(frame))
    }

    /// Appends the packet of a part by itself.
    pub(in crate::link) fn write(&self, part: usize, frames: &mut Vec<u8>) -> (Shape, Expected) {
        let packet = self.parts[part].packet.clone();
        frames.extend_from_slice(&self.frames[packet.frame]);
        (packet.shape, packet.expected)
    }

    /// Whether no part of it is answered.
    pub(in crate::link) fn is_fresh(&self) -> bool {
        self.answers.iter().all(Option::is_none)
    }

    pub(in crate::link) fn is_answered(&self, part: usize) -> bool {
        self.answers[part].is_some()
    }

    pub(in crate::link) fn answer(&mut self, part: usize, answer: Answer) {
        self.answers[part] = Some(answer);
    }

    /// A part is refused in a packet, as it would be by itself.
    pub(in crate::link) fn refused(&self, part: usize, error: ErrorCode) -> NoReply {
        let asked = self.parts[part].packet.shape.opcode;
        NoReply::Refused { asked, error }
    }

    /// Some of its writes were not done: its lists, which were to see them, have not.
    pub(in crate::link) fn forget_reads(&mut self) {
        for (part, answer) in self.parts.iter().zip(&mut self.answers) {
            if !opcode::is_write(part.packet.shape.opcode) {
                *answer = None;
            }
        }
    }

    /// As the answer to a part that went down with its connection, or never went.
    pub(in crate::link) fn lost(&self, part: usize) -> NoReply {
        NoReply::Lost(Lost::by_us(self.parts[part].packet.shape.bytes))
    }

    /// Tells the caller, if all is answered; otherwise gives the group back. To be called without
    /// locks.
    pub(in crate::link) fn tell(mut self) -> Result<(), Self> {
        if self.answers.iter().any(Option::is_none) {
            return Err(self);
        }
        let answers = self.answers.drain(..).flatten().collect();
        self.caller.completed(answers);
        Ok(())
    }

    /// That nothing will come. To be called without locks.
    pub(in crate::link) fn tell_lost(mut self) {
        for part in 0..self.len() {
            if !self.is_answered(part) {
                self.answer(part, self.lost(part).into());
            }
        }
        let told = self.tell();
        debug_assert!(told.is_ok(), "all is answered");
    }
}
