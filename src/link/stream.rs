//! The byte stream to a server: the one place that touches its socket once traffic flows.
//!
//! No call blocks here but [`Stream::wait`] and, on systems other than Unix, a write. Bytes pass
//! through [`Stream::seal`] on their way out and through [`Read`] on their way in: a
//! stream that encrypts does so there, and nobody else need know.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::tls::Channel;
use super::wakeup::{Ready, Wakeup};

/// A connection to a server that has passed its handshake.
pub(super) struct Stream {
    socket: TcpStream,
    /// What passes it is sealed, if there is one.
    channel: Option<Channel>,
    /// Ends a [`wait`](Self::wait).
    wakeup: Wakeup,
}

impl Stream {
    pub(super) fn new(socket: TcpStream, channel: Option<Channel>) -> io::Result<Self> {
        Ok(Self {
            socket,
            channel,
            wakeup: Wakeup::new()?,
        })
    }

    /// The longest wait where nothing can end it (systems other than Unix), and the longest write
    /// that makes no progress.
    pub(super) fn limit(&self, wait: Duration, write: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(wait))?;
        self.socket.set_write_timeout(Some(write))
    }

    /// What the kernel has taken and not sent is to be no more than about this. It counts what it
    /// keeps with each packet, too, and doubles the number for that.
    #[cfg(unix)]
    pub(super) fn keep_unsent_below(&self, bytes: usize) {
        // Where it cannot be set, more may be ahead of a probe on a slow network.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&self.socket, bytes);
    }

    #[cfg(not(unix))]
    #[expect(clippy::unused_self, reason = "as on Unix")]
    pub(super) fn keep_unsent_below(&self, _bytes: usize) {}

    /// Whether what goes over the wire is not what is said.
    pub(super) fn seals(&self) -> bool {
        self.channel.is_some()
    }

    /// Appends `frames` in the form in which they go over the wire, if that is another. Called in the
    /// order in which they are to go.
    pub(super) fn seal(&self, frames: &[u8], sealed: &mut Vec<u8>) -> io::Result<()> {
        match &self.channel {
            None => Ok(()),
            Some(channel) => channel.seal(frames, sealed),
        }
    }

    /// Sends as much of these bytes as the socket takes now. `WouldBlock`: nothing.
    #[cfg(unix)]
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        use rustix::net::{SendFlags, send};
        // The standard library never raises SIGPIPE, so neither does this; on Apple's systems it
        // has set the socket so.
        #[cfg(not(target_vendor = "apple"))]
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        #[cfg(target_vendor = "apple")]
        let flags = SendFlags::DONTWAIT;
        Ok(send(&self.socket, bytes, flags)?)
    }

    #[cfg(not(unix))]
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        use std::io::Write;
        (&self.socket).write(bytes)
    }

    /// Waits until there is something to read, or if `to_write` until the socket takes more, or
    /// [`wake`](Self::wake) was called, or for `limit`.
    pub(super) fn wait(&self, limit: Duration, to_write: bool) -> io::Result<Ready> {
        // A record that was opened may hold more than was read, and the socket knows nothing of it.
        let opened = self.channel.as_ref().is_some_and(Channel::has_clear);
        let limit = if opened { Duration::ZERO } else { limit };
        let mut ready = self.wakeup.wait(&self.socket, to_write, Some(limit))?;
        ready.readable |= opened;
        Ok(ready)
    }

    /// Ends the wait that is under way, or the next.
    pub(super) fn wake(&self) {
        self.wakeup.wake();
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
