//! One thread that waits for ZooKeeper: its signal, and its bound.

use std::sync::Arc;
use std::time::Instant;

use super::call_error::Step;
use super::contact::Contact;
use super::phase::{Connection, NoContact};
use super::{Session, sync};
use crate::error::{Error, Result};
use crate::wait::bound::Bound;
use crate::wait::cancel::{Attachment, CancelToken};
use crate::wait::signal::{Signal, Wakes};

/// Lives for one acquire on its way through the global queue. Is woken by watches, by every change
/// of the connection, and by the caller's cancel token.
pub(crate) struct Waiter<'a> {
    session: &'a Arc<Session>,
    bound: &'a Bound,
    signal: Arc<Signal>,
    key: u64,
    /// Looked at whenever this waiter is woken: an error ends the wait.
    condition: Option<&'a dyn Fn() -> Result<()>>,
    _cancel: Option<Attachment>,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(session: &'a Arc<Session>, bound: &'a Bound) -> Self {
        let signal = Arc::new(Signal::new());
        let key = session.add_waiter(&signal);
        let cancel = bound.cancel.as_ref();
        Self {
            session,
            bound,
            _cancel: cancel.map(|token| CancelToken::attach(token, &signal)),
            signal,
            key,
            condition: None,
        }
    }

    /// Waits only as long as `condition` does not fail. It must change with a change of the
    /// connection, which is what wakes this waiter.
    pub(crate) fn only_while(mut self, condition: &'a dyn Fn() -> Result<()>) -> Self {
        self.condition = Some(condition);
        self
    }

    pub(crate) fn session(&self) -> &'a Arc<Session> {
        self.session
    }

    pub(crate) fn bound(&self) -> &'a Bound {
        self.bound
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// The connection that is open now, if one is.
    pub(crate) fn contact_now(&self) -> Step<Contact<'_>> {
        let connection = self.session.open_connection();
        let connection = connection.map_err(super::CallError::NotSent)?;
        Ok(Contact::of_waiter(self, connection))
    }

    /// The open connection, once its number is greater than `after`.
    ///
    /// A call that failed on connection `after` must wait for the next one: the calls in flight are
    /// answered before the break is reported, so for a moment the old one still seems open.
    pub(crate) fn contact(&self, after: u64) -> Result<Contact<'_>> {
        loop {
            self.bound.check()?;
            if let Some(condition) = self.condition {
                condition()?;
            }
            let give_up = match self.session.open_connection() {
                Ok(connection) if connection.number > after => return Ok(self.pin(connection)),
                Ok(_) => None,
                Err(NoContact::Disconnected) => self.session.when_to_give_up()?,
                Err(why) => return Err(why.into_error(self.session.target())),
            };
            if give_up.is_some_and(|give_up| give_up <= sync::now()) {
                return Err(self.session.gave_up());
            }
            self.sleep(give_up)?;
        }
    }

    fn pin(&self, connection: Connection) -> Contact<'_> {
        Contact::of_waiter(self, connection)
    }

    /// Takes steps until one comes to something, over broken connections and lost sessions. A step
    /// is handed the connection that stands when it begins; it is about `path`.
    pub(crate) fn persist<T>(
        &self,
        path: &str,
        mut step: impl FnMut(&Contact<'_>) -> Step<Option<T>>,
    ) -> Result<T> {
        let mut failed_on = 0;
        loop {
            let contact = self
                .contact(failed_on)
                .map_err(|error| error.context(path))?;
            match step(&contact) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => {}
                Err(error) => {
                    error.unless_retryable(self.session.target(), path)?;
                    failed_on = contact.number();
                }
            }
        }
    }

    /// Sleeps until something wakes this waiter or `until`, which is no error. The caller's own
    /// deadline and cancel token are errors.
    pub(crate) fn sleep(&self, until: Option<Instant>) -> Result<Wakes> {
        // The wake-up may have been used up already: by a call that was answered at the same
        // moment as it was left. The token itself stays cancelled.
        let cancel = self.bound.cancel.as_ref();
        if cancel.is_some_and(CancelToken::is_cancelled) {
            return Err(Error::cancelled());
        }
        let deadline = match (self.bound.deadline, until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let wakes = self.signal.wait(deadline);
        if wakes.has(Wakes::CANCEL) {
            return Err(Error::cancelled());
        }
        // Not by the clock: a wake-up at the deadline itself still counts, and a model has no
        // clock.
        if wakes.is_empty() && deadline == self.bound.deadline {
            return Err(Error::timeout());
        }
        Ok(wakes)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.session.remove_waiter(self.key);
    }
}
