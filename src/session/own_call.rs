//! Requests of our own that are under way, and the caller who waits for them.

use std::sync::{Arc, Weak};

use zklock_protocol::{Create, CreateMode, Part, Reply, Request};

use super::Session;
use super::backend::{Answer, Batching, Completion, Created, NoReply, NotSent};
use super::call_error::{CallError, Step};
use super::orphan::{Orphan, Proof};
use super::phase::{Connection, NoContact};
use super::refusal::Meaning;
use super::watches::left_by_read;
use crate::sync::Mutex;
use crate::wait::signal::{Signal, Wakes};

/// Ends by exactly one transition: answered, or left. What is answered after its caller has left
/// is cleaned up, or judged by what the caller has left for it.
pub(super) struct OwnCall {
    session: Weak<Session>,
    connection: Connection,
    /// As they were sent.
    requests: Vec<Request>,
    outcome: Mutex<CallState>,
    caller: Arc<Signal>,
}

enum CallState {
    Pending,
    Answered(Vec<Answer>),
    Left,
    LeftTo(Late),
}

/// Takes the answers that come after the caller has left.
type Late = Box<dyn FnOnce(Vec<Answer>) + Send>;

impl OwnCall {
    /// Sends requests of the session's.
    pub(super) fn submit(
        session: &Arc<Session>,
        connection: &Connection,
        mut requests: Vec<Request>,
        batching: Batching,
        caller: &Arc<Signal>,
    ) -> Step<Arc<Self>> {
        Self::settle(session, connection, &mut requests);
        Self::submit_settled(session, connection, requests, batching, caller)
    }

    /// Makes requests of the session's such that they can be sent on this connection.
    pub(super) fn settle(session: &Session, connection: &Connection, requests: &mut [Request]) {
        for request in requests {
            let is_harmless = || session.backend().is_harmless(connection.number);
            let site = session.site();
            site.settle(request, &connection.epoch, is_harmless);
        }
    }

