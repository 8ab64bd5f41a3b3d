//! What a thread that waits has: its deadline and cancel token, what wakes it, what it is told.

pub(crate) mod announcement;
pub(crate) mod bound;
pub(crate) mod cancel;
pub(crate) mod position;
pub(crate) mod signal;
