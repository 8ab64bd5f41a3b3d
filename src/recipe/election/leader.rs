//! [`Leader`] and [`LeaderChanges`]: who leads, for those who do not stand for it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use crossbeam_channel::Receiver;

use crate::client::Client;
use crate::error::Result;
use crate::global_queue::{QueueHead, QueuedNode};
use crate::recipe::following::{Following, Subject};
use crate::recipe::participant::Participant;
use crate::session::{CallError, Contact, Step, Watch};
use crate::znode::fencing::FencingToken;
use crate::znode::identity::Identity;
use crate::znode::path::LockPath;

/// Who leads, as everybody can see it: the first candidate in the queue. See
/// [`Election::leader`](crate::Election::leader).
///
/// Two are equal if they are one term of one leader, even when somebody has asked it to step down
/// between the two looks.
#[derive(Clone, Debug)]
pub struct Leader {
    seen: Participant,
    term: FencingToken,
}

impl PartialEq for Leader {
    fn eq(&self, other: &Self) -> bool {
        (self.path(), self.term) == (other.path(), other.term)
    }
}

impl Eq for Leader {}

impl Leader {
    fn of(queued: QueuedNode) -> Result<Self> {
        let term = FencingToken::of(&queued.stat)?;
        let mut all = Participant::all(vec![queued], &[], &[]);
        let seen = all.pop().expect("as many as were queued");
        Ok(Self { seen, term })
    }

    /// The id that it stands under, as text: what its
    /// [`ElectionBuilder::id`](crate::ElectionBuilder::id) says, or the id of Curator's
    /// `LeaderLatch`, or the identifier of kazoo's `Election`.
    #[must_use]
    pub fn id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.seen.data())
    }

    /// Who it is, if its id is this library's default; `None` otherwise.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.seen.identity()
    }

    /// Since when it has stood, by the servers' clock, in whole milliseconds. It has led since then
    /// or since the moment at which the last one before it went, which the servers do not record.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.seen.created()
    }

    /// The path of its node, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.seen.path()
    }

    /// Its term: the [`fencing_token`](crate::Leadership::fencing_token) of its leadership. A later
    /// leader has a greater one.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.term
    }

    /// Whether it belongs to the session of the client that was asked.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.seen.is_ours()
    }
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seen.fmt(f)
    }
}

/// What a channel of [`LeaderChanges`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhoLeads {
    /// This one.
    Leader(Leader),
    /// Nobody: there is no candidate.
    Nobody,
    /// It cannot be known now: there is no contact with ZooKeeper.
    Unknown,
}

impl fmt::Display for WhoLeads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader(leader) => leader.fmt(f),
            Self::Nobody => f.write_str("nobody leads"),
            Self::Unknown => f.write_str("who leads is not known"),
        }
    }
}

/// A channel of who leads; made by [`Election::leaders`](crate::Election::leaders).
///
/// It dereferences to a [`Receiver`]; use it as one. Dropping it ends the channel, for clones of
/// the receiver, too. So does closing the client, or a refusal by the servers to read, which is
/// logged. Trouble does not, however long it lasts.
#[must_use = "the channel ends as soon as this is dropped"]
pub struct LeaderChanges(Following<WhoLeads>);

impl LeaderChanges {
    pub(super) fn begin(client: &Client, head: Arc<QueueHead>) -> Result<Self> {
        Following::begin(client, Head(head)).map(Self)
    }
}

/// Who leads now, by one look.
pub(super) fn leader(head: &QueueHead) -> Result<Option<Leader>> {
    head.look()?.map(Leader::of).transpose()
}

struct Head(Arc<QueueHead>);

impl Subject for Head {
    type News = WhoLeads;

    const THREAD: &'static str = "zklock-leader";

    const TELLS_FIRST: bool = true;

    fn path(&self) -> &LockPath {
        self.0.path()
    }

    fn look(&mut self, contact: &Contact<'_>) -> Step<(Option<WhoLeads>, Watch)> {
        let (first, watch) = self.0.look_and_watch(contact)?;
        let news = match first {
            Some(queued) => WhoLeads::Leader(Leader::of(queued).map_err(CallError::Left)?),
            None => WhoLeads::Nobody,
        };
        Ok((Some(news), watch))
    }

    fn out_of_contact(&self) -> Option<WhoLeads> {
        Some(WhoLeads::Unknown)
    }
}

impl Deref for LeaderChanges {
    type Target = Receiver<WhoLeads>;

    fn deref(&self) -> &Receiver<WhoLeads> {
        self.0.news()
    }
}

impl fmt::Debug for LeaderChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderChanges")
            .field("unread", &self.len())
            .finish_non_exhaustive()
    }
}
