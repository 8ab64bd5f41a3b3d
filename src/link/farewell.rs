//! The end of a client: its session is closed, so that its nodes go now and not after its timeout.
//!
//! The good-bye goes on the present connection, behind all that is in flight. If there is none, or
//! its server does not answer, it goes to any other server that resumes the session for this one
//! purpose.

use std::time::{Duration, Instant};

use super::Link;
use super::dial::Dialled;
use super::saved_session::SavedSession;
use super::server::Server;
use super::targets::Targets;
use super::wire::{Wire, say};

/// What one server is given.
const ONE_SERVER: Duration = Duration::from_secs(1);
/// Between two rounds: servers that are being restarted are not hammered.
const PAUSE: Duration = Duration::from_millis(50);

impl Link {
    /// Ends the session and the connection. What the crate still sends is answered with
    /// `ConnectionLoss`, until it says good-bye itself. Takes `bound` at the most; half of it for a
    /// server that is connected and does not answer.
    pub(crate) fn close(&self, bound: Duration) {
        let now = Instant::now();
        let deadline = now + bound;
        let server = {
            let mut state = self.wire.state.lock();
            state.core.close();
            state.close_by.get_or_insert(deadline);
            state.server.clone()
        };
        self.wire.changed.notify_all();
        self.wire.alarm.ring();
        self.wire.expire_guests();
        if let Some(server) = server {
            self.say_goodbye(&server, now + bound / 2);
            server.cut();
        }
        let mut state = self.wire.state.lock();
        while !state.core.is_session_closed() && !state.parted {
            if self
                .wire
                .changed
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                break;
            }
        }
    }

    /// Behind all that is in flight: the server has done that before it answers.
    fn say_goodbye(&self, server: &Server, deadline: Instant) {
        let wire = &self.wire;
        let now = server.epoch.now();
        wire.state.lock().core.say_goodbye(now);
        wire.flush(server);
        let mut state = wire.state.lock();
        while !state.core.is_session_closed() && state.server.is_some() {
            if wire.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
    }
}

/// Closes the session of `saved` at whichever server can be reached, if that was not done and
/// until the time to close is over. For `zklock-down`, at its end.
pub(super) fn part(wire: &Wire, saved: Option<&SavedSession>, targets: &Targets) {
    /// Said also on unwinding: whoever closes waits for it.
    struct Parted<'a>(&'a Wire);
    impl Drop for Parted<'_> {
        fn drop(&mut self) {
            self.0.state.lock().parted = true;
            self.0.changed.notify_all();
        }
    }
    let _parted = Parted(wire);
    let Some(saved) = saved else {
        return;
    };
    while !close_anywhere(wire, saved, targets) {
        let now = Instant::now();
        let mut state = wire.state.lock();
        let Some(deadline) = state.close_by.filter(|close_by| *close_by > now) else {
            break;
        };
        let wake = deadline.min(now + PAUSE);
        wire.changed.wait_until(&mut state, wake);
    }
}

/// Closes the session on a connection that came about too late to be used.
pub(super) fn on(wire: &Wire, server: Dialled<'_>, close_by: Option<Instant>) {
    let mut server = server.for_farewell();
    // Without time it is said, and not waited for.
    server.allow(time_left(close_by).unwrap_or_default().min(ONE_SERVER));
    if server.close_session().is_ok() {
        wire.state.lock().core.session_is_closed();
    }
}

/// Asks every server once. Returns whether there is nothing left to do.
fn close_anywhere(wire: &Wire, saved: &SavedSession, targets: &Targets) -> bool {
    for target in targets.known_shuffled() {
        let (closed, close_by) = {
            let state = wire.state.lock();
            (state.core.is_session_closed(), state.close_by)
        };
        let Some(left) = time_left(close_by).filter(|_| !closed) else {
            return true;
        };
        let limit = left.min(ONE_SERVER);
        let gone =
            Dialled::connect_for_farewell(wire, &target, limit).and_then(|mut server| match server
                .shake_hands(
                &saved.request(0),
            )? {
                (response, _) if response.timeout_ms <= 0 => Ok(()),
                _ => server.close_session(),
            });
        match gone {
            Ok(()) => {
                wire.state.lock().core.session_is_closed();
                return true;
            }
            Err(error) => {
                say!(
                    wire,
                    Debug,
                    "{target}: the session was not closed there: {error}"
                );
            }
        }
    }
    false
}

/// `None` when the time is over.
fn time_left(close_by: Option<Instant>) -> Option<Duration> {
    let left = close_by?.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}
