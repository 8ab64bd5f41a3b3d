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
//! **Opening** exists for one reason: a call that was handed to the `zookeeper` crate before a
//! break must never be executed on the next connection, which may be in another session. So the
//! link refuses traffic on a new connection until all calls that the crate had begun have been
//! answered (with ConnectionLoss, at once); only then is the connection opened. Requests of our own
//! need no such wait: each names its connection.

use std::sync::Arc;
use std::time::Instant;

use super::connection::ConnectionState;
use crate::link::Epoch;

/// One connection of one session.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) epoch: Arc<Epoch>,
    /// Counts connections, over all sessions of a client. Never 0.
    pub(crate) number: u64,
}

#[derive(Clone, Debug)]
enum Phase {
    /// There is no session.
    Connecting,
    /// There is a connection; calls of an earlier one are still being answered.
    Opening {
        connection: Connection,
        resumed: bool,
    },
    Connected(Connection),
    /// The session may live; no connection.
    Suspended(Arc<Epoch>),
    Closed,
}

/// A connection was opened to calls.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// The session is the one from before.
    pub(crate) resumed: bool,
}

/// The state of the session.
#[derive(Debug)]
pub(crate) struct SessionPhase {
    phase: Phase,
    /// Calls of the crate that were begun and not answered.
    in_flight: usize,
    /// Since when there is no open connection.
    out_of_contact_since: Instant,
}

/// Why a call could not be begun.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoContact {
    Disconnected,
    Closed,
    /// This is the child of a fork.
    Forked,
}

