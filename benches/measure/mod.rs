//! What the lock is measured against, with nothing of the lock in it, and how.

// The benchmarks and the load tool each use their part.
#![allow(dead_code)]

pub(crate) mod bench;
pub(crate) mod fifo;
pub(crate) mod plain;
pub(crate) mod results;
pub(crate) mod servers;
pub(crate) mod steady;
pub(crate) mod table;
