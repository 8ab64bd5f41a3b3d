//! The seam on the `zookeeper` crate, over the link. The one file that names the crate.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use zklock_protocol::ErrorCode;
use zookeeper::{
    Acl as ZkAcl, CreateMode, Permission, Stat, WatchedEvent, Watcher, WatcherType, ZkError,
    ZooKeeper,
};

use super::Session;
use super::acl::{Acl, AclEntry, Permissions};
use super::backend::{
    Backend, Created, NoReply, NotNow, NotOpen, Reply, Request, Slot, WatchEvent,
};
use super::loss::LossReason;
use super::own_requests::{Answers, Speaker};
use super::phase::Connection;
use super::refusal::Asked;
use crate::error::{Error, Result};
use crate::fork::ForkCheck;
use crate::link::voice::Company;
use crate::link::{Epoch, Link, LinkConfig, LinkEvent, LinkObserver, NodeEvent};
use crate::sync::Mutex;
use crate::znode::node::{NodeMode, NodeStat};

/// How long the crate may take to come to the loopback port that was opened for it.
const ADMISSION: Duration = Duration::from_secs(5);

/// The crate's handle, and the link below it.
pub(crate) struct ZkBackend {
    /// Empty once closed. A call keeps the handle alive until it is answered; the last to let go
    /// of it says good-bye to the link, in the handle's own Drop.
    handle: Mutex<Option<Arc<ZooKeeper>>>,
    link: Link,
    speaker: Speaker,
    acl: Vec<ZkAcl>,
    fork: ForkCheck,
}

impl ZkBackend {
    /// Starts the link, which begins to dial, and connects a handle of the crate to it.
    pub(crate) fn connect(
        config: LinkConfig,
        chroot: Option<String>,
        acl: &Acl,
        observer: Arc<dyn LinkObserver>,
    ) -> Result<Self> {
        let failed = |what: &str| Error::connect_failed(what.to_owned());
        let (link, gate) = Link::start(config, observer)
            .map_err(|error| failed("the loopback port of the client").source(error))?;
        let chroot = chroot.unwrap_or_default();
        let address = gate
            .address()
            .map_err(|error| failed("the loopback port of the client").source(error))?
            .to_string();
        let timeout = gate.secret_timeout();
        let handle = match start_crate(address, timeout) {
            Ok(handle) => handle,
            Err(error) => {
                // It may come all the same, and must find somebody who answers its good-bye.
                let _ = gate.admit(Instant::now());
                return Err(error);
            }
        };
        if let Err(error) = gate.admit(Instant::now() + ADMISSION) {
            let_go(Arc::new(handle));
            return Err(failed("the loopback port of the client").source(error));
        }
        Ok(Self {
            handle: Mutex::new(Some(Arc::new(handle))),
            link,
            speaker: Speaker::new(chroot, acl),
            acl: acl.0.iter().map(to_zk_acl).collect(),
            fork: ForkCheck::new(),
        })
    }

    fn handle(&self) -> std::result::Result<Arc<ZooKeeper>, NoReply> {
        let handle = self.handle.lock();
        handle.clone().ok_or(NoReply::Lost)
    }

