//! What the answers on one connection prove about the leader: pure, and bounded.
//!
//! Only the leader expires a session, and a follower that has lost its leader goes on answering
//! reads. So one answer proves little. Three in a row prove that the leader has been told of us,
//! because what it says to a follower, and the follower to it, keeps its order:
//!
//! ```text
//!        s1   r1        s2      r2   s3      r3
//!  us  ---+----+---------+-------+----+-------+----> time
//!          (1) |<-- M -->|  (2)  |    |  (3)  |
//!         marks us    a PING in between is     what is answered to (3)
//!         there       answered before (2) is   came to the leader after that
//! ```
//!
//! 1. any request, sent at `s1` and answered at `r1`: the follower's table has a mark for us;
//! 2. a sync or write, sent at `s2 >= r1 + M` and answered at `r2`. Between `r1` and `r1 + M` the
//!    leader has sent that follower a PING. The follower answered the PING, with the mark, before
//!    it handled what came back for (2);
//! 3. a sync or write, sent at `s3 >= r2` and answered: it went to the leader behind that answer.
//!
//! Then the leader expires the session no earlier than `s1` + its timeout. `s1` is a **base**:
//! *proven* if (3) was a write, which takes a quorum; *assumed* if it was a sync, which a deposed
//! leader answers too. docs/lease.md has the whole argument.

#[cfg(all(test, not(shuttle)))]
mod model;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use super::moment::Moment;

/// What a request can prove when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Kind {
    /// The server that it was sent to lives: reads and pings.
    Read,
    /// A leader, deposed or not, has heard from that server.
    Sync,
    /// The leader had a quorum.
    Write,
}

/// The times of the proof, as parts of the session's timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) struct ProbeIntervals {
    /// M: within any such time the leader sends its followers one PING.
    pub(in crate::link) ping_within: Duration,
    /// q: a probe goes out when nothing of its kind was sent for this long.
    pub(in crate::link) probe_after: Duration,
    /// A probe that is not answered for this long is the reason to go to another server.
    pub(in crate::link) patience: Duration,
}

impl ProbeIntervals {
    /// For a session of `timeout`, in an ensemble whose `tick` (`tickTime`) may be known.
    ///
    /// The leader wakes every `tick / 2` and sends a PING each time, a little later when it is
    /// busy. So M is `tick / 2` and a margin for lateness.
    ///
    /// - Not known: servers grant no timeout below two ticks unless told to
    ///   (`minSessionTimeout`, see [`doubt`](Self::doubt)), so `tick / 2` is at most T/4. M is T/3.
    /// - Known: M is `tick`, so that a PING may be late by half a tick. But no more than T/3 where
    ///   that leaves a margin of a sixth of a tick, as it does for T at two ticks.
    ///
    /// Where M is T/3, q is T/11, so that the fourth probe after a (1) is a (2) for round trips of
    /// up to T/33. With T/12 it would be the fifth for any: each base older by a probe.
    pub(in crate::link) fn of(timeout: Duration, tick: Option<Duration>) -> Self {
        let third = timeout / 3;
        Self {
            ping_within: tick.map_or(third, |tick| tick.min(third.max(tick * 2 / 3))),
            probe_after: timeout / 11,
            patience: timeout / 6,
        }
    }

    /// Why a session of `timeout` may be too short for these times.
    ///
    /// With a known tick M is never too small, but little is left of the session when it is proven:
    /// of less than a tick, nothing. With an unknown one M is too small below a tick and a half, and
    /// no server tells a client the tick.
    pub(in crate::link) fn doubt(timeout: Duration, tick: Option<Duration>) -> Option<String> {
        let least = tick.unwrap_or(USUAL_TICK) * 2;
        (timeout < least).then(|| {
            let granted = format!("the servers have granted a session timeout of {timeout:?}");
            match tick {
                Some(tick) => format!(
                    "{granted}, less than two of their ticks of {tick:?}: little trouble is enough \
                     to lose locks; ask for more, and have minSessionTimeout raised"
                ),
                None => format!(
                    "{granted}; if that is less than two of their ticks (tickTime), a holder may \
                     hear of its loss too late: say what the tick is, by ClientBuilder::tick_time"
                ),
            }
        })
    }
}

/// A server's tickTime, if its configuration says nothing else.
const USUAL_TICK: Duration = Duration::from_secs(2);

/// How a connection's session came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Opening {
    /// Created: a write, so its sending is a proven base.
    Created,
    /// Resumed: at a deposed leader, perhaps, so its sending is assumed until a write is answered.
    Resumed,
}

/// A request that is in flight: what its answer is worth was settled when it was sent. To be kept
/// beside what is known of the request, and to be dropped if it is answered with an error or not
/// at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) struct Sent {
    kind: Kind,
    at: Moment,
    /// As (2): the newest `s1` whose `r1` lies at least M before this sending.
    confirms: Option<Moment>,
    /// As (3): the newest `s1` that was confirmed when this was sent.
    proves: Moment,
}

/// The newest bases that an answer has shown. Never newer proven than assumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bases {
    pub(crate) assumed: Option<Moment>,
    pub(crate) proven: Option<Moment>,
}

