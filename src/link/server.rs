//! A connection to a server, after its handshake: its socket, and the right to send on it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::clock::Moment;
use super::core::frame;
use super::core::{Ended, MOST_IN_KERNEL, ToSend, Took};
use super::epoch::Epoch;
use super::stream::Stream;

/// See the [module](self).
pub(super) struct Server {
    pub(super) stream: Stream,
    pub(super) epoch: Arc<Epoch>,
    /// Counts the connections of one link, from 1.
    pub(super) connection: u64,
    /// The right to send on it, and what is being sent. Only
    /// [`flush`](super::wire::Wire::flush) takes it: a thread
    /// that finds it taken goes away and relies on its holder to send for both.
    pub(super) writing: Mutex<Unsent>,
    /// The socket took less than there was: `zklock-down` sends the rest when it takes more.
    pub(super) full: AtomicBool,
    /// While it is full: when it took something last, or became so. Held for no more than a look.
    stuck_since: Mutex<Option<Instant>>,
    /// We have ended it, and not the other side.
    cut: AtomicBool,
    /// Because it was too slow.
    late: AtomicBool,
}

/// What was taken from the core, of which a part may have gone.
#[derive(Default)]
pub(super) struct Unsent {
    pub(super) clear: ToSend,
    /// As it goes over the wire, where that is not the same.
    sealed: Vec<u8>,
    /// For each piece of `clear`, where it ends in `sealed`.
    ends: Vec<usize>,
    pub(super) sent: usize,
    /// Of this connection, all frames that were taken from the core before `clear`.
    before: u64,
    /// And all bytes that the kernel has taken.
    pub(super) taken: u64,
    /// When the last of it was handed over.
    pub(super) taken_at: Option<Moment>,
}

impl Unsent {
    /// The bytes that are to be handed over next.
    pub(super) fn rest(&self, stream: &Stream) -> &[u8] {
        let all = if stream.seals() {
            &self.sealed
        } else {
            &self.clear.frames
        };
        &all[self.sent..]
    }

    /// Puts what was taken from the core into the form in which it goes over the wire.
    pub(super) fn seal(&mut self, stream: &Stream) -> io::Result<()> {
        if !stream.seals() {
            return Ok(());
        }
        let mut begin = 0;
        for &end in &self.clear.pieces {
            stream.seal(&self.clear.frames[begin..end], &mut self.sealed)?;
            self.ends.push(self.sealed.len());
            begin = end;
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.before += self.clear.frames.len() as u64;
        self.sent = 0;
        self.clear.clear();
        self.ends.clear();
        self.sealed.clear();
        if self.sealed.capacity() > frame::MAX_REQUEST_BYTES {
            self.sealed = Vec::new();
        }
    }

    /// What the kernel has taken. Of sealed bytes only whole pieces count.
    pub(super) fn took(&self, is_sealed: bool) -> Option<Took> {
        let here = if is_sealed {
            let whole = self.ends.partition_point(|end| *end <= self.sent);
            whole
                .checked_sub(1)
                .map_or(0, |last| self.clear.pieces[last])
        } else {
            self.sent
        };
        self.taken_at.map(|at| Took {
            frames: self.before + here as u64,
            at,
        })
    }
}

impl Server {
    pub(super) fn new(stream: Stream, epoch: Arc<Epoch>, connection: u64) -> Self {
        stream.keep_unsent_below(MOST_IN_KERNEL);
        Self {
            stream,
            epoch,
            connection,
            writing: Mutex::default(),
            full: AtomicBool::new(false),
            stuck_since: Mutex::new(None),
            cut: AtomicBool::new(false),
            late: AtomicBool::new(false),
        }
    }

    /// Ends reads and writes that are under way, on all threads.
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.stream.cut();
    }

    /// As [`cut`](Self::cut), because of what it did not take or answer in time.
    pub(super) fn cut_as_too_slow(&self) {
        self.late.store(true, Ordering::Release);
        self.cut();
    }

    /// Whether the other side ended it.
    pub(super) fn hung_up(&self) -> bool {
        !self.cut.load(Ordering::Acquire)
    }

    pub(super) fn ended(&self) -> Ended {
        if self.hung_up() {
            Ended::ByServer
        } else if self.late.load(Ordering::Acquire) {
            Ended::TooSlow
        } else {
            Ended::ByUs
        }
    }

    /// For how long the socket has taken nothing, though there was something.
    pub(super) fn stuck_for(&self) -> Option<Duration> {
        if !self.full.load(Ordering::Acquire) {
            return None;
        }
        let since = *self.stuck_since.lock();
        since.map(|since| since.elapsed())
    }

    /// The socket takes no more now. Called with the right to send, like the two below.
    pub(super) fn filled(&self) {
        if !self.full.load(Ordering::Acquire) {
            // First, so that nobody mistakes the time of the last time for this one's.
            *self.stuck_since.lock() = Some(Instant::now());
            self.full.store(true, Ordering::Release);
            self.stream.wake();
        }
    }

    pub(super) fn took_some(&self) {
        if self.full.load(Ordering::Acquire) {
            *self.stuck_since.lock() = Some(Instant::now());
        }
    }

    pub(super) fn drained(&self) {
        self.full.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// A request counts as taken when the kernel has all of the record that it is sealed in: an answer
    /// is waited for from then on, and not before.
    #[test]
    fn of_sealed_bytes_only_whole_pieces_count() {
        let clear = ToSend {
            frames: vec![0; 30],
            pieces: vec![10, 30],
        };
        let mut unsent = Unsent {
            clear,
            sealed: vec![0; 50],
            ends: vec![20, 50],
            ..Unsent::default()
        };
        assert!(unsent.took(true).is_none(), "nothing was handed over");
        unsent.taken_at = Some(Moment::from_nanos(1));
        let mut took = |sent, is_sealed| {
            unsent.sent = sent;
            unsent.took(is_sealed).map(|took| took.frames)
        };
        let sealed = [0, 19, 20, 49, 50].map(|sent| took(sent, true));
        assert_eq!(sealed, [0, 0, 10, 10, 30].map(Some));
        assert_eq!(
            [0, 7, 30].map(|sent| took(sent, false)),
            [0, 7, 30].map(Some)
        );
        // And all that went before.
        unsent.clear();
        assert_eq!(unsent.took(true).map(|took| took.frames), Some(30));
    }
}
