//! The first step: our node stands in the queue, and we know it.

use std::sync::Arc;

use super::{Contest, Place, Step};
use crate::names::Class;
use crate::session::keeper::{KeeperError, NodeMode, Reply, Request};
use crate::session::{CallError, Waiter, find_created};

impl Contest {
    /// Makes sure that our node stands in the queue.
    pub(super) fn enter(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        data: &Arc<[u8]>,
    ) -> Step<()> {
        if let Place::Unsure { prefix, epoch } = place {
            let folder = self.folder.as_str();
            let found = find_created(|request| waiter.call(request), folder, prefix, epoch)?;
            *place = match found {
                Some(name) => Place::Queued {
                    name,
                    epoch: Arc::clone(epoch),
                },
                None => Place::Nowhere,
            };
        }
        while let Place::Nowhere = place {
            // A fresh GUID for each create, so that a node found by it can only be that create's.
            let prefix = self.grammar.prefix(uuid::Uuid::new_v4(), Class::Exclusive);
            let request = Request::Create {
                path: self.folder.child(&prefix),
                data: Arc::clone(data),
                mode: NodeMode::EphemeralSequential,
            };
            match waiter.call(request) {
                Ok((Reply::Path(path), contact)) => {
                    let (_, name) = crate::path::split(&path);
                    log::debug!("{path}: queued");
                    *place = Place::Queued {
                        name: name.to_owned(),
                        epoch: contact.epoch,
                    };
                }
                Ok(_) => unreachable!("a create is answered with a path"),
                Err(CallError::Refused(KeeperError::NoNode)) => {
                    self.make_folder(waiter, self.folder.as_str())?;
                }
                Err(CallError::Unknown(contact)) => {
                    *place = Place::Unsure {
                        prefix,
                        epoch: Arc::clone(&contact.epoch),
                    };
                    return Err(CallError::Unknown(contact));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates a folder that is missing, and before it what is missing above it. From below, so
    /// that folders which exist are never written to: their parents' ACLs may forbid it.
    pub(super) fn make_folder(&self, waiter: &Waiter<'_>, path: &str) -> Step<()> {
        let create = || {
            waiter.call(Request::Create {
                path: path.to_owned(),
                data: Arc::from([]),
                mode: NodeMode::Persistent,
            })
        };
        let result = match create() {
            Err(CallError::Refused(KeeperError::NoNode)) => {
                let (parent, _) = crate::path::split(path);
                if parent.is_empty() {
                    // Only a missing chroot leaves the root without a parent.
                    return Err(CallError::Refused(KeeperError::NoNode));
                }
                self.make_folder(waiter, parent)?;
                create()
            }
            result => result,
        };
        match result {
            Ok(_) | Err(CallError::Refused(KeeperError::NodeExists)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
