//! The global queue: how one contender gets from its create to the head.
//!
//! ```text
//! create -> list -> first? ---------------------------------> tenure
//!             ^       | no: watch the one ahead, sleep
//!             |       v
//!             +--- woken (its node changed, the connection changed)
//! ```
//!
//! What can fail on the way is handled in one place, [`Contest::acquire`]: a call that was not
//! answered leads back to the top once a new connection stands, where what is known is looked at
//! anew. Nothing is ever concluded from what was seen on an earlier connection.

mod enter;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use self::wait::sleep_until_fired;
use crate::error::{Error, Result};
use crate::link::Epoch;
use crate::names::Grammar;
use crate::path::LockPath;
use crate::session::keeper::{KeeperError, Reply, Request, WatchKind};
use crate::session::watches::Wake;
use crate::session::{CallError, Contact, Orphan, Session, Waiter, WatchGuard};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::now;
use crate::tenure::Tenure;
use crate::verdict::{TieOrder, Verdict, queue, verdict};

/// How a contender that is not first waits for its turn. The guarantees are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Watches the node just ahead: a release wakes one waiter. The default.
    #[default]
    PredecessorWatch,
    /// Watches the folder: every release wakes every waiter (the "herd effect"). For comparison,
    /// and for folders with few waiters.
    ParentWatch,
    /// Lists again and again, after each pause of this length; leaves no watches on the server.
    /// A hand-over takes up to one pause longer. At least 1 ms.
    Polling(Duration),
}

/// What is known about others who wait for a lock that we hold.
pub(crate) enum News {
    /// Nothing: nobody has looked, or something changed since. The watch has no further use, and
    /// goes when our node does.
    Unknown(Option<WatchGuard>),
    /// When we looked nobody did, and the watch that was left with that look tells of any change.
    Alone(WatchGuard),
    /// Somebody waits.
    Company(Option<WatchGuard>),
}

impl News {
    /// Our node was deleted: that has fired the watch on the folder.
    fn forget(self) {
        if let Self::Alone(watch) | Self::Unknown(Some(watch)) | Self::Company(Some(watch)) = self {
            watch.forget();
        }
    }
}

/// A place at the head.
pub(crate) struct Won {
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) news: News,
}

/// Where an acquire stands in the global queue. It outlives the thread that took it: when that
/// thread gives up, the next local one goes on from here.
#[derive(Default)]
pub(crate) enum Place {
    #[default]
    Nowhere,
    /// A create was sent and not answered.
    Unsure { prefix: String, epoch: Arc<Epoch> },
    /// Our node was created in this epoch.
    Queued { name: String, epoch: Arc<Epoch> },
}

impl Place {
    fn epoch(&self) -> Option<&Arc<Epoch>> {
        match self {
            Self::Nowhere => None,
            Self::Unsure { epoch, .. } | Self::Queued { epoch, .. } => Some(epoch),
        }
    }
}

/// One lock's global queue, as this process sees it.
pub(crate) struct Contest {
    pub(crate) session: Arc<Session>,
    pub(crate) folder: LockPath,
    pub(crate) grammar: Grammar,
    pub(crate) strategy: WaitStrategy,
    /// The last acquire found exactly one contender ahead of it: the next one may, too, so its
    /// first list leaves the watch that lets it take over without another list.
    second_lately: AtomicBool,
}

/// What a look at the queue came to.
enum Look {
    Won(Won),
    /// Look again.
    Again,
}

type Step<T> = std::result::Result<T, CallError>;

impl Contest {
    pub(crate) fn new(
        session: Arc<Session>,
        folder: LockPath,
        grammar: Grammar,
        strategy: WaitStrategy,
    ) -> Self {
        Self {
            session,
            folder,
            grammar,
            strategy,
            second_lately: AtomicBool::new(false),
        }
    }

