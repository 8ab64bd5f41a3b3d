//! The command as a user has it, on real servers.

#[path = "../../../tests/support/mod.rs"]
mod support;

#[path = "../../../tests/support/certificates.rs"]
#[allow(dead_code, reason = "the tests of the library use all of it")]
mod certificates;

mod configuration;
mod fixtures;
mod guards;
mod hostile;
mod job;
mod looking;
mod losses;
mod recipes;
mod running;
mod sections;
mod signals;
mod terminal;
mod test_server;
mod tls;
mod traces;
