//! What one caller says together, as bytes.

use std::ops::Range;
use std::sync::Arc;

use super::codec::{Expected, Pack, Request, Shape, TooLarge};
use super::frame;
use super::voice::{Answer, Lost, Slot, Told};
use super::wire::{Server, State};

/// Requests that one slot hears the answers to.
pub(super) struct Group {
    frames: Vec<u8>,
    parts: Vec<Part>,
    /// In which it creates nodes, if in any: one for all.
    folder: Option<String>,
    /// The answers so far, one for each part, with the number of events before it.
    answers: Vec<Option<(Answer, u64)>>,
    slot: Arc<dyn Slot>,
}

/// One request of a group.
struct Part {
    frame: Range<usize>,
    shape: Shape,
    expected: Expected,
    pack: Pack,
}

impl Group {
    pub(super) fn encode(requests: &[Request], slot: Arc<dyn Slot>) -> Result<Self, TooLarge> {
        let mut frames = Vec::new();
        let mut parts = Vec::with_capacity(requests.len());
        let mut folder = None;
        for request in requests {
            let start = frames.len();
            folder = folder.or_else(|| request.creates_in().map(str::to_owned));
            let shape = request.encode(&mut frames, frame::MAX_REQUEST_BYTES)?;
            parts.push(Part {
                frame: start..frames.len(),
                shape,
                expected: request.expected(),
                pack: request.pack(),
            });
        }
        Ok(Self {
            frames,
            answers: vec![None; parts.len()],
            parts,
            folder,
            slot,
        })
    }

    pub(super) fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }

    pub(super) fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// How many requests it has.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// How a part can share a packet.
    pub(super) fn pack(&self, part: usize) -> Pack {
        self.parts[part].pack
    }

    /// Whether some of its requests can share a packet with each other.
    pub(super) fn has_company_of_its_own(&self) -> bool {
        let several = |pack| self.parts.iter().filter(|part| part.pack == pack).count() > 1;
        several(Pack::Write) || several(Pack::List)
    }

    /// The kind of a part, and what is asked, without a header.
    pub(super) fn record(&self, part: usize) -> (i32, &[u8]) {
        let part = &self.parts[part];
        let frame = &self.frames[part.frame.clone()];
        (part.shape.opcode, frame::record(frame))
    }

    /// Appends the packet of a part by itself.
    pub(super) fn write(&self, part: usize, frames: &mut Vec<u8>) -> (Shape, Expected) {
        let part = &self.parts[part];
        frames.extend_from_slice(&self.frames[part.frame.clone()]);
        (part.shape, part.expected.clone())
    }

    pub(super) fn is_answered(&self, part: usize) -> bool {
        self.answers[part].is_some()
    }

    pub(super) fn answer(&mut self, part: usize, answer: Answer, events_before: u64) {
        self.answers[part] = Some((answer, events_before));
    }

    /// None of it was done: all is to be asked again.
    pub(super) fn forget_answers(&mut self) {
        self.answers.fill(None);
    }

    /// As the answer to a part that went down with its connection, or never went.
    pub(super) fn lost(&self, part: usize) -> Answer {
        Answer::Lost(Lost {
            bytes: self.parts[part].shape.bytes,
            breaks: 0,
        })
    }

    /// Tells the caller, if all is answered; otherwise gives the group back. To be called without
    /// locks.
    pub(super) fn tell(mut self) -> Result<(), Self> {
        if self.answers.iter().any(Option::is_none) {
            return Err(self);
        }
        let answers = self.answers.drain(..).flatten();
        let (answers, events) = answers.unzip();
        self.slot.answered(answers, events);
        Ok(())
    }

    /// That nothing will come. To be called without locks.
    pub(super) fn tell_lost(mut self) {
        for part in 0..self.len() {
            if !self.is_answered(part) {
                self.answer(part, self.lost(part), 0);
            }
        }
        let told = self.tell();
        debug_assert!(told.is_ok(), "all is answered");
    }
}

impl State {
    /// Says a group now, each request in a packet of its own.
    pub(super) fn say(&mut self, server: &Server, group: Group) {
        let Group {
            mut frames,
            parts,
            slot,
            ..
        } = group;
        let mut slot = Some(slot);
        let last = parts.len() - 1;
        for (index, part) in parts.into_iter().enumerate() {
            let told = slot.take_if(|_| index == last).map(Told::Caller);
            let frame = &mut frames[part.frame];
            self.number(server, frame, part.shape, part.expected, told);
        }
        self.queue(server, &frames);
    }

    /// The packet in `frame` is said now: gives it its number. With the last of those that are said
    /// together comes who is told.
    pub(super) fn number(
        &mut self,
        server: &Server,
        frame: &mut [u8],
        shape: Shape,
        expected: Expected,
        told: Option<Told>,
    ) {
        let sent = self.stamp(server, shape.opcode);
        let xid = self.in_flight.say(shape, expected, told, sent);
        frame::set_xid(frame, xid);
    }
}
