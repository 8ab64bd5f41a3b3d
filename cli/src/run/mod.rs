//! `zklock run`: a command under a lock.

mod certainty;
mod course;
pub(crate) mod hold;
mod job;
mod lock;
mod report;
mod signals;
mod supervisor;
mod terminal;

use std::env;
use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, select};
use signal_hook::consts::{SIGALRM, SIGINT, SIGPIPE, SIGQUIT};
use zklock::Client;

use self::certainty::Certainty;
use self::course::{Course, Known, Managed};
use self::job::{Job, Start, shim};
use self::lock::{Acquired, Guard, Lock, Patience};
use self::report::{Report, StatusFd};
use self::signals::{Inbox, Sent};
use self::supervisor::{Cause, Ending, Outcome, Settings, Supervisor};
use self::terminal::Terminal;
use crate::arguments::{ConnectionArguments, Once, Run, Wanted, signal_name};
use crate::connect::Connection;
use crate::status::{Failure, Status};
use crate::{say, speak};

/// How often in a session timeout the watchdog is told that we live. The lock is certain for about
/// half of it at any moment, so several may be late.
const BEATS: u32 = 16;

/// The variable that tells nested runs under which locks they are.
const HELD: &str = "ZKLOCK_HELD";

const PASSWORD: &str = "ZK_SASL_PASSWORD";

/// The longest default of `--kill-after`.
const KILL_AFTER: Duration = Duration::from_secs(3);

/// What a run that failed has to say of the command, if it was started.
type Fallen = (Failure, Option<Ending>);

/// If this process is the watchdog or the shim of a run: does its work, or returns what to exit with.
pub(crate) fn if_we_are_a_part() -> Option<u8> {
    #[cfg(target_os = "linux")]
    if let Some(status) = job::watchdog::if_we_are_it() {
        return Some(status);
    }
    shim::if_we_are_it()
}

/// Runs the command, and returns what to exit with.
pub(crate) fn run(connection: &ConnectionArguments, arguments: &Run) -> u8 {
    let status_fd = match arguments.status_fd.map(StatusFd::take).transpose() {
        Ok(status_fd) => status_fd,
        Err(failure) => return crate::fail(&failure),
    };
    let (report, death) = perform(connection, arguments);
    if let Some(Err(error)) = status_fd.map(|status_fd| status_fd.write(&report)) {
        say(format_args!("--status-fd: {error}"));
    }
    end(&report, death)
}

/// The last words; returns what to exit with, or ends by a signal.
fn end(report: &Report, death: Option<Death>) -> u8 {
    speak::finish();
    if let Some(Death { signal, group }) = death {
        signals::die_by(signal, group);
    }
    report.status
}

/// A signal by which we end as the command did, or as our wait did.
#[derive(Clone, Copy, Debug)]
struct Death {
    signal: i32,
    /// It came from the terminal, which had been given to the command alone.
    group: bool,
}

fn perform(connection: &ConnectionArguments, arguments: &Run) -> (Report, Option<Death>) {
    // Before there is another thread.
    let inbox = Inbox::open().and_then(|inbox| speak::aside().map(|()| inbox));
    let inbox = match inbox.map_err(Failure::internal) {
        Ok(inbox) => inbox,
        Err(failure) => {
            crate::fail(&failure);
            return (Report::of_failure(&failure, None), None);
        }
    };
    let terminal = Terminal::open();
    let mut ran = catch_up(connection, arguments, &inbox, &terminal);
    while let Some(pause) = arguments.again
        && goes_on(&ran, &inbox, &terminal)
    {
        if let Err((failure, _)) = &ran {
            tell(failure, &arguments.wanted);
        }
        match inbox.forwarded.recv_timeout(pause) {
            Ok(sent) => ran = Err((interrupted(sent.signal), None)),
            Err(_) => ran = catch_up(connection, arguments, &inbox, &terminal),
        }
    }
    conclude_for_the_caller(ran, &arguments.wanted, &inbox, &terminal)
}

/// Whether `--again` means to run it again: nobody has told us to end, and it may go better.
fn goes_on(ran: &Result<Ending, Fallen>, inbox: &Inbox, terminal: &Terminal) -> bool {
    let may_go_better = match ran {
        Ok(Ending::Signal(signal)) => !is_key(*signal, inbox, terminal),
        Ok(_) => true,
        Err((failure, _)) => matches!(
            failure.status,
            Status::Lost | Status::Unreachable | Status::Busy | Status::Done
        ),
    };
    may_go_better && !inbox.is_ending()
}

