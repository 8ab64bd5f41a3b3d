//! The record of a job that is done once for each period or key: what it says, how it is written, and
//! what whoever holds the job's lock may make of it.
//!
//! # The states of a run
//! ```text
//!            begin            done
//! (nothing) ------> started ------> done
//!                    |   | failed
//!                    |   +--------> failed --+
//!                    | bury                  | begin: a run more, of the same period or key
//!                    +------------> died ----+
//!                    | bury, by the process that had it
//!                    +------------> lost ----+
//! ```
//! Whoever writes holds the job's lock, and its write is executed only while it does. So there is one
//! writer at a time, and a late one is refused:
//!
//! | transition | who writes it |
//! |---|---|
//! | begin | the holder; with it what it finds to be over |
//! | done, failed | the holder that wrote *begin* of this run, in the same hold |
//! | died | a later holder: it holds, so the lock of whoever began is gone |
//! | lost | as *died*, if it remembers that it lost that lock itself, and how |
//! | failed, may be run again | as *lost*, or in the same hold: of a begin that was not given to the caller |
//! | again, reset | a holder, on somebody's order |
//!
//! # Where it can end
//! | a holder ends | what the next one sees |
//! |---|---|
//! | before *begin* is executed | nothing of it |
//! | between *begin* and *done*, wherever its work was | started, by a run that is not its own: died |
//! | after *done*, before its lock is given back | done |
//!
//! A begin whose answer was lost is looked for by the run's id, and so is a done. What is not found is
//! written again, if the lock is still there; if not, nobody may write it any more.
//!
//! # The clock
//! The time is that which the servers gave to a write of the holder, so there is one clock, of the
//! ensemble's leader. It may be wrong, and the next leader's another. So the record keeps the
//! greatest period begun, and no smaller one begins.

mod periods;
mod record;
mod rules;
mod text;
mod utc;

pub use self::periods::Period;
pub(crate) use self::periods::Periods;
pub use self::record::{JobRecord, RunRecord, RunState};
pub(crate) use self::record::{Loss, Times};
pub use self::rules::Rerun;
pub(crate) use self::rules::{Claim, End, Ended, Ruling, Terms};
pub(crate) use self::utc::Moment;
