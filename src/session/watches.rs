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
use crate::signal::{Signal, Wakes};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Something that wants to know, at once and without blocking, that its watch has fired.
pub(crate) trait Disturbed: Send + Sync {
    /// Called on the event thread: may only signal.
    fn disturbed(&self);
}

/// Whom a [`Notice`] wakes.
pub(crate) enum Wake {
    Signal(Arc<Signal>),
    Lock(Weak<dyn Disturbed>),
}

/// One interest in one watch, and what came of it.
pub(crate) struct Notice {
    /// When the first event came, on the clock of [`Watches::clock`]; 0 while none has.
    fired_at: AtomicU64,
    /// Whether that first event was the deletion of the watched node.
    deleted: AtomicU64,
    wake: Mutex<Option<Wake>>,
}

impl Notice {
    pub(crate) fn new(wake: Option<Wake>) -> Arc<Self> {
        Arc::new(Self {
            fired_at: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            wake: Mutex::new(wake),
        })
    }

    pub(crate) fn has_fired(&self) -> bool {
        self.fired_at.load(Ordering::Acquire) != 0
    }

    /// Whether the first event said that the watched node is gone.
    pub(crate) fn says_deleted(&self) -> bool {
        self.has_fired() && self.deleted.load(Ordering::Relaxed) != 0
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

    fn fire(&self, event: WatchEvent, at: u64) {
        // Under the lock, so that of two first events (the event thread's and a removal's) one
        // writes both fields; `fired_at` last, because it is read without the lock.
        let wake = self.wake.lock();
        if !self.has_fired() {
            let deleted = u64::from(event == WatchEvent::Deleted);
            self.deleted.store(deleted, Ordering::Relaxed);
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

type Interests = HashMap<(WatchKind, Box<str>), Vec<Arc<Notice>>>;

/// An interest in a watch, from before the read that leaves it on the server until it is not
/// needed any more: then the watch is taken off the server again, unless it has fired.
pub(crate) struct WatchGuard {
    session: Arc<Session>,
    path: String,
    kind: WatchKind,
    notice: Arc<Notice>,
    /// The connection on which the watch was left; 0 before that, and when it needs no removal.
    armed_on: AtomicU64,
    /// An event had come before the read that left the watch was answered. It may have been that
    /// of an earlier watch, so this one may be on the server still.
    fired_early: AtomicBool,
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
            fired_early: AtomicBool::new(false),
        }
    }

    /// The read was answered, on this connection.
    pub(crate) fn armed(&self, connection: u64) {
        let fired_early = self.notice.has_fired();
        self.fired_early.store(fired_early, Ordering::Relaxed);
        self.armed_on.store(connection, Ordering::Relaxed);
    }

    pub(crate) fn was_armed_on(&self, connection: u64) -> bool {
        self.armed_on.load(Ordering::Relaxed) == connection
    }

    /// Whether the watch is on the server, and has not fired.
    pub(crate) fn is_live(&self) -> bool {
        !self.notice.has_fired() && self.was_armed_on(self.session.connection())
    }

    pub(crate) fn notice(&self) -> &Notice {
        &self.notice
    }

    /// The watch has fired on the server, though the event may not be here yet.
    pub(crate) fn forget(self) {
        self.armed_on.store(0, Ordering::Relaxed);
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let last = self
            .session
            .watches
            .remove(&self.path, self.kind, &self.notice);
        let armed_on = self.armed_on.load(Ordering::Relaxed);
        let left = armed_on != 0 && armed_on == self.session.connection();
        let gone = self.notice.has_fired() && !self.fired_early.load(Ordering::Relaxed);
        if last
            && left
            && !gone
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

/// The registry of one session.
#[derive(Default)]
pub(crate) struct Watches {
    interests: Mutex<Interests>,
    /// Counts events in the order in which the server sent them. Only the event thread, and a
    /// removal on a worker, move it.
    clock: AtomicU64,
}

impl Watches {
    /// Adds an interest. To be called *before* the read that sets the watch, so that an event that
    /// overtakes the reply finds it.
    pub(crate) fn add(&self, path: &str, kind: WatchKind, notice: &Arc<Notice>) {
        self.interests
            .lock()
            .entry((kind, path.into()))
            .or_default()
            .push(Arc::clone(notice));
    }

    /// Removes an interest. Returns whether it was the last one in this watch.
    pub(crate) fn remove(&self, path: &str, kind: WatchKind, notice: &Arc<Notice>) -> bool {
        let mut interests = self.interests.lock();
        let key = (kind, path.into());
        let Some(notices) = interests.get_mut(&key) else {
            return true;
        };
        notices.retain(|other| !Arc::ptr_eq(other, notice));
        let last = notices.is_empty();
        if last {
            interests.remove(&key);
        }
        last
    }

    pub(crate) fn is_wanted(&self, path: &str, kind: WatchKind) -> bool {
        self.interests.lock().contains_key(&(kind, path.into()))
    }

    /// An event came for `path`.
    pub(crate) fn fire(&self, path: &str, event: WatchEvent) {
        let kinds: &[WatchKind] = match event {
            WatchEvent::Deleted => &[WatchKind::Data, WatchKind::Children],
            WatchEvent::DataChanged => &[WatchKind::Data],
            WatchEvent::ChildrenChanged => &[WatchKind::Children],
            WatchEvent::Removed => return,
        };
        for kind in kinds {
            self.fire_kind(path, *kind, event);
        }
    }

    /// Tells those who look at this one watch.
    pub(crate) fn fire_kind(&self, path: &str, kind: WatchKind, event: WatchEvent) {
        let at = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        let notices = self
            .interests
            .lock()
            .get(&(kind, path.into()))
            .cloned()
            .unwrap_or_default();
        for notice in notices {
            notice.fire(event, at);
        }
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn len(&self) -> usize {
        self.interests.lock().len()
    }
}
