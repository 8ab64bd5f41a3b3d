//! The registry of watches: who waits for which.
//!
//! The server's watches are one-shot and die with the connection. The crate's own map of closures
//! grows without end across reconnects, so nothing is stored there: the link tells of events by
//! path, and this registry knows what they wake.
//!
//! # One state for each watched path
//! The server has one watch for everybody in a session who looks at a path. So what is known of it
//! is kept once ([`OnServer`]), for the connection that it was left on:
//!
//! ```text
//!            answered read                 last one leaves
//!   Nothing ---------------> Left(after) ------------------> Removing
//!      ^  ^                   |                               |
//!      |  +--- event > after -+                               |
//!      +-------------------- answered ------------------------+
//! ```
//!
//! An event or an answered read with a smaller number than what is known changes nothing. While a
//! removal is on its way, nobody can know whether a new read is executed before it or after it. So
//! an interest that is added then is told `Removed` when the removal is answered, reads again, and
//! until then concludes nothing from the silence of its watch ([`Watch::is_sure`]). Otherwise the
//! removal for a waiter that gave up could take off the watch of the next waiter, which would then
//! take over a lock in the belief that nobody had come or gone.

use std::collections::HashMap;
use std::sync::Arc;

use zklock_protocol::{ErrorCode, EventKind, Reply, Request, WatchKind, opcode};

use super::Session;
use super::backend::{Answer, Batching, Completion, NoReply, NotSent};
use super::refusal::Meaning;
pub(crate) use super::watch_state::{OnWatchEvent, Wake, WatchState};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An interest in a watch, from before the read that leaves it on the server until it is not needed
/// any more. When the last interest in a watch ends that may still be there, the watch is taken off
/// the server.
pub(crate) struct Watch {
    session: Arc<Session>,
    connection: u64,
    path: String,
    kind: WatchKind,
    state: Arc<WatchState>,
    /// It was added while the removal of an earlier watch was on its way.
    is_doubtful: bool,
    armed_after: AtomicU64,
    is_spent: AtomicBool,
}

