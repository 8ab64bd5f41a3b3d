//! Requests of our own, on the same connection as the crate's.
//!
//! They are in the same queue of what is in flight, so their replies come in the same order, and a
//! break of the connection answers them like all others. They can do what the crate has no words
//! for: several requests in one write, transactions, a bound on the wait. The caller hands over a
//! [`Slot`], waits on it with its own deadline, and may leave.
//!
//! Answers and watch events are told by one thread, in the order in which the server has sent them.
//! But a caller looks at its answer on its own thread, and an event that came later may be handled
//! before that. So each answer comes with the number of events that the server had sent before it,
//! and each event with its own.

use std::fmt;
use std::time::Duration;

use zklock_protocol::{ErrorCode, Expected, Malformed, Reply};

use super::frame;
use super::packet::TooLarge;

/// After so many breaks in a row that met the same request, that request is taken for their cause.
pub(crate) const MOST_BREAKS: u32 = 3;

/// Hears the answers to what was submitted, once and all together.
pub(crate) trait Slot: Send + Sync {
    /// One answer for each request, in their order, and for each how many events of watches the
    /// server had sent before it, over the life of the link. Called on a thread of the link, with
    /// none of its locks held: may only signal.
    fn answered(&self, answers: Vec<Answer>, events_before: Vec<u64>);
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done(Reply),
    /// The server refused.
    Refused(ErrorCode),
    /// The connection broke before the answer came, or the server cannot say what became of it: it
    /// may have been done or not.
    Lost(Lost),
}

/// A request that went unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The length of the request.
    pub(crate) bytes: usize,
    /// How often, up to now, a server has hung up while a request of this kind and length was in
    /// flight, or we have, as the network did not carry it, and none was answered in between. From three on, the request itself is the likely
    /// cause: it is too long for the servers (their `jute.maxbuffer`), or they do not know it, and
    /// to repeat it is to break the connection again, under everybody.
    pub(crate) breaks: u32,
    /// The server has ended this connection, not we.
    pub(crate) by_server: bool,
}

impl Lost {
    /// Not by what the server did.
    pub(super) fn by_us(bytes: usize) -> Self {
        Self {
            bytes,
            breaks: 0,
            by_server: false,
        }
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// That connection is gone, or not open yet.
    NotOpen,
    /// A request is longer than any server takes.
    TooLarge { bytes: usize, most: usize },
    /// The server takes bytes more slowly than we send them.
    Backlogged { bytes: usize, most: usize },
    /// At the rate at which the server takes bytes, a request would be on its way for too long.
    TooSlow {
        bytes: usize,
        takes: Duration,
        most: Duration,
    },
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpen => f.write_str("the connection is gone"),
            Self::TooLarge { bytes, most } => {
                write!(f, "a request of {bytes} bytes; a server takes {most}")
            }
            Self::Backlogged { bytes, most } => write!(
                f,
                "{bytes} bytes more than the server has taken are to be sent; {most} are kept"
            ),
            Self::TooSlow { bytes, takes, most } => write!(
                f,
                "a request of {bytes} bytes would be on its way for {takes:.1?} at the rate of this \
                 network; the session's timeout allows {most:.1?}"
            ),
        }
    }
}

/// Whether requests may go into one packet with others' that are said about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// As good as certain to be done, and not in a hurry of half a millisecond: see
    /// [`batch`](super::batch). Of its requests, writes are done before lists.
    Shared,
    Alone,
}

impl From<TooLarge> for NotSent {
    fn from(TooLarge { bytes }: TooLarge) -> Self {
        Self::TooLarge {
            bytes,
            most: frame::MAX_REQUEST_BYTES,
        }
    }
}

/// What came for one request, not yet looked at.
pub(super) enum Heard {
    Reply {
        expected: Expected,
        error: ErrorCode,
        record: Vec<u8>,
        bytes: usize,
        events_before: u64,
    },
    /// And nothing will.
    Nothing(Lost),
}

impl Heard {
    /// The answer, and how many events there were before it.
    pub(super) fn decode(self, malformed: &mut Option<Malformed>) -> (Answer, u64) {
        match self {
            Self::Nothing(lost) => (Answer::Lost(lost), 0),
            Self::Reply {
                expected,
                error,
                record,
                bytes,
                events_before,
            } => {
                let answer = match expected.read(error, &record) {
                    Ok(Ok(reply)) => Answer::Done(reply),
                    // The connection ends with it.
                    Ok(Err(error)) if error.is_outcome_unknown() => {
                        Answer::Lost(Lost::by_us(bytes))
                    }
                    Ok(Err(error)) => Answer::Refused(error),
                    Err(why) => {
                        malformed.get_or_insert(why);
                        Answer::Lost(Lost::by_us(bytes))
                    }
                };
                (answer, events_before)
            }
        }
    }
}
