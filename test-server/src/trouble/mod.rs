//! The server with its connections and everything that is done to them: bytes and times go in,
//! bytes come out. Without threads, sockets and clocks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use zklock_protocol::{Piece, Reader, Request, RequestHeader};

use self::line::{Incoming, Line, Outgoing};
use self::rules::{Rules, Sentence};
use crate::core::quorum::{MemberId, Packet};
use crate::core::{ConnectionId, Core, Output, Said, Settings};
use crate::op::{Asked, Matcher, Op};

pub(crate) mod line;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use self::line::Regime;
pub use self::rules::Loss;
pub(crate) use self::rules::{Effect, Phase, RuleId};

/// How many requests are remembered at most.
const REMEMBERED: usize = 100_000;
/// How many bytes of them, at most: paths can be long.
const REMEMBERED_BYTES: usize = 64 * 1024 * 1024;

/// What is to be done with a socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Write(Vec<u8>),
    /// After everything is written.
    Finish,
    /// At once, with a reset.
    Reset,
}

/// Which connections are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    All,
    Session(i64),
}

/// Whether the server does anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pace {
    #[default]
    Runs,
    /// Nothing is heard, said or done, and time brings nothing about, until it goes on.
    Paused,
    /// As paused, and without connections.
    Stopped,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The last requests, and how many bytes they are.
    pub(crate) asked: VecDeque<Asked>,
    asked_bytes: usize,
    /// How many requests there were of each kind, those that are forgotten included.
    pub(crate) counts: BTreeMap<Op, usize>,
    /// How often each rule has struck.
    pub(crate) struck: BTreeMap<RuleId, u64>,
    /// Connections accepted so far.
    pub(crate) accepted: u64,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) core: Core,
    pace: Pace,
    lines: BTreeMap<ConnectionId, Line>,
    rules: Rules,
    /// For connections to come.
    regime: Regime,
    pub(crate) seen: Seen,
    accepted: u64,
    /// Where something may have to be sent.
    touched: BTreeSet<ConnectionId>,
    acts: Vec<(ConnectionId, Act)>,
}

