//! One connection's state of TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use parking_lot::Mutex;
use rustls::ClientConnection;

use super::failure::Blame;
use super::settings::Tls;

/// What is read from the socket at once: a record has 16 KiB at the most, and a little more.
const CHUNK_BYTES: usize = 16 * 1024;

/// Seals what goes out and opens what comes in. Whoever writes and whoever reads share its state
/// for the time that it takes to do so, and never while either waits for the socket.
pub(in crate::link) struct Channel {
    state: Mutex<State>,
    blame: Blame,
}

struct State {
    tls: ClientConnection,
    /// What has come and was opened; up to `taken` it was read.
    clear: Vec<u8>,
    taken: usize,
    /// The server has said that nothing more comes.
    over: bool,
}

impl Channel {
    /// With the files as they are now. Nothing was sent yet; see
    /// [`is_shaking_hands`](Self::is_shaking_hands).
    pub(in crate::link) fn begin(tls: &Tls, host: &str) -> io::Result<Self> {
        let blame = Blame::new(tls);
        let tls = tls.connection(host).map_err(io::Error::other)?;
        Ok(Self {
            state: Mutex::new(State {
                tls,
                clear: Vec::new(),
                taken: 0,
                over: false,
            }),
            blame,
        })
    }

    /// Whether the handshake goes on: send what [`seal`](Self::seal) of nothing gives, then
    /// [`receive`](Self::receive).
    pub(in crate::link) fn is_shaking_hands(&self) -> bool {
        self.state.lock().tls.is_handshaking()
    }

    /// Why a server may hang up on us without a word, as far as TLS goes.
    pub(in crate::link) fn hung_up(&self) -> &'static str {
        self.blame.hung_up(self.is_shaking_hands())
    }

    /// Appends `clear`, sealed, and before it what TLS itself has to say.
    pub(in crate::link) fn seal(&self, mut clear: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut state = self.state.lock();
        let tls = &mut state.tls;
        loop {
            // As much as TLS keeps for us at once.
            let taken = if clear.is_empty() {
                0
            } else {
                tls.writer().write(clear)?
            };
            clear = &clear[taken..];
            let before = out.len();
            while tls.wants_write() {
                tls.write_tls(out)?;
            }
            if clear.is_empty() {
                return Ok(());
            }
            if taken == 0 && out.len() == before {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
    }

    /// Whether [`read`](Self::read) has something without asking the socket.
    pub(in crate::link) fn has_clear(&self) -> bool {
        let state = self.state.lock();
        state.over || state.taken < state.clear.len()
    }

    /// What came, in the clear. Reads once from the socket if there is nothing; `WouldBlock` if what
    /// it gave was no whole record.
    pub(in crate::link) fn read(&self, socket: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(read) = self.state.lock().take(bytes) {
            return Ok(read);
        }
        if self.receive(socket)? == 0 {
            return Ok(0);
        }
        let read = self.state.lock().take(bytes);
        read.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Reads once from the socket, and opens what came. `Ok(0)` is the end of the stream.
    pub(in crate::link) fn receive(&self, mut socket: &TcpStream) -> io::Result<usize> {
        let mut sealed = [0; CHUNK_BYTES];
        let read = socket.read(&mut sealed)?;
        let mut state = self.state.lock();
        let shaking_hands = state.tls.is_handshaking();
        state
            .open(&sealed[..read])
            .map_err(|error| self.blame.explain(&error, shaking_hands))?;
        Ok(read)
    }
}

impl State {
    fn open(&mut self, mut sealed: &[u8]) -> Result<(), rustls::Error> {
        while !sealed.is_empty() && !self.over {
            // It takes a few KiB at a time, and no more while it keeps what it has opened.
            let taken = self.tls.read_tls(&mut sealed);
            taken.map_err(|error| rustls::Error::General(error.to_string()))?;
            let came = self.tls.process_new_packets()?;
            self.over = came.peer_has_closed();
            let opened = self.clear.len();
            self.clear
                .resize(opened + came.plaintext_bytes_to_read(), 0);
            let read = self.tls.reader().read_exact(&mut self.clear[opened..]);
            read.map_err(|error| rustls::Error::General(error.to_string()))?;
        }
        Ok(())
    }

    /// `None`: there is nothing now. `Some(0)`: there never will be.
    fn take(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let left = &self.clear[self.taken..];
        if left.is_empty() {
            return self.over.then_some(0);
        }
        let taken = left.len().min(bytes.len());
        bytes[..taken].copy_from_slice(&left[..taken]);
        self.taken += taken;
        if self.taken == self.clear.len() {
            self.taken = 0;
            self.clear.clear();
        }
        Some(taken)
    }
}
