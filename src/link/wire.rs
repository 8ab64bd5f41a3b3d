//! What the threads of a link share: its core under one lock, and who hears of what it decides.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use zklock_protocol::{EventKind, WatchKind};

use super::alarm::Alarm;
use super::core::{Completed, Core, Group, Interest};
use super::epoch::Epoch;
use super::guest::{Guest, TakenOff};
use super::server::Server;
use super::{LinkConfig, LinkEvent, LinkObserver};

/// Has a line logged where a logger that is stuck holds up nobody.
macro_rules! say {
    ($wire:expr, $level:ident, $($line:tt)+) => {
        if log::Level::$level <= log::max_level() {
            $wire.log(log::Level::$level, module_path!(), format!($($line)+));
        }
    };
}
pub(super) use say;

/// For the good-bye of a link that ends by itself.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Shared by `zklock-clock`, `zklock-down`, the doors and the session's threads.
pub(super) struct Wire {
    pub(super) config: LinkConfig,
    observer: Arc<dyn LinkObserver>,
    pub(super) state: Mutex<State>,
    /// Something changed that a thread of the link waits for: closing, an abandoned session, the
    /// last reply, a thread's end.
    pub(super) changed: Condvar,
    /// Has `zklock-clock` look now.
    pub(super) alarm: Alarm,
}

/// What is shared under one lock.
///
/// Whoever answers a handle of the crate holds it from taking a request off what is in flight until
/// its answer is among what goes out, because the crate takes the first answer for the first request.
pub(super) struct State {
    /// All that is decided.
    pub(super) core: Core,
    /// The connection that there is in the core, too.
    pub(super) server: Option<Arc<Server>>,
    /// Handles of the crate.
    pub(super) guests: Vec<Arc<Guest>>,
    /// Until when a client that is being closed may try to close its session.
    pub(super) close_by: Option<Instant>,
    /// `zklock-down` has done what it could for that.
    pub(super) parted: bool,
    /// Threads that have not ended.
    pub(super) threads: usize,
}

impl Wire {
    pub(super) fn new(config: LinkConfig, observer: Arc<dyn LinkObserver>) -> Arc<Self> {
        let core = Core::new(config.chroot.clone(), config.longest_wait);
        Arc::new(Self {
            state: Mutex::new(State {
                core,
                server: None,
                guests: Vec::new(),
                close_by: None,
                parted: false,
                threads: 0,
            }),
            config,
            observer,
            changed: Condvar::new(),
            alarm: Alarm::default(),
        })
    }

    /// To be called with `state` unlocked: the session has locks of its own.
    pub(super) fn tell(&self, event: LinkEvent) {
        self.observer.on_link(event);
    }

    /// See [`LinkObserver::observe`]. To be called with `state` unlocked.
    pub(super) fn observe(
        &self,
        kind: WatchKind,
        path: &str,
        connection: u64,
        taken_off: TakenOff,
    ) -> Option<Arc<dyn Interest>> {
        self.observer.observe(kind, path, connection, taken_off)
    }

    /// See [`LinkObserver::let_go`]. To be called with `state` unlocked.
    pub(super) fn let_go(&self, interests: Vec<Arc<dyn Interest>>) {
        if !interests.is_empty() {
            self.observer.let_go(interests);
        }
    }

    /// The handles of a session that is over hear that their watches are. To be called with `state`
    /// unlocked.
    pub(super) fn expire_guests(&self) {
        let guests = self.state.lock().guests.clone();
        let over = |guest: &&Arc<Guest>| !guest.epoch.is_alive() || self.is_closing();
        for guest in guests.iter().filter(over) {
            let over = self.state.lock().core.expire(guest.id);
            self.let_go(over);
            self.flush_guest(guest);
        }
    }

    /// To be called with `state` unlocked.
    pub(super) fn tell_event(&self, event: EventKind, path: &str, number: u64) {
        self.observer.on_event(event, path, number);
    }

