//! The seam on the link.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use zklock_protocol::{EventKind, Request, WatchKind};

use super::Session;
use super::backend::{Backend, Batching, Completion, NotSent};
use super::loss::LossReason;
use super::phase::Connection;
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
        this.watch.notice().redirect(Wake::Lock(weak));
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
        if self.watch.notice().was_removed() {
            (self.taken_off)();
        }
    }
}
