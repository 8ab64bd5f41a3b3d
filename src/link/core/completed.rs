//! Answers on their way to those who asked.

use zklock_protocol::Malformed;

use super::answer::RawReply;
use super::batch::{Batch, Outcome};
use super::caller::Caller;
use super::group::Group;

/// Who hears of what was sent together.
pub(in crate::link) enum Recipient {
    Caller(Caller),
    /// Several, who each know their part.
    Batch(Box<Batch>),
}

/// All that was sent together has been answered.
pub(in crate::link) struct Completed {
    recipient: Recipient,
    replies: Vec<RawReply>,
}

/// What is left to do when everybody who can be told was told.
#[derive(Default)]
pub(in crate::link) struct Rest {
    /// A reply was none, and its connection must end.
    pub(in crate::link) malformed: Option<Malformed>,
    /// How sharing packets has gone.
    pub(in crate::link) outcome: Outcome,
    /// Those of which something is to be asked again.
    pub(in crate::link) again: Vec<Group>,
}

impl Rest {
    pub(in crate::link) fn is_nothing(&self) -> bool {
        self.again.is_empty() && self.outcome == Outcome::default()
    }
}

impl Completed {
    pub(in crate::link) fn new(recipient: Recipient, replies: Vec<RawReply>) -> Self {
        Self { recipient, replies }
    }

    /// Tells those who asked. To be called without locks.
    pub(in crate::link) fn tell(self) -> Rest {
        let mut rest = Rest::default();
        let replies = self.replies.into_iter();
        let answers = replies.map(|reply| reply.decode(&mut rest.malformed));
        let answers = answers.collect();
        match self.recipient {
            Recipient::Caller(caller) => caller.completed(answers),
            Recipient::Batch(batch) => (rest.outcome, rest.again) = batch.completed(answers),
        }
        rest
    }
}