    fn make_root(&self, handle: &ZooKeeper) -> std::result::Result<(), ZkError> {
        let chroot = self.speaker.chroot();
        let ends = chroot.match_indices('/').map(|(at, _)| at).skip(1);
        for end in ends.chain([chroot.len()]).filter(|end| *end > 0) {
            let mode = CreateMode::Persistent;
            match handle.create(&chroot[..end], Vec::new(), self.acl.clone(), mode) {
                Ok(_) | Err(ZkError::NodeExists) => {}
                // A folder above may exist although its ACL keeps us out.
                Err(ZkError::NoAuth) if end < chroot.len() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn ask(&self, handle: &ZooKeeper, request: &Request) -> std::result::Result<Reply, ZkError> {
        let full = |path: &str| self.speaker.full(path);
        Ok(match request {
            Request::Create { path, data, mode } => {
                let mode = match mode {
                    NodeMode::Persistent => CreateMode::Persistent,
                    NodeMode::Ephemeral => CreateMode::Ephemeral,
                    NodeMode::EphemeralSequential => CreateMode::EphemeralSequential,
                };
                let made = handle.create(&full(path), data.to_vec(), self.acl.clone(), mode)?;
                Reply::Created(Created {
                    path: self.speaker.stripped(&made),
                    czxid: None,
                })
            }
            Request::Delete { path, version } => {
                handle.delete(&full(path), *version)?;
                Reply::Done
            }
            Request::Children { path, watch } => {
                let names = handle.get_children(&full(path), *watch)?;
                Reply::Children(names.into_iter().collect())
            }
            Request::Data { path, watch } => {
                let (data, stat) = handle.get_data(&full(path), *watch)?;
                Reply::Data(data, NodeStat::from(&stat))
            }
            Request::Set {
                path,
                data,
                version,
            } => {
                let stat = handle.set_data(&full(path), data.to_vec(), *version)?;
                Reply::Stat(Some(NodeStat::from(&stat)))
            }
            Request::Stat { path, watch } => {
                let stat = handle.exists(&full(path), *watch)?;
                Reply::Stat(stat.as_ref().map(NodeStat::from))
            }
            Request::Unwatch { path, kind } => {
                let kind = match kind {
                    super::backend::WatchKind::Data => WatcherType::Data,
                    super::backend::WatchKind::Children => WatcherType::Children,
                };
                handle.remove_watches(&full(path), kind)?;
                Reply::Done
            }
            Request::Multi(_) | Request::Sync { .. } => {
                unreachable!("the crate has no words for it")
            }
            Request::MakeRoot => {
                self.make_root(handle)?;
                Reply::Done
            }
        })
    }
}

/// Makes a handle of the crate, on a thread of its own: the crate logs while it does, and may so wait
/// for a logger, or panic with it.
fn start_crate(address: String, timeout: Duration) -> Result<ZooKeeper> {
    let failed = |what: &str| Error::connect_failed(what.to_owned());
    let (sender, made) = crossbeam_channel::bounded(1);
    let make = move || {
        // It also panics when the process has no descriptor left.
        let handle = catch_unwind(|| ZooKeeper::connect(&address, timeout, NoEvents));
        // Nobody may wait for it any more; then it goes here.
        drop(sender.send(handle.map_err(std::mem::forget)));
    };
    std::thread::Builder::new()
        .name("zklock-let-in".to_owned())
        .spawn(make)
        .map_err(|error| failed("the zookeeper crate").source(error))?;
    match made.recv_timeout(ADMISSION) {
        Ok(Ok(Ok(handle))) => Ok(handle),
        Ok(Ok(Err(error))) => Err(failed("the zookeeper crate").source(error)),
        Ok(Err(())) | Err(RecvTimeoutError::Disconnected) => Err(failed(
            "the zookeeper crate could not open a socket; out of descriptors?",
        )),
        Err(RecvTimeoutError::Timeout) => Err(failed(
            "the zookeeper crate did not start; is the program's logger stuck?",
        )),
    }
}

/// Drops a handle on a thread of its own: its Drop waits until its good-bye is answered, by a gate
/// that it may not have found yet, and logs, so that it may wait for a logger. Returns what tells
/// of its end.
fn let_go(handle: Arc<ZooKeeper>) -> Receiver<()> {
    let (sender, gone) = crossbeam_channel::bounded(0);
    let handle = Arc::new(Mutex::new(Some(handle)));
    let dropped = Arc::clone(&handle);
    let spawned = std::thread::Builder::new()
        .name("zklock-let-go".to_owned())
        .spawn(move || {
            let _ended = sender;
            let handle = dropped.lock().take();
            drop(handle);
        });
    if spawned.is_err() {
        // Nor must this thread wait.
        std::mem::forget(handle.lock().take());
    }
    gone
}

impl Backend for ZkBackend {
    fn submit(
        &self,
        connection: u64,
        requests: &[Request],
        company: Company,
        slot: Arc<dyn Slot>,
    ) -> std::result::Result<(), NotOpen> {
        let is_harmless = || self.link.is_harmless(connection);
        let said = requests
            .iter()
            .map(|one| self.speaker.say(one, is_harmless));
        let said: Vec<_> = said.collect();
        let answers = Answers::new(slot, requests, &said, connection, &self.speaker);
        answers.submit(&self.link, &said, company)
    }

    fn call(&self, request: &Request) -> std::result::Result<Reply, NoReply> {
        let handle = self.handle()?;
        let asked = catch_unwind(AssertUnwindSafe(|| self.ask(&handle, request)));
        match asked {
            Ok(answer) => answer.map_err(|error| no_reply(request.asked(), error)),
            // A logger's, on one of its lines. It may have been sent.
            Err(panic) => {
                std::mem::forget(panic);
                Err(NoReply::Lost)
            }
        }
    }

    fn makes_readable_nodes(&self) -> bool {
        self.acl
            .iter()
            .any(|entry| entry.perms.can(Permission::READ))
    }

    fn open(&self, connection: u64) {
        self.link.open(connection);
    }

    fn cut(&self, connection: u64) {
        self.link.cut(connection);
    }

    fn look_soon(&self) {
        self.link.look_soon();
    }

    fn abandon(&self, epoch: &Epoch) {
        self.link.abandon(epoch);
    }

    fn close(&self, bound: Duration) {
        let deadline = Instant::now() + bound;
        // Half of the time for a server that does not answer, the rest for the threads.
        self.link.close(bound / 2);
        // The link answers the good-bye of the handle itself; it ends the crate's threads.
        let handle = self.handle.lock().take();
        let gone = handle.map(let_go);
        if !self.link.wait_ended(deadline) {
            self.link
                .warn("a thread of the link is still dialling; it ends when its attempt does");
        }
        if let Some(gone) = gone {
            // Nothing is ever sent: it ends.
            let _ = gone.recv_deadline(deadline);
        }
    }
}

impl Drop for ZkBackend {
    fn drop(&mut self) {
        if self.fork.forked() {
            // The crate's own Drop would wait for an answer by threads that the parent has.
            std::mem::forget(self.handle.lock().take());
        }
    }
}

/// The crate's default watcher. The link tells of events; no read of the crate leaves a watch.
struct NoEvents;

impl Watcher for NoEvents {
    fn handle(&self, _event: WatchedEvent) {}
}

/// Passes the link's events on to a session.
pub(crate) struct ToSession {
    pub(crate) session: Weak<Session>,
    pub(crate) chroot: String,
}

impl LinkObserver for ToSession {
    fn log(&self, level: log::Level, target: &'static str, line: String) {
        if let Some(session) = self.session.upgrade() {
            session.observation().log(level, target, || line);
        }
    }

    fn on_event(&self, event: NodeEvent, path: &str, number: u64) {
        let event = match event {
            NodeEvent::Created => WatchEvent::Created,
            NodeEvent::Deleted => WatchEvent::Deleted,
            NodeEvent::DataChanged => WatchEvent::DataChanged,
            NodeEvent::ChildrenChanged => WatchEvent::ChildrenChanged,
        };
        let path = path.strip_prefix(self.chroot.as_str());
        if let (Some(session), Some(path)) = (self.session.upgrade(), path) {
            session.watch_event(if path.is_empty() { "/" } else { path }, event, number);
        }
    }

    fn on_clock(&self) -> Option<Duration> {
        self.session.upgrade()?.look_at_clock()
    }

    fn on_link(&self, event: LinkEvent) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        match event {
            LinkEvent::Connected {
                epoch,
                resumed,
                connection: number,
            } => session.connected(Connection { epoch, number }, resumed),
            LinkEvent::Suspended { connection, .. } => session.suspended(connection),
            LinkEvent::Expired { epoch, .. } => session.lost(epoch.number(), LossReason::Session),
            LinkEvent::NodeGone { epoch, path } => session.node_gone(epoch.number(), path),
            LinkEvent::Dialling(server) => session.dialling(server),
            LinkEvent::DialFailed(failure) => {
                session.dial_failed(failure.to_string(), failure.why);
            }
            LinkEvent::AuthFailed { scheme } => session.auth_failed(&scheme),
            LinkEvent::Closed => session.broken(),
        }
    }
}

impl From<&Stat> for NodeStat {
    fn from(stat: &Stat) -> Self {
        Self {
            czxid: stat.czxid,
            ctime: stat.ctime,
            ephemeral_owner: stat.ephemeral_owner,
            version: stat.version,
            child_changes: stat.cversion,
            children: stat.num_children,
            data_bytes: stat.data_length,
        }
    }
}

/// What the crate's error means to whoever has `asked`.
fn no_reply(asked: Asked, error: ZkError) -> NoReply {
    use ErrorCode as E;
    let error = match error {
        // Nothing comes any more; the link sees to a new connection, and what this call did is
        // unknown.
        ZkError::ConnectionLoss | ZkError::SessionExpired | ZkError::SessionMoved => {
            return NoReply::Lost;
        }
        ZkError::NoNode => E::NO_NODE,
        ZkError::NodeExists => E::NODE_EXISTS,
        ZkError::NotEmpty => E::NOT_EMPTY,
        ZkError::NoChildrenForEphemerals => E::NO_CHILDREN_FOR_EPHEMERALS,
        ZkError::NoAuth => E::NO_AUTH,
        ZkError::AuthFailed => E::AUTH_FAILED,
        ZkError::InvalidACL => E::INVALID_ACL,
        ZkError::BadArguments => E::BAD_ARGUMENTS,
        ZkError::BadVersion => E::BAD_VERSION,
        ZkError::NoWatcher => E::NO_WATCHER,
        ZkError::Unimplemented => E::UNIMPLEMENTED,
        ZkError::MarshallingError => E::MARSHALLING_ERROR,
        // The link's word for it.
        ZkError::OperationTimeout => E::THROTTLED_OP,
        error => return NoReply::NotNow(NotNow::Unclear(error.to_string())),
    };
    NoReply::of(asked, error)
}

fn to_zk_acl(entry: &AclEntry) -> ZkAcl {
    let each = [
        (Permissions::READ, Permission::READ),
        (Permissions::WRITE, Permission::WRITE),
        (Permissions::CREATE, Permission::CREATE),
        (Permissions::DELETE, Permission::DELETE),
        (Permissions::ADMIN, Permission::ADMIN),
    ];
    let permissions = each
        .iter()
        .filter(|(ours, _)| entry.permissions.0 & ours.0 != 0)
        .fold(Permission::NONE, |all, (_, theirs)| all | *theirs);
    ZkAcl::new(permissions, entry.scheme.clone(), entry.id.clone())
}
