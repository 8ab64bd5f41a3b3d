//! Who waits for which watch: our own registry behind the crate's default watcher.
//!
//! The server's watches are one-shot and die with the connection, and the crate's own map of
//! closures grows without end across reconnects, so nothing is stored there: events come by path,
//! and what they wake is kept here.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::Session;
use super::keeper::{WatchEvent, WatchKind};
use super::orphans::Orphan;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::wait::signal::{Signal, Wakes};

/// Something that wants to know, at once and without blocking, that its watch has fired.
pub(crate) trait Disturbed: Send + Sync {
    /// Called on the event thread: may only signal.
    fn disturbed(self: Arc<Self>);
}

/// Whom a [`Notice`] wakes.
pub(crate) enum Wake {
    Signal(Arc<Signal>),
    Lock(Weak<dyn Disturbed>),
}

const DELETED: u64 = 1;
const CREATED: u64 = 2;

/// One interest in one watch, and what came of it.
pub(crate) struct Notice {
    /// When the first event came, on the clock of [`Watches::clock`]; 0 while none has.
    fired_at: AtomicU64,
    /// What that first event was: [`DELETED`], [`CREATED`], or 0 for anything else.
    first: AtomicU64,
    wake: Mutex<Option<Wake>>,
}

impl Notice {
    pub(crate) fn new(wake: Option<Wake>) -> Arc<Self> {
        Arc::new(Self {
            fired_at: AtomicU64::new(0),
            first: AtomicU64::new(0),
            wake: Mutex::new(wake),
        })
    }

    pub(crate) fn has_fired(&self) -> bool {
        self.fired_at.load(Ordering::Acquire) != 0
    }

    /// Whether the first event said that the watched node is gone.
    pub(crate) fn says_deleted(&self) -> bool {
        self.has_fired() && self.first.load(Ordering::Relaxed) == DELETED
    }

    /// Whether the first event said that the watched node, which was missing, is there.
    pub(crate) fn says_created(&self) -> bool {
        self.has_fired() && self.first.load(Ordering::Relaxed) == CREATED
    }

    /// Whether this fired, and `other` did not fire before it.
    pub(crate) fn came_before(&self, other: &Self) -> bool {
        let (mine, theirs) = (
            self.fired_at.load(Ordering::Acquire),
            other.fired_at.load(Ordering::Acquire),
        );
        mine != 0 && (theirs == 0 || mine < theirs)
    }

    /// From now on wakes `to`; also when the watch has fired already.
    pub(crate) fn redirect(&self, to: Wake) {
        let mut wake = self.wake.lock();
        *wake = Some(to);
        if self.has_fired() {
            Self::notify(wake.as_ref());
        }
    }

    /// From now on wakes nobody.
    pub(crate) fn mute(&self) {
        *self.wake.lock() = None;
    }

    fn fire(&self, event: WatchEvent, at: u64) {
        // Under the lock, so that of two first events (the event thread's and a removal's) one
        // writes both fields; `fired_at` last, because it is read without the lock.
        let wake = self.wake.lock();
        if !self.has_fired() {
            let first = match event {
                WatchEvent::Deleted => DELETED,
                WatchEvent::Created => CREATED,
                _ => 0,
            };
            self.first.store(first, Ordering::Relaxed);
            self.fired_at.store(at, Ordering::Release);
        }
        Self::notify(wake.as_ref());
    }

    fn notify(wake: Option<&Wake>) {
        match wake {
            Some(Wake::Signal(signal)) => signal.raise(Wakes::EVENT),
            Some(Wake::Lock(lock)) => {
                if let Some(lock) = lock.upgrade() {
                    lock.disturbed();
                }
            }
            None => {}
        }
    }
}

/// An interest in a watch, from before the read that leaves it on the server until it is not
/// needed any more. Whoever is the last to be interested in a watch that may still be there has it
/// taken off the server.
pub(crate) struct WatchGuard {
    session: Arc<Session>,
    path: String,
    kind: WatchKind,
    notice: Arc<Notice>,
    /// The connection on which the watch was left, and the number of that arming; 0 before.
    armed_on: AtomicU64,
    arming: AtomicU64,
}

impl WatchGuard {
    pub(crate) fn new(
        session: &Arc<Session>,
        path: &str,
        kind: WatchKind,
        wake: Option<Wake>,
    ) -> Self {
        let notice = Notice::new(wake);
        session.watches.add(path, kind, &notice);
        Self {
            session: Arc::clone(session),
            path: path.to_owned(),
            kind,
            notice,
            armed_on: AtomicU64::new(0),
            arming: AtomicU64::new(0),
        }
    }

    /// The name is used again and again, by nodes that come and go: the event of a deletion may be
    /// that of an earlier node, and is no proof that the watch has gone.
    pub(crate) fn of_reused_name(self) -> Self {
        self.session.watches.reused(&self.path, self.kind);
        self
    }

    /// Takes the place of the one in `slot`, which is dropped only now that this one is there: as
    /// long as somebody is interested, a watch is not taken off the server. Were it dropped before,
    /// its removal, which is told to all who look at the path, could wake the very waiter that has
    /// just left a new one, again and again.
    pub(crate) fn instead_of(self, slot: &mut Option<Self>) -> &Self {
        slot.insert(self)
    }

    /// The read was answered, on this connection.
    pub(crate) fn armed(&self, connection: u64) {
        let arming = self
            .session
            .watches
            .armed(&self.path, self.kind, connection);
        self.arming.store(arming, Ordering::Relaxed);
        self.armed_on.store(connection, Ordering::Relaxed);
    }

