//! The transitions of a session: connections, breaks, losses, the end; and who is told.

use zklock_protocol::EventKind;

use crate::session::observe::say;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::connection::ConnectionEvent;
use super::loss::LossReason;
use super::phase::Connection;
use super::{CLOSE_BOUND, EVENT_BACKLOG, Session, SessionState, Trouble};
use crate::link::Epoch;
use crate::sync;
use crate::sync::atomic::Ordering;
use crate::wait::signal::Wakes;

impl Session {
    // ---- what comes up from below the seam ----

    /// There is a new connection.
    pub(super) fn connected(self: &Arc<Self>, connection: Connection, resumed: bool) {
        let mut state = self.state.lock();
        let before = state.phase.epoch().map(|epoch| epoch.number());
        if let Some(number) = before.filter(|number| *number != connection.epoch.number()) {
            drop(state);
            self.lost(number, LossReason::Session);
            state = self.state.lock();
        }
        let (number, session_id) = (connection.number, connection.epoch.session_id());
        if !state.phase.connected(connection) {
            return;
        }
        self.connection.store(number, Ordering::Release);
        state.trouble = Trouble::default();
        let event = if resumed {
            ConnectionEvent::Reconnected
        } else {
            ConnectionEvent::Connected { session_id }
        };
        self.publish(&mut state, &event);
        state.wake_all();
        let to_verify = resumed && !state.tenures.is_empty();
        drop(state);
        self.backend().look_soon();
        if to_verify {
            let session = Arc::clone(self);
            self.submit(move || session.verify_tenures());
        }
        self.sweep_orphans();
        say!(self, Info, "{event}: {}", self.target);
    }

    /// The connection with this number broke. Everything in flight was answered.
    pub(crate) fn suspended(&self, number: u64) {
        let mut state = self.state.lock();
        if state.phase.suspended(number, sync::now()) {
            self.connection.store(0, Ordering::Release);
            self.publish(&mut state, &ConnectionEvent::Suspended);
            state.wake_all();
            drop(state);
            say!(
                self,
                Info,
                "no contact with {}; the session may live on",
                self.target
            );
        }
    }

    /// The epoch with this number is over: by the server's word, or because its lease ran out.
    /// Idempotent.
    pub(crate) fn lost(&self, number: u64, reason: LossReason) {
        let mut state = self.state.lock();
        let Some(epoch) = state.phase.lost(number, sync::now()) else {
            return;
        };
        self.connection.store(0, Ordering::Release);
        let tenures = std::mem::take(&mut state.tenures);
        self.publish(&mut state, &ConnectionEvent::Lost);
        state.wake_all();
        drop(state);
        for tenure in tenures.values().filter_map(Weak::upgrade) {
            tenure.lose(reason);
        }
        self.backend().abandon(&epoch);
        say!(
            self,
            Warn,
            "session 0x{:x} with {} is lost, and its locks with it",
            epoch.session_id(),
            self.target
        );
    }

    /// The event of a watch came: of those that the server has sent, the one with this number.
    pub(crate) fn watch_event(&self, path: &str, event: EventKind, number: u64) {
        self.watches.fire(path, event, number);
    }

    /// A server of the list is being dialled.
    pub(crate) fn dialling(&self, server: String) {
        self.state.lock().trouble.dialling(server);
    }

    /// A server of the list could not be reached.
    pub(super) fn dial_failed(&self, server: String, why: String) {
        self.state.lock().trouble.failed(server, why);
    }

    /// The credentials were refused; no further attempt is made.
    pub(crate) fn auth_failed(&self, scheme: &str) {
        let mut state = self.state.lock();
        state.trouble.refused_auth = Some(scheme.to_owned());
        state.wake_all();
        drop(state);
        say!(
            self,
            Error,
            "{} refused the {scheme} credentials; giving up",
            self.target
        );
    }

    /// The link has ended by itself: nothing works any more.
    pub(crate) fn broken(&self) {
        self.shut(LossReason::Closed);
        say!(
            self,
            Error,
            "the ZooKeeper client of {} has died; closing",
            self.target
        );
    }

    /// A job of `zklock-chores` has panicked. What it had in its hands is lost (a slice of orphans,
    /// a turn that it was to end), so nobody would see to it any more while the client looks well;
    /// the end of the session at the servers does.
    pub(super) fn background_panicked(self: &Arc<Self>) {
        let epoch = self.epoch();
        self.shut(LossReason::Closed);
        say!(
            self,
            Error,
            "zklock-chores of {} has panicked; closing",
            self.target
        );
        self.end(epoch, CLOSE_BOUND);
    }

