//! Where the two directions meet: what is in flight, and who may answer it.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::frame::{self, RequestHeader};
use super::lease::Epoch;
use super::{LinkConfig, LinkEvent, LinkObserver};

/// A connection to a server, after its handshake.
pub(super) struct Server {
    pub(super) stream: TcpStream,
    pub(super) epoch: Arc<Epoch>,
    /// Held while a frame is written, so that frames of the two threads that write (`zklock-up`,
    /// and whoever closes) do not mix. Never taken under [`Wire::state`].
    pub(super) writing: Mutex<()>,
}

impl Server {
    pub(super) fn cut(&self) {
        // Fails only when the peer was faster.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// One request of the crate that has no answer yet.
pub(super) struct InFlight {
    /// The number that the crate gave it.
    theirs: i32,
    answer: Due,
}

enum Due {
    /// The server's, to the request that we gave this number.
    Server { xid: i32, sent_at: Instant },
    /// Ours, when it is its turn.
    Local { err: i32 },
    /// Nobody's: our own request to close the session.
    Close { xid: i32 },
}

/// Shared by `zklock-up`, `zklock-down` and the session's threads.
pub(super) struct Wire {
    pub(super) config: LinkConfig,
    observer: Arc<dyn LinkObserver>,
    pub(super) state: Mutex<State>,
    /// Something changed that a thread of the link waits for: closing, the session's last reply, a
    /// thread's end.
    pub(super) changed: Condvar,
}

/// Whoever answers the crate holds this from taking a request off `in_flight` until its answer is
/// written, because the crate takes the first answer for the first request.
pub(super) struct State {
    /// To the crate. `None` before it has come.
    pub(super) loopback: Option<TcpStream>,
    pub(super) server: Option<Arc<Server>>,
    /// The session lets traffic through on `server`.
    pub(super) open: bool,
    in_flight: VecDeque<InFlight>,
    last_xid: i32,
    pub(super) last_zxid: i64,
    /// When each unanswered ping of ours was sent.
    pings: VecDeque<Instant>,
    pub(super) last_sent: Instant,
    pub(super) closing: bool,
    /// The server has answered that the session is closed.
    pub(super) session_closed: bool,
    /// Threads that have not ended.
    pub(super) threads: usize,
}

/// A reply that has no request.
#[derive(Debug)]
pub(super) struct OutOfOrder;

impl Wire {
    pub(super) fn new(config: LinkConfig, observer: Arc<dyn LinkObserver>) -> Arc<Self> {
        Arc::new(Self {
            config,
            observer,
            state: Mutex::new(State {
                loopback: None,
                server: None,
                open: false,
                in_flight: VecDeque::new(),
                last_xid: 0,
                last_zxid: 0,
                pings: VecDeque::new(),
                last_sent: Instant::now(),
                closing: false,
                session_closed: false,
                threads: 0,
            }),
            changed: Condvar::new(),
        })
    }

    /// To be called with `state` unlocked: the session has locks of its own.
    pub(super) fn tell(&self, event: LinkEvent) {
        self.observer.on_link(event);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    /// Ends a connection: nothing of it is in flight afterwards. The session hears of it last.
    pub(super) fn drop_connection(&self, server: &Arc<Server>) {
        server.cut();
        let mut state = self.state.lock();
        state.server = None;
        state.open = false;
        state.pings.clear();
        state.answer_all_lost();
        drop(state);
        self.changed.notify_all();
        self.tell(LinkEvent::Suspended {
            epoch: Arc::clone(&server.epoch),
        });
    }

    /// Runs `body` on a thread that is counted until it ends.
    pub(super) fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> std::io::Result<()> {
        struct Counted(Arc<Wire>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.state.lock().threads -= 1;
                self.0.changed.notify_all();
            }
        }
        self.state.lock().threads += 1;
        let counted = Counted(Arc::clone(self));
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || body(&counted.0))
            .map(drop)
    }

    /// How often idle threads look around: a fraction of the session timeout.
    pub(super) fn tick(timeout: Duration) -> Duration {
        (timeout / 12).max(Duration::from_millis(10))
    }
}

impl State {
    fn xid(&mut self) -> i32 {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.last_xid
    }

