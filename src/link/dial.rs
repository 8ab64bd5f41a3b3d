//! One conversation with one server, before its connection carries anybody's traffic: connect,
//! shake hands, present the credentials, or close a session that nobody wants any more.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::AuthInfo;
use super::clock::Moment;
use super::frame::{self, ConnectRequest, ConnectResponse, FrameBuffer, Next};
use super::wire::Wire;

/// A TCP connect cannot be interrupted, so it never takes longer than this: closing the client has
/// two seconds.
const LONGEST_CONNECT: Duration = Duration::from_millis(1500);
/// How often a wait for a server looks whether the client was closed.
const SLICE: Duration = Duration::from_millis(100);
/// A server's handshake has some 40 bytes.
const MAX_HANDSHAKE_BYTES: usize = 1024;
const LEAST_HANDSHAKE_BYTES: usize = 20;

/// A server that has been reached.
pub(super) struct Dialled<'a> {
    wire: &'a Wire,
    stream: TcpStream,
    deadline: Instant,
    /// A good-bye, which the closing of the client does not end.
    farewell: bool,
}

impl<'a> Dialled<'a> {
    /// Connects. This and each step after it takes `limit` at the most.
    pub(super) fn connect(
        wire: &'a Wire,
        address: SocketAddr,
        limit: Duration,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + limit;
        let longest = limit.clamp(Duration::from_millis(1), LONGEST_CONNECT);
        let stream = TcpStream::connect_timeout(&address, longest)?;
        // On loopback, a connect to a dead port can get this very port as its own, and meet itself.
        // Our handshake, read as an answer, would say that the session has expired.
        if stream.local_addr()? == address {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(limit.max(Duration::from_millis(1))))?;
        Ok(Self {
            wire,
            stream,
            deadline,
            farewell: false,
        })
    }

    /// To say good-bye when the client is closed: that does not end what follows.
    pub(super) fn for_farewell(mut self) -> Self {
        self.farewell = true;
        self
    }

    /// The connection, once the server has nothing more to say on it unasked.
    pub(super) fn into_socket(self) -> TcpStream {
        self.stream
    }

    /// From now on, each step takes `limit` at the most.
    pub(super) fn allow(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
    }

    /// Returns the server's answer, and when the request was sent, on the lease's clock.
    pub(super) fn shake_hands(
        &mut self,
        request: &ConnectRequest,
    ) -> io::Result<(ConnectResponse, Moment)> {
        let sent_at = self.wire.config.clock.now();
        self.stream.write_all(&request.to_frame())?;
        let response = self
            .read_frame(LEAST_HANDSHAKE_BYTES, ConnectResponse::parse)?
            .ok_or_else(not_zookeeper)?;
        match response.protocol {
            frame::PROTOCOL => Ok((response, sent_at)),
            // What follows such a number means nothing to us, and least of all that the session is
            // over, as the rest of ClickHouse Keeper's refusal would say.
            other => Err(invalid(&format!(
                "it refuses, or speaks another version of the protocol ({other})"
            ))),
        }
    }

    /// Presents credentials. `Ok(false)`: the server refused them.
    pub(super) fn present(&mut self, auth: &AuthInfo) -> io::Result<bool> {
        let request = frame::auth_request(&auth.scheme, &auth.bytes);
        self.stream.write_all(&request)?;
        // Nothing else was asked on this connection.
        match self.read_frame(frame::REPLY_HEADER_BYTES, frame::reply_error)? {
            Some(frame::OK) => Ok(true),
            Some(frame::ERR_AUTH_FAILED) => Ok(false),
            Some(err) => Err(invalid(&format!("it answered credentials with {err}"))),
            None => Err(not_zookeeper()),
        }
    }

    /// Closes the session that this connection stands for, so that its nodes go now and not after
    /// its timeout.
    pub(super) fn close_session(&mut self) -> io::Result<()> {
        self.stream.write_all(&frame::request(1, frame::OP_CLOSE))?;
        self.read_frame(frame::REPLY_HEADER_BYTES, frame::reply_error)
            .map(drop)
    }

    /// Reads one frame, in slices, so that a close is noticed.
    fn read_frame<T>(
        &mut self,
        least: usize,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let mut buffer = FrameBuffer::new(least, MAX_HANDSHAKE_BYTES);
        loop {
            match buffer.next() {
                Next::Frame(frame) => return Ok(parse(frame.body())),
                Next::TooLong(_) | Next::Malformed => return Err(not_zookeeper()),
                Next::Incomplete => {}
            }
            // Another service's first bytes, read as a length, promise gigabytes.
            if buffer.is_leaving_out() {
                return Err(not_zookeeper());
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
            }
            if !self.farewell && self.wire.is_closing() {
                return Err(io::Error::other("the client was closed"));
            }
            self.stream.set_read_timeout(Some(left.min(SLICE)))?;
            match buffer.fill(&mut self.stream) {
                Ok(0) => return Err(hung_up(io::ErrorKind::UnexpectedEof)),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(hung_up(error.kind()));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// It looks the same for either reason.
fn hung_up(kind: io::ErrorKind) -> io::Error {
    io::Error::new(
        kind,
        "it closed the connection at once; is it part of a working quorum, or has this address too \
         many connections to it (its maxClientCnxns)?",
    )
}

/// A read that found nothing within the socket's time limit.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn not_zookeeper() -> io::Error {
    invalid("it does not speak ZooKeeper's protocol")
}
