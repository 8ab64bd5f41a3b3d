//! A tenure that is kept with nobody inside: what ends it when no thread comes.

use crate::session::observe::say;
use std::sync::Arc;

use super::release::{Next, Parting};
use super::tenure_use::TenureUse;
use super::{LocalQueue, Turn};
use crate::error::Result;
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
        let departure = self.release_slowly(Next::Leave(tenure_use), Parting::Looking);
        match departure.confirm() {
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
