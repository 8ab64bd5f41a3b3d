//! A contact: one connection of one epoch, and the only thing that calls are made through.
//!
//! A call is not sent unless exactly that connection is open, and its answer counts only while the
//! epoch's lease lives. So two calls on one contact were about one session, and an old contact can
//! do no harm: a check in one session and a deletion in the next cannot be combined.

use std::sync::Arc;

use zklock_protocol::{
    ANY_VERSION, Children, CreateMode, ErrorCode, Part, Reply, Request, Stat, WatchKind,
};

use super::Session;
use super::backend::{Answer, Batching, Created, Refusal};
use super::call_error::{CallError, Step};
use super::observe::say;
use super::own_call::OwnCall;
use super::phase::{Connection, NoContact};
use super::refusal::Meaning;
use super::site::new_node;
use super::waiter::Waiter;
use super::watches::{Wake, Watch};
use crate::error::Error;
use crate::link::voice::{Lost, NoReply};
use crate::link::{Epoch, NodeStands, SeekProof};
use crate::wait::signal::{Signal, Wakes};

/// See the [module](self).
pub(crate) struct Contact<'a> {
    session: &'a Arc<Session>,
    connection: Connection,
    voice: Voice<'a>,
}

/// Of many reads that one caller makes.
const READS_AT_ONCE: usize = 256;

/// A node's data and stat.
pub(crate) type Seen = (Vec<u8>, Stat);

/// What [`Contact::create_and_list`] came to.
pub(crate) struct Entered {
    /// For each name, in their order.
    pub(crate) created: Vec<Step<Created>>,
    pub(crate) listed: Step<Children>,
}

/// What [`Contact::change_all`] came to.
#[derive(Debug)]
pub(crate) enum Changes {
    /// What each came to.
    Made(Vec<Reply>),
    /// Nothing was changed, as this change was refused.
    Refused { index: usize, refusal: Refusal },
}

impl Changes {
    /// The answer to a multi, as it was judged.
    pub(super) fn told(reply: Reply) -> Self {
        let Reply::Parts(parts) = reply else {
            unreachable!("a multi is answered with the results of its steps, or with their errors");
        };
        if let Some((index, error)) = Part::refused(&parts)
            && let Meaning::Refused(refusal) = Meaning::of_step(error)
        {
            return Self::Refused { index, refusal };
        }
        let done = parts.into_iter().filter_map(|part| match part {
            Part::Done(_, reply) => Some(reply),
            Part::Failed(_) => None,
        });
        Self::Made(done.collect())
    }
}

/// How calls are made.
enum Voice<'a> {
    /// As requests of our own, within the bound of a waiter.
    Waiter(&'a Waiter<'a>),
    /// As requests of our own, for as long as the connection is open.
    Patient,
}

impl<'a> Contact<'a> {
    pub(super) fn of_waiter(waiter: &'a Waiter<'a>, connection: Connection) -> Self {
        Self {
            session: waiter.session(),
            connection,
            voice: Voice::Waiter(waiter),
        }
    }

    /// For requests that wait as long as the connection stands.
    pub(super) fn patient(session: &'a Arc<Session>, connection: Connection) -> Self {
        Self {
            session,
            connection,
            voice: Voice::Patient,
        }
    }

