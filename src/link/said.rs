//! Answers on their way to those who asked.

use zklock_protocol::Malformed;

use super::batch::{Batch, Outcome};
use super::group::Group;
use super::recipient::Recipient;
use super::voice::Heard;

/// Who hears of what was said together.
pub(super) enum Told {
    Caller(Recipient),
    /// Several, who each know their part.
    Callers(Box<Batch>),
}

/// All that was said together has been answered.
pub(super) struct Said {
    told: Told,
    heard: Vec<Heard>,
}

/// What is left to do when everybody who can be told was told.
#[derive(Default)]
pub(super) struct Rest {
    /// A reply was none, and its connection must end.
    pub(super) malformed: Option<Malformed>,
    /// How sharing packets has gone.
    pub(super) outcome: Outcome,
    /// Those of which something is to be asked again.
    pub(super) again: Vec<Group>,
}

impl Rest {
    pub(super) fn is_nothing(&self) -> bool {
        self.again.is_empty() && self.outcome == Outcome::default()
    }
}

impl Said {
    pub(super) fn new(told: Told, heard: Vec<Heard>) -> Self {
        Self { told, heard }
    }

    /// Tells those who asked. To be called without locks.
    pub(super) fn tell(self) -> Rest {
        let mut rest = Rest::default();
        let mut events = Vec::with_capacity(self.heard.len());
        let answers = self.heard.into_iter().map(|heard| {
            let (answer, events_before) = heard.decode(&mut rest.malformed);
            events.push(events_before);
            answer
        });
        let answers = answers.collect();
        match self.told {
            Told::Caller(recipient) => recipient.answered(answers, events),
            Told::Callers(batch) => (rest.outcome, rest.again) = batch.answered(answers, &events),
        }
        rest
    }
}
