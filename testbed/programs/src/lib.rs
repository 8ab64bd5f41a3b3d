//! What the programs of this package share: the partitions, which a test plays as well, and what
//! the torture and its workers have in common.

pub mod history;
pub mod partition;
pub mod random;
