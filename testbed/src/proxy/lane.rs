//! One direction of one connection: what waits to be passed on, and until when.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use super::RuleId;
use super::frames::Cutter;

/// Beyond this a lane reads no more, so that TCP slows the sender down.
const MAX_WAITING: usize = 4 * 1024 * 1024;

/// Something on its way to the other side.
#[derive(Debug)]
pub(super) enum Parcel {
    Bytes {
        bytes: Vec<u8>,
        due: Instant,
        held_by: Option<RuleId>,
    },
    /// The sender has closed its side.
    End,
    /// The connection is to be reset at this point of the stream.
    Reset,
    /// The connection is to fall silent at this point of the stream.
    Silence,
}

/// What came of an attempt to pass on what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing more to do before the socket, the clock or a test says so.
    Waits,
    Reset,
    Silence,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) cutter: Cutter,
    waiting: VecDeque<Parcel>,
    waiting_bytes: usize,
    /// How much of the first parcel has been written.
    written: usize,
    source_ended: bool,
}

impl Lane {
    pub(super) fn wants_to_read(&self) -> bool {
        !self.source_ended && self.waiting_bytes < MAX_WAITING
    }

    /// Whether something may be written at `now`.
    pub(super) fn wants_to_write(&self, now: Instant) -> bool {
        match self.waiting.front() {
            Some(Parcel::Bytes { due, held_by, .. }) => held_by.is_none() && *due <= now,
            Some(Parcel::End | Parcel::Reset | Parcel::Silence) => true,
            None => false,
        }
    }

    /// When the clock alone will let the first parcel go.
    pub(super) fn next_due(&self) -> Option<Instant> {
        match self.waiting.front()? {
            Parcel::Bytes {
                due, held_by: None, ..
            } => Some(*due),
            _ => None,
        }
    }

    pub(super) fn push(&mut self, parcel: Parcel) {
        if let Parcel::Bytes { bytes, .. } = &parcel {
            self.waiting_bytes += bytes.len();
        }
        self.waiting.push_back(parcel);
    }

    /// Notes that nothing more will be read, after `last` has been passed on.
    pub(super) fn end_source(&mut self, last: Parcel) {
        self.source_ended = true;
        self.push(last);
    }

    /// Lets go of what a rule holds back.
    pub(super) fn release(&mut self, is_released: impl Fn(RuleId) -> bool) {
        for parcel in &mut self.waiting {
            if let Parcel::Bytes { held_by, .. } = parcel {
                held_by.take_if(|rule| is_released(*rule));
            }
        }
    }

    /// Whether both sides have ended and nothing is under way.
    pub(super) fn is_over(&self) -> bool {
        self.source_ended && self.waiting.is_empty()
    }

    /// Writes as much as may go at `now` and as the socket takes.
    pub(super) fn pass_on(&mut self, sink: &TcpStream, now: Instant) -> Progress {
        while self.wants_to_write(now) {
            match self.waiting.front() {
                Some(Parcel::Bytes { .. }) => {
                    if self.write_first(sink) == Written::Partly {
                        break;
                    }
                }
                Some(Parcel::End) => {
                    self.waiting.pop_front();
                    // Fails where the other side has gone already.
                    let _ = sink.shutdown(Shutdown::Write);
                }
                Some(Parcel::Reset) => return Progress::Reset,
                Some(Parcel::Silence) => {
                    self.waiting.pop_front();
                    return Progress::Silence;
                }
                None => break,
            }
        }
        Progress::Waits
    }

    fn write_first(&mut self, mut sink: &TcpStream) -> Written {
        let Some(Parcel::Bytes { bytes, .. }) = self.waiting.front() else {
            return Written::Wholly;
        };
        let length = bytes.len();
        match sink.write(&bytes[self.written..]) {
            Ok(count) => self.written += count,
            Err(error) if is_passing(&error) => return Written::Partly,
            // The receiver is gone. It will be noticed when its own lane is
            // read, in turn behind what it sent before; until then the bytes
            // are lost as they would be on a wire.
            Err(_) => self.written = length,
        }
        if self.written < length {
            return Written::Partly;
        }
        self.written = 0;
        self.waiting_bytes -= length;
        self.waiting.pop_front();
        Written::Wholly
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Written {
    Wholly,
    Partly,
}

/// Whether the same call may succeed a little later.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
