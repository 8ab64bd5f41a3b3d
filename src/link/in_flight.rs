//! What has been asked and not answered, by the crate and by ourselves, in one order.

use std::collections::VecDeque;
use std::sync::Arc;

use zklock_protocol::{ErrorCode, Expected, Malformed, Part, Reader, Reply, opcode};

use super::clock::Moment;
use super::core::answer::{Lost, RawReply};
use super::core::chain::Sent;
use super::core::completed::{Completed, Recipient};
use super::core::frame::{self, ReplyHeader, RequestHeader};
use super::core::packet::Shape;
use super::core::poison::PoisonCounts;
use super::guest::{Guest, Interest, Left, Watching};

/// All of one link, over all connections. Servers answer in the order in which they are asked.
#[derive(Default)]
pub(super) struct InFlight {
    queue: VecDeque<Sending>,
    /// Behind that: what is kept back while the server takes bytes slowly, so that a probe, which
    /// is never kept back, need not stand behind it. Asked in this order.
    held: VecDeque<Held>,
    /// Of their frames.
    held_bytes: usize,
    last_xid: i32,
    /// How many of the queue are requests of our own.
    own: usize,
    /// How many leave watches again, also of those that are kept back.
    again: usize,
    /// The replies so far to the group of our requests whose last one has none yet. The group is at
    /// the front, side by side, as it was added under one lock.
    replies: Vec<RawReply>,
    poison: PoisonCounts,
}

/// One request that was given a number, and how far its bytes have come.
struct Sending {
    entry: Entry,
    /// Where its bytes end among all that were queued for this connection, once they are.
    end: u64,
    /// When the kernel had taken the last of them: from then on an answer is waited for.
    taken: Option<Moment>,
}

/// Where the bytes of a request end that are not queued yet.
const NOT_QUEUED: u64 = u64::MAX;

/// A request that is not sent yet. It has no number, and nothing is known of its worth.
pub(super) struct Held {
    pub(super) frame: Vec<u8>,
    pub(super) what: HeldBack,
}

pub(super) enum HeldBack {
    Crate {
        guest: Arc<Guest>,
        header: RequestHeader,
        watching: Option<Watching>,
    },
    Own {
        shape: Shape,
        expected: Expected,
        recipient: Option<Recipient>,
    },
    /// Leaves a handle's watches again.
    Again {
        guest: Arc<Guest>,
        shape: Shape,
        watches: Vec<Watching>,
    },
    /// Answered by us, in its turn.
    Local {
        guest: Arc<Guest>,
        number: i32,
        err: i32,
    },
}

/// Why a connection is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The server has hung up: perhaps because of something that was in flight.
    ByServer,
    /// We have, for what was on its way took too long: perhaps because it was too large.
    TooSlow,
    ByUs,
}

/// One request that has no answer yet.
enum Entry {
    /// The crate's, answered by the server to the number that we gave it.
    Crate {
        xid: i32,
        /// The number that its answer carries.
        number: i32,
        shape: Shape,
        sent: Sent,
        guest: Arc<Guest>,
        /// The watch that it leaves.
        watching: Option<Watching>,
    },
    /// The crate's, answered by us when it is its turn.
    Local {
        guest: Arc<Guest>,
        number: i32,
        err: i32,
    },
    /// Leaves a handle's watches again that an earlier connection has taken along.
    Again {
        xid: i32,
        shape: Shape,
        sent: Sent,
        guest: Arc<Guest>,
        watches: Vec<Watching>,
    },
    /// Our own.
    Own {
        xid: i32,
        shape: Shape,
        expected: Expected,
        sent: Sent,
        /// With the last of those that were said together: who is told.
        recipient: Option<Recipient>,
    },
    /// The link's own, to prove that the session is alive.
    Probe {
        xid: i32,
        expected: Expected,
        sent: Sent,
        /// The number of the node of ours that it asks for.
        node: Option<u64>,
    },
    /// Our own, to close the session; nobody is told.
    Close { xid: i32 },
}

