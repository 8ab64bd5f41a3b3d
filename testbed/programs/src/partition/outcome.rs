//! What came of a case, for one holder.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::{Case, Doing, Reach};

/// When who knew what, from the beginning of the trouble.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub case: Case,
    /// The unit of the servers' limits.
    pub tick: Duration,
    pub reach: Reach,
    pub doing: Doing,
    /// When the contender got in.
    pub next_in: Option<Duration>,
    /// When `state()` was first not `Held`.
    pub suspect: Option<Duration>,
    /// When `state()` was first `Lost`.
    pub lost: Option<Duration>,
    /// When `lost()` spoke.
    pub told: Option<Duration>,
}

impl Outcome {
    /// For how long two had the lock as far as they knew, by the later of the two ways in which a
    /// holder is told; none if the holder knew first. For ever counts as the longest there is.
    pub fn two_holders_for(&self) -> Option<Duration> {
        let next_in = self.next_in?;
        let Some((lost, told)) = self.lost.zip(self.told) else {
            return Some(Duration::MAX);
        };
        let knew = lost.max(told);
        // At one and the same moment is too late.
        (knew >= next_in).then(|| knew - next_in)
    }

    /// Whether the holder must lose its lock, and another get in: no server that it reaches can have its
    /// session renewed while that lasts.
    fn must_lose(&self) -> bool {
        let trouble = self.case.trouble;
        let parted = trouble.parts_side_from_quorum() && self.reach == Reach::Side;
        // The others elect nobody before they miss the leader.
        let outlasted =
            trouble.harms_leader() && self.tick * self.case.sync_limit > self.case.session;
        parted || outlasted
    }

    /// Whether nothing more is to come: the holder has lost its lock, knows it, and another has it; or
    /// it has not lost it though time `is_settled`, and need not.
    pub(super) fn is_over(&self, is_settled: bool) -> bool {
        match self.next_in {
            Some(_) => self.lost.is_some() && self.told.is_some(),
            None => is_settled && self.lost.is_none() && !self.must_lose(),
        }
    }

    /// Whether the case says nothing about the promise: nobody got in where somebody had to.
    pub fn is_void(&self) -> bool {
        let must_be_free = self.must_lose() || self.lost.is_some();
        must_be_free && self.next_in.is_none()
    }

    fn what_came(&self) -> String {
        match (self.two_holders_for(), self.next_in, self.lost) {
            (Some(Duration::MAX), ..) => "**two holders**, never told".to_owned(),
            (Some(overlap), ..) => format!("**two holders for {} s**", seconds(overlap)),
            (None, Some(_), _) => "told before".to_owned(),
            (None, None, Some(_)) => "told, nobody in".to_owned(),
            (None, None, None) => "kept".to_owned(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = self.case.session;
        let limit = self.tick * self.case.sync_limit;
        let reach = match self.reach {
            Reach::Side => "this side",
            Reach::All => "all",
        };
        let at = |at: Option<Duration>| at.map_or("-".to_owned(), seconds);
        write!(
            f,
            "| {} | {} | {} | {reach} | {:?} | {} | {} | {} | {} | {} |",
            self.case.trouble,
            session.as_secs_f64(),
            limit.as_secs_f64(),
            self.doing,
            at(self.suspect),
            at(self.lost),
            at(self.told),
            at(self.next_in),
            self.what_came(),
        )
    }
}

/// All outcomes as a table in Markdown.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut table = "| trouble | T, s | syncLimit, s | reaches | holder | not Held | Lost \
                     | `lost()` | next in | |\n|---|--:|--:|---|---|--:|--:|--:|--:|---|\n"
        .to_owned();
    for outcome in outcomes {
        writeln!(table, "{outcome}").expect("a String takes all");
    }
    table
}

fn seconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}
