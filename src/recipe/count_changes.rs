//! [`CountChanges`]: the numbers that a shared count changes to.

use zklock_protocol::WatchKind;

use crate::session::observe::say;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::count;
use crate::session::{CallError, Contact, Session, Step, Waiter, Wake, Watch};
use crate::wait::cancel::CancelToken;
use crate::wait::limits::WaitLimits;
use crate::znode::path::LockPath;

/// Numbers that nobody has read, at most.
const CAPACITY: usize = 1024;

/// A channel of the numbers that a shared count changes to; made by
/// [`SharedCount::changes`](crate::SharedCount::changes).
///
/// It dereferences to a [`Receiver`]; use it as one. Dropping it ends the channel, for clones of
/// the receiver, too. So does closing the client, or a refusal by the servers to read the number,
/// which is logged. Trouble does not, however long it lasts: the number after it is told.
#[must_use = "the channel ends as soon as this is dropped"]
pub struct CountChanges {
    numbers: Receiver<i32>,
    stop: CancelToken,
    /// Keeps the session open.
    _client: Client,
}

/// The thread that follows the number.
struct CountFollower {
    session: Arc<Session>,
    path: LockPath,
    initial: i32,
    known: Option<i32>,
    to: Sender<i32>,
    unread: Receiver<i32>,
    /// Says that it has begun.
    begun: Sender<Result<()>>,
}

impl CountChanges {
    pub(super) fn begin(client: &Client, path: &LockPath, initial: i32) -> Result<Self> {
        let (to, numbers) = bounded(CAPACITY);
        let (begun, has_begun) = bounded(1);
        let session = Arc::clone(client.session());
        session.refuse_child()?;
        let observer = CountFollower {
            session,
            path: path.clone(),
            initial,
            known: None,
            to,
            unread: numbers.clone(),
            begun,
        };
        let changes = Self {
            numbers,
            stop: CancelToken::new(),
            _client: client.clone(),
        };
        let limits = WaitLimits {
            cancel: Some(changes.stop.clone()),
            ..WaitLimits::none()
        };
        crate::sync::spawn("zklock-count", move || observer.run(&limits)).map_err(|error| {
            let context = format!("{path}: no thread for its changes");
            Error::refused(context).source(error)
        })?;
        match has_begun.recv() {
            Ok(begun) => begun.map(|()| changes),
            Err(_) => Err(Error::closed()),
        }
    }
}

impl CountFollower {
    fn run(mut self, limits: &WaitLimits) {
        let session = Arc::clone(&self.session);
        let mut waiter = Waiter::new(&session, limits);
        let path = self.path.clone();
        let mut watching = None;
        let begun = waiter.retry(path.as_str(), |contact| {
            self.look(contact, &mut watching).map(Some)
        });
        if let Err(error) = begun {
            // Whoever waits for the beginning hears it.
            drop(self.begun.try_send(Err(error)));
            return;
        }
        // From here on nobody waits, and nobody would hear of an end.
        waiter.never_give_up();
        let ended: Result<()> =
            waiter.retry(path.as_str(), |contact| self.step(contact, &mut watching));
        if let Err(error) = ended
            && !error.is_cancelled()
            && !error.is_closed()
        {
            say!(session, Warn, "its changes are told no more: {error}");
        }
    }

    /// Waits for a change, unless that has to be looked for, and looks.
    fn step<T>(&mut self, contact: &Contact<'_>, watching: &mut Option<Watch>) -> Step<Option<T>> {
        if let Some(watch) = watching.as_ref().filter(|watch| watch.is_live()) {
            contact.sleep_until_any(&[watch])?;
        }
        self.look(contact, watching).map(|()| None)
    }

    /// Looks and tells, and leaves a watch.
    fn look(&mut self, contact: &Contact<'_>, watching: &mut Option<Watch>) -> Step<()> {
        let wake = Wake::Signal(Arc::clone(contact.signal()));
        let watch = Watch::new(contact, self.path.as_str(), WatchKind::DATA, Some(wake));
        let watch = watching.insert(watch);
        match count::read(contact, &self.path, self.initial, Some(watch)) {
            Ok(value) => self.tell(value.number),
            // Somebody's other bytes; the next change may be a number again.
            Err(CallError::Left(error)) if error.is_invalid() && self.known.is_some() => {
                say!(self.session, Warn, "{error}");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn tell(&mut self, number: i32) {
        match self.known.replace(number) {
            None => drop(self.begun.try_send(Ok(()))),
            Some(before) if before == number => {}
            Some(_) => {
                let mut number = number;
                while let Err(TrySendError::Full(again)) = self.to.try_send(number) {
                    // The oldest makes room.
                    let _ = self.unread.try_recv();
                    number = again;
                }
            }
        }
    }
}

impl Deref for CountChanges {
    type Target = Receiver<i32>;

    fn deref(&self) -> &Receiver<i32> {
        &self.numbers
    }
}

impl Drop for CountChanges {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for CountChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountChanges")
            .field("unread", &self.numbers.len())
            .finish_non_exhaustive()
    }
}