impl Machine {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            core: Core::new(settings),
            pace: Pace::default(),
            lines: BTreeMap::new(),
            rules: Rules::default(),
            regime: Regime::default(),
            seen: Seen::default(),
            accepted: 0,
            touched: BTreeSet::new(),
            acts: Vec::new(),
        }
    }

    /// A client has connected.
    pub(crate) fn accept(&mut self, peer: SocketAddr) -> ConnectionId {
        self.accepted += 1;
        self.seen.accepted = self.accepted;
        let id = ConnectionId(self.accepted);
        let line = Line::new(self.regime, self.core.settings().max_frame);
        self.lines.insert(id, line);
        self.core.open(id, peer);
        id
    }

    /// A client has sent bytes.
    pub(crate) fn receive(&mut self, from: ConnectionId, bytes: &[u8], now: Duration) {
        let Some(line) = self.lines.get_mut(&from).filter(|line| !line.ended) else {
            return;
        };
        line.frames.push(bytes);
        let due = now.saturating_add(line.regime.delay);
        loop {
            let piece = if line.begun {
                line.frames
                    .next_frame()
                    .map(|frame| frame.map(Incoming::Frame))
            } else {
                line.frames.first_piece().map(|piece| {
                    piece.map(|piece| match piece {
                        Piece::Frame(frame) => Incoming::Frame(frame),
                        Piece::Word(word) => Incoming::Word(word),
                    })
                })
            };
            match piece {
                Ok(Some(piece)) => {
                    line.begun = true;
                    line.incoming.push(due, piece);
                }
                Ok(None) => break,
                Err(_) => {
                    line.ended = true;
                    line.incoming.push(due, Incoming::End);
                    break;
                }
            }
        }
        self.progress(from, now);
    }

    /// A client has closed its end, or the connection broke.
    pub(crate) fn end(&mut self, from: ConnectionId, now: Duration) {
        if let Some(line) = self.lines.get_mut(&from).filter(|line| !line.ended) {
            line.ended = true;
            let due = now.saturating_add(line.regime.delay);
            line.incoming.push(due, Incoming::End);
        }
        self.progress(from, now);
    }

    /// Does everything whose time has come, if the server runs.
    pub(crate) fn advance(&mut self, now: Duration) {
        if self.pace != Pace::Runs {
            return;
        }
        self.core.advance(now);
        self.collect(now);
        let ids: Vec<_> = self.lines.keys().copied().collect();
        self.touched.extend(&ids);
        for id in ids {
            self.hear(id, now);
        }
        self.speak(now);
    }

    /// As [`Machine::advance`], where only one connection has news.
    fn progress(&mut self, id: ConnectionId, now: Duration) {
        // Time goes on before what comes in it.
        if self.core.deadline().is_some_and(|deadline| deadline <= now) {
            self.core.advance(now);
            self.collect(now);
        }
        self.hear(id, now);
        self.speak(now);
    }

    /// When [`Machine::advance`] is to be called next.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.pace != Pace::Runs {
            return None;
        }
        let lines = self.lines.values().filter_map(Line::deadline).min();
        [self.core.deadline(), lines].into_iter().flatten().min()
    }

    /// What is to be done with sockets, in order, since this was last called.
    pub(crate) fn take_acts(&mut self) -> Vec<(ConnectionId, Act)> {
        std::mem::take(&mut self.acts)
    }

    /// Ends a session.
    pub(crate) fn expire(&mut self, session: i64, now: Duration) -> bool {
        let was_there = self.core.expire(session, now);
        self.collect(now);
        self.speak(now);
        was_there
    }

    /// Cuts connections, with a reset; what was under way is lost.
    pub(crate) fn cut(&mut self, whom: Whom) {
        for id in self.meant(whom) {
            self.drop_line(id, Act::Reset);
        }
    }

    /// Changes what connections suffer; if all are meant, also those to come.
    pub(crate) fn change(&mut self, whom: Whom, now: Duration, change: impl Fn(&mut Regime)) {
        if whom == Whom::All {
            change(&mut self.regime);
        }
        for id in self.meant(whom) {
            if let Some(line) = self.lines.get_mut(&id) {
                change(&mut line.regime);
            }
        }
        self.advance(now);
    }

    pub(crate) fn add_rule(&mut self, phase: Phase, matcher: Matcher, effect: Effect) -> RuleId {
        self.rules.add(phase, matcher, effect)
    }

    pub(crate) fn remove_rule(&mut self, rule: RuleId, now: Duration) {
        self.rules.remove(rule);
        self.release(now);
    }

    /// How often a rule has struck.
    pub(crate) fn times_struck(&self, rule: RuleId) -> u64 {
        self.seen.struck.get(&rule).copied().unwrap_or_default()
    }

    /// Ends every fault.
    pub(crate) fn heal(&mut self, now: Duration) {
        self.rules.clear();
        self.calm(Whom::All, now);
        self.release(now);
    }

    /// Ends what connections suffer; if all are meant, also those to come.
    pub(crate) fn calm(&mut self, whom: Whom, now: Duration) {
        for id in self.meant(whom) {
            if let Some(line) = self.lines.get_mut(&id) {
                // One that still waited for its turn would come after the end of all faults.
                let is_said = |(_, said): &(_, Outgoing)| !matches!(said, Outgoing::Silence);
                line.outgoing.retain(is_said);
            }
        }
        self.change(whom, now, |regime| *regime = Regime::default());
    }

    /// What another member of its ensemble has sent.
    pub(crate) fn packet(&mut self, from: MemberId, packet: Packet, now: Duration) {
        self.core.packet(from, packet, now);
        self.collect(now);
        self.speak(now);
    }

    /// Has something done to the core that is not a client's doing.
    pub(crate) fn order(&mut self, now: Duration, order: impl FnOnce(&mut Core)) {
        order(&mut self.core);
        self.collect(now);
        self.speak(now);
    }

    pub(crate) fn runs(&self) -> bool {
        self.pace == Pace::Runs
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.pace == Pace::Stopped
    }

    /// Whether nothing is to be heard until [`Machine::resume`].
    pub(crate) fn is_paused(&self) -> bool {
        self.pace == Pace::Paused
    }

    /// Nothing is heard, said or done any more. What it has said already is on its way.
    pub(crate) fn pause(&mut self) {
        if self.pace == Pace::Runs {
            self.pace = Pace::Paused;
        }
    }

    /// Goes on. What its time brings about comes with the next [`Machine::advance`].
    pub(crate) fn wake(&mut self) {
        if self.is_paused() {
            self.pace = Pace::Runs;
        }
    }

    /// The server ends: its connections with it.
    pub(crate) fn stop(&mut self, now: Duration) {
        self.pace = Pace::Stopped;
        let ids: Vec<_> = self.lines.keys().copied().collect();
        for id in ids {
            self.drop_line(id, Act::Reset);
        }
        self.core.restart(now);
    }

    /// The server starts again.
    pub(crate) fn start(&mut self, now: Duration) {
        self.pace = Pace::Runs;
        self.core.restart(now);
    }

    fn meant(&self, whom: Whom) -> Vec<ConnectionId> {
        match whom {
            Whom::All => self.lines.keys().copied().collect(),
            Whom::Session(session) => self.core.connection_of(session).into_iter().collect(),
        }
    }

    /// Lets go what is held by rules that are gone.
    fn release(&mut self, now: Duration) {
        for line in self.lines.values_mut() {
            if line
                .incoming
                .held_by()
                .is_some_and(|rule| !self.rules.contains(rule))
            {
                line.incoming.release();
            }
            if line
                .outgoing
                .held_by()
                .is_some_and(|rule| !self.rules.contains(rule))
            {
                line.outgoing.release();
            }
        }
        self.advance(now);
    }

    /// Hands what has arrived on a connection to the core.
    fn hear(&mut self, id: ConnectionId, now: Duration) {
        loop {
            let Some(line) = self.lines.get_mut(&id) else {
                return;
            };
            if line.regime.deaf || line.closing {
                return;
            }
            let Some(piece) = line.incoming.pop(now) else {
                return;
            };
            let judged = line.judged.take();
            match piece {
                Incoming::Word(word) => {
                    self.core.word(id, word);
                    self.collect(now);
                }
                Incoming::End => {
                    // What was answered before still goes out.
                    line.close(now, Outgoing::End);
                    self.core.closed(id);
                    self.touched.insert(id);
                    return;
                }
                Incoming::Frame(frame) => self.judge(id, frame, judged, now),
            }
        }
    }

    fn judge(&mut self, id: ConnectionId, frame: Vec<u8>, judged: Option<Sentence>, now: Duration) {
        // What was held was judged, and counted, when it came.
        let mut sentence = judged.unwrap_or_else(|| {
            let asked = self.asked(id, &frame);
            let sentence = self.rules.judge(&asked);
            self.remember(asked);
            sentence
        });
        // Since it came, the rule may have been taken away.
        sentence.on_reply = sentence
            .on_reply
            .filter(|(rule, _)| self.rules.contains(*rule));
        let Some((rule, effect)) = sentence.on_request else {
            self.await_reply(id, sentence.on_reply);
            self.core.frame(id, &frame, now);
            return self.collect(now);
        };
        self.strike(rule);
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        match effect {
            Effect::Hold => {
                line.judged = Some(Sentence {
                    on_request: None,
                    ..sentence
                });
                line.incoming.hold(now, Incoming::Frame(frame), rule);
            }
            Effect::Lose(Loss::Silent) => {}
            Effect::Lose(Loss::Cut) => {
                line.close(now, Outgoing::Cut);
                self.core.closed(id);
                self.touched.insert(id);
            }
            Effect::Lose(Loss::Hang) => {
                line.regime.deaf = true;
                line.outgoing.push(now, (None, Outgoing::Silence));
                self.touched.insert(id);
            }
            Effect::Answer(code) => {
                if let Ok(header) = RequestHeader::read(&mut Reader::new(&frame)) {
                    self.await_reply(id, sentence.on_reply);
                    self.core.refuse(id, header.xid, code, now);
                    self.collect(now);
                }
            }
        }
    }

    fn asked(&self, id: ConnectionId, frame: &[u8]) -> Asked {
        let connection = self.core.connections.get(&id);
        let Some(session) = connection.and_then(|connection| connection.session) else {
            return Asked::connect();
        };
        let mut reader = Reader::new(frame);
        match RequestHeader::read(&mut reader) {
            Ok(header) => {
                let request = Request::read(header.opcode, &mut reader).ok();
                Asked::new(session, header.opcode, request.as_ref())
            }
            Err(_) => Asked::new(session, 0, None),
        }
    }

    fn remember(&mut self, asked: Asked) {
        let seen = &mut self.seen;
        for kind in asked.kinds() {
            *seen.counts.entry(kind).or_default() += 1;
        }
        seen.asked_bytes += asked.size();
        seen.asked.push_back(asked);
        while seen.asked.len() > REMEMBERED || seen.asked_bytes > REMEMBERED_BYTES {
            let forgotten = seen.asked.pop_front();
            seen.asked_bytes -= forgotten.as_ref().map_or(0, Asked::size);
        }
    }

    /// Notes what is to happen to the reply to the frame that the core gets next.
    fn await_reply(&mut self, id: ConnectionId, sentence: Option<(RuleId, Effect)>) {
        let connection = self.core.connections.get(&id);
        let next = connection.map_or(0, |connection| connection.received) + 1;
        if let (Some(line), Some(sentence)) = (self.lines.get_mut(&id), sentence) {
            line.sentences.insert(next, sentence);
        }
    }

    /// Puts what the core has said on the lanes.
    fn collect(&mut self, now: Duration) {
        for output in self.core.take_outputs() {
            match output {
                Output::Send { to, bytes, what } => {
                    let line = self.lines.get_mut(&to);
                    let sentence = line.and_then(|line| match what {
                        Said::Reply(frame) => line.sentences.remove(&frame),
                        Said::Event => None,
                    });
                    // While it was asked of other servers, the rule may have been taken away.
                    let sentence = sentence.filter(|(rule, _)| self.rules.contains(*rule));
                    self.send(to, bytes, sentence, now);
                }
                Output::Close { to } => {
                    self.touched.insert(to);
                    if let Some(line) = self.lines.get_mut(&to) {
                        line.close(now, Outgoing::End);
                    }
                }
            }
        }
    }

    fn send(
        &mut self,
        to: ConnectionId,
        bytes: Vec<u8>,
        sentence: Option<(RuleId, Effect)>,
        now: Duration,
    ) {
        self.touched.insert(to);
        let Some(line) = self.lines.get_mut(&to) else {
            return;
        };
        let due = now.saturating_add(line.regime.delay);
        let Some((rule, effect)) = sentence else {
            return line.outgoing.push(due, (None, Outgoing::Bytes(bytes)));
        };
        // It strikes when the reply's turn comes, after all before it; a held one is told then.
        match effect {
            Effect::Hold => line
                .outgoing
                .push(due, (Some(rule), Outgoing::Bytes(bytes))),
            Effect::Lose(Loss::Silent) | Effect::Answer(_) => self.strike(rule),
            Effect::Lose(Loss::Cut) => {
                line.close(now, Outgoing::Cut);
                self.core.closed(to);
                self.strike(rule);
            }
            Effect::Lose(Loss::Hang) => {
                line.outgoing.push(due, (None, Outgoing::Silence));
                line.regime.deaf = true;
                self.strike(rule);
            }
        }
    }

    fn strike(&mut self, rule: RuleId) {
        *self.seen.struck.entry(rule).or_default() += 1;
    }

    /// Sends what is due, if the server runs. What is touched stays so until then.
    fn speak(&mut self, now: Duration) {
        if self.pace != Pace::Runs {
            return;
        }
        for id in std::mem::take(&mut self.touched) {
            self.speak_to(id, now);
        }
    }

    fn speak_to(&mut self, id: ConnectionId, now: Duration) {
        loop {
            let Some(line) = self.lines.get_mut(&id).filter(|line| !line.regime.mute) else {
                return;
            };
            let Some((rule, outgoing)) = line.outgoing.pop(now) else {
                return;
            };
            if let Some(rule) = rule.filter(|rule| self.rules.contains(*rule)) {
                line.outgoing.hold(now, (None, outgoing), rule);
                return self.strike(rule);
            }
            match outgoing {
                Outgoing::Bytes(bytes) => self.acts.push((id, Act::Write(bytes))),
                Outgoing::End => return self.drop_line(id, Act::Finish),
                Outgoing::Cut => return self.drop_line(id, Act::Reset),
                Outgoing::Silence => line.regime.mute = true,
            }
        }
    }

    fn drop_line(&mut self, id: ConnectionId, act: Act) {
        if self.lines.remove(&id).is_some() {
            self.core.closed(id);
            self.acts.push((id, act));
        }
    }
}