    /// Waits for the head of the queue. On an error `place` says what is still queued; the caller
    /// hands it to another thread or to [`Contest::withdraw`]. With `curious`, a win comes with
    /// news of others if that costs nothing extra.
    pub(crate) fn acquire(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        data: &Arc<[u8]>,
        curious: bool,
    ) -> Result<Won> {
        let mut failed_on = 0;
        let mut watch = None;
        loop {
            let contact = waiter.contact(failed_on)?;
            // Nothing survives an epoch: the server removes our node with the session.
            if place
                .epoch()
                .is_some_and(|epoch| epoch.number() != contact.epoch.number())
            {
                log::debug!("{}: queueing again in a new session", self.folder);
                *place = Place::Nowhere;
            }
            let step = self
                .enter(place, waiter, data)
                .and_then(|()| self.look(place, waiter, &mut watch, curious));
            match step {
                Ok(Look::Won(won)) => return Ok(won),
                Ok(Look::Again) => {}
                Err(error) => {
                    self.bearable(error)?;
                    failed_on = contact.connection;
                }
            }
        }
    }

    /// Takes the head if nobody is there, without waiting. Writes nothing if somebody is.
    pub(crate) fn try_acquire(
        &self,
        waiter: &Waiter<'_>,
        data: &Arc<[u8]>,
        curious: bool,
    ) -> Result<Option<Won>> {
        let mut place = Place::Nowhere;
        let step = self.try_steps(&mut place, waiter, data, curious);
        self.withdraw(std::mem::take(&mut place));
        match step {
            Ok(won) => Ok(won),
            Err(error) => {
                self.bearable(error)?;
                Err(Error::connection_loss(format!(
                    "{} on {}",
                    self.folder,
                    self.session.target()
                )))
            }
        }
    }

    fn try_steps(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        data: &Arc<[u8]>,
        curious: bool,
    ) -> Step<Option<Won>> {
        let children = match self.list(waiter, false) {
            Ok((children, _)) => children,
            Err(CallError::Refused(KeeperError::NoNode)) => Vec::new(),
            Err(error) => return Err(error),
        };
        if children
            .iter()
            .any(|name| self.grammar.parse(name).is_some())
        {
            return Ok(None);
        }
        self.enter(place, waiter, data)?;
        match self.find(place, waiter, &mut None, curious)? {
            Found::Won(won) => {
                *place = Place::Nowhere;
                Ok(Some(won))
            }
            Found::Ahead { .. } | Found::Again => Ok(None),
        }
    }

    /// Leaves the queue: the node goes, now or as soon as ZooKeeper can be reached.
    pub(crate) fn withdraw(&self, place: Place) {
        match place {
            Place::Nowhere => {}
            Place::Unsure { prefix, epoch } => {
                let folder = self.folder.as_str().to_owned();
                self.session
                    .reap(Orphan::Created { folder, prefix }, &epoch);
            }
            Place::Queued { name, epoch } => {
                let path = self.folder.child(&name);
                self.session.reap(Orphan::Node { path }, &epoch);
            }
        }
    }

    /// Ends a tenure: deletes our node. An error says that the lock was lost before, or that the
    /// delete is not confirmed and goes on in the background.
    pub(crate) fn leave(&self, tenure: &Tenure, news: News) -> Result<()> {
        let path = tenure.node().to_owned();
        match self.session.call(&Request::Delete { path }) {
            Ok(_) => {
                news.forget();
                Ok(())
            }
            Err(CallError::Refused(KeeperError::NoNode)) => {
                log::warn!("{}: our node was gone at the release", tenure.node());
                Err(Error::removed(tenure.node()))
            }
            Err(CallError::Refused(error)) => Err(self.refusal(error)),
            Err(CallError::NotSent(_) | CallError::Unknown(_) | CallError::Left(_)) => {
                if !tenure.epoch().lease().alive(now()) {
                    return Err(tenure.loss());
                }
                let path = tenure.node().to_owned();
                self.session.reap(Orphan::Node { path }, tenure.epoch());
                Err(Error::connection_loss(format!(
                    "{}: the release is not confirmed yet and goes on in the background",
                    tenure.node()
                )))
            }
        }
    }

    /// As [`Contest::leave`], in the background.
    pub(crate) fn abandon(&self, tenure: &Tenure, news: News) {
        let path = tenure.node().to_owned();
        self.session.reap(Orphan::Node { path }, tenure.epoch());
        news.forget();
    }

