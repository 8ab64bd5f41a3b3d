//! The seam on the link.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Session;
use super::acl::{Acl, Permissions};
use super::backend::{Backend, NotOpen, Request, Slot, WatchEvent};
use super::loss::LossReason;
use super::own_requests::{Answers, Speaker};
use super::phase::Connection;
use crate::link::voice::Company;
use crate::link::{Epoch, Link, LinkEvent, LinkObserver, NodeEvent};

/// The link, spoken to in its words.
pub(crate) struct ZkBackend {
    link: Arc<Link>,
    speaker: Speaker,
    makes_readable_nodes: bool,
}

impl ZkBackend {
    pub(crate) fn new(link: Arc<Link>, chroot: String, acl: &Acl) -> Self {
        let readable = |permissions: Permissions| permissions.0 & Permissions::READ.0 != 0;
        Self {
            link,
            speaker: Speaker::new(chroot, acl),
            makes_readable_nodes: acl.0.iter().any(|entry| readable(entry.permissions)),
        }
    }
}

impl Backend for ZkBackend {
    fn submit(
        &self,
        connection: u64,
        requests: &[Request],
        company: Company,
        slot: Arc<dyn Slot>,
    ) -> std::result::Result<(), NotOpen> {
        let is_harmless = || self.link.is_harmless(connection);
        let said = requests
            .iter()
            .map(|one| self.speaker.say(one, is_harmless));
        let said: Vec<_> = said.collect();
        let answers = Answers::new(slot, requests, &said, connection, &self.speaker);
        answers.submit(&self.link, &said, company)
    }

    fn makes_readable_nodes(&self) -> bool {
        self.makes_readable_nodes
    }

    fn look_soon(&self) {
        self.link.look_soon();
    }

    fn abandon(&self, epoch: &Epoch) {
        self.link.abandon(epoch);
    }

    fn close(&self, bound: Duration) {
        let deadline = Instant::now() + bound;
        // Half of the time for a server that does not answer, the rest for the threads.
        self.link.close(bound / 2);
        if !self.link.wait_ended(deadline) {
            self.link
                .warn("a thread of the link is still dialling; it ends when its attempt does");
        }
    }
}

/// Passes the link's events on to a session.
pub(crate) struct ToSession {
    pub(crate) session: Weak<Session>,
    pub(crate) chroot: String,
}

impl LinkObserver for ToSession {
    fn log(&self, level: log::Level, target: &'static str, line: String) {
        if let Some(session) = self.session.upgrade() {
            session.observation().log(level, target, || line);
        }
    }

    fn on_event(&self, event: NodeEvent, path: &str, number: u64) {
        let event = match event {
            NodeEvent::Created => WatchEvent::Created,
            NodeEvent::Deleted => WatchEvent::Deleted,
            NodeEvent::DataChanged => WatchEvent::DataChanged,
            NodeEvent::ChildrenChanged => WatchEvent::ChildrenChanged,
        };
        let path = path.strip_prefix(self.chroot.as_str());
        if let (Some(session), Some(path)) = (self.session.upgrade(), path) {
            session.watch_event(if path.is_empty() { "/" } else { path }, event, number);
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
