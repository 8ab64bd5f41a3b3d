//! The command as a user has it, on real servers.

#[path = "../../../tests/support/mod.rs"]
mod support;

mod configuration;
mod fixtures;
mod hostile;
mod job;
mod looking;
mod losses;
mod running;
mod sections;
mod signals;
mod terminal;
mod test_server;
