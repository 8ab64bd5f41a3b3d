//! What has been asked and not answered, by the crate and by ourselves, in one order.

use std::collections::{HashMap, HashSet, VecDeque};

use super::chain::Sent;
use super::clock::Moment;
use super::codec::{self, Expected, Reply, ServerError, Shape};
use super::frame::{self, ReplyHeader, RequestHeader};
use super::said::{Said, Told};
use super::voice::Heard;

/// For so many kinds and lengths of requests we remember how many breaks they met.
const MOST_SUSPICIONS: usize = 256;

/// All of one link, over all connections. Servers answer in the order in which they are asked.
#[derive(Default)]
pub(super) struct InFlight {
    queue: VecDeque<Entry>,
    last_xid: i32,
    /// How many of the queue are requests of our own.
    own: usize,
    /// The replies so far to the group of our requests whose last one has none yet. The group is at
    /// the front, side by side, as it was added under one lock.
    heard: Vec<Heard>,
    suspicions: Suspicions,
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
    },
    /// The crate's, answered by us when it is its turn.
    Local { number: i32, err: i32 },
    /// Our own.
    Own {
        xid: i32,
        shape: Shape,
        expected: Expected,
        sent: Sent,
        /// With the last of those that were said together: who is told.
        told: Option<Told>,
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
    /// A request of the crate, which waits for it under `number`.
    Crate {
        number: i32,
        proof: Option<Sent>,
    },
    /// One of our own; when all that were said together are answered, who is told, and what.
    Own {
        proof: Option<Sent>,
        said: Option<Said>,
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
    pub(super) fn forward(&mut self, header: RequestHeader, bytes: usize, sent: Sent) -> i32 {
        let xid = self.xid();
        self.queue.push_back(Entry::Crate {
            xid,
            number: harmless(header),
            shape: Shape {
                opcode: header.opcode,
                bytes,
            },
            sent,
        });
        xid
    }

    /// A request of the crate is answered by us, when all before it are answered.
    pub(super) fn answer_locally(&mut self, header: RequestHeader, err: i32) {
        self.queue.push_back(Entry::Local {
            number: harmless(header),
            err,
        });
    }

    /// A request of ours goes to the server: returns the number to send it with. With the last of
    /// those that go together comes who is told.
    pub(super) fn say(
        &mut self,
        shape: Shape,
        expected: Expected,
        told: Option<Told>,
        sent: Sent,
    ) -> i32 {
        let xid = self.xid();
        self.queue.push_back(Entry::Own {
            xid,
            shape,
            expected,
            sent,
            told,
        });
        self.own += 1;
        xid
    }

    /// A probe goes to the server: returns the number to send it with.
    pub(super) fn probe(&mut self, expected: Expected, sent: Sent, node: Option<u64>) -> i32 {
        let xid = self.xid();
        self.queue.push_back(Entry::Probe {
            xid,
            expected,
            sent,
            node,
        });
        xid
    }

    /// How many packets of requests of our own are under way.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// When the request was sent that has waited longest for its answer.
    pub(super) fn oldest(&self) -> Option<Moment> {
        self.queue
            .iter()
            .find_map(Entry::sent)
            .map(|sent| sent.at())
    }

    /// Our own last request: returns the number to send it with.
    pub(super) fn close_session(&mut self) -> i32 {
        let xid = self.xid();
        self.queue.push_back(Entry::Close { xid });
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
        let front = self.queue.front();
        if front.and_then(Entry::xid) != Some(header.xid) {
            return Err(out_of_turn(header));
        }
        if let Some(Entry::Crate { shape, .. }) = front
            && header.err == frame::OK
        {
            codec::digestible(shape.opcode, record).map_err(|why| {
                Nonsense(format!("the server sent a malformed reply ({})", why.0))
            })?;
        }
        match self.queue.pop_front() {
            Some(Entry::Crate {
                number,
                sent,
                shape,
                ..
            }) => {
                self.suspicions.acquit(shape);
                let proof = proof(shape.opcode, sent, header, record);
                Ok(Answered::Crate { number, proof })
            }
            Some(Entry::Own {
                shape,
                expected,
                sent,
                told,
                ..
            }) => {
                self.own -= 1;
                self.suspicions.acquit(shape);
                let proof = proof(shape.opcode, sent, header, record);
                self.heard.push(Heard::Reply {
                    expected,
                    err: header.err,
                    record: record.to_vec(),
                    bytes: shape.bytes,
                    events_before,
                });
                let said = told.map(|told| Said::new(told, std::mem::take(&mut self.heard)));
                Ok(Answered::Own { proof, said })
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

    /// Adds to `out` the answers of ours to the crate whose turn it is now.
    pub(super) fn take_due(&mut self, out: &mut Vec<u8>) {
        while let Some(&Entry::Local { number, err }) = self.queue.front() {
            out.extend(frame::reply(number, err));
            self.queue.pop_front();
        }
    }

    /// The connection is gone: what was in flight may have been done or not. Adds to `out` what
    /// the crate is answered, and returns who else is told. `hung_up`: the server ended it.
    pub(super) fn all_lost(&mut self, hung_up: bool, out: &mut Vec<u8>) -> Vec<Said> {
        if hung_up {
            self.suspicions
                .add(self.queue.iter().filter_map(Entry::shape));
        }
        let mut tell = Vec::new();
        self.own = 0;
        for entry in self.queue.drain(..) {
            match entry {
                Entry::Crate { number, .. } => {
                    out.extend(frame::reply(number, frame::ERR_CONNECTION_LOSS));
                }
                Entry::Local { number, err } => out.extend(frame::reply(number, err)),
                Entry::Own { shape, told, .. } => {
                    self.heard.push(Heard::Nothing {
                        bytes: shape.bytes,
                        breaks: self.suspicions.breaks(shape),
                    });
                    let all = told.map(|told| Said::new(told, std::mem::take(&mut self.heard)));
                    tell.extend(all);
                }
                Entry::Probe { .. } | Entry::Close { .. } => {}
            }
        }
        tell
    }
}

impl Entry {
    /// Of those that the server answers.
    fn xid(&self) -> Option<i32> {
        match self {
            Self::Crate { xid, .. }
            | Self::Own { xid, .. }
            | Self::Probe { xid, .. }
            | Self::Close { xid } => Some(*xid),
            Self::Local { .. } => None,
        }
    }

    fn shape(&self) -> Option<Shape> {
        match self {
            Self::Crate { shape, .. } | Self::Own { shape, .. } => Some(*shape),
            Self::Local { .. } | Self::Probe { .. } | Self::Close { .. } => None,
        }
    }

    fn sent(&self) -> Option<Sent> {
        match self {
            Self::Crate { sent, .. } | Self::Own { sent, .. } | Self::Probe { sent, .. } => {
                Some(*sent)
            }
            Self::Local { .. } | Self::Close { .. } => None,
        }
    }
}

/// Requests that a server may choke on: how often it hung up while one of this kind and length was
/// in flight, without having answered one in between.
///
/// A server answers a request that is too long for it (its `jute.maxbuffer`), or of a kind that it
/// does not know, by closing the connection, which also ends whatever is in flight beside it. Those
/// others are answered on one of the next connections; the culprit never is.
#[derive(Default)]
struct Suspicions(HashMap<Shape, u32>);

impl Suspicions {
    fn acquit(&mut self, shape: Shape) {
        if !self.0.is_empty() {
            self.0.remove(&shape);
        }
    }

    fn add(&mut self, shapes: impl Iterator<Item = Shape>) {
        for shape in shapes.collect::<HashSet<_>>() {
            if self.0.len() < MOST_SUSPICIONS || self.0.contains_key(&shape) {
                *self.0.entry(shape).or_insert(0) += 1;
            }
        }
    }

    fn breaks(&self, shape: Shape) -> u32 {
        self.0.get(&shape).copied().unwrap_or(0)
    }
}

/// What this answer is worth: nothing if it says that something was not done.
fn proof(opcode: i32, sent: Sent, header: ReplyHeader, record: &[u8]) -> Option<Sent> {
    (header.err == frame::OK && !codec::is_aborted(opcode, record)).then_some(sent)
}

fn probed(
    expected: &Expected,
    sent: Sent,
    node: Option<u64>,
    header: ReplyHeader,
    record: &[u8],
) -> Result<Probed, Nonsense> {
    let answer = expected
        .decode(header.err, record)
        .map_err(|why| Nonsense(format!("the server sent a malformed reply ({})", why.0)))?;
    let (Ok(Reply::Aborted { error, .. }) | Err(error)) = answer else {
        return Ok(Probed::Done(sent));
    };
    match node {
        Some(number) if error == ServerError::NoNode => Ok(Probed::NodeGone(number)),
        _ => Ok(Probed::Refused),
    }
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
