//! What is known of nodes without asking anybody: paths, names, their order, and what it means.
//! Pure: no input or output, clock or thread.

pub(crate) mod fencing;
pub(crate) mod identity;
pub(crate) mod job;
pub(crate) mod label;
pub(crate) mod names;
pub(crate) mod path;
pub(crate) mod sequence;
pub(crate) mod verdict;
