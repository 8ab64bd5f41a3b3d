//! The one plain node that everybody tries to create: whoever creates it holds. There is no queue,
//! so there is no order; and no GUID in its name, so a GUID in its data tells ours from others'.

use zklock_protocol::{CreateMode, WatchKind};

use crate::session::observe::say;
use std::sync::Arc;

use super::acquire::{AcquireRequest, Acquisition, OthersWaiting};
use super::contender::{Contender, Create};
use super::folder::{Folder, make_node};
use super::{LockProtocol, PendingRelease, QueuedNode, ReleaseMode, participants, release};
use crate::error::{Error, Result};
use crate::session::{
    CallError, Contact, ID, Proof, Refusal, Session, Step, Waiter, Wake, Watch, find_plain, found,
};
use crate::tenure::{NewTenure, Tenure};
use crate::znode::fencing::FencingToken;
use crate::znode::names::Grammar;
use crate::znode::path::{LockPath, split};

/// See the [module](self).
pub(crate) struct SingleNode {
    /// Its path is that of the node, and nothing is in it.
    node: Arc<Folder>,
}

impl SingleNode {
    pub(crate) fn new(session: &Arc<Session>, path: LockPath) -> Self {
        Self {
            node: Folder::new(session, path, Grammar::sole()),
        }
    }

    fn path(&self) -> &str {
        self.node.path().as_str()
    }

    /// Creates the node if nobody has. A busy lock is not written to.
    fn try_to_seize(
        &self,
        contact: &Contact<'_>,
        contender: &mut Contender,
        request: &AcquireRequest<'_>,
    ) -> Step<Option<Acquisition>> {
        if contact.stat(self.path())?.is_some() {
            return Ok(None);
        }
        self.create_and_confirm(contact, contender, request)
    }

    fn create_and_confirm(
        &self,
        contact: &Contact<'_>,
        contender: &mut Contender,
        request: &AcquireRequest<'_>,
    ) -> Step<Option<Acquisition>> {
        contender.move_to_session(contact);
        let made = match contender.unknown_proof() {
            Some(proof) => {
                let proof = proof.clone();
                let ours = find_plain(contact, self.path(), &proof, contact.epoch())?;
                ours.then_some(proof)
            }
            None => None,
        };
        let made = match made {
            Some(proof) => Some(proof),
            None => {
                contender.disown();
                self.create(contact, contender, request)?
            }
        };
        match made {
            Some(proof) => self.confirm(contact, contender, &proof),
            None => Ok(None),
        }
    }

