//! The parts of the load tool, `examples/load.rs`.

pub(crate) mod bars;
mod beside;
pub(crate) mod compare;
pub(crate) mod costs;
pub(crate) mod crew;
pub(crate) mod failover;
pub(crate) mod herd;
pub(crate) mod history;
pub(crate) mod idle;
pub(crate) mod plot;
pub(crate) mod readers;
mod svg;
pub(crate) mod traffic;
