//! The session's transition table: pure, so that every step can be tested.
//!
//! ```text
//!              connected            drained
//! Connecting ------------> Opening ---------> Connected
//!     ^                     |   ^                 |
//!     |      lost           |   | connected       | suspended
//!     +---------------------+   | (same session)  v
//!     +------------------------ Suspended <-------+
//!                    lost            (close leads from everywhere to Closed)
//! ```
//!
//! **Opening** exists for one reason: a request that was handed to the crate before a break must
//! never be executed on the connection after it, in what may be another session. So the link
//! refuses traffic on a new connection until all calls begun before have been answered (with
//! ConnectionLoss, at once), and only then the connection is opened. No call crosses an epoch.

use std::sync::Arc;
use std::time::Instant;

use crate::link::Epoch;
use crate::session::connection::ConnectionState;

#[derive(Clone, Debug)]
enum Phase {
    /// No session stands.
    Connecting,
    /// A connection stands; calls of an earlier one are still being answered.
    Opening {
        epoch: Arc<Epoch>,
        resumed: bool,
    },
    Connected {
        epoch: Arc<Epoch>,
    },
    /// The session may live; no connection.
    Suspended {
        epoch: Arc<Epoch>,
    },
    Closed,
}

/// What a caller may rely on while it stands: one connection of one session.
#[derive(Clone, Debug)]
pub(crate) struct Contact {
    pub(crate) epoch: Arc<Epoch>,
    /// Counts connections, over all sessions. Never 0.
    pub(crate) connection: u64,
}

/// A connection was opened to calls.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) contact: Contact,
    /// The session is the one from before.
    pub(crate) resumed: bool,
}

#[derive(Debug)]
pub(crate) struct Standing {
    phase: Phase,
    /// The number of the last connection that was opened.
    connection: u64,
    /// Calls that were begun and not answered.
    in_flight: usize,
    /// Since when there is no open connection.
    out_of_contact_since: Instant,
}

/// Why a call could not be begun.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoContact {
    Disconnected,
    Closed,
}