    /// Has the clock looked at until the link is closed. `zklock-clock` waits for nothing else: no
    /// server, no logger, no lock that is held for long. Its panic is the end of the link (see
    /// [`spawn`](Self::spawn)), because nobody else would declare a session lost.
    pub(super) fn watch_clock(self: &Arc<Self>) {
        // Whoever closes rings after that.
        while !self.is_closing() {
            self.alarm.sleep(self.observer.on_clock());
        }
    }

    /// Has a line logged; a logger may block, and this thread must not. See [`say`].
    pub(super) fn log(&self, level: log::Level, target: &'static str, line: String) {
        self.observer.log(level, target, line);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().core.is_closing()
    }

    pub(super) fn wait_until_closing(&self) {
        let mut state = self.state.lock();
        while !state.core.is_closing() {
            self.changed.wait(&mut state);
        }
    }

    /// Ends a connection: nothing of it is in flight afterwards. The session hears of it last.
    pub(super) fn drop_connection(&self, server: &Server) {
        let ended = server.ended();
        server.cut();
        let now = server.epoch.now();
        let mut state = self.state.lock();
        state.server = None;
        let broken = state.core.broke(ended, now);
        let guests = state.guests_with_news();
        drop(state);
        self.changed.notify_all();
        guests.iter().for_each(|guest| self.flush_guest(guest));
        drop(broken.over);
        self.tell_lost(server.connection, broken.completed);
        broken.unsent.into_iter().for_each(Group::tell_lost);
        self.tell(LinkEvent::Suspended {
            epoch: Arc::clone(&server.epoch),
            connection: server.connection,
        });
    }

    /// Tells those whose requests went down with a connection. A reply among what they had heard
    /// before may be malformed: the connection is gone already.
    pub(super) fn tell_lost(&self, connection: u64, told: Vec<Completed>) {
        for completed in told {
            let rest = completed.tell();
            self.ask_again(connection, rest);
        }
    }

    /// The link ends by itself: a thread has panicked. Nothing works from now
    /// on. The session above is told first, and with it every holder; then the session is closed
    /// at the servers, as it would be when the client is closed, so that others need not wait.
    pub(super) fn end_by_itself(&self) {
        let close_by = Instant::now() + LAST_WORDS;
        let mut state = self.state.lock();
        let news = state.core.close();
        state.close_by.get_or_insert(close_by);
        let server = state.server.clone();
        drop(state);
        if news {
            // Whatever is wrong there must not keep us from what follows.
            let _ = catch_unwind(AssertUnwindSafe(|| self.tell(LinkEvent::Closed)));
            let _ = catch_unwind(AssertUnwindSafe(|| self.expire_guests()));
        }
        if let Some(server) = server.filter(|_| news) {
            server.cut();
        }
        self.changed.notify_all();
        self.alarm.ring();
    }

    /// As [`drop_connection`](Self::drop_connection) of the one that is there, when the thread that
    /// has panicked is the one that would see its end.
    pub(super) fn drop_what_is_left(&self) {
        let server = self.state.lock().server.clone();
        if let Some(server) = server {
            self.drop_connection(&server);
        }
    }

    /// Runs `body` on a thread that is counted until it ends. A panic of it is the end of the link.
    pub(super) fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> io::Result<()> {
        struct Counted(Arc<Wire>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.state.lock().threads -= 1;
                self.0.changed.notify_all();
            }
        }
        self.state.lock().threads += 1;
        let counted = Counted(Arc::clone(self));
        let run = move || {
            let wire = &counted.0;
            if catch_unwind(AssertUnwindSafe(|| body(wire))).is_err() {
                wire.end_by_itself();
            }
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map(drop)
    }
}

impl State {
    /// The connection that there is, if it is of this session and requests go out on it.
    pub(super) fn server_of(&self, epoch: &Epoch) -> Option<Arc<Server>> {
        let server = self.server.as_ref()?;
        let is_open = self.core.is_open(server.connection);
        (is_open && server.epoch.number() == epoch.number()).then(|| Arc::clone(server))
    }

    /// The handles for which there is something to send.
    pub(super) fn guests_with_news(&self) -> Vec<Arc<Guest>> {
        let news = self.core.handles_with_news();
        let guest = |id| self.guests.iter().find(|guest| guest.id == id);
        news.filter_map(guest).map(Arc::clone).collect()
    }
}
