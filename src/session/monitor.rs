//! The one thread that watches the clock: it declares a session lost when its lease runs out, and
//! starts what was asked for at a later time. It never blocks on the network.

use crate::session::observe::say;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::LossReason;
use super::Session;
use crate::error::{Error, Result};
use crate::sync::{self, Condvar, Mutex};

/// Something to be called at a time.
pub(crate) trait OnTimer: Send + Sync {
    /// Called on a worker thread.
    fn on_timer(self: Arc<Self>);
}

#[derive(Default)]
pub(super) struct Monitor {
    state: Mutex<State>,
    /// `nudged`, an earlier timer, or the end.
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// By time, and by a running number for equal times.
    timers: BTreeMap<(Instant, u64), Weak<dyn OnTimer>>,
    next: u64,
    /// The lease is another one than when the thread last looked.
    nudged: bool,
    running: bool,
    closed: bool,
}

impl Monitor {
    pub(super) fn start(&self, session: &Arc<Session>) -> Result<()> {
        if cfg!(shuttle) {
            return Ok(());
        }
        self.state.lock().running = true;
        let session = Arc::clone(session);
        sync::spawn("zklock-monitor", move || session.watch_the_clock()).map_err(|error| {
            self.state.lock().running = false;
            Error::connect_failed("could not start a thread").source(error)
        })
    }

    /// There is a new lease to watch.
    pub(super) fn nudge(&self) {
        self.state.lock().nudged = true;
        self.news.notify_all();
    }

    #[cfg(not(shuttle))]
    pub(super) fn at(&self, at: Instant, timer: Weak<dyn OnTimer>) {
        let mut state = self.state.lock();
        state.next += 1;
        let key = (at, state.next);
        state.timers.insert(key, timer);
        drop(state);
        self.news.notify_all();
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.timers.clear();
        drop(state);
        self.news.notify_all();
    }

    /// Waits until the thread has ended, until `deadline` at most.
    pub(super) fn wait_ended(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.running {
            if sync::wait_until(&self.news, &mut state, Some(deadline)) {
                return !state.running;
            }
        }
        true
    }
}

impl Session {
    fn watch_the_clock(self: Arc<Self>) {
        loop {
            let next_look = self.check_lease();
            let mut state = self.monitor.state.lock();
            if state.closed {
                state.running = false;
                drop(state);
                self.monitor.news.notify_all();
                return;
            }
            if std::mem::take(&mut state.nudged) {
                continue;
            }
            let timer = state.timers.first_key_value().map(|(key, _)| *key);
            if let Some(key) = timer.filter(|(at, _)| *at <= sync::now()) {
                let timer = state.timers.remove(&key);
                drop(state);
                if let Some(timer) = timer.and_then(|timer| timer.upgrade()) {
                    self.submit(move || timer.on_timer());
                }
                continue;
            }
            let timer = timer.map(|(at, _)| at);
            let until = match (next_look, timer) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            sync::wait_until(&self.monitor.news, &mut state, until);
        }
    }

    /// Declares the session lost if its lease is over; else says when to look again. Often enough,
    /// too, for a machine that slept: what a thread waits on stands still meanwhile, and the lease
    /// does not.
    fn check_lease(&self) -> Option<Instant> {
        let epoch = self.epoch()?;
        let lease = epoch.lease();
        if lease.is_alive()
            && let Some(look) = lease.next_look(lease.now())
        {
            return sync::now().checked_add(look);
        }
        self.lost(epoch.number(), LossReason::Session);
        say!(
            self,
            Warn,
            "session 0x{:x}: nothing proves any more that it stands at {}, so it may have expired",
            epoch.session_id(),
            self.target()
        );
        None
    }
}