/// What a reply of the server answers. With `proof`, it was done.
pub(super) enum Answered {
    /// A request of a handle of the crate, which waits for it under `number`.
    Crate {
        guest: Arc<Guest>,
        number: i32,
        proof: Option<Sent>,
        /// The watch that it was to leave, and whether it has.
        watch: Option<(Watching, Option<Left>)>,
    },
    /// A request that leaves a handle's watches again; and whether it has.
    Again {
        guest: Arc<Guest>,
        watches: Vec<Watching>,
        proof: Option<Sent>,
    },
    /// One of our own; when all that were said together are answered, who is told, and what.
    Own {
        proof: Option<Sent>,
        completed: Option<Completed>,
    },
    Probe(Probed),
    /// Our request to close the session.
    Close,
}

/// What a probe came to.
pub(super) enum Probed {
    Done(Sent),
    /// The node of ours with this number, which the probe checked, is gone.
    NodeGone(u64),
    /// This server does not do what was asked.
    Refused,
    /// Or not now.
    PutOff,
}

/// What the link waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    ForNothing,
    /// What comes first has not been taken whole.
    ForTheKernel,
    /// An answer.
    Since(Moment),
}

/// A reply that answers nothing, or not what was asked.
#[derive(Debug)]
pub(super) struct Nonsense(pub(super) String);

impl InFlight {
    fn xid(&mut self) -> i32 {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.last_xid
    }

    /// A request of the crate goes to the server: returns the number to send it with.
    pub(super) fn forward(
        &mut self,
        guest: Arc<Guest>,
        header: RequestHeader,
        bytes: usize,
        watching: Option<Watching>,
        sent: Sent,
    ) -> i32 {
        let xid = self.xid();
        self.push(Entry::Crate {
            xid,
            number: harmless(header),
            shape: Shape {
                opcode: header.opcode,
                bytes,
            },
            sent,
            guest,
            watching,
        });
        xid
    }

    /// A handle's watches are left again: returns the number to send the request with.
    pub(super) fn leave_again(
        &mut self,
        guest: Arc<Guest>,
        watches: Vec<Watching>,
        shape: Shape,
        sent: Sent,
    ) -> i32 {
        let xid = self.xid();
        self.push(Entry::Again {
            xid,
            shape,
            sent,
            guest,
            watches,
        });
        self.again += 1;
        xid
    }

    /// Whether watches of a handle may not be on the server yet.
    pub(super) fn leaves_any_again(&self) -> bool {
        self.again > 0
    }

    /// A request of the crate is answered by us, when all before it are answered.
    pub(super) fn answer_locally(&mut self, guest: Arc<Guest>, header: RequestHeader, err: i32) {
        let number = harmless(header);
        if self.held.is_empty() {
            self.push(Entry::Local { guest, number, err });
        } else {
            // The crate takes the first answer for its first request.
            let what = HeldBack::Local { guest, number, err };
            let frame = Vec::new();
            self.hold(Held { frame, what });
        }
    }

    fn push(&mut self, entry: Entry) {
        self.queue.push_back(Sending {
            entry,
            end: NOT_QUEUED,
            taken: None,
        });
    }

    /// The bytes of all that has been given a number end here.
    pub(super) fn queued(&mut self, end: u64) {
        let new = self.queue.iter_mut().rev();
        for one in new.take_while(|one| one.end == NOT_QUEUED) {
            one.end = end;
        }
    }

    /// The kernel has taken the bytes up to here.
    pub(super) fn taken(&mut self, end: u64, now: Moment) {
        let new = self.queue.iter_mut().rev();
        for one in new.take_while(|one| one.taken.is_none()) {
            if one.end <= end {
                one.taken = Some(now);
            }
        }
    }

    /// Keeps a request back.
    pub(super) fn hold(&mut self, held: Held) {
        self.held_bytes += held.frame.len();
        self.own += usize::from(matches!(held.what, HeldBack::Own { .. }));
        self.again += usize::from(matches!(held.what, HeldBack::Again { .. }));
        self.held.push_back(held);
    }

    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Of what is kept back.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The first of what was kept back, to be given a number now, or answered in its turn.
    pub(super) fn release(&mut self) -> Option<Held> {
        let held = self.held.pop_front()?;
        self.held_bytes -= held.frame.len();
        self.own -= usize::from(matches!(held.what, HeldBack::Own { .. }));
        self.again -= usize::from(matches!(held.what, HeldBack::Again { .. }));
        Some(held)
    }

