//! A client that says what it is told to, and hides nothing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use zklock_protocol::{
    ConnectRequest, ConnectResponse, ErrorCode, Event, Frames, Reader, Reply, ReplyHeader, Request,
    RequestHeader, Writer, xid,
};

/// Longer than anything takes that happens at all.
const PATIENCE: Duration = Duration::from_secs(30);
const MOST: usize = 16 * 1024 * 1024;

/// One connection of a session.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    frames: Frames,
    next_xid: i32,
    pub(crate) session: ConnectResponse,
    /// What it was told of, with the number in each header.
    pub(crate) events: Vec<(i64, Event)>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Reply {
        zxid: i64,
        error: ErrorCode,
        reply: Reply,
    },
    /// The connection was ended.
    End,
}

impl Wire {
    /// A new session.
    pub(crate) fn open(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        Self::resume(address, timeout, 0, &[0; 16])
    }

    /// The session, if the server grants it: otherwise one whose id is 0.
    pub(crate) fn resume(
        address: SocketAddr,
        timeout: Duration,
        session_id: i64,
        password: &[u8],
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut wire = Self {
            stream,
            frames: Frames::new(MOST),
            next_xid: 1,
            session: ConnectResponse {
                protocol_version: 0,
                timeout_ms: 0,
                session_id: 0,
                password: Vec::new(),
                read_only: None,
            },
            events: Vec::new(),
        };
        let hello = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: i32::try_from(timeout.as_millis()).expect("short"),
            session_id,
            password: password.to_vec(),
            read_only: Some(false),
        };
        wire.write(&Writer::frame(|writer| hello.write(writer)))?;
        let welcome = wire.frame()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        wire.session =
            ConnectResponse::read(&mut Reader::new(&welcome)).map_err(io::Error::other)?;
        Ok(wire)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Asks, and returns the answer; events on the way are kept.
    pub(crate) fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        let number = self.send(request)?;
        self.answer(request.opcode(), number)
    }

    /// Asks, and does not wait.
    pub(crate) fn send(&mut self, request: &Request) -> io::Result<i32> {
        let number = match request {
            Request::Ping => xid::PING,
            Request::Auth { .. } => xid::AUTH,
            Request::SetWatches(_) => xid::SET_WATCHES,
            _ => {
                self.next_xid += 1;
                self.next_xid
            }
        };
        let header = RequestHeader {
            xid: number,
            opcode: request.opcode(),
        };
        self.write(&Writer::frame(|writer| {
            header.write(writer);
            request.write(writer);
        }))?;
        Ok(number)
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self, opcode: i32, number: i32) -> io::Result<Answer> {
        loop {
            let Some(frame) = self.frame()? else {
                return Ok(Answer::End);
            };
            let mut reader = Reader::new(&frame);
            let header = ReplyHeader::read(&mut reader).map_err(io::Error::other)?;
            if header.xid == xid::EVENT {
                let event = Event::read(&mut reader).map_err(io::Error::other)?;
                self.events.push((header.zxid, event));
                continue;
            }
            assert_eq!(header.xid, number, "answers come in order");
            let reply = if header.error == ErrorCode::OK {
                Reply::read(opcode, &mut reader).map_err(io::Error::other)?
            } else {
                Reply::Nothing
            };
            assert_eq!(reader.rest(), b"", "nothing more to {opcode}");
            return Ok(Answer::Reply {
                zxid: header.zxid,
                error: header.error,
                reply,
            });
        }
    }

    /// Waits until the server ends the connection. Only events may come before.
    pub(crate) fn read_to_end(&mut self) -> io::Result<()> {
        while let Some(frame) = self.frame()? {
            let mut reader = Reader::new(&frame);
            let header = ReplyHeader::read(&mut reader).map_err(io::Error::other)?;
            assert_eq!(header.xid, xid::EVENT, "nobody asked");
            let event = Event::read(&mut reader).map_err(io::Error::other)?;
            self.events.push((header.zxid, event));
        }
        Ok(())
    }

    /// The connection itself, to be used otherwise.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// The next frame; none at the end.
    pub(crate) fn frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.frames.next_frame().map_err(io::Error::other)? {
                return Ok(Some(frame));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.frames.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}
