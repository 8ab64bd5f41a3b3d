//! The byte stream to a server: the one place that touches its socket once traffic flows.
//!
//! No call blocks here but [`Stream::wait`] and, on systems other than Unix, a write. Bytes pass
//! through [`Stream::encode`] on their way out and through [`Read`] on their way in: a
//! stream that encrypts does so there, and nobody else need know.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

#[cfg(unix)]
use std::os::unix::net::UnixStream;

use super::tls::Channel;

/// A connection to a server that has passed its handshake.
pub(super) struct Stream {
    socket: TcpStream,
    /// What passes it is sealed, if there is one.
    channel: Option<Channel>,
    /// Ends a [`wait`](Self::wait): what is written to the first is read from the second.
    #[cfg(unix)]
    rouse: (UnixStream, UnixStream),
}

/// What a wait came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl Stream {
    #[cfg(unix)]
    pub(super) fn new(socket: TcpStream, channel: Option<Channel>) -> io::Result<Self> {
        let rouse = UnixStream::pair()?;
        rouse.0.set_nonblocking(true)?;
        rouse.1.set_nonblocking(true)?;
        Ok(Self {
            socket,
            channel,
            rouse,
        })
    }

    #[cfg(not(unix))]
    pub(super) fn new(socket: TcpStream, channel: Option<Channel>) -> io::Result<Self> {
        Ok(Self { socket, channel })
    }

    /// How long a wait lasts at the most where it cannot be told (other systems than Unix), and a
    /// write that makes no progress.
    pub(super) fn limit(&self, wait: Duration, write: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(wait))?;
        self.socket.set_write_timeout(Some(write))
    }

    /// Appends `frames` in the form in which they go over the wire. Called in the order in which
    /// they are to go.
    pub(super) fn encode(&self, frames: &[u8], outgoing: &mut Vec<u8>) {
        match &self.channel {
            None => outgoing.extend_from_slice(frames),
            Some(channel) => {
                if channel.seal(frames, outgoing).is_err() {
                    self.cut();
                }
            }
        }
    }

    /// Sends as much of what was encoded as the socket takes now. `WouldBlock`: nothing.
    #[cfg(unix)]
    pub(super) fn send(&self, encoded: &[u8]) -> io::Result<usize> {
        use rustix::net::{SendFlags, send};
        // The standard library never raises SIGPIPE, so neither does this; on Apple's systems it
        // has set the socket so.
        #[cfg(not(target_vendor = "apple"))]
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        #[cfg(target_vendor = "apple")]
        let flags = SendFlags::DONTWAIT;
        Ok(send(&self.socket, encoded, flags)?)
    }

    #[cfg(not(unix))]
    pub(super) fn send(&self, encoded: &[u8]) -> io::Result<usize> {
        use std::io::Write;
        (&self.socket).write(encoded)
    }

    /// Waits until there is something to read, or if `to_write` until the socket takes more, or
    /// [`rouse`](Self::rouse) was called, or for `limit`.
    #[cfg(unix)]
    pub(super) fn wait(&self, limit: Duration, to_write: bool) -> io::Result<Ready> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        // A record that was opened may hold more than was read, and the socket knows nothing of it.
        let opened = self.has_opened();
        let limit = if opened { Duration::ZERO } else { limit };
        let interest = if to_write {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::IN
        };
        let mut watched = [
            PollFd::new(&self.socket, interest),
            PollFd::new(&self.rouse.1, PollFlags::IN),
        ];
        let limit = Timespec::try_from(limit).ok();
        poll(&mut watched, limit.as_ref())?;
        let [socket, roused] = watched.map(|fd| fd.revents());
        if !roused.is_empty() {
            while matches!((&self.rouse.1).read(&mut [0; 64]), Ok(64)) {}
        }
        Ok(Ready {
            // An error or the end is found by reading.
            readable: opened || !socket.difference(PollFlags::OUT).is_empty(),
            writable: socket.contains(PollFlags::OUT),
        })
    }

    #[cfg(not(unix))]
    #[expect(clippy::unused_self, reason = "the read itself waits")]
    pub(super) fn wait(&self, _limit: Duration, _to_write: bool) -> io::Result<Ready> {
        Ok(Ready {
            readable: true,
            writable: false,
        })
    }

    #[cfg(unix)]
    fn has_opened(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::has_clear)
    }

    /// Ends the wait that is under way, or the next.
    pub(super) fn rouse(&self) {
        #[cfg(unix)]
        {
            use std::io::Write;
            // If it is full, the wait ends anyway.
            let _ = (&self.rouse.0).write(&[0]);
        }
    }

    /// Ends reads, writes and waits that are under way, on all threads.
    pub(super) fn cut(&self) {
        // Fails only when the peer was faster.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// What came, in the clear. Does not block after a [`wait`](Stream::wait) that told of it.
impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.channel {
            None => (&self.socket).read(bytes),
            Some(channel) => channel.read(&self.socket, bytes),
        }
    }
}
