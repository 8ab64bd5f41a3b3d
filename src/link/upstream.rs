//! `zklock-up`: from the crate to the server.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::LinkEvent;
use super::frame::{self, FrameBuffer, Next, RequestHeader};
use super::wire::{Server, State, Wire};

/// How long a write to a server may be stuck before the connection is given up; the silence that
/// `zklock-down` notices cuts it earlier as a rule.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// Relays the crate's requests until the crate is gone.
pub(super) fn run(wire: &Arc<Wire>, mut loopback: TcpStream) {
    let mut buffer = FrameBuffer::new(frame::REQUEST_HEADER_BYTES, frame::MAX_REQUEST_BYTES);
    let mut out = Vec::new();
    let mut tick = Duration::ZERO;
    loop {
        keep_alive(wire, &mut tick, &loopback);
        match buffer.fill(&mut loopback) {
            Ok(0) => break,
            Ok(_) => {
                if !relay(wire, &mut buffer, &mut out) {
                    break;
                }
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                log::debug!("from the crate: {error}");
                break;
            }
        }
    }
    let mut state = wire.state.lock();
    state.loopback = None;
    let news = !state.closing;
    drop(state);
    if news {
        wire.tell(LinkEvent::Closed);
    }
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Sends on all that is in the buffer, in one write. Returns whether the crate goes on.
fn relay(wire: &Wire, buffer: &mut FrameBuffer, out: &mut Vec<u8>) -> bool {
    out.clear();
    let now = Instant::now();
    let mut state = wire.state.lock();
    let server = state.server.clone().filter(|_| state.open);
    loop {
        match buffer.next() {
            Next::Frame(mut request) => {
                let header = request.request_header();
                match (header.opcode, &server) {
                    (frame::OP_CLOSE, _) => {
                        state.answer_all_lost();
                        state.answer_locally(header, frame::OK);
                        return false;
                    }
                    (frame::OP_PING, _) => state.answer_locally(header, frame::OK),
                    // Credentials are the link's own business.
                    (frame::OP_AUTH, _) => {
                        state.answer_locally(header, frame::ERR_UNIMPLEMENTED);
                    }
                    (_, None) => state.answer_locally(header, frame::ERR_CONNECTION_LOSS),
                    (_, Some(_)) => {
                        request.set_xid(state.forward(header, now));
                        out.extend_from_slice(request.bytes());
                    }
                }
            }
            Next::TooLong(request) => refuse(&mut state, request.request_header()),
            Next::Incomplete => break,
            Next::Malformed => {
                log::error!("the zookeeper crate sent something that is no request");
                return false;
            }
        }
    }
    drop(state);
    if let (Some(server), false) = (server, out.is_empty()) {
        send(&server, out);
    }
    true
}

fn refuse(state: &mut State, header: RequestHeader) {
    log::warn!(
        "a request of more than {} bytes was not sent: the server would drop the connection",
        frame::MAX_REQUEST_BYTES
    );
    state.answer_locally(header, frame::ERR_BAD_ARGUMENTS);
}

/// If this fails, what was to be sent counts as in flight: `zklock-down` answers for it when it
/// finds the connection cut.
pub(super) fn send(server: &Server, bytes: &[u8]) {
    let _writing = server.writing.lock();
    let result = (&server.stream).write_all(bytes);
    if let Err(error) = result {
        log::debug!("to the server: {error}");
        server.cut();
    }
}

/// Sends a ping when nothing was sent for about a third of the session timeout, and has reads wake
/// up in time for the next.
fn keep_alive(wire: &Wire, tick: &mut Duration, loopback: &TcpStream) {
    let mut state = wire.state.lock();
    let timeout = match &state.server {
        Some(server) => server.epoch.timeout(),
        None => wire.config.session_timeout,
    };
    let wanted = Wire::tick(timeout);
    if wanted != *tick {
        *tick = wanted;
        if let Err(error) = loopback.set_read_timeout(Some(wanted)) {
            log::warn!("cannot set a time limit on the loopback stream: {error}");
        }
    }
    let now = Instant::now();
    let due = timeout / 3 - wanted.min(timeout / 6);
    let server = match &state.server {
        Some(server) if now.saturating_duration_since(state.last_sent) >= due => server.clone(),
        _ => return,
    };
    state.ping_sent(now);
    drop(state);
    send(&server, &frame::request(frame::XID_PING, frame::OP_PING));
}

pub(super) fn limit_writes(stream: &TcpStream) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_PATIENCE))
}
