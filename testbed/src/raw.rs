//! A session spoken by hand: one socket, one request at a time, no client
//! library between the test and the bytes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::opcode;

/// Nodes are open to everybody: scheme `world`, id `anyone`, all rights.
const ALL_RIGHTS: i32 = 31;
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;

/// An open session on a raw socket. Every call is bounded by the time limit
/// given to `open`. Dropping it leaves the session to expire; `close` ends it.
#[derive(Debug)]
pub struct RawSession {
    stream: TcpStream,
    next_xid: i32,
    pub session_id: i64,
    pub password: Vec<u8>,
    /// What the server granted.
    pub timeout: Duration,
}

/// What a request came to: an error code of the protocol (0 is success) and
/// what followed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub xid: i32,
    pub zxid: i64,
    pub error: i32,
    pub body: Vec<u8>,
}

/// What a node says about itself, as far as tests ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub version: i32,
    /// The session that it ends with, or 0 if it is persistent.
    pub ephemeral_owner: i64,
}

impl RawSession {
    /// Opens a new session.
    pub fn open(addr: SocketAddr, timeout: Duration) -> io::Result<RawSession> {
        RawSession::handshake(addr, timeout, 0, &[0; 16])
    }

    /// Takes over a session that another connection opened. To `close` it then
    /// ends the session under its owner, at a moment of the test's choice.
    pub fn resume(
        addr: SocketAddr,
        timeout: Duration,
        session_id: i64,
        password: &[u8],
    ) -> io::Result<RawSession> {
        RawSession::handshake(addr, timeout, session_id, password)
    }