    /// Looks whether others wait for a lock that we hold, and leaves a watch that tells of any
    /// who come. Fails if our node is not at the head any more.
    pub(crate) fn look_for_others(&self, tenure: &Tenure) -> Result<News> {
        let watch = self.watch_folder(None);
        let (children, contact) = self
            .session
            .call(&Request::Children {
                path: self.folder.as_str().to_owned(),
                watch: true,
            })
            .map_err(|error| match error {
                CallError::Refused(error) => self.refusal(error),
                _ => Error::connection_loss(self.session.target()),
            })
            .map(|(reply, contact)| (children_of(reply), contact))?;
        watch.armed(contact.connection);
        let (_, own) = crate::path::split(tenure.node());
        match verdict(&self.grammar, own, &children, &TieOrder::default()) {
            Verdict::Held { others_behind } => Ok(if others_behind {
                News::Company(Some(watch))
            } else {
                News::Alone(watch)
            }),
            // One number for two nodes, so there is another contender.
            Verdict::Tied { .. } => Ok(News::Company(Some(watch))),
            Verdict::Wait { .. } | Verdict::Gone => Err(Error::removed(tenure.node())),
        }
    }

    /// The nodes in the queue, in order, with their data.
    pub(crate) fn participants(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let call = |request| self.session.call(&request);
        let failed = |error: CallError| match self.bearable(error) {
            Ok(()) => Error::connection_loss(self.session.target()),
            Err(error) => error,
        };
        let request = Request::Children {
            path: self.folder.as_str().to_owned(),
            watch: false,
        };
        let children = match call(request) {
            Ok((reply, _)) => children_of(reply),
            Err(CallError::Refused(KeeperError::NoNode)) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut participants = Vec::new();
        for contender in queue(&self.grammar, &children) {
            let path = self.folder.child(contender.name);
            let request = Request::Data {
                path: path.clone(),
                watch: false,
            };
            match call(request) {
                Ok((Reply::Data(data), _)) => participants.push((path, data)),
                // It went since the list.
                Ok(_) | Err(CallError::Refused(KeeperError::NoNode)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(participants)
    }

    /// Looks at the queue, and waits once if somebody is ahead.
    fn look(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        watch: &mut Option<WatchGuard>,
        curious: bool,
    ) -> Step<Look> {
        let by_folder = self.strategy == WaitStrategy::ParentWatch;
        let arm = curious || by_folder || self.second_lately.load(Ordering::Relaxed);
        let found = self.find(place, waiter, watch, arm)?;
        let (on, sole, contact) = match found {
            Found::Won(won) => {
                *place = Place::Nowhere;
                return Ok(Look::Won(won));
            }
            Found::Again => return Ok(Look::Again),
            Found::Ahead { on, sole, contact } => (on, sole, contact),
        };
        match self.strategy {
            WaitStrategy::PredecessorWatch => {
                self.second_lately.store(sole, Ordering::Relaxed);
                self.wait_for(&on, sole, place, waiter, watch, &contact)
            }
            WaitStrategy::ParentWatch => {
                let folder = watch.as_ref().expect("armed with the list");
                sleep_until_fired(folder.notice(), waiter, &contact)?;
                Ok(Look::Again)
            }
            WaitStrategy::Polling(pause) => {
                let until = now().checked_add(pause.max(Duration::from_millis(1)));
                waiter.sleep(until).map_err(CallError::Left)?;
                Ok(Look::Again)
            }
        }
    }

    /// Lists, and says where we stand. With `arm`, leaves `watch` on the folder.
    fn find(
        &self,
        place: &mut Place,
        waiter: &Waiter<'_>,
        watch: &mut Option<WatchGuard>,
        arm: bool,
    ) -> Step<Found> {
        let Place::Queued { name, epoch } = &*place else {
            unreachable!("entered before");
        };
        if arm && !watch.as_ref().is_some_and(WatchGuard::is_live) {
            // The new interest is added before the old one is dropped, so that the watch that
            // both mean is not taken off the server in between.
            *watch = Some(self.watch_folder(Some(Wake::Signal(Arc::clone(waiter.signal())))));
        }
        let (children, contact) = match self.list(waiter, arm) {
            Ok(listed) => listed,
            Err(CallError::Refused(KeeperError::NoNode)) => {
                log::debug!("{}: the folder was deleted; queueing again", self.folder);
                *place = Place::Nowhere;
                return Ok(Found::Again);
            }
            Err(error) => return Err(error),
        };
        if let (true, Some(watch)) = (arm, watch.as_ref()) {
            watch.armed(contact.connection);
        }
        let mut ties = TieOrder::default();
        loop {
            match verdict(&self.grammar, name, &children, &ties) {
                Verdict::Held { others_behind } => {
                    let node = self.folder.child(name);
                    let session = &self.session;
                    let Some(tenure) = Tenure::begin(session, epoch, node, contact.connection)
                    else {
                        return Ok(Found::Again);
                    };
                    log::debug!("{}: acquired", tenure.node());
                    let news = match (others_behind, watch.take()) {
                        (true, watch) => News::Company(watch),
                        (false, Some(watch)) if watch.is_live() => News::Alone(watch),
                        (false, watch) => News::Unknown(watch),
                    };
                    return Ok(Found::Won(Won { tenure, news }));
                }
                Verdict::Wait { on, ahead } => {
                    log::debug!("{}: {ahead} ahead of {name}", self.folder);
                    let sole = ahead == 1;
                    return Ok(Found::Ahead { on, sole, contact });
                }
                Verdict::Gone => {
                    log::warn!(
                        "{}: somebody removed our node {name}; queueing again",
                        self.folder
                    );
                    *place = Place::Nowhere;
                    return Ok(Found::Again);
                }
                Verdict::Tied { with } => {
                    for name in with {
                        let path = self.folder.child(&name);
                        match waiter.call(Request::Stat { path })? {
                            (Reply::Stat(Some(stat)), _) => {
                                ties.insert(name, stat.czxid);
                            }
                            // It went since the list.
                            _ => return Ok(Found::Again),
                        }
                    }
                }
            }
        }
    }

    fn watch_folder(&self, wake: Option<Wake>) -> WatchGuard {
        WatchGuard::new(
            &self.session,
            self.folder.as_str(),
            WatchKind::Children,
            wake,
        )
    }

    pub(crate) fn list(&self, waiter: &Waiter<'_>, watch: bool) -> Step<(Vec<String>, Contact)> {
        let path = self.folder.as_str().to_owned();
        let (reply, contact) = waiter.call(Request::Children { path, watch })?;
        Ok((children_of(reply), contact))
    }

    /// Whether an acquire goes on after this error, on the next connection.
    fn bearable(&self, error: CallError) -> Result<()> {
        match error {
            CallError::NotSent(why) => match why.into_error(self.session.target()) {
                error if error.is_closed() => Err(error),
                _ => Ok(()),
            },
            CallError::Unknown(_) => Ok(()),
            CallError::Left(error) => Err(error),
            CallError::Refused(error) => Err(self.refusal(error)),
        }
    }

    /// ZooKeeper's refusal, with the place and what to do.
    pub(crate) fn refusal(&self, error: KeeperError) -> Error {
        let folder = &self.folder;
        match error {
            KeeperError::NoAuth => Error::no_auth().context(folder.to_string()),
            KeeperError::AuthFailed => Error::auth_failed(folder.to_string()),
            KeeperError::InvalidAcl => Error::invalid_acl().context(folder.to_string()),
            KeeperError::EphemeralParent => Error::refused(format!(
                "{folder}: it, or a node above it, is ephemeral and cannot have children; \
                 choose another path for the lock"
            )),
            KeeperError::NoNode => Error::refused(format!(
                "{folder}: cannot be created; does the chroot of the connect string still exist?"
            )),
            KeeperError::BadArguments => Error::invalid(format!(
                "{folder}: the server refused the path or the size of the node data"
            )),
            error => Error::refused(folder.to_string()).source(error),
        }
    }
}

enum Found {
    Won(Won),
    Ahead {
        /// The node to wait for.
        on: String,
        /// Nobody else is ahead of us.
        sole: bool,
        /// Where the list came from.
        contact: Contact,
    },
    Again,
}

fn children_of(reply: Reply) -> Vec<String> {
    let Reply::Children(children) = reply else {
        unreachable!("a list is answered with names");
    };
    children
}
