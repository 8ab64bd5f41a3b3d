//! The stores of this package, the real ones, and a holder that is stopped for longer than its session lives.
//!
//! `story` has what happens; each store plays it with its guard, and once more without, to show that the guard is what
//! refuses the late write.

mod holder;
mod servers;
mod stores;
mod story;

mod file;
mod page;
mod postgresql;
mod redis;
mod sqlite;
mod zookeeper;
