//! `zklock hold`: a lock for as long as the input lasts.

use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, never, select};

use super::certainty::Certainty;
use super::lock::Guard;
use super::signals::Inbox;
use super::supervisor::Ending;
use super::terminal::Terminal;
use super::{Fallen, KILL_AFTER, acquire_wanted, connect, deadline};
use crate::arguments::{ConnectionArguments, Hold, signal_name};
use crate::speak;
use crate::status::{Failure, Status};

/// Holds the lock, and returns what to exit with.
pub(crate) fn hold(connection: &ConnectionArguments, arguments: &Hold) -> u8 {
    let inbox = match Inbox::open().and_then(|inbox| speak::aside().map(|()| inbox)) {
        Ok(inbox) => inbox,
        Err(error) => return crate::fail(&Failure::internal(error)),
    };
    let held: Result<Ending, Fallen> = attempt(connection, arguments, &inbox)
        .map(|()| Ending::Exit(0))
        .map_err(|failure| (failure, None));
    let terminal = Terminal::open();
    let (report, death) =
        super::conclude_for_the_caller(held, &arguments.wanted, &inbox, &terminal);
    super::end(&report, death)
}

fn attempt(
    connection: &ConnectionArguments,
    arguments: &Hold,
    inbox: &Inbox,
) -> Result<(), Failure> {
    let connection = &connection.resolve()?;
    let wanted = &arguments.wanted;
    let deadline = deadline(wanted);
    let client = connect(connection, deadline, inbox)?;
    let held =
        acquire_wanted(&client, connection, wanted, None, deadline, inbox).and_then(|guard| {
            let granted = client.session_timeout();
            let warn = KILL_AFTER.min(granted.unwrap_or(connection.session_timeout) / 6);
            let held = keep(&guard, &wanted.path, warn, inbox);
            let released = guard.release(Ok(Ending::Exit(0)));
            held.and_then(|()| Ok(released?))
        });
    client.close();
    held
}

/// Returns when the input has ended; `doubtful` comes `warn` before the lock's end. Fails when the lock is lost or a signal has come.
fn keep(guard: &Guard, path: &str, warn: Duration, inbox: &Inbox) -> Result<(), Failure> {
    let token = guard.fencing_token()?;
    let token = token.as_deref().unwrap_or("-");
    print(&format!("held {token} {}", guard.node()))?;
    let input = end_of_input()?;
    let lost = guard.lost();
    let mut revocation = guard.revocation();
    let mut doubted = false;
    loop {
        let timer = match guard.certainty() {
            Certainty::Over => return Err(lost_now(path)),
            Certainty::Until(end) => {
                let soon = end.checked_sub(warn).unwrap_or(end);
                if Instant::now() < soon {
                    doubted = false;
                    crossbeam_channel::at(soon)
                } else {
                    if !doubted {
                        doubted = true;
                        print("doubtful")?;
                    }
                    crossbeam_channel::at(end)
                }
            }
        };
        select! {
            recv(input) -> _ => return Ok(()),
            recv(lost) -> _ => return Err(lost_now(path)),
            recv(revocation) -> _ => {
                revocation = never();
                print("asked")?;
            }
            recv(inbox.forwarded) -> sent => {
                let signal = sent.map_or(0, |sent| sent.signal);
                let name = signal_name(signal).unwrap_or("a signal");
                return Err(Failure::new(
                    Status::Interrupted(signal),
                    format!("{path}: {name} ended the hold; the lock is given back"),
                ));
            }
            recv(timer) -> _ => {}
        }
    }
}

fn lost_now(path: &str) -> Failure {
    // Whoever reads it may have gone.
    let _ = print("lost");
    Failure::new(Status::Lost, format!("{path}: the lock was lost"))
}

/// Heard when nothing more can be read.
fn end_of_input() -> Result<Receiver<()>, Failure> {
    let (tell, told) = bounded(1);
    let thread = thread::Builder::new().name("input".to_owned());
    let started = thread.spawn(move || {
        let mut input = io::stdin().lock();
        let mut bytes = [0; 4096];
        // What is read means nothing.
        while !matches!(input.read(&mut bytes), Ok(0) | Err(_)) {}
        let _ = tell.send(());
    });
    started.map_err(Failure::internal)?;
    Ok(told)
}

fn print(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
