//! The first step: our nodes stand in the folder, and we know it.

use std::sync::Arc;

use super::Contest;
use super::place::{Claim, Create, Place};
use crate::session::keeper::{KeeperError, NodeMode, Reply, Request};
use crate::session::{CallError, Step, Waiter, find_created};
use crate::znode::path::split;

impl Contest {
    /// Makes sure that as many nodes of ours as were asked for stand in the folder.
    pub(super) fn enter(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
    ) -> Step<()> {
        self.make_sure(place, waiter)?;
        // A copy: the place goes on saying what there is, whatever fails below.
        let mut nodes = match place {
            Place::Queued { nodes, .. } => nodes.clone(),
            _ => Vec::with_capacity(claim.count),
        };
        while nodes.len() < claim.count {
            // A fresh GUID for each create, so that a node found by it can only be that create's.
            let prefix = self.grammar.prefix(uuid::Uuid::new_v4(), self.class);
            let request = Request::Create {
                path: self.folder.child(&prefix),
                data: Arc::clone(&claim.data),
                mode: self.grammar.mode(self.class),
            };
            match waiter.call(request) {
                Ok((Reply::Path(path), contact)) => {
                    log::debug!("{path}: queued");
                    nodes.push(path);
                    let (nodes, epoch) = (nodes.clone(), contact.epoch);
                    *place = Place::Queued { nodes, epoch };
                }
                Ok(_) => unreachable!("a create is answered with a path"),
                Err(CallError::Refused(KeeperError::NoNode)) => {
                    // The nodes that were in it went before the folder could.
                    nodes.clear();
                    *place = Place::Nowhere;
                    (claim.new_folder)();
                    self.make_folder(waiter, self.folder.as_str())?;
                }
                Err(CallError::Unknown(contact)) => {
                    *place = Place::Unsure {
                        create: Create::Prefix(prefix),
                        nodes,
                        epoch: Arc::clone(&contact.epoch),
                    };
                    return Err(CallError::Unknown(contact));
                }
                Err(error) => return Err(error),
            }
        }
        (claim.entered)(split(&nodes[0]).1);
        Ok(())
    }

    /// Finds out what became of a create that was not answered.
    fn make_sure(&self, place: &mut Place, waiter: &Waiter<'_>) -> Step<()> {
        if let Place::Unsure {
            create: Create::Prefix(prefix),
            nodes,
            epoch,
        } = place
        {
            let folder = self.folder.as_str();
            let found = find_created(|request| waiter.call(request), folder, prefix, epoch)?;
            nodes.extend(found.map(|name| self.folder.child(&name)));
            *place = Place::Queued {
                nodes: std::mem::take(nodes),
                epoch: Arc::clone(epoch),
            };
        }
        Ok(())
    }

    /// Creates a folder that is missing, and before it what is missing above it. From below, so
    /// that folders which exist are never written to: their parents' ACLs may forbid it.
    pub(super) fn make_folder(&self, waiter: &Waiter<'_>, path: &str) -> Step<()> {
        make_node(path, &Arc::from([]), |request| waiter.call(request))
    }
}

/// Creates a persistent node, and before it what is missing above it. It may exist already.
pub(crate) fn make_node<T>(
    path: &str,
    data: &Arc<[u8]>,
    mut call: impl FnMut(Request) -> Step<T>,
) -> Step<()> {
    let mut missing = vec![path];
    while let Some(path) = missing.last().copied() {
        let request = Request::Create {
            path: path.to_owned(),
            data: if missing.len() == 1 {
                Arc::clone(data)
            } else {
                Arc::from([])
            },
            mode: NodeMode::Persistent,
        };
        match call(request) {
            Ok(_) | Err(CallError::Refused(KeeperError::NodeExists)) => {
                missing.pop();
            }
            Err(CallError::Refused(KeeperError::NoNode)) => match split(path) {
                // Only a missing chroot leaves the root without a parent.
                ("", _) => return Err(CallError::Refused(KeeperError::NoNode)),
                (parent, _) => missing.push(parent),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
