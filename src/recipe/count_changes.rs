//! [`CountChanges`]: the numbers that a shared count changes to.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use zklock_protocol::WatchKind;

use crate::client::Client;
use crate::error::Result;
use crate::global_queue::count;
use crate::recipe::following::{Following, Subject};
use crate::session::observe::say;
use crate::session::{CallError, Contact, Step, Wake, Watch};
use crate::znode::path::LockPath;

/// A channel of the numbers that a shared count changes to; made by
/// [`SharedCount::changes`](crate::SharedCount::changes).
///
/// It dereferences to a [`Receiver`]; use it as one. Dropping it ends the channel, for clones of
/// the receiver, too. So does closing the client, or a refusal by the servers to read the number,
/// which is logged. Trouble does not, however long it lasts: the number after it is told.
#[must_use = "the channel ends as soon as this is dropped"]
pub struct CountChanges(Following<i32>);

struct Number {
    path: LockPath,
    initial: i32,
    was_read: bool,
}

impl CountChanges {
    pub(super) fn begin(client: &Client, path: &LockPath, initial: i32) -> Result<Self> {
        let number = Number {
            path: path.clone(),
            initial,
            was_read: false,
        };
        Following::begin(client, number).map(Self)
    }
}

impl Subject for Number {
    type News = i32;

    const THREAD: &'static str = "zklock-count";

    /// Only what it changes to.
    const TELLS_FIRST: bool = false;

    fn path(&self) -> &LockPath {
        &self.path
    }

    fn look(&mut self, contact: &Contact<'_>) -> Step<(Option<i32>, Watch)> {
        let wake = Wake::Signal(Arc::clone(contact.signal()));
        let watch = Watch::new(contact, self.path.as_str(), WatchKind::DATA, Some(wake));
        match count::read(contact, &self.path, self.initial, Some(&watch)) {
            Ok(value) => {
                self.was_read = true;
                Ok((Some(value.number), watch))
            }
            // Somebody's other bytes; the next change may be a number again.
            Err(CallError::Left(error)) if error.is_invalid() && self.was_read => {
                say!(contact.session(), Warn, "{error}");
                Ok((None, watch))
            }
            Err(error) => Err(error),
        }
    }
}

impl Deref for CountChanges {
    type Target = Receiver<i32>;

    fn deref(&self) -> &Receiver<i32> {
        self.0.news()
    }
}

impl fmt::Debug for CountChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountChanges")
            .field("unread", &self.len())
            .finish_non_exhaustive()
    }
}
