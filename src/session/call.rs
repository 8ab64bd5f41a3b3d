//! Calls: begun and ended inside one epoch, on the caller's own thread or on a worker.

use std::sync::Arc;

use super::keeper::{KeeperError, NodeMode, Reply, Request, WatchKind};
use super::orphans::{Orphan, Proof};
use super::standing::{Contact, NoContact};
use super::{Session, sync};
use crate::error::Error;
use crate::sync::Mutex;
use crate::wait::signal::{Signal, Wakes};

/// Why a call has no reply.
#[derive(Debug)]
pub(crate) enum CallError {
    /// It was never sent.
    NotSent(NoContact),
    /// The connection or the epoch in which it began ended before it was answered: it may have
    /// been done, in that epoch and in no other, or not.
    Unknown(Contact),
    /// ZooKeeper refused it.
    Refused(KeeperError),
    /// The caller left, at its deadline or because it was cancelled; see [`Session::clean_up`].
    Left(Error),
}

/// What a piece of work that makes calls came to.
pub(crate) type Step<T> = Result<T, CallError>;

impl Session {
    /// Makes a call on this thread. It takes [`Session::longest_call`] at the most.
    pub(crate) fn call(self: &Arc<Self>, request: &Request) -> Result<(Reply, Contact), CallError> {
        let contact = self
            .state
            .lock()
            .standing
            .begin(sync::now())
            .map_err(CallError::NotSent)?;
        // Answered on unwinding too: a count that never falls would keep the next connection shut.
        let in_flight = InFlight(self);
        let answer = request.run(self.keeper());
        drop(in_flight);
        match answer {
            // The lease may have run out while the reply was on its way; then what it says is no
            // longer to be relied on.
            Ok(reply) if contact.epoch.lease().alive(sync::now()) => Ok((reply, contact)),
            Ok(_) | Err(KeeperError::ConnectionLoss) => Err(CallError::Unknown(contact)),
            Err(error) => Err(CallError::Refused(error)),
        }
    }

    /// Makes a call on a worker thread, and leaves it there when `give_up` says so of a wake-up.
    /// What wakes `signal` meanwhile and is not about this call is raised again at the end.
    pub(super) fn call_aside(
        self: &Arc<Self>,
        request: Request,
        signal: &Arc<Signal>,
        mut wait: impl FnMut() -> Result<Wakes, Error>,
    ) -> Result<(Reply, Contact), CallError> {
        let aside = Arc::new(Aside {
            outcome: Mutex::new(Outcome::Pending),
            caller: Arc::clone(signal),
        });
        let job = {
            let (aside, session) = (Arc::clone(&aside), Arc::clone(self));
            Box::new(move || aside.run(&session, &request))
        };
        self.workers.submit(job);

        let mut others = Wakes::default();
        let result = loop {
            match wait() {
                Ok(wakes) => others = others.and(wakes.without(Wakes::DONE)),
                Err(error) => match aside.leave() {
                    Ok(()) => break Err(CallError::Left(error)),
                    // The answer was faster; take it.
                    Err(result) => break result,
                },
            }
            if let Some(result) = aside.take() {
                break result;
            }
            if self.is_closed() {
                // The pool drops what it had not begun.
                if aside.leave().is_ok() {
                    break Err(CallError::NotSent(NoContact::Closed));
                }
            }
        };
        if !others.is_empty() {
            signal.raise(others);
        }
        result
    }

    fn is_closed(&self) -> bool {
        matches!(self.state.lock().standing.contact(), Err(NoContact::Closed))
    }

    /// A call has ended after its caller had left: removes what it may have made.
    fn clean_up(self: &Arc<Self>, request: &Request, result: Result<(Reply, Contact), CallError>) {
        match (request, result) {
            (
                Request::Create {
                    path,
                    data,
                    mode: NodeMode::Ephemeral,
                },
                Ok((_, contact)) | Err(CallError::Unknown(contact)),
            ) => {
                let (path, proof) = (path.clone(), Proof::Data(Arc::clone(data)));
                self.reap(Orphan::Plain { path, proof }, &contact.epoch);
            }
            (
                Request::Create {
                    mode: NodeMode::EphemeralSequential,
                    ..
                },
                Ok((Reply::Path(path), contact)),
            ) => self.reap(Orphan::Node { path }, &contact.epoch),
            (
                Request::Create {
                    path,
                    mode: NodeMode::EphemeralSequential,
                    ..
                },
                Err(CallError::Unknown(contact)),
            ) => self.reap(Orphan::created(path), &contact.epoch),
            (
                Request::Data { path, watch: true } | Request::Stat { path, watch: true },
                Ok((_, contact)),
            ) => self.reap(
                Orphan::Watch {
                    path: path.clone(),
                    kind: WatchKind::Data,
                },
                &contact.epoch,
            ),
            (Request::Children { path, watch: true }, Ok((_, contact))) => self.reap(
                Orphan::Watch {
                    path: path.clone(),
                    kind: WatchKind::Children,
                },
                &contact.epoch,
            ),
            _ => {}
        }
    }
}

struct InFlight<'a>(&'a Arc<Session>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        let opened = state.standing.answered();
        self.0.open(state, opened);
    }
}

/// A call on a worker, and the caller who waits for it. It ends by exactly one transition:
/// answered, or left.
struct Aside {
    outcome: Mutex<Outcome>,
    caller: Arc<Signal>,
}

enum Outcome {
    Pending,
    Answered(Result<(Reply, Contact), CallError>),
    Left,
}

impl Aside {
    fn run(&self, session: &Arc<Session>, request: &Request) {
        if matches!(*self.outcome.lock(), Outcome::Left) {
            return;
        }
        let result = session.call(request);
        let mut outcome = self.outcome.lock();
        if matches!(*outcome, Outcome::Left) {
            drop(outcome);
            session.clean_up(request, result);
        } else {
            *outcome = Outcome::Answered(result);
            drop(outcome);
            self.caller.raise(Wakes::DONE);
        }
    }

    fn take(&self) -> Option<Result<(Reply, Contact), CallError>> {
        let mut outcome = self.outcome.lock();
        match std::mem::replace(&mut *outcome, Outcome::Pending) {
            Outcome::Answered(result) => {
                *outcome = Outcome::Left;
                Some(result)
            }
            other => {
                *outcome = other;
                None
            }
        }
    }

    fn leave(&self) -> Result<(), Result<(Reply, Contact), CallError>> {
        match std::mem::replace(&mut *self.outcome.lock(), Outcome::Left) {
            Outcome::Answered(result) => Err(result),
            Outcome::Pending | Outcome::Left => Ok(()),
        }
    }
}
