//! What a thread that waits has: its deadline and cancel token, what wakes it, what it is told.

pub(crate) mod acquire_options;
pub(crate) mod cancel;
pub(crate) mod limits;
pub(crate) mod once_event;
pub(crate) mod position;
pub(crate) mod signal;
