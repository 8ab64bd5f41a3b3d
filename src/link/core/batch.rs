//! Requests of several callers in one packet.
//!
//! A server takes the packets of one connection one by one, and each costs it some 50 us, whatever
//! is in it. So where many threads ask at the same time, what they ask goes together: their creates
//! and deletes in one `multi`, and behind it their lists in one `multiRead`. Each caller is answered
//! as if it had asked alone.
//!
//! - **All or nothing** holds for the `multi`: if one write of it is refused, none is done. Then each
//!   of them is asked again, by itself, and gets an answer of its own. Only writes that are as good
//!   as certain to be done share packets, so that this is rare.
//! - **A server that is too busy**, or at a loss, says so about the packet. That is the answer to each
//!   of them: none is asked again at once.
//! - **Lost** with its connection, a write may have been done or not, as always.
//! - **No packet is long**, whoever fills it: what one caller asks goes in as many as it takes. So
//!   one may be refused when others were done; those are not asked again.
//! - **The order** of writes is that in which they were said, as long as none is refused.
//! - **No transaction number**: 3.8.0 answers a `create2` within a `multi` without the node's stat.
//!   Whoever wants it asks for it.
//! - **Creates of one packet have one transaction**, which is the fencing token of each. So two
//!   contenders of one folder never share a packet: [`waiting`](super::waiting) sees to that.

use zklock_protocol::{ErrorCode, Part, Reply};

use super::answer::{Answer, NoReply};
use super::group::{Group, Packet};
use super::packet::{self, Pack};

/// Of one packet with several requests in it, whoever fills it. Far below the least `jute.maxbuffer`
/// that an ensemble could live with, and so little that a server is never long at one packet.
pub(in crate::link) const MOST_BYTES: usize = 16 << 10;
/// As many requests as one packet has at the most.
pub(in crate::link) const MOST_PARTS: usize = 128;

/// Groups that were said together, and what is in which packet.
pub(in crate::link) struct Batch {
    groups: Vec<Group>,
    contents: Vec<Content>,
}

/// A part of a group.
#[derive(Clone, Copy)]
struct At {
    group: usize,
    part: usize,
}

/// What is in one packet.
enum Content {
    Together(Pack, Vec<At>),
    Alone(At),
}

/// What kinds of requests may be packed.
#[derive(Clone, Copy)]
pub(in crate::link) struct Packing {
    pub(in crate::link) writes: bool,
    pub(in crate::link) lists: bool,
}

impl Packing {
    pub(in crate::link) const NONE: Self = Self {
        writes: false,
        lists: false,
    };

    pub(in crate::link) fn is_none(self) -> bool {
        !self.writes && !self.lists
    }
}

/// How sharing packets has gone.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::link) struct Outcome {
    /// A multi was done.
    pub(in crate::link) done: bool,
    /// A multi was refused.
    pub(in crate::link) refused: bool,
    /// Of whether the server knows a request for several lists.
    pub(in crate::link) lists: Sign,
    /// The same of a multi.
    pub(in crate::link) writes: Sign,
}

/// What an answer, or its lack, says of whether a server knows a kind of request.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::link) enum Sign {
    #[default]
    Nothing,
    HungUp,
    Answered,
    Unknown,
}

impl Batch {
    /// All that has no answer yet: writes first, then what goes by itself, then lists.
    pub(in crate::link) fn new(groups: Vec<Group>, packing: Packing) -> Self {
        let (mut writes, mut others, mut lists) = (Vec::new(), Vec::new(), Vec::new());
        for (number, group) in groups.iter().enumerate() {
            for part in (0..group.len()).filter(|part| !group.is_answered(*part)) {
                let at = At {
                    group: number,
                    part,
                };
                match group.pack(part) {
                    Pack::Write => writes.push(at),
                    Pack::Never => others.push(at),
                    Pack::List => lists.push(at),
                }
            }
        }
        let mut contents = Vec::new();
        let mut add = |pack, may: bool, all: Vec<At>| {
            let bytes = |at: &At| groups[at.group].record(at.part).1.len();
            for packet in split(&all, if may { MOST_PARTS } else { 1 }, bytes) {
                contents.push(match packet {
                    [at] => Content::Alone(*at),
                    several => Content::Together(pack, several.to_vec()),
                });
            }
        };
        add(Pack::Write, packing.writes, writes);
        add(Pack::Never, false, others);
        add(Pack::List, packing.lists, lists);
        Self { groups, contents }
    }

    /// Appends its packets.
    pub(in crate::link) fn write(&self, frames: &mut Vec<u8>) -> Vec<Packet> {
        let each = self.contents.iter().map(|content| {
            let start = frames.len();
            let (shape, expected) = match content {
                Content::Alone(at) => self.groups[at.group].write(at.part, frames),
                Content::Together(pack, all) => {
                    let records = all.iter().map(|at| self.groups[at.group].record(at.part));
                    packet::pack(*pack, records, frames)
                }
            };
            Packet {
                frame: start..frames.len(),
                shape,
                expected,
            }
        });
        each.collect()
    }

