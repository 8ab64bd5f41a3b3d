//! From a handle of the crate to the server.

use super::wire::say;
use std::io;
use std::net::TcpStream;

use super::frame::{self, FrameBuffer, Next, RequestHeader};
use super::wire::{Server, State, Wire};

/// Relays the crate's requests until it is gone. It is answered until it has said good-bye, also
/// when the link has been closed: whoever drops its handle waits for that.
pub(super) fn run(wire: &Wire, mut loopback: TcpStream) {
    let mut buffer = FrameBuffer::new(frame::REQUEST_HEADER_BYTES, frame::MAX_REQUEST_BYTES);
    loop {
        match buffer.fill(&mut loopback) {
            Ok(0) => break,
            Ok(_) => {
                if !relay(wire, &mut buffer) {
                    break;
                }
                acknowledge(&loopback);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                say!(wire, Debug, "from the crate: {error}");
                break;
            }
        }
    }
    wire.state.lock().loopback = None;
}

/// The crate leaves Nagle's algorithm on: while it has no answer to one request, the next waits for
/// our acknowledgement of the first, which the kernel would put off for 40 ms. Where it cannot be
/// asked for, calls beside each other are slower.
#[cfg(target_os = "linux")]
fn acknowledge(loopback: &TcpStream) {
    // Holds for what was read just now.
    let _ = rustix::net::sockopt::set_tcp_quickack(loopback, true);
}

#[cfg(not(target_os = "linux"))]
fn acknowledge(_loopback: &TcpStream) {}

/// What the frames in the buffer came to.
#[derive(Default)]
struct Relayed {
    /// For the log, which is written without a lock.
    refused: usize,
    nonsense: bool,
    backlogged: bool,
}

/// Sends on all that is in the buffer, in one write. Returns whether the crate goes on. Never
/// waits for the server: the crate drops requests when nobody reads its loopback stream.
fn relay(wire: &Wire, buffer: &mut FrameBuffer) -> bool {
    let mut relayed = Relayed::default();
    let mut state = wire.state.lock();
    let server = state.open_server().cloned();
    take_frames(&mut state, server.as_deref(), buffer, &mut relayed);
    drop(state);
    if let Some(server) = server {
        if relayed.backlogged {
            server.cut();
        } else {
            wire.flush(&server);
        }
    }
    if relayed.refused > 0 {
        say!(
            wire,
            Warn,
            "{} requests of more than {} bytes were not sent: the server would drop the connection",
            relayed.refused,
            frame::MAX_REQUEST_BYTES
        );
    }
    if relayed.nonsense {
        say!(
            wire,
            Error,
            "the zookeeper crate sent something that is no request"
        );
    }
    !relayed.nonsense
}

fn take_frames(
    state: &mut State,
    server: Option<&Server>,
    buffer: &mut FrameBuffer,
    relayed: &mut Relayed,
) {
    loop {
        match buffer.next() {
            Next::Frame(mut request) => {
                let header = request.request_header();
                match (header.opcode, server) {
                    // The good-bye of a handle is not the session's. It hangs up after the answer.
                    (frame::OP_CLOSE | frame::OP_PING, _) => {
                        state.answer_locally(header, frame::OK);
                    }
                    // Credentials are the link's own business.
                    (frame::OP_AUTH, _) => {
                        state.answer_locally(header, frame::ERR_UNIMPLEMENTED);
                    }
                    (_, Some(server)) if state.has_room(request.bytes().len()).is_ok() => {
                        // Nothing overtakes what was said before it.
                        state.say_waiting(server);
                        state.forward(server, header, request.bytes_mut());
                    }
                    // Nobody hears of a lost connection while it stands.
                    (_, Some(_)) => {
                        relayed.backlogged = true;
                        lose(state, header);
                    }
                    (_, None) => lose(state, header),
                }
            }
            Next::TooLong(request) => {
                relayed.refused += 1;
                state.answer_locally(request.request_header(), frame::ERR_BAD_ARGUMENTS);
            }
            Next::Incomplete => return,
            Next::Malformed => {
                relayed.nonsense = true;
                return;
            }
        }
    }
}

fn lose(state: &mut State, header: RequestHeader) {
    state.answer_locally(header, frame::ERR_CONNECTION_LOSS);
}
