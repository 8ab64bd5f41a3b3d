//! `zklock ls`.

use std::io::{self, Write};

use serde::Serialize;
use zklock::{Client, Dialect};

use super::entry::Entry;
use super::kind::{Kind, Lock};
use crate::arguments::Ls;
use crate::connect::Connection;
use crate::say;
use crate::status::Failure;

/// One lock.
#[derive(Serialize)]
struct Line {
    path: String,
    kind: &'static str,
    holders: Vec<Entry>,
    waiters: usize,
}

pub(crate) fn ls(connection: &Connection, arguments: &Ls) -> Result<(), Failure> {
    let client = connection.connect()?;
    let dialect = connection.dialect.into();
    let mut out = io::stdout().lock();
    let mut lines = Vec::new();
    let mut nothing = true;
    let mut is_deeper = false;
    let mut to_visit = vec![(arguments.path.clone(), true)];
    while let Some((path, enter)) = to_visit.pop() {
        let children = match client.children(&path) {
            Ok(children) => children.unwrap_or_default(),
            Err(error) if error.is_no_auth() && path != arguments.path => {
                say(format_args!("{path}: left out: {error}"));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let found = match locks_at(&client, &path, dialect) {
            Ok(found) => found,
            // In a folder that we may look into, nodes that we may not.
            Err(error) if error.is_no_auth() && path != arguments.path => {
                say(format_args!("{path}: left out: {error}"));
                nothing = false;
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        nothing &= found.is_empty();
        let is_semaphore = found.iter().any(|line| line.kind == Kind::Semaphore.name());
        if arguments.json {
            lines.extend(found);
        } else {
            for line in found {
                writeln!(out, "{}", line.text())?;
            }
        }
        let mut folders: Vec<_> = children
            .into_iter()
            .filter(|name| !(is_semaphore && matches!(name.as_str(), "leases" | "locks")))
            .filter(|name| match Kind::of_child(name, dialect) {
                None | Some(Kind::Semaphore) => true,
                Some(_) => false,
            })
            .map(|name| format!("{}/{name}", path.trim_end_matches('/')))
            // The server's own.
            .filter(|path| path != "/zookeeper")
            .collect();
        if enter {
            // The first is to be visited first, so it goes in last.
            folders.sort_unstable_by(|a, b| b.cmp(a));
            to_visit.extend(folders.into_iter().map(|path| (path, arguments.recursive)));
        } else {
            // An idle semaphore keeps its folders, with nothing in them.
            let is_idle = |path: &String| path.ends_with("/leases") || path.ends_with("/locks");
            is_deeper |= !folders.iter().all(is_idle);
        }
    }
    if arguments.json {
        super::write_json(&mut out, &lines)?;
    } else if nothing {
        say_that_nothing_is_there(&client, &arguments.path, is_deeper)?;
    }
    Ok(())
}

fn say_that_nothing_is_there(client: &Client, path: &str, is_deeper: bool) -> Result<(), Failure> {
    if is_deeper {
        say(format_args!(
            "{path}: nobody has or wants a lock here or right below; -R looks deeper"
        ));
    } else if client.children(path)?.is_none() {
        say(format_args!("{path}: there is no such node"));
    } else {
        say(format_args!("{path}: nobody has or wants a lock here"));
    }
    Ok(())
}

fn locks_at(client: &Client, path: &str, dialect: Dialect) -> zklock::Result<Vec<Line>> {
    if path == "/" {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for lock in Lock::all_at(client, path, dialect)? {
        let queue = lock.queue()?;
        let (holders, waiters): (Vec<_>, Vec<_>) = queue.iter().partition(|seen| seen.holds);
        if queue.is_empty() {
            continue;
        }
        lines.push(Line {
            path: path.to_owned(),
            kind: lock.kind.name(),
            holders: holders.into_iter().map(Entry::of).collect(),
            waiters: waiters.len(),
        });
    }
    Ok(lines)
}

impl Line {
    fn text(&self) -> String {
        let holder = match self.holders.as_slice() {
            [] => "nobody".to_owned(),
            [one] => one.who(),
            [one, others @ ..] => format!("{} and {} more", one.who(), others.len()),
        };
        let since = self.holders.first().and_then(Entry::since).unwrap_or("-");
        format!(
            "{}  {}  held by {holder} since {since}, {} waiting",
            self.path.escape_debug(),
            self.kind,
            self.waiters
        )
    }
}