/// A probe to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) struct Probe {
    pub(in crate::link) kind: Kind,
    /// When, if nothing of its kind is sent before.
    pub(in crate::link) due: Moment,
}

/// The proofs of one connection. What is half built ends with it: a new connection has a new
/// chain, and may have another leader behind it.
///
/// No log of requests is kept. Time goes on, so each question about the past is asked with a
/// later bound than the one before, and two of the three have a single number for an answer:
///
/// - (3) asks for the newest `s1` confirmed by any `r2 <= s3`. When (3) is sent, these are all
///   that were confirmed so far: the maximum, `confirmed`.
/// - (2) asks for the newest `s1` with `r1 <= s2 - M`. `s2` only grows, so all that is old enough
///   once is old enough for ever, and only its maximum, `ripe`, can matter again.
/// - What is younger than M is kept in groups: answers whose `r1` lie within M/16 of the first
///   count as answered when the last of them was. That is never too early, and no more than M/16
///   too late. Groups begin at least M/16 apart and live for M, so there are at most
///   [`GROUPS_MOST`].
#[derive(Debug)]
pub(in crate::link) struct Chain {
    intervals: ProbeIntervals,
    /// The latest moment that it was told of. Threads read the clock before they take the lock
    /// under which they call: a moment may be told late, and then counts as this one. It is before
    /// the request's bytes go out, or after the answer's came in, all the same.
    latest: Moment,
    young: VecDeque<Group>,
    ripe: Option<Moment>,
    confirmed: Moment,
    last_write: Option<Moment>,
    last_probe: Moment,
}

/// Answers that came within a short time.
#[derive(Clone, Copy, Debug)]
struct Group {
    first_answered: Moment,
    last_answered: Moment,
    /// The newest sending among them.
    sent: Moment,
}

const GROUPS_IN_M: u32 = 16;

/// All but the first of the young groups begin within the last M, at least M/16 apart; two more
/// for the first and for rounding.
#[cfg(test)]
const GROUPS_MOST: usize = GROUPS_IN_M as usize + 2;

impl Chain {
    /// For a connection whose handshake was sent at `sent_at` and answered.
    pub(in crate::link) fn new(
        intervals: ProbeIntervals,
        opening: Opening,
        sent_at: Moment,
    ) -> Self {
        Self {
            intervals,
            latest: sent_at,
            young: VecDeque::new(),
            ripe: None,
            // It touched at the leader itself: nothing is left to confirm.
            confirmed: sent_at,
            last_write: (opening == Opening::Created).then_some(sent_at),
            last_probe: sent_at,
        }
    }

    /// A request is about to be sent: to be called in the order of sending, and before the first
    /// of its bytes is written.
    pub(in crate::link) fn sent(&mut self, kind: Kind, now: Moment) -> Sent {
        let now = self.on(now);
        if kind != Kind::Read {
            self.last_probe = now;
        }
        if kind == Kind::Write {
            self.last_write = Some(now);
        }
        Sent {
            kind,
            at: now,
            confirms: self.ripe,
            proves: self.confirmed,
        }
    }

    /// `request`, sent on this connection, was answered without error: to be called in the order
    /// of the answers.
    pub(in crate::link) fn answered(&mut self, request: Sent, now: Moment) -> Bases {
        let now = self.on(now);
        self.note(request.at, now);
        if request.kind == Kind::Read {
            return Bases::default();
        }
        self.confirmed = request
            .confirms
            .map_or(self.confirmed, |s1| s1.max(self.confirmed));
        Bases {
            assumed: Some(request.proves),
            proven: (request.kind == Kind::Write).then_some(request.proves),
        }
    }

    /// How long a request may go unanswered before another server is tried.
    pub(in crate::link) fn patience(&self) -> Duration {
        self.intervals.patience
    }

    /// The next probe. `writes`: a node of ours stands, or is next in line.
    pub(in crate::link) fn next_probe(&self, writes: bool) -> Probe {
        let (kind, last) = if writes {
            (Kind::Write, self.last_write)
        } else {
            (Kind::Sync, Some(self.last_probe))
        };
        // After a resume nothing is proven until a write is answered: at once.
        let due = last.map_or(self.latest, |last| last.plus(self.intervals.probe_after));
        Probe { kind, due }
    }

    /// Time has come to `now`: what is old enough ripens.
    fn on(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        while let Some(group) = self.young.front()
            && group.last_answered.plus(self.intervals.ping_within) <= self.latest
        {
            self.ripe = self.ripe.max(Some(group.sent));
            self.young.pop_front();
        }
        self.latest
    }

    /// Remembers a (1).
    fn note(&mut self, sent: Moment, answered: Moment) {
        let span = self.intervals.ping_within / GROUPS_IN_M;
        match self.young.back_mut() {
            Some(group) if answered < group.first_answered.plus(span) => {
                group.last_answered = answered;
                group.sent = group.sent.max(sent);
            }
            _ => self.young.push_back(Group {
                first_answered: answered,
                last_answered: answered,
                sent,
            }),
        }
    }
}