impl Watch {
    /// See [`Watch::new`].
    pub(super) fn on(
        session: &Arc<Session>,
        connection: u64,
        path: &str,
        kind: WatchKind,
        wake: Option<Wake>,
    ) -> Self {
        let state = WatchState::new(wake);
        let is_doubtful = session.watches.add(path, kind, connection, &state);
        Self {
            session: Arc::clone(session),
            connection,
            path: path.to_owned(),
            kind,
            state,
            is_doubtful,
            armed_after: AtomicU64::new(0),
            is_spent: AtomicBool::new(false),
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn state(&self) -> &Arc<WatchState> {
        &self.state
    }

    /// The read was answered, after so many events.
    pub(super) fn armed(&self, after: u64) {
        self.armed_after.store(after, Ordering::Relaxed);
        let watches = &self.session.watches;
        watches.armed(&self.path, self.kind, self.connection, after);
        self.state.armed(after);
    }

    /// Whether the read that left it was executed before the event with this number.
    pub(crate) fn was_left_before(&self, event: u64) -> bool {
        self.armed_after.load(Ordering::Relaxed) < event
    }

    /// Whether the watch is on the server, and has not fired.
    pub(crate) fn is_live(&self) -> bool {
        self.connection == self.session.connection() && self.state.is_live()
    }

    /// Whether it is live, and its silence up to now says that nothing has changed.
    pub(crate) fn is_undisturbed(&self) -> bool {
        !self.is_doubtful && self.is_live()
    }

    /// Whether its silence says that nothing has changed since its read was answered on this
    /// connection.
    pub(super) fn is_sure_on(&self, connection: u64) -> bool {
        !self.is_doubtful && self.connection == connection && self.state.is_armed()
    }

    /// The watch has surely fired on the server since it was left, or a request on its way will
    /// fire it: it need not be taken off.
    pub(crate) fn forget(self) {
        self.is_spent.store(true, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.session.is_forked() {
            return;
        }
        let spent = self.is_spent.load(Ordering::Relaxed);
        let spent = spent.then(|| (self.connection, self.armed_after.load(Ordering::Relaxed)));
        let watches = &self.session.watches;
        if let Some(connection) = watches.remove(&self.path, self.kind, &self.state, spent) {
            self.session.take_off(&self.path, self.kind, connection);
        }
    }
}

/// The state of the one watch on a path, as far as it is known; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnServer {
    Nothing,
    /// A read that left it was answered after so many events.
    Left(u64),
    /// Its removal is on its way. A read that was answered meanwhile may have left another.
    Removing {
        left_meanwhile: bool,
    },
}

struct WatchedPath {
    interested: Vec<Arc<WatchState>>,
    connection: u64,
    on_server: OnServer,
    /// The number of the last event.
    last_event: u64,
}

/// The registry of one session.
#[derive(Default)]
pub(super) struct Watches {
    watched: Mutex<HashMap<(WatchKind, Box<str>), WatchedPath>>,
}

impl Watches {
    /// Adds an interest. Returns whether a removal is on its way.
    fn add(&self, path: &str, kind: WatchKind, connection: u64, state: &Arc<WatchState>) -> bool {
        let mut watched = self.watched.lock();
        let entry = watched
            .entry((kind, path.into()))
            .or_insert_with(|| WatchedPath::on(connection));
        entry.come_to(connection);
        entry.interested.push(Arc::clone(state));
        matches!(entry.on_server, OnServer::Removing { .. })
    }

    /// A read that leaves the watch was answered.
    fn armed(&self, path: &str, kind: WatchKind, connection: u64, after: u64) {
        if let Some(entry) = self.watched.lock().get_mut(&(kind, path.into())) {
            entry.left(connection, after);
        }
    }

    /// A read was answered after its caller had left. Returns whether the watch that it left is
    /// to be taken off, because nobody else looks at the path.
    fn abandoned(&self, path: &str, kind: WatchKind, connection: u64, after: u64) -> bool {
        let mut watched = self.watched.lock();
        let entry = watched
            .entry((kind, path.into()))
            .or_insert_with(|| WatchedPath::on(connection));
        entry.left(connection, after);
        let to_take_off = entry.begin_removal(connection);
        if entry.is_done() {
            watched.remove(&(kind, path.into()));
        }
        to_take_off
    }

    /// Removes an interest. `spent`: its own watch, left on this connection after so many events,
    /// is known to have fired. Returns the connection on which the watch is to be taken off the
    /// server.
    fn remove(
        &self,
        path: &str,
        kind: WatchKind,
        state: &Arc<WatchState>,
        spent: Option<(u64, u64)>,
    ) -> Option<u64> {
        let mut watched = self.watched.lock();
        let key = (kind, path.into());
        let entry = watched.get_mut(&key)?;
        entry.interested.retain(|other| !Arc::ptr_eq(other, state));
        if let (OnServer::Left(after), Some((on, spent))) = (entry.on_server, spent)
            && entry.connection == on
            && after <= spent
        {
            entry.on_server = OnServer::Nothing;
        }
        let connection = entry.connection;
        let to_take_off = entry.begin_removal(connection);
        if entry.is_done() {
            watched.remove(&key);
        }
        to_take_off.then_some(connection)
    }

    /// The removal was answered, or died with its connection. Returns whether another is to be
    /// sent, which is decided under the same lock: an event in between would find a watch that
    /// nobody looks at.
    fn taken_off(&self, path: &str, kind: WatchKind, connection: u64) -> bool {
        let mut watched = self.watched.lock();
        let key = (kind, path.into());
        let Some(entry) = watched.get_mut(&key) else {
            return false;
        };
        let OnServer::Removing { left_meanwhile } = entry.on_server else {
            return false;
        };
        if entry.connection != connection {
            return false;
        }
        // If the read came after the removal, it left a watch that is there; if not, taking it
        // off once more finds none.
        entry.on_server = if left_meanwhile {
            OnServer::Left(entry.last_event)
        } else {
            OnServer::Nothing
        };
        let to_tell = entry.interested.clone();
        let again = entry.begin_removal(connection);
        if entry.is_done() {
            watched.remove(&key);
        }
        drop(watched);
        for state in to_tell {
            state.removed();
        }
        again
    }

    /// An event came for `path`; it is the one with this number.
    pub(super) fn fire(&self, path: &str, event: EventKind, number: u64) {
        let kinds: &[WatchKind] = match event {
            EventKind::NodeDeleted => &[WatchKind::DATA, WatchKind::CHILDREN],
            EventKind::NodeCreated | EventKind::NodeDataChanged => &[WatchKind::DATA],
            EventKind::NodeChildrenChanged => &[WatchKind::CHILDREN],
        };
        for kind in kinds {
            for state in self.note(path, *kind, number) {
                state.event(number, event);
            }
        }
    }

    /// Takes note of an event. Returns who is to hear of it, which is not done under the lock.
    fn note(&self, path: &str, kind: WatchKind, number: u64) -> Vec<Arc<WatchState>> {
        let mut watched = self.watched.lock();
        let Some(entry) = watched.get_mut(&(kind, path.into())) else {
            return Vec::new();
        };
        entry.last_event = number;
        if let OnServer::Left(after) = entry.on_server
            && number > after
        {
            entry.on_server = OnServer::Nothing;
        }
        entry.interested.clone()
    }

    #[cfg(all(test, shuttle))]
    pub(super) fn len(&self) -> usize {
        self.watched.lock().len()
    }
}

impl WatchedPath {
    fn on(connection: u64) -> Self {
        Self {
            interested: Vec::new(),
            connection,
            on_server: OnServer::Nothing,
            last_event: 0,
        }
    }

    /// The watches of an earlier connection died with it.
    fn come_to(&mut self, connection: u64) {
        if self.connection < connection {
            self.connection = connection;
            self.on_server = OnServer::Nothing;
        }
    }

    fn left(&mut self, connection: u64, after: u64) {
        if self.connection > connection {
            return;
        }
        self.come_to(connection);
        match &mut self.on_server {
            // Its event overtook the answer.
            OnServer::Nothing if self.last_event > after => {}
            OnServer::Nothing => self.on_server = OnServer::Left(after),
            OnServer::Left(before) => *before = after.max(*before),
            OnServer::Removing { left_meanwhile } => *left_meanwhile = true,
        }
    }

    fn begin_removal(&mut self, connection: u64) -> bool {
        let is_left = matches!(self.on_server, OnServer::Left(_)) && self.connection == connection;
        let begins = is_left && self.interested.is_empty();
        if begins {
            self.on_server = OnServer::Removing {
                left_meanwhile: false,
            };
        }
        begins
    }

    fn is_done(&self) -> bool {
        self.interested.is_empty() && self.on_server == OnServer::Nothing
    }
}

impl Session {
    /// A read has left a watch, and its caller had gone by then.
    pub(super) fn watch_left(
        self: &Arc<Self>,
        path: &str,
        kind: WatchKind,
        connection: u64,
        after: u64,
    ) {
        if self.watches.abandoned(path, kind, connection, after) {
            self.take_off(path, kind, connection);
        }
    }

    /// Takes a watch off the server, without waiting for it.
    fn take_off(self: &Arc<Self>, path: &str, kind: WatchKind, connection: u64) {
        self.take_off_again(path, kind, connection, 0);
    }

    /// As [`take_off`](Self::take_off), what was refused for now so many times in a row.
    fn take_off_again(
        self: &Arc<Self>,
        path: &str,
        kind: WatchKind,
        connection: u64,
        put_off: u32,
    ) {
        let removal = Arc::new(Removal {
            session: Arc::clone(self),
            path: path.to_owned(),
            kind,
            connection,
            put_off,
        });
        let path = self.site().full(path);
        let request = [Request::RemoveWatches { path, kind }];
        let completion: Arc<dyn Completion> = removal.clone();
        let backend = self.backend();
        match backend.submit(connection, &request, Batching::Never, completion) {
            Ok(()) => {}
            Err(NotSent::NotOpen) => removal.done(),
            Err(why) => removal.completed(vec![NoReply::NotSent(why).into()]),
        }
    }
}

/// The watch that a read has left.
pub(super) fn left_by_read<'a>(
    read: &'a Request,
    result: &Result<Reply, NoReply>,
) -> Option<(&'a str, WatchKind)> {
    let (path, kind) = match read {
        Request::GetChildren { path, watch: true } => (path, WatchKind::CHILDREN),
        Request::GetData { path, watch: true } | Request::Exists { path, watch: true } => {
            (path, WatchKind::DATA)
        }
        _ => return None,
    };
    let is_left = match result {
        Ok(_) => true,
        // Also where it found none.
        Err(NoReply::Refused { asked, error }) => {
            (*asked, *error) == (opcode::EXISTS, ErrorCode::NO_NODE)
        }
        Err(_) => false,
    };
    is_left.then_some((path, kind))
}

/// A removal that is on its way. Refused or lost, it is done: there was no watch, or the one there
/// was has died with the connection. Refused for now, it goes on.
struct Removal {
    session: Arc<Session>,
    path: String,
    kind: WatchKind,
    connection: u64,
    /// How often in a row it was refused for now.
    put_off: u32,
}

impl Removal {
    fn done(&self) {
        let watches = &self.session.watches;
        if watches.taken_off(&self.path, self.kind, self.connection) {
            self.session
                .take_off(&self.path, self.kind, self.connection);
        }
    }
}

impl Completion for Removal {
    fn completed(&self, answers: Vec<Answer>) {
        let no = answers
            .iter()
            .filter_map(|answer| answer.result.as_ref().err());
        let mut meanings = no.map(Meaning::of);
        if !meanings.any(|meaning| matches!(meaning, Meaning::NotNow(_))) {
            return self.done();
        }
        // As it is still on its way, nobody relies on the watch, and no second removal begins.
        let (session, kind, connection) =
            (Arc::downgrade(&self.session), self.kind, self.connection);
        let (path, times) = (self.path.clone(), self.put_off);
        self.session.after_pause(times, move || {
            if let Some(session) = session.upgrade() {
                session.take_off_again(&path, kind, connection, times.saturating_add(1));
            }
        });
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::session::RetryPolicy;
    use crate::session::scripted::stage;

    const SOON: Duration = Duration::from_secs(30);

    /// It was asked for again 20 to 40 times in a second, for as long as the connection stood.
    #[test]
    fn a_removal_that_is_refused_for_now_is_asked_for_more_and_more_seldom() {
        let (tell, asked) = crossbeam_channel::unbounded();
        let initial = Duration::from_millis(10);
        let policy = RetryPolicy::new().initial(initial);
        let stage = stage(policy, move |request| {
            assert!(
                matches!(request, Request::RemoveWatches { .. }),
                "{request:?}"
            );
            let _ = tell.send(Instant::now());
            Err(ErrorCode::THROTTLED_OP)
        });
        let session = &stage.session;
        let watch = Watch::on(session, 1, "/locks/a", WatchKind::DATA, None);
        watch.armed(0);
        drop(watch);
        let mut last = asked.recv_timeout(SOON).expect("asked at once");
        for times in 0..6 {
            let again = asked.recv_timeout(SOON).expect("asked again");
            // A pause is from half of its limit on.
            let least = initial * (1 << times) / 2;
            assert!(again - last >= least, "{times}: {:?}", again - last);
            last = again;
        }
    }
}
