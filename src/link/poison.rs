//! Requests that a server may choke on: pure.
//!
//! A server answers a request that is too long for it (its `jute.maxbuffer`), or of a kind that it
//! does not know, by closing the connection, which also ends whatever is in flight beside it. Those
//! others are answered on one of the next connections; the culprit never is. A request that is too
//! long for the network is found in the same way: each connection ends while it is being sent.

use std::collections::{HashMap, HashSet};

use super::packet::Shape;

/// For so many kinds and lengths of requests we remember how many breaks they met.
const MOST_SHAPES: usize = 256;
/// A request this long may be what holds a slow connection up.
const LARGE: usize = 64 << 10;

/// How often connections ended while a request of this kind and length was in flight, without one of
/// them having been answered in between.
#[derive(Default)]
pub(super) struct PoisonCounts(HashMap<Shape, u32>);

impl PoisonCounts {
    /// One was answered.
    pub(super) fn acquit(&mut self, shape: Shape) {
        if !self.0.is_empty() {
            self.0.remove(&shape);
        }
    }

    /// A server has hung up with these in flight. However many there are of one shape, it is one
    /// break.
    pub(super) fn hung_up(&mut self, in_flight: impl Iterator<Item = Shape>) {
        for shape in in_flight.collect::<HashSet<_>>() {
            self.add(shape);
        }
    }

    /// We have ended a connection because this one was on its way for too long.
    pub(super) fn too_slow(&mut self, stuck: Shape) {
        if stuck.bytes >= LARGE {
            self.add(stuck);
        }
    }

    fn add(&mut self, shape: Shape) {
        if self.0.len() < MOST_SHAPES || self.0.contains_key(&shape) {
            *self.0.entry(shape).or_insert(0) += 1;
        }
    }

    pub(super) fn breaks(&self, shape: Shape) -> u32 {
        self.0.get(&shape).copied().unwrap_or(0)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn shape(bytes: usize) -> Shape {
        Shape { opcode: 1, bytes }
    }

    /// What is answered in between is as innocent as ever; the culprit never is.
    #[test]
    fn only_what_is_never_answered_is_poison() {
        let mut counts = PoisonCounts::default();
        let (culprit, beside) = (shape(1), shape(2));
        for breaks in 1..4 {
            counts.hung_up([culprit, beside, culprit].into_iter());
            counts.acquit(beside);
            assert_eq!(counts.breaks(culprit), breaks);
            assert_eq!(counts.breaks(beside), 0);
        }
        counts.acquit(culprit);
        assert_eq!(counts.breaks(culprit), 0);
    }

    #[test]
    fn what_is_short_holds_no_connection_up() {
        let mut counts = PoisonCounts::default();
        for bytes in [LARGE - 1, LARGE] {
            counts.too_slow(shape(bytes));
        }
        assert_eq!(counts.breaks(shape(LARGE - 1)), 0);
        assert_eq!(counts.breaks(shape(LARGE)), 1);
    }

    /// A caller may send a request of another length each time.
    #[test]
    fn no_more_is_remembered_than_a_few_shapes() {
        let mut counts = PoisonCounts::default();
        counts.hung_up((0..2 * MOST_SHAPES).map(shape));
        assert_eq!(counts.0.len(), MOST_SHAPES);
        let known = *counts.0.keys().next().expect("some");
        counts.hung_up([known].into_iter());
        assert_eq!(counts.breaks(known), 2);
    }
}
