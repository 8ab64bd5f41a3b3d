//! What has been asked and not answered, by handles of the crate and by ourselves, in one order.

use std::collections::VecDeque;
use std::sync::Arc;

use zklock_protocol::{ErrorCode, Expected};

use super::answer::{Lost, RawReply};
use super::chain::Sent;
use super::completed::{Completed, Recipient};
use super::frame::{self, ReplyHeader};
use super::handles::{HandleId, Handles, Interest, Left, Watching};
use super::moment::Moment;
use super::packet::Shape;
use super::poison::PoisonCounts;
use super::reply::{self, Nonsense, Probed};

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
    /// How many requests are our own, also of those that are kept back.
    own: usize,
    /// How many leave watches again, also of those that are kept back.
    again: usize,
    /// The replies so far to the group of our requests whose last one has none yet. The group is at
    /// the front, side by side, as it was added under one lock.
    replies: Vec<RawReply>,
    poison: PoisonCounts,
}

/// What was asked, and who waits for the answer.
pub(super) enum Asked {
    /// By a handle of the crate, which waits for it under `number`.
    ByHandle {
        handle: HandleId,
        number: i32,
        shape: Shape,
        /// The watch that it leaves.
        watching: Option<Watching>,
    },
    /// By a handle, and answered by us in its turn.
    Local {
        handle: HandleId,
        number: i32,
        err: i32,
    },
    /// Leaves a handle's watches again that an earlier connection has taken along.
    Again {
        handle: HandleId,
        shape: Shape,
        watches: Vec<Watching>,
    },
    /// Our own.
    Own {
        shape: Shape,
        expected: Expected,
        /// With the last of those that were sent together: who is told.
        recipient: Option<Recipient>,
    },
    /// The link's own, to prove that the session is alive.
    Probe {
        expected: Expected,
        /// The number of the node of ours that it asks for.
        node: Option<u64>,
    },
    /// To close the session; nobody is told.
    Close,
}

/// A request that was given its place, and how far its bytes have come.
struct Sending {
    asked: Asked,
    /// The number that its answer will carry. None of what is answered by us.
    xid: Option<i32>,
    /// What its answer will be worth.
    sent: Option<Sent>,
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
    pub(super) asked: Asked,
}

/// Why a connection is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Ended {
    /// The server has hung up: perhaps because of something that was in flight.
    ByServer,
    /// We have, for what was on its way took too long: perhaps because it was too large.
    TooSlow,
    ByUs,
}

/// What a reply of the server answers. With `proof`, it was done.
pub(super) struct Answered {
    pub(super) proof: Option<Sent>,
    pub(super) to: To,
}

/// Who has asked for it.
pub(super) enum To {
    /// A handle of the crate, which waits for it under `number`.
    Handle {
        handle: HandleId,
        number: i32,
        /// The watch that it was to leave, and whether it has.
        watch: Option<(Watching, Option<Left>)>,
    },
    /// A handle whose watches were to be left again.
    Again {
        handle: HandleId,
        watches: Vec<Watching>,
    },
    /// Ourselves; when all that were sent together are answered, who is told, and what.
    Own(Option<Completed>),
    Probe(Probed),
    Close,
}

/// What the link waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Waits {
    ForNothing,
    /// What comes first has not been taken whole.
    ForTheKernel,
    /// An answer.
    Since(Moment),
}

impl InFlight {
    /// A request gets its place, behind all that have one. Returns the number to send it with.
    pub(super) fn add(&mut self, asked: Asked, sent: Option<Sent>) -> i32 {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        let xid = self.last_xid;
        self.count(&asked);
        self.push(asked, Some(xid), sent);
        xid
    }

    fn push(&mut self, asked: Asked, xid: Option<i32>, sent: Option<Sent>) {
        self.queue.push_back(Sending {
            asked,
            xid,
            sent,
            end: NOT_QUEUED,
            taken: None,
        });
    }

    fn count(&mut self, asked: &Asked) {
        self.own += usize::from(matches!(asked, Asked::Own { .. }));
        self.again += usize::from(matches!(asked, Asked::Again { .. }));
    }

