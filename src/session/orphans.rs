//! The reaper: removes nodes that were left behind in ZooKeeper.
//!
//! These are nodes whose delete was not confirmed, and nodes that a lost create may have made. Each
//! is tried until the server has confirmed the delete, or until its epoch has ended: then the
//! server removes the node together with the session.

use crate::session::observe::say;
use std::collections::VecDeque;
use std::sync::Arc;

use super::Session;
use super::call_error::{CallError, Step};
use super::contact::{Contact, gone};
use super::created::{find_created, find_plain};
use super::orphan::Orphan;
use crate::link::Epoch;
use crate::sync::Mutex;

#[derive(Default)]
pub(super) struct Orphans {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Orphan, Arc<Epoch>)>,
    /// A worker is at it. Set and cleared together with the look at the queue, so that whoever
    /// adds an orphan either is seen by that worker or starts the next one.
    sweeping: bool,
    /// A reason to look again came while `sweeping`.
    again: bool,
}

impl Session {
    /// Takes over the removal of `orphan`, which belongs to `epoch`.
    pub(crate) fn reap(self: &Arc<Self>, orphan: Orphan, epoch: &Arc<Epoch>) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.is_forked() {
            return;
        }
        let mut state = self.orphans.state.lock();
        state.queue.push_back((orphan, Arc::clone(epoch)));
        drop(state);
        self.sweep_orphans();
    }

    /// Starts a sweep, or makes a running one look again before it stops.
    pub(super) fn sweep_orphans(self: &Arc<Self>) {
        let mut state = self.orphans.state.lock();
        // Before the look at the queue: the sweep may have taken the last orphan out, and be about
        // to put it back.
        if state.sweeping {
            state.again = true;
            return;
        }
        if state.queue.is_empty() {
            return;
        }
        state.sweeping = true;
        drop(state);
        let session = Arc::clone(self);
        self.submit(move || session.sweep());
    }

    fn sweep(self: &Arc<Self>) {
        loop {
            let (orphan, epoch) = {
                let mut state = self.orphans.state.lock();
                let Some(next) = state.queue.pop_front() else {
                    state.sweeping = false;
                    return;
                };
                next
            };
            if !epoch.lease().is_alive() {
                continue;
            }
            match self.remove(&orphan, &epoch) {
                Ok(()) => {
                    let left = self.orphans.state.lock().queue.len();
                    self.observation().orphan_cleaned(left);
                }
                Err(CallError::Refused(error)) => say!(
                    self,
                    Warn,
                    "{}: cannot remove {orphan}: {error}; it stays until the session ends",
                    self.target()
                ),
                Err(CallError::NotSent(_) | CallError::Unknown | CallError::Left(_)) => {
                    let mut state = self.orphans.state.lock();
                    state.queue.push_front((orphan, epoch));
                    // Opening a connection sweeps. If that happened between our failed call and
                    // here, it left word in `again`.
                    if !std::mem::take(&mut state.again) {
                        state.sweeping = false;
                        return;
                    }
                }
            }
        }
    }

    fn remove(self: &Arc<Self>, orphan: &Orphan, epoch: &Arc<Epoch>) -> Step<()> {
        let contact = self.contact()?;
        if contact.epoch().number() != epoch.number() {
            // It went with its session.
            return Ok(());
        }
        match orphan {
            Orphan::Node { path } => remove_node(&contact, path),
            Orphan::Created { folder, prefix } => {
                match find_created(&contact, folder, prefix, epoch)? {
                    Some(created) => remove_node(&contact, &created.path),
                    None => Ok(()),
                }
            }
            Orphan::Plain { path, proof } => {
                if find_plain(&contact, path, proof, epoch)? {
                    remove_node(&contact, path)?;
                }
                Ok(())
            }
        }
    }
}

fn remove_node(contact: &Contact<'_>, path: &str) -> Step<()> {
    gone(contact.delete(path, None)).map(drop)
}
