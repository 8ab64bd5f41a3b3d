//! `zklock`: runs commands under distributed locks, and shows who holds and who waits.

#![forbid(unsafe_code)]

mod arguments;
mod connect;
mod look;
mod pages;
mod run;
mod speak;
mod status;
mod test_server;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use self::arguments::{Arguments, Verb};
use self::look::{doctor, interfere, ls, who};
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

/// Returns what to exit with.
fn perform(Arguments { connection, verb }: &Arguments) -> u8 {
    let done = match verb {
        Verb::Run(arguments) => return run::run(connection, arguments),
        Verb::Ls(arguments) => ls::ls(connection, arguments),
        Verb::Who(arguments) => who::who(connection, arguments),
        Verb::Watch(arguments) => who::watch(connection, arguments),
        Verb::Revoke(arguments) => interfere::revoke(connection, arguments),
        Verb::Break(arguments) => interfere::break_lock(connection, arguments),
        Verb::Gc(arguments) => interfere::gc(connection, arguments),
        Verb::Doctor(arguments) => doctor::doctor(connection, arguments),
        Verb::TestServer(arguments) => test_server::test_server(arguments),
        Verb::Completions { shell } => {
            pages::completions(*shell, io::stdout()).map_err(Failure::from)
        }
        Verb::Man { dir } => pages::man(dir.as_deref(), io::stdout()).map_err(Failure::from),
    };
    match done {
        Ok(()) => 0,
        Err(failure) => fail(&failure),
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
