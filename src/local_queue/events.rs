//! The events that a lock tells observers of; see [`crate::session::observe`]. The lock in front of a semaphore's
//! permits tells nothing: the semaphore does.

use std::time::{Duration, Instant};

use super::tenure_use::{Policy, TenureUse};
use super::{LocalQueue, SharedQueue};
use crate::error::{Error, Result};
use crate::session::Observation;
use crate::session::observe::observer::{Miss, Way};
use crate::sync;

impl LocalQueue {
    fn observation(&self) -> Option<&Observation> {
        (!self.policy.is_part).then(|| self.session.observation())
    }

    /// When a hold begins, if anybody wants to know how long it lasts.
    #[inline]
    pub(super) fn begin_hold(&self) -> Option<Instant> {
        let Policy { is_part, .. } = self.policy;
        (!is_part && self.session.observation().is_on()).then(sync::now)
    }

    pub(super) fn tell_queued(&self) {
        // Also for a lock in front of permits: it is there that threads wait.
        self.session.observation().queued(&self.policy.label);
    }

    pub(super) fn tell_acquired(&self, waited: Duration, by: Way) {
        if let Some(observation) = self.observation() {
            observation.acquired(&self.policy.label, waited, by);
        }
    }

    pub(super) fn tell_failed(&self, error: &Error, began: Instant) {
        self.tell_missed(began, Miss::of(error));
    }

    /// Tells of a try that does not hold.
    pub(super) fn tell_outcome(&self, result: &Result<bool>, began: Instant) {
        match result {
            Ok(true) => {}
            Ok(false) => self.tell_missed(began, Miss::Busy),
            Err(error) => self.tell_failed(error, began),
        }
    }

    pub(super) fn tell_missed(&self, began: Instant, why: Miss) {
        if let Some(observation) = self.observation() {
            let waited = sync::now().saturating_duration_since(began);
            observation.missed(&self.policy.label, waited, why);
        }
    }

    /// A thread's hold is over, if one had begun.
    #[inline]
    pub(super) fn tell_released(&self, tenure_use: &mut TenureUse, confirmed: bool) {
        if let Some(since) = tenure_use.held_since.take() {
            self.tell_released_since(since, confirmed);
        }
    }

    #[cold]
    pub(super) fn tell_released_since(&self, since: Instant, confirmed: bool) {
        let held_for = sync::now().saturating_duration_since(since);
        let observation = self.session.observation();
        observation.released(&self.policy.label, held_for, confirmed);
    }
}

impl SharedQueue {
    /// Tells of a try that does not hold.
    pub(super) fn tell_outcome(&self, result: &Result<bool>, began: Instant) {
        match result {
            Ok(true) => {}
            Ok(false) => self.tell_missed(began, Miss::Busy),
            Err(error) => self.tell_failed(error, began),
        }
    }

    pub(super) fn tell_failed(&self, error: &Error, began: Instant) {
        self.tell_missed(began, Miss::of(error));
    }

    pub(super) fn tell_missed(&self, began: Instant, why: Miss) {
        let waited = sync::now().saturating_duration_since(began);
        let observation = self.session().observation();
        observation.missed(&self.label, waited, why);
    }

    pub(super) fn tell_released(&self, since: Option<Instant>, confirmed: bool) {
        if let Some(since) = since {
            let held_for = sync::now().saturating_duration_since(since);
            let observation = self.session().observation();
            observation.released(&self.label, held_for, confirmed);
        }
    }
}
