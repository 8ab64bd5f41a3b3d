//! `zklock-door`: from a handle of the `zookeeper` crate to the server.

use std::io;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use zklock_protocol::{CreateMode, Reader, Request, WatchKind, opcode};

use super::core::frame::{self, Frame, FrameBuffer, Next, RequestHeader};
use super::core::{Interest, Watching};
use super::dial::is_timeout;
use super::guest::Guest;
use super::server::Server;
use super::wire::{Wire, say};

/// Relays the requests of a handle until it is gone. It is answered until it has said good-bye, also
/// when the link has been closed: whoever drops it waits for that.
pub(super) fn run(wire: &Arc<Wire>, guest: &Arc<Guest>) {
    wire.state.lock().guests.push(Arc::clone(guest));
    let door = Door { wire, guest };
    // Whatever is wrong here is the end of one handle, and of nothing else.
    let _ = catch_unwind(AssertUnwindSafe(|| door.relay()));
    let mut state = wire.state.lock();
    state.guests.retain(|other| !Arc::ptr_eq(other, guest));
    let over = state.core.handle_leaves(guest.id);
    drop(state);
    guest.hang_up();
    wire.let_go(over);
}

struct Door<'a> {
    wire: &'a Arc<Wire>,
    guest: &'a Arc<Guest>,
}

/// What becomes of a request.
enum Goes {
    /// To the server. With the watch that it leaves there.
    On(Option<Watching>),
    /// Nowhere: it is answered here.
    Nowhere(i32),
    /// Nowhere, and these watches are not looked at any more.
    Unwatches(Vec<Watching>),
}

impl Door<'_> {
    fn relay(&self) {
        let mut buffer = FrameBuffer::new(frame::REQUEST_HEADER_BYTES, frame::MAX_REQUEST_BYTES);
        loop {
            let read = self.guest.wait().and_then(|ready| {
                if ready.writable {
                    self.wire.flush_guest(self.guest);
                }
                if ready.readable {
                    buffer.fill(&mut self.guest.stream()).map(Some)
                } else {
                    Ok(None)
                }
            });
            match read {
                Ok(Some(0)) => return,
                Ok(Some(_)) => {
                    if !self.take_frames(&mut buffer) {
                        return;
                    }
                    acknowledge(self.guest.stream());
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted || is_timeout(&error) => {}
                Err(error) => {
                    say!(self.wire, Debug, "from a handle of the crate: {error}");
                    return;
                }
            }
        }
    }

    /// Returns whether the handle goes on. Never waits for the server: the crate drops requests when
    /// nobody reads its stream.
    fn take_frames(&self, buffer: &mut FrameBuffer) -> bool {
        let goes_on = loop {
            match buffer.next() {
                Next::Frame(request) => self.take(request),
                Next::TooLong(request) => {
                    self.answer(request.request_header(), frame::ERR_BAD_ARGUMENTS);
                    let most = frame::MAX_REQUEST_BYTES;
                    say!(
                        self.wire,
                        Warn,
                        "a request of more than {most} bytes was not sent: the server would drop the \
                         connection"
                    );
                }
                Next::Incomplete => break true,
                Next::Malformed => {
                    say!(
                        self.wire,
                        Error,
                        "the zookeeper crate sent something that is no request"
                    );
                    break false;
                }
            }
        };
        let server = self.wire.state.lock().server.clone();
        if let Some(server) = server {
            self.wire.flush(&server);
        }
        self.wire.flush_guest(self.guest);
        goes_on
    }

    fn take(&self, mut request: Frame<'_>) {
        let header = request.request_header();
        match goes(header.opcode, frame::record(request.bytes())) {
            Goes::On(watching) => self.forward(header, request.bytes_mut(), watching.as_ref()),
            Goes::Nowhere(err) => self.answer(header, err),
            Goes::Unwatches(all) => {
                let mut looked_at_any = false;
                for watching in &all {
                    // The end of the last interest takes the watch off the server.
                    let (looked, over) = self.stops(watching);
                    drop(over);
                    looked_at_any |= looked;
                }
                let err = if looked_at_any {
                    frame::OK
                } else {
                    frame::ERR_NO_WATCHER
                };
                self.answer(header, err);
            }
        }
    }

    fn answer(&self, header: RequestHeader, err: i32) {
        let mut state = self.wire.state.lock();
        state.core.answer_locally(self.guest.id, header, err);
    }

    fn forward(&self, header: RequestHeader, frame: &mut [u8], watching: Option<&Watching>) {
        loop {
            let server = self.wire.state.lock().server_of(&self.guest.epoch);
            let Some(server) = server else {
                return self.answer(header, self.no_server());
            };
            // Before the request, so that an event that overtakes the answer finds it, and without
            // locks.
            let watching = watching
                .map(|watching| (watching, self.wire.interest(self.guest, watching, &server)));
            let now = server.epoch.now();
            let mut state = self.wire.state.lock();
            let (connection, handle) = (server.connection, self.guest.id);
            let forwarded = state
                .core
                .forward(connection, handle, frame, header, watching, now);
            drop(state);
            drop(forwarded.over);
            if forwarded.is_done {
                return;
            }
        }
    }

    fn stops(&self, watching: &Watching) -> (bool, Option<Arc<dyn Interest>>) {
        let mut state = self.wire.state.lock();
        state.core.stops_watching(self.guest.id, watching)
    }

    /// What a handle hears while there is no connection, or never will be.
    fn no_server(&self) -> i32 {
        if self.guest.epoch.is_alive() && !self.wire.is_closing() {
            frame::ERR_CONNECTION_LOSS
        } else {
            frame::ERR_SESSION_EXPIRED
        }
    }
}