    /// As [`submit`](Self::submit), of what can be sent as it is.
    pub(super) fn submit_settled(
        session: &Arc<Session>,
        connection: &Connection,
        requests: Vec<Request>,
        batching: Batching,
        caller: &Arc<Signal>,
    ) -> Step<Arc<Self>> {
        session.refuse_child().map_err(CallError::Left)?;
        let call = Arc::new(Self {
            session: Arc::downgrade(session),
            connection: connection.clone(),
            requests,
            outcome: Mutex::new(CallState::Pending),
            caller: Arc::clone(caller),
        });
        let completion: Arc<dyn Completion> = call.clone();
        let backend = session.backend();
        match backend.submit(connection.number, &call.requests, batching, completion) {
            Ok(()) => Ok(call),
            Err(NotSent::NotOpen) => Err(CallError::NotSent(NoContact::check(session.is_closed()))),
            Err(why) => {
                let answer = Answer::from(NoReply::NotSent(why));
                call.completed(vec![answer; call.requests.len()]);
                Ok(call)
            }
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The answers, if they have come.
    pub(super) fn take(&self) -> Option<Vec<Answer>> {
        let mut outcome = self.outcome.lock();
        match std::mem::replace(&mut *outcome, CallState::Left) {
            CallState::Answered(answers) => Some(answers),
            other => {
                *outcome = other;
                None
            }
        }
    }

    /// Leaves, unless the answers have come.
    pub(super) fn leave(&self) -> Result<(), Vec<Answer>> {
        match std::mem::replace(&mut *self.outcome.lock(), CallState::Left) {
            CallState::Answered(answers) => Err(answers),
            CallState::Pending | CallState::Left | CallState::LeftTo(_) => Ok(()),
        }
    }

    /// Leaves to `late` what comes, or what has come.
    pub(super) fn leave_to(&self, late: Late) {
        let mut outcome = self.outcome.lock();
        match std::mem::replace(&mut *outcome, CallState::Left) {
            CallState::Answered(answers) => {
                drop(outcome);
                late(answers);
            }
            CallState::Pending | CallState::Left | CallState::LeftTo(_) => {
                *outcome = CallState::LeftTo(late);
            }
        }
    }

    /// Nobody repeats a request that breaks connections, nor looks for what it may have made.
    pub(super) fn bury_poison(&self, answers: &[Answer]) {
        for (request, answer) in self.requests.iter().zip(answers) {
            if let (Err(NoReply::Lost(lost)), Some(session)) =
                (&answer.result, self.session.upgrade())
                && lost.is_poison()
            {
                self.clean_up(&session, request, Answer::lost());
            }
        }
    }

    /// Removes what a request may have made whose caller had left.
    fn clean_up(&self, session: &Arc<Session>, request: &Request, answer: Answer) {
        let epoch = &self.connection.epoch;
        let mut request = request.clone();
        session.site().unsettle(&mut request);
        if let Some((path, kind)) = left_by_read(&request, &answer.result) {
            let number = self.connection.number;
            session.watch_left(path, kind, number, answer.events_before);
        }
        for orphan in left_by(&request, answer.result) {
            session.reap(orphan, epoch);
        }
    }
}

/// The nodes of a session that a request has made, or may have.
fn left_by(request: &Request, result: Result<Reply, NoReply>) -> Vec<Orphan> {
    let no = match &result {
        Ok(Reply::Parts(parts)) => Part::refused(parts).map(|(_, error)| Meaning::of_step(error)),
        Ok(_) => None,
        Err(no) => Some(Meaning::of(no)),
    };
    let reply = match no {
        Some(no) if !no.may_be_done() => return Vec::new(),
        Some(_) => None,
        None => result.ok(),
    };
    match (request, reply) {
        (Request::Create(create), reply) => {
            let made = reply.and_then(Created::of);
            left_by_create(create, made).into_iter().collect()
        }
        (Request::Multi(steps), reply) => {
            let mut made = match reply {
                Some(Reply::Parts(parts)) => parts,
                _ => Vec::new(),
            }
            .into_iter();
            let each = steps.iter().map(|step| (step, made.next()));
            let each = each.filter_map(|(step, made)| match (step, made) {
                (Request::Create(create), Some(Part::Done(_, reply))) => {
                    left_by_create(create, Created::of(reply))
                }
                (Request::Create(create), _) => left_by_create(create, None),
                _ => None,
            });
            each.collect()
        }
        _ => Vec::new(),
    }
}

/// `made`: if it is known to have been made.
fn left_by_create(create: &Create, made: Option<Created>) -> Option<Orphan> {
    let path = &create.path;
    match (create.mode, made) {
        (CreateMode::EPHEMERAL, _) => Some(Orphan::Plain {
            path: path.clone(),
            proof: Proof::Data(create.data.as_deref().unwrap_or_default().into()),
        }),
        (CreateMode::EPHEMERAL_SEQUENTIAL, Some(Created { path, .. })) => {
            Some(Orphan::Node { path })
        }
        (CreateMode::EPHEMERAL_SEQUENTIAL, None) => Some(Orphan::created(path)),
        // Of no session.
        _ => None,
    }
}

impl Completion for OwnCall {
    fn completed(&self, mut answers: Vec<Answer>) {
        let session = self.session.upgrade();
        if let Some(session) = &session {
            for (request, answer) in self.requests.iter().zip(&mut answers) {
                let Connection { number, epoch, .. } = &self.connection;
                session.site().understand(request, answer, *number, epoch);
            }
        }
        let mut outcome = self.outcome.lock();
        match std::mem::replace(&mut *outcome, CallState::Left) {
            CallState::LeftTo(late) => {
                drop(outcome);
                late(answers);
                return;
            }
            CallState::Pending => {
                *outcome = CallState::Answered(answers);
                drop(outcome);
                self.caller.raise(Wakes::DONE);
                return;
            }
            CallState::Left | CallState::Answered(_) => drop(outcome),
        }
        let Some(session) = session else {
            return;
        };
        for (request, answer) in self.requests.iter().zip(answers) {
            self.clean_up(&session, request, answer);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use zklock_protocol::{ANY_VERSION, ErrorCode, opcode};

    use super::*;
    use crate::session::new_node;

    fn create(path: &str, mode: CreateMode) -> Request {
        new_node(path.to_owned(), &[], mode)
    }

    fn made(path: &str) -> Part {
        Part::Done(opcode::CREATE, Reply::Path(path.to_owned()))
    }

    /// A folder stays, and so does what was there before.
    #[test]
    fn of_several_changes_the_nodes_of_the_session_are_left_behind() {
        let delete = Request::Delete {
            path: "/a/gone".to_owned(),
            version: ANY_VERSION,
        };
        let request = Request::Multi(vec![
            create("/a/_c_1-", CreateMode::EPHEMERAL_SEQUENTIAL),
            delete,
            create("/folder", CreateMode::PERSISTENT),
            create("/b/_c_2-", CreateMode::EPHEMERAL_SEQUENTIAL),
        ]);
        let done = Reply::Parts(vec![
            made("/a/_c_1-0000000003"),
            Part::Done(opcode::DELETE, Reply::Nothing),
            made("/folder"),
            made("/b/_c_2-0000000000"),
        ]);
        let known = ["/a/_c_1-0000000003", "/b/_c_2-0000000000"];
        let known = known.map(|path| Orphan::Node {
            path: path.to_owned(),
        });
        assert_eq!(left_by(&request, Ok(done)), known);
        let sought = ["/a/_c_1-", "/b/_c_2-"].map(Orphan::created);
        assert_eq!(left_by(&request, Answer::lost().result), sought);
        let refused = [0, -101, -2, -2].map(|error| Part::Failed(ErrorCode(error)));
        let refused = Reply::Parts(refused.into());
        assert_eq!(left_by(&request, Ok(refused)), []);
        let no_right = NoReply::Refused {
            asked: opcode::MULTI,
            error: ErrorCode::NO_AUTH,
        };
        assert_eq!(left_by(&request, Err(no_right)), []);
    }
}
