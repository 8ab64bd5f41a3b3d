//! One thread that waits for ZooKeeper: its signal, its bound, and the calls it makes.

use std::sync::Arc;
use std::time::Instant;

use super::call::{CallError, Step};
use super::keeper::{Reply, Request};
use super::standing::{Contact, NoContact};
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
    _cancel: Option<Attachment>,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(session: &'a Arc<Session>, bound: &'a Bound) -> Self {
        let signal = Arc::new(Signal::new());
        let key = {
            let mut state = session.state.lock();
            let key = state.key();
            state.waiters.insert(key, Arc::clone(&signal));
            key
        };
        let cancel = bound.cancel.as_ref();
        Self {
            session,
            bound,
            _cancel: cancel.map(|token| CancelToken::attach(token, &signal)),
            signal,
            key,
        }
    }

    pub(crate) fn session(&self) -> &'a Arc<Session> {
        self.session
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// The open connection, once its number is greater than `after`.
    ///
    /// A call that failed on connection `after` must wait for the next one: the link answers the
    /// calls in flight before it reports the break, so for a moment the old one still seems open.
    pub(crate) fn contact(&self, after: u64) -> Result<Contact> {
        loop {
            self.bound.check()?;
            let give_up = {
                let state = self.session.state.lock();
                if let Some(scheme) = &state.trouble.refused_auth {
                    let target = &self.session.target;
                    return Err(Error::auth_failed(format!("{target}, scheme {scheme}")));
                }
                match state.standing.contact() {
                    Ok(contact) if contact.connection > after => return Ok(contact),
                    Ok(_) => None,
                    Err(NoContact::Closed) => return Err(Error::closed()),
                    Err(NoContact::Disconnected) => {
                        self.session.retry.give_up_after.and_then(|limit| {
                            state.standing.out_of_contact_since().checked_add(limit)
                        })
                    }
                }
            };
            if give_up.is_some_and(|give_up| give_up <= sync::now()) {
                return Err(Error::connection_loss(format!(
                    "{}, for {:?} and more",
                    self.session.target,
                    self.session.retry.give_up_after.unwrap_or_default()
                )));
            }
            self.sleep(give_up)?;
        }
    }

    /// Takes steps until one comes to something, over broken connections and lost sessions. A step
    /// is told the connection that stands when it begins; it is about `path`.
    pub(crate) fn persist<T>(
        &self,
        path: &str,
        mut step: impl FnMut(&Contact) -> Step<Option<T>>,
    ) -> Result<T> {
        let mut failed_on = 0;
        loop {
            let contact = self.contact(failed_on)?;
            match step(&contact) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => {}
                Err(error) => {
                    error.bearable(self.session.target(), path)?;
                    failed_on = contact.connection;
                }
            }
        }
    }

    /// Sleeps until something wakes this waiter or `until`, which is no error. The caller's own
    /// deadline and cancel token are errors.
    pub(crate) fn sleep(&self, until: Option<Instant>) -> Result<Wakes> {
        // The wake-up may have been used up already: by a call on a worker that was answered at
        // the same moment as it was left. The token itself stays cancelled.
        if self
            .bound
            .cancel
            .as_ref()
            .is_some_and(CancelToken::is_cancelled)
        {
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

    /// Whether a call on this thread would come back in time.
    pub(crate) fn has_time(&self) -> bool {
        self.bound.is_none() || !self.bound.is_nearer_than(self.session.longest_call())
    }

    /// Makes a call, on this thread unless the caller may have to leave before it is answered.
    pub(crate) fn call(
        &self,
        request: Request,
    ) -> std::result::Result<(Reply, Contact), CallError> {
        let in_time = self.bound.is_none() || {
            self.bound.check().map_err(CallError::Left)?;
            !self.bound.is_nearer_than(self.session.longest_call())
        };
        if in_time {
            return self.session.call(&request);
        }
        self.session
            .call_aside(request, &self.signal, || self.sleep(None))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.session.state.lock().waiters.remove(&self.key);
    }
}