fn goes(opcode: i32, record: &[u8]) -> Goes {
    let read = || Request::read(opcode, &mut Reader::new(record));
    match opcode {
        // The good-bye of a handle is not the session's. It hangs up after the answer.
        opcode::CLOSE_SESSION | opcode::PING => Goes::Nowhere(frame::OK),
        // Credentials are the link's own business. Persistent watches share a server's one watch
        // with ours, and before 3.9 each of the two would end the other.
        opcode::AUTH | opcode::ADD_WATCH => Goes::Nowhere(frame::ERR_UNIMPLEMENTED),
        opcode::CREATE
        | opcode::EXISTS
        | opcode::GET_DATA
        | opcode::GET_CHILDREN
        | opcode::GET_CHILDREN_2
        | opcode::REMOVE_WATCHES => match read() {
            // By the crate's request for it servers make plain nodes, and disagree afterwards
            // about what they have.
            Ok(Request::Create(create)) if create.mode.0 > CreateMode::EPHEMERAL_SEQUENTIAL.0 => {
                Goes::Nowhere(frame::ERR_BAD_ARGUMENTS)
            }
            Ok(Request::Exists { path, watch: true } | Request::GetData { path, watch: true }) => {
                Goes::On(Some((WatchKind::DATA, path)))
            }
            Ok(
                Request::GetChildren { path, watch: true }
                | Request::GetChildren2 { path, watch: true },
            ) => Goes::On(Some((WatchKind::CHILDREN, path))),
            Ok(Request::RemoveWatches { path, kind }) => Goes::Unwatches(match kind {
                WatchKind::ANY => [WatchKind::DATA, WatchKind::CHILDREN]
                    .map(|kind| (kind, path.clone()))
                    .into(),
                kind => vec![(kind, path)],
            }),
            Ok(_) => Goes::On(None),
            Err(_) => Goes::Nowhere(frame::ERR_BAD_ARGUMENTS),
        },
        _ => Goes::On(None),
    }
}

impl Wire {
    /// Has the session above note that a handle looks at this. To be called without locks.
    pub(super) fn interest(
        self: &Arc<Self>,
        guest: &Arc<Guest>,
        watching: &Watching,
        server: &Server,
    ) -> Option<Arc<dyn Interest>> {
        let (weak, wire) = (Arc::downgrade(guest), Arc::downgrade(self));
        let of = watching.clone();
        let taken_off = Box::new(move || {
            if let (Some(guest), Some(wire)) = (weak.upgrade(), wire.upgrade()) {
                let over = wire.state.lock().core.look_again(guest.id, &of);
                drop(over);
                wire.flush_guest(&guest);
            }
        });
        let (kind, path) = watching;
        self.observe(*kind, path, server.connection, taken_off)
    }
}

/// The crate leaves Nagle's algorithm on: while it has no answer to one request, the next waits for
/// our acknowledgement of the first, which the kernel would put off for 40 ms. Where it cannot be
/// asked for, calls beside each other are slower.
#[cfg(target_os = "linux")]
fn acknowledge(loopback: &TcpStream) {
    // Holds for what was read just now.
    let _ = rustix::net::sockopt::set_tcp_quickack(loopback, true);
}

#[cfg(not(target_os = "linux"))]
fn acknowledge(_loopback: &TcpStream) {}
