//! Waits for a socket that another thread can end.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

#[cfg(unix)]
use std::os::unix::net::UnixStream;

/// What a wait came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    pub(super) readable: bool,
    pub(super) writable: bool,
}

/// Ends the waits of one thread, from others: what is written to the first is read from the second.
#[cfg(unix)]
pub(super) struct Wakeup(UnixStream, UnixStream);

#[cfg(unix)]
impl Wakeup {
    pub(super) fn new() -> io::Result<Self> {
        let (tell, told) = UnixStream::pair()?;
        tell.set_nonblocking(true)?;
        told.set_nonblocking(true)?;
        Ok(Self(tell, told))
    }

    /// Ends the wait that is under way, or the next.
    pub(super) fn wake(&self) {
        use std::io::Write;
        // If it is full, the wait ends anyway.
        let _ = (&self.0).write(&[0]);
    }

    /// Waits until there is something to read, or if `to_write` until the socket takes more, or
    /// [`wake`](Self::wake) was called, or for `limit`.
    pub(super) fn wait(
        &self,
        socket: &TcpStream,
        to_write: bool,
        limit: Option<Duration>,
    ) -> io::Result<Ready> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use std::io::Read;
        let interest = if to_write {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::IN
        };
        let mut watched = [
            PollFd::new(socket, interest),
            PollFd::new(&self.1, PollFlags::IN),
        ];
        // Longer than can be said is for ever.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        poll(&mut watched, limit.as_ref())?;
        let [socket, roused] = watched.map(|fd| fd.revents());
        if !roused.is_empty() {
            while matches!((&self.1).read(&mut [0; 64]), Ok(64)) {}
        }
        Ok(Ready {
            // An error or the end is found by reading.
            readable: !socket.difference(PollFlags::OUT).is_empty(),
            writable: socket.contains(PollFlags::OUT),
        })
    }
}

/// Here nothing ends a wait: the reads that follow have a time limit instead.
#[cfg(not(unix))]
pub(super) struct Wakeup;

#[cfg(not(unix))]
#[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as on Unix")]
impl Wakeup {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn wake(&self) {}

    pub(super) fn wait(
        &self,
        _socket: &TcpStream,
        _to_write: bool,
        _limit: Option<Duration>,
    ) -> io::Result<Ready> {
        Ok(Ready {
            readable: true,
            writable: false,
        })
    }
}
