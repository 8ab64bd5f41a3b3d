//! Which request is to suffer, and what.

use std::collections::BTreeMap;

use zklock_protocol::ErrorCode;

use crate::op::{Asked, Matcher};

/// What happens in place of passing on a request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// It is lost; the connection goes on. (TCP does not do so. A server that hangs does.)
    Silent,
    /// It is lost, and its connection is cut. What was before it still arrives.
    Cut,
    /// It is lost, and its connection falls silent both ways until [`heal`](crate::Server::heal).
    /// What was before it still arrives.
    Hang,
}

/// Counts rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RuleId(u64);

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Lose(Loss),
    Hold,
    /// In place of doing it.
    Answer(ErrorCode),
}

/// At which end of a request's life a rule strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Request,
    Reply,
}

#[derive(Debug)]
struct Rule {
    phase: Phase,
    matcher: Matcher,
    effect: Effect,
    /// How many requests it has counted.
    counted: u64,
}

/// The rules in force, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    rules: BTreeMap<RuleId, Rule>,
    made: u64,
}

/// What the rules have for one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sentence {
    pub(crate) on_request: Option<(RuleId, Effect)>,
    pub(crate) on_reply: Option<(RuleId, Effect)>,
}

impl Rules {
    pub(crate) fn add(&mut self, phase: Phase, matcher: Matcher, effect: Effect) -> RuleId {
        self.made += 1;
        let id = RuleId(self.made);
        let rule = Rule {
            phase,
            matcher,
            effect,
            counted: 0,
        };
        self.rules.insert(id, rule);
        id
    }

    pub(crate) fn remove(&mut self, id: RuleId) {
        self.rules.remove(&id);
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn contains(&self, id: RuleId) -> bool {
        self.rules.contains_key(&id)
    }

    /// Counts a request, and says what is to happen to it and to its reply. Where several rules
    /// strike at once, the oldest has its way.
    pub(crate) fn judge(&mut self, asked: &Asked) -> Sentence {
        let mut sentence = Sentence::default();
        for (id, rule) in &mut self.rules {
            if !rule.matcher.counts(asked) {
                continue;
            }
            rule.counted += 1;
            if rule.matcher.means(rule.counted) {
                let slot = match rule.phase {
                    Phase::Request => &mut sentence.on_request,
                    Phase::Reply => &mut sentence.on_reply,
                };
                slot.get_or_insert((*id, rule.effect));
            }
        }
        sentence
    }
}
