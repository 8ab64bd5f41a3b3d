//! Reads from a server, and tells of what has come, for the life of one connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::LinkEvent;
use super::core::frame::{self, FrameBuffer};
use super::core::{News, Received};
use super::dial::is_timeout;
use super::server::Server;
use super::wire::{Wire, say};

/// Brings replies to those who asked and to handles of the crate, tells of watch events, sends
/// probes, sends what its socket did not take at once, and watches for answers that do not
/// come. Returns why the connection is of no use any more.
pub(super) fn relay(wire: &Wire, server: &Server) -> String {
    if let Err(error) = limit(server) {
        return format!("its time limits could not be set: {error}");
    }
    let mut buffer = FrameBuffer::new(frame::REPLY_HEADER_BYTES, frame::MAX_REPLY_BYTES);
    loop {
        let wait = tick(wire, server);
        let has_read = match next_bytes(wire, server, &mut buffer, wait) {
            Ok(Some(0)) => {
                let by_us = if server.hung_up() { "the server" } else { "us" };
                return format!("closed by {by_us}");
            }
            Ok(Some(_)) => {
                if let Err(why) = deliver(wire, server, &mut buffer) {
                    server.cut();
                    return why;
                }
                true
            }
            Ok(None) => false,
            Err(error) => return error.to_string(),
        };
        let stuck_for = server.stuck_for();
        // Whoever has just read, and is not stuck, can only have lost the lease.
        if has_read && stuck_for.is_none() && server.epoch.is_alive() {
            continue;
        }
        let now = server.epoch.now();
        let too_slow = wire.state.lock().core.is_too_slow(stuck_for, has_read, now);
        if let Some(why) = too_slow {
            server.cut_as_too_slow();
            return why.to_string();
        }
    }
}

/// Sets how long a read and a write may take where nothing else ends them, as parts of the session's
/// timeout.
fn limit(server: &Server) -> io::Result<()> {
    const SHORTEST: Duration = Duration::from_millis(1);
    let timeout = server.epoch.lease().timeout();
    server
        .stream
        .limit((timeout / 12).max(SHORTEST), (timeout / 3).max(SHORTEST))
}

/// Sends what is due by the clock. Returns for how long nothing else will be.
fn tick(wire: &Wire, server: &Server) -> Duration {
    let now = server.epoch.now();
    let mut state = wire.state.lock();
    let node = server.epoch.node_after(state.core.last_node());
    let tick = state.core.tick(node, now);
    drop(state);
    if tick.has_something_to_send {
        wire.flush(server);
    }
    tick.wait
}

/// Waits for one read, and sends meanwhile what the socket takes. `None`: nothing to read.
fn next_bytes(
    wire: &Wire,
    server: &Server,
    buffer: &mut FrameBuffer,
    limit: Duration,
) -> io::Result<Option<usize>> {
    let to_write = server.full.load(Ordering::Acquire);
    let read = server.stream.wait(limit, to_write).and_then(|ready| {
        if ready.writable {
            wire.flush(server);
        }
        if ready.readable {
            buffer.fill(&mut &server.stream).map(Some)
        } else {
            Ok(None)
        }
    });
    match read {
        Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => Ok(None),
        read => read,
    }
}

/// Tells all that is in the buffer, also when it ends with the reason why the connection must end.
fn deliver(wire: &Wire, server: &Server, buffer: &mut FrameBuffer) -> Result<(), String> {
    // After the bytes were read: whatever is in there has come before this.
    let now = server.epoch.now();
    let mut state = wire.state.lock();
    let received = state.core.receive(buffer, now);
    let guests = state.guests_with_news();
    let session_closed = state.core.is_session_closed();
    drop(state);
    let Received {
        news,
        gone,
        has_something_to_send,
        too_long,
        unknown_events,
        cut,
    } = received;
    if has_something_to_send {
        wire.flush(server);
    }
    if session_closed {
        wire.changed.notify_all();
    }
    guests.iter().for_each(|guest| wire.flush_guest(guest));
    let malformed = tell(wire, server, news);
    // Before the next probe, which would ask for them again.
    for path in gone
        .into_iter()
        .filter_map(|number| server.epoch.node_gone(number))
    {
        wire.tell(LinkEvent::NodeGone {
            epoch: Arc::clone(&server.epoch),
            path: path.to_string(),
        });
    }
    if too_long > 0 {
        let most = frame::MAX_REPLY_BYTES;
        say!(wire, Warn, "left out a reply of more than {most} bytes");
    }
    if unknown_events > 0 {
        say!(wire, Warn, "left out a watch event of an unknown kind");
    }
    cut.or(malformed).map_or(Ok(()), Err)
}

/// Tells what has come, in its order. Returns why the connection must end, if a reply was none.
fn tell(wire: &Wire, server: &Server, news: Vec<News>) -> Option<String> {
    let mut malformed = None;
    for news in news {
        match news {
            News::Completed(completed) => {
                let rest = completed.tell();
                if let Some(why) = &rest.malformed {
                    malformed
                        .get_or_insert_with(|| format!("the server sent a reply that is {why}"));
                }
                wire.ask_again(server.connection, rest);
            }
            News::Event {
                event,
                path,
                number,
                over,
            } => {
                wire.tell_event(event, &path, number);
                drop(over);
            }
            News::Watched {
                interests,
                armed_after,
            } => {
                if let Some(after) = armed_after {
                    interests.iter().for_each(|interest| interest.armed(after));
                }
            }
        }
    }
    malformed
}
