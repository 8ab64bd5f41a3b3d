//! `zklock`: runs commands under distributed locks, and shows who holds and who waits.

#![forbid(unsafe_code)]
#![cfg_attr(not(unix), allow(dead_code, reason = "what is missing there used it"))]

mod arguments;
mod connect;
mod look;
mod pages;
#[cfg(unix)]
mod run;
#[cfg(not(unix))]
#[path = "run_is_missing.rs"]
mod run;
mod speak;
mod status;
#[cfg(unix)]
mod test_server;
mod words;

use std::env;
use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use self::arguments::{Arguments, Verb};
use self::connect::Connection;
use self::look::{doctor, interfere, jobs, ls, who};
pub(crate) use self::speak::say;
use self::status::{Failure, Status};

fn main() -> ExitCode {
    if let Some(status) = run::if_we_are_a_part() {
        return status.into();
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            if error.kind() == ErrorKind::UnknownArgument && names_no_command() {
                say(format_args!(
                    "a command stands after `--`, as in: zklock run /locks/nightly -- backup --all"
                ));
            }
            // Help that was asked for is no error.
            let status = if error.use_stderr() {
                Status::Usage.code()
            } else {
                0
            };
            return status.into();
        }
    };
    start_log(arguments.connection.verbose);
    perform(&arguments).into()
}

/// Whether a command was meant, and not said to be one.
fn names_no_command() -> bool {
    let mut arguments = env::args_os().skip(1);
    arguments.any(|argument| argument == "run") && arguments.all(|argument| argument != "--")
}

/// Returns what to exit with.
fn perform(Arguments { connection, verb }: &Arguments) -> u8 {
    let alone = match verb {
        // A run reports also what is wrong with its options.
        Verb::Run(arguments) => return run::run(connection, arguments),
        Verb::Hold(arguments) => return run::hold::hold(connection, arguments),
        #[cfg(unix)]
        Verb::TestServer(arguments) => {
            let ready = end_at_signals_as_the_first_process().map_err(Failure::from);
            Some(ready.and_then(|()| test_server::test_server(arguments)))
        }
        Verb::Completions { shell } => {
            let printed = pages::completions(*shell, io::stdout());
            Some(printed.map_err(Failure::from))
        }
        Verb::Man { dir } => {
            let printed = pages::man(dir.as_deref(), io::stdout());
            Some(printed.map_err(Failure::from))
        }
        _ => None,
    };
    let done = match alone {
        Some(done) => done,
        None => end_at_signals_as_the_first_process()
            .map_err(Failure::from)
            .and_then(|()| connection.resolve())
            .and_then(|connection| look(&connection, verb))
            .map_err(|failure| match verb {
                Verb::Doctor(_) => failure,
                _ => failure.advised(),
            }),
    };
    match done {
        Ok(()) => 0,
        Err(failure) => fail(&failure),
    }
}

/// The first process of a container ends at no signal that it does not catch.
#[cfg(unix)]
fn end_at_signals_as_the_first_process() -> io::Result<()> {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

    if std::process::id() == 1 {
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let status = i32::from(status::of_signal(signal));
            let always = Arc::new(AtomicBool::new(true));
            signal_hook::flag::register_conditional_shutdown(signal, status, always)?;
        }
    }
    Ok(())
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Unix")]
fn end_at_signals_as_the_first_process() -> io::Result<()> {
    Ok(())
}

/// The verbs that look at ZooKeeper, and those that interfere.
fn look(connection: &Connection, verb: &Verb) -> Result<(), Failure> {
    match verb {
        Verb::Ls(arguments) => ls::ls(connection, arguments),
        Verb::Who(arguments) => who::who(connection, arguments),
        Verb::Watch(arguments) => who::watch(connection, arguments),
        Verb::Jobs(arguments) => jobs::jobs(connection, arguments),
        Verb::Revoke(arguments) => interfere::revoke(connection, arguments),
        Verb::Break(arguments) => interfere::break_lock(connection, arguments),
        Verb::Gc(arguments) => interfere::gc(connection, arguments),
        Verb::Doctor(arguments) => doctor::doctor(connection, arguments),
        Verb::Run(_) | Verb::Hold(_) | Verb::Completions { .. } | Verb::Man { .. } => Ok(()),
        #[cfg(unix)]
        Verb::TestServer(_) => Ok(()),
    }
}

fn start_log(verbose: u8) {
    let filter = match verbose {
        0 => return,
        1 => "zklock=info,zklock_cli=info",
        _ => "zklock=debug,zklock_cli=debug",
    };
    env_logger::Builder::new()
        .parse_filters(filter)
        .target(env_logger::Target::Pipe(Box::new(speak::Log)))
        .init();
}

/// Says why, and returns what to exit with.
fn fail(failure: &Failure) -> u8 {
    say(format_args!("{}", failure.message));
    failure.status.code()
}
