//! The command as a user has it, on real servers.

#[path = "../../../tests/support/mod.rs"]
mod support;

mod fixtures;
mod job;
mod looking;
mod losses;
mod running;
mod signals;
mod terminal;
mod test_server;