/// Whether a signal that ended the command was a key of the terminal, which had been given to the
/// command alone. What was sent to us meant us and the command, and none of those beside us.
fn is_key(signal: i32, inbox: &Inbox, terminal: &Terminal) -> bool {
    matches!(signal, SIGINT | SIGQUIT) && terminal.was_given() && !inbox.has_heard(signal)
}

/// Says what went wrong; returns the report and the signal to end by.
fn conclude_for_the_caller(
    ran: Result<Ending, Fallen>,
    wanted: &Wanted,
    inbox: &Inbox,
    terminal: &Terminal,
) -> (Report, Option<Death>) {
    match ran {
        Ok(ending) => {
            let death = match ending {
                Ending::Signal(signal) if is_told(signal) => Some(Death {
                    signal,
                    group: is_key(signal, inbox, terminal),
                }),
                _ => None,
            };
            (Report::of_command(ending), death)
        }
        Err((failure, ending)) => {
            let is_busy = failure.status == Status::Busy;
            tell(&failure, wanted);
            let death = match failure.status {
                Status::Interrupted(signal) if is_told(signal) => Some(Death {
                    signal,
                    group: false,
                }),
                _ => None,
            };
            let mut report = Report::of_failure(&failure, ending);
            if let Some(status) = wanted.busy_status.filter(|_| is_busy) {
                report.status = status;
            }
            (report, death)
        }
    }
}

/// Says what went wrong, unless the caller wants to hear nothing of who else has the lock, or has done
/// the job.
fn tell(failure: &Failure, wanted: &Wanted) {
    if !(wanted.quiet && matches!(failure.status, Status::Busy | Status::Done)) {
        crate::fail(failure);
    }
}

/// Whether somebody sends this to end a program. Others tell of a fault in the command, which is
/// not ours.
fn is_told(signal: i32) -> bool {
    matches!(signal, SIGPIPE | SIGALRM) || signals::FORWARDED.contains(&signal)
}

/// Runs a job for the periods that were missed, too, if it is to; until one fails, or all are done.
fn catch_up(
    connection: &ConnectionArguments,
    arguments: &Run,
    inbox: &Inbox,
    terminal: &Terminal,
) -> Result<Ending, Fallen> {
    let mut ran = attempt(connection, arguments, inbox, terminal);
    if arguments.once.catch_up == 0 {
        return ran;
    }
    while matches!(ran, Ok(Ending::Exit(0))) && !inbox.is_ending() {
        match attempt(connection, arguments, inbox, terminal) {
            // By us, just now.
            Err((failure, None)) if failure.status == Status::Done => break,
            next => ran = next,
        }
    }
    ran
}

/// Returns how the command ended.
fn attempt(
    connection: &ConnectionArguments,
    arguments: &Run,
    inbox: &Inbox,
    terminal: &Terminal,
) -> Result<Ending, Fallen> {
    let before = |failure| (failure, None);
    let connection = &connection.resolve().map_err(before)?;
    let deadline = deadline(&arguments.wanted);
    kill_after(arguments, connection.session_timeout).map_err(before)?;
    let client = connect(connection, deadline, inbox).map_err(before)?;
    let ran = acquire_and_follow(&client, connection, arguments, deadline, inbox, terminal);
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
    let within = connection.connect_within(deadline);
    let (tell, told) = bounded(1);
    let connecting = thread::Builder::new().name("connect".to_owned());
    let started = connecting.spawn(move || {
        let connected = builder.connect_timeout(within).connect();
        // After a signal nobody listens.
        let _ = tell.send(connected);
    });
    started.map_err(Failure::internal)?;
    let _waiting = connection.tell_if_long(within);
    select! {
        recv(told) -> connected => match connected {
            Ok(connected) => Ok(connected.map_err(|error| Failure::from(error).advised())?),
            Err(_) => Err(Failure::internal("the connecting thread has ended")),
        },
        recv(inbox.forwarded) -> sent => Err(interrupted(sent.map_or(0, |sent| sent.signal))),
    }
}