    fn handshake(
        addr: SocketAddr,
        timeout: Duration,
        session_id: i64,
        password: &[u8],
    ) -> io::Result<RawSession> {
        let stream = TcpStream::connect_timeout(&addr, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        let mut session = RawSession {
            stream,
            next_xid: 1,
            session_id,
            password: password.to_vec(),
            timeout,
        };
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let mut hello = Vec::new();
        put_int(&mut hello, 0); // protocol version
        hello.extend(0_i64.to_be_bytes()); // last zxid seen
        put_int(&mut hello, timeout_ms);
        hello.extend(session_id.to_be_bytes());
        put_bytes(&mut hello, password);
        hello.push(0); // not read-only
        session.send(&hello)?;
        let welcome = session.receive()?;
        let mut fields = Fields(&welcome);
        fields.int()?;
        let granted_ms = fields.int()?;
        session.timeout = Duration::from_millis(u64::try_from(granted_ms).unwrap_or_default());
        session.session_id = fields.long()?;
        session.password = fields.bytes()?.to_vec();
        Ok(session)
    }

    /// Whether the server granted the session: a resumed one that has expired
    /// comes back with a timeout of zero.
    pub fn is_granted(&self) -> bool {
        !self.timeout.is_zero()
    }

    /// Creates a node; returns the path it got.
    pub fn create(&mut self, path: &str, data: &[u8], flags: Flags) -> io::Result<String> {
        let reply = self.call(opcode::CREATE, &create_body(path, data, flags))?;
        let reply = reply.ok()?;
        let path = Fields(&reply.body).bytes()?.to_vec();
        String::from_utf8(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    pub fn delete(&mut self, path: &str) -> io::Result<()> {
        let mut body = path_body(path);
        put_int(&mut body, -1); // any version
        self.call(opcode::DELETE, &body)?.ok().map(drop)
    }

    pub fn exists(&mut self, path: &str) -> io::Result<bool> {
        let mut body = path_body(path);
        body.push(0); // no watch
        let reply = self.call(opcode::EXISTS, &body)?;
        match reply.error {
            error_code::NO_NODE => Ok(false),
            _ => reply.ok().map(|_| true),
        }
    }

    /// None if the node does not exist.
    pub fn stat(&mut self, path: &str) -> io::Result<Option<Stat>> {
        let mut body = path_body(path);
        body.push(0); // no watch
        let reply = self.call(opcode::EXISTS, &body)?;
        match reply.error {
            error_code::NO_NODE => Ok(None),
            _ => Stat::read(&mut Fields(&reply.ok()?.body)).map(Some),
        }
    }

    /// The names of a node's children, in the server's (no) order.
    pub fn children(&mut self, path: &str) -> io::Result<Vec<String>> {
        let mut body = path_body(path);
        body.push(0); // no watch
        let reply = self.call(opcode::GET_CHILDREN, &body)?.ok()?;
        let mut fields = Fields(&reply.body);
        (0..fields.int()?)
            .map(|_| Ok(String::from_utf8_lossy(fields.bytes()?).into_owned()))
            .collect()
    }

    pub fn data(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let mut body = path_body(path);
        body.push(0); // no watch
        let reply = self.call(opcode::GET_DATA, &body)?.ok()?;
        Ok(Fields(&reply.body).bytes()?.to_vec())
    }

    pub fn set_data(&mut self, path: &str, data: &[u8]) -> io::Result<()> {
        let mut body = path_body(path);
        put_bytes(&mut body, data);
        put_int(&mut body, -1); // any version
        self.call(opcode::SET_DATA, &body)?.ok().map(drop)
    }

    /// Ends the session: its ephemeral nodes are gone when this returns.
    pub fn close(mut self) -> io::Result<()> {
        self.call(opcode::CLOSE, &[])?.ok().map(drop)
    }

    /// Sends a request and returns its reply, whatever it says.
    pub fn call(&mut self, opcode: i32, body: &[u8]) -> io::Result<Reply> {
        let xid = self.request(opcode, body)?;
        loop {
            let reply = self.reply()?;
            // Notifications of watches carry no xid of ours.
            if reply.xid == xid {
                return Ok(reply);
            }
        }
    }

    /// Sends a request and returns its xid, not waiting for the reply.
    pub fn request(&mut self, opcode: i32, body: &[u8]) -> io::Result<i32> {
        let xid = self.next_xid;
        self.next_xid += 1;
        let mut frame = Vec::new();
        put_int(&mut frame, xid);
        put_int(&mut frame, opcode);
        frame.extend_from_slice(body);
        self.send(&frame)?;
        Ok(xid)
    }

    /// The next reply or notification.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let frame = self.receive()?;
        let mut fields = Fields(&frame);
        Ok(Reply {
            xid: fields.int()?,
            zxid: fields.long()?,
            error: fields.int()?,
            body: fields.0.to_vec(),
        })
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let mut framed = Vec::with_capacity(4 + frame.len());
        put_bytes(&mut framed, frame);
        self.stream.write_all(&framed)
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).map_err(|_| malformed())?;
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }
}

impl Stat {
    fn read(fields: &mut Fields<'_>) -> io::Result<Stat> {
        // The transactions that made and last changed it, and when those were.
        for _ in 0..4 {
            fields.long()?;
        }
        let version = fields.int()?;
        fields.int()?; // of its children
        fields.int()?; // of its access list
        Ok(Stat {
            version,
            ephemeral_owner: fields.long()?,
        })
    }
}

impl Reply {
    /// The reply itself if it is a success, else its code as an error.
    pub fn ok(self) -> io::Result<Reply> {
        match self.error {
            0 => Ok(self),
            code => Err(io::Error::other(format!("ZooKeeper error {code}"))),
        }
    }
}

/// The codes that the test bed itself has to know.
pub mod error_code {
    pub const NO_NODE: i32 = -101;
    pub const NODE_EXISTS: i32 = -110;
}

/// What kind of node to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flags {
    Persistent,
    PersistentSequential,
    Ephemeral,
    EphemeralSequential,
}

/// The body of a create request, for use with [`RawSession::request`].
pub fn create_body(path: &str, data: &[u8], flags: Flags) -> Vec<u8> {
    let mut body = path_body(path);
    put_bytes(&mut body, data);
    put_int(&mut body, 1); // one access rule
    put_int(&mut body, ALL_RIGHTS);
    put_bytes(&mut body, b"world");
    put_bytes(&mut body, b"anyone");
    put_int(
        &mut body,
        match flags {
            Flags::Persistent => 0,
            Flags::PersistentSequential => SEQUENTIAL,
            Flags::Ephemeral => EPHEMERAL,
            Flags::EphemeralSequential => EPHEMERAL | SEQUENTIAL,
        },
    );
    body
}

fn path_body(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    put_bytes(&mut body, path.as_bytes());
    body
}

fn put_int(bytes: &mut Vec<u8>, value: i32) {
    bytes.extend(value.to_be_bytes());
}

fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_int(
        bytes,
        i32::try_from(value.len()).expect("test data is small"),
    );
    bytes.extend_from_slice(value);
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "not a frame of ZooKeeper's protocol",
    )
}

/// What is left to read of a frame.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn int(&mut self) -> io::Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> io::Result<i64> {
        self.take().map(i64::from_be_bytes)
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        // A length of -1 stands for "none".
        let length = usize::try_from(self.int()?.max(0)).map_err(|_| malformed())?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*bytes)
    }
}
