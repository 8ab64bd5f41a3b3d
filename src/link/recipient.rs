//! The one who hears of an answer, whatever happens on its way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::voice::{Answer, Lost, Slot};

/// Who hears the answers to so many requests, once. If that is dropped unanswered, as when a thread
/// panics on the way, the caller hears that the answers are lost: nobody waits for ever.
pub(super) struct Recipient {
    slot: Option<Arc<dyn Slot>>,
    requests: usize,
}

impl Recipient {
    pub(super) fn new(slot: Arc<dyn Slot>, requests: usize) -> Self {
        Self {
            slot: Some(slot),
            requests,
        }
    }

    /// To be called without locks.
    pub(super) fn answered(mut self, answers: Vec<Answer>, events: Vec<u64>) {
        if let Some(slot) = self.slot.take() {
            slot.answered(answers, events);
        }
    }

    /// Nothing was sent, so nothing is to be heard.
    pub(super) fn forget(&mut self) {
        self.slot = None;
    }
}

impl Drop for Recipient {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            let answers = vec![Answer::Lost(Lost::by_us(0)); self.requests];
            let events = vec![0; self.requests];
            // It may come while a panic unwinds.
            let _ = catch_unwind(AssertUnwindSafe(|| slot.answered(answers, events)));
        }
    }
}
