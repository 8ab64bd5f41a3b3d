//! What the link decides: pure.
//!
//! No thread, socket, clock, lock or log line is in this folder, and nothing of it calls anybody
//! above: whoever drives it brings the bytes and the time, sends what comes out, and tells what is
//! to be told. `scripts/layers` checks that.

pub(in crate::link) mod answer;
pub(in crate::link) mod batch;
mod caller;
pub(in crate::link) mod chain;
pub(in crate::link) mod completed;
pub(in crate::link) mod frame;
pub(in crate::link) mod group;
mod known;
pub(in crate::link) mod lease;
pub(in crate::link) mod moment;
pub(in crate::link) mod packet;
pub(in crate::link) mod poison;
pub(in crate::link) mod probing;
pub(in crate::link) mod waiting;

pub(crate) use self::known::Known;
