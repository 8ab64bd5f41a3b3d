//! [`JobRecord`]: what is known of a job's runs.

use std::fmt;
use std::time::SystemTime;

use super::periods::{Period, Periods};
use super::utc::Moment;
use crate::znode::fencing::FencingToken;
use crate::znode::identity::Identity;

/// The runs of a job that is done [once for each period or key](crate::OncePer), as its record in
/// ZooKeeper has them.
///
/// From [`OncePer::record`](crate::OncePer::record). The record is the node `record` in the job's
/// folder: UTF-8 text of lines, of which each is words with single spaces between. The first line is
/// the format and its version. It stands for itself:
///
/// ```text
/// zklock-once 1
/// periods every_ms=86400000 anchor=1970-01-01T00:00:00.000Z greatest=20779
/// run period=20778 attempt=1 missed=0 state=done started=2026-11-21T00:00:00.412Z ended=2026-11-21T00:10:31.007Z token=4294967311 node=_c_9a..-lock-0000000007 id=5d8e.. host=web-1 pid=4242 thread=main since=1795219200398
/// run period=20779 attempt=1 missed=0 state=started started=2026-11-22T00:00:00.398Z token=4294967377 node=_c_7b..-lock-0000000009 id=0c41.. host=web-2 pid=771 thread=main since=1795305600385
/// ```
///
/// For a job that is done for each key the second line is `keys`, and a run has `key=` instead of
/// `period=` and `missed=`. `started` and `ended` are of the servers' clock, `since` of the runner's own,
/// in milliseconds since 1970. In a key, a name, or a failure's `why`, the bytes of `%`, spaces and control
/// characters are written as `%` and two hexadecimal digits. The text has nothing secret in it, as
/// long as keys and reasons have not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    pub(super) times: Times,
    /// The greatest period that was begun.
    pub(super) greatest: Option<i64>,
    pub(super) reset: Option<Reset>,
    /// The oldest first.
    pub(super) runs: Vec<RunRecord>,
}

/// What a job is done once for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    Periods(Periods),
    Keys,
}

/// Somebody has set the greatest period back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reset {
    pub(super) at: Moment,
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) who: Identity,
}

/// One run of a job, of a [`JobRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    pub(super) occasion: Occasion,
    /// The period of that number, if it can be written.
    pub(super) period: Option<Period>,
    pub(super) attempt: u32,
    /// Periods that were never begun, between the greatest one before and this one.
    pub(super) missed: u64,
    pub(super) state: RunState,
    pub(super) started: Moment,
    pub(super) ended: Option<Moment>,
    pub(super) token: u64,
    /// The name of the node by which the lock was held.
    pub(super) node: String,
    /// Tells this run from every other.
    pub(super) id: String,
    pub(super) who: Identity,
    /// Of a failure.
    pub(super) why: Option<String>,
    /// Somebody has said that it may be run again.
    pub(super) again: bool,
}

/// What a run is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Occasion {
    Period(i64),
    Key(String),
}

/// What came of a run, from [`RunRecord::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunState {
    /// It has begun, and its lock is held.
    Running,
    /// It was done.
    Done,
    /// Whoever ran it said so, or panicked, or let go of it without a word.
    Failed,
    /// It has begun, its lock is gone, and nobody has said how it ended: the process was killed, its
    /// session was lost, or its node was removed.
    Died,
    /// As [`Died`](Self::Died), and the process that ran it lived on to say why: it was stopped or
    /// out of contact for too long, and lost its session.
    SessionLost,
    /// As [`Died`](Self::Died), and the process that ran it lived on to say why: somebody removed the
    /// node by which it held.
    LockRemoved,
}

/// How a process lost the lock of a run that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Session,
    Removed,
    /// Before anybody had the run: whether it was begun was not known.
    NotGivenOut,
}

impl JobRecord {
    /// Of a job that was never begun.
    pub(crate) fn new(times: Times) -> Self {
        Self {
            times,
            greatest: None,
            reset: None,
            runs: Vec::new(),
        }
    }

    /// The runs that are kept, the oldest first; several of one period or key are its attempts.
    #[must_use]
    pub fn runs(&self) -> &[RunRecord] {
        &self.runs
    }

    /// The last run that was begun, if any.
    #[must_use]
    pub fn last(&self) -> Option<&RunRecord> {
        self.runs.last()
    }

