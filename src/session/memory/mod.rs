//! The seam in memory: a ZooKeeper small enough to be explored.
//!
//! One [`Ensemble`] serves any number of sessions, each a [`MemoryBackend`] below a [`Session`] of
//! its own, as processes share a real one. What a real server can't be told to do at a given step
//! is a method here: expire a session, break a connection before or after a request was done,
//! remove a node by hand.
//!
//! Each line has two threads: one takes requests to the tree and brings the answers, one brings the
//! events of watches. So an event can be handled before the answer that was sent before it is looked
//! at, and even, unlike with the link, an answer come before an event that was sent before it; and a
//! caller can leave before its answer comes.

mod tree;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use zklock_protocol::{ANY_VERSION, CreateMode, ErrorCode, EventKind, Request, WatchKind};

use self::tree::{Tree, is_write};
use super::backend::{Answer, Backend, Batching, Completion, NoReply, NotSent};
use super::phase::Connection;
use super::{LossReason, Session};
use crate::link::Epoch;
use crate::session::RetryPolicy;
use crate::session::Site;
use crate::sync::{self, Condvar, Mutex};

/// Longer than any test: in memory, a session ends when it is told to.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Of which nobody knows what it says.
const SYSTEM_ERROR: ErrorCode = ErrorCode(-1);

fn refused(request: &Request, error: ErrorCode) -> NoReply {
    let asked = request.opcode();
    NoReply::Refused { asked, error }
}

/// The servers: one tree of nodes.
#[derive(Default)]
pub(crate) struct Ensemble {
    tree: Mutex<Tree>,
}

/// What happens to the next request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection breaks before the request arrives.
    Before,
    /// The request is done, and the connection breaks before the answer arrives.
    After,
    /// The connection breaks, and a write is done some time later: it is still on its way through
    /// the server while the client goes on with another one.
    Late,
    /// The request is refused for now, and not done.
    Throttled,
    /// A write is done, and answered with an error that does not say so; a read is refused with it,
    /// and leaves no watch. The connection stands.
    Unclear,
}

impl Ensemble {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// A client with a session that stands.
    pub(crate) fn connect(self: &Arc<Self>) -> (Arc<Session>, Arc<Line>) {
        let session = Session::new(
            "memory".into(),
            RetryPolicy::new(),
            Vec::new(),
            Site::open(),
        );
        let line = Arc::new(Line {
            ensemble: Arc::clone(self),
            session: OnceLock::new(),
            state: Mutex::new(LineState::default()),
            work: Condvar::new(),
            turns: shuttle::sync::Mutex::new(()),
        });
        assert!(line.session.set(Arc::downgrade(&session)).is_ok());
        for run in [Line::bring_answers, Line::bring_events] {
            let line = Arc::clone(&line);
            sync::spawn("line", move || run(&line)).expect("a thread");
        }
        let backend = MemoryBackend(Arc::clone(&line));
        session.attach(Arc::new(backend));
        line.new_session();
        (session, line)
    }

    /// Ends a session, whose lease has run out before.
    pub(crate) fn end_session(&self, session_id: i64) {
        self.tree.lock().end_session(session_id);
    }

    /// The children of `path`; none if it does not exist.
    pub(crate) fn children_of(&self, path: &str) -> Vec<String> {
        self.tree.lock().children(path).unwrap_or_default()
    }

    /// All nodes that live with a session.
    pub(crate) fn ephemeral_nodes(&self) -> Vec<String> {
        let tree = self.tree.lock();
        let nodes = tree.nodes.iter();
        let owned = nodes.filter(|(_, node)| node.stat.ephemeral_owner != 0);
        owned.map(|(path, _)| path.clone()).collect()
    }

    /// Makes a persistent node, or replaces its data, by hand.
    pub(crate) fn write(&self, path: &str, data: &[u8]) {
        let mut tree = self.tree.lock();
        if tree.set(path, data, ANY_VERSION).is_err() {
            let made = tree.create(path, data, CreateMode::PERSISTENT, 0);
            made.expect("its parent stands, and is no session's");
        }
    }

    /// Removes a node by hand. Returns whether it stood.
    pub(crate) fn remove(&self, path: &str) -> bool {
        self.tree.lock().delete(path, ANY_VERSION).is_ok()
    }

    /// Removes by hand the last one in a queue, if by its number it cannot be a holder: somebody is
    /// ahead of it, and it is no reader.
    pub(crate) fn remove_last_waiter(&self, folder: &str) {
        let number = |name: &String| name[name.len() - 10..].to_owned();
        let mut tree = self.tree.lock();
        let mut children = tree.children(folder).unwrap_or_default();
        children.sort_by_key(number);
        if let [.., before, last] = children.as_slice()
            && number(before) < number(last)
            && !last.contains("__READ__")
        {
            let removed = tree.delete(&format!("{folder}/{last}"), ANY_VERSION);
            removed.expect("listed under the same lock");
        }
    }

    pub(crate) fn watch_count(&self) -> usize {
        self.tree.lock().watches.len()
    }
}

