//! [`Participant`]: one contender, as everybody can see it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::global_queue::QueuedNode;
use crate::znode::identity::Identity;
use crate::znode::names::Class;

/// A holder of a lock, or one that waits for it: one node in the lock's folder. See
/// [`Mutex::participants`](crate::Mutex::participants).
///
/// A process has one node in a lock's queue for all its threads, so a participant is a process, not
/// a thread; its identity is that of the thread that queued.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let client = zklock::Client::connect(&server.connect_string())?;
/// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
/// for one in lock.participants()? {
///     let role = if one.is_holder() { "holds" } else { "waits" };
///     match one.identity() {
///         Some(who) => println!("{role}: {} pid {}", who.host(), who.process_id()),
///         None => println!("{role}: {}", one.path()), // a program on Curator, say
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    pub(crate) path: String,
    pub(crate) position: usize,
    pub(crate) data: Vec<u8>,
    pub(crate) is_revocation_requested: bool,
    pub(crate) ours: bool,
    pub(crate) idle: bool,
    pub(crate) holds: bool,
    pub(crate) reads: bool,
    pub(crate) session_id: i64,
    pub(crate) created: SystemTime,
}

impl Participant {
    /// The contenders of a folder, in order.
    pub(crate) fn all(queued: Vec<QueuedNode>, own: &[String], idle: &[String]) -> Vec<Self> {
        let queued = queued.into_iter().enumerate();
        queued
            .map(|(position, queued)| Self {
                ours: queued.ours || own.contains(&queued.path),
                session_id: queued.stat.ephemeral_owner,
                created: UNIX_EPOCH + millis(queued.stat.ctime),
                idle: idle.contains(&queued.path),
                position,
                holds: queued.holds,
                reads: queued.class == Class::Read,
                path: queued.path,
                data: queued.data,
                is_revocation_requested: queued.is_revocation_requested,
            })
            .collect()
    }

    /// The path of its node, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How many are before it in the queue, holders included.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Whether it holds, judged by its place in the queue: nobody keeps it waiting.
    #[must_use]
    pub fn is_holder(&self) -> bool {
        self.holds
    }

    /// Whether it is a reader of a [`RwLock`](crate::RwLock).
    #[must_use]
    pub fn is_reader(&self) -> bool {
        self.reads
    }

    /// Whether it belongs to the session of the client that was asked, holding or waiting.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// Whether it is ours and idle: kept while no thread holds it (see
    /// [`linger`](crate::MutexBuilder::linger)). Always `false` for other processes, because
    /// telling them would take a write each time.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// The session that its node belongs to and goes with, by the number that the servers' logs and
    /// the `cons` command show. 0 if somebody made the node persistent.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.session_id
    }

    /// When its node was created, by the servers' clock, in whole milliseconds.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        self.created
    }

    /// Whether somebody has asked it for the lock; see [`Mutex::revoke`](crate::Mutex::revoke).
    #[must_use]
    pub fn is_revocation_requested(&self) -> bool {
        self.is_revocation_requested
    }

    /// The data of its node, left for others to read. Empty if a request for the lock has replaced it,
    /// as such a request does with data that is not this library's own.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Who it is, if its data is this library's default; `None` otherwise.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        Identity::parse(&self.data)
    }
}

/// A time before 1970 is a server's mistake.
fn millis(time: i64) -> Duration {
    Duration::from_millis(u64::try_from(time).unwrap_or_default())
}

impl fmt::Display for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.is_holder() { "holds" } else { "waits" };
        write!(f, "{} {role} ", self.path)?;
        match self.identity() {
            Some(identity) => identity.fmt(f),
            None => String::from_utf8_lossy(&self.data).escape_debug().fmt(f),
        }
    }
}
