//! `zklock-up`: from the crate to the server.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use super::LinkEvent;
use super::frame::{self, FrameBuffer, Next, RequestHeader};
use super::wire::{State, Wire};

/// Relays the crate's requests until the crate is gone.
pub(super) fn run(wire: &Arc<Wire>, mut loopback: TcpStream) {
    let mut buffer = FrameBuffer::new(frame::REQUEST_HEADER_BYTES, frame::MAX_REQUEST_BYTES);
    let mut out = Vec::new();
    loop {
        match buffer.fill(&mut loopback) {
            Ok(0) => break,
            Ok(_) => {
                if !relay(wire, &mut buffer, &mut out) {
                    break;
                }
            }
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

/// Sends on all that is in the buffer, in one write. Returns whether the crate goes on.
fn relay(wire: &Wire, buffer: &mut FrameBuffer, out: &mut Vec<u8>) -> bool {
    out.clear();
    let writing = wire.write();
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
    // Nobody who has to cut the connection waits for this write.
    drop(state);
    if let (Some(server), false) = (server, out.is_empty()) {
        let _ = server.send(&writing, out);
    }
    if out.capacity() > frame::MAX_REQUEST_BYTES {
        *out = Vec::new();
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
