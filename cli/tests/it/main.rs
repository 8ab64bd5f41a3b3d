//! The command as a user has it, on real servers.

mod configuration;
mod edges;
mod fixtures;
mod guards;
mod hostile;
mod job;
mod looking;
mod losses;
mod once;
mod recipes;
mod running;
mod sections;
mod signals;
mod terminal;
mod test_server;
mod tls;
mod traces;