impl Standing {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Connecting,
            connection: 0,
            in_flight: 0,
            out_of_contact_since: now,
        }
    }

    /// Counts as a call in flight, until [`Standing::answered`]: nothing is opened before the
    /// session can make calls.
    pub(crate) fn hold_back(&mut self) {
        self.in_flight += 1;
    }

    pub(crate) fn state(&self) -> ConnectionState {
        match self.phase {
            Phase::Connecting | Phase::Opening { resumed: false, .. } => {
                ConnectionState::Connecting
            }
            Phase::Opening { resumed: true, .. } | Phase::Suspended { .. } => {
                ConnectionState::Suspended
            }
            Phase::Connected { .. } => ConnectionState::Connected,
            Phase::Closed => ConnectionState::Closed,
        }
    }

    /// The session that stands, connected or not.
    pub(crate) fn epoch(&self) -> Option<&Arc<Epoch>> {
        match &self.phase {
            Phase::Opening { epoch, .. }
            | Phase::Connected { epoch }
            | Phase::Suspended { epoch } => Some(epoch),
            Phase::Connecting | Phase::Closed => None,
        }
    }

    pub(crate) fn contact(&self) -> Result<Contact, NoContact> {
        match &self.phase {
            Phase::Connected { epoch } => Ok(Contact {
                epoch: Arc::clone(epoch),
                connection: self.connection,
            }),
            Phase::Closed => Err(NoContact::Closed),
            _ => Err(NoContact::Disconnected),
        }
    }

    pub(crate) fn out_of_contact_since(&self) -> Instant {
        self.out_of_contact_since
    }

    /// A call wants to begin.
    pub(crate) fn begin(&mut self, now: Instant) -> Result<Contact, NoContact> {
        let contact = self.contact()?;
        if !contact.epoch.lease().alive(now) {
            return Err(NoContact::Disconnected);
        }
        self.in_flight += 1;
        Ok(contact)
    }

    /// A call that was begun has been answered.
    #[must_use]
    pub(crate) fn answered(&mut self) -> Option<Opened> {
        self.in_flight -= 1;
        self.try_open()
    }

    /// The link has a connection, and refuses traffic on it. Call [`Standing::lost`] first when
    /// another session stood until now.
    #[must_use]
    pub(crate) fn connected(&mut self, epoch: Arc<Epoch>, resumed: bool) -> Option<Opened> {
        if matches!(self.phase, Phase::Closed) {
            return None;
        }
        self.phase = Phase::Opening { epoch, resumed };
        self.try_open()
    }

    fn try_open(&mut self) -> Option<Opened> {
        let Phase::Opening { epoch, resumed } = &self.phase else {
            return None;
        };
        if self.in_flight > 0 {
            return None;
        }
        let (epoch, resumed) = (Arc::clone(epoch), *resumed);
        self.connection += 1;
        self.phase = Phase::Connected {
            epoch: Arc::clone(&epoch),
        };
        Some(Opened {
            contact: Contact {
                epoch,
                connection: self.connection,
            },
            resumed,
        })
    }

    /// The connection broke. Returns whether that is news.
    pub(crate) fn suspended(&mut self, number: u64, now: Instant) -> bool {
        let epoch = match &self.phase {
            Phase::Opening { epoch, .. } | Phase::Connected { epoch }
                if epoch.number() == number =>
            {
                Arc::clone(epoch)
            }
            _ => return false,
        };
        if matches!(self.phase, Phase::Connected { .. }) {
            self.out_of_contact_since = now;
        }
        self.phase = Phase::Suspended { epoch };
        true
    }

    /// The session with this number is over. Returns it if it stood until now.
    pub(crate) fn lost(&mut self, number: u64, now: Instant) -> Option<Arc<Epoch>> {
        let epoch = Arc::clone(self.epoch().filter(|epoch| epoch.number() == number)?);
        if matches!(self.phase, Phase::Connected { .. }) {
            self.out_of_contact_since = now;
        }
        epoch.lease().seal();
        self.phase = Phase::Connecting;
        Some(epoch)
    }

    /// The client was closed. Returns the session that stood, and whether this is news.
    pub(crate) fn closed(&mut self) -> (Option<Arc<Epoch>>, bool) {
        let epoch = self.epoch().cloned();
        if let Some(epoch) = &epoch {
            epoch.lease().seal();
        }
        let news = !matches!(self.phase, Phase::Closed);
        self.phase = Phase::Closed;
        (epoch, news)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn epoch(number: u64) -> Arc<Epoch> {
        let timeout = Duration::from_secs(3600);
        Arc::new(Epoch::begun(number, 100, timeout, Instant::now()))
    }

    fn connected() -> Standing {
        let mut standing = Standing::new(Instant::now());
        assert!(standing.connected(epoch(1), false).is_some());
        standing
    }

    /// Every event in every phase: which phase it leads to.
    #[test]
    fn the_table() {
        use ConnectionState::{Closed, Connected, Connecting, Suspended};
        type Make = fn() -> Standing;
        type Event = fn(&mut Standing);
        let now = Instant::now;
        let phases: [(&str, Make); 6] = [
            ("connecting", || Standing::new(Instant::now())),
            ("opening", || {
                let mut standing = Standing::new(Instant::now());
                standing.hold_back();
                assert!(standing.connected(epoch(1), false).is_none());
                standing
            }),
            ("opening again", || {
                let mut standing = connected();
                standing.begin(Instant::now()).expect("connected");
                standing.suspended(1, Instant::now());
                assert!(standing.connected(epoch(1), true).is_none());
                standing
            }),
            ("connected", connected),
            ("suspended", || {
                let mut standing = connected();
                standing.suspended(1, Instant::now());
                standing
            }),
            ("closed", || {
                let mut standing = connected();
                standing.closed();
                standing
            }),
        ];
        let events: [(&str, Event, [ConnectionState; 6]); 5] = [
            (
                "suspended",
                |standing| {
                    standing.suspended(1, Instant::now());
                },
                [
                    Connecting, Suspended, Suspended, Suspended, Suspended, Closed,
                ],
            ),
            (
                "suspended, of another session",
                |standing| assert!(!standing.suspended(7, Instant::now())),
                [
                    Connecting, Connecting, Suspended, Connected, Suspended, Closed,
                ],
            ),
            (
                "lost",
                |standing| {
                    standing.lost(1, Instant::now());
                },
                [
                    Connecting, Connecting, Connecting, Connecting, Connecting, Closed,
                ],
            ),
            (
                "lost, another session",
                |standing| assert!(standing.lost(7, Instant::now()).is_none()),
                [
                    Connecting, Connecting, Suspended, Connected, Suspended, Closed,
                ],
            ),
            (
                "closed",
                |standing| {
                    standing.closed();
                },
                [Closed; 6],
            ),
        ];
        for (event, act, expected) in events {
            for ((phase, make), expected) in phases.iter().zip(expected) {
                let mut standing = make();
                act(&mut standing);
                assert_eq!(standing.state(), expected, "{event} when {phase}");
            }
        }
        assert!(connected().begin(now()).is_ok());
    }

    /// A call that was begun before a break holds the next connection shut until it is answered.
    #[test]
    fn no_call_crosses_an_epoch() {
        let mut standing = connected();
        standing.begin(Instant::now()).expect("connected");
        standing.begin(Instant::now()).expect("connected");
        standing.suspended(1, Instant::now());
        standing.lost(1, Instant::now()).expect("stood until now");
        assert!(standing.connected(epoch(2), false).is_none());
        assert!(standing.begin(Instant::now()).is_err());
        assert!(standing.answered().is_none());
        let opened = standing.answered().expect("all are answered");
        assert_eq!(opened.contact.epoch.number(), 2);
        assert_eq!(opened.contact.connection, 2);
        assert!(!opened.resumed);
    }

    #[test]
    fn a_session_whose_lease_is_over_begins_no_call() {
        let mut standing = connected();
        let epoch = Arc::clone(standing.epoch().expect("connected"));
        epoch.lease().seal();
        let refused = standing.begin(Instant::now()).expect_err("lost");
        assert_eq!(refused, NoContact::Disconnected);
    }

    #[test]
    fn losing_and_closing_seal_the_lease() {
        for end in [
            |standing: &mut Standing| drop(standing.lost(1, Instant::now())),
            |standing: &mut Standing| drop(standing.closed()),
        ] {
            let mut standing = connected();
            let epoch = Arc::clone(standing.epoch().expect("connected"));
            end(&mut standing);
            assert!(!epoch.lease().alive(Instant::now()));
        }
    }
}
