//! `zklock who` and `zklock watch`.

use std::io::{self, Write};
use std::thread;
use std::time::SystemTime;

use serde::Serialize;
use zklock::{Client, Dialect};

use super::entry::Entry;
use super::kind::Lock;
use crate::arguments::{Watch, Who};
use crate::connect::Connection;
use crate::say;
use crate::status::Failure;

pub(crate) fn who(connection: &Connection, arguments: &Who) -> Result<(), Failure> {
    let client = connection.connect()?;
    let queue = queue(&client, &arguments.path, connection.dialect.into())?;
    let mut out = io::stdout().lock();
    if arguments.json {
        super::write_json(&mut out, &queue)?;
    } else if queue.is_empty() {
        say(format_args!(
            "{}: nobody holds it or waits for it",
            arguments.path
        ));
    }
    if !arguments.json {
        for entry in queue {
            writeln!(out, "{entry}")?;
        }
    }
    Ok(())
}

/// Who holds and who waits, whatever kind of lock it is.
pub(crate) fn queue(client: &Client, path: &str, dialect: Dialect) -> zklock::Result<Vec<Entry>> {
    let mut queue = Vec::new();
    for lock in Lock::all_at(client, path, dialect)? {
        queue.extend(lock.queue()?.iter().map(Entry::of));
    }
    Ok(queue)
}

/// What is new with a participant.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum News {
    /// It stood there when we came.
    Is,
    Came,
    /// It waited, and holds now.
    Got,
    Left,
}

#[derive(Serialize)]
struct Line<'a> {
    at: String,
    news: News,
    #[serde(flatten)]
    entry: &'a Entry,
}

pub(crate) fn watch(connection: &Connection, arguments: &Watch) -> Result<(), Failure> {
    let client = connection.connect()?;
    let dialect = connection.dialect.into();
    let mut known = queue(&client, &arguments.path, dialect)?;
    for entry in &known {
        tell(arguments.json, News::Is, entry)?;
    }
    loop {
        thread::sleep(arguments.every);
        let queue = match queue(&client, &arguments.path, dialect) {
            Ok(queue) => queue,
            Err(error) if error.is_connection_loss() => {
                say(format_args!("{error}; going on"));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for (news, entry) in changes(&known, &queue) {
            tell(arguments.json, news, entry)?;
        }
        known = queue;
    }
}

/// What has changed, in the order in which it may have happened: a lock is left before it is got.
fn changes<'a>(before: &'a [Entry], now: &'a [Entry]) -> Vec<(News, &'a Entry)> {
    let find = |queue: &'a [Entry], node: &str| queue.iter().find(|entry| entry.node == node);
    let left = before
        .iter()
        .filter(|entry| find(now, &entry.node).is_none())
        .map(|entry| (News::Left, entry));
    let here = now
        .iter()
        .filter_map(|entry| match find(before, &entry.node) {
            None => Some((News::Came, entry)),
            Some(old) if entry.holds && !old.holds => Some((News::Got, entry)),
            Some(_) => None,
        });
    left.chain(here).collect()
}

fn tell(json: bool, news: News, entry: &Entry) -> Result<(), Failure> {
    let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let mut out = io::stdout().lock();
    if json {
        super::write_json(&mut out, &Line { at, news, entry })?;
    } else {
        let news = match news {
            News::Is => "is",
            News::Came => "came",
            News::Got => "got",
            News::Left => "left",
        };
        writeln!(out, "{at}  {news:<4}  {entry}")?;
    }
    // Somebody watches, perhaps through a pipe.
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(node: &str, holds: bool) -> Entry {
        let mut entry = Entry::default();
        node.clone_into(&mut entry.node);
        entry.holds = holds;
        entry
    }

    #[test]
    fn a_lock_is_left_before_it_is_got() {
        let before = [entry("a", true), entry("b", false)];
        let now = [entry("b", true), entry("c", false)];
        let changes: Vec<_> = changes(&before, &now)
            .into_iter()
            .map(|(news, entry)| (news, entry.node.as_str()))
            .collect();
        assert_eq!(
            changes,
            [(News::Left, "a"), (News::Got, "b"), (News::Came, "c")]
        );
    }
}