    fn uncount(&mut self, asked: &Asked) {
        self.own -= usize::from(matches!(asked, Asked::Own { .. }));
        self.again -= usize::from(matches!(asked, Asked::Again { .. }));
    }

    /// Whether watches of a handle may not be on the server yet.
    pub(super) fn leaves_any_again(&self) -> bool {
        self.again > 0
    }

    /// A request of a handle is answered by us, when all before it are answered.
    pub(super) fn answer_locally(&mut self, handle: HandleId, number: i32, err: i32) {
        let asked = Asked::Local {
            handle,
            number,
            err,
        };
        if self.held.is_empty() {
            self.its_turn(asked);
        } else {
            // The crate takes the first answer for its first request.
            self.hold(Vec::new(), asked);
        }
    }

    /// As [`answer_locally`](Self::answer_locally), with nothing kept back before it.
    pub(super) fn its_turn(&mut self, local: Asked) {
        self.push(local, None, None);
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
    pub(super) fn hold(&mut self, frame: Vec<u8>, asked: Asked) {
        self.held_bytes += frame.len();
        self.count(&asked);
        self.held.push_back(Held { frame, asked });
    }

    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Of what is kept back.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The first of what was kept back, to be given its place now.
    pub(super) fn release(&mut self) -> Option<Held> {
        let held = self.held.pop_front()?;
        self.held_bytes -= held.frame.len();
        self.uncount(&held.asked);
        Some(held)
    }

    /// How many packets of requests of our own are under way, or kept back.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Since when the server owes us an answer: since the kernel has taken the last byte of the
    /// request that comes first. Not while it takes them: a large request on a slow network is under
    /// way, and so are those behind it.
    pub(super) fn waits_since(&self) -> Waits {
        let first = self.queue.iter().find(|one| one.sent.is_some());
        match first.map(|one| one.taken) {
            None => Waits::ForNothing,
            Some(None) => Waits::ForTheKernel,
            Some(Some(taken)) => Waits::Since(taken),
        }
    }

    /// A reply came. If it is none, what it seemed to answer stays in flight, and is answered with
    /// the rest when the connection is cut.
    pub(super) fn answered(
        &mut self,
        header: ReplyHeader,
        record: &[u8],
        events_before: u64,
    ) -> Result<Answered, Nonsense> {
        let front = self.queue.front();
        if front.and_then(|one| one.xid) != Some(header.xid) {
            return Err(Nonsense::out_of_turn(header));
        }
        if let Some(Asked::ByHandle { shape, .. }) = front.map(|one| &one.asked)
            && header.err == frame::OK
        {
            reply::digestible(shape.opcode, record)?;
        }
        let Some(Sending { asked, sent, .. }) = self.queue.pop_front() else {
            return Err(Nonsense::out_of_turn(header));
        };
        self.uncount(&asked);
        let mut proof = None;
        if let Some(shape) = asked.shape() {
            self.poison.acquit(shape);
            proof = sent.filter(|_| reply::is_done(shape.opcode, header, record));
        }
        let to = match asked {
            Asked::ByHandle {
                handle,
                number,
                shape,
                watching,
            } => To::Handle {
                handle,
                number,
                watch: watching.map(|watching| (watching, reply::left(shape.opcode, header.err))),
            },
            Asked::Again {
                handle, watches, ..
            } => To::Again { handle, watches },
            Asked::Own {
                shape,
                expected,
                recipient,
            } => {
                self.replies.push(RawReply::Reply {
                    asked: shape.opcode,
                    expected,
                    error: ErrorCode(header.err),
                    record: record.to_vec(),
                    bytes: shape.bytes,
                    events_before,
                });
                To::Own(self.complete(recipient))
            }
            Asked::Probe { expected, node } => {
                let probed = reply::probed(&expected, node, header, record)?;
                proof = sent.filter(|_| probed == Probed::Done);
                To::Probe(probed)
            }
            Asked::Close | Asked::Local { .. } => To::Close,
        };
        Ok(Answered { proof, to })
    }

    /// With the last of those that were sent together, all their replies.
    fn complete(&mut self, recipient: Option<Recipient>) -> Option<Completed> {
        recipient.map(|recipient| Completed::new(recipient, std::mem::take(&mut self.replies)))
    }

    /// Gives handles the answers of ours whose turn it is now.
    pub(super) fn give_what_is_due(&mut self, handles: &mut Handles) {
        while let Some(Asked::Local {
            handle,
            number,
            err,
        }) = self.queue.front().map(|one| &one.asked)
        {
            handles.answer(*handle, &frame::reply(*number, *err));
            self.queue.pop_front();
        }
    }

    /// The connection is gone: what was in flight may have been done or not. Returns what is to be
    /// seen to without locks.
    pub(super) fn all_lost(&mut self, ended: Ended, now: Moment, handles: &mut Handles) -> AllLost {
        self.blame(ended, now);
        let by_server = ended == Ended::ByServer;
        let mut lost = AllLost::default();
        for one in std::mem::take(&mut self.queue) {
            match one.asked {
                Asked::ByHandle {
                    handle,
                    number,
                    shape,
                    watching,
                } => {
                    // Whoever repeats what breaks connections breaks the next one, for everybody.
                    let err = if self.loss(shape, by_server).is_poison() {
                        frame::ERR_MARSHALLING
                    } else {
                        frame::ERR_CONNECTION_LOSS
                    };
                    handles.answer(handle, &frame::reply(number, err));
                    lost.over(handles, handle, watching.as_ref());
                }
                // On the next connection the handle is told. Now it could only look in vain.
                Asked::Again {
                    handle, watches, ..
                } => handles.tried_in_vain(handle, &watches),
                other => self.lose(other, by_server, handles, &mut lost),
            }
        }
        for held in std::mem::take(&mut self.held) {
            match held.asked {
                Asked::ByHandle {
                    handle,
                    number,
                    watching,
                    ..
                } => {
                    handles.answer(handle, &frame::reply(number, frame::ERR_CONNECTION_LOSS));
                    lost.over(handles, handle, watching.as_ref());
                }
                // No server has seen it: the next one does.
                Asked::Again { .. } => {}
                other => self.lose(other, by_server, handles, &mut lost),
            }
        }
        (self.own, self.again, self.held_bytes) = (0, 0, 0);
        lost
    }

    /// Notes what may have ended the connection.
    fn blame(&mut self, ended: Ended, now: Moment) {
        match ended {
            Ended::ByServer => {
                let shapes = self.queue.iter().filter_map(|one| one.asked.shape());
                self.poison.hung_up(shapes, now);
            }
            Ended::TooSlow => {
                let stuck = self.queue.iter().find(|one| one.taken.is_none());
                if let Some(shape) = stuck.and_then(|one| one.asked.shape()) {
                    self.poison.too_slow(shape, now);
                }
            }
            Ended::ByUs => {}
        }
    }

    /// What is lost in the same way whether it was sent or kept back.
    fn lose(&mut self, asked: Asked, by_server: bool, handles: &mut Handles, lost: &mut AllLost) {
        match asked {
            Asked::Local {
                handle,
                number,
                err,
            } => handles.answer(handle, &frame::reply(number, err)),
            Asked::Own {
                shape, recipient, ..
            } => {
                let loss = self.loss(shape, by_server);
                self.replies.push(RawReply::Lost(loss));
                lost.completed.extend(self.complete(recipient));
            }
            _ => {}
        }
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

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn unanswered(&self) -> usize {
        self.queue.len() + self.held.len()
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn has_probe(&self) -> bool {
        let mut all = self.queue.iter();
        all.any(|one| matches!(one.asked, Asked::Probe { .. }))
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
    fn over(&mut self, handles: &mut Handles, handle: HandleId, watching: Option<&Watching>) {
        let over = watching.and_then(|watching| handles.heard(handle, watching, None));
        self.over.extend(over);
    }
}

impl Asked {
    /// Of what a server may choke on.
    fn shape(&self) -> Option<Shape> {
        match self {
            Self::ByHandle { shape, .. } | Self::Again { shape, .. } | Self::Own { shape, .. } => {
                Some(*shape)
            }
            Self::Local { .. } | Self::Probe { .. } | Self::Close => None,
        }
    }

    /// Its kind, by what a server would say.
    pub(super) fn opcode(&self) -> Option<i32> {
        self.shape().map(|shape| shape.opcode)
    }
}