impl SessionPhase {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Connecting,
            in_flight: 0,
            out_of_contact_since: now,
        }
    }

    /// Counts as a call in flight, until [`SessionPhase::answered`]: nothing is opened before the
    /// session can make calls.
    pub(crate) fn hold_back(&mut self) {
        self.in_flight += 1;
    }

    pub(crate) fn state(&self) -> ConnectionState {
        match self.phase {
            Phase::Connecting | Phase::Opening { resumed: false, .. } => {
                ConnectionState::Connecting
            }
            Phase::Opening { resumed: true, .. } | Phase::Suspended(_) => {
                ConnectionState::Suspended
            }
            Phase::Connected(_) => ConnectionState::Connected,
            Phase::Closed => ConnectionState::Closed,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// The present session, connected or not.
    pub(crate) fn epoch(&self) -> Option<&Arc<Epoch>> {
        match &self.phase {
            Phase::Opening { connection, .. } | Phase::Connected(connection) => {
                Some(&connection.epoch)
            }
            Phase::Suspended(epoch) => Some(epoch),
            Phase::Connecting | Phase::Closed => None,
        }
    }

    /// The connection that is open, unless its lease has run out.
    pub(crate) fn open(&self) -> Result<&Connection, NoContact> {
        match &self.phase {
            Phase::Connected(connection) if connection.epoch.lease().is_alive() => Ok(connection),
            Phase::Closed => Err(NoContact::Closed),
            _ => Err(NoContact::Disconnected),
        }
    }

    /// The session on the open connection, if its lease has run out and nobody has declared it
    /// lost yet.
    pub(crate) fn lapsed(&self) -> Option<&Arc<Epoch>> {
        match &self.phase {
            Phase::Connected(connection) if !connection.epoch.lease().is_alive() => {
                Some(&connection.epoch)
            }
            _ => None,
        }
    }

    pub(crate) fn out_of_contact_since(&self) -> Instant {
        self.out_of_contact_since
    }

    /// A call of the crate wants to begin on the connection with this number.
    pub(crate) fn begin(&mut self, number: u64) -> Result<(), NoContact> {
        if self.open()?.number != number {
            return Err(NoContact::Disconnected);
        }
        self.in_flight += 1;
        Ok(())
    }

    /// A call that was begun has been answered.
    #[must_use]
    pub(crate) fn answered(&mut self) -> Option<Opened> {
        self.in_flight -= 1;
        self.try_open()
    }

    /// The link has a connection, and refuses traffic on it. Call [`SessionPhase::lost`] first when
    /// there was another session until now.
    #[must_use]
    pub(crate) fn connected(&mut self, connection: Connection, resumed: bool) -> Option<Opened> {
        if self.is_closed() {
            return None;
        }
        self.phase = Phase::Opening {
            connection,
            resumed,
        };
        self.try_open()
    }

    fn try_open(&mut self) -> Option<Opened> {
        let Phase::Opening {
            connection,
            resumed,
        } = &self.phase
        else {
            return None;
        };
        if self.in_flight > 0 {
            return None;
        }
        let opened = Opened {
            connection: connection.clone(),
            resumed: *resumed,
        };
        self.phase = Phase::Connected(connection.clone());
        Some(opened)
    }

    /// The connection with this number broke. Returns whether that is news.
    pub(crate) fn suspended(&mut self, number: u64, now: Instant) -> bool {
        let epoch = match &self.phase {
            Phase::Opening { connection, .. } | Phase::Connected(connection)
                if connection.number == number =>
            {
                Arc::clone(&connection.epoch)
            }
            _ => return false,
        };
        self.out_of_contact(now);
        self.phase = Phase::Suspended(epoch);
        true
    }

    fn out_of_contact(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Connected(_)) {
            self.out_of_contact_since = now;
        }
    }

    /// The session with this number is over. Returns it if it was the present one until now.
    pub(crate) fn lost(&mut self, number: u64, now: Instant) -> Option<Arc<Epoch>> {
        let epoch = Arc::clone(self.epoch().filter(|epoch| epoch.number() == number)?);
        self.out_of_contact(now);
        epoch.lease().seal();
        self.phase = Phase::Connecting;
        Some(epoch)
    }

    /// The client was closed. Returns whether this is news. The lease goes on: a sealed one would
    /// have the link cut the connection at the next answer, before the session is ended on it.
    pub(crate) fn closed(&mut self) -> bool {
        let news = !self.is_closed();
        self.phase = Phase::Closed;
        news
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn epoch(number: u64) -> Arc<Epoch> {
        let timeout = Duration::from_secs(3600);
        Arc::new(Epoch::new(number, 100, timeout))
    }

    /// A connection, with one number for session and connection.
    fn connection(number: u64) -> Connection {
        let epoch = epoch(number);
        Connection { epoch, number }
    }

    fn connected() -> SessionPhase {
        let mut phase = SessionPhase::new(Instant::now());
        assert!(phase.connected(connection(1), false).is_some());
        phase
    }

    /// Every event in every phase: which phase it leads to.
    #[test]
    fn the_table() {
        use ConnectionState::{Closed, Connected, Connecting, Suspended};
        type Make = fn() -> SessionPhase;
        type Event = fn(&mut SessionPhase);
        let phases: [(&str, Make); 6] = [
            ("connecting", || SessionPhase::new(Instant::now())),
            ("opening", || {
                let mut phase = SessionPhase::new(Instant::now());
                phase.hold_back();
                assert!(phase.connected(connection(1), false).is_none());
                phase
            }),
            ("opening again", || {
                let mut phase = connected();
                phase.begin(1).expect("connected");
                phase.suspended(1, Instant::now());
                assert!(phase.connected(connection(1), true).is_none());
                phase
            }),
            ("connected", connected),
            ("suspended", || {
                let mut phase = connected();
                phase.suspended(1, Instant::now());
                phase
            }),
            ("closed", || {
                let mut phase = connected();
                assert!(phase.closed());
                phase
            }),
        ];
        let events: [(&str, Event, [ConnectionState; 6]); 5] = [
            (
                "suspended",
                |phase| {
                    phase.suspended(1, Instant::now());
                },
                [
                    Connecting, Suspended, Suspended, Suspended, Suspended, Closed,
                ],
            ),
            (
                "suspended, of another session",
                |phase| assert!(!phase.suspended(7, Instant::now())),
                [
                    Connecting, Connecting, Suspended, Connected, Suspended, Closed,
                ],
            ),
            (
                "lost",
                |phase| {
                    phase.lost(1, Instant::now());
                },
                [
                    Connecting, Connecting, Connecting, Connecting, Connecting, Closed,
                ],
            ),
            (
                "lost, another session",
                |phase| assert!(phase.lost(7, Instant::now()).is_none()),
                [
                    Connecting, Connecting, Suspended, Connected, Suspended, Closed,
                ],
            ),
            (
                "closed",
                |phase| {
                    phase.closed();
                },
                [Closed; 6],
            ),
        ];
        for (event, act, expected) in events {
            for ((from, make), expected) in phases.iter().zip(expected) {
                let mut phase = make();
                act(&mut phase);
                assert_eq!(phase.state(), expected, "{event} when {from}");
            }
        }
        assert!(connected().begin(1).is_ok());
    }

    /// A call that was begun before a break holds the next connection shut until it is answered.
    #[test]
    fn no_call_crosses_an_epoch() {
        let mut phase = connected();
        phase.begin(1).expect("connected");
        phase.begin(1).expect("connected");
        phase.suspended(1, Instant::now());
        phase.lost(1, Instant::now()).expect("stood until now");
        assert!(phase.connected(connection(2), false).is_none());
        assert!(phase.begin(1).is_err());
        assert!(phase.answered().is_none());
        let opened = phase.answered().expect("all are answered");
        assert_eq!(opened.connection.epoch.number(), 2);
        assert_eq!(opened.connection.number, 2);
        assert!(!opened.resumed);
    }

    #[test]
    fn a_session_whose_lease_is_over_begins_no_call() {
        let mut phase = connected();
        let epoch = Arc::clone(phase.epoch().expect("connected"));
        epoch.lease().seal();
        let refused = phase.begin(1).expect_err("lost");
        assert_eq!(refused, NoContact::Disconnected);
    }

    /// A call is begun on the connection that it is for, or not at all.
    #[test]
    fn no_call_is_begun_on_another_connection() {
        let mut phase = connected();
        phase.suspended(1, Instant::now());
        assert!(phase.connected(connection(2), true).is_some());
        let refused = phase.begin(1).expect_err("an old one");
        assert_eq!(refused, NoContact::Disconnected);
        phase.begin(2).expect("the one that stands");
    }

    #[test]
    fn losing_seals_the_lease_and_closing_does_not() {
        let mut phase = connected();
        let epoch = Arc::clone(phase.epoch().expect("connected"));
        assert!(phase.closed());
        assert!(epoch.lease().is_alive());
        let mut phase = connected();
        let epoch = Arc::clone(phase.epoch().expect("connected"));
        phase.lost(1, Instant::now()).expect("stood until now");
        assert!(!epoch.lease().is_alive());
    }
}