    /// Declares the session lost if its lease is over; otherwise returns for how long nobody need
    /// look. That is short enough for a machine that slept: the clock that a thread sleeps on stops
    /// meanwhile, and the lease does not.
    pub(super) fn look_at_clock(&self) -> Option<Duration> {
        self.background.see_to_thread();
        self.observation.callbacks().see_to_thread();
        let epoch = self.epoch()?;
        let now = epoch.now();
        if epoch.lease().alive(now)
            && let Some(look) = epoch.lease().next_look(now)
        {
            return Some(look);
        }
        self.lapsed(&epoch);
        None
    }

    /// The lease of this epoch is over, as whoever comes first finds.
    pub(super) fn lapsed(&self, epoch: &Epoch) {
        self.lost(epoch.number(), LossReason::Session);
        say!(
            self,
            Warn,
            "session 0x{:x}: nothing proves any more that it is alive at {}; it may have expired",
            epoch.session_id(),
            self.target()
        );
    }

    // ---- the end ----

    /// Ends the session and every thread, within `bound`. Idempotent.
    pub(crate) fn close(self: &Arc<Self>, bound: Duration) {
        if self.is_forked() {
            // None of the threads is here, and the socket is the parent's.
            return;
        }
        let deadline = sync::now() + bound;
        // A job does not wait for those behind it.
        if !self.background.is_current() {
            self.departures.wait_until_over(sync::now() + bound / 2);
        }
        let epoch = self.epoch();
        self.shut(LossReason::Closed);
        self.end(epoch, deadline.saturating_duration_since(sync::now()));
    }

    /// Ends what lies below the seam, after [`shut`](Self::shut), and with it the session that stood
    /// until then.
    fn end(&self, epoch: Option<Arc<Epoch>>, bound: Duration) {
        let deadline = sync::now() + bound;
        if let Some(backend) = self.backend.get() {
            backend.close(bound);
        }
        // Not before: under a sealed lease the good-bye could not be said.
        if let Some(epoch) = epoch {
            epoch.lease().seal();
        }
        if !self.background.wait_ended(deadline) {
            say!(
                self,
                Warn,
                "{}: zklock-chores did not end within {bound:?} of close",
                self.target
            );
        }
        // Takes no further line. An observer or a logger that is stuck is left behind, and nobody
        // could be told of it.
        self.observation.callbacks().finish();
        self.observation.callbacks().wait_ended(deadline);
    }

    fn publish(&self, state: &mut SessionState, event: &ConnectionEvent) {
        state.publish(event);
        self.observation.connection(event);
    }

    /// The part of closing that waits for nobody.
    fn shut(&self, reason: LossReason) {
        let mut state = self.state.lock();
        if !state.phase.closed() {
            return;
        }
        self.connection.store(0, Ordering::Release);
        let tenures = std::mem::take(&mut state.tenures);
        let locks = std::mem::take(&mut state.locks);
        self.publish(&mut state, &ConnectionEvent::Closed);
        state.subscribers.clear();
        state.wake_all();
        drop(state);
        for tenure in tenures.values().filter_map(Weak::upgrade) {
            tenure.lose(reason);
        }
        for lock in locks.values().filter_map(Weak::upgrade) {
            lock.closed();
        }
        self.background.stop();
    }
}

impl SessionState {
    fn wake_all(&self) {
        for signal in self.waiters.values() {
            signal.raise(Wakes::SESSION);
        }
    }

    fn publish(&mut self, event: &ConnectionEvent) {
        self.subscribers.retain(|subscriber| {
            // A subscriber that does not read misses what does not fit. One that has gone has
            // nothing unread.
            subscriber.len() >= EVENT_BACKLOG || subscriber.send(event.clone()).is_ok()
        });
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::session::RetryPolicy;
    use crate::session::scripted::stage;

    #[test]
    fn a_subscriber_that_does_not_read_keeps_what_fits() {
        let session = stage(RetryPolicy::new(), |_| unreachable!("nothing is asked")).session;
        let (events, gone) = (session.subscribe(), session.subscribe());
        drop(gone);
        let mut state = session.state.lock();
        for _ in 0..EVENT_BACKLOG + 7 {
            state.publish(&ConnectionEvent::Suspended);
        }
        assert_eq!(state.subscribers.len(), 1);
        assert_eq!(events.len(), EVENT_BACKLOG);
        drop(events);
        state.publish(&ConnectionEvent::Suspended);
        assert!(state.subscribers.is_empty());
    }

    /// The queue of what is to be logged had been closed by then.
    #[test]
    fn a_close_that_leaves_a_thread_behind_says_so() {
        log::set_max_level(log::LevelFilter::Warn);
        let session = stage(RetryPolicy::new(), |_| unreachable!("nothing is asked")).session;
        let (entered, begun) = crossbeam_channel::bounded(1);
        let (release, stuck) = crossbeam_channel::bounded::<()>(0);
        session.submit(move || {
            let _ = entered.send(());
            let _ = stuck.recv();
        });
        begun.recv().expect("it runs");
        session.close(Duration::from_millis(1));
        assert_eq!(session.stats().left_out, 0);
        drop(release);
    }
}
