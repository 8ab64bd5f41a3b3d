//! From a server to those who asked, for the life of one connection.

use super::wire::say;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zklock_protocol::{ErrorCode, EventKind};

use super::LinkEvent;
use super::core::completed::Completed;
use super::core::frame::{self, FrameBuffer, Next, ReplyHeader};
use super::dial::is_timeout;
use super::guest::{Guest, Interest, Watching};
use super::in_flight::Answered;
use super::wire::{Server, State, Wire};

/// Brings replies to those who asked and to handles of the crate, tells of watch events, sends
/// probes, sends what its socket did not take at once, and watches for answers that do not
/// come. Returns why the connection is of no use any more.
pub(super) fn relay(wire: &Wire, server: &Server) -> String {
    let pace = Pace::of(server.epoch.lease().timeout());
    if let Err(error) = server.stream.limit(pace.tick, pace.stuck) {
        return format!("its time limits could not be set: {error}");
    }
    let mut buffer = FrameBuffer::new(frame::REPLY_HEADER_BYTES, frame::MAX_REPLY_BYTES);
    loop {
        // The tick, too: what is wanted of probes may change meanwhile.
        let wait = wire.probe(server).min(pace.tick);
        let wait = wire
            .send_what_is_due(server)
            .map_or(wait, |due| wait.min(due));
        match next_bytes(wire, server, &mut buffer, wait) {
            Ok(Some(0)) => {
                let by_us = if server.hung_up() { "the server" } else { "us" };
                return format!("closed by {by_us}");
            }
            Ok(Some(_)) => {
                if let Err(why) = deliver(wire, server, &mut buffer) {
                    server.cut();
                    return why;
                }
            }
            // Looked at only when there was nothing to read: a process that was stopped for long
            // reads first what came meanwhile.
            Ok(None) => {
                if let Some(waited) = wire.is_overdue(server) {
                    server.cut_as_too_slow();
                    return format!("an answer was waited for in vain for {waited:?}");
                }
            }
            Err(error) => return error.to_string(),
        }
        if server.is_stuck(pace.stuck) {
            server.cut_as_too_slow();
            return format!("it took nothing for {:?}", pace.stuck);
        }
        // The good-bye of a client that is being closed goes out and is waited for all the same.
        if !server.epoch.is_alive() && !wire.is_closing() {
            server.cut_as_too_slow();
            return "the session's lease has run out".into();
        }
    }
}

/// The times of a connection, as parts of the session timeout.
struct Pace {
    /// How often an idle connection is looked after.
    tick: Duration,
    /// A write that makes no progress for this long breaks the connection.
    stuck: Duration,
}

impl Pace {
    fn of(timeout: Duration) -> Self {
        const SHORTEST: Duration = Duration::from_millis(1);
        Self {
            tick: (timeout / 12).max(SHORTEST),
            stuck: (timeout / 3).max(SHORTEST),
        }
    }
}

/// Waits for one read, and sends meanwhile what the socket takes. `None`: nothing to read.
fn next_bytes(
    wire: &Wire,
    server: &Server,
    buffer: &mut FrameBuffer,
    limit: Duration,
) -> io::Result<Option<usize>> {
    let to_write = server.full.load(Ordering::Acquire);
    let read = server.stream.wait(limit, to_write).and_then(|ready| {
        if ready.writable {
            wire.flush(server);
        }
        if ready.readable {
            buffer.fill(&mut &server.stream).map(Some)
        } else {
            Ok(None)
        }
    });
    match read {
        Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => Ok(None),
        read => read,
    }
}

/// What is to be told without a lock.
enum News {
    Completed(Completed),
    Event {
        event: EventKind,
        path: String,
        number: u64,
        /// Of handles, which are dropped after.
        over: Vec<Arc<dyn Interest>>,
    },
    /// Watches that handles of the crate have left, after so many events, or that were not left.
    Watched {
        interests: Vec<Arc<dyn Interest>>,
        armed_after: Option<u64>,
    },
    /// Watches of a handle that could not be left again.
    NotLeft {
        guest: Arc<Guest>,
        watches: Vec<Watching>,
    },
}

/// What the frames in the buffer came to.
#[derive(Default)]
struct Delivered {
    /// Who is told, and what, in the order in which the server has said it.
    news: Vec<News>,
    /// Nodes of ours that turned out to be gone.
    gone: Vec<String>,
    /// For the log, which is written without a lock.
    too_long: usize,
    unknown_events: usize,
}

