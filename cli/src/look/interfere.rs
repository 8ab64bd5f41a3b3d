//! `zklock revoke`, `zklock break` and `zklock gc`: what changes something that is not ours.

use std::io::{self, BufRead, IsTerminal, Write};

use super::entry::{Entry, name_of};
use super::kind::{Lock, Seen};
use crate::arguments::{Break, Gc, Revoke};
use crate::connect::Connection;
use crate::say;
use crate::status::Failure;

pub(crate) fn revoke(connection: &Connection, arguments: &Revoke) -> Result<(), Failure> {
    let client = connection.connect()?;
    let (path, dialect) = (arguments.path.as_str(), connection.dialect.into());
    let mut asked = 0;
    for lock in Lock::all_at(&client, path, dialect)? {
        for holder in lock.queue()?.iter().filter(|seen| seen.holds) {
            let who = Entry::of(holder).who();
            match lock.revoke(&holder.participant)? {
                Some(true) => {
                    asked += 1;
                    println_checked(&format!("asked {who}"))?;
                }
                Some(false) => {}
                None => {
                    return Err(Failure::usage(format!(
                        "{path}: the permits of a semaphore cannot be asked for; \
                         see `zklock who {path}` and `zklock break`"
                    )));
                }
            }
        }
    }
    if asked == 0 {
        say(format_args!("{path}: nobody holds it"));
    }
    Ok(())
}

pub(crate) fn break_lock(connection: &Connection, arguments: &Break) -> Result<(), Failure> {
    let client = connection.connect()?;
    let (path, dialect) = (arguments.path.as_str(), connection.dialect.into());
    for lock in Lock::all_at(&client, path, dialect)? {
        let queue = lock.queue()?;
        let stands_as = |seen: &&Seen| name_of(&seen.participant) == arguments.node;
        let Some(victim) = queue.iter().find(stands_as) else {
            continue;
        };
        let who = Entry::of(victim);
        if !arguments.yes && io::stdin().is_terminal() && !confirmed(path, &who)? {
            return Err(Failure::internal(format!("{path}: left as it is")));
        }
        if lock.break_lock(&victim.participant)? {
            return println_checked(&format!("removed {who}"));
        }
    }
    let node = arguments.node.escape_debug();
    Err(Failure::internal(format!(
        "{path}: no participant has the node {node}; `zklock who {path}` shows them"
    )))
}

fn confirmed(path: &str, who: &Entry) -> io::Result<bool> {
    eprintln!("{path}:\n{who}");
    if who.holds {
        eprintln!("It holds the lock. Until it hears of this, two holders may be active.");
    }
    eprint!("Remove it? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

pub(crate) fn gc(connection: &Connection, arguments: &Gc) -> Result<(), Failure> {
    let client = connection.connect()?;
    let root = arguments.root.as_str();
    if arguments.force {
        let removed = client.remove_empty_lock_folders(root)?;
        return println_checked(&format!("removed {removed} folders below {root}"));
    }
    let unused = client.empty_lock_folders(root)?;
    let mut out = io::stdout().lock();
    for path in &unused {
        writeln!(out, "{path}")?;
    }
    say(format_args!(
        "{} folders below {root} are unused; nothing was removed (--force removes them)",
        unused.len()
    ));
    Ok(())
}

fn println_checked(line: &str) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(())
}
