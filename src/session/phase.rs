//! The session's transition table: pure, so that every step can be tested.
//!
//! ```text
//!             connected             suspended
//! Connecting -----------> Connected ----------> Suspended
//!     ^                    |   ^                 |     |
//!     |        lost        |   |    connected    |     |
//!     +--------------------+   +-----------------+     |
//!     +------------------------------------------------+
//!                        (close leads from everywhere to Closed)
//! ```

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
    Connected(Connection),
    /// The session may live; no connection.
    Suspended(Arc<Epoch>),
    Closed,
}

/// The state of the session.
#[derive(Debug)]
pub(super) struct SessionPhase {
    phase: Phase,
    /// Since when there is no connection.
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
    pub(super) fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Connecting,
            out_of_contact_since: now,
        }
    }

    pub(super) fn state(&self) -> ConnectionState {
        match self.phase {
            Phase::Connecting => ConnectionState::Connecting,
            Phase::Suspended(_) => ConnectionState::Suspended,
            Phase::Connected(_) => ConnectionState::Connected,
            Phase::Closed => ConnectionState::Closed,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// The present session, connected or not.
    pub(super) fn epoch(&self) -> Option<&Arc<Epoch>> {
        match &self.phase {
            Phase::Connected(connection) => Some(&connection.epoch),
            Phase::Suspended(epoch) => Some(epoch),
            Phase::Connecting | Phase::Closed => None,
        }
    }

    /// The connection that is open, unless its lease has run out.
    pub(super) fn open(&self) -> Result<&Connection, NoContact> {
        match &self.phase {
            Phase::Connected(connection) if connection.epoch.is_alive() => Ok(connection),
            Phase::Closed => Err(NoContact::Closed),
            _ => Err(NoContact::Disconnected),
        }
    }

    /// The session on the open connection, if its lease has run out and nobody has declared it
    /// lost yet.
    pub(super) fn lapsed(&self) -> Option<&Arc<Epoch>> {
        match &self.phase {
            Phase::Connected(connection) if !connection.epoch.is_alive() => Some(&connection.epoch),
            _ => None,
        }
    }

    pub(super) fn out_of_contact_since(&self) -> Instant {
        self.out_of_contact_since
    }

    /// There is a connection; returns whether that is news. Call [`SessionPhase::lost`] first when
    /// there was another session until now.
    #[must_use]
    pub(super) fn connected(&mut self, connection: Connection) -> bool {
        let news = !self.is_closed();
        if news {
            self.phase = Phase::Connected(connection);
        }
        news
    }

    /// The connection with this number broke. Returns whether that is news.
    pub(super) fn suspended(&mut self, number: u64, now: Instant) -> bool {
        let epoch = match &self.phase {
            Phase::Connected(connection) if connection.number == number => {
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
    pub(super) fn lost(&mut self, number: u64, now: Instant) -> Option<Arc<Epoch>> {
        let epoch = Arc::clone(self.epoch().filter(|epoch| epoch.number() == number)?);
        self.out_of_contact(now);
        epoch.lease().seal();
        self.phase = Phase::Connecting;
        Some(epoch)
    }

    /// The client was closed. Returns whether this is news. The lease goes on: a sealed one would
    /// have the link cut the connection at the next answer, before the session is ended on it.
    pub(super) fn closed(&mut self) -> bool {
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
        assert!(phase.connected(connection(1)));
        phase
    }

    /// Every event in every phase: which phase it leads to.
    #[test]
    fn the_table() {
        use ConnectionState::{Closed, Connected, Connecting, Suspended};
        type Make = fn() -> SessionPhase;
        type Event = fn(&mut SessionPhase);
        let phases: [(&str, Make); 4] = [
            ("connecting", || SessionPhase::new(Instant::now())),
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
        let events: [(&str, Event, [ConnectionState; 4]); 5] = [
            (
                "suspended",
                |phase| {
                    phase.suspended(1, Instant::now());
                },
                [Connecting, Suspended, Suspended, Closed],
            ),
            (
                "suspended, of another session",
                |phase| assert!(!phase.suspended(7, Instant::now())),
                [Connecting, Connected, Suspended, Closed],
            ),
            (
                "lost",
                |phase| {
                    phase.lost(1, Instant::now());
                },
                [Connecting, Connecting, Connecting, Closed],
            ),
            (
                "lost, another session",
                |phase| assert!(phase.lost(7, Instant::now()).is_none()),
                [Connecting, Connected, Suspended, Closed],
            ),
            (
                "closed",
                |phase| {
                    phase.closed();
                },
                [Closed; 4],
            ),
        ];
        for (event, act, expected) in events {
            for ((from, make), expected) in phases.iter().zip(expected) {
                let mut phase = make();
                act(&mut phase);
                assert_eq!(phase.state(), expected, "{event} when {from}");
            }
        }
    }

    #[test]
    fn a_session_whose_lease_is_over_takes_no_call() {
        let phase = connected();
        let epoch = Arc::clone(phase.epoch().expect("connected"));
        epoch.lease().seal();
        let refused = phase.open().map(drop).expect_err("lost");
        assert_eq!(refused, NoContact::Disconnected);
    }

    #[test]
    fn losing_seals_the_lease_and_closing_does_not() {
        let mut phase = connected();
        let epoch = Arc::clone(phase.epoch().expect("connected"));
        assert!(phase.closed());
        assert!(epoch.is_alive());
        let mut phase = connected();
        let epoch = Arc::clone(phase.epoch().expect("connected"));
        phase.lost(1, Instant::now()).expect("stood until now");
        assert!(!epoch.is_alive());
    }
}
