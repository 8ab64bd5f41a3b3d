//! From a server to those who asked.

use std::sync::Arc;

use zklock_protocol::{ErrorCode, EventKind};

use super::Core;
use super::completed::Completed;
use super::frame::{self, Frame, FrameBuffer, Next, ReplyHeader};
use super::handles::{HandleId, Interest};
use super::in_flight::{Answered, To};
use super::moment::Moment;

/// What is to be told without locks.
pub(in crate::link) enum News {
    Completed(Completed),
    Event {
        event: EventKind,
        path: String,
        number: u64,
        /// Of handles, which are dropped after.
        over: Vec<Arc<dyn Interest>>,
    },
    /// Interests of handles in watches that they have left, after so many events, or that were not
    /// left. To be dropped then.
    Watched {
        interests: Vec<Arc<dyn Interest>>,
        armed_after: Option<u64>,
    },
}

/// What the frames in a buffer came to.
#[derive(Default)]
pub(in crate::link) struct Received {
    /// Who is told, and what, in the order in which the server has said it.
    pub(in crate::link) news: Vec<News>,
    /// The numbers of nodes of ours that turned out to be gone.
    pub(in crate::link) gone: Vec<u64>,
    pub(in crate::link) has_something_to_send: bool,
    /// Replies and events that were left out.
    pub(in crate::link) too_long: usize,
    pub(in crate::link) unknown_events: usize,
    /// Why the connection must end.
    pub(in crate::link) cut: Option<String>,
}

impl Core {
    /// Takes all frames that are in the buffer, also when it ends with the reason why the connection
    /// must end.
    pub(in crate::link) fn receive(&mut self, buffer: &mut FrameBuffer, now: Moment) -> Received {
        let mut received = Received::default();
        received.cut = self.take_frames(buffer, now, &mut received).err();
        // Before anybody is told: the server has something to do meanwhile.
        received.has_something_to_send =
            !self.waiting.is_empty() && self.send_what_is_due(now).is_none();
        received
    }

    fn take_frames(
        &mut self,
        buffer: &mut FrameBuffer,
        now: Moment,
        received: &mut Received,
    ) -> Result<(), String> {
        loop {
            match buffer.next() {
                Next::Frame(event) if event.reply_header().xid == frame::XID_WATCH => {
                    self.take_event(&event, received);
                }
                Next::Frame(mut reply) => {
                    let header = reply.reply_header();
                    if let Some((handle, number)) =
                        self.note(header, reply.record(), now, received)?
                    {
                        reply.set_xid(number);
                        match header.err {
                            // The crate has no word for it, and never gets this one for anything else.
                            frame::ERR_THROTTLED => reply.set_err(frame::ERR_OPERATION_TIMEOUT),
                            frame::ERR_OPERATION_TIMEOUT => {
                                reply.set_err(frame::ERR_CONNECTION_LOSS);
                            }
                            _ => {}
                        }
                        self.handles.answer(handle, reply.bytes());
                    }
                    self.in_flight.give_what_is_due(&mut self.handles);
                    // Whoever asked is told that it is unknown, and waits for the next connection.
                    let error = ErrorCode(header.err);
                    if error.is_outcome_unknown() {
                        return Err(format!("it answered that {error} ({})", header.err));
                    }
                }
                Next::TooLong(reply) => {
                    received.too_long += 1;
                    let mut header = reply.reply_header();
                    header.err = frame::ERR_MARSHALLING;
                    if let Some((handle, number)) = self.note(header, &[], now, received)? {
                        let refusal = frame::reply(number, frame::ERR_MARSHALLING);
                        self.handles.answer(handle, &refusal);
                    }
                    self.in_flight.give_what_is_due(&mut self.handles);
                }
                Next::Incomplete => return Ok(()),
                Next::Malformed => return Err("the server sent something that is no reply".into()),
            }
        }
    }

    fn take_event(&mut self, event: &Frame<'_>, received: &mut Received) {
        let Some((event, path)) = frame::node_event(event.body()) else {
            received.unknown_events += 1;
            return;
        };
        self.events += 1;
        received.news.push(News::Event {
            event,
            path: path.to_owned(),
            number: self.events,
            over: self.handles.event(event, path),
        });
    }

    /// Takes note of a reply. Returns the handle of the crate that waits for it, if one does, and under
    /// which number.
    fn note(
        &mut self,
        header: ReplyHeader,
        record: &[u8],
        now: Moment,
        received: &mut Received,
    ) -> Result<Option<(HandleId, i32)>, String> {
        if matches!(header.xid, frame::XID_PING | frame::XID_AUTH) {
            self.saw(header.zxid);
            return Ok(None);
        }
        let answered = self.in_flight.answered(header, record, self.events);
        let Answered { proof, to } = answered.map_err(|nonsense| nonsense.0)?;
        let mut asked = None;
        match to {
            To::Handle {
                handle,
                number,
                watch,
            } => {
                if let Some((watching, left)) = watch {
                    let interest = self.handles.heard(handle, &watching, left);
                    received.news.push(News::Watched {
                        interests: interest.into_iter().collect(),
                        armed_after: left.map(|_| self.events),
                    });
                }
                asked = Some((handle, number));
            }
            To::Again { handle, watches } => {
                let (interests, armed_after) = if proof.is_some() {
                    (self.handles.interests(handle, &watches), Some(self.events))
                } else {
                    let over = watches.iter();
                    let over = over.filter_map(|one| self.handles.look_again(handle, one));
                    (over.collect(), None)
                };
                received.news.push(News::Watched {
                    interests,
                    armed_after,
                });
            }
            To::Own(completed) => received.news.extend(completed.map(News::Completed)),
            To::Probe(probed) => received.gone.extend(self.probed(probed)),
            To::Close => self.session_closed = true,
        }
        self.saw(header.zxid);
        // Before anybody hears of the answer: a node that was created stands by what that proved.
        if let (Some(sent), Some(connection)) = (proof, &mut self.connection) {
            connection.proved(sent, now);
        }
        Ok(asked)
    }

    /// A reply came, from a server that has seen this transaction.
    fn saw(&mut self, zxid: i64) {
        self.last_zxid = self.last_zxid.max(zxid);
        // Until the watches are there, a server tells of no change: that of a probe that overtakes them
        // may be of a later time than a change that nobody was told of, and the connection may break
        // again before they are.
        if !self.in_flight.leaves_any_again() {
            self.watched_zxid = self.last_zxid;
        }
    }
}
