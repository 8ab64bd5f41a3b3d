//! [`LossReason`]: why a lock was lost.

use std::fmt;

/// Why a lock was lost; a guard's `lost()` channel delivers it.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
/// use zklock::LossReason;
///
/// let guard = lock.lock()?;
/// # server.expire(client.session_id());
/// match guard.lost().recv() {
///     Ok(LossReason::Session) => println!("out of contact for too long: lock again"),
///     Ok(LossReason::Removed) => println!("somebody took it from us: ask before locking again"),
///     why => println!("{why:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The session ended, or may have ended as far as this process can know.
    Session,
    /// Somebody removed our node.
    Removed,
    /// The client was closed while the lock was held.
    Closed,
    /// Nothing was lost: the guard was given back. Only its [views](crate::HoldView) deliver this.
    Released,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "the session was lost",
            Self::Removed => "our node was removed by somebody else",
            Self::Closed => "the client was closed",
            Self::Released => "the lock was given back",
        })
    }
}
