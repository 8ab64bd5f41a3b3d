//! `zklock test-server`: a ZooKeeper in memory, for tests in shell scripts and other languages.

use std::any::Any;
use std::io::{self, Write};
use std::thread;

use zklock_test::{Ensemble, Server};

use crate::arguments::TestServer;
use crate::say;
use crate::status::Failure;

/// Serves until a signal ends this process.
pub(crate) fn test_server(arguments: &TestServer) -> Result<(), Failure> {
    let server = Server::builder().port(arguments.port).tick(arguments.tick);
    let failed = |error: io::Error| {
        let port = arguments.port;
        Failure::internal(format!("cannot listen on port {port}: {error}"))
    };
    // They serve for as long as this is here.
    let (connect_string, _servers): (_, Box<dyn Any>) = if arguments.members == 1 {
        let server = server.start().map_err(failed)?;
        (server.connect_string(), Box::new(server))
    } else {
        let ensemble = Ensemble::builder(arguments.members.into()).servers(server);
        let ensemble = ensemble.start().map_err(failed)?;
        (ensemble.connect_string(), Box::new(ensemble))
    };
    say(format_args!(
        "a ZooKeeper for tests: on loopback alone, nothing is kept on disk, and gone when this ends"
    ));
    // For scripts: the first line is what clients connect to, and it is there when they can.
    let mut out = io::stdout();
    writeln!(out, "{connect_string}")?;
    out.flush()?;
    loop {
        thread::park();
    }
}
