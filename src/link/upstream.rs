//! `zklock-up`: from the crate to the server, and with an eye on the clock.

use super::wire::say;
use std::io;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::dial::is_timeout;
use super::frame::{self, FrameBuffer, Next, RequestHeader};
use super::in_flight::Ended;
use super::said::Said;
use super::wire::{Server, State, Wire};

/// How long a read lasts where nothing else can end it, and so how late a look at the clock can be.
const BLIND: Duration = Duration::from_millis(10);

/// Relays the crate's requests, and looks at the clock, until the crate is gone.
///
/// Here the clock is looked at in time whatever the servers do: this thread waits for nothing else
/// but the crate, which is in this process.
///
/// A panic, of what is called when the clock is looked at, ends the session. But the crate must be
/// answered until it has said good-bye, or whoever drops its handle waits for ever.
pub(super) fn run(wire: &Arc<Wire>, mut loopback: TcpStream) {
    let mut buffer = FrameBuffer::new(frame::REQUEST_HEADER_BYTES, frame::MAX_REQUEST_BYTES);
    if cfg!(not(unix)) {
        let _ = loopback.set_read_timeout(Some(BLIND));
    }
    let mut all = || relay_all(wire, &mut loopback, &mut buffer);
    while catch_unwind(AssertUnwindSafe(&mut all)).is_err() {
        // From now on no clock is looked at. What came last has been taken out of the buffer.
        wire.end_by_itself();
    }
    wire.state.lock().loopback = None;
    wire.end_by_itself();
}

fn relay_all(wire: &Wire, loopback: &mut TcpStream, buffer: &mut FrameBuffer) {
    loop {
        let next_look = if wire.is_closing() {
            None
        } else {
            wire.look_at_clock()
        };
        match wire.up.wait(loopback, false, next_look) {
            Ok(ready) if ready.readable => {}
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                say!(wire, Error, "cannot wait for the crate: {error}");
                break;
            }
        }
        match buffer.fill(loopback) {
            Ok(0) => break,
            Ok(_) => {
                if !relay(wire, buffer) {
                    break;
                }
                acknowledge(loopback);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted || is_timeout(&error) => {}
            Err(error) => {
                say!(wire, Debug, "from the crate: {error}");
                break;
            }
        }
    }
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
    /// The crate said good-bye, or nonsense.
    over: bool,
    /// Who is told that nothing more comes.
    told: Vec<Said>,
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
    let server = state.server.clone().filter(|_| state.open);
    let connection = server.as_ref().map_or(0, |server| server.connection);
    take_frames(&mut state, server.as_deref(), buffer, &mut relayed);
    drop(state);
    if let Some(server) = server {
        if relayed.backlogged {
            server.cut();
        } else {
            wire.flush(&server);
        }
    }
    wire.tell_lost(connection, relayed.told);
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
    !relayed.over
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
                    (frame::OP_CLOSE, _) => {
                        relayed.told = state.answer_all_lost(Ended::ByUs);
                        state.answer_locally(header, frame::OK);
                        relayed.over = true;
                        return;
                    }
                    (frame::OP_PING, _) => state.answer_locally(header, frame::OK),
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
                relayed.over = true;
                return;
            }
        }
    }
}

fn lose(state: &mut State, header: RequestHeader) {
    state.answer_locally(header, frame::ERR_CONNECTION_LOSS);
}