    pub(crate) fn was_armed_on(&self, connection: u64) -> bool {
        self.armed_on.load(Ordering::Relaxed) == connection
    }

    /// Whether the watch is on the server, and has not fired.
    pub(crate) fn is_live(&self) -> bool {
        !self.notice.has_fired() && self.was_armed_on(self.session.connection())
    }

    pub(crate) fn notice(&self) -> &Arc<Notice> {
        &self.notice
    }

    /// The watch has surely fired on the server since it was left, or will by what is on its way
    /// to it.
    pub(crate) fn forget(self) {
        let arming = self.arming.load(Ordering::Relaxed);
        self.session.watches.gone(&self.path, self.kind, arming);
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if self.session.fork().forked() {
            return;
        }
        let watches = &self.session.watches;
        let left_on = watches.remove(&self.path, self.kind, &self.notice);
        if left_on.is_some_and(|connection| connection == self.session.connection())
            && let Some(epoch) = self.session.epoch()
        {
            let orphan = Orphan::Watch {
                path: std::mem::take(&mut self.path),
                kind: self.kind,
            };
            self.session.reap(orphan, &epoch);
        }
    }
}

/// All that is known of one watch: there is one on the server for all who wait for it.
#[derive(Default)]
struct Interest {
    notices: Vec<Arc<Notice>>,
    /// The last read that left the watch, as long as nothing proves that it has fired since: the
    /// connection and the number of the arming. An event alone is no proof, as it may be that of
    /// an earlier watch on the same path, on its way when this one was set.
    armed: Option<(u64, u64)>,
    /// See [`WatchGuard::of_reused_name`].
    reused: bool,
}

/// The registry of one session.
#[derive(Default)]
pub(crate) struct Watches {
    interests: Mutex<HashMap<(WatchKind, Box<str>), Interest>>,
    /// Counts events in the order in which the server sent them, and armings. Only the event
    /// thread, and a removal on a worker, move it for events.
    clock: AtomicU64,
}

impl Watches {
    /// Adds an interest. To be called *before* the read that sets the watch, so that an event that
    /// overtakes the reply finds it.
    fn add(&self, path: &str, kind: WatchKind, notice: &Arc<Notice>) {
        self.interests
            .lock()
            .entry((kind, path.into()))
            .or_default()
            .notices
            .push(Arc::clone(notice));
    }

    /// Removes an interest. If it was the last one, returns the connection on which the watch may
    /// still be.
    fn remove(&self, path: &str, kind: WatchKind, notice: &Arc<Notice>) -> Option<u64> {
        let mut interests = self.interests.lock();
        let key = (kind, path.into());
        let interest = interests.get_mut(&key)?;
        interest.notices.retain(|other| !Arc::ptr_eq(other, notice));
        if !interest.notices.is_empty() {
            return None;
        }
        let interest = interests.remove(&key)?;
        interest.armed.map(|(connection, _)| connection)
    }

    fn reused(&self, path: &str, kind: WatchKind) {
        if let Some(interest) = self.interests.lock().get_mut(&(kind, path.into())) {
            interest.reused = true;
        }
    }

    /// The watch was left on the server. Returns the number of this arming.
    fn armed(&self, path: &str, kind: WatchKind, connection: u64) -> u64 {
        let arming = self.tick();
        if let Some(interest) = self.interests.lock().get_mut(&(kind, path.into())) {
            interest.armed = Some((connection, arming));
        }
        arming
    }

    /// The watch that was left by this arming is gone from the server; one of a later arming stays.
    fn gone(&self, path: &str, kind: WatchKind, arming: u64) {
        if let Some(interest) = self.interests.lock().get_mut(&(kind, path.into())) {
            interest.armed = interest.armed.filter(|(_, latest)| *latest > arming);
        }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// There may be a watch on the server that nobody here has left: an abandoned call did. If
    /// somebody is interested in it anyway, its removal is now up to the last of those. Returns
    /// whether there is anybody.
    pub(crate) fn entrust(&self, path: &str, kind: WatchKind, connection: u64) -> bool {
        self.armed(path, kind, connection);
        self.interests.lock().contains_key(&(kind, path.into()))
    }

    /// An event came for `path`.
    pub(crate) fn fire(&self, path: &str, event: WatchEvent) {
        let kinds: &[WatchKind] = match event {
            WatchEvent::Deleted => &[WatchKind::Data, WatchKind::Children],
            WatchEvent::Created | WatchEvent::DataChanged => &[WatchKind::Data],
            WatchEvent::ChildrenChanged => &[WatchKind::Children],
            WatchEvent::Removed => return,
        };
        for kind in kinds {
            self.fire_kind(path, *kind, event);
        }
    }

    /// Tells those who look at this one watch.
    pub(crate) fn fire_kind(&self, path: &str, kind: WatchKind, event: WatchEvent) {
        let at = self.tick();
        let notices = {
            let mut interests = self.interests.lock();
            let Some(interest) = interests.get_mut(&(kind, path.into())) else {
                return;
            };
            // A node that is gone takes its watches with it; nothing has two contenders' names.
            if event == WatchEvent::Deleted && kind == WatchKind::Data && !interest.reused {
                interest.armed = None;
            }
            interest.notices.clone()
        };
        for notice in notices {
            notice.fire(event, at);
        }
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn len(&self) -> usize {
        self.interests.lock().len()
    }
}
