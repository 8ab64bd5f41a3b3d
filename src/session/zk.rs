//! The seam on the link.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use zklock_protocol::{EventKind, Request, WatchKind};

use super::Session;
use super::backend::{Backend, Batching, Completion, NotSent};
use super::loss::LossReason;
use super::phase::Connection;
use super::verbs::exists;
use super::watches::{OnWatchEvent, Wake, Watch};
use crate::link::{Epoch, Interest, Link, LinkEvent, LinkObserver, TakenOff};

impl Backend for Link {
    fn submit(
        &self,
        connection: u64,
        requests: &[Request],
        batching: Batching,
        completion: Arc<dyn Completion>,
    ) -> std::result::Result<(), NotSent> {
        Link::submit(self, connection, requests, batching, completion)
    }

    fn is_harmless(&self, connection: u64) -> bool {
        Link::is_harmless(self, connection)
    }

    fn look_soon(&self) {
        Link::look_soon(self);
    }

    fn abandon(&self, epoch: &Epoch) {
        Link::abandon(self, epoch);
    }

    fn close(&self, bound: Duration) {
        let deadline = Instant::now() + bound;
        // Half of the time for a server that does not answer, the rest for the threads.
        Link::close(self, bound / 2);
        if !self.wait_ended(deadline) {
            self.warn("a thread of the link is still dialling; it ends when its attempt does");
        }
    }
}

/// So many watches of a handle that has gone are taken off at a time.
const SLICE: usize = 64;

/// Passes the link's events on to a session.
pub(crate) struct ToSession {
    pub(crate) session: Weak<Session>,
}

impl LinkObserver for ToSession {
    fn log(&self, level: log::Level, target: &'static str, line: String) {
        if let Some(session) = self.session.upgrade() {
            session.observation().log(level, target, || line);
        }
    }

    fn on_event(&self, event: EventKind, path: &str, number: u64) {
        if let Some(session) = self.session.upgrade()
            && let Some(path) = session.site().strip(path)
        {
            session.watch_event(path, event, number);
        }
    }

    fn observe(
        &self,
        kind: WatchKind,
        path: &str,
        connection: u64,
        taken_off: TakenOff,
    ) -> Option<Arc<dyn Interest>> {
        let session = self.session.upgrade()?;
        let path = session.site().strip(path)?;
        Some(GuestWatch::on(&session, connection, path, kind, taken_off))
    }

    fn let_go(&self, interests: Vec<Arc<dyn Interest>>) {
        if let Some(session) = self.session.upgrade() {
            session.let_go(interests);
        }
    }

    fn on_clock(&self) -> Option<Duration> {
        self.session.upgrade()?.look_at_clock()
    }

    fn on_link(&self, event: LinkEvent) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        match event {
            LinkEvent::Connected {
                epoch,
                resumed,
                connection: number,
            } => session.connected(Connection { epoch, number }, resumed),
            LinkEvent::Suspended { connection, .. } => session.suspended(connection),
            LinkEvent::Expired { epoch, .. } => session.lost(epoch.number(), LossReason::Session),
            LinkEvent::NodeGone { epoch, path } => session.node_gone(epoch.number(), path),
            LinkEvent::Dialling(server) => session.dialling(server),
            LinkEvent::DialFailed(failure) => {
                session.dial_failed(failure.to_string(), failure.why);
            }
            LinkEvent::AuthFailed { scheme } => session.auth_failed(&scheme),
            LinkEvent::Closed => session.broken(),
        }
    }
}

/// A handle of the crate looks at something: its interest in the watch that it leaves.
struct GuestWatch {
    watch: Watch,
    taken_off: TakenOff,
}

impl GuestWatch {
    fn on(
        session: &Arc<Session>,
        connection: u64,
        path: &str,
        kind: WatchKind,
        taken_off: TakenOff,
    ) -> Arc<Self> {
        let watch = Watch::on(session, connection, path, kind, None);
        let this = Arc::new(Self { watch, taken_off });
        let weak = Arc::downgrade(&this);
        let weak: Weak<dyn OnWatchEvent> = weak;
        this.watch.state().redirect(Wake::Lock(weak));
        this
    }
}

impl Interest for GuestWatch {
    fn armed(&self, after: u64) {
        self.watch.armed(after);
    }
}

impl OnWatchEvent for GuestWatch {
    /// Events go to the handle by the link. But a removal that somebody else had on its way when the
    /// watch was left may have taken it along.
    fn on_watch_event(self: Arc<Self>) {
        if self.watch.state().was_removed() {
            (self.taken_off)();
        }
    }
}

impl Session {
    /// Ends interests on `zklock-chores`. A handle may have left hundreds of thousands of watches: taken
    /// off all at once, they would fill what waits for the server, and requests for locks would be put
    /// off. So they go in slices, and between two the worker does what else it has to do.
    fn let_go(self: &Arc<Self>, mut interests: Vec<Arc<dyn Interest>>) {
        let session = Arc::downgrade(self);
        self.submit(move || {
            let rest = interests.len().saturating_sub(SLICE);
            // The end of the last interest takes the watch off the server.
            drop(interests.split_off(rest));
            let Some(session) = session.upgrade().filter(|_| rest > 0) else {
                return;
            };
            // Answered when they all are. Without a connection there is nothing to take off.
            if let Ok(contact) = session.contact() {
                let _ = contact.send_in(Batching::Never, vec![exists("/", false)]);
            }
            session.let_go(interests);
        });
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use zklock_protocol::Reply;

    use super::*;
    use crate::session::RetryPolicy;
    use crate::session::scripted::stage;

    const SOON: Duration = Duration::from_secs(30);

    /// They were taken off all at once, by the thread on which the handle had come to its end.
    #[test]
    fn many_watches_of_a_handle_that_has_gone_are_taken_off_bit_by_bit() {
        let (tell, asked) = crossbeam_channel::unbounded();
        let stage = stage(RetryPolicy::new(), move |request| {
            let thread = std::thread::current().name().map(str::to_owned);
            let _ = tell.send((request.clone(), thread));
            Ok(Reply::Nothing)
        });
        let watches = (0..1000).map(|number| {
            let path = format!("/{number}");
            let watch = GuestWatch::on(&stage.session, 1, &path, WatchKind::DATA, Box::new(|| ()));
            watch.armed(0);
            let watch: Arc<dyn Interest> = watch;
            watch
        });
        stage.session.let_go(watches.collect());
        let (mut taken_off, mut at_a_time) = (0, 0);
        while taken_off < 1000 {
            let (request, thread) = asked.recv_timeout(SOON).expect("asked");
            assert_eq!(thread.as_deref(), Some("zklock-chores"));
            match request {
                Request::RemoveWatches { .. } => {
                    at_a_time += 1;
                    taken_off += 1;
                }
                _ => at_a_time = 0,
            }
            assert!(at_a_time <= SLICE, "{at_a_time} at a time");
        }
    }
}