fn acquire_and_follow(
    client: &Client,
    connection: &Connection,
    arguments: &Run,
    deadline: Option<Instant>,
    inbox: &Inbox,
    terminal: &Terminal,
) -> Result<Ending, Fallen> {
    let before = |failure| (failure, None);
    let granted = client
        .session_timeout()
        .unwrap_or(connection.session_timeout);
    let kill_after = kill_after(arguments, granted).map_err(before)?;
    let (wanted, once) = (&arguments.wanted, Some(&arguments.once));
    let guard = acquire_wanted(client, connection, wanted, once, deadline, inbox);
    let guard = guard.map_err(before)?;
    let settings = Settings {
        kill_after,
        signal: arguments.signal,
        hold_until: Instant::now()
            .checked_add(arguments.at_least)
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(u64::from(u32::MAX))),
        end_by: arguments
            .at_most
            .and_then(|at_most| Instant::now().checked_add(at_most)),
        end_grace: arguments
            .at_most
            .map_or(kill_after, |at_most| kill_after.min(at_most / 2)),
        leave_children: arguments.leave_children,
        again: arguments.again.is_some(),
        job_control: terminal.has_job_control(),
    };
    let beat = granted / BEATS;
    inbox.command_runs(true);
    terminal.begin();
    let ran = follow(client, arguments, &guard, settings, beat, inbox, terminal);
    inbox.command_runs(false);
    let is_job = matches!(guard, Guard::Job(_));
    let ended = ran.as_ref().map(|ending| *ending);
    let released = guard.release(ended.map_err(|(failure, _)| failure));
    match (released, &ran) {
        // Nobody else would know that it was done.
        (Err(error), Ok(ending)) if is_job => {
            let ending = Some(*ending);
            let mut failure = Failure::from(error);
            let path = &wanted.path;
            failure.message = format!(
                "{path}: how the command ended is not in the job's record: {}",
                failure.message
            );
            Err((failure, ending))
        }
        (Err(error), Ok(_)) => {
            // The command has ended before; what happened since was no harm to it.
            say(format_args!(
                "{}: giving the lock back: {error}",
                wanted.path
            ));
            ran
        }
        _ => ran,
    }
}

fn acquire_wanted(
    client: &Client,
    connection: &Connection,
    wanted: &Wanted,
    once: Option<&Once>,
    deadline: Option<Instant>,
    inbox: &Inbox,
) -> Result<Guard, Failure> {
    let lock = Lock::new(client, connection, wanted, once)?;
    lock.refuse_mixing(client, connection, &wanted.path)?;
    lock.refuse_nesting(client, &wanted.path)?;
    acquire(&lock, wanted, deadline, inbox)
}