    /// The last run of this key.
    #[must_use]
    pub fn of_key(&self, key: &str) -> Option<&RunRecord> {
        let mut runs = self.runs.iter().rev();
        runs.find(|run| run.key() == Some(key))
    }

    /// The length of a period; `None` if the job is done for each key.
    #[must_use]
    pub fn every(&self) -> Option<std::time::Duration> {
        match self.times {
            Times::Periods(periods) => u64::try_from(periods.every_ms())
                .ok()
                .map(std::time::Duration::from_millis),
            Times::Keys => None,
        }
    }

    /// The moment from which periods are counted; `None` if the job is done for each key.
    #[must_use]
    pub fn anchor(&self) -> Option<SystemTime> {
        match self.times {
            Times::Periods(periods) => Some(periods.anchor().time()),
            Times::Keys => None,
        }
    }

    /// The greatest period that was begun: no smaller one begins. `None` before the first, and if the
    /// job is done for each key.
    #[must_use]
    pub fn greatest_period(&self) -> Option<Period> {
        match (self.times, self.greatest) {
            (Times::Periods(periods), Some(greatest)) => periods.period(greatest),
            _ => None,
        }
    }

    pub(crate) fn times(&self) -> Times {
        self.times
    }

    /// The last attempt.
    pub(super) fn last_of(&self, occasion: &Occasion) -> Option<usize> {
        let is_it = |run: &RunRecord| run.occasion == *occasion;
        self.runs.iter().rposition(is_it)
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Periods(periods) => periods.fmt(f),
            Self::Keys => f.write_str("keys"),
        }
    }
}

impl RunRecord {
    /// Its period; `None` if the job is done for each key.
    #[must_use]
    pub fn period(&self) -> Option<Period> {
        self.period
    }

    /// Its key; `None` if the job is done for each period.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match &self.occasion {
            Occasion::Key(key) => Some(key),
            Occasion::Period(_) => None,
        }
    }

    /// 1 for the first run of its period or key.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How many periods before its own were never begun, counted from the greatest that was.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// What came of it.
    #[must_use]
    pub fn state(&self) -> RunState {
        self.state
    }

    /// When it was begun, by the servers' clock.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        self.started.time()
    }

    /// When it was done or had failed, by the servers' clock; of one that died, when that was found.
    #[must_use]
    pub fn ended(&self) -> Option<SystemTime> {
        self.ended.map(Moment::time)
    }

    /// Who ran it.
    #[must_use]
    pub fn who(&self) -> &Identity {
        &self.who
    }

    /// The fencing token of the hold under which it ran.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken(self.token)
    }

    /// What was said of a failure.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Whether somebody has said that it may be run again, by
    /// [`OncePer::allow_again`](crate::OncePer::allow_again).
    #[must_use]
    pub fn may_run_again(&self) -> bool {
        self.again
    }

    /// The name of the node by which the lock was held.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl RunState {
    /// Neither done nor at work.
    #[must_use]
    pub fn is_unsettled(self) -> bool {
        !matches!(self, Self::Running | Self::Done)
    }

    /// One word, as in the record.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Running => "started",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Died => "died",
            Self::SessionLost => "session-lost",
            Self::LockRemoved => "lock-removed",
        }
    }

    pub(super) fn of_word(word: &str) -> Option<Self> {
        let all = [
            Self::Running,
            Self::Done,
            Self::Failed,
            Self::Died,
            Self::SessionLost,
            Self::LockRemoved,
        ];
        all.into_iter().find(|state| state.word() == word)
    }
}

/// `running`, `done`, `failed`, `died`, `session lost`, `lock removed`.
impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::SessionLost => "session lost",
            Self::LockRemoved => "lock removed",
            state => state.word(),
        })
    }
}

impl fmt::Display for Occasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Period(number) => write!(f, "period {number}"),
            Self::Key(key) => write!(f, "key {key:?}"),
        }
    }
}

/// Who did what when, on one line: for a message.
impl fmt::Display for RunRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.occasion.fmt(f)?;
        if let Some(period) = self.period {
            write!(f, " ({period})")?;
        }
        write!(
            f,
            " {}, attempt {}, by {}, token {}, begun {}",
            self.state,
            self.attempt,
            self.who.in_words(),
            self.token,
            self.started
        )?;
        if let Some(ended) = self.ended {
            write!(f, ", ended {ended}")?;
        }
        if let Some(why) = &self.why {
            write!(f, ": {}", why.escape_debug())?;
        }
        Ok(())
    }
}
