//! What waits for a handle of the crate to take it.

use std::collections::VecDeque;

/// In pieces of this length, so that what was taken is freed and what is idle costs little.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes in their order, the piece that is being sent among them.
#[derive(Default)]
pub(super) struct Untaken {
    pieces: VecDeque<Vec<u8>>,
    /// Also of the piece that is being sent, all of which is kept until it has been sent.
    bytes: usize,
}

impl Untaken {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len();
        while !bytes.is_empty() {
            if self
                .pieces
                .back()
                .is_none_or(|last| last.len() == PIECE_BYTES)
            {
                self.pieces.push_back(Vec::new());
            }
            let last = self.pieces.back_mut().expect("one that is not full");
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - last.len()));
            let wanted = last.len() + now.len();
            if last.capacity() < wanted {
                // By doubling, as ever, but never beyond a piece.
                let grown = (2 * last.capacity()).clamp(wanted, PIECE_BYTES);
                last.reserve_exact(grown - last.len());
            }
            last.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Puts the next piece in the place of the one that has been sent. Returns whether there was one.
    pub(super) fn replace(&mut self, sent: &mut Vec<u8>) -> bool {
        self.bytes -= sent.len();
        *sent = self.pieces.pop_front().unwrap_or_default();
        !sent.is_empty()
    }

    /// All of it, but for the piece that is being sent.
    pub(super) fn clear(&mut self) {
        let waiting: usize = self.pieces.iter().map(Vec::len).sum();
        self.bytes -= waiting;
        self.pieces = VecDeque::new();
    }

    #[cfg(all(test, not(shuttle)))]
    fn allocated(&self) -> usize {
        self.pieces.iter().map(Vec::capacity).sum()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Once all of it was in one buffer while another of its size was sent, and both stayed as long
    /// as they had ever been.
    #[test]
    fn no_more_is_kept_than_counts_and_nothing_when_all_was_taken() {
        let (mut untaken, mut sending) = (Untaken::default(), Vec::new());
        let frame = vec![7; 40_000];
        for _ in 0..100 {
            untaken.add(&frame);
        }
        assert_eq!(untaken.bytes(), 4_000_000);
        assert!(untaken.allocated() < 4_000_000 + PIECE_BYTES);
        let mut taken = 0;
        while untaken.replace(&mut sending) {
            assert!(sending.capacity() <= PIECE_BYTES);
            assert_eq!(untaken.bytes(), 4_000_000 - taken);
            taken += sending.len();
        }
        assert_eq!((taken, untaken.bytes()), (4_000_000, 0));
        assert_eq!((untaken.allocated(), sending.capacity()), (0, 0));
    }

    proptest! {
        #[test]
        fn what_comes_out_is_what_went_in(
            steps in prop::collection::vec((0..200_000_usize, any::<bool>()), 0..12),
        ) {
            // No two stretches of it are the same.
            let mut number = 0_u32;
            let mut bytes = |length: usize| {
                let numbers = (0..length.div_ceil(4)).flat_map(|_| {
                    number += 1;
                    number.to_be_bytes()
                });
                numbers.take(length).collect::<Vec<u8>>()
            };
            let (mut untaken, mut sending) = (Untaken::default(), Vec::new());
            let (mut went_in, mut came_out) = (Vec::new(), Vec::new());
            for (length, takes) in steps {
                let bytes = bytes(length);
                untaken.add(&bytes);
                went_in.extend(bytes);
                if takes {
                    untaken.replace(&mut sending);
                    came_out.extend_from_slice(&sending);
                }
                prop_assert_eq!(untaken.bytes(), went_in.len() - came_out.len() + sending.len());
            }
            while untaken.replace(&mut sending) {
                came_out.extend_from_slice(&sending);
            }
            prop_assert_eq!(came_out, went_in);
            prop_assert_eq!(untaken.bytes(), 0);
        }
    }
}
