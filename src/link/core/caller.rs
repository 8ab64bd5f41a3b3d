//! The one who hears of an answer, whatever happens on its way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::answer::{Answer, Completion};

/// Who hears the answers to so many requests, once. If that is dropped unanswered, as when a thread
/// panics on the way, the caller hears that the answers are lost: nobody waits for ever.
pub(in crate::link) struct Caller {
    completion: Option<Arc<dyn Completion>>,
    requests: usize,
}

impl Caller {
    pub(in crate::link) fn new(completion: Arc<dyn Completion>, requests: usize) -> Self {
        Self {
            completion: Some(completion),
            requests,
        }
    }

    /// To be called without locks.
    pub(in crate::link) fn completed(mut self, answers: Vec<Answer>) {
        if let Some(completion) = self.completion.take() {
            completion.completed(answers);
        }
    }

    /// Nothing was sent, so nothing is to be heard.
    pub(in crate::link) fn forget(&mut self) {
        self.completion = None;
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(completion) = self.completion.take() {
            let answers = vec![Answer::lost(); self.requests];
            // It may come while a panic unwinds.
            let _ = catch_unwind(AssertUnwindSafe(|| completion.completed(answers)));
        }
    }
}