    /// As [`answer_locally`](Self::answer_locally), for one that was kept back.
    pub(super) fn its_turn(&mut self, guest: Arc<Guest>, number: i32, err: i32) {
        self.push(Entry::Local { guest, number, err });
    }

    /// A request of ours goes to the server: returns the number to send it with. With the last of
    /// those that go together comes who is told.
    pub(super) fn say(
        &mut self,
        shape: Shape,
        expected: Expected,
        recipient: Option<Recipient>,
        sent: Sent,
    ) -> i32 {
        let xid = self.xid();
        self.push(Entry::Own {
            xid,
            shape,
            expected,
            sent,
            recipient,
        });
        self.own += 1;
        xid
    }

    /// A probe goes to the server: returns the number to send it with.
    pub(super) fn probe(&mut self, expected: Expected, sent: Sent, node: Option<u64>) -> i32 {
        let xid = self.xid();
        self.push(Entry::Probe {
            xid,
            expected,
            sent,
            node,
        });
        xid
    }

    /// How many packets of requests of our own are under way, or kept back.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Since when the server owes us an answer: since the kernel has taken the last byte of the
    /// request that comes first. Not while it takes them: a large request on a slow network is under
    /// way, and so are those behind it.
    pub(super) fn waits_since(&self) -> Waits {
        let first = self.queue.iter().find(|one| one.entry.sent().is_some());
        match first.map(|one| one.taken) {
            None => Waits::ForNothing,
            Some(None) => Waits::ForTheKernel,
            Some(Some(taken)) => Waits::Since(taken),
        }
    }

    /// Our own last request: returns the number to send it with.
    pub(super) fn close_session(&mut self) -> i32 {
        let xid = self.xid();
        self.push(Entry::Close { xid });
        xid
    }

    /// A reply came. If it is none, what it seemed to answer stays in flight, and is answered with
    /// the rest when the connection is cut.
    pub(super) fn answered(
        &mut self,
        header: ReplyHeader,
        record: &[u8],
        events_before: u64,
    ) -> Result<Answered, Nonsense> {
        let front = self.queue.front().map(|one| &one.entry);
        if front.and_then(Entry::xid) != Some(header.xid) {
            return Err(out_of_turn(header));
        }
        if let Some(Entry::Crate { shape, .. }) = front
            && header.err == frame::OK
        {
            digestible(shape.opcode, record).map_err(malformed)?;
        }
        match self.queue.pop_front().map(|one| one.entry) {
            Some(Entry::Crate {
                number,
                sent,
                shape,
                guest,
                watching,
                ..
            }) => {
                self.poison.acquit(shape);
                let proof = proof(shape.opcode, sent, header, record);
                let left = left(shape.opcode, header.err);
                Ok(Answered::Crate {
                    guest,
                    number,
                    proof,
                    watch: watching.map(|watching| (watching, left)),
                })
            }
            Some(Entry::Again {
                shape,
                sent,
                guest,
                watches,
                ..
            }) => {
                self.again -= 1;
                self.poison.acquit(shape);
                Ok(Answered::Again {
                    guest,
                    watches,
                    proof: (header.err == frame::OK).then_some(sent),
                })
            }
            Some(Entry::Own {
                shape,
                expected,
                sent,
                recipient,
                ..
            }) => {
                self.own -= 1;
                self.poison.acquit(shape);
                let proof = proof(shape.opcode, sent, header, record);
                self.replies.push(RawReply::Reply {
                    asked: shape.opcode,
                    expected,
                    error: ErrorCode(header.err),
                    record: record.to_vec(),
                    bytes: shape.bytes,
                    events_before,
                });
                let completed = recipient
                    .map(|recipient| Completed::new(recipient, std::mem::take(&mut self.replies)));
                Ok(Answered::Own { proof, completed })
            }
            Some(Entry::Probe {
                expected,
                sent,
                node,
                ..
            }) => probed(&expected, sent, node, header, record).map(Answered::Probe),
            _ => Ok(Answered::Close),
        }
    }

