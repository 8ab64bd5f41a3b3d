//! One attempt at one server: connect, shake hands, present the credentials.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::frame::{self, ConnectRequest, ConnectResponse, FrameBuffer, Next};
use super::upstream::{is_timeout, limit_writes};
use super::wire::Wire;

/// A TCP connect cannot be interrupted, so it never takes longer than this: closing the client has
/// two seconds.
const LONGEST_CONNECT: Duration = Duration::from_millis(1500);
/// How often a wait for a server looks whether the client was closed.
const SLICE: Duration = Duration::from_millis(100);
/// A server's handshake has some 40 bytes.
const MAX_HANDSHAKE_BYTES: usize = 1024;
const LEAST_HANDSHAKE_BYTES: usize = 20;

/// A server's answer to a handshake.
pub(super) struct Greeting {
    pub(super) stream: TcpStream,
    pub(super) response: ConnectResponse,
    /// When the request was sent.
    pub(super) sent_at: Instant,
}

/// Connects to `address` and shakes hands, until `deadline`.
pub(super) fn greet(
    wire: &Wire,
    address: SocketAddr,
    request: &ConnectRequest,
    deadline: Instant,
) -> io::Result<Greeting> {
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = left.clamp(Duration::from_millis(1), LONGEST_CONNECT);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_nodelay(true)?;
    limit_writes(&stream)?;
    let sent_at = Instant::now();
    stream.write_all(&request.to_frame())?;
    let mut buffer = FrameBuffer::new(LEAST_HANDSHAKE_BYTES, MAX_HANDSHAKE_BYTES);
    let response = read_frame(wire, &mut stream, &mut buffer, deadline, |body| {
        ConnectResponse::parse(body)
    })?;
    let Some(response) = response else {
        return Err(invalid("it does not speak ZooKeeper's protocol"));
    };
    Ok(Greeting {
        stream,
        response,
        sent_at,
    })
}

/// Presents credentials. `Ok(false)`: the server refused them.
pub(super) fn present(
    wire: &Wire,
    stream: &mut TcpStream,
    scheme: &str,
    credentials: &[u8],
    deadline: Instant,
) -> io::Result<bool> {
    stream.write_all(&frame::auth_request(scheme, credentials))?;
    let mut buffer = FrameBuffer::new(frame::REPLY_HEADER_BYTES, MAX_HANDSHAKE_BYTES);
    let err = read_frame(wire, stream, &mut buffer, deadline, |body| {
        // Nothing was asked on this connection but this.
        Some(i32::from_be_bytes(body.get(12..16)?.try_into().ok()?))
    })?;
    Ok(err == Some(frame::OK))
}

/// Closes a session that we do not want any more, so that its nodes go now and not after its
/// timeout. Whatever comes of it.
pub(super) fn bury(wire: &Wire, stream: &mut TcpStream, deadline: Instant) {
    let farewell = frame::request(1, frame::OP_CLOSE);
    let mut buffer = FrameBuffer::new(frame::REPLY_HEADER_BYTES, MAX_HANDSHAKE_BYTES);
    let buried = stream
        .write_all(&farewell)
        .and_then(|()| read_frame(wire, stream, &mut buffer, deadline, |_| Some(())));
    if let Err(error) = buried {
        log::debug!("closing the lost session: {error}; it goes when it expires");
    }
}

/// Reads one frame, in slices, so that a close is noticed.
fn read_frame<T>(
    wire: &Wire,
    stream: &mut TcpStream,
    buffer: &mut FrameBuffer,
    deadline: Instant,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    loop {
        match buffer.next() {
            Next::Frame(frame) => return Ok(parse(frame.body())),
            Next::TooLong(_) | Next::Malformed => {
                return Err(invalid("it does not speak ZooKeeper's protocol"));
            }
            Next::Incomplete => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        }
        if wire.is_closing() {
            return Err(invalid("the client was closed"));
        }
        stream.set_read_timeout(Some(left.min(SLICE)))?;
        match buffer.fill(stream) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "it closed the connection at once; is it part of a working quorum?",
                ));
            }
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}