fn acquire(
    lock: &Lock,
    arguments: &Wanted,
    deadline: Option<Instant>,
    inbox: &Inbox,
) -> Result<Guard, Failure> {
    let path = &arguments.path;
    let patience = if at_once(arguments) {
        Patience::None
    } else {
        Patience::Until(deadline)
    };
    let waiting = (!arguments.quiet).then(|| {
        speak::if_long(format!(
            "{path}: waiting for the lock; `zklock who {path}` shows who has it"
        ))
    });
    let acquired = lock.acquire(&patience, &inbox.stop());
    drop(waiting);
    // Also when the lock came at the same time: nothing is started after a signal.
    if let Ok(Sent { signal, .. }) = inbox.forwarded.try_recv() {
        return Err(interrupted(signal));
    }
    match acquired? {
        Acquired::Ours(guard) => Ok(guard),
        Acquired::Done(before) => Err(Failure::new(
            Status::Done,
            format!("{path}: nothing to do: {before}"),
        )),
        Acquired::Busy if at_once(arguments) => Err(Failure::new(
            Status::Busy,
            format!("{path}: somebody else has the lock; `zklock who {path}` shows who"),
        )),
        Acquired::Busy => Err(Failure::new(
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
    beat: Duration,
    inbox: &Inbox,
    terminal: &Terminal,
) -> Result<Ending, Fallen> {
    let path = &arguments.wanted.path;
    let events = client.events();
    let token = guard
        .fencing_token()
        .map_err(|error| (error.into(), None))?;
    let session = client.session_id().map(|session| format!("0x{session:x}"));
    let mut variables = vec![
        (HELD, Some(held_by_now(guard.node()))),
        ("ZKLOCK_PATH", Some(path.clone())),
        ("ZKLOCK_NODE", Some(guard.node().to_owned())),
        ("ZKLOCK_SESSION", session),
        ("ZKLOCK_FENCING_TOKEN", token),
    ];
    variables.extend(guard.of_the_run());
    if !arguments.keep_env {
        variables.extend(secrets(env::var_os(PASSWORD).as_deref()).map(|name| (name, None)));
    }
    let start = Start {
        command: &arguments.command,
        variables: &variables,
        mask: inbox.mask,
        cgroup: !arguments.no_cgroup && !arguments.leave_children,
    };
    let mut job = Job::start(&start).map_err(|error| {
        let message = format!("the processes of the command cannot be started: {error}");
        (Failure::internal(message), None)
    })?;
    if Terminal::is_input() && !terminal.is_shared() {
        terminal.give_to(job.id());
    }
    let ready = match (inbox.forwarded.try_recv(), guard.certainty()) {
        (Ok(sent), _) => Err(interrupted(sent.signal)),
        (_, Certainty::Until(end)) => {
            job.tell_deadline(end);
            Ok(())
        }
        (_, Certainty::Over) => Err(Failure::new(
            Status::Lost,
            format!("{path}: contact with ZooKeeper was lost; the command was not started"),
        )),
    };
    let begun = ready.and_then(|()| job.go().map_err(Failure::internal));
    if let Err(failure) = begun {
        terminal.take_from(job.id());
        job.call_off();
        return Err((failure, None));
    }
    let course = Course {
        path,
        guard,
        job: &mut job,
        terminal,
        inbox,
        connection: events,
        supervisor: Supervisor::new(settings),
        beat,
        known: Known::default(),
        managed: Managed::default(),
    };
    let (outcome, known) = course.follow();
    conclude(arguments, outcome, known)
}

/// The variables that no command gets unless it is asked for: what else the command connects with
/// is no business of ours.
fn secrets(password: Option<&OsStr>) -> impl Iterator<Item = &'static str> {
    // Half an account would be an error for whoever reads it. An empty variable is none: then the
    // password is in a file, and the account is whole.
    let is_set = password.is_some_and(|password| !password.is_empty());
    let user = is_set.then_some("ZK_SASL_USER");
    ["ZK_AUTH", PASSWORD].into_iter().chain(user)
}

/// The nodes by which we and those above us hold, one a line.
fn held_by_now(node: &str) -> String {
    match env::var(HELD) {
        Ok(above) if !above.is_empty() => format!("{above}\n{node}"),
        _ => node.to_owned(),
    }
}

/// What the outcome is to the caller.
fn conclude(arguments: &Run, outcome: Outcome, known: Known) -> Result<Ending, Fallen> {
    let path = &arguments.wanted.path;
    if let Some(error) = known.failure {
        let command = arguments.command[0].to_string_lossy();
        let failure = Failure::new(shim::cannot_run(&error), format!("{command}: {error}"));
        return Err((failure, None));
    }
    let Some(cause) = outcome.lost else {
        return Ok(outcome.ending);
    };
    let why = match cause {
        Cause::Lock => {
            let why = known.loss.map(|why| why.to_string());
            let why = why.unwrap_or_else(|| "contact with ZooKeeper was lost".to_owned());
            format!("because the lock was lost or about to be: {why}")
        }
        Cause::Late => "by its watchdog, as zklock was stopped or late".to_owned(),
        Cause::TooLong => "as the time of --at-most was over".to_owned(),
        Cause::Unguarded => "as its watchdog process had died".to_owned(),
    };
    let status = match cause {
        Cause::Unguarded => Status::Internal,
        Cause::Lock | Cause::Late | Cause::TooLong => Status::Lost,
    };
    let failure = Failure::new(status, format!("{path}: the command was stopped, {why}"));
    Err((failure, Some(outcome.ending)))
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
        let needed = arguments.kill_after.unwrap_or_default().saturating_mul(4);
        return Err(Failure::usage(format!(
            "--kill-after {asked} is more than a quarter of the session timeout, {session}; \
             it needs --session-timeout {} (and servers that grant it)",
            humantime::format_duration(needed)
        )));
    }
    Ok(asked)
}

/// A signal came before there was a command.
fn interrupted(signal: i32) -> Failure {
    let name = signal_name(signal).unwrap_or("a signal");
    Failure::new(
        Status::Interrupted(signal),
        format!("{name} ended the wait; no command was started"),
    )
}

/// Until when to wait, connecting included.
fn deadline(wanted: &Wanted) -> Option<Instant> {
    let timeout = wanted.timeout.filter(|timeout| !timeout.is_zero());
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// To wait for no time is not to wait.
fn at_once(arguments: &Wanted) -> bool {
    arguments.at_once || arguments.timeout.is_some_and(|timeout| timeout.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was taken away, and a nested run found half an account.
    #[test]
    fn an_account_whose_password_is_in_a_file_stays_whole() {
        let taken =
            |password: Option<&str>| -> Vec<_> { secrets(password.map(OsStr::new)).collect() };
        assert!(taken(Some("sesame")).contains(&"ZK_SASL_USER"));
        assert!(!taken(Some("")).contains(&"ZK_SASL_USER"));
        assert!(!taken(None).contains(&"ZK_SASL_USER"));
    }
}
