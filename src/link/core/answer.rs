//! What is asked of the link, and what comes back.
//!
//! All requests are in one queue of what is in flight, so their replies come in the same order, and
//! a break of the connection answers them all. The caller hands over a [`Completion`], waits with its
//! own deadline, and may leave.
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

/// Hears the answers to what was submitted, once and all together.
pub(crate) trait Completion: Send + Sync {
    /// One answer for each request, in their order. Called on a thread of the link, with none of its
    /// locks held: may only signal.
    fn completed(&self, answers: Vec<Answer>);
}

/// The answer to one request, and its place in what the server has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) result: Result<Reply, NoReply>,
    /// How many events of watches the server had sent before this answer, over the life of the link.
    /// An event goes by another way than an answer, and either can overtake the other; by this
    /// number, and the events' own, their order on the server is known all the same.
    pub(crate) events_before: u64,
}

/// Why a request was not done, or is not known to have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// The server said no to a request with the number `asked`; what that means depends on it.
    Refused { asked: i32, error: ErrorCode },
    /// The connection broke before the answer came, or the server cannot say what became of it: it
    /// may have been done or not.
    Lost(Lost),
    /// No server has seen it.
    NotSent(NotSent),
}

impl From<NoReply> for Answer {
    /// With no event that is known to come before it.
    fn from(no: NoReply) -> Self {
        Self {
            result: Err(no),
            events_before: 0,
        }
    }
}

impl Answer {
    /// Nothing is known, not even of whether the request could be to blame.
    pub(crate) fn lost() -> Self {
        NoReply::Lost(Lost::default()).into()
    }
}

/// A request that went unanswered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// After so many breaks in a row that met the same request, that request is taken for their cause.
pub(in crate::link) const MOST_BREAKS: u32 = 3;

impl Lost {
    /// Not by what the server did.
    pub(in crate::link) fn by_us(bytes: usize) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Whether to repeat the request would break the next connection, too.
    pub(crate) fn is_poison(self) -> bool {
        self.breaks >= MOST_BREAKS
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// That connection is gone.
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

impl From<TooLarge> for NotSent {
    fn from(TooLarge { bytes }: TooLarge) -> Self {
        Self::TooLarge {
            bytes,
            most: frame::MAX_REQUEST_BYTES,
        }
    }
}

/// Whether requests may share packets with others' that are asked about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batching {
    /// For what is as good as certain to be done, and not in a hurry of half a millisecond: see
    /// [`batch`](super::batch). Of these requests, writes are done before lists.
    Allowed,
    Never,
}

/// What came for one request, not yet looked at.
pub(in crate::link) enum RawReply {
    Reply {
        asked: i32,
        expected: Expected,
        error: ErrorCode,
        record: Vec<u8>,
        bytes: usize,
        events_before: u64,
    },
    /// Nothing came, and nothing will.
    Lost(Lost),
}

impl RawReply {
    pub(in crate::link) fn decode(self, malformed: &mut Option<Malformed>) -> Answer {
        match self {
            Self::Lost(lost) => NoReply::Lost(lost).into(),
            Self::Reply {
                asked,
                expected,
                error,
                record,
                bytes,
                events_before,
            } => {
                let lost = NoReply::Lost(Lost::by_us(bytes));
                let result = match expected.read(error, &record) {
                    Ok(Ok(reply)) => Ok(reply),
                    // The connection ends with it.
                    Ok(Err(error)) if error.is_outcome_unknown() => Err(lost),
                    Ok(Err(error)) => Err(NoReply::Refused { asked, error }),
                    Err(why) => {
                        malformed.get_or_insert(why);
                        Err(lost)
                    }
                };
                Answer {
                    result,
                    events_before,
                }
            }
        }
    }
}
