//! Tests on real servers: one file for each recipe and one for each kind of trouble.

#[path = "../support/mod.rs"]
mod support;

mod connecting;
mod ground;
mod kazoo;
mod leaks;
mod lost_replies;
mod mutex;
mod outages;
mod processes;
mod sessions;
mod tenures;
mod testbed;
