//! One interest in one watch, and what came of it.

use std::sync::{Arc, Weak};

use zklock_protocol::EventKind;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait::signal::{Signal, Wakes};

/// Something that wants to know, at once and without blocking, that its watch has fired.
pub(crate) trait OnWatchEvent: Send + Sync {
    /// Called on the link's thread: may only signal.
    fn on_watch_event(self: Arc<Self>);
}

/// Whom a [`WatchState`] wakes. Called with nothing locked: the last handle of a lock may go with it.
#[derive(Clone)]
pub(crate) enum Wake {
    Signal(Arc<Signal>),
    Lock(Weak<dyn OnWatchEvent>),
}

/// See the [module](self).
///
/// The read that leaves the watch was answered after so many events. An event with a smaller number
/// is about an earlier watch on the same path and is no news: the answer has seen that change.
/// The reader takes its answer on its own thread, so events are kept until it has.
pub(crate) struct WatchState {
    state: Mutex<Firing>,
    /// Armed, and nothing was told. Written under `state`, read anywhere: a lingering lock asks at
    /// every acquire and release.
    live: AtomicBool,
}

struct Firing {
    armed_after: Option<u64>,
    /// Before the read is answered: all that came, with their numbers.
    early: Vec<(u64, EventKind)>,
    fired: Option<Fired>,
    wake: Option<Wake>,
}

/// The first thing that a watch told.
#[derive(Clone, Copy)]
enum Fired {
    Event(u64, EventKind),
    /// The watch may have been taken off the server on behalf of somebody else: read again.
    Removed,
}

impl WatchState {
    pub(super) fn new(wake: Option<Wake>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(Firing {
                armed_after: None,
                early: Vec::new(),
                fired: None,
                wake,
            }),
            live: AtomicBool::new(false),
        })
    }

    /// The read that leaves the watch was answered after so many events.
    pub(super) fn armed(&self, after: u64) {
        let mut state = self.state.lock();
        state.armed_after = Some(after);
        let early = std::mem::take(&mut state.early);
        // A notice is armed once more when its watch is left again after it was taken off.
        let Some((number, event)) = early.into_iter().find(|(number, _)| *number > after) else {
            let live = state.fired.is_none();
            self.live.store(live, Ordering::Release);
            return;
        };
        let wake = self.fire(&mut state, Fired::Event(number, event));
        drop(state);
        notify(wake);
    }

    pub(super) fn is_armed(&self) -> bool {
        self.state.lock().armed_after.is_some()
    }

    /// Whether it is armed and has not fired.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    pub(super) fn event(&self, number: u64, event: EventKind) {
        let mut state = self.state.lock();
        let wake = match state.armed_after {
            None => {
                state.early.push((number, event));
                None
            }
            Some(after) if number > after => self.fire(&mut state, Fired::Event(number, event)),
            Some(_) => None,
        };
        drop(state);
        notify(wake);
    }

    pub(super) fn removed(&self) {
        let mut state = self.state.lock();
        let wake = self.fire(&mut state, Fired::Removed);
        drop(state);
        notify(wake);
    }

    /// Notes what the watch told. Returns whom to wake.
    fn fire(&self, state: &mut Firing, fired: Fired) -> Option<Wake> {
        state.fired.get_or_insert(fired);
        self.live.store(false, Ordering::Release);
        state.wake.clone()
    }

    pub(crate) fn has_fired(&self) -> bool {
        self.state.lock().fired.is_some()
    }

    /// Whether the first thing that it told is that the watch may have been taken off on behalf of
    /// somebody else.
    #[cfg(not(shuttle))]
    pub(super) fn was_removed(&self) -> bool {
        matches!(self.state.lock().fired, Some(Fired::Removed))
    }

    /// Whether it fired, and the first event said that the watched node is gone. Its number.
    pub(crate) fn deleted_at(&self) -> Option<u64> {
        self.first_of(EventKind::NodeDeleted)
    }

    /// Whether it fired, and the first event said that the watched node, which was missing, is
    /// there. Its number.
    pub(crate) fn created_at(&self) -> Option<u64> {
        self.first_of(EventKind::NodeCreated)
    }

    fn first_of(&self, event: EventKind) -> Option<u64> {
        match self.state.lock().fired {
            Some(Fired::Event(number, first)) if first == event => Some(number),
            _ => None,
        }
    }

    /// Whether nothing was told before the event with this number. All events up to it must have
    /// been delivered.
    pub(crate) fn is_silent_before(&self, event: u64) -> bool {
        match self.state.lock().fired {
            None => true,
            Some(Fired::Event(number, _)) => number > event,
            Some(Fired::Removed) => false,
        }
    }

    /// From now on wakes `to`; at once if the watch has already fired.
    pub(crate) fn redirect(&self, to: Wake) {
        let mut state = self.state.lock();
        let fired = state.fired.is_some();
        state.wake = Some(to.clone());
        drop(state);
        if fired {
            notify(Some(to));
        }
    }

    /// From now on wakes nobody.
    pub(crate) fn mute(&self) {
        self.state.lock().wake = None;
    }
}

fn notify(wake: Option<Wake>) {
    match wake {
        Some(Wake::Signal(signal)) => signal.raise(Wakes::EVENT),
        Some(Wake::Lock(lock)) => {
            if let Some(lock) = lock.upgrade() {
                lock.on_watch_event();
            }
        }
        None => {}
    }
}