/// What is left, for messages.
impl std::fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tree = self.tree.lock();
        f.debug_struct("Ensemble")
            .field("nodes", &tree.nodes.keys())
            .field("watches", &tree.watches)
            .finish_non_exhaustive()
    }
}

/// One client's end: what a link is to a real server.
pub(crate) struct Line {
    ensemble: Arc<Ensemble>,
    session: OnceLock<Weak<Session>>,
    state: Mutex<LineState>,
    /// There is something to bring, or the line was closed.
    work: Condvar,
    /// Connections are made and broken one after the other, as a link's one thread does. (Not one
    /// of the library's locks, under which no request may be made.)
    turns: shuttle::sync::Mutex<()>,
}

#[derive(Default)]
struct LineState {
    epoch: Option<Arc<Epoch>>,
    epochs: u64,
    /// Counts connections.
    connections: u64,
    /// The connection that stands, 0 for none.
    connection: u64,
    closed: bool,
    /// See [`Line::dawdle`].
    dawdling: bool,
    fault: Option<Fault>,
    /// What was submitted and not answered.
    requests: VecDeque<(u64, Vec<Request>, Arc<dyn Completion>)>,
    /// What is on its way: each event with its number.
    events: VecDeque<(String, EventKind, u64)>,
    /// They were taken to the tree, and are being answered.
    answering: bool,
    events_sent: u64,
    events_delivered: u64,
}

pub(super) struct MemoryBackend(Arc<Line>);

impl Line {
    fn session(&self) -> Option<Arc<Session>> {
        self.session.get().and_then(Weak::upgrade)
    }

    fn new_session(self: &Arc<Self>) {
        let connection = {
            let mut tree = self.ensemble.tree.lock();
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            let session_id = tree.begin_session(Arc::downgrade(self));
            state.epochs += 1;
            let epoch = Arc::new(Epoch::new(state.epochs, session_id, TIMEOUT));
            state.connect(epoch)
        };
        if let Some(session) = self.session() {
            session.connected(connection, false);
        }
    }

    /// From now on, who takes a watch off the servers may be slow at that, and so may be the answer.
    pub(crate) fn dawdle(&self) {
        self.state.lock().dawdling = true;
    }

    fn linger_over(&self, requests: &[Request]) {
        let slow = |request: &Request| matches!(request, Request::RemoveWatches { .. });
        if requests.iter().any(slow) && self.state.lock().dawdling {
            for _ in 0..thread_rng().gen_range(0..400) {
                shuttle::thread::yield_now();
            }
        }
    }

    /// The next request of this client meets `fault`.
    pub(crate) fn strike(&self, fault: Fault) {
        self.state.lock().fault = Some(fault);
    }

    /// Breaks the connection and makes another one in the same session.
    pub(crate) fn reset(self: &Arc<Self>) {
        let _turn = self.turns.lock().expect("no panic");
        let Some((session, epoch)) = self.cut() else {
            return;
        };
        let connection = {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            state.connect(epoch)
        };
        session.connected(connection, true);
    }

    /// Ends what stands, on the wire.
    fn cut(&self) -> Option<(Arc<Session>, Arc<Epoch>)> {
        let (epoch, number, lost) = {
            let mut state = self.state.lock();
            if state.connection == 0 {
                return None;
            }
            let number = std::mem::take(&mut state.connection);
            let lost = std::mem::take(&mut state.requests);
            (state.epoch.clone()?, number, lost)
        };
        let session_id = epoch.session_id();
        self.ensemble.tree.lock().lose_watches(session_id);
        for (_, requests, completion) in lost {
            completion.completed(requests.iter().map(|_| Answer::lost()).collect());
        }
        let session = self.session()?;
        session.suspended(number);
        Some((session, epoch))
    }

    /// The lease runs out, the server expires the session, and a new one is made: in this order,
    /// as the lease is the shorter.
    pub(crate) fn expire(self: &Arc<Self>) {
        self.end_session(true);
    }

    /// The lease runs out, and a new session is made before the server expires the old one, which
    /// is to be done by [`Ensemble::end_session`].
    pub(crate) fn lapse(self: &Arc<Self>) -> Option<i64> {
        self.end_session(false)
    }

    fn end_session(self: &Arc<Self>, at_once: bool) -> Option<i64> {
        let _turn = self.turns.lock().expect("no panic");
        let (session, epoch) = self.cut()?;
        epoch.lease().seal();
        if at_once {
            self.ensemble.end_session(epoch.session_id());
        }
        session.lost(epoch.number(), LossReason::Session);
        self.new_session();
        Some(epoch.session_id())
    }

    /// Runs one request on the tree, as the connection lets it.
    fn ask(self: &Arc<Self>, connection: u64, request: &Request) -> Answer {
        let fault = self.state.lock().fault.take();
        match fault {
            None => return self.run(connection, request),
            Some(Fault::Before) => {}
            Some(Fault::After) => {
                self.run(connection, request);
            }
            Some(Fault::Late) => {
                let mut tree = self.ensemble.tree.lock();
                if let Some(session_id) = self.session_on(connection, &tree) {
                    tree.delay(request, session_id);
                }
            }
            Some(Fault::Throttled) => {
                return self.refuse(connection, request, ErrorCode::THROTTLED_OP);
            }
            Some(Fault::Unclear) => {
                if is_write(request) {
                    self.run(connection, request);
                }
                return self.refuse(connection, request, SYSTEM_ERROR);
            }
        }
        self.reset();
        Answer::lost()
    }

