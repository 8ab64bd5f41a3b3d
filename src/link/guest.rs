//! The socket of a handle of the `zookeeper` crate, behind its door.
//!
//! # Locks
//! The right to send is only tried for. So a handle whose threads hang, or whose program stands still
//! in a debugger, keeps nobody waiting. What is to be sent lies in the [core](super::core::Core).

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::core::HandleId;
use super::epoch::Epoch;
use super::wakeup::{Ready, Wakeup};

/// To be called if a watch may have been taken off on behalf of somebody else.
pub(crate) type TakenOff = Box<dyn Fn() + Send + Sync>;

/// See the [module](self).
pub(super) struct Guest {
    pub(super) id: HandleId,
    /// Its session. Its requests go into no other.
    pub(super) epoch: Arc<Epoch>,
    stream: TcpStream,
    wakeup: Wakeup,
    /// It did not take all that there was.
    full: AtomicBool,
    gone: AtomicBool,
    /// The right to send, and what is being sent.
    pub(super) sending: Mutex<Sending>,
}

/// The piece that is being sent.
#[derive(Default)]
pub(super) struct Sending {
    pub(super) bytes: Vec<u8>,
    pub(super) sent: usize,
}

impl Sending {
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn is_over(&self) -> bool {
        self.rest().is_empty()
    }
}

impl Guest {
    pub(super) fn new(id: HandleId, epoch: Arc<Epoch>, stream: TcpStream) -> io::Result<Self> {
        if cfg!(not(unix)) {
            // Nothing else ends a read there.
            stream.set_read_timeout(Some(std::time::Duration::from_millis(10)))?;
        }
        Ok(Self {
            id,
            epoch,
            stream,
            wakeup: Wakeup::new()?,
            full: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            sending: Mutex::default(),
        })
    }

    // ---- to the handle ----

    /// As many of these bytes as it takes now. `WouldBlock`: none.
    pub(super) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        send_now(&self.stream, bytes)
    }

    /// It did not take all that there was: its door sends the rest when it takes more.
    pub(super) fn filled(&self) {
        self.full.store(true, Ordering::Release);
        self.wakeup.wake();
    }

    /// Its door finds the end of the stream.
    pub(super) fn hang_up(&self) {
        self.gone.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    // ---- from the handle: for its door alone ----

    /// Waits until there is something to read, or it takes what it did not take before.
    pub(super) fn wait(&self) -> io::Result<Ready> {
        let to_write = self.full.load(Ordering::Acquire);
        let ready = self.wakeup.wait(&self.stream, to_write, None)?;
        if ready.writable {
            self.full.store(false, Ordering::Release);
        }
        Ok(ready)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

#[cfg(unix)]
fn send_now(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    use rustix::net::{SendFlags, send};
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::DONTWAIT;
    Ok(send(stream, bytes, flags)?)
}

#[cfg(not(unix))]
fn send_now(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    use std::io::Write;
    stream.write(bytes)
}
