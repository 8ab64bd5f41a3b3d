//! `zklock run`: a command under a lock.

mod certainty;
mod course;
mod group;
mod lock;
mod report;
pub(crate) mod shim;
mod signals;
mod supervisor;
mod terminal;

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, select};
use zklock::Client;

use self::certainty::Certainty;
use self::course::{Course, Known};
use self::group::Group;
use self::lock::{Guard, Lock, Patience};
use self::report::{Report, StatusFd};
use self::signals::Inbox;
use self::supervisor::{Ending, Outcome, Settings, Supervisor};
use self::terminal::Terminal;
use crate::arguments::{Connection, Run, signal_name};
use crate::connect::connect_within;
use crate::say;
use crate::status::{Failure, Status};

/// The longest default of `--kill-after`.
const KILL_AFTER: Duration = Duration::from_secs(3);

/// What a run that failed has to say of the command, if it was started.
type Fallen = (Failure, Option<Ending>);

/// Runs the command, and returns what to exit with.
pub(crate) fn run(connection: &Connection, arguments: &Run) -> u8 {
    let status_fd = match arguments.status_fd.map(StatusFd::take).transpose() {
        Ok(status_fd) => status_fd,
        Err(failure) => return crate::fail(&failure),
    };
    let report = match attempt(connection, arguments) {
        Ok(ending) => Report::of_command(ending),
        Err((failure, ending)) => {
            crate::fail(&failure);
            Report::of_failure(&failure, ending)
        }
    };
    if let Some(Err(error)) = status_fd.map(|status_fd| status_fd.write(&report)) {
        say(format_args!("--status-fd: {error}"));
    }
    report.status
}

/// Returns how the command ended.
fn attempt(connection: &Connection, arguments: &Run) -> Result<Ending, Fallen> {
    let before = |failure| (failure, None);
    let deadline = arguments
        .timeout
        .filter(|timeout| !timeout.is_zero())
        .and_then(|timeout| Instant::now().checked_add(timeout));
    kill_after(arguments, connection.session_timeout).map_err(before)?;
    let inbox = Inbox::open().map_err(|error| before(Failure::internal(error)))?;
    let client = connect(connection, deadline, &inbox).map_err(before)?;
    let ran = acquire_and_follow(&client, connection, arguments, deadline, &inbox);
    // Whatever was left in ZooKeeper goes with the session.
    client.close();
    ran
}

/// Connects, unless a signal comes first.
fn connect(
    connection: &Connection,
    deadline: Option<Instant>,
    inbox: &Inbox,
) -> Result<Client, Failure> {
    let builder = connection.builder()?;
    let (tell, told) = bounded(1);
    let connecting = thread::Builder::new().name("connect".to_owned());
    let started = connecting.spawn(move || {
        let connected = builder.connect_timeout(connect_within(deadline)).connect();
        // After a signal nobody listens.
        let _ = tell.send(connected);
    });
    started.map_err(Failure::internal)?;
    select! {
        recv(told) -> connected => match connected {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(Failure::internal("the connecting thread has ended")),
        },
        recv(inbox.forwarded) -> signal => Err(interrupted(signal.unwrap_or_default())),
    }
}

fn acquire_and_follow(
    client: &Client,
    connection: &Connection,
    arguments: &Run,
    deadline: Option<Instant>,
    inbox: &Inbox,
) -> Result<Ending, Fallen> {
    let before = |failure| (failure, None);
    let granted = client
        .session_timeout()
        .unwrap_or(connection.session_timeout);
    let kill_after = kill_after(arguments, granted).map_err(before)?;
    let lock = Lock::new(client, connection, arguments).map_err(before)?;
    lock.refuse_mixing(client, connection, &arguments.path)
        .map_err(before)?;
    let guard = acquire(&lock, arguments, deadline, inbox).map_err(before)?;
    let settings = Settings {
        kill_after,
        signal: arguments.signal,
        hold_until: Instant::now()
            .checked_add(arguments.at_least)
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(u64::from(u32::MAX))),
        job_control: false,
    };
    let ran = follow(client, arguments, &guard, settings, inbox);
    if let Err(error) = guard.release()
        && ran.is_ok()
    {
        // The command has ended before; what happened since was no harm to it.
        say(format_args!(
            "{}: giving the lock back: {error}",
            arguments.path
        ));
    }
    ran
}

