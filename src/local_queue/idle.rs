//! A tenure that is kept with nobody inside: what ends it when no thread comes.

use crate::session::observe::say;
use std::sync::Arc;

use super::release::Next;
use super::tenure_use::TenureUse;
use super::{LocalQueue, Turn};
use crate::error::Result;
use crate::global_queue::ReleaseMode;
use crate::session::{LocalLock, OnTimer, OnWatchEvent};
use crate::sync;
use crate::tenure::OnRevoke;

impl LocalQueue {
    /// Ends a tenure that is kept with nobody inside, if there is one. One that was lost has ended.
    pub(crate) fn end_idle(&self) -> Result<()> {
        self.end_idle_if(|_| true)
    }

    fn end_idle_if(&self, ends: impl FnOnce(&TenureUse) -> bool) -> Result<()> {
        let tenure_use = {
            let mut local = self.state.lock();
            match std::mem::replace(&mut local.turn, Turn::Between) {
                Turn::Idle { tenure_use, .. } if ends(&tenure_use) => tenure_use,
                turn => {
                    local.turn = turn;
                    return Ok(());
                }
            }
        };
        let release = self.release_slowly(Next::Leave(tenure_use), ReleaseMode::Foreground);
        match release.confirm() {
            Err(error) if error.is_lock_lost() => Ok(()),
            ended => ended,
        }
    }
}

impl OnWatchEvent for LocalQueue {
    /// A child of the folder came or went. If the lock is in use, the release will see that the
    /// watch has fired; an idle tenure must be ended by somebody.
    fn on_watch_event(self: Arc<Self>) {
        if self.policy.linger.is_zero() {
            return;
        }
        let this = self.this.clone();
        self.session.submit(move || {
            if let Some(queue) = this.upgrade() {
                queue.on_revoke();
            }
        });
    }
}

impl OnRevoke for LocalQueue {
    /// Somebody waits. A holder decides for itself; an idle tenure ends, if it is the one that was
    /// told: this comes late, and a next tenure may be there already, whose own watches are silent.
    fn on_revoke(&self) {
        if let Err(error) = self.end_idle_if(|tenure_use| !tenure_use.is_good()) {
            say!(self.session, Warn, "{}: {error}", self.path());
        }
    }
}

impl OnTimer for LocalQueue {
    fn on_timer(self: Arc<Self>) {
        let now = sync::now();
        let mut local = self.state.lock();
        let again = match &local.turn {
            Turn::Idle { since, .. } => {
                let over = since.checked_add(self.policy.linger);
                over.filter(|over| cfg!(not(shuttle)) && *over > now)
            }
            Turn::Free => None,
            _ => now
                .checked_add(self.policy.linger)
                .filter(|_| cfg!(not(shuttle))),
        };
        local.timed = again.is_some();
        drop(local);
        if again.is_some() {
            self.look_again_at(again);
        } else if let Err(error) = self.end_idle() {
            say!(self.session, Warn, "{}: {error}", self.path());
        }
    }
}

impl LocalLock for LocalQueue {
    fn reconnected(&self) {
        // Whoever came while there was no contact was not seen, and the watch is gone.
        if !self.policy.linger.is_zero()
            && let Err(error) = self.end_idle()
        {
            say!(self.session, Warn, "{}: {error}", self.path());
        }
    }

    fn closed(&self) {
        let (tell, idle) = {
            let mut local = self.state.lock();
            local.closed = true;
            let idle = match std::mem::replace(&mut local.turn, Turn::Between) {
                Turn::Idle { tenure_use, .. } => {
                    local.turn = Turn::Free;
                    Some(tenure_use)
                }
                turn => {
                    local.turn = turn;
                    None
                }
            };
            (local.wait_queue.close(), idle)
        };
        tell();
        // The session's end removes the node.
        drop(idle);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::{Duration, Instant};

    use zklock_protocol::{EventKind, Reply, Request, Stat};

    use super::*;
    use crate::global_queue::{GlobalQueue, WaitStrategy};
    use crate::local_queue::{Policy, Turns};
    use crate::session::RetryPolicy;
    use crate::session::scripted::stage;
    use crate::sync::Mutex;
    use crate::wait::limits::WaitLimits;
    use crate::znode::names::{Class, Dialect, Grammar};
    use crate::znode::path::LockPath;

    /// Who was told of the end of one tenure, and came late, ended the next one, of which nobody had
    /// asked anything.
    #[test]
    fn a_late_word_ends_no_next_tenure() {
        let nodes = Arc::new(Mutex::new(Vec::new()));
        let folder = Arc::clone(&nodes);
        let stage = stage(RetryPolicy::new(), move |request| {
            let mut nodes = folder.lock();
            match request {
                Request::Create(create) => {
                    let path = format!("{}{:010}", create.path, nodes.len());
                    nodes.push(path.clone());
                    let stat = Stat {
                        czxid: 1,
                        ephemeral_owner: 100,
                        ..Stat::default()
                    };
                    Ok(Reply::Created { path, stat })
                }
                Request::GetChildren { path, .. } => {
                    let names = nodes.iter().filter_map(|node| node.strip_prefix(path));
                    let names = names.map(|name| name.trim_start_matches('/'));
                    Ok(Reply::Children(names.collect()))
                }
                Request::Delete { path, .. } => {
                    nodes.retain(|node| node != path);
                    Ok(Reply::Nothing)
                }
                other => unreachable!("{other:?}"),
            }
        });
        let session = &stage.session;
        let protocol = GlobalQueue::new(
            session,
            LockPath::parse("/lock").expect("good"),
            Grammar::mutex(Dialect::Curator, None),
            Class::Exclusive,
            WaitStrategy::PredecessorWatch,
            true,
        );
        let policy = Policy {
            linger: Duration::from_secs(3600),
            ..Policy::default()
        };
        let queue = LocalQueue::new(protocol, policy);
        let limits = WaitLimits::none();
        queue.acquire(&limits, || Arc::from([])).expect("free");
        queue.release().expect("ours");
        queue.on_revoke();
        assert_eq!(nodes.lock().len(), 1, "nobody has asked for this one");
        session.watch_event("/lock", EventKind::NodeChildrenChanged, 1);
        let deadline = Instant::now() + Duration::from_secs(30);
        while !nodes.lock().is_empty() {
            assert!(Instant::now() < deadline, "somebody came, and it stays");
            std::thread::yield_now();
        }
    }
}
