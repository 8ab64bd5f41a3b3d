//! Requests that a server may choke on: pure.
//!
//! A server answers a request that is too long for it (its `jute.maxbuffer`), or of a kind that it
//! does not know, by closing the connection, which also ends whatever is in flight beside it. Those
//! others are answered on one of the next connections; the culprit never is. A request that is too
//! long for the network is found in the same way: each connection ends while it is being sent.
//!
//! Whoever sends for others does not send it again for a while. Not for ever: servers are replaced
//! by others, and what was in flight at each of several ordinary breaks looks the same. Then one may
//! cost a connection again, and the next while is twice as long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::answer::MOST_BREAKS;
use super::moment::Moment;
use super::packet::Shape;

/// For so many kinds and lengths of requests we remember how many breaks they met.
const MOST_SHAPES: usize = 256;
/// A request this long may be what holds a slow connection up.
const LARGE: usize = 64 << 10;
/// Poison is not sent for so long, the first time: short, because an innocent one may ask at each of
/// several breaks in a row, ...
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// ... and at the most.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// How often connections ended while a request of this kind and length was in flight, without one of
/// them having been answered in between.
#[derive(Default)]
pub(in crate::link) struct PoisonCounts(BTreeMap<Shape, Count>);

struct Count {
    breaks: u32,
    last: Moment,
}

impl PoisonCounts {
    /// One was answered.
    pub(in crate::link) fn acquit(&mut self, shape: Shape) {
        if !self.0.is_empty() {
            self.0.remove(&shape);
        }
    }

    /// A server has hung up with these in flight. However many there are of one shape, it is one
    /// break.
    pub(in crate::link) fn hung_up(&mut self, in_flight: impl Iterator<Item = Shape>, now: Moment) {
        for shape in in_flight.collect::<BTreeSet<_>>() {
            self.add(shape, now);
        }
    }

    /// We have ended a connection because this one was on its way for too long.
    pub(in crate::link) fn too_slow(&mut self, stuck: Shape, now: Moment) {
        if stuck.bytes >= LARGE {
            self.add(stuck, now);
        }
    }

    fn add(&mut self, shape: Shape, now: Moment) {
        if self.0.len() < MOST_SHAPES || self.0.contains_key(&shape) {
            let count = self.0.entry(shape).or_insert(Count {
                breaks: 0,
                last: now,
            });
            count.breaks = count.breaks.saturating_add(1);
            count.last = now;
        }
    }

    pub(in crate::link) fn breaks(&self, shape: Shape) -> u32 {
        self.0.get(&shape).map_or(0, |count| count.breaks)
    }

    /// Whether it has met so many breaks, the last of them so lately, that it is not to be sent.
    pub(in crate::link) fn forbids(&self, shape: Shape, now: Moment) -> bool {
        self.0.get(&shape).is_some_and(|count| {
            let Some(doublings) = count.breaks.checked_sub(MOST_BREAKS) else {
                return false;
            };
            let times = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
            let pause = FIRST_PAUSE.saturating_mul(times).min(LONGEST_PAUSE);
            now.since(count.last) < pause
        })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn now() -> Moment {
        Moment::from_nanos(1_000_000_000)
    }

    fn shape(bytes: usize) -> Shape {
        Shape { opcode: 1, bytes }
    }

    /// What is answered in between is as innocent as ever; the culprit never is.
    #[test]
    fn only_what_is_never_answered_is_poison() {
        let mut counts = PoisonCounts::default();
        let (culprit, beside) = (shape(1), shape(2));
        for breaks in 1..4 {
            counts.hung_up([culprit, beside, culprit].into_iter(), now());
            counts.acquit(beside);
            assert_eq!(counts.breaks(culprit), breaks);
            assert_eq!(counts.breaks(beside), 0);
        }
        counts.acquit(culprit);
        assert_eq!(counts.breaks(culprit), 0);
    }

    /// And is tried again, less and less often, until it is answered.
    #[test]
    fn poison_is_not_sent_for_a_while() {
        let (mut counts, mut now) = (PoisonCounts::default(), now());
        for _ in 1..MOST_BREAKS {
            counts.hung_up([shape(1)].into_iter(), now);
            assert!(!counts.forbids(shape(1), now));
        }
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
            counts.hung_up([shape(1)].into_iter(), now);
            assert!(!counts.forbids(shape(2), now), "it is innocent");
            now = now.plus(Duration::from_secs(seconds - 1));
            assert!(counts.forbids(shape(1), now), "{seconds}");
            now = now.plus(Duration::from_secs(1));
            assert!(!counts.forbids(shape(1), now), "{seconds}");
        }
        counts.acquit(shape(1));
        counts.hung_up([shape(1)].into_iter(), now);
        assert!(!counts.forbids(shape(1), now), "as at first");
    }

    #[test]
    fn what_is_short_holds_no_connection_up() {
        let mut counts = PoisonCounts::default();
        for bytes in [LARGE - 1, LARGE] {
            counts.too_slow(shape(bytes), now());
        }
        assert_eq!(counts.breaks(shape(LARGE - 1)), 0);
        assert_eq!(counts.breaks(shape(LARGE)), 1);
    }

    /// A caller may send a request of another length each time.
    #[test]
    fn no_more_is_remembered_than_a_few_shapes() {
        let mut counts = PoisonCounts::default();
        counts.hung_up((0..2 * MOST_SHAPES).map(shape), now());
        assert_eq!(counts.0.len(), MOST_SHAPES);
        let known = *counts.0.keys().next().expect("some");
        counts.hung_up([known].into_iter(), now());
        assert_eq!(counts.breaks(known), 2);
    }
}