    /// Gives the crate the answers of ours whose turn it is now.
    pub(super) fn give_what_is_due(&mut self) {
        while let Some(Entry::Local { guest, number, err }) =
            self.queue.front().map(|one| &one.entry)
        {
            guest.answer(&frame::reply(*number, *err));
            self.queue.pop_front();
        }
    }

    /// The connection is gone: what was in flight may have been done or not. Returns what is to be
    /// seen to without locks.
    pub(super) fn all_lost(&mut self, ended: Ended, now: Moment) -> AllLost {
        match ended {
            Ended::ByServer => {
                let shapes = self.queue.iter().filter_map(|one| one.entry.shape());
                self.poison.hung_up(shapes, now);
            }
            Ended::TooSlow => {
                let stuck = self.queue.iter().find(|one| one.taken.is_none());
                if let Some(shape) = stuck.and_then(|one| one.entry.shape()) {
                    self.poison.too_slow(shape, now);
                }
            }
            Ended::ByUs => {}
        }
        let by_server = ended == Ended::ByServer;
        let mut lost = AllLost::default();
        for one in std::mem::take(&mut self.queue) {
            match one.entry {
                Entry::Crate {
                    guest,
                    number,
                    shape,
                    watching,
                    ..
                } => {
                    // Whoever repeats what breaks connections breaks the next one, for everybody.
                    let err = if self.loss(shape, by_server).is_poison() {
                        frame::ERR_MARSHALLING
                    } else {
                        frame::ERR_CONNECTION_LOSS
                    };
                    guest.answer(&frame::reply(number, err));
                    lost.interest(&guest, watching.as_ref());
                }
                Entry::Local { guest, number, err } => guest.answer(&frame::reply(number, err)),
                Entry::Own {
                    shape, recipient, ..
                } => {
                    let completed = self.lost(shape, recipient, by_server);
                    lost.completed.extend(completed);
                }
                // On the next connection the handle is told. Now it could only look in vain.
                Entry::Again { guest, watches, .. } => guest.tried_in_vain(&watches),
                Entry::Probe { .. } | Entry::Close { .. } => {}
            }
        }
        for held in std::mem::take(&mut self.held) {
            match held.what {
                HeldBack::Crate {
                    guest,
                    header,
                    watching,
                } => {
                    guest.answer(&frame::reply(harmless(header), frame::ERR_CONNECTION_LOSS));
                    lost.interest(&guest, watching.as_ref());
                }
                HeldBack::Local { guest, number, err } => guest.answer(&frame::reply(number, err)),
                // No server has seen it: the next one does.
                HeldBack::Again { .. } => {}
                HeldBack::Own {
                    shape, recipient, ..
                } => {
                    let completed = self.lost(shape, recipient, by_server);
                    lost.completed.extend(completed);
                }
            }
        }
        (self.own, self.again, self.held_bytes) = (0, 0, 0);
        lost
    }

    /// Whether one of this kind and length would break the connection as it has broken others.
    pub(super) fn is_poison(&self, shape: Shape, now: Moment) -> bool {
        self.poison.forbids(shape, now)
    }

    /// What is known of a request that went down with its connection.
    fn loss(&self, shape: Shape, by_server: bool) -> Lost {
        Lost {
            bytes: shape.bytes,
            breaks: self.poison.breaks(shape),
            by_server,
        }
    }

