//! The way out: of the queue, or of what was won.

use super::Contest;
use super::place::{Create, News, Place};
use crate::error::{Error, Result};
use crate::session::keeper::{KeeperError, Request};
use crate::session::{CallError, Orphan, Proof, WatchGuard, find_plain};
use crate::sync::now;
use crate::tenure::{LockState, Tenure};
use crate::znode::names::Class;

impl Contest {
    /// Leaves the queue: our nodes go, now or as soon as ZooKeeper can be reached.
    pub(crate) fn withdraw(&self, place: Place) {
        let (nodes, epoch) = match place {
            Place::Nowhere => return,
            Place::Unsure {
                create,
                nodes,
                epoch,
            } => {
                let orphan = match create {
                    Create::Prefix(prefix) => Orphan::Created {
                        folder: self.folder.as_str().to_owned(),
                        prefix,
                    },
                    Create::Data(data) => Orphan::Plain {
                        path: self.folder.as_str().to_owned(),
                        proof: Proof::Data(data),
                    },
                };
                self.session.reap(orphan, &epoch);
                (nodes, epoch)
            }
            Place::Queued { nodes, epoch } => (nodes, epoch),
        };
        for path in nodes {
            self.session.reap(Orphan::Node { path }, &epoch);
        }
    }

    /// Ends a tenure: deletes our nodes. An error says that it was lost before, or that a delete
    /// is not confirmed and goes on in the background.
    pub(crate) fn leave(&self, tenure: &Tenure, news: News) -> Result<()> {
        let watches = tenure.end();
        let mut result = Ok(());
        for node in tenure.nodes() {
            let left = self.remove(tenure, node, &watches);
            result = result.and(left);
        }
        if result.is_ok() {
            news.forget();
        }
        for watch in watches {
            watch.forget();
        }
        result
    }

    fn remove(&self, tenure: &Tenure, node: &str, watches: &[WatchGuard]) -> Result<()> {
        // Where ours was lost, another's node of the same name may stand.
        if self.class == Class::Sole && !watches.iter().any(WatchGuard::is_live) {
            return self.remove_if_ours(tenure, node);
        }
        match self.session.call(&Request::delete(node)) {
            Ok(_) => Ok(()),
            Err(CallError::Refused(KeeperError::NoNode)) => {
                log::warn!("{node}: our node was gone at the release");
                Err(Error::removed(node))
            }
            Err(CallError::Refused(error)) => Err(self.refusal(error)),
            Err(CallError::NotSent(_) | CallError::Unknown(_) | CallError::Left(_)) => {
                if !tenure.epoch().lease().alive(now()) {
                    return Err(tenure.loss());
                }
                self.reap_node(tenure, node);
                Err(unconfirmed(node))
            }
        }
    }

    /// Something has happened to our node since we last saw it, or may have.
    fn remove_if_ours(&self, tenure: &Tenure, node: &str) -> Result<()> {
        if tenure.state(now()) == LockState::Lost {
            return Err(tenure.loss());
        }
        let call = |request| self.session.call(&request);
        match find_plain(call, node, &made(tenure), tenure.epoch()) {
            Ok(true) => {
                let deleted = self.session.call(&Request::delete(node));
                if deleted.is_ok() {
                    return Ok(());
                }
            }
            Ok(false) => return Err(Error::removed(node)),
            Err(error) => log::debug!("{node}: {error:?}"),
        }
        self.reap_node(tenure, node);
        Err(unconfirmed(node))
    }

    /// As [`Contest::leave`], in the background.
    pub(crate) fn abandon(&self, tenure: &Tenure, news: News) {
        let watches = tenure.end();
        for node in tenure.nodes() {
            self.reap_node(tenure, node);
        }
        news.forget();
        for watch in watches {
            watch.forget();
        }
    }

    fn reap_node(&self, tenure: &Tenure, node: &str) {
        let path = node.to_owned();
        let orphan = if self.class == Class::Sole {
            let proof = made(tenure);
            Orphan::Plain { path, proof }
        } else {
            Orphan::Node { path }
        };
        self.session.reap(orphan, tenure.epoch());
    }
}

/// The transaction that made the one node of a tenure whose class knows it from the beginning.
fn made(tenure: &Tenure) -> Proof {
    let token = tenure.known_token().expect("known since it was won");
    Proof::Made(i64::try_from(token.as_u64()).expect("came from an i64"))
}

fn unconfirmed(node: &str) -> Error {
    Error::connection_loss(format!(
        "{node}: the release is not confirmed yet and goes on in the background"
    ))
}