    /// A request of the crate goes to the server: returns the number to send it with.
    pub(super) fn forward(&mut self, header: RequestHeader, now: Instant) -> i32 {
        let xid = self.xid();
        self.last_sent = now;
        self.in_flight.push_back(InFlight {
            theirs: header.xid,
            answer: Due::Server { xid, sent_at: now },
        });
        xid
    }

    /// A request of the crate is answered by us, when all before it are answered.
    pub(super) fn answer_locally(&mut self, header: RequestHeader, err: i32) {
        self.in_flight.push_back(InFlight {
            theirs: header.xid,
            answer: Due::Local { err },
        });
        let mut out = Vec::new();
        self.take_due(&mut out);
        self.write(&out);
    }

    /// Our own last request: returns the number to send it with.
    pub(super) fn close_session(&mut self) -> i32 {
        let xid = self.xid();
        self.in_flight.push_back(InFlight {
            theirs: 0,
            answer: Due::Close { xid },
        });
        xid
    }

    pub(super) fn ping_sent(&mut self, now: Instant) {
        self.last_sent = now;
        self.pings.push_back(now);
    }

    /// The server has answered a ping: when that was sent.
    pub(super) fn ping_answered(&mut self) -> Option<Instant> {
        self.pings.pop_front()
    }

    /// The server's reply `xid` came. Returns when its request was sent, and, unless the request
    /// was our own, the number under which the crate knows it.
    pub(super) fn answered(
        &mut self,
        xid: i32,
    ) -> Result<(Option<Instant>, Option<i32>), OutOfOrder> {
        match self.in_flight.pop_front() {
            Some(InFlight {
                theirs,
                answer: Due::Server { xid: ours, sent_at },
            }) if ours == xid => Ok((Some(sent_at), Some(harmless(theirs)))),
            Some(InFlight {
                answer: Due::Close { xid: ours },
                ..
            }) if ours == xid => {
                self.session_closed = true;
                Ok((None, None))
            }
            other => {
                // Whatever it is, it must be answered with the rest.
                if let Some(request) = other {
                    self.in_flight.push_front(request);
                }
                Err(OutOfOrder)
            }
        }
    }

    /// Adds to `out` the answers of ours whose turn it is now.
    pub(super) fn take_due(&mut self, out: &mut Vec<u8>) {
        while let Some(InFlight {
            theirs,
            answer: Due::Local { err },
        }) = self.in_flight.front()
        {
            out.extend(local_reply(*theirs, *err));
            self.in_flight.pop_front();
        }
    }

    /// The connection broke: what was in flight may have been done or not.
    pub(super) fn answer_all_lost(&mut self) {
        let mut out = Vec::new();
        for request in self.in_flight.drain(..) {
            match request.answer {
                Due::Server { .. } => {
                    out.extend(local_reply(request.theirs, frame::ERR_CONNECTION_LOSS));
                }
                Due::Local { err } => out.extend(local_reply(request.theirs, err)),
                Due::Close { .. } => {}
            }
        }
        self.write(&out);
    }

    /// To the crate. It always reads, as its callers wait for nothing else; should it be gone, its
    /// end of the stream tells `zklock-up`.
    pub(super) fn write(&mut self, out: &[u8]) {
        if let (Some(loopback), false) = (&mut self.loopback, out.is_empty()) {
            let _ = loopback.write_all(out);
        }
    }
}

/// The crate takes -1 for a watch event and -2 for its own ping, and its numbers wrap around to
/// both after 2^32 requests; others it does not look at.
fn harmless(xid: i32) -> i32 {
    xid & i32::MAX
}

fn local_reply(theirs: i32, err: i32) -> Vec<u8> {
    // A ping's answer is the one that must keep its number.
    let xid = if theirs == frame::XID_PING && err == frame::OK {
        theirs
    } else {
        harmless(theirs)
    };
    frame::reply(xid, err)
}
