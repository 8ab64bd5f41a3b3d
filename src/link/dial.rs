//! One conversation with one server, before its connection carries anybody's traffic: connect,
//! shake hands, present the credentials, or close a session that nobody wants any more.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::AuthInfo;
use super::clock::Moment;
use super::core::frame::{self, ConnectRequest, ConnectResponse, FrameBuffer, Next};
use super::stream::Stream;
use super::targets::Target;
use super::tls::Channel;
use super::wire::{Wire, say};

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
    socket: TcpStream,
    channel: Option<Channel>,
    /// On the lease's clock, like all that the lease is measured against.
    deadline: Moment,
    /// A good-bye, which the closing of the client does not end.
    farewell: bool,
}

impl<'a> Dialled<'a> {
    /// Connects. This and each step after it takes at most `limit`.
    pub(super) fn connect(wire: &'a Wire, target: &Target, limit: Duration) -> io::Result<Self> {
        Self::reach(wire, target, limit)?.secured(target)
    }

    /// To say good-bye when the client is closed: that does not end what follows.
    pub(super) fn connect_for_farewell(
        wire: &'a Wire,
        target: &Target,
        limit: Duration,
    ) -> io::Result<Self> {
        let reached = Self::reach(wire, target, limit)?;
        reached.for_farewell().secured(target)
    }

    fn reach(wire: &'a Wire, target: &Target, limit: Duration) -> io::Result<Self> {
        let address = target.address;
        let deadline = wire.config.clock.now().plus(limit);
        let longest = limit.clamp(Duration::from_millis(1), LONGEST_CONNECT);
        let socket = TcpStream::connect_timeout(&address, longest)?;
        // On loopback, a connect to a dead port can get this very port as its own, and meet itself.
        // Our handshake, read as an answer, would say that the session has expired.
        if socket.local_addr()? == address {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(limit.max(Duration::from_millis(1))))?;
        Ok(Self {
            wire,
            socket,
            channel: None,
            deadline,
            farewell: false,
        })
    }

