//! `zklock test-server`: a ZooKeeper in memory, for tests in shell scripts and other languages.

use std::io::{self, Write};
use std::thread;

use crate::arguments::TestServer;
use crate::say;
use crate::status::Failure;

/// Serves until a signal ends this process.
pub(crate) fn test_server(arguments: &TestServer) -> Result<(), Failure> {
    let server = zklock_test::Server::builder()
        .port(arguments.port)
        .tick(arguments.tick)
        .start()
        .map_err(|error| {
            Failure::internal(format!("cannot listen on port {}: {error}", arguments.port))
        })?;
    say(format_args!(
        "a ZooKeeper for tests: on loopback alone, nothing is kept on disk, and gone when this ends"
    ));
    // For scripts: the first line is what clients connect to, and it is there when they can.
    let mut out = io::stdout();
    writeln!(out, "{}", server.connect_string())?;
    out.flush()?;
    loop {
        thread::park();
    }
}
