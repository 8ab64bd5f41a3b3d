//! What the lock is measured against, with nothing of the lock in it, and how.

pub mod bench;
pub mod fifo;
pub mod plain;
pub mod results;
pub mod servers;
pub mod steady;
pub mod table;
