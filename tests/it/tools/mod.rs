//! What people and tools look at, and the programs in `examples/`.

mod debugging;
mod examples;
mod looking_around;
#[cfg(feature = "metrics")]
mod metrics;
mod observing;