    fn run(&self, connection: u64, request: &Request) -> Answer {
        let mut tree = self.ensemble.tree.lock();
        let Some(session_id) = self.session_on(connection, &tree) else {
            return Answer::lost();
        };
        let answer = tree.answer(request, session_id);
        let result = answer.map_err(|error| refused(request, error));
        let events_before = self.state.lock().events_sent;
        Answer {
            result,
            events_before,
        }
    }

    fn refuse(&self, connection: u64, request: &Request, error: ErrorCode) -> Answer {
        let tree = self.ensemble.tree.lock();
        if self.session_on(connection, &tree).is_none() {
            return Answer::lost();
        }
        let events_before = self.state.lock().events_sent;
        Answer {
            result: Err(refused(request, error)),
            events_before,
        }
    }

    /// The session of this connection, if both stand.
    fn session_on(&self, connection: u64, tree: &Tree) -> Option<i64> {
        let state = self.state.lock();
        let epoch = state.epoch.as_ref()?;
        let is_open = state.connection == connection && !state.closed;
        (is_open && tree.has_session(epoch.session_id())).then(|| epoch.session_id())
    }

    fn send_event(&self, path: &str, event: EventKind) {
        let mut state = self.state.lock();
        state.events_sent += 1;
        let number = state.events_sent;
        state.events.push_back((path.to_owned(), event, number));
        drop(state);
        self.work.notify_all();
    }

    /// Waits for something to bring. `None` once the line is closed.
    fn next<T>(&self, mut take: impl FnMut(&mut LineState) -> Option<T>) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(next) = take(&mut state) {
                return Some(next);
            }
            if state.closed {
                return None;
            }
            sync::wait_until(&self.work, &mut state, None);
        }
    }

    fn bring_answers(self: &Arc<Self>) {
        let take = |state: &mut LineState| {
            let next = state.requests.pop_front()?;
            state.answering = true;
            Some(next)
        };
        while let Some((connection, requests, completion)) = self.next(take) {
            let answers = requests.iter().map(|one| self.ask(connection, one));
            let answers = answers.collect();
            self.linger_over(&requests);
            completion.completed(answers);
            self.state.lock().answering = false;
        }
    }

    fn bring_events(self: &Arc<Self>) {
        while let Some((path, event, number)) = self.next(|state| state.events.pop_front()) {
            if let Some(session) = self.session() {
                session.watch_event(&path, event, number);
            }
            self.state.lock().events_delivered = number;
        }
    }

    /// Whether nothing is on its way, up or down.
    pub(crate) fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        let asked = !state.requests.is_empty() || state.answering;
        !asked && state.events_delivered == state.events_sent
    }

    /// Whether the servers have this watch for this client.
    pub(crate) fn watches(&self, kind: WatchKind, path: &str) -> bool {
        let tree = self.ensemble.tree.lock();
        let epoch = self.state.lock().epoch.clone();
        let mut watches = tree.watches.iter();
        epoch.is_some_and(|epoch| {
            watches.any(|(of, at, id)| (*of, &**at, *id) == (kind, path, epoch.session_id()))
        })
    }

    /// Whether this client has heard all that was sent to it.
    pub(crate) fn has_heard_all(&self) -> bool {
        let state = self.state.lock();
        state.events_delivered == state.events_sent
    }
}

impl LineState {
    fn connect(&mut self, epoch: Arc<Epoch>) -> Connection {
        self.connections += 1;
        self.connection = self.connections;
        self.epoch = Some(Arc::clone(&epoch));
        Connection {
            epoch,
            number: self.connection,
        }
    }
}

impl Backend for MemoryBackend {
    fn submit(
        &self,
        connection: u64,
        requests: &[Request],
        _batching: Batching,
        completion: Arc<dyn Completion>,
    ) -> Result<(), NotSent> {
        assert!(
            sync::locked() == 0 || std::thread::panicking(),
            "requests under a lock: {requests:?}"
        );
        self.0.linger_over(requests);
        let mut state = self.0.state.lock();
        if state.connection != connection || state.closed {
            return Err(NotSent::NotOpen);
        }
        let submitted = (connection, requests.to_vec(), completion);
        state.requests.push_back(submitted);
        drop(state);
        self.0.work.notify_all();
        Ok(())
    }

    fn is_harmless(&self, _connection: u64) -> bool {
        true
    }

    fn abandon(&self, _epoch: &Epoch) {}

    fn close(&self, _bound: Duration) {
        let (epoch, lost) = {
            let mut state = self.0.state.lock();
            state.closed = true;
            (state.epoch.take(), std::mem::take(&mut state.requests))
        };
        self.0.work.notify_all();
        for (_, requests, completion) in lost {
            completion.completed(requests.iter().map(|_| Answer::lost()).collect());
        }
        if let Some(epoch) = epoch {
            self.0.ensemble.end_session(epoch.session_id());
        }
    }
}
