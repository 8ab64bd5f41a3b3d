//! A contact: one connection of one epoch, and the only thing that calls are made through.
//!
//! A call is not sent unless exactly that connection is open, and its answer counts only while the
//! epoch's lease lives. So two calls on one contact were about one session, and an old contact can
//! do no harm: a check in one session and a deletion in the next cannot be combined.

use std::sync::Arc;

use zklock_protocol::{Part, Reply, Request, WatchKind};

use super::Session;
use super::backend::{Answer, Batching};
use super::call_error::{CallError, Step};
use super::own_call::OwnCall;
use super::phase::{Connection, NoContact};
use super::refusal::Meaning;
use super::waiter::Waiter;
use super::watches::{Wake, Watch};
use crate::error::Error;
use crate::link::{Epoch, Lost};
use crate::wait::signal::{Signal, Wakes};

/// See the [module](self).
pub(crate) struct Contact<'a> {
    session: &'a Arc<Session>,
    connection: Connection,
    voice: Voice<'a>,
}

/// How calls are made.
enum Voice<'a> {
    /// As requests of our own, within the limits of a waiter.
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

    /// Wakes the thread that this contact was handed to.
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
        self.sleep_until(|| watches.iter().any(|watch| watch.state().has_fired()))
    }

    /// Sleeps until `watch` has fired, this connection is gone, or `until`.
    pub(crate) fn sleep_on(&self, watch: &Watch, until: Option<std::time::Instant>) -> Step<()> {
        while !watch.state().has_fired() && self.is_open() {
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

    // ---- calls; what can be asked is in [`verbs`](super::verbs) ----

    pub(crate) fn call(&self, request: Request) -> Step<Reply> {
        self.call_and_arm(request, None)
    }

    pub(super) fn call_and_arm(&self, request: Request, watch: Option<&Watch>) -> Step<Reply> {
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

    /// Judges an answer. Once the lease has run out it is worth nothing.
    pub(super) fn judge(&self, answer: Answer) -> Step<Reply> {
        match answer.result {
            Ok(_) if !self.epoch().is_alive() => Err(CallError::Unknown),
            Ok(Reply::Parts(parts)) => self.judge_parts(parts),
            Ok(reply) => Ok(reply),
            Err(no) => Err(self.error(Meaning::of(&no))),
        }
    }

    fn judge_parts(&self, parts: Vec<Part>) -> Step<Reply> {
        match Part::refused(&parts).map(|(_, error)| Meaning::of_step(error)) {
            // Which of its steps it was is for the caller to see.
            None | Some(Meaning::Refused(_)) => Ok(Reply::Parts(parts)),
            Some(meaning) => Err(self.error(meaning)),
        }
    }

    fn error(&self, meaning: Meaning) -> CallError {
        match meaning {
            Meaning::Refused(refusal) => CallError::Refused(refusal),
            Meaning::NotNow(why) => {
                self.session.observation().put_off();
                CallError::NotNow(why)
            }
            Meaning::Lost(lost) if lost.is_poison() => {
                CallError::Left(Error::refused(self.poison(lost)))
            }
            Meaning::Lost(_) => CallError::Unknown,
        }
    }

    pub(super) fn poison(&self, lost: Lost) -> String {
        let Lost { bytes, breaks, .. } = lost;
        let target = self.session.target();
        format!(
            "{target}: {breaks} connections in a row broke at a request of {bytes} bytes, and \
             none answered it; is it over the servers' jute.maxbuffer, or too long for the network?"
        )
    }

    pub(super) fn answer_to(&self, request: Request) -> Step<Answer> {
        let batching = match request {
            Request::GetChildren { watch: false, .. } => Batching::Allowed,
            _ => Batching::Never,
        };
        let mut answers = self.send_in(batching, vec![request])?;
        Ok(answers.pop().expect("one for each request"))
    }

    /// Sends requests together, and waits for all answers.
    pub(super) fn send(&self, requests: Vec<Request>) -> Step<Vec<Answer>> {
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
    pub(super) fn send_settled(
        &self,
        batching: Batching,
        requests: Vec<Request>,
    ) -> Step<Vec<Answer>> {
        let fresh;
        let signal = match self.voice {
            Voice::Waiter(waiter) => {
                waiter.limits().check().map_err(CallError::Left)?;
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

impl NoContact {
    pub(super) fn check(closed: bool) -> Self {
        if closed {
            Self::Closed
        } else {
            Self::Disconnected
        }
    }
}
