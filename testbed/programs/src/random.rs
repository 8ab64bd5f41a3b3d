//! Random choices that a seed repeats.

use std::time::Duration;

/// xorshift64*: short, and the same everywhere and for ever.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // Zero would stay zero, and neighbouring seeds would begin alike.
        let mut random =
            Random((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1);
        for _ in 0..8 {
            random.draw();
        }
        random
    }

    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        // The low bits of the state are its weakest.
        (self.draw() >> 11) % end.max(1)
    }

    /// A place in a list of this length.
    pub fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a usize")
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.place(choices.len())]
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_micros();
        least + Duration::from_micros(self.below(u64::try_from(span).unwrap_or(u64::MAX)))
    }
}