    /// Whether the server answers the beginning of a handshake of TLS as one that speaks it.
    pub(super) fn speaks_tls(wire: &'a Wire, target: &Target, limit: Duration) -> io::Result<bool> {
        let mut server = Self::reach(wire, target, limit)?;
        server.send(&tls_hello())?;
        let mut answer = [0; 2];
        let mut came = 0;
        while came < answer.len() {
            server.socket.set_read_timeout(Some(server.time_slice()?))?;
            match server.socket.read(&mut answer[came..]) {
                Ok(0) => return Ok(false),
                Ok(read) => came += read,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // An alert or a hello of its own, in any version from SSL 3 on.
        Ok(matches!(answer, [21 | 22, 3]))
    }

    /// Shakes hands by TLS, if that was asked for.
    fn secured(mut self, target: &Target) -> io::Result<Self> {
        let Some(tls) = &self.wire.config.tls else {
            return Ok(self);
        };
        if let Some(warning) = tls.warning() {
            say!(self.wire, Warn, "{warning}");
        }
        let channel = Channel::begin(tls, &target.name)?;
        while channel.is_shaking_hands() {
            self.send_pending(&channel)?;
            let limit = self.time_slice()?;
            self.socket.set_read_timeout(Some(limit))?;
            match channel.receive(&self.socket) {
                Ok(0) => return Err(closed(channel.hung_up())),
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(closed(channel.hung_up()));
                }
                Err(error) => {
                    // The server's log shall say why, too.
                    let _ = self.send_pending(&channel);
                    return Err(error);
                }
            }
        }
        self.send_pending(&channel)?;
        self.channel = Some(channel);
        Ok(self)
    }

    /// What TLS itself has to say.
    fn send_pending(&self, channel: &Channel) -> io::Result<()> {
        let mut sealed = Vec::new();
        channel.seal(&[], &mut sealed)?;
        (&self.socket).write_all(&sealed)
    }

    /// From here on, the closing of the client does not end what is under way.
    pub(super) fn for_farewell(mut self) -> Self {
        self.farewell = true;
        self
    }

    /// The connection, once the server has nothing more to say on it unasked.
    pub(super) fn into_stream(self) -> io::Result<Stream> {
        Stream::new(self.socket, self.channel)
    }

    /// From now on, each step takes at most `limit`.
    pub(super) fn allow(&mut self, limit: Duration) {
        self.deadline = self.wire.config.clock.now().plus(limit);
    }

    /// Returns the server's answer, and when the request was sent, on the lease's clock.
    pub(super) fn shake_hands(
        &mut self,
        request: &ConnectRequest,
    ) -> io::Result<(ConnectResponse, Moment)> {
        let sent_at = self.wire.config.clock.now();
        self.send(&request.to_frame())?;
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
        self.send(&request)?;
        // Nothing else was asked on this connection.
        match self.read_frame(frame::REPLY_HEADER_BYTES, frame::reply_error)? {
            Some(frame::OK) => Ok(true),
            Some(frame::ERR_AUTH_FAILED) => Ok(false),
            Some(err) => Err(invalid(&format!("it answered credentials with {err}"))),
            None => Err(not_zookeeper()),
        }
    }

    /// One word of a login, and the server's answer to it. `Ok(None)`: the server refused.
    #[cfg(feature = "sasl")]
    pub(super) fn exchange_sasl(
        &mut self,
        number: i32,
        token: &[u8],
    ) -> io::Result<Option<Vec<u8>>> {
        self.send(&frame::sasl_request(number, token))?;
        match self.read_frame(frame::REPLY_HEADER_BYTES, frame::sasl_reply)? {
            Some((frame::OK, token)) => Ok(Some(token)),
            Some((frame::ERR_AUTH_FAILED, _)) => Ok(None),
            Some((err, _)) => Err(invalid(&format!("it answered a login with {err}"))),
            None => Err(not_zookeeper()),
        }
    }

    /// Closes the session of this connection, so that its nodes go now and not after its timeout.
    pub(super) fn close_session(&mut self) -> io::Result<()> {
        self.send(&frame::request(1, frame::OP_CLOSE))?;
        self.read_frame(frame::REPLY_HEADER_BYTES, frame::reply_error)
            .map(drop)
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let Some(channel) = &self.channel else {
            return self.socket.write_all(frame);
        };
        let mut sealed = Vec::new();
        channel.seal(frame, &mut sealed)?;
        match self.socket.write_all(&sealed) {
            // What it said before it hung up tells more; it is read next.
            Err(error) if is_gone(&error) => Ok(()),
            sent => sent,
        }
    }

    /// How long to wait for a server at once, so that a close is noticed.
    fn time_slice(&self) -> io::Result<Duration> {
        let left = self.deadline.since(self.wire.config.clock.now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        }
        if !self.farewell && self.wire.is_closing() {
            return Err(io::Error::other("the client was closed"));
        }
        Ok(left.min(SLICE))
    }

    fn hung_up(&self, kind: io::ErrorKind) -> io::Error {
        match &self.channel {
            Some(channel) => closed(channel.hung_up()),
            None => hung_up(kind),
        }
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
            let limit = self.time_slice()?;
            self.socket.set_read_timeout(Some(limit))?;
            match buffer.fill(self) {
                Ok(0) => return Err(self.hung_up(io::ErrorKind::UnexpectedEof)),
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) if is_gone(&error) => return Err(self.hung_up(error.kind())),
                Err(error) => return Err(error),
            }
        }
    }
}

/// What came, in the clear.
impl Read for Dialled<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.channel {
            None => self.socket.read(bytes),
            Some(channel) => channel.read(&self.socket, bytes),
        }
    }
}

/// The first message of TLS 1.2, without extensions: enough for an answer, if only an alert.
fn tls_hello() -> Vec<u8> {
    const RANDOM_BYTES: usize = 32;
    let ciphers = [0, 4, 0xc0, 0x2b, 0xc0, 0x2f];
    let mut hello = vec![3, 3];
    hello.extend([0; RANDOM_BYTES]);
    // No session to resume.
    hello.push(0);
    hello.extend(ciphers);
    // No compression.
    hello.extend([1, 0]);
    let len = u8::try_from(hello.len()).expect("some forty bytes");
    let mut record = vec![22, 3, 1, 0, len + 4, 1, 0, 0, len];
    record.extend(hello);
    record
}

fn closed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

/// A read to be tried again.
fn is_passing(error: &io::Error) -> bool {
    is_timeout(error) || error.kind() == io::ErrorKind::Interrupted
}

/// The server has closed its end, and did not read all of what it was sent.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
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
