//! The watch on our own nodes: how a holder learns, at once and from ZooKeeper, that somebody
//! removed its node or asks for the lock back.
//!
//! The watch costs a read, so short sections do without it. The session's patrol sets it for
//! tenures that last (see `session::patrol`), a reconnect for all that survive it, and a revocable
//! lock has it from the beginning. A shorter section learns of a removal when it ends.

use zklock_protocol::WatchKind;

use crate::session::observe::say;
use std::sync::{Arc, OnceLock, Weak};

use super::{OwnWatches, Tenure};
use crate::session::{Contact, LossReason, OnWatchEvent, Seen, Step, Wake, Watch, found};
use crate::sync::Mutex;
use crate::wait::once_event::OnceEvent;

/// The message that somebody who wants a lock writes into its holder's node. It is Curator's.
pub(crate) const REVOKE: &[u8] = b"__REVOKE__";

/// Something that must know when somebody asks for the lock.
pub(crate) trait OnRevoke: Send + Sync {
    /// Called on `zklock-chores`.
    fn on_revoke(&self);
}

#[derive(Default)]
pub(super) struct OwnNodes {
    state: Mutex<WatchedNodes>,
    revocation: OnceLock<Revocation>,
}

#[derive(Default)]
struct WatchedNodes {
    /// One for each node, or none.
    watches: Vec<Watch>,
    /// We remove the nodes ourselves; whatever their watches tell is no news.
    ending: bool,
}

/// A revocable tenure's.
struct Revocation {
    asked: OnceEvent<()>,
    lock: Weak<dyn OnRevoke>,
}

impl Tenure {
    /// From now on a [`REVOKE`] in our node is noticed. The read that leaves the watch is made in
    /// the background, as the caller may have no time for it; it also sees what was written before.
    pub(crate) fn make_revocable(self: &Arc<Self>, lock: Weak<dyn OnRevoke>) {
        let revocation = Revocation {
            asked: OnceEvent::new(),
            lock,
        };
        assert!(self.own_nodes.revocation.set(revocation).is_ok(), "once");
        Arc::clone(self).on_watch_event();
    }

    /// Happens when the lock is asked for; `None` if it is not revocable.
    pub(crate) fn revocation(&self) -> Option<&OnceEvent<()>> {
        self.own_nodes
            .revocation
            .get()
            .map(|revocation| &revocation.asked)
    }

    /// Whether somebody has asked for the lock.
    pub(crate) fn is_revocation_requested(&self) -> bool {
        self.revocation().is_some_and(|asked| asked.get().is_some())
    }

    /// Takes over the watch on our node that was left by the read which proved this tenure.
    pub(crate) fn adopt(self: &Arc<Self>, watch: Watch) {
        let this: Weak<Self> = Arc::downgrade(self);
        let notice = Arc::clone(watch.state());
        self.own_nodes.state.lock().watches.push(watch);
        notice.redirect(Wake::Lock(this));
    }

    pub(super) fn is_watched(&self) -> bool {
        !self.own_nodes.state.lock().watches.is_empty()
    }

    /// Watches for a look at our nodes; none if these are not on `contact`, or not for long.
    pub(super) fn begin_look_at_own_nodes(self: &Arc<Self>, contact: &Contact<'_>) -> Vec<Watch> {
        if self.stands_on(contact).is_err() || self.own_nodes.state.lock().ending {
            return Vec::new();
        }
        let leave = |path: &String| {
            let this: Weak<Self> = Arc::downgrade(self);
            Watch::new(contact, path, WatchKind::DATA, Some(Wake::Lock(this)))
        };
        self.nodes().iter().map(leave).collect()
    }

    /// Our nodes were read, with these watches left on them. Returns whether all were there.
    pub(super) fn own_nodes_seen(
        self: &Arc<Self>,
        watches: Vec<Watch>,
        seen: Vec<Step<Seen>>,
    ) -> Step<bool> {
        if watches.is_empty() {
            return Ok(false);
        }
        for seen in seen {
            match found(seen)? {
                Some((data, stat)) if self.is_own(&stat) => {
                    if data.starts_with(REVOKE) {
                        self.tell_revocation();
                    }
                }
                _ => {
                    self.removed();
                    return Ok(false);
                }
            }
        }
        let mut state = self.own_nodes.state.lock();
        let ending = state.ending;
        let old = if ending {
            watches
        } else {
            std::mem::replace(&mut state.watches, watches)
        };
        drop(state);
        drop(old);
        Ok(!ending)
    }