    /// Hands every caller its answers, and returns the groups of which something was refused because
    /// of others, or of the packet. To be called without locks.
    pub(in crate::link) fn completed(mut self, answers: Vec<Answer>) -> (Outcome, Vec<Group>) {
        let contents = std::mem::take(&mut self.contents);
        let mut outcome = Outcome::default();
        let mut undone = Vec::new();
        for (content, answer) in contents.into_iter().zip(answers) {
            match content {
                Content::Alone(at) => self.answer(at, answer),
                Content::Together(pack, all) => {
                    outcome.note(pack, &answer.result);
                    if !self.share_out(pack, &all, answer) && pack == Pack::Write {
                        undone.extend(all.iter().map(|at| at.group));
                    }
                }
            }
        }
        for group in undone {
            self.groups[group].forget_reads();
        }
        let unanswered: Vec<_> = self
            .groups
            .into_iter()
            .filter_map(|group| group.tell().err())
            .collect();
        (outcome, unanswered)
    }

    fn answer(&mut self, at: At, answer: Answer) {
        self.groups[at.group].answer(at.part, answer);
    }

    /// Returns whether each of `all` has an answer now.
    fn share_out(&mut self, pack: Pack, all: &[At], answer: Answer) -> bool {
        let events_before = answer.events_before;
        let refused = |at: &At, error| self.groups[at.group].refused(at.part, error);
        let each: Vec<Result<Reply, NoReply>> = match answer.result {
            Ok(Reply::Parts(parts)) if pack == Pack::List || is_done(&parts) => {
                let each = all.iter().zip(parts).map(|(at, part)| match part {
                    Part::Done(_, reply) => Ok(reply),
                    Part::Failed(error) => Err(refused(at, error)),
                });
                each.collect()
            }
            Err(NoReply::Lost(_)) => {
                let lost = |at: &At| Err(self.groups[at.group].lost(at.part));
                all.iter().map(lost).collect()
            }
            // Nothing about any of them, but about the server: each may ask again when it likes.
            Err(NoReply::Refused { error, .. }) if !is_by_one(pack, error) => {
                all.iter().map(|at| Err(refused(at, error))).collect()
            }
            _ => return false,
        };
        for (at, result) in all.iter().zip(each) {
            self.answer(
                *at,
                Answer {
                    result,
                    events_before,
                },
            );
        }
        true
    }
}

/// Packets of no more than `most` parts each, in their order; of one part, whatever its length.
fn split(all: &[At], most: usize, bytes: impl Fn(&At) -> usize) -> Vec<&[At]> {
    let mut packets = Vec::new();
    let mut rest = all;
    while !rest.is_empty() {
        let mut length = packet::PACK_BYTES;
        let fit = rest.iter().take(most).take_while(|at| {
            length += packet::PACK_PART_BYTES + bytes(at);
            length <= MOST_BYTES
        });
        let (packet, left) = rest.split_at(fit.count().max(1));
        packets.push(packet);
        rest = left;
    }
    packets
}

/// Whether a packet was refused because of one of its requests, or of their number. Of writes, an
/// answer that nobody can read says nothing.
fn is_by_one(pack: Pack, error: ErrorCode) -> bool {
    error.is_about_a_request() && (pack == Pack::List || error != ErrorCode::MARSHALLING_ERROR)
}

/// Whether a multi was done.
fn is_done(parts: &[Part]) -> bool {
    Part::refused(parts).is_none()
}

impl Outcome {
    fn note(&mut self, pack: Pack, result: &Result<Reply, NoReply>) {
        let error = match result {
            Err(NoReply::Refused { error, .. }) => Some(*error),
            _ => None,
        };
        let sign = match (result, error) {
            (Err(NoReply::Lost(lost)), _) if lost.by_server && lost.breaks > 0 => Sign::HungUp,
            (_, Some(ErrorCode::UNIMPLEMENTED)) => Sign::Unknown,
            // That it has no time says nothing of what it takes.
            (_, Some(ErrorCode::THROTTLED_OP)) | (Err(_), None) => Sign::Nothing,
            (Ok(_), _) | (_, Some(_)) => Sign::Answered,
        };
        let before = match pack {
            Pack::List => &mut self.lists,
            _ => &mut self.writes,
        };
        *before = sign.max(*before);
        if pack == Pack::Write {
            match (result, error) {
                (Ok(Reply::Parts(parts)), _) if is_done(parts) => self.done = true,
                (_, Some(ErrorCode::THROTTLED_OP)) | (Err(NoReply::Lost(_)), _) => {}
                _ => self.refused = true,
            }
        }
    }
}
