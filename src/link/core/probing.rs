//! What one connection has proved, and what its probes have found.

use super::chain::{Chain, Opening, ProbeIntervals};
use super::moment::Moment;

/// What one connection has proved, and what it asks next.
pub(in crate::link) struct Probing {
    pub(in crate::link) chain: Chain,
    /// The number of the node of ours that was asked for last.
    pub(in crate::link) last_node: u64,
    /// That node was gone, and so nothing proved: the next probe goes out now.
    pub(in crate::link) at_once: bool,
    /// This server would not tell us of our nodes: writes ask for none.
    pub(in crate::link) blindly: bool,
}

impl Probing {
    pub(in crate::link) fn new(
        intervals: ProbeIntervals,
        opening: Opening,
        sent_at: Moment,
    ) -> Self {
        Self {
            chain: Chain::new(intervals, opening, sent_at),
            last_node: 0,
            at_once: false,
            blindly: false,
        }
    }
}
