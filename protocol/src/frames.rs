//! [`Frames`]: a stream of bytes, cut into frames.

use crate::jute::Malformed;

/// A stream of bytes of a connection, cut into pieces as they become whole.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    /// How much of `bytes` was cut off already.
    taken: usize,
    most: usize,
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A frame, without the length before it.
    Frame(Vec<u8>),
    /// A four-letter word, where a frame's length would be.
    Word([u8; 4]),
}

const LENGTH_BYTES: usize = 4;
/// When so much was cut off, the rest moves to the front.
const MOVE_AFTER: usize = 64 * 1024;

impl Frames {
    /// For frames of at most `most` bytes, without the length before them.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            taken: 0,
            most,
        }
    }

    /// Adds what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken == self.bytes.len() || self.taken > MOVE_AFTER {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame; none yet if it is not whole.
    ///
    /// # Errors
    /// If its length is negative or over the limit. Nothing sensible follows then.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        let Some(head) = self.head() else {
            return Ok(None);
        };
        let length = usize::try_from(i32::from_be_bytes(head))
            .ok()
            .filter(|length| *length <= self.most)
            .ok_or(Malformed("a length that is over the limit"))?;
        let waiting = &self.bytes[self.taken + LENGTH_BYTES..];
        let Some(frame) = waiting.get(..length) else {
            return Ok(None);
        };
        let frame = frame.to_vec();
        self.taken += LENGTH_BYTES + length;
        Ok(Some(frame))
    }

    /// As [`Frames::next_frame`], for a server that waits for the first of a connection: four
    /// letters may stand where the length would be.
    ///
    /// # Errors
    /// As [`Frames::next_frame`].
    pub fn first_piece(&mut self) -> Result<Option<Piece>, Malformed> {
        match self.head() {
            Some(word) if word.iter().all(u8::is_ascii_lowercase) => {
                self.taken += LENGTH_BYTES;
                Ok(Some(Piece::Word(word)))
            }
            _ => Ok(self.next_frame()?.map(Piece::Frame)),
        }
    }

    fn head(&self) -> Option<[u8; 4]> {
        self.bytes[self.taken..].first_chunk().copied()
    }
}
