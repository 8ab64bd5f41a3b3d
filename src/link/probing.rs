//! What one connection has proved, and what its probes have found.

use super::chain::{Cadence, Chain, Opening};
use super::clock::Moment;

/// What one connection has proved, and what it asks next.
pub(super) struct Probing {
    pub(super) chain: Chain,
    /// The number of the node of ours that was asked for last.
    pub(super) last_node: u64,
    /// That node was gone, and so nothing proved: the next probe goes out now.
    pub(super) at_once: bool,
    /// This server would not tell us of our nodes: writes ask for none.
    pub(super) blindly: bool,
}

impl Probing {
    pub(super) fn new(cadence: Cadence, opening: Opening, sent_at: Moment) -> Self {
        Self {
            chain: Chain::new(cadence, opening, sent_at),
            last_node: 0,
            at_once: false,
            blindly: false,
        }
    }
}
