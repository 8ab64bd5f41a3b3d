//! Deletes of nodes of ours that are on their way.

use std::sync::Arc;

use zklock_protocol::{ANY_VERSION, Request};

use super::Session;
use super::backend::{Answer, Batching};
use super::call_error::Step;
use super::contact::Contact;
use super::own_call::OwnCall;
use super::phase::Connection;
use crate::wait::signal::Signal;

/// Deletes that were sent in one write. Whoever sent them waits for the answers, or leaves them to
/// be judged when they come.
pub(crate) struct PendingDeletes {
    session: Arc<Session>,
    connection: Connection,
    call: Arc<OwnCall>,
    signal: Arc<Signal>,
}

impl Contact<'_> {
    /// Sends deletes of nodes of ours, and does not wait.
    pub(crate) fn begin_deletes(&self, paths: &[String]) -> Step<PendingDeletes> {
        let deletes = paths.iter().map(|path| Request::Delete {
            path: path.clone(),
            version: ANY_VERSION,
        });
        let deletes = deletes.collect();
        let signal = Arc::new(Signal::new());
        let session = Arc::clone(self.session());
        let connection = self.connection().clone();
        let call = OwnCall::submit(&session, &connection, deletes, Batching::Allowed, &signal)?;
        Ok(PendingDeletes {
            session,
            connection,
            call,
            signal,
        })
    }
}

impl PendingDeletes {
    /// The answers, one for each delete. Waits for no longer than the connection stands, which an
    /// answer that does not come ends.
    pub(crate) fn wait(self) -> Vec<Step<()>> {
        loop {
            if let Some(answers) = self.call.take() {
                return judge(&self.session, &self.connection, answers);
            }
            self.signal.wait(None);
        }
    }

    /// Has `end` called with the answers when they come: on the link's thread, or on this one if
    /// they have come. It may only signal, and ask for things to be done.
    pub(crate) fn leave_to(self, end: impl FnOnce(Vec<Step<()>>) + Send + 'static) {
        let Self {
            session,
            connection,
            call,
            ..
        } = self;
        call.leave_to(Box::new(move |answers| {
            end(judge(&session, &connection, answers));
        }));
    }
}

fn judge(session: &Arc<Session>, connection: &Connection, answers: Vec<Answer>) -> Vec<Step<()>> {
    let contact = Contact::patient(session, connection.clone());
    let each = answers.into_iter().map(|answer| contact.judge(answer));
    each.map(|deleted| deleted.map(drop)).collect()
}