    /// Our nodes are about to be removed by ourselves: their watches, which will fire, are to be
    /// forgotten once that is done.
    pub(crate) fn end(&self) -> OwnWatches {
        let watches = {
            let mut state = self.own_nodes.state.lock();
            state.ending = true;
            std::mem::take(&mut state.watches)
        };
        for watch in &watches {
            watch.state().mute();
        }
        OwnWatches(watches)
    }

    fn removed(&self) {
        if !self.own_nodes.state.lock().ending {
            self.lose(LossReason::Removed);
            say!(
                self.session(),
                Warn,
                "{}: somebody removed our node; it is lost",
                self.node()
            );
        }
    }

    fn tell_revocation(&self) {
        let Some(revocation) = self.own_nodes.revocation.get() else {
            return;
        };
        revocation.asked.tell(());
        if let Some(lock) = revocation.lock.upgrade() {
            lock.on_revoke();
        }
        say!(
            self.session(),
            Info,
            "{}: somebody asks for the lock",
            self.node()
        );
    }
}

impl OnWatchEvent for Tenure {
    /// One of our nodes was changed or removed. What it was is looked at on a thread that may.
    fn on_watch_event(self: Arc<Self>) {
        let session = Arc::clone(self.session());
        session.submit(move || self.verify());
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use zklock_protocol::{Reply, Request, Stat};

    use std::time::{Duration, Instant};

    use crossbeam_channel::{bounded, unbounded};

    use super::*;
    use crate::session::RetryPolicy;
    use crate::session::scripted::{Stage, stage};
    use crate::tenure::NewTenure;

    fn tenure(stage: &Stage, number: usize) -> Arc<Tenure> {
        let new = NewTenure {
            nodes: vec![format!("/locks/a/lock-{number}")],
            token: None,
            made: None,
        };
        let contact = stage.session.contact().expect("open");
        let tenure = Tenure::begin(&contact, new).expect("proven");
        tenure.expect("on the open connection")
    }

    /// The look at all of them was one job with a round trip for each: the last of thousands stayed
    /// suspect for a minute, and whatever else the worker had to do waited for as long.
    #[test]
    fn many_tenures_are_looked_at_in_slices() {
        const MANY: usize = 300;
        let (tell, seen) = unbounded();
        let stage = stage(RetryPolicy::new(), move |request| {
            if let Request::RemoveWatches { .. } = request {
                return Ok(Reply::Nothing);
            }
            assert!(matches!(request, Request::GetData { watch: true, .. }));
            let _ = tell.send(());
            let stat = Stat {
                czxid: 1,
                ephemeral_owner: 100,
                ..Stat::default()
            };
            Ok(Reply::Data { data: None, stat })
        });
        let (session, before) = (&stage.session, stage.flights());
        let tenures: Vec<_> = (0..MANY).map(|number| tenure(&stage, number)).collect();
        let (release, stuck) = bounded::<()>(0);
        session.submit(move || {
            let _ = stuck.recv();
        });
        stage.reconnect();
        assert!(tenures.iter().all(|tenure| !tenure.is_held()));
        let (at, meanwhile) = (seen.clone(), bounded(1));
        let note = meanwhile.0;
        session.submit(move || {
            let _ = note.send(at.len());
        });
        drop(release);
        let seen_meanwhile = meanwhile.1.recv().expect("it runs");
        assert!(seen_meanwhile < MANY, "{seen_meanwhile}");
        let deadline = Instant::now() + Duration::from_secs(30);
        while !tenures.iter().all(|tenure| tenure.is_held()) {
            assert!(Instant::now() < deadline, "somebody is suspect");
            let (done, next) = bounded(1);
            session.submit(move || {
                let _ = done.send(());
            });
            next.recv().expect("it runs");
        }
        // The patrol may have come between.
        let flights = stage.flights() - before;
        assert!(flights <= MANY / 10, "{flights}");
    }
}
