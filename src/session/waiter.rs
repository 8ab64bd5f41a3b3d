//! One thread that waits for ZooKeeper: its signal, and its limits.

use std::sync::Arc;
use std::time::Instant;

use super::Session;
use crate::error::{Error, Result};
use crate::sync;
use crate::wait::cancel::{Attachment, CancelToken};
use crate::wait::limits::WaitLimits;
use crate::wait::signal::{Signal, Wakes};

/// Lives for one acquire on its way through the global queue. Watches, every change of the
/// connection, and the caller's cancel token wake it.
pub(crate) struct Waiter<'a> {
    session: &'a Arc<Session>,
    limits: &'a WaitLimits,
    signal: Arc<Signal>,
    key: u64,
    /// Since when its call waits; `None` for one that nobody waits for.
    began: Option<Instant>,
    /// Looked at whenever this waiter is woken: an error ends the wait.
    condition: Option<&'a dyn Fn() -> Result<()>>,
    _cancel: Option<Attachment>,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(session: &'a Arc<Session>, limits: &'a WaitLimits) -> Self {
        let signal = Arc::new(Signal::new());
        let key = session.add_waiter(&signal);
        let cancel = limits.cancel.as_ref();
        Self {
            session,
            limits,
            _cancel: cancel.map(|token| CancelToken::attach(token, &signal)),
            signal,
            key,
            began: Some(sync::now()),
            condition: None,
        }
    }

    /// Its call began to wait then: what it waited behind other threads of its process counts, or
    /// many of them would give up one after the other.
    pub(crate) fn since(mut self, began: Instant) -> Self {
        self.began = Some(began);
        self
    }

    /// Nobody waits for what it waits for, so it does not give up as a call does: neither out of
    /// contact, nor while it is refused for now.
    pub(crate) fn never_give_up(&mut self) {
        self.began = None;
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

    pub(super) fn began(&self) -> Option<Instant> {
        self.began
    }

    pub(crate) fn limits(&self) -> &'a WaitLimits {
        self.limits
    }

    /// Fails when this waiter's condition does.
    pub(super) fn check_condition(&self) -> Result<()> {
        self.condition.map_or(Ok(()), |condition| condition())
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Sleeps until something wakes this waiter or `until`, which is no error. The caller's own
    /// deadline and cancel token are errors.
    pub(crate) fn sleep(&self, until: Option<Instant>) -> Result<Wakes> {
        // The wake-up may have been used up already: by a call that was answered at the same
        // moment as it was left. The token itself stays cancelled.
        let cancel = self.limits.cancel.as_ref();
        if cancel.is_some_and(CancelToken::is_cancelled) {
            return Err(Error::cancelled());
        }
        let deadline = match (self.limits.deadline, until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let wakes = self.signal.wait(deadline);
        if wakes.has(Wakes::CANCEL) {
            return Err(Error::cancelled());
        }
        // Not by the clock: a wake-up at the deadline itself still counts, and a model has no
        // clock.
        if wakes.is_empty() && deadline == self.limits.deadline {
            return Err(self.limits.over());
        }
        Ok(wakes)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.session.remove_waiter(self.key);
    }
}
