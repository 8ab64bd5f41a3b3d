//! [`OncePerBuilder`]: the settings of a [`OncePer`].

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::OncePer;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::recipe::job_run::LostRuns;
use crate::recipe::mutex::Mutex;
use crate::recipe::record_node::RecordNode;
use crate::session::observe::observer::Label;
use crate::znode::job::{Periods, Rerun, Terms, Times};
use crate::znode::names::Dialect;
use crate::znode::path::LockPath;

/// Longer keys are refused, as every run of a record has one.
const MOST_KEY_BYTES: usize = 255;

/// The most runs that a record can be told to keep.
const MOST_KEPT: usize = 10_000;

/// Settings of a [`OncePer`]; made by [`OncePer::builder`].
#[derive(Debug)]
#[must_use]
pub struct OncePerBuilder<'a> {
    client: &'a Client,
    path: &'a str,
    every: Option<Duration>,
    anchor: SystemTime,
    key: Option<&'a str>,
    after_failure: Rerun,
    after_death: Rerun,
    catch_up: u32,
    keep: Option<usize>,
    dialect: Dialect,
    revocable: bool,
    label: Label,
}

impl<'a> OncePerBuilder<'a> {
    pub(super) fn new(client: &'a Client, path: &'a str) -> Self {
        Self {
            client,
            path,
            every: None,
            anchor: UNIX_EPOCH,
            key: None,
            after_failure: Rerun::Again,
            after_death: Rerun::WhenTold,
            catch_up: 0,
            keep: None,
            dialect: Dialect::default(),
            revocable: false,
            label: None,
        }
    }

    /// Once for each period of this length: whole milliseconds, up to 100 years.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// A moment at which a period begins. Defaults to 1970-01-01T00:00Z: a day begins at midnight UTC,
    /// and a week on a Thursday.
    pub fn anchor(mut self, anchor: SystemTime) -> Self {
        self.anchor = anchor;
        self
    }

    /// Once for each key, and this one: any text of 1 to 255 bytes. Others can read it.
    pub fn key(mut self, key: &'a str) -> Self {
        self.key = Some(key);
        self
    }

    /// What follows a run that failed. Defaults to [`Rerun::Again`]: whoever comes next in the same
    /// period tries it.
    pub fn after_failure(mut self, rerun: Rerun) -> Self {
        self.after_failure = rerun;
        self
    }

    /// What follows a run that died. Defaults to [`Rerun::WhenTold`]: its work may have been done, all
    /// but the last word. Take [`Rerun::Again`] if the work can be done twice.
    ///
    /// The next period, or another key, begins in any case; [`JobRun::previous`](crate::JobRun::previous)
    /// says what came before.
    pub fn after_death(mut self, rerun: Rerun) -> Self {
        self.after_death = rerun;
        self
    }

    /// Gives so many missed periods, the latest ones, a run each, the oldest first, before the present
    /// one: call [`OncePer::begin`] until it says that it is done. So is the last one begun, if it failed or died and may be run again.
    /// Defaults to 0: the present period alone is run.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// use std::time::Duration;
    /// use zklock::{Begun, OncePer};
    ///
    /// let hourly = OncePer::builder(&client, "/jobs/invoices").every(Duration::from_secs(3600));
    /// let hourly = hourly.catch_up(24).build()?;
    /// # let mut hours = Vec::new();
    /// # if let Begun::Run(run) = hourly.begin()? { run.done()?; }
    /// # server.advance_clock(Duration::from_secs(3 * 3600));
    /// while let Begun::Run(run) = hourly.begin()? {
    ///     let hour = run.period().expect("built with a length");
    ///     println!("invoices of the hour from {hour}");
    /// #   hours.push(hour.number());
    ///     run.done()?;
    /// }
    /// # assert_eq!(hours.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn catch_up(mut self, most: u32) -> Self {
        self.catch_up = most;
        self
    }

    /// How many runs the record keeps, 1 to 10,000. Defaults to 100 for periods, and to 1,000 for keys.
    /// Attempts that another attempt followed are forgotten first, then the oldest runs: so it keeps as many
    /// keys as this. It keeps fewer once the text has 512 KiB; a run takes some 300 bytes, and what its key and
    /// its failure's reason have.
    ///
    /// Of periods nothing depends on it, as the greatest is kept apart. A key that is forgotten counts as
    /// new: keep more than can come again. Whoever begins a run forgets by its own number, so give all
    /// programs of one path the same.
    pub fn keep(mut self, runs: usize) -> Self {
        self.keep = Some(runs);
        self
    }

    /// Whose node names the lock uses; see [`MutexBuilder::dialect`](crate::MutexBuilder::dialect).
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Whether others may ask a run to end; see
    /// [`MutexBuilder::revocable`](crate::MutexBuilder::revocable). Defaults to no.
    pub fn revocable(mut self, revocable: bool) -> Self {
        self.revocable = revocable;
        self
    }

    /// The name under which the client's [`Observer`](crate::Observer) hears of the lock; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to none.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Builds the job. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path, the length, the key or a setting is not possible,
    /// or there is neither a length nor a key, or both; [`is_forked`](Error::is_forked).
    pub fn build(self) -> Result<OncePer> {
        let folder = LockPath::parse(self.path).map_err(Error::invalid)?;
        let refused = |why: String| Error::invalid(format!("{folder}: {why}"));
        let times = match (self.every, self.key) {
            (Some(every), None) => {
                Times::Periods(Periods::new(every, self.anchor).map_err(refused)?)
            }
            (None, Some(key)) if (1..=MOST_KEY_BYTES).contains(&key.len()) => Times::Keys,
            (None, Some(key)) => {
                let bytes = key.len();
                return Err(refused(format!(
                    "a key of {bytes} bytes; it has 1 to {MOST_KEY_BYTES}"
                )));
            }
            _ => return Err(refused("a job needs a length or a key".to_owned())),
        };
        let keep = self.keep.unwrap_or(match times {
            Times::Periods(_) => 100,
            Times::Keys => 1_000,
        });
        if !(1..=MOST_KEPT).contains(&keep) {
            return Err(refused(format!("a record keeps 1 to {MOST_KEPT} runs")));
        }
        let lock = Mutex::builder(self.client, self.path)
            .dialect(self.dialect)
            // Each run has a node, and so a token, of its own.
            .local_hand_off(false)
            // Who has a run would find it dead.
            .reentrant(false)
            .revocable(self.revocable);
        let lock = match self.label {
            Some(label) => lock.label(label),
            None => lock,
        };
        Ok(OncePer {
            lock: lock.build()?,
            node: RecordNode::of(&folder),
            times,
            key: self.key.map(Arc::from),
            terms: Terms {
                after_failure: self.after_failure,
                after_death: self.after_death,
                catch_up: self.catch_up,
                keep,
            },
            lost: LostRuns::default(),
        })
    }
}
