//! Where the two directions meet: what is in flight, and who may answer it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::frame::{self, RequestHeader};
use super::lease::Epoch;
use super::{LinkConfig, LinkEvent, LinkObserver};

/// A connection to a server, after its handshake.
pub(super) struct Server {
    pub(super) stream: TcpStream,
    pub(super) epoch: Arc<Epoch>,
}

impl Server {
    /// Ends reads and writes that are under way, on all threads.
    pub(super) fn cut(&self) {
        // Fails only when the peer was faster.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// If this fails, what was to be sent counts as in flight: `zklock-down` answers for it when
    /// it finds the connection cut.
    pub(super) fn send(&self, _writing: &Writing<'_>, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes).inspect_err(|error| {
            log::debug!("to the server: {error}");
            self.cut();
        })
    }
}

/// The right to send to a server: held from giving a request its number until it is written, so
/// that the server gets the requests in the order in which their replies are expected. Taken
/// before [`Wire::state`], never under it: a write may be stuck until the connection is cut, and
/// cutting takes `state`.
pub(super) struct Writing<'a>(#[expect(dead_code, reason = "held, not read")] MutexGuard<'a, ()>);

/// One request of the crate that has no answer yet.
struct InFlight {
    /// The number that its answer carries.
    number: i32,
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
    writing: Mutex<()>,
    pub(super) state: Mutex<State>,
    /// Something changed that a thread of the link waits for: closing, an abandoned session, the
    /// last reply, a thread's end.
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
    /// The last change of the data that the session has seen.
    pub(super) last_zxid: i64,
    /// When each unanswered ping of ours was sent.
    pings: VecDeque<Instant>,
    last_sent: Instant,
    pub(super) closing: bool,
    /// The server has answered that the session is closed.
    pub(super) session_closed: bool,
    /// Threads that have not ended.
    pub(super) threads: usize,
}

/// What a reply of the server answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// A request of the crate, which was sent at `sent_at` and is answered under `number`.
    Crate { number: i32, sent_at: Instant },
    /// Our request to close the session.
    Close,
}

/// A reply that has no request.
#[derive(Debug)]
pub(super) struct OutOfOrder;

impl Wire {
    pub(super) fn new(config: LinkConfig, observer: Arc<dyn LinkObserver>) -> Arc<Self> {
        Arc::new(Self {
            config,
            observer,
            writing: Mutex::new(()),
            state: Mutex::new(State::new()),
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

    pub(super) fn wait_until_closing(&self) {
        let mut state = self.state.lock();
        while !state.closing {
            self.changed.wait(&mut state);
        }
    }

    pub(super) fn write(&self) -> Writing<'_> {
        Writing(self.writing.lock())
    }

    /// `None` when another thread is writing until `deadline`.
    pub(super) fn write_until(&self, deadline: Instant) -> Option<Writing<'_>> {
        self.writing.try_lock_until(deadline).map(Writing)
    }

    /// Sends a ping if nothing was sent for `idle`, and nobody is sending.
    pub(super) fn ping(&self, server: &Server, idle: Duration) {
        if self.state.lock().last_sent.elapsed() < idle {
            return;
        }
        // This thread is the one that cuts a silent connection: it must not wait for one that is
        // stuck in a write, and what that one sends does for a ping.
        if let Some(writing) = self.writing.try_lock().map(Writing) {
            self.state.lock().ping_sent(Instant::now());
            let ping = frame::request(frame::XID_PING, frame::OP_PING);
            // A failure is found by the next read.
            let _ = server.send(&writing, &ping);
        }
    }

    /// Ends a connection: nothing of it is in flight afterwards. The session hears of it last.
    pub(super) fn drop_connection(&self, server: &Server) {
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
    ) -> io::Result<()> {
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
}

impl State {
    fn new() -> Self {
        Self {
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
        }
    }

    /// A connection stands from now on.
    pub(super) fn connected(&mut self, server: &Arc<Server>) {
        self.server = Some(Arc::clone(server));
        self.last_sent = Instant::now();
    }

    fn xid(&mut self) -> i32 {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.last_xid
    }

    /// A request of the crate goes to the server: returns the number to send it with.
    pub(super) fn forward(&mut self, header: RequestHeader, now: Instant) -> i32 {
        let xid = self.xid();
        self.last_sent = now;
        self.in_flight.push_back(InFlight {
            number: harmless(header),
            answer: Due::Server { xid, sent_at: now },
        });
        xid
    }

    /// A request of the crate is answered by us, when all before it are answered.
    pub(super) fn answer_locally(&mut self, header: RequestHeader, err: i32) {
        self.in_flight.push_back(InFlight {
            number: harmless(header),
            answer: Due::Local { err },
        });
        let mut out = Vec::new();
        self.take_due(&mut out);
        self.send_up(&out);
    }

    /// Our own last request: returns the number to send it with.
    pub(super) fn close_session(&mut self) -> i32 {
        let xid = self.xid();
        self.in_flight.push_back(InFlight {
            number: 0,
            answer: Due::Close { xid },
        });
        xid
    }

    fn ping_sent(&mut self, now: Instant) {
        self.last_sent = now;
        self.pings.push_back(now);
    }

    /// The server has answered a ping: when that was sent.
    pub(super) fn ping_answered(&mut self) -> Option<Instant> {
        self.pings.pop_front()
    }

    /// The server's reply `xid` came. Servers answer in order.
    pub(super) fn answered(&mut self, xid: i32) -> Result<Answered, OutOfOrder> {
        let answered = match self.in_flight.front() {
            Some(&InFlight {
                number,
                answer: Due::Server { xid: ours, sent_at },
            }) if ours == xid => Answered::Crate { number, sent_at },
            Some(InFlight {
                answer: Due::Close { xid: ours },
                ..
            }) if *ours == xid => {
                self.session_closed = true;
                Answered::Close
            }
            // Whatever it is, it is answered with the rest when the connection is cut.
            _ => return Err(OutOfOrder),
        };
        self.in_flight.pop_front();
        Ok(answered)
    }

    /// Adds to `out` the answers of ours whose turn it is now.
    pub(super) fn take_due(&mut self, out: &mut Vec<u8>) {
        while let Some(&InFlight {
            number,
            answer: Due::Local { err },
        }) = self.in_flight.front()
        {
            out.extend(frame::reply(number, err));
            self.in_flight.pop_front();
        }
    }

    /// The connection broke: what was in flight may have been done or not.
    pub(super) fn answer_all_lost(&mut self) {
        let mut out = Vec::new();
        for request in self.in_flight.drain(..) {
            let err = match request.answer {
                Due::Server { .. } => frame::ERR_CONNECTION_LOSS,
                Due::Local { err } => err,
                Due::Close { .. } => continue,
            };
            out.extend(frame::reply(request.number, err));
        }
        self.send_up(&out);
    }

    /// It always reads, as its callers wait for nothing else; should it be gone, its end of the
    /// stream tells `zklock-up`.
    pub(super) fn send_up(&mut self, out: &[u8]) {
        if let (Some(loopback), false) = (&mut self.loopback, out.is_empty()) {
            let _ = loopback.write_all(out);
        }
    }
}

/// The crate takes -1 for a watch event and -2 for the answer to its ping, and its own numbers wrap
/// around to both after 2^32 requests; others it does not look at.
fn harmless(header: RequestHeader) -> i32 {
    if header.opcode == frame::OP_PING {
        frame::XID_PING
    } else {
        header.xid & i32::MAX
    }
}
