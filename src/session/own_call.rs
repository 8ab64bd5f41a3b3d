//! Requests of our own that are under way, and the caller who waits for them.

use std::sync::{Arc, Weak};

use zklock_protocol::CreateMode;

use super::Session;
use super::backend::{Answer, Change, Changed, Company, Created, NoReply, Reply, Request, Slot};
use super::call_error::{CallError, Step};
use super::orphan::{Orphan, Proof};
use super::phase::{Connection, NoContact};
use crate::sync::Mutex;
use crate::wait::signal::{Signal, Wakes};

/// Ends by exactly one transition: answered, or left. What is answered after its caller has left
/// is cleaned up, or judged by what the caller has left for it.
pub(super) struct OwnCall {
    session: Weak<Session>,
    connection: Connection,
    requests: Vec<Request>,
    outcome: Mutex<Outcome>,
    caller: Arc<Signal>,
}

enum Outcome {
    Pending,
    Answered(Vec<Answer>),
    Left,
    LeftTo(Late),
}

/// Takes the answers that come after the caller has left.
type Late = Box<dyn FnOnce(Vec<Answer>) + Send>;

impl OwnCall {
    pub(super) fn submit(
        session: &Arc<Session>,
        connection: &Connection,
        requests: Vec<Request>,
        company: Company,
        caller: &Arc<Signal>,
    ) -> Step<Arc<Self>> {
        session.refuse_child().map_err(CallError::Left)?;
        let call = Arc::new(Self {
            session: Arc::downgrade(session),
            connection: connection.clone(),
            requests,
            outcome: Mutex::new(Outcome::Pending),
            caller: Arc::clone(caller),
        });
        let slot: Arc<dyn Slot> = call.clone();
        let backend = session.backend();
        match backend.submit(connection.number, &call.requests, company, slot) {
            Ok(()) => Ok(call),
            Err(_) => Err(CallError::NotSent(NoContact::check(session.is_closed()))),
        }
    }

    /// The answers, if they have come.
    pub(super) fn take(&self) -> Option<Vec<Answer>> {
        let mut outcome = self.outcome.lock();
        match std::mem::replace(&mut *outcome, Outcome::Left) {
            Outcome::Answered(answers) => Some(answers),
            other => {
                *outcome = other;
                None
            }
        }
    }

    /// Leaves, unless the answers have come.
    pub(super) fn leave(&self) -> Result<(), Vec<Answer>> {
        match std::mem::replace(&mut *self.outcome.lock(), Outcome::Left) {
            Outcome::Answered(answers) => Err(answers),
            Outcome::Pending | Outcome::Left | Outcome::LeftTo(_) => Ok(()),
        }
    }

    /// Leaves to `late` what comes, or what has come.
    pub(super) fn leave_to(&self, late: Late) {
        let mut outcome = self.outcome.lock();
        match std::mem::replace(&mut *outcome, Outcome::Left) {
            Outcome::Answered(answers) => {
                drop(outcome);
                late(answers);
            }
            Outcome::Pending | Outcome::Left | Outcome::LeftTo(_) => {
                *outcome = Outcome::LeftTo(late);
            }
        }
    }

    /// Nobody repeats a request that breaks connections, nor looks for what it may have made.
    pub(super) fn bury_poison(&self, answers: &[Answer]) {
        for (request, answer) in self.requests.iter().zip(answers) {
            if let (Err(NoReply::Poison { .. }), Some(session)) =
                (&answer.result, self.session.upgrade())
            {
                self.clean_up(&session, request, Answer::lost());
            }
        }
    }

    /// Removes what a request may have made whose caller had left.
    fn clean_up(&self, session: &Arc<Session>, request: &Request, answer: Answer) {
        let epoch = &self.connection.epoch;
        if let (Some((path, kind)), Ok(_)) = (request.watch(), &answer.result) {
            let number = self.connection.number;
            session.watch_left(path, kind, number, answer.events_before);
        }
        for orphan in left_by(request, answer.result) {
            session.reap(orphan, epoch);
        }
    }
}

