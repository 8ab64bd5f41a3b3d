//! The one plain node that all want: whoever creates it holds. No queue, so no order; and no GUID
//! in its name, so what tells ours from others' is a GUID in its data.

use std::sync::Arc;

use super::Contest;
use super::place::{Claim, Create, News, Place, Watching, Won};
use super::wait::sleep_until_fired;
use crate::link::Epoch;
use crate::session::keeper::{KeeperError, NodeMode, NodeStat, Reply, Request, WatchKind};
use crate::session::watches::Wake;
use crate::session::{
    CallError, Contact, ID, Proof, Step, Waiter, WatchGuard, find_plain, id_of, same_id,
};
use crate::tenure::{Founding, REVOKE, Tenure};
use crate::znode::fencing::FencingToken;
use crate::znode::path::split;

impl Contest {
    /// Creates the node, or waits once for the one that stands in the way.
    pub(super) fn seize(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        watching: &mut Watching,
        claim: &Claim<'_>,
    ) -> Step<Option<Won>> {
        let won = self.create_and_confirm(place, waiter, claim)?;
        if won.is_some() || !matches!(place, Place::Nowhere) {
            return Ok(won);
        }
        if let Some(reporter) = claim.reporter {
            reporter.report(0, 1);
        }
        let path = self.folder.as_str();
        let wake = Wake::Signal(Arc::clone(waiter.signal()));
        let ahead = WatchGuard::new(&self.session, path, WatchKind::Data, Some(wake));
        let ahead = ahead.of_reused_name().instead_of(&mut watching.node);
        let request = Request::Data {
            path: path.to_owned(),
            watch: true,
        };
        match waiter.call(request) {
            Ok((_, contact)) => {
                ahead.armed(contact.connection);
                sleep_until_fired(ahead.notice(), waiter, &contact)?;
            }
            // It went since the create.
            Err(CallError::Refused(KeeperError::NoNode)) => {}
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Creates the node if nobody has. A busy lock is not written to.
    pub(super) fn try_to_seize(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
    ) -> Step<Option<Won>> {
        if let (Reply::Stat(Some(_)), _) = waiter.call(Request::stat(self.folder.as_str()))? {
            return Ok(None);
        }
        self.create_and_confirm(place, waiter, claim)
    }

    fn create_and_confirm(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        claim: &Claim<'_>,
    ) -> Step<Option<Won>> {
        let path = self.folder.as_str();
        if let Place::Unsure {
            create: Create::Data(data),
            epoch,
            ..
        } = &*place
        {
            let proof = Proof::Data(Arc::clone(data));
            if !find_plain(|request| waiter.call(request), path, &proof, epoch)? {
                *place = Place::Nowhere;
            }
        }
        if matches!(place, Place::Nowhere) && !self.create_sole(place, waiter, claim)? {
            return Ok(None);
        }
        self.confirm(place, waiter)
    }

    /// Returns whether it is ours now. Until that is confirmed, the place is unsure.
    fn create_sole(&self, place: &mut Place, waiter: &Waiter<'_>, claim: &Claim<'_>) -> Step<bool> {
        let path = self.folder.as_str();
        let data = with_id(&claim.data);
        let unsure = |epoch: &Arc<Epoch>| Place::Unsure {
            create: Create::Data(Arc::clone(&data)),
            nodes: Vec::new(),
            epoch: Arc::clone(epoch),
        };
        loop {
            let request = Request::Create {
                path: path.to_owned(),
                data: Arc::clone(&data),
                mode: NodeMode::Ephemeral,
            };
            match waiter.call(request) {
                Ok((_, contact)) => {
                    *place = unsure(&contact.epoch);
                    return Ok(true);
                }
                Err(CallError::Refused(KeeperError::NodeExists)) => return Ok(false),
                Err(CallError::Refused(KeeperError::NoNode)) => {
                    let (folder, _) = split(path);
                    if folder.is_empty() {
                        // Only a missing chroot leaves the root without a parent.
                        return Err(CallError::Refused(KeeperError::NoNode));
                    }
                    self.make_folder(waiter, folder)?;
                }
                Err(CallError::Unknown(contact)) => {
                    *place = unsure(&contact.epoch);
                    return Err(CallError::Unknown(contact));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sees our node stand, and takes its transaction for the token.
    fn confirm(&self, place: &mut Place, waiter: &Waiter<'_>) -> Step<Option<Won>> {
        let Place::Unsure {
            create: Create::Data(data),
            epoch,
            ..
        } = &*place
        else {
            unreachable!("created before");
        };
        let path = self.folder.as_str();
        // Another's node could take the place of ours and be deleted by our release, so ours is
        // watched from the beginning.
        let watch = WatchGuard::new(&self.session, path, WatchKind::Data, None).of_reused_name();
        let request = Request::Data {
            path: path.to_owned(),
            watch: true,
        };
        let (stat, contact): (NodeStat, Contact) = match waiter.call(request) {
            Ok((Reply::Data(found, stat), contact))
                if same_id(&found, data) && stat.ephemeral_owner == epoch.session_id() =>
            {
                (stat, contact)
            }
            Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => {
                *place = Place::Nowhere;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        watch.armed(contact.connection);
        let founding = Founding {
            epoch: Arc::clone(epoch),
            nodes: vec![path.to_owned()],
            proven_on: contact.connection,
            token: Some(FencingToken::of(&stat).map_err(CallError::Left)?),
            is_sole: true,
        };
        let Some(tenure) = Tenure::begin(&self.session, founding) else {
            return Ok(None);
        };
        tenure.adopt(watch);
        log::debug!("{path}: acquired");
        *place = Place::Nowhere;
        Ok(Some(Won {
            tenure,
            news: News::Unknown(None),
        }))
    }
}

/// What nobody else's node holds.
fn with_id(data: &[u8]) -> Arc<[u8]> {
    let id = format!("{ID}{}", uuid::Uuid::new_v4().simple());
    [data, id.as_bytes()].concat().into()
}

/// What somebody who wants the lock back writes: the message, and the holder's id, by which the
/// holder goes on knowing its own node.
pub(super) fn revocation_of(data: &[u8]) -> Arc<[u8]> {
    [REVOKE, id_of(data).unwrap_or_default()].concat().into()
}
