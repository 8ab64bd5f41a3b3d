//! The last step: waiting for the one ahead, and taking over from it.

use std::sync::Arc;

use super::Contest;
use super::place::{News, Place, Watching, Won};
use crate::session::keeper::{KeeperError, Request, WatchKind};
use crate::session::watches::{Notice, Wake};
use crate::session::{CallError, Contact, Step, Waiter, WatchGuard};
use crate::sync::now;
use crate::tenure::{Founding, Tenure};

impl Contest {
    /// Waits for a change of the node just ahead.
    pub(super) fn wait_for(
        &self,
        on: &str,
        sole: bool,
        place: &mut Place,
        waiter: &Waiter<'_>,
        watching: &mut Watching,
        listed: &Contact,
    ) -> Step<Option<Won>> {
        let path = self.folder.child(on);
        let wake = Wake::Signal(Arc::clone(waiter.signal()));
        let ahead = WatchGuard::new(&self.session, &path, WatchKind::Data, Some(wake));
        let ahead = ahead.instead_of(&mut watching.node);
        let request = Request::Data { path, watch: true };
        let contact = match waiter.call(request) {
            Ok((_, contact)) => contact,
            // It went since the list.
            Err(CallError::Refused(KeeperError::NoNode)) => return Ok(None),
            Err(error) => return Err(error),
        };
        ahead.armed(contact.connection);
        sleep_until_fired(ahead.notice(), waiter, &contact)?;
        if sole && listed.connection == contact.connection {
            Ok(self.take_over(ahead.notice(), place, &mut watching.folder, &contact))
        } else {
            Ok(None)
        }
    }

    /// Takes over from the node ahead without another list, if that is proven.
    ///
    /// The proof. When we listed, on this connection, our node stood and exactly one contender
    /// kept us waiting. That list left a watch on the folder, which fires at the first child that
    /// comes or goes. The server sends events in the order of its changes, and for a deletion
    /// first to the watch on the node, then to the one on its folder. So if the deletion of the
    /// node ahead is the first that we hear, no child of the folder had come or gone before it,
    /// ours included: at that moment nobody kept us waiting. And who comes later gets a larger
    /// number; the one exception, a writer that becomes a reader in its old place, makes its
    /// reader's node before the writer's goes.
    ///
    /// Since then we hold, and what can take it away is what can from any holder: the session's
    /// end (the lease is looked at, here and at every later look at the lock), and a removal by
    /// hand during a break of the connection, which each reconnect looks for. Hence the
    /// connection must still be the same.
    fn take_over(
        &self,
        ahead: &Notice,
        place: &mut Place,
        folder: &mut Option<WatchGuard>,
        contact: &Contact,
    ) -> Option<Won> {
        let proven = ahead.says_deleted()
            && folder.as_ref().is_some_and(|folder| {
                folder.was_armed_on(contact.connection) && ahead.came_before(folder.notice())
            })
            && contact.epoch.lease().alive(now());
        let (nodes, epoch) = place.queued();
        if !proven || epoch.number() != contact.epoch.number() {
            return None;
        }
        let founding = Founding {
            epoch: Arc::clone(epoch),
            nodes: nodes.to_vec(),
            proven_on: contact.connection,
            token: None,
            is_sole: false,
        };
        let tenure = Tenure::begin(&self.session, founding)?;
        *place = Place::Nowhere;
        log::debug!("{}: acquired from the one ahead", tenure.node());
        // The deletion has fired the watch on the folder; its event is on the way.
        if let Some(folder) = folder.take() {
            folder.forget();
        }
        Some(Won {
            tenure,
            news: News::Unknown(None),
        })
    }
}

/// Sleeps until the watch has fired or the connection that it was left on is gone.
pub(crate) fn sleep_until_fired(
    notice: &Arc<Notice>,
    waiter: &Waiter<'_>,
    contact: &Contact,
) -> Step<()> {
    sleep_until_any_fired(&[notice], waiter, contact)
}

/// As [`sleep_until_fired`], for several watches that were left on one connection.
pub(crate) fn sleep_until_any_fired(
    notices: &[&Arc<Notice>],
    waiter: &Waiter<'_>,
    contact: &Contact,
) -> Step<()> {
    while !notices.iter().any(|notice| notice.has_fired())
        && waiter.session().connection() == contact.connection
    {
        waiter.sleep(None).map_err(CallError::Left)?;
    }
    Ok(())
}
