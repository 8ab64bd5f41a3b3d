//! [`ConnectionState`] and [`ConnectionEvent`]: what a client knows about its session.

use std::fmt;

/// The state of a client's connection to ZooKeeper, from [`Client::state`](crate::Client::state).
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// use zklock::ConnectionState;
///
/// // For a health check.
/// // A restart or an election is no reason to be taken out of service.
/// let up = matches!(client.state(), ConnectionState::Connected | ConnectionState::Suspended);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// There is no session: none was made yet, or the last one was lost and the next is being made.
    Connecting,
    /// There is a session, and a server answers.
    Connected,
    /// No server answers. The session may still be alive; locks are
    /// [suspect](crate::LockState::Suspect).
    Suspended,
    /// The client was closed.
    Closed,
}

/// A change of a client's connection, from [`Client::events`](crate::Client::events).
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// use zklock::ConnectionEvent;
///
/// let events = client.events();
/// std::thread::spawn(move || {
///     // Ends when the client is closed.
///     for event in events {
///         match event {
///             ConnectionEvent::Suspended => println!("no contact: beginning nothing new"),
///             ConnectionEvent::Reconnected => println!("the same session: nothing was lost"),
///             ConnectionEvent::Lost => println!("every lock is lost"),
///             event => println!("{event}"),
///         }
///     }
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// A new session began.
    Connected {
        /// ZooKeeper's number of the session, as its logs and `cons` show it (in hexadecimal).
        session_id: i64,
    },
    /// Contact was lost; the session may still be alive. Every held lock is
    /// [suspect](crate::LockState::Suspect).
    Suspended,
    /// Contact is back, and the session is the same: nothing was lost.
    Reconnected,
    /// The session is over, or may be as far as this process can know. Every lock is lost.
    Lost,
    /// The client was closed. Nothing comes after this.
    Closed,
}

/// As the derived one, with the session's number as servers write it.
impl fmt::Debug for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Connected { session_id } => {
                let id = format_args!("0x{session_id:x}");
                return f
                    .debug_struct("Connected")
                    .field("session_id", &id)
                    .finish();
            }
            Self::Suspended => "Suspended",
            Self::Reconnected => "Reconnected",
            Self::Lost => "Lost",
            Self::Closed => "Closed",
        };
        f.write_str(name)
    }
}

impl fmt::Display for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { session_id } => write!(f, "connected, session 0x{session_id:x}"),
            Self::Suspended => f.write_str("suspended"),
            Self::Reconnected => f.write_str("reconnected"),
            Self::Lost => f.write_str("session lost"),
            Self::Closed => f.write_str("closed"),
        }
    }
}
