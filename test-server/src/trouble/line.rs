//! One connection, with what is done to it: bytes come in, wait, and go out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use zklock_protocol::Frames;

use super::rules::{Effect, RuleId, Sentence};

/// What a connection suffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regime {
    /// The server does not hear it.
    pub(crate) deaf: bool,
    /// It does not hear the server.
    pub(crate) mute: bool,
    /// How much later each frame arrives, in each direction.
    pub(crate) delay: Duration,
}

/// What a client has sent.
#[derive(Debug)]
pub(crate) enum Incoming {
    Frame(Vec<u8>),
    Word([u8; 4]),
    /// Nothing more comes, or nothing that makes sense.
    End,
}

/// What the server has to send.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Bytes(Vec<u8>),
    /// An orderly end, after all before it.
    End,
    /// A cut, after all before it.
    Cut,
    /// The connection falls silent, after all before it.
    Silence,
}

/// Things that arrive in order, each not before its time, and none while the first of them is held.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    waiting: VecDeque<(Duration, T)>,
    held_by: Option<RuleId>,
}

impl<T> Lane<T> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            held_by: None,
        }
    }

    pub(crate) fn push(&mut self, due: Duration, item: T) {
        // Nothing overtakes.
        let last = self.waiting.back().map_or(Duration::ZERO, |(due, _)| *due);
        self.waiting.push_back((due.max(last), item));
    }

    /// What is next, if it is due and not held.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<T> {
        self.next_due().filter(|due| *due <= now)?;
        self.waiting.pop_front().map(|(_, item)| item)
    }

    /// Puts back what was taken last, and holds it.
    pub(crate) fn hold(&mut self, now: Duration, item: T, rule: RuleId) {
        self.waiting.push_front((now, item));
        self.held_by = Some(rule);
    }

    pub(crate) fn held_by(&self) -> Option<RuleId> {
        self.held_by
    }

    pub(crate) fn release(&mut self) {
        self.held_by = None;
    }

    /// Forgets what is not to be kept.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        self.waiting.retain(|(_, item)| is_kept(item));
    }

    /// All of it is due now.
    pub(crate) fn hurry(&mut self, now: Duration) {
        for (due, _) in &mut self.waiting {
            *due = now.min(*due);
        }
    }

    pub(crate) fn next_due(&self) -> Option<Duration> {
        if self.held_by.is_some() {
            return None;
        }
        self.waiting.front().map(|(due, _)| *due)
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) frames: Frames,
    /// Whether its first frame has come.
    pub(crate) begun: bool,
    /// Whether nothing more is read from it.
    pub(crate) ended: bool,
    pub(crate) regime: Regime,
    pub(crate) incoming: Lane<Incoming>,
    pub(crate) outgoing: Lane<(Option<RuleId>, Outgoing)>,
    /// Whether the server is done with it: what is to be sent still goes out.
    pub(crate) closing: bool,
    /// What was said of the request that is held.
    pub(crate) judged: Option<Sentence>,
    /// What is to happen to the replies to frames that the server has, by their number.
    pub(crate) sentences: BTreeMap<u64, (RuleId, Effect)>,
}

impl Line {
    pub(crate) fn new(regime: Regime, max_frame: usize) -> Self {
        Self {
            frames: Frames::new(max_frame),
            begun: false,
            ended: false,
            regime,
            incoming: Lane::new(),
            outgoing: Lane::new(),
            closing: false,
            judged: None,
            sentences: BTreeMap::new(),
        }
    }

    /// Nothing more is heard; after all before it the connection ends so.
    pub(crate) fn close(&mut self, now: Duration, end: Outgoing) {
        self.closing = true;
        self.outgoing
            .push(now.saturating_add(self.regime.delay), (None, end));
    }

    /// When something is to be done with it next.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let is_heard = !self.regime.deaf && !self.closing;
        let heard = self.incoming.next_due().filter(|_| is_heard);
        let said = self.outgoing.next_due().filter(|_| !self.regime.mute);
        [heard, said].into_iter().flatten().min()
    }
}
