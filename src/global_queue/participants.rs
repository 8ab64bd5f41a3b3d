//! Who stands in the queue, for people and tools; and what one participant can do to another.

use std::sync::Arc;

use super::Contest;
use super::look::children_of;
use super::sole::revocation_of;
use crate::error::{Error, Result};
use crate::session::CallError;
use crate::session::keeper::{KeeperError, Reply, Request};
use crate::tenure::REVOKE;
use crate::znode::names::Class;
use crate::znode::path::split;
use crate::znode::verdict::{Rule, queue};

/// One node in the queue.
pub(crate) struct Queued {
    pub(crate) path: String,
    pub(crate) data: Vec<u8>,
    pub(crate) class: Class,
    /// Nobody ahead of it keeps it waiting.
    pub(crate) holds: bool,
}

impl Contest {
    /// The nodes in the queue, in order, with their data.
    pub(crate) fn participants(&self) -> Result<Vec<Queued>> {
        self.session.fork().refuse_child()?;
        let mut participants = Vec::new();
        let mut ahead = Vec::new();
        for (path, class) in self.standing()? {
            let rule = Rule::of(class);
            let holds = !ahead.iter().any(|class| rule.is_blocked_by(*class));
            let request = Request::Data {
                path: path.clone(),
                watch: false,
            };
            match self.session.call(&request) {
                Ok((Reply::Data(data, _), _)) => {
                    ahead.push(class);
                    participants.push(Queued {
                        path,
                        data,
                        class,
                        holds,
                    });
                }
                // It went since the list.
                Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
        Ok(participants)
    }

    fn standing(&self) -> Result<Vec<(String, Class)>> {
        let folder = self.folder.as_str();
        if self.class == Class::Sole {
            return Ok(vec![(folder.to_owned(), Class::Sole)]);
        }
        let request = Request::Children {
            path: folder.to_owned(),
            watch: false,
        };
        let children = match self.session.call(&request) {
            Ok((reply, _)) => children_of(reply),
            Err(CallError::Refused(KeeperError::NoNode)) => return Ok(Vec::new()),
            Err(error) => return Err(self.failure(error)),
        };
        let queued = queue(&self.grammar, &children);
        Ok(queued
            .iter()
            .map(|contender| (self.folder.child(contender.name), contender.class))
            .collect())
    }

    /// Asks for the lock back. Returns whether the node still stands.
    pub(crate) fn revoke(&self, path: &str) -> Result<bool> {
        self.check_is_of_ours(path)?;
        let mut data: Arc<[u8]> = Arc::from(REVOKE);
        let mut version = None;
        if self.class == Class::Sole {
            self.session.fork().refuse_child()?;
            let request = Request::Data {
                path: path.to_owned(),
                watch: false,
            };
            match self.session.call(&request) {
                Ok((Reply::Data(found, stat), _)) => {
                    data = revocation_of(&found);
                    version = Some(stat.version);
                }
                Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => return Ok(false),
                Err(error) => return Err(self.failure(error)),
            }
        }
        self.tell(&Request::Set {
            path: path.to_owned(),
            data,
            version,
        })
    }

    /// Deletes a contender's node. Returns whether it still stood.
    pub(crate) fn break_lock(&self, path: &str) -> Result<bool> {
        self.check_is_of_ours(path)?;
        log::warn!("{path}: breaking the lock");
        self.tell(&Request::delete(path))
    }

    fn tell(&self, request: &Request) -> Result<bool> {
        self.session.fork().refuse_child()?;
        match self.session.call(request) {
            Ok(_) => Ok(true),
            // Another node of the same name, or the request of somebody else.
            Err(CallError::Refused(KeeperError::NoNode | KeeperError::BadVersion)) => Ok(false),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// A participant of another lock is somebody's mistake.
    fn check_is_of_ours(&self, path: &str) -> Result<()> {
        let (folder, name) = split(path);
        let ours = if self.class == Class::Sole {
            path == self.folder.as_str()
        } else {
            folder == self.folder.as_str() && self.grammar.parse(name).is_some()
        };
        if ours {
            return Ok(());
        }
        let lock = &self.folder;
        Err(Error::invalid(format!(
            "{path} is not a participant of {lock}"
        )))
    }
}
