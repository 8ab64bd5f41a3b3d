//! The last step: waiting for the one ahead, and taking over from it.

use std::sync::Arc;

use super::{Contest, Look, News, Place, Step, Won};
use crate::session::keeper::{KeeperError, Request, WatchKind};
use crate::session::watches::{Notice, Wake};
use crate::session::{CallError, Contact, Waiter, WatchGuard};
use crate::sync::now;
use crate::tenure::Tenure;

impl Contest {
    /// Waits for a change of the node just ahead.
    pub(super) fn wait_for(
        &self,
        on: &str,
        sole: bool,
        place: &mut Place,
        waiter: &Waiter<'_>,
        folder: &mut Option<WatchGuard>,
        listed: &Contact,
    ) -> Step<Look> {
        let path = self.folder.child(on);
        let wake = Wake::Signal(Arc::clone(waiter.signal()));
        let ahead = WatchGuard::new(&self.session, &path, WatchKind::Data, Some(wake));
        let request = Request::Data { path, watch: true };
        let contact = match waiter.call(request) {
            Ok((_, contact)) => contact,
            // It went since the list.
            Err(CallError::Refused(KeeperError::NoNode)) => return Ok(Look::Again),
            Err(error) => return Err(error),
        };
        ahead.armed(contact.connection);
        sleep_until_fired(ahead.notice(), waiter, &contact)?;
        if sole && listed.connection == contact.connection {
            Ok(self.take_over(ahead.notice(), place, folder, &contact))
        } else {
            Ok(Look::Again)
        }
    }

    /// Takes over from the node ahead without another list, if that is proven.
    ///
    /// The proof. When we listed, on this connection, our node stood and exactly one contender
    /// was ahead. Later nodes get larger numbers, so nobody can come to stand between; and in a
    /// mutex's folder nobody makes a node at an old place. That list left a watch on the folder,
    /// which fires at the first child that comes or goes. The server sends events in the order
    /// of its changes, and for a deletion first to the watch on the node, then to the one on its
    /// folder. So if the deletion of the node ahead is the first that we hear, no child of the
    /// folder had gone before it, ours included: at that moment ours was first.
    ///
    /// Since then we hold, and what can take it away is what can from any holder: the session's
    /// end (the lease is looked at, here and at every later look at the lock), and a removal by
    /// hand during a break of the connection, which each reconnect looks for. Hence the
    /// connection must still be the same.
    pub(super) fn take_over(
        &self,
        ahead: &Notice,
        place: &mut Place,
        folder: &mut Option<WatchGuard>,
        contact: &Contact,
    ) -> Look {
        let proven = ahead.says_deleted()
            && folder.as_ref().is_some_and(|folder| {
                folder.was_armed_on(contact.connection) && ahead.came_before(folder.notice())
            })
            && contact.epoch.lease().alive(now());
        let Place::Queued { name, epoch } = &*place else {
            unreachable!("queued while waiting");
        };
        if !proven || epoch.number() != contact.epoch.number() {
            return Look::Again;
        }
        let node = self.folder.child(name);
        let Some(tenure) = Tenure::begin(&self.session, epoch, node, contact.connection) else {
            return Look::Again;
        };
        log::debug!("{}: acquired from the one ahead", tenure.node());
        *place = Place::Nowhere;
        // The deletion has fired the watch on the folder; its event is on the way.
        if let Some(folder) = folder.take() {
            folder.forget();
        }
        Look::Won(Won {
            tenure,
            news: News::Unknown(None),
        })
    }
}

/// Sleeps until the watch has fired or the connection that it was left on is gone.
pub(super) fn sleep_until_fired(
    notice: &Notice,
    waiter: &Waiter<'_>,
    contact: &Contact,
) -> Step<()> {
    while !notice.has_fired() && waiter.session().connection() == contact.connection {
        waiter.sleep(None).map_err(CallError::Left)?;
    }
    Ok(())
}
