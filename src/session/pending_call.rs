//! [`PendingCall`]: requests of our own that were sent, and whose answers somebody waits for, or leaves
//! to be judged when they come.

use std::sync::Arc;

use zklock_protocol::{ANY_VERSION, Reply, Request};

use super::Session;
use super::backend::{Answer, Batching};
use super::call_error::Step;
use super::contact::Contact;
use super::own_call::OwnCall;
use crate::wait::signal::Signal;

/// See the [module](self). They were sent in one write.
pub(crate) struct PendingCall {
    session: Arc<Session>,
    call: Arc<OwnCall>,
    signal: Arc<Signal>,
}

impl Contact<'_> {
    /// Sends deletes of nodes of ours, and does not wait.
    pub(crate) fn start_deletes(&self, paths: &[String]) -> Step<PendingCall> {
        self.start(deletes(paths), Batching::Allowed)
    }

    pub(super) fn start(&self, requests: Vec<Request>, batching: Batching) -> Step<PendingCall> {
        let (session, signal) = (self.session(), Arc::new(Signal::new()));
        let call = OwnCall::submit(session, self.connection(), requests, batching, &signal)?;
        Ok(PendingCall {
            session: Arc::clone(session),
            call,
            signal,
        })
    }
}

/// One for each path.
pub(super) fn deletes<'a>(paths: impl IntoIterator<Item = &'a String>) -> Vec<Request> {
    let each = paths.into_iter().map(|path| Request::Delete {
        path: path.clone(),
        version: ANY_VERSION,
    });
    each.collect()
}

impl PendingCall {
    /// The answers, one for each request. Waits for no longer than the connection stands, which an
    /// answer that does not come ends.
    pub(crate) fn wait(self) -> Vec<Step<Reply>> {
        loop {
            if let Some(answers) = self.call.take() {
                let connection = self.call.connection().clone();
                return judge(&Contact::patient(&self.session, connection), answers);
            }
            self.signal.wait(None);
        }
    }

    /// Has `end` called with the answers when they come: on the link's thread, or on this one if
    /// they have come. It may only signal, and ask for things to be done.
    pub(crate) fn leave_to(
        self,
        end: impl FnOnce(&Arc<Session>, Vec<Step<Reply>>) + Send + 'static,
    ) {
        let Self { session, call, .. } = self;
        // The call keeps what it is left to until it is answered, so it is not to keep itself.
        let connection = call.connection().clone();
        call.leave_to(Box::new(move |answers| {
            let contact = Contact::patient(&session, connection);
            end(&session, judge(&contact, answers));
        }));
    }
}

fn judge(contact: &Contact<'_>, answers: Vec<Answer>) -> Vec<Step<Reply>> {
    let each = answers.into_iter().map(|answer| contact.judge(answer));
    each.collect()
}
