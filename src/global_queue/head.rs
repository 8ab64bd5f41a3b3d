//! The head of a queue, for those who stand in none: who holds now, and what would change that.

use std::sync::Arc;

use zklock_protocol::{Children, WatchKind};

use super::folder::Folder;
use super::participants::{self, QueuedNode};
use crate::error::Result;
use crate::session::{Contact, Session, Step, Wake, Watch, found};
use crate::znode::names::{Class, Grammar};
use crate::znode::path::LockPath;
use crate::znode::verdict::queue;

/// See the [module](self). It writes nothing, and makes no folder that is missing.
pub(crate) struct QueueHead(Arc<Folder>);

impl QueueHead {
    pub(crate) fn new(session: &Arc<Session>, path: LockPath, grammar: Grammar) -> Self {
        Self(Folder::new(session, path, grammar))
    }

    pub(crate) fn path(&self) -> &LockPath {
        self.0.path()
    }

    /// Who is first now. One look, on the connection that is open.
    pub(crate) fn look(&self) -> Result<Option<QueuedNode>> {
        self.0.look(|contact| {
            loop {
                let children = self.0.list(contact)?.unwrap_or_default();
                let Some((path, class)) = self.first(&children) else {
                    return Ok(None);
                };
                // It may have gone since the list.
                if let Some(seen) = found(contact.data(&path))? {
                    return Ok(Some(participants::queued_node(
                        contact, path, class, true, seen,
                    )));
                }
            }
        })
    }

    /// Who is first now, and a watch that fires when that may be another: on the first node, or on
    /// the folder if nobody is in it.
    pub(crate) fn look_and_watch(
        &self,
        contact: &Contact<'_>,
    ) -> Step<(Option<QueuedNode>, Watch)> {
        let folder = self.path().as_str();
        loop {
            let Some(children) = self.0.list(contact)? else {
                let made = watch(contact, folder, WatchKind::DATA);
                if contact.watch_stat(&made)?.is_none() {
                    return Ok((None, made));
                }
                continue;
            };
            let Some((path, class)) = self.first(&children) else {
                let children = watch(contact, folder, WatchKind::CHILDREN);
                let listed = self.0.list_and_watch(contact, &children)?;
                // Somebody may have come since, or the folder have gone.
                if listed.is_some_and(|listed| self.first(&listed).is_none()) {
                    return Ok((None, children));
                }
                continue;
            };
            let first = watch(contact, &path, WatchKind::DATA);
            // It may have gone since the list.
            if let Some(seen) = found(contact.watch_data(&first))? {
                let first_of_all = participants::queued_node(contact, path, class, true, seen);
                return Ok((Some(first_of_all), first));
            }
        }
    }

    fn first(&self, children: &Children) -> Option<(String, Class)> {
        let order = queue(self.0.grammar(), children);
        let first = order.first()?;
        Some((self.0.child(first.name), first.class))
    }
}

fn watch(contact: &Contact<'_>, path: &str, kind: WatchKind) -> Watch {
    let wake = Wake::Signal(Arc::clone(contact.signal()));
    Watch::new(contact, path, kind, Some(wake))
}
