//! From a server to the crate, for the life of one connection.

use std::io;
use std::time::{Duration, Instant};

use super::dial::is_timeout;
use super::frame::{self, FrameBuffer, Next, ReplyHeader};
use super::wire::{Answered, Server, State, Wire};

/// Brings replies and watch events to the crate, pings the server, and watches for silence.
/// Returns why the connection is of no use any more.
pub(super) fn relay(wire: &Wire, server: &Server) -> String {
    let pace = Pace::of(server.epoch.timeout());
    let limits = server
        .stream
        .set_read_timeout(Some(pace.tick))
        .and_then(|()| server.stream.set_write_timeout(Some(pace.stuck)));
    if let Err(error) = limits {
        return format!("its time limits could not be set: {error}");
    }
    let mut buffer = FrameBuffer::new(frame::REPLY_HEADER_BYTES, frame::MAX_REPLY_BYTES);
    let mut out = Vec::new();
    let mut last_heard = Instant::now();
    loop {
        match buffer.fill(&mut &server.stream) {
            Ok(0) => return "closed by the server, or by us".into(),
            Ok(_) => {
                last_heard = Instant::now();
                if let Err(why) = deliver(wire, server, &mut buffer, &mut out) {
                    return why;
                }
            }
            // Looked at only when there was nothing to read: a process that was stopped for long
            // reads first what came meanwhile.
            Err(error) if is_timeout(&error) => {
                if last_heard.elapsed() > pace.patience {
                    return format!("nothing was heard for {:?}", pace.patience);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.to_string(),
        }
        if !server.epoch.lease().alive(Instant::now()) {
            return "the session's lease has run out".into();
        }
        wire.ping(server, pace.idle);
    }
}

/// The times of a connection, as parts of the session timeout.
struct Pace {
    /// How often an idle connection is looked after.
    tick: Duration,
    /// A ping goes out when nothing else did for this long; with one tick of delay, that is a third.
    idle: Duration,
    /// A write that makes no progress for this long breaks the connection.
    stuck: Duration,
    /// Silence for this long breaks the connection. The last third of the timeout is for finding
    /// another server.
    patience: Duration,
}

impl Pace {
    fn of(timeout: Duration) -> Self {
        const SHORTEST: Duration = Duration::from_millis(1);
        Self {
            tick: (timeout / 12).max(SHORTEST),
            idle: timeout / 4,
            stuck: (timeout / 3).max(SHORTEST),
            patience: timeout * 2 / 3,
        }
    }
}

/// Sends on all that is in the buffer, in one write, also when it ends with the reason why the
/// connection must end.
fn deliver(
    wire: &Wire,
    server: &Server,
    buffer: &mut FrameBuffer,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    out.clear();
    let mut state = wire.state.lock();
    let result = take_frames(&mut state, server, buffer, out);
    state.send_up(out);
    let session_closed = state.session_closed;
    drop(state);
    if session_closed {
        wire.changed.notify_all();
    }
    if out.capacity() > frame::MAX_REQUEST_BYTES {
        *out = Vec::new();
    }
    result
}

fn take_frames(
    state: &mut State,
    server: &Server,
    buffer: &mut FrameBuffer,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    loop {
        match buffer.next() {
            Next::Frame(event) if event.reply_header().xid == frame::XID_WATCH => {
                if frame::is_known_event(event.body()) {
                    out.extend_from_slice(event.bytes());
                } else {
                    log::warn!("left out a watch event that the zookeeper crate does not know");
                }
            }
            Next::Frame(mut reply) => {
                let header = reply.reply_header();
                if let Some(number) = note(state, server, header)? {
                    reply.set_xid(number);
                    out.extend_from_slice(reply.bytes());
                    state.take_due(out);
                }
                if is_end(header.err) {
                    return Err(format!("the server ended the session ({})", header.err));
                }
            }
            Next::TooLong(reply) => {
                if let Some(number) = note(state, server, reply.reply_header())? {
                    let most = frame::MAX_REPLY_BYTES;
                    log::warn!("left out a reply of more than {most} bytes");
                    out.extend(frame::reply(number, frame::ERR_MARSHALLING));
                    state.take_due(out);
                }
            }
            Next::Incomplete => return Ok(()),
            Next::Malformed => {
                log::warn!("the server sent something that is no reply");
                return Err("the server sent something that is no reply".into());
            }
        }
    }
}

/// Takes note of a reply. Returns the number under which the crate waits for it, if it does.
fn note(state: &mut State, server: &Server, header: ReplyHeader) -> Result<Option<i32>, String> {
    state.last_zxid = state.last_zxid.max(header.zxid);
    let (sent_at, number) = match header.xid {
        frame::XID_PING => (state.ping_answered(), None),
        frame::XID_AUTH => (None, None),
        xid => match state.answered(xid) {
            Ok(Answered::Crate { number, sent_at }) => (Some(sent_at), Some(number)),
            Ok(Answered::Close) => (None, None),
            Err(_) => {
                log::warn!("the server answered request {xid} out of turn");
                return Err(format!("the server answered request {xid} out of turn"));
            }
        },
    };
    match sent_at {
        // No proof that the session stands.
        Some(_) if is_end(header.err) => {}
        Some(sent_at) => {
            server.epoch.lease().renew(sent_at);
        }
        None => {}
    }
    Ok(number)
}

fn is_end(err: i32) -> bool {
    matches!(err, frame::ERR_SESSION_EXPIRED | frame::ERR_SESSION_MOVED)
}
