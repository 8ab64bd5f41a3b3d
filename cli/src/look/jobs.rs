//! `zklock jobs`.

use std::io::{self, Write};

use serde::Serialize;
use zklock::{Client, JobRecord, OncePer, RunRecord};

use super::entry::written;
use crate::arguments::Jobs;
use crate::connect::Connection;
use crate::say;
use crate::status::Failure;

/// One run.
#[derive(Serialize)]
struct Line {
    path: String,
    /// The first moment of its period.
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    attempt: u32,
    /// Periods before its own that nobody began.
    #[serde(skip_serializing_if = "is_zero")]
    missed: u64,
    state: String,
    started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    host: String,
    pid: u32,
    thread: String,
    token: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_run_again: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(crate) fn jobs(connection: &Connection, arguments: &Jobs) -> Result<(), Failure> {
    let client = connection.connect()?;
    let path = arguments.path.as_str();
    let record = match path {
        "/" => None,
        path => OncePer::record_at(&client, path)?,
    };
    if arguments.allow_again || arguments.reset {
        let record = record.ok_or_else(|| Failure::usage(format!("{path}: there is no job")))?;
        return settle(&client, connection, arguments, &record);
    }
    let lines = match record {
        Some(record) => record
            .runs()
            .iter()
            .map(|run| Line::of(path, run))
            .collect(),
        None => below(&client, path)?,
    };
    let mut out = io::stdout().lock();
    if arguments.json {
        super::write_json(&mut out, &lines)?;
    } else if lines.is_empty() {
        say(format_args!("{path}: no job was begun here"));
    } else {
        for line in lines {
            writeln!(out, "{}", line.text())?;
        }
    }
    Ok(())
}

/// The jobs right below a path, each with its last run.
fn below(client: &Client, path: &str) -> Result<Vec<Line>, Failure> {
    let mut names = client.children(path)?.unwrap_or_default();
    names.sort_unstable();
    let mut lines = Vec::new();
    for name in names {
        let path = format!("{}/{name}", path.trim_end_matches('/'));
        // The server's own.
        if path == "/zookeeper" {
            continue;
        }
        match OncePer::record_at(client, &path) {
            Ok(Some(record)) => lines.extend(record.last().map(|run| Line::of(&path, run))),
            Ok(None) => {}
            // Some other thing that is named as a record is, or one that is not for us.
            Err(error) if error.is_invalid() || error.is_no_auth() => {
                say(format_args!("{path}: left out: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(lines)
}

/// Somebody has looked at it, and says what is to be.
fn settle(
    client: &Client,
    connection: &Connection,
    arguments: &Jobs,
    record: &JobRecord,
) -> Result<(), Failure> {
    let path = arguments.path.as_str();
    let job = OncePer::builder(client, path).dialect(connection.dialect.into());
    let job = match (record.every(), record.anchor(), &arguments.key) {
        (Some(every), Some(anchor), None) => job.every(every).anchor(anchor),
        (None, _, Some(key)) => job.key(key),
        (Some(_), ..) => return Err(Failure::usage(format!("{path}: the job has no keys"))),
        (None, _, None) if arguments.reset => {
            let message = format!("{path}: a job for keys has no clock to be ahead of");
            return Err(Failure::usage(message));
        }
        (None, _, None) => return Err(Failure::usage(format!("{path}: of which --key?"))),
    };
    let job = job.build()?;
    if arguments.reset {
        let was_ahead = job.reset()?;
        say(format_args!(
            "{path}: {}",
            if was_ahead {
                "set back to the servers' clock"
            } else {
                "not ahead of the servers' clock: nothing to set back"
            }
        ));
        return Ok(());
    }
    match job.allow_again()? {
        Some(run) => {
            say(format_args!("{path}: may be run again: {run}"));
            Ok(())
        }
        None => Err(Failure::usage(format!(
            "{path}: the last run has neither failed nor died"
        ))),
    }
}

impl Line {
    fn of(path: &str, run: &RunRecord) -> Self {
        let who = run.who();
        Self {
            path: path.to_owned(),
            period: run.period().map(|period| period.to_string()),
            key: run.key().map(str::to_owned),
            attempt: run.attempt(),
            missed: run.missed(),
            state: run.state().to_string(),
            started: written(run.started()),
            ended: run.ended().and_then(written),
            host: who.host().to_owned(),
            pid: who.process_id(),
            thread: who.thread().to_owned(),
            token: run.fencing_token().as_u64(),
            why: run.why().map(str::to_owned),
            may_run_again: run.may_run_again(),
        }
    }

    /// For people. Nothing in it can move the cursor: a key is anybody's.
    fn text(&self) -> String {
        let what = self.period.as_deref().or(self.key.as_deref());
        let started = self.started.as_deref().unwrap_or("-");
        let ended = self.ended.as_deref().unwrap_or("-");
        let who = format!("{} pid {}", self.host.escape_debug(), self.pid);
        let mut notes = Vec::new();
        if self.attempt > 1 {
            notes.push(format!("attempt {}", self.attempt));
        }
        if self.missed > 0 {
            notes.push(format!("{} missed before", self.missed));
        }
        if let Some(why) = &self.why {
            notes.push(why.escape_debug().to_string());
        }
        if self.may_run_again {
            notes.push("may be run again".to_owned());
        }
        let line = format!(
            "{}  {:<24}  {:<12}  {started:<20}  {ended:<20}  {who:<28}  {}",
            self.path.escape_debug(),
            what.unwrap_or("-").escape_debug().to_string(),
            self.state,
            notes.join(", ")
        );
        line.trim_end().to_owned()
    }
}
