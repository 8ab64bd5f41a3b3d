//! Chance, and the lanes on which what is said travels.

use super::{END, SECOND};

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    pub(super) fn of<X: Copy>(&mut self, all: &[X]) -> X {
        let index = self.below(all.len() as u64);
        all[usize::try_from(index).expect("small")]
    }
}

/// One direction: in order, with delays, stalls that end in a burst, and perhaps a cut.
pub(super) struct Lane {
    last: u64,
    delay: u64,
    stalls: Vec<(u64, u64)>,
    cut: u64,
}

impl Lane {
    pub(super) fn new(random: &mut Random, cut: u64) -> Self {
        let stalls = random.of(&[0, 1, 3, 6]);
        let mut begins: Vec<u64> = (0..stalls).map(|_| random.below(END)).collect();
        begins.sort_unstable();
        let stall = |begin| {
            let most = random.of(&[SECOND / 2, 2 * SECOND, 5 * SECOND, 9 * SECOND]);
            (begin, begin + random.below(most))
        };
        Self {
            last: 0,
            stalls: begins.into_iter().map(stall).collect(),
            delay: random.of(&[SECOND / 1_000, SECOND / 20, SECOND * 3 / 10]),
            cut,
        }
    }

    /// There is no cut.
    pub(super) fn mend(&mut self) {
        self.cut = u64::MAX;
    }

    /// When what is sent now arrives, if it does.
    pub(super) fn arrival(&mut self, random: &mut Random, now: u64) -> Option<u64> {
        let mut at = (now + random.below(self.delay)).max(self.last);
        for &(begin, end) in &self.stalls {
            if (begin..end).contains(&at) {
                at = end;
            }
        }
        self.last = at;
        (at < self.cut).then_some(at)
    }
}