/// The nodes of a session that a request has made, or may have.
fn left_by(request: &Request, result: Result<Reply, NoReply>) -> Vec<Orphan> {
    let result = match result {
        Err(NoReply::Refused(_)) | Ok(Reply::Aborted { .. }) => return Vec::new(),
        Err(NoReply::NotNow(why)) if !why.may_be_done() => return Vec::new(),
        Err(NoReply::NotNow(_) | NoReply::Lost | NoReply::Poison { .. }) => None,
        Ok(reply) => Some(reply),
    };
    match request {
        Request::Create { path, data, mode } => {
            let made = match result {
                Some(Reply::Created(created)) => Some(created),
                _ => None,
            };
            left_by_create(path, data, *mode, made)
                .into_iter()
                .collect()
        }
        Request::Multi(changes) => {
            let made = match result {
                Some(Reply::Multi(changed)) => changed.into_iter().map(Changed::created).collect(),
                _ => vec![None; changes.len()],
            };
            let each = changes.iter().zip(made);
            each.filter_map(|(change, made)| match change {
                Change::Create { path, data, mode } => left_by_create(path, data, *mode, made),
                _ => None,
            })
            .collect()
        }
        _ => Vec::new(),
    }
}

/// `made`: if it is known to have been made.
fn left_by_create(
    path: &str,
    data: &Arc<[u8]>,
    mode: CreateMode,
    made: Option<Created>,
) -> Option<Orphan> {
    match (mode, made) {
        (CreateMode::EPHEMERAL, _) => Some(Orphan::Plain {
            path: path.to_owned(),
            proof: Proof::Data(Arc::clone(data)),
        }),
        (CreateMode::EPHEMERAL_SEQUENTIAL, Some(Created { path, .. })) => {
            Some(Orphan::Node { path })
        }
        (CreateMode::EPHEMERAL_SEQUENTIAL, None) => Some(Orphan::created(path)),
        // Of no session.
        _ => None,
    }
}

impl Slot for OwnCall {
    fn answered(&self, answers: Vec<Answer>) {
        let mut outcome = self.outcome.lock();
        match std::mem::replace(&mut *outcome, Outcome::Left) {
            Outcome::LeftTo(late) => {
                drop(outcome);
                late(answers);
                return;
            }
            Outcome::Pending => {
                *outcome = Outcome::Answered(answers);
                drop(outcome);
                self.caller.raise(Wakes::DONE);
                return;
            }
            Outcome::Left | Outcome::Answered(_) => drop(outcome),
        }
        let Some(session) = self.session.upgrade() else {
            return;
        };
        for (request, answer) in self.requests.iter().zip(answers) {
            self.clean_up(&session, request, answer);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::session::backend::Refusal;

    fn create(path: &str, mode: CreateMode) -> Change {
        Change::Create {
            path: path.to_owned(),
            data: Arc::from([]),
            mode,
        }
    }

    fn made(path: &str) -> Changed {
        Changed::Created(Created {
            path: path.to_owned(),
            czxid: None,
        })
    }

    /// A folder stays, and so does what was there before.
    #[test]
    fn of_several_changes_the_nodes_of_the_session_are_left_behind() {
        let delete = Change::Delete {
            path: "/a/gone".to_owned(),
            version: None,
        };
        let request = Request::Multi(vec![
            create("/a/_c_1-", CreateMode::EPHEMERAL_SEQUENTIAL),
            delete,
            create("/folder", CreateMode::PERSISTENT),
            create("/b/_c_2-", CreateMode::EPHEMERAL_SEQUENTIAL),
        ]);
        let done = Reply::Multi(vec![
            made("/a/_c_1-0000000003"),
            Changed::Done,
            made("/folder"),
            made("/b/_c_2-0000000000"),
        ]);
        let known = ["/a/_c_1-0000000003", "/b/_c_2-0000000000"];
        let known = known.map(|path| Orphan::Node {
            path: path.to_owned(),
        });
        assert_eq!(left_by(&request, Ok(done)), known);
        let sought = ["/a/_c_1-", "/b/_c_2-"].map(Orphan::created);
        assert_eq!(left_by(&request, Err(NoReply::Lost)), sought);
        let refused = Reply::Aborted {
            index: 1,
            refusal: Refusal::NoNode,
        };
        assert_eq!(left_by(&request, Ok(refused)), []);
        let refused = NoReply::Refused(Refusal::NoAuth);
        assert_eq!(left_by(&request, Err(refused)), []);
    }
}