/// Sends on all that is in the buffer, also when it ends with the reason why the connection must
/// end.
fn deliver(wire: &Wire, server: &Server, buffer: &mut FrameBuffer) -> Result<(), String> {
    let mut delivered = Delivered::default();
    let mut state = wire.state.lock();
    let mut result = take_frames(&mut state, server, buffer, &mut delivered);
    let guests = state.guests.clone();
    let session_closed = state.session_closed;
    // Before anybody is told: the server has something to do meanwhile.
    let more = !state.waiting.is_empty() && state.say_what_is_due(server).is_none();
    drop(state);
    if more {
        wire.flush(server);
    }
    if session_closed {
        wire.changed.notify_all();
    }
    guests.iter().for_each(|guest| guest.flush());
    for news in delivered.news {
        match news {
            News::Completed(completed) => {
                let rest = completed.tell();
                if let Some(why) = rest.malformed {
                    result = result.and(Err(format!("the server sent a reply that is {why}")));
                }
                wire.ask_again(server.connection, rest);
            }
            News::Event {
                event,
                path,
                number,
                over,
            } => {
                wire.tell_event(event, &path, number);
                drop(over);
            }
            News::Watched {
                interests,
                armed_after,
            } => {
                if let Some(after) = armed_after {
                    interests.iter().for_each(|interest| interest.armed(after));
                }
            }
            News::NotLeft { guest, watches } => {
                for watching in watches {
                    drop(guest.look_again(&watching));
                }
                guest.flush();
            }
        }
    }
    for path in delivered.gone {
        let epoch = Arc::clone(&server.epoch);
        wire.tell(LinkEvent::NodeGone { epoch, path });
    }
    if delivered.too_long > 0 {
        let most = frame::MAX_REPLY_BYTES;
        say!(wire, Warn, "left out a reply of more than {most} bytes");
    }
    if delivered.unknown_events > 0 {
        say!(wire, Warn, "left out a watch event of an unknown kind");
    }
    result
}

fn take_frames(
    state: &mut State,
    server: &Server,
    buffer: &mut FrameBuffer,
    delivered: &mut Delivered,
) -> Result<(), String> {
    loop {
        match buffer.next() {
            Next::Frame(event) if event.reply_header().xid == frame::XID_WATCH => {
                if let Some((event, path)) = frame::node_event(event.body()) {
                    state.events += 1;
                    let guests = state.guests.iter();
                    delivered.news.push(News::Event {
                        event,
                        path: path.to_owned(),
                        number: state.events,
                        over: guests.flat_map(|guest| guest.event(event, path)).collect(),
                    });
                } else {
                    delivered.unknown_events += 1;
                }
            }
            Next::Frame(mut reply) => {
                let header = reply.reply_header();
                let asked = note(state, server, header, reply.record(), delivered)?;
                if let Some((guest, number)) = asked {
                    reply.set_xid(number);
                    match header.err {
                        // The crate has no word for it, and never gets this one for anything else.
                        frame::ERR_THROTTLED => reply.set_err(frame::ERR_OPERATION_TIMEOUT),
                        frame::ERR_OPERATION_TIMEOUT => reply.set_err(frame::ERR_CONNECTION_LOSS),
                        _ => {}
                    }
                    guest.answer(reply.bytes());
                }
                state.in_flight.give_what_is_due();
                // Whoever asked is told that it is unknown, and waits for the next connection.
                let error = ErrorCode(header.err);
                if error.is_outcome_unknown() {
                    return Err(format!("it answered that {error} ({})", header.err));
                }
            }
            Next::TooLong(reply) => {
                delivered.too_long += 1;
                let mut header = reply.reply_header();
                header.err = frame::ERR_MARSHALLING;
                if let Some((guest, number)) = note(state, server, header, &[], delivered)? {
                    guest.answer(&frame::reply(number, frame::ERR_MARSHALLING));
                }
                state.in_flight.give_what_is_due();
            }
            Next::Incomplete => return Ok(()),
            Next::Malformed => return Err("the server sent something that is no reply".into()),
        }
    }
}

/// Takes note of a reply. Returns the handle of the crate that waits for it, if one does, and under
/// which number.
fn note(
    state: &mut State,
    server: &Server,
    header: ReplyHeader,
    record: &[u8],
    delivered: &mut Delivered,
) -> Result<Option<(Arc<Guest>, i32)>, String> {
    let (proof, asked) = match header.xid {
        frame::XID_PING | frame::XID_AUTH => (None, None),
        _ => match state.in_flight.answered(header, record, state.events) {
            Ok(Answered::Crate {
                guest,
                number,
                proof,
                watch,
            }) => {
                if let Some((watching, left)) = watch {
                    delivered.news.push(News::Watched {
                        interests: guest.heard(&watching, left).into_iter().collect(),
                        armed_after: left.map(|_| state.events),
                    });
                }
                (proof, Some((guest, number)))
            }
            Ok(Answered::Again {
                guest,
                watches,
                proof,
            }) => {
                delivered.news.push(if proof.is_some() {
                    News::Watched {
                        interests: guest.interests(&watches),
                        armed_after: Some(state.events),
                    }
                } else {
                    News::NotLeft { guest, watches }
                });
                (proof, None)
            }
            Ok(Answered::Own { proof, completed }) => {
                delivered.news.extend(completed.map(News::Completed));
                (proof, None)
            }
            Ok(Answered::Probe(probed)) => {
                delivered.gone.extend(state.probed(server, &probed));
                (None, None)
            }
            Ok(Answered::Close) => {
                state.session_closed = true;
                (None, None)
            }
            Err(nonsense) => return Err(nonsense.0),
        },
    };
    state.saw(header.zxid);
    // Before anybody hears of the answer: a node that was created stands by what that proved.
    if let Some(sent) = proof {
        state.proved(server, sent);
    }
    Ok(asked)
}