    fn lost(
        &mut self,
        shape: Shape,
        recipient: Option<Recipient>,
        by_server: bool,
    ) -> Option<Completed> {
        let loss = self.loss(shape, by_server);
        self.replies.push(RawReply::Lost(loss));
        recipient.map(|recipient| Completed::new(recipient, std::mem::take(&mut self.replies)))
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn unanswered(&self) -> usize {
        self.queue.len() + self.held.len()
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn has_probe(&self) -> bool {
        let mut all = self.queue.iter();
        all.any(|one| matches!(one.entry, Entry::Probe { .. }))
    }
}

/// What is to be seen to without locks, when a connection has gone.
#[derive(Default)]
pub(super) struct AllLost {
    /// Who is told.
    pub(super) completed: Vec<Completed>,
    /// Interests in watches that will never be left. To be dropped.
    pub(super) over: Vec<Arc<dyn Interest>>,
}

impl AllLost {
    fn interest(&mut self, guest: &Guest, watching: Option<&Watching>) {
        let over = watching.and_then(|watching| guest.heard(watching, None));
        self.over.extend(over);
    }
}

impl Entry {
    /// Of those that the server answers.
    fn xid(&self) -> Option<i32> {
        match self {
            Self::Crate { xid, .. }
            | Self::Again { xid, .. }
            | Self::Own { xid, .. }
            | Self::Probe { xid, .. }
            | Self::Close { xid } => Some(*xid),
            Self::Local { .. } => None,
        }
    }

    fn shape(&self) -> Option<Shape> {
        match self {
            Self::Crate { shape, .. } | Self::Again { shape, .. } | Self::Own { shape, .. } => {
                Some(*shape)
            }
            Self::Local { .. } | Self::Probe { .. } | Self::Close { .. } => None,
        }
    }

    fn sent(&self) -> Option<Sent> {
        match self {
            Self::Crate { sent, .. }
            | Self::Again { sent, .. }
            | Self::Own { sent, .. }
            | Self::Probe { sent, .. } => Some(*sent),
            Self::Local { .. } | Self::Close { .. } => None,
        }
    }
}

/// What this answer is worth: nothing if it says that something was not done.
fn proof(opcode: i32, sent: Sent, header: ReplyHeader, record: &[u8]) -> Option<Sent> {
    // So begins the record of a multi that was not done.
    let is_aborted = opcode == opcode::MULTI && record.starts_with(&opcode::ERROR.to_be_bytes());
    (header.err == frame::OK && !is_aborted).then_some(sent)
}

fn probed(
    expected: &Expected,
    sent: Sent,
    node: Option<u64>,
    header: ReplyHeader,
    record: &[u8],
) -> Result<Probed, Nonsense> {
    let answer = expected.read(ErrorCode(header.err), record);
    let error = match answer.map_err(malformed)? {
        Ok(Reply::Parts(parts)) => Part::refused(&parts).map(|(_, error)| error),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    let Some(error) = error else {
        return Ok(Probed::Done(sent));
    };
    match node {
        Some(number) if error == ErrorCode::NO_NODE => Ok(Probed::NodeGone(number)),
        _ if error.is_about_a_request() => Ok(Probed::Refused),
        _ => Ok(Probed::PutOff),
    }
}

/// Whether the crate can digest this successful reply to its request: it allocates whatever a
/// length claims, and panics at a negative count and at names that are not UTF-8. What it does not
/// look at is not checked.
fn digestible(opcode: i32, record: &[u8]) -> Result<(), Malformed> {
    match opcode {
        opcode::CREATE
        | opcode::EXISTS
        | opcode::SET_DATA
        | opcode::SET_ACL
        | opcode::GET_DATA
        | opcode::GET_CHILDREN
        | opcode::GET_ACL => Reply::read(opcode, &mut Reader::strict(record)).map(drop),
        _ => Ok(()),
    }
}

/// The watch that a request of the crate has left, if it was to leave one.
fn left(opcode: i32, err: i32) -> Option<Left> {
    match opcode {
        opcode::EXISTS if ErrorCode(err) == ErrorCode::NO_NODE => Some(Left::Missing),
        _ if err != frame::OK => None,
        opcode::EXISTS | opcode::GET_DATA => Some(Left::Data),
        opcode::GET_CHILDREN | opcode::GET_CHILDREN_2 => Some(Left::Children),
        _ => None,
    }
}

fn malformed(why: Malformed) -> Nonsense {
    Nonsense(format!("the server sent a reply that is {why}"))
}

fn out_of_turn(header: ReplyHeader) -> Nonsense {
    Nonsense(format!(
        "the server answered request {} out of turn",
        header.xid
    ))
}

/// The crate takes -1 for a watch event and -2 for the answer to its ping, and its own numbers wrap
/// around to both after 2^32 requests; others it does not look at.
fn harmless(header: RequestHeader) -> i32 {
    if header.opcode == frame::OP_PING {
        frame::XID_PING
    } else {
        header.xid & i32::MAX
    }
}
