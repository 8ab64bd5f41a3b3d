//! A shell to try locks by hand. Start it in two terminals, and take a lock from each other:
//!
//! ```text
//! cargo run --example console -- localhost:2181
//! ```
//!
//! It reads one command a line and answers each with one line, so it works through a pipe, too.
//! What happens by itself (the connection, a lost lock) is told on lines that begin with `*`.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Parser;
use crossbeam_channel::{Receiver, Sender, bounded, never, select};
use zklock::{Client, LockState, Mutex, MutexGuard};

const HELP: &str = "lock PATH, try PATH [MS], unlock PATH, who PATH, state PATH, token PATH, quit";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Tries locks by hand, one command a line.
#[derive(Parser)]
struct Arguments {
    /// ZooKeeper's servers: host:port,host:port/chroot
    #[arg(default_value = "localhost:2181")]
    servers: String,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("error")).init();
    match converse(&Arguments::parse().servers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("console: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes a line as a whole, whichever thread says it. A reader that is gone is not our trouble:
/// the next command ends with the input.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn converse(servers: &str) -> Result<()> {
    let client = Client::connect(servers)?;
    let events = client.events();
    if let Some(session) = client.session_id() {
        say(&format!("* connected, session 0x{session:x}"));
    }
    let teller = thread::spawn(move || events.iter().for_each(|event| say(&format!("* {event}"))));
    let mut locks = BTreeMap::new();
    let interactive = std::io::stdin().is_terminal();
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    loop {
        if interactive {
            print!("> ");
            std::io::stdout().flush()?;
        }
        line.clear();
        if input.read_line(&mut line)? == 0 {
            break;
        }
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [] => {}
            ["quit"] => break,
            ["help"] => say(HELP),
            [verb, path, ref rest @ ..] => match parse(verb, rest) {
                Ok(command) => say(&ask(&client, &mut locks, path, command)),
                Err(why) => say(&format!("error: {why}")),
            },
            [verb] => say(&format!("error: {verb}: there is: {HELP}")),
        }
    }
    // Each gives its lock back before the session ends.
    for (_, lock) in std::mem::take(&mut locks) {
        lock.end();
    }
    client.close();
    let _ = teller.join();
    Ok(())
}

enum Command {
    Lock,
    Try(Duration),
    Unlock,
    Who,
    State,
    Token,
}

fn parse(verb: &str, rest: &[&str]) -> std::result::Result<Command, String> {
    Ok(match (verb, rest) {
        ("lock", []) => Command::Lock,
        ("try", []) => Command::Try(Duration::ZERO),
        ("try", [ms]) => match ms.parse() {
            Ok(ms) => Command::Try(Duration::from_millis(ms)),
            Err(_) => return Err(format!("try: {ms} is not a number of milliseconds")),
        },
        ("unlock", []) => Command::Unlock,
        ("who", []) => Command::Who,
        ("state", []) => Command::State,
        ("token", []) => Command::Token,
        _ => return Err(format!("{verb}: there is: {HELP}")),
    })
}

/// A lock and the thread that alone may hold it: a guard cannot leave its thread, and this one
/// also hears of a loss while the user thinks.
struct Lock {
    commands: Sender<Command>,
    answers: Receiver<String>,
    thread: JoinHandle<()>,
}

impl Lock {
    fn start(lock: Mutex) -> Self {
        let (commands, to_do) = bounded(0);
        let (tell, answers) = bounded(1);
        let thread = thread::spawn(move || serve(&lock, &to_do, &tell));
        Self {
            commands,
            answers,
            thread,
        }
    }

    fn end(self) {
        drop(self.commands);
        let _ = self.thread.join();
    }
}

fn ask(
    client: &Client,
    locks: &mut BTreeMap<String, Lock>,
    path: &str,
    command: Command,
) -> String {
    if !locks.contains_key(path) {
        match Mutex::new(client, path) {
            Ok(lock) => locks.insert(path.to_owned(), Lock::start(lock)),
            Err(error) => return format!("error: {error}"),
        };
    }
    let lock = &locks[path];
    let answer = lock.commands.send(command).ok();
    let answer = answer.and_then(|()| lock.answers.recv().ok());
    answer.unwrap_or_else(|| format!("error: {path}: the thread of this lock has ended"))
}

/// Does what is asked of one lock, and tells of its loss meanwhile.
fn serve(lock: &Mutex, commands: &Receiver<Command>, tell: &Sender<String>) {
    let mut guards = Vec::new();
    let mut told = false;
    loop {
        let lost = match guards.first().filter(|_| !told) {
            Some(guard) => MutexGuard::lost(guard).clone(),
            None => never(),
        };
        select! {
            recv(lost) -> reason => {
                told = true;
                let path = lock.path();
                let why = reason.map_or_else(|_| "it was lost".to_owned(), |why| why.to_string());
                say(&format!("* LOST {path}: {why}; unlock it to take it again"));
            }
            recv(commands) -> command => {
                let Ok(command) = command else { return };
                let answer = obey(lock, &mut guards, &command);
                told &= !guards.is_empty();
                let answer = answer.unwrap_or_else(|error| format!("error: {error}"));
                if tell.send(answer).is_err() {
                    return;
                }
            }
        }
    }
}

fn obey(lock: &Mutex, guards: &mut Vec<MutexGuard>, command: &Command) -> zklock::Result<String> {
    let path = lock.path();
    let not_held = || format!("error: {path} is not held here");
    Ok(match command {
        Command::Lock => {
            let guard = match lock.try_lock() {
                Ok(Some(guard)) => guard,
                Ok(None) => {
                    say(&format!("* waiting for {path}; {}", queue(lock)?));
                    lock.lock()?
                }
                Err(error) if error.is_connection_loss() => {
                    say(&format!("* waiting for {path}; {error}"));
                    lock.lock()?
                }
                Err(error) => return Err(error),
            };
            guards.push(guard);
            held(path, guards)
        }
        Command::Try(timeout) => match lock.try_lock_for(*timeout)? {
            Some(guard) => {
                guards.push(guard);
                held(path, guards)
            }
            None => format!("busy {path}; {}", queue(lock)?),
        },
        Command::Unlock => match guards.pop() {
            Some(guard) => {
                guard.unlock()?;
                if guards.is_empty() {
                    format!("released {path}")
                } else {
                    held(path, guards)
                }
            }
            None => not_held(),
        },
        Command::Who => queue(lock)?,
        Command::State => match guards.first().map(MutexGuard::state) {
            Some(LockState::Held) => format!("{path} is held"),
            Some(LockState::Suspect) => format!("{path} is suspect: no contact with ZooKeeper"),
            Some(LockState::Lost) => format!("{path} is lost"),
            None => format!("{path} is not held here"),
        },
        Command::Token => match guards.first() {
            Some(guard) => guard.fencing_token()?.to_string(),
            None => not_held(),
        },
    })
}

fn held(path: &str, guards: &[MutexGuard]) -> String {
    match guards.len() {
        1 => format!("held {path}"),
        depth => format!("held {path}, {depth} times"),
    }
}

/// Who holds and who waits, on one line.
fn queue(lock: &Mutex) -> zklock::Result<String> {
    let all = lock.participants()?;
    let each = all.iter().map(|one| {
        let ours = if one.is_ours() { " (this console)" } else { "" };
        format!("{one}{ours}")
    });
    let each = each.collect::<Vec<_>>().join("; ");
    Ok(if all.is_empty() {
        format!("nobody holds {} or waits for it", lock.path())
    } else {
        each
    })
}
