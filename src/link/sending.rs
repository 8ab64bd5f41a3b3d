//! Sends what is to be sent, to a server and to handles of the crate: without waiting, one thread for
//! all, and without the state while bytes are sealed or handed over.

use std::io;

use super::guest::{Guest, Sending};
use super::server::{Server, Unsent};
use super::wire::{Wire, say};

/// What sending came to.
enum Sent {
    All,
    /// The socket takes no more now.
    Full,
    /// The connection is broken.
    Broken(io::Error),
}

impl Wire {
    /// Sends what is to be sent, as far as the socket takes it. Never waits: one thread sends for
    /// all, and what does not go now is sent by `zklock-down`.
    pub(super) fn flush(&self, server: &Server) {
        loop {
            let Some(mut unsent) = server.writing.try_lock() else {
                return;
            };
            let sent = self.send_all(server, &mut unsent);
            drop(unsent);
            match sent {
                Sent::All => {}
                Sent::Full => return,
                Sent::Broken(error) => {
                    say!(self, Debug, "to the server: {error}");
                    return;
                }
            }
            // Another thread may have added to it after this one had found nothing more, and have
            // gone away because this one still had the right to send.
            let state = self.state.lock();
            if !state.core.has_something_to_send(server.connection) {
                return;
            }
        }
    }

    fn send_all(&self, server: &Server, unsent: &mut Unsent) -> Sent {
        loop {
            let rest = unsent.rest(&server.stream);
            if rest.is_empty() {
                match self.take(server, unsent) {
                    Ok(true) => {}
                    Ok(false) => {
                        server.drained();
                        return Sent::All;
                    }
                    Err(error) => {
                        server.stream.cut();
                        return Sent::Broken(error);
                    }
                }
                continue;
            }
            let now = server.epoch.now();
            match server.stream.send(rest) {
                Ok(sent) => {
                    unsent.taken_at = Some(now);
                    unsent.sent += sent;
                    unsent.taken += sent as u64;
                    server.took_some();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_full(server, unsent);
                    return Sent::Full;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    server.stream.cut();
                    return Sent::Broken(error);
                }
            }
        }
    }

    /// Returns whether there is more to send. It is sealed here, with the right to send and without
    /// the state: nobody else waits for that.
    fn take(&self, server: &Server, unsent: &mut Unsent) -> io::Result<bool> {
        let took = unsent.took(server.stream.seals());
        unsent.clear();
        let now = server.epoch.now();
        let mut state = self.state.lock();
        if let Some(took) = took {
            state.core.took(server.connection, took);
        }
        let has_more = state.core.take(server.connection, &mut unsent.clear, now);
        drop(state);
        unsent.seal(&server.stream)?;
        Ok(has_more)
    }

    fn is_full(&self, server: &Server, unsent: &Unsent) {
        let now = server.epoch.now();
        let mut state = self.state.lock();
        if let Some(took) = unsent.took(server.stream.seals()) {
            state.core.took(server.connection, took);
        }
        let keep = state.core.filled(server.connection, unsent.taken, now);
        drop(state);
        if let Some(bytes) = keep {
            server.stream.keep_unsent_below(bytes);
        }
        server.filled();
    }

    /// Sends what a handle takes now.
    pub(super) fn flush_guest(&self, guest: &Guest) {
        loop {
            let Some(mut sending) = guest.sending.try_lock() else {
                // Its owner looks again after letting go of it.
                return;
            };
            let sent = self.send_to(guest, &mut sending);
            drop(sending);
            match sent {
                Ok(()) => {}
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && self.state.lock().core.has_handle(guest.id) =>
                {
                    guest.filled();
                    return;
                }
                Err(_) => return self.give_up(guest),
            }
            let has_news = {
                let state = self.state.lock();
                state.core.handles_with_news().any(|id| id == guest.id)
            };
            if !has_news {
                return;
            }
        }
    }

    fn send_to(&self, guest: &Guest, sending: &mut Sending) -> io::Result<()> {
        loop {
            if sending.is_over() {
                sending.sent = 0;
                let mut state = self.state.lock();
                if !state.core.take_for(guest.id, &mut sending.bytes) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                drop(state);
                if sending.is_over() {
                    return Ok(());
                }
            }
            match guest.send_now(sending.rest()) {
                Ok(sent) => sending.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Its door finds the end of the stream.
    fn give_up(&self, guest: &Guest) {
        self.state.lock().core.give_up(guest.id);
        guest.hang_up();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::epoch::Epoch;
    use super::super::tests::{Deaf, config};
    use super::*;

    /// Its door may find room in the socket before it is hung up, and sends what is there.
    #[test]
    fn a_handle_that_was_given_up_is_not_sent_again_what_it_has() {
        let wire = Wire::new(config(Vec::new()), Arc::new(Deaf));
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let _handle = TcpStream::connect(port.local_addr().expect("open")).expect("it listens");
        let (stream, _) = port.accept().expect("it has come");
        let epoch = Arc::new(Epoch::new(1, 7, Duration::from_secs(3600)));
        let id = wire.state.lock().core.handle_enters(epoch.number());
        let guest = Guest::new(id, epoch, stream).expect("a descriptor");
        // While a piece of it is being sent.
        wire.state.lock().core.give_up(id);
        let mut sending = Sending {
            bytes: vec![7; 20],
            sent: 20,
        };
        let error = wire.send_to(&guest, &mut sending).expect_err("given up");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert!(sending.is_over(), "{:?}", sending.rest());
    }
}