    /// If the node is ours now, by what it is known. Until that is confirmed, the contender's state is unknown.
    fn create(
        &self,
        contact: &Contact<'_>,
        contender: &mut Contender,
        request: &AcquireRequest<'_>,
    ) -> Step<Option<Proof>> {
        let data = with_id(&request.data);
        loop {
            let result = contact.create(self.path(), &data, CreateMode::EPHEMERAL);
            let by_data = || Proof::Data(Arc::clone(&data));
            // By its data only if there is nothing better: a stranger may write there at once.
            let proof = match &result {
                Ok(created) => Some(created.czxid.map_or_else(by_data, Proof::Made)),
                Err(error) if error.may_be_done() => Some(by_data()),
                Err(_) => None,
            };
            if let Some(proof) = &proof {
                contender.set_unknown(vec![Create::Plain(proof.clone())], Vec::new(), contact);
            }
            match result {
                Ok(_) => return Ok(proof),
                Err(CallError::Refused(Refusal::NodeExists)) => return Ok(None),
                Err(CallError::Refused(Refusal::NoNode)) => {
                    let (folder, _) = split(self.path());
                    if folder.is_empty() {
                        // Only a missing chroot leaves the root without a parent.
                        return Err(CallError::Refused(Refusal::NoNode));
                    }
                    make_node(contact, folder, &Arc::from([]))?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sees that our node is there, and takes its transaction for the token.
    fn confirm(
        &self,
        contact: &Contact<'_>,
        contender: &mut Contender,
        proof: &Proof,
    ) -> Step<Option<Acquisition>> {
        // Another's node could take the place of ours and be deleted by our release, so ours is
        // watched from the beginning.
        let watch = Watch::new(contact, self.path(), WatchKind::DATA, None);
        let stat = match found(contact.watch_data(&watch))? {
            Some((found, stat))
                if proof.is_of(&found, stat.czxid)
                    && stat.ephemeral_owner == contact.epoch().session_id() =>
            {
                stat
            }
            _ => {
                contender.disown();
                return Ok(None);
            }
        };
        let new = NewTenure {
            nodes: vec![self.path().to_owned()],
            token: Some(FencingToken::of(&stat).map_err(CallError::Left)?),
            made: Some(stat.czxid),
        };
        let Some(tenure) = Tenure::begin(contact, new)? else {
            return Ok(None);
        };
        contender.disown();
        tenure.adopt(watch);
        say!(contact.session(), Debug, "{}: acquired", self.path());
        Ok(Some(Acquisition::without_news(tenure)))
    }

    /// Waits once for the node to go.
    fn wait(&self, contact: &Contact<'_>, watching: &mut Option<Watch>) -> Step<()> {
        let wake = Wake::Signal(Arc::clone(contact.signal()));
        let watch = Watch::new(contact, self.path(), WatchKind::DATA, Some(wake));
        let watch = watching.insert(watch);
        if let Some((_, stat)) = found(contact.watch_data(watch))? {
            if stat.ephemeral_owner == 0 {
                say!(
                    contact.session(),
                    Warn,
                    "{}: waiting for a persistent node; it goes with no session: somebody must \
                     remove it",
                    self.path()
                );
            }
            contact.sleep_until_any(&[watch])?;
        }
        Ok(())
    }
}

impl LockProtocol for SingleNode {
    fn session(&self) -> &Arc<Session> {
        self.node.session()
    }

    fn path(&self) -> &LockPath {
        self.node.path()
    }

    fn begin(&self) -> Contender {
        Contender::new(&self.node)
    }

    fn acquire(
        &self,
        contender: &mut Contender,
        waiter: &Waiter<'_>,
        request: &AcquireRequest<'_>,
    ) -> Result<Acquisition> {
        let mut watching = None;
        self.node.retry(waiter, |contact| {
            let acquired = self.create_and_confirm(contact, contender, request)?;
            if acquired.is_none() && contender.is_not_created() {
                request.report(1);
                self.wait(contact, &mut watching)?;
            }
            Ok(acquired)
        })
    }

    fn try_acquire(
        &self,
        waiter: &Waiter<'_>,
        request: &AcquireRequest<'_>,
    ) -> Result<Option<Acquisition>> {
        let mut contender = self.begin();
        let contact = waiter.contact_now();
        let taken =
            contact.and_then(|contact| self.try_to_seize(&contact, &mut contender, request));
        taken.map_err(|error| self.node.failure(error))
    }

    /// Waiters leave no node.
    fn look_for_others(&self, tenure: &Tenure, _: &Contact<'_>) -> Step<OthersWaiting> {
        Err(CallError::Left(Error::refused(tenure.node())))
    }

    fn start_release(
        &self,
        tenure: &Arc<Tenure>,
        _: OthersWaiting,
        mode: ReleaseMode,
    ) -> PendingRelease {
        release::release_single_node(&self.node, tenure, mode)
    }

    fn participants(&self) -> Result<Vec<QueuedNode>> {
        participants::of_single(&self.node)
    }

    fn revoke(&self, path: &str) -> Result<bool> {
        participants::revoke_single(&self.node, path)
    }

    fn break_lock(&self, path: &str) -> Result<bool> {
        participants::break_single(&self.node, path)
    }
}

/// The GUID that nobody else's node holds.
fn with_id(data: &[u8]) -> Arc<[u8]> {
    let id = format!("{ID}{}", uuid::Uuid::new_v4().simple());
    [data, id.as_bytes()].concat().into()
}