fn acquire(
    lock: &Lock,
    arguments: &Run,
    deadline: Option<Instant>,
    inbox: &Inbox,
) -> Result<Guard, Failure> {
    let path = &arguments.path;
    let patience = if at_once(arguments) {
        Patience::None
    } else {
        Patience::Until(deadline)
    };
    let acquired = lock.acquire(&patience, &inbox.stop);
    // Also when the lock came at the same time: nothing is started after a signal.
    if let Ok(signal) = inbox.forwarded.try_recv() {
        return Err(interrupted(signal));
    }
    match acquired? {
        Some(guard) => Ok(guard),
        None if at_once(arguments) => Err(Failure::new(
            Status::Busy,
            format!("{path}: somebody else has the lock; `zklock who {path}` shows who"),
        )),
        None => Err(Failure::new(
            Status::Busy,
            format!(
                "{path}: still busy after {}; `zklock who {path}` shows who has the lock",
                humantime::format_duration(arguments.timeout.unwrap_or_default())
            ),
        )),
    }
}

/// Runs the command under the guard.
fn follow(
    client: &Client,
    arguments: &Run,
    guard: &Guard,
    settings: Settings,
    inbox: &Inbox,
) -> Result<Ending, Fallen> {
    let path = &arguments.path;
    let cannot = |error: std::io::Error| (Failure::internal(error), None);
    let events = client.events();
    let token = guard
        .fencing_token()
        .map_err(|error| (error.into(), None))?;
    let session = client.session_id().map(|session| format!("0x{session:x}"));
    let variables = [
        ("ZKLOCK_PATH", Some(path.clone())),
        ("ZKLOCK_NODE", Some(guard.node().to_owned())),
        ("ZKLOCK_SESSION", session),
        ("ZKLOCK_FENCING_TOKEN", token),
    ];
    signals::block_ttou().map_err(cannot)?;
    let terminal = Terminal::open();
    let group = Group::start(arguments, &variables).map_err(cannot)?;
    terminal.give_to(group.id());
    let ready = match (inbox.forwarded.try_recv(), guard.certainty()) {
        (Ok(signal), _) => Err(interrupted(signal)),
        (_, Certainty::Until(_)) => Ok(()),
        (_, Certainty::Over) => Err(Failure::new(
            Status::Lost,
            format!("{path}: contact with ZooKeeper was lost; the command was not started"),
        )),
    };
    if let Err(failure) = ready {
        terminal.take_from(group.id());
        // The shim has not heard the word, and ends with its line.
        return Err((failure, None));
    }
    group.go().map_err(cannot)?;
    let course = Course {
        path,
        guard,
        group: &group,
        terminal: &terminal,
        inbox,
        connection: events,
        supervisor: Supervisor::new(Settings {
            job_control: terminal.has_job_control(),
            ..settings
        }),
        known: Known::default(),
    };
    let (outcome, known) = course.follow();
    conclude(arguments, outcome, known)
}

/// What the outcome is to the caller.
fn conclude(arguments: &Run, outcome: Outcome, known: Known) -> Result<Ending, Fallen> {
    let path = &arguments.path;
    if let Some(error) = known.failure {
        let command = arguments.command[0].to_string_lossy();
        let failure = Failure::new(shim::cannot_run(&error), format!("{command}: {error}"));
        return Err((failure, None));
    }
    if outcome.lost {
        let why = known.loss.map_or_else(
            || "contact with ZooKeeper was lost".to_owned(),
            |why| why.to_string(),
        );
        let failure = Failure::new(
            Status::Lost,
            format!(
                "{path}: the command was stopped, because the lock was lost or about to be: {why}"
            ),
        );
        return Err((failure, Some(outcome.ending)));
    }
    Ok(outcome.ending)
}

/// How long the command has to end by itself, with a session timeout of `session`.
fn kill_after(arguments: &Run, session: Duration) -> Result<Duration, Failure> {
    let Some(asked) = arguments.kill_after else {
        return Ok(KILL_AFTER.min(session / 6));
    };
    // A lock out of contact is ours for more than that, so only what is no trouble is excluded.
    if asked > session / 4 {
        let (asked, session) = (
            humantime::format_duration(asked),
            humantime::format_duration(session),
        );
        let needed = arguments.kill_after.unwrap_or_default() * 4;
        return Err(Failure::usage(format!(
            "--kill-after {asked} is more than a quarter of the session timeout, {session}; \
             it needs --session-timeout {} (and servers that grant it)",
            humantime::format_duration(needed)
        )));
    }
    Ok(asked)
}

/// To wait for no time is not to wait.
fn at_once(arguments: &Run) -> bool {
    arguments.at_once || arguments.timeout.is_some_and(|timeout| timeout.is_zero())
}

fn interrupted(signal: i32) -> Failure {
    let name = signal_name(signal).unwrap_or("a signal");
    Failure::new(
        Status::Interrupted(signal),
        format!("{name} ended the wait; the command was not started"),
    )
}