    pub(crate) fn session(&self) -> &'a Arc<Session> {
        self.session
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.connection.epoch
    }

    /// The number of the connection. Counts over all sessions of a client; never 0.
    pub(crate) fn number(&self) -> u64 {
        self.connection.number
    }

    pub(crate) fn is_open(&self) -> bool {
        self.session.connection() == self.connection.number
    }

    /// What wakes the thread that this contact was handed to.
    pub(crate) fn signal(&self) -> &'a Arc<Signal> {
        self.waiter().signal()
    }

    fn waiter(&self) -> &'a Waiter<'a> {
        match self.voice {
            Voice::Waiter(waiter) => waiter,
            _ => unreachable!("only a waiter sleeps on its contact"),
        }
    }

    // ---- waiting ----

    /// Sleeps until one of `watches` has fired or this connection is gone.
    pub(crate) fn sleep_until_any(&self, watches: &[&Watch]) -> Step<()> {
        self.sleep_until(|| watches.iter().any(|watch| watch.notice().has_fired()))
    }

    /// Sleeps until `watch` has fired, this connection is gone, or `until`.
    pub(crate) fn sleep_on(&self, watch: &Watch, until: Option<std::time::Instant>) -> Step<()> {
        while !watch.notice().has_fired() && self.is_open() {
            let wakes = self.waiter().sleep(until).map_err(CallError::Left)?;
            if wakes.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sleeps until `is_over`, which is looked at whenever something wakes this waiter, or this
    /// connection is gone.
    pub(crate) fn sleep_until(&self, is_over: impl Fn() -> bool) -> Step<()> {
        while !is_over() && self.is_open() {
            self.waiter().sleep(None).map_err(CallError::Left)?;
        }
        Ok(())
    }

    /// Sleeps until `until`, or until something wakes this waiter.
    pub(crate) fn sleep_till(&self, until: Option<std::time::Instant>) -> Step<()> {
        self.waiter().sleep(until).map_err(CallError::Left)?;
        Ok(())
    }

    // ---- calls ----

    pub(crate) fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Step<Created> {
        loop {
            let request = new_node(path.to_owned(), data, mode);
            match self.call(request) {
                Ok(reply) => return Ok(created(reply)),
                Err(CallError::Refused(Refusal::Unknown)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates the node at this path of the ensemble, outside of the chroot.
    pub(crate) fn create_above(&self, path: &str) -> Step<()> {
        let request = self.session.site().above(path);
        let mut answers = self.send_settled(Batching::Never, vec![request])?;
        self.judge(answers.pop().expect("one for each request"))
            .map(drop)
    }

    /// Creates nodes of these names and lists their folder, in one write: the list is answered
    /// after the creates and sees them. The list leaves `watch`, if there is one.
    pub(crate) fn create_and_list(
        &self,
        folder: &str,
        names: &[String],
        data: &[u8],
        mode: CreateMode,
        batching: Batching,
        watch: Option<&Watch>,
    ) -> Step<Entered> {
        let creates = creates(folder, names, data, mode);
        let list = Request::GetChildren {
            path: folder.to_owned(),
            watch: watch.is_some(),
        };
        let mut answers = self.send_in(batching, creates.chain([list]).collect())?;
        let listed = answers.pop().expect("one for each request");
        let created = self.judge_created(answers);
        let after = listed.events_before;
        let listed = self.judge(listed).map(|reply| match reply {
            Reply::Children(children) => children,
            _ => unreachable!("a list is answered with names"),
        });
        if let (Ok(_), Some(watch)) = (&listed, watch) {
            watch.armed(after);
        }
        Ok(Entered { created, listed })
    }

    /// Creates nodes of these names in one write.
    pub(crate) fn create_all(
        &self,
        folder: &str,
        names: &[String],
        data: &[u8],
        mode: CreateMode,
        batching: Batching,
    ) -> Step<Vec<Step<Created>>> {
        let requests = creates(folder, names, data, mode).collect();
        let answers = self.send_in(batching, requests)?;
        Ok(self.judge_created(answers))
    }

    fn judge_created(&self, answers: Vec<Answer>) -> Vec<Step<Created>> {
        let each = answers.into_iter();
        each.map(|answer| self.judge(answer).map(created)).collect()
    }

    /// With a version, only if the data still has that version.
    pub(crate) fn delete(&self, path: &str, version: Option<i32>) -> Step<()> {
        let path = path.to_owned();
        let version = version.unwrap_or(ANY_VERSION);
        self.call(Request::Delete { path, version }).map(drop)
    }

    /// Makes all of these changes or none.
    pub(crate) fn change_all(&self, changes: Vec<Request>) -> Step<Changes> {
        let answer = self.answer_to(Request::Multi(changes))?;
        if let Err(NoReply::Lost(lost)) = answer.result
            && lost.is_poison()
        {
            // Unlike what we make for ourselves, nobody cleans this up: the last one may have been
            // done like any other whose answer was lost.
            let why = self.poison(lost);
            return Err(CallError::Left(Error::connection_loss(why)));
        }
        self.judge(answer).map(Changes::told)
    }

    pub(crate) fn children(&self, path: &str) -> Step<Children> {
        self.list(list(path, false), None)
    }

    /// As [`Contact::children`] of the path that `watch` is on, which is left there.
    pub(crate) fn watch_children(&self, watch: &Watch) -> Step<Children> {
        self.list(list(watch.path(), true), Some(watch))
    }

    fn list(&self, request: Request, watch: Option<&Watch>) -> Step<Children> {
        match self.call_and_arm(request, watch)? {
            Reply::Children(children) => Ok(children),
            _ => unreachable!("a list is answered with names"),
        }
    }

    pub(crate) fn data(&self, path: &str) -> Step<(Vec<u8>, Stat)> {
        let path = path.to_owned();
        self.read(Request::GetData { path, watch: false }, None)
    }

    /// As [`Contact::data`], at least as new as all that was committed before this was asked: the
    /// server catches up with its leader first, in the same write.
    pub(crate) fn newest_data(&self, path: &str) -> Step<(Vec<u8>, Stat)> {
        let path = path.to_owned();
        let sync = Request::Sync { path: path.clone() };
        let read = Request::GetData { path, watch: false };
        let mut answers = self.send(vec![sync, read])?;
        let read = answers.pop().expect("one for each request");
        self.judge(answers.pop().expect("one for each request"))?;
        self.judge(read).map(seen)
    }

    /// As [`Contact::data`] of the path that `watch` is on, which is left there.
    pub(crate) fn watch_data(&self, watch: &Watch) -> Step<(Vec<u8>, Stat)> {
        let path = watch.path().to_owned();
        self.read(Request::GetData { path, watch: true }, Some(watch))
    }

    fn read(&self, request: Request, watch: Option<&Watch>) -> Step<(Vec<u8>, Stat)> {
        self.call_and_arm(request, watch).map(seen)
    }

    pub(crate) fn stat(&self, path: &str) -> Step<Option<Stat>> {
        let answer = self.answer_to(exists(path, false))?;
        self.judge_stat(answer, None)
    }

    /// As [`Contact::stat`] of the path that `watch` is on, which is left there also if there is
    /// no node.
    #[cfg(all(test, shuttle))]
    pub(crate) fn watch_stat(&self, watch: &Watch) -> Step<Option<Stat>> {
        let answer = self.answer_to(exists(watch.path(), true))?;
        self.judge_stat(answer, Some(watch))
    }

    /// As [`Contact::stat`] of each, so many in one write as leave room for others.
    pub(crate) fn stats(&self, paths: &[String]) -> Step<Vec<Option<Stat>>> {
        let mut stats = Vec::with_capacity(paths.len());
        for some in paths.chunks(READS_AT_ONCE) {
            let requests = some.iter().map(|path| exists(path, false)).collect();
            for answer in self.send(requests)? {
                stats.push(self.judge_stat(answer, None)?);
            }
        }
        Ok(stats)
    }

    /// As [`Contact::watch_data`] of each, so many in one write as leave room for others.
    pub(crate) fn watch_data_of(&self, watches: &[Watch]) -> Step<Vec<Step<Seen>>> {
        let mut data = Vec::with_capacity(watches.len());
        for some in watches.chunks(READS_AT_ONCE) {
            let requests = some.iter().map(|watch| Request::GetData {
                path: watch.path().to_owned(),
                watch: true,
            });
            let answers = self.send(requests.collect())?;
            for (watch, answer) in some.iter().zip(answers) {
                let judged = self.judge_and_arm(answer, Some(watch));
                data.push(judged.map(seen));
            }
        }
        Ok(data)
    }

    /// The stat of the node that `node` is on, which is left there also if there is none, and then
    /// as [`Contact::watch_children`] of `folder`; in one write.
    pub(crate) fn watch_stat_and_children(
        &self,
        node: &Watch,
        folder: &Watch,
    ) -> Step<(Option<Stat>, Step<Children>)> {
        let requests = vec![exists(node.path(), true), list(folder.path(), true)];
        let mut answers = self.send(requests)?;
        let listed = answers.pop().expect("one for each request");
        let seen = answers.pop().expect("one for each request");
        let listed = self
            .judge_and_arm(listed, Some(folder))
            .map(|reply| match reply {
                Reply::Children(children) => children,
                _ => unreachable!("a list is answered with names"),
            });
        Ok((self.judge_stat(seen, Some(node))?, listed))
    }

    /// Replaces the data; with a version, only if it has it still.
    pub(crate) fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Step<Stat> {
        let request = Request::SetData {
            path: path.to_owned(),
            data: Some(data.to_vec()),
            version: version.unwrap_or(ANY_VERSION),
        };
        match self.call(request)? {
            Reply::Stat(stat) => Ok(stat),
            _ => unreachable!("a stat is answered with a stat"),
        }
    }

    /// Our node at `path` *stands*, and the session lives by what is proven, until what is
    /// returned is dropped. `None`: the node is gone, or the proof came too late; look again.
    ///
    /// The proof is there, if the last write was not long ago. What is only assumed, as while
    /// nothing of ours stood, is proved by one write more. A server that refuses that write has not
    /// said that the node is gone, and to look again would only show the node again.
    pub(crate) fn stands(&self, path: &str) -> Step<Option<NodeStands>> {
        let epoch = self.epoch();
        let stands = epoch.node_stands(path, epoch.lease().now());
        if stands.is_some() {
            return Ok(stands);
        }
        // A write that changes and wakes nothing.
        let check = Request::Check {
            path: path.to_owned(),
            version: ANY_VERSION,
        };
        let proof = match self.change_all(vec![check]) {
            // We may not read our own node. An empty one is committed like any other.
            Ok(Changes::Refused {
                refusal: Refusal::NoAuth,
                ..
            })
            | Err(CallError::Refused(Refusal::NoAuth)) => self.change_all(Vec::new()),
            proof => proof,
        };
        match proof? {
            Changes::Made(_) => Ok(epoch.node_stands(path, epoch.lease().now())),
            Changes::Refused {
                refusal: Refusal::NoNode,
                ..
            } => Ok(None),
            Changes::Refused { refusal, .. } => {
                say!(
                    self.session,
                    Debug,
                    "{path}: its session is not proved to be alive: {refusal}"
                );
                Err(CallError::Refused(refusal))
            }
        }
    }

    /// Keeps it proven that the session stands, for a node at `path` that somebody may come to
    /// hold by without another request.
    pub(crate) fn seek_proof(&self, path: &str) -> SeekProof {
        self.epoch().seek_proof(path)
    }

    pub(crate) fn call(&self, request: Request) -> Step<Reply> {
        self.call_and_arm(request, None)
    }

    fn call_and_arm(&self, request: Request, watch: Option<&Watch>) -> Step<Reply> {
        let answer = self.answer_to(request)?;
        self.judge_and_arm(answer, watch)
    }

    pub(super) fn judge_and_arm(&self, answer: Answer, watch: Option<&Watch>) -> Step<Reply> {
        let after = answer.events_before;
        let reply = self.judge(answer)?;
        if let Some(watch) = watch {
            watch.armed(after);
        }
        Ok(reply)
    }

    /// As [`judge_and_arm`](Self::judge_and_arm) of a look for a stat, which leaves its watch also
    /// where there is no node.
    fn judge_stat(&self, answer: Answer, watch: Option<&Watch>) -> Step<Option<Stat>> {
        let after = answer.events_before;
        let is_missing = matches!(
            answer.result,
            Err(NoReply::Refused {
                error: ErrorCode::NO_NODE,
                ..
            })
        );
        let stat = match is_missing {
            true if self.epoch().lease().is_alive() => None,
            true => return Err(CallError::Unknown),
            false => match self.judge(answer)? {
                Reply::Stat(stat) => Some(stat),
                _ => unreachable!("a stat is answered with a stat"),
            },
        };
        if let Some(watch) = watch {
            watch.armed(after);
        }
        Ok(stat)
    }

    /// What an answer is worth: nothing, once the lease has run out.
    pub(super) fn judge(&self, answer: Answer) -> Step<Reply> {
        let meaning = match answer.result {
            Ok(_) if !self.epoch().lease().is_alive() => return Err(CallError::Unknown),
            Ok(Reply::Parts(parts)) => {
                let refused = Part::refused(&parts).map(|(_, error)| Meaning::of_step(error));
                match refused {
                    // Which of its steps it was is for the caller to see.
                    None | Some(Meaning::Refused(_)) => return Ok(Reply::Parts(parts)),
                    Some(meaning) => meaning,
                }
            }
            Ok(reply) => return Ok(reply),
            Err(no) => Meaning::of(&no),
        };
        Err(match meaning {
            Meaning::Refused(refusal) => CallError::Refused(refusal),
            Meaning::NotNow(why) => {
                self.session.observation().put_off();
                CallError::NotNow(why)
            }
            Meaning::Lost(lost) if lost.is_poison() => {
                CallError::Left(Error::refused(self.poison(lost)))
            }
            Meaning::Lost(_) => CallError::Unknown,
        })
    }

    fn poison(&self, lost: Lost) -> String {
        let Lost { bytes, breaks, .. } = lost;
        let target = self.session.target();
        format!(
            "{target}: {breaks} connections in a row broke at a request of {bytes} bytes, and \
             none answered it; is it over the servers' jute.maxbuffer, or too long for the network?"
        )
    }

    fn answer_to(&self, request: Request) -> Step<Answer> {
        let batching = match request {
            Request::GetChildren { watch: false, .. } => Batching::Allowed,
            _ => Batching::Never,
        };
        let mut answers = self.send_in(batching, vec![request])?;
        Ok(answers.pop().expect("one for each request"))
    }

    /// Sends requests together, and waits for all answers.
    fn send(&self, requests: Vec<Request>) -> Step<Vec<Answer>> {
        self.send_in(Batching::Never, requests)
    }

    pub(super) fn send_in(
        &self,
        batching: Batching,
        mut requests: Vec<Request>,
    ) -> Step<Vec<Answer>> {
        OwnCall::settle(self.session, &self.connection, &mut requests);
        self.send_settled(batching, requests)
    }

    /// Sends requests as they are.
    fn send_settled(&self, batching: Batching, requests: Vec<Request>) -> Step<Vec<Answer>> {
        let fresh;
        let signal = match self.voice {
            Voice::Waiter(waiter) => {
                waiter.bound().check().map_err(CallError::Left)?;
                waiter.signal()
            }
            _ => {
                fresh = Arc::new(Signal::new());
                &fresh
            }
        };
        let call =
            OwnCall::submit_settled(self.session, &self.connection, requests, batching, signal)?;
        let mut others = Wakes::default();
        let result = loop {
            if let Some(answers) = call.take() {
                call.bury_poison(&answers);
                break Ok(answers);
            }
            match self.doze(signal) {
                Ok(wakes) => others = others.and(wakes.without(Wakes::DONE)),
                Err(error) => match call.leave() {
                    Ok(()) => break Err(CallError::Left(error)),
                    // The answer was faster; take it.
                    Err(answers) => break Ok(answers),
                },
            }
        };
        // What woke us and is not about this call is still to be looked at.
        if !others.is_empty() {
            signal.raise(others);
        }
        result
    }

    fn doze(&self, signal: &Signal) -> Result<Wakes, Error> {
        match self.voice {
            Voice::Waiter(waiter) => waiter.sleep(None),
            _ => Ok(signal.wait(None)),
        }
    }
}

fn creates<'a>(
    folder: &'a str,
    names: &'a [String],
    data: &'a [u8],
    mode: CreateMode,
) -> impl Iterator<Item = Request> + 'a {
    let path = move |name| format!("{folder}/{name}");
    names
        .iter()
        .map(move |name| new_node(path(name), data, mode))
}

pub(super) fn exists(path: &str, watch: bool) -> Request {
    let path = path.to_owned();
    Request::Exists { path, watch }
}

pub(super) fn list(path: &str, watch: bool) -> Request {
    let path = path.to_owned();
    Request::GetChildren { path, watch }
}

fn created(reply: Reply) -> Created {
    Created::of(reply).unwrap_or_else(|| unreachable!("a create is answered with a path"))
}

fn seen(reply: Reply) -> Seen {
    match reply {
        Reply::Data { data, stat } => (data.unwrap_or_default(), stat),
        _ => unreachable!("data is answered with data"),
    }
}

impl Watch {
    /// To be made *before* the read that leaves the watch, so that an event that overtakes the
    /// answer finds it. One that takes the place of another is made before that one is dropped: as
    /// long as somebody is interested, a watch is not taken off the server.
    pub(crate) fn new(
        contact: &Contact<'_>,
        path: &str,
        kind: WatchKind,
        wake: Option<Wake>,
    ) -> Self {
        Self::on(contact.session(), contact.number(), path, kind, wake)
    }

    /// Whether its silence says that nothing has changed since its read was answered on `contact`.
    pub(crate) fn is_sure(&self, contact: &Contact<'_>) -> bool {
        self.is_sure_on(contact.number())
    }
}

impl Session {
    /// The connection that is open now, for requests that wait as long as it is.
    pub(crate) fn contact(self: &Arc<Self>) -> Step<Contact<'_>> {
        let connection = self.open_connection().map_err(CallError::NotSent)?;
        Ok(Contact::patient(self, connection))
    }
}

/// The answer to a call that may find nothing.
pub(crate) fn found<T>(step: Step<T>) -> Step<Option<T>> {
    match step {
        Ok(found) => Ok(Some(found)),
        Err(CallError::Refused(Refusal::NoNode)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The answer to a deletion of what may be gone already: whether it was there.
pub(crate) fn gone(step: Step<()>) -> Step<bool> {
    Ok(found(step)?.is_some())
}

impl NoContact {
    pub(super) fn check(closed: bool) -> Self {
        if closed {
            Self::Closed
        } else {
            Self::Disconnected
        }
    }
}
