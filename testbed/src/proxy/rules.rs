//! Which frame is to suffer, and what.

use super::frames::Request;
use super::{RuleId, opcode};

/// What is about the connection or the session.
const SPECIAL: [i32; 4] = [opcode::CONNECT, opcode::AUTH, opcode::PING, opcode::CLOSE];

/// What happens in place of passing a frame on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The frame is lost, the connection goes on.
    Drop,
    /// The frame is lost and its connection is reset, both ways. Frames before
    /// it still arrive.
    Reset,
    /// The frame is lost and its connection falls silent, both ways, until
    /// `heal`. Frames before it still arrive.
    BlackHole,
    /// The frame is lost, and in its turn the client gets this error for an answer: to a request
    /// that was never done, or to one that was.
    Refuse(i32),
}

/// Which request is meant: by opcode, and by count among those that match.
///
/// A bare opcode converts to "the next one". Counting starts when the rule is
/// set and goes on over all connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    /// None: of any kind that the server does as it is asked.
    opcode: Option<i32>,
    path_part: Option<String>,
    which: Which,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Nth(u64),
    Every,
    OneIn(u64),
}

impl Matcher {
    /// The first request with this opcode from now on.
    pub fn next(opcode: i32) -> Matcher {
        Matcher::nth(opcode, 1)
    }

    /// The `n`th request with this opcode from now on, counted from 1.
    pub fn nth(opcode: i32, n: u64) -> Matcher {
        assert!(n > 0, "counted from 1");
        Matcher {
            opcode: Some(opcode),
            path_part: None,
            which: Which::Nth(n),
        }
    }

    /// Every request with this opcode, until the rule is taken away.
    pub fn every(opcode: i32) -> Matcher {
        Matcher {
            opcode: Some(opcode),
            path_part: None,
            which: Which::Every,
        }
    }

    /// One in `n` requests, of whatever kind, but for handshakes, credentials, pings and good-byes;
    /// until the rule is taken away.
    pub fn one_in(n: u64) -> Matcher {
        assert!(n > 0, "one in some");
        Matcher {
            opcode: None,
            path_part: None,
            which: Which::OneIn(n),
        }
    }

    /// Only requests whose path contains this text match, and are counted: a
    /// create of a lock's node, say, and not that of its folder.
    pub fn with_path_containing(mut self, part: &str) -> Matcher {
        self.path_part = Some(part.to_owned());
        self
    }
}

impl From<i32> for Matcher {
    fn from(opcode: i32) -> Matcher {
        Matcher::next(opcode)
    }
}

/// What a rule does to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Lose(Action),
    Hold,
}

impl From<Action> for Effect {
    fn from(action: Action) -> Effect {
        Effect::Lose(action)
    }
}

/// At which end of a request's life a rule strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Request,
    Reply,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: RuleId,
    phase: Phase,
    matcher: Matcher,
    effect: Effect,
    matched: u64,
}

/// The rules in force, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    ids_given: u64,
    /// What is to stand for what in bytes of an unknown protocol.
    rewrites: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What the rules have for one request.
#[derive(Debug, Default)]
pub(super) struct Sentence {
    pub(super) on_request: Option<(RuleId, Effect)>,
    pub(super) on_reply: Option<(RuleId, Effect)>,
}

impl Rules {
    pub(super) fn add(&mut self, phase: Phase, matcher: Matcher, effect: Effect) -> RuleId {
        self.ids_given += 1;
        let id = RuleId(self.ids_given);
        self.rules.push(Rule {
            id,
            phase,
            matcher,
            effect,
            matched: 0,
        });
        id
    }

    pub(super) fn remove(&mut self, id: RuleId) {
        self.rules.retain(|rule| rule.id != id);
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(super) fn contains(&self, id: RuleId) -> bool {
        self.rules.iter().any(|rule| rule.id == id)
    }

    pub(super) fn rewrite(&mut self, from: Vec<u8>, to: Vec<u8>) {
        self.rewrites.push((from, to));
    }

    pub(super) fn apply_rewrites(&self, bytes: &mut [u8]) {
        for (from, to) in &self.rewrites {
            let found = bytes.windows(from.len()).position(|window| window == from);
            if let Some(at) = found {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
    }

    /// Counts a request and says what is to happen to it and its reply. Where
    /// several rules strike at once, the oldest has its way.
    pub(super) fn judge(&mut self, request: &Request<'_>) -> Sentence {
        let mut sentence = Sentence::default();
        for rule in &mut self.rules {
            if rule.strikes(request) {
                let slot = match rule.phase {
                    Phase::Request => &mut sentence.on_request,
                    Phase::Reply => &mut sentence.on_reply,
                };
                slot.get_or_insert((rule.id, rule.effect));
            }
        }
        sentence
    }
}

impl Rule {
    fn strikes(&mut self, request: &Request<'_>) -> bool {
        let part = self.matcher.path_part.as_deref();
        let on_path = part.is_none_or(|part| request.path.is_some_and(|path| path.contains(part)));
        let of_kind = match self.matcher.opcode {
            Some(opcode) => [request.opcode, request.exactly].contains(&opcode),
            None => !SPECIAL.contains(&request.opcode),
        };
        if !of_kind || !on_path {
            return false;
        }
        self.matched += 1;
        match self.matcher.which {
            Which::Nth(n) => self.matched == n,
            Which::Every => true,
            Which::OneIn(n) => self.matched.is_multiple_of(n),
        }
    }
}
