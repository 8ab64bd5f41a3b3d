//! The seam on the `zookeeper` crate, over the link. The one file that names the crate.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use zookeeper::{
    Acl as ZkAcl, CreateMode, Permission, Stat, WatchedEvent, WatchedEventType, Watcher,
    WatcherType, ZkError, ZooKeeper,
};

use super::Session;
use super::keeper::{Answer, Keeper, KeeperError, NodeMode, NodeStat, WatchEvent, WatchKind};
use crate::error::{Error, Result};
use crate::fork::ForkCheck;
use crate::link::{Epoch, Link, LinkConfig, LinkEvent, LinkObserver};
use crate::session::acl::{Acl, AclEntry, Permissions};
use crate::sync::Mutex;
use crate::tenure::LossReason;

/// How long the crate may take to come to the loopback port that was opened for it.
const ADMISSION: Duration = Duration::from_secs(5);

/// The crate's handle and the link below it.
pub(crate) struct ZkKeeper {
    /// Empty once closed. A call keeps the handle alive until it is answered; the last to let go
    /// of it says good-bye to the link, in the handle's own Drop.
    handle: Mutex<Option<Arc<ZooKeeper>>>,
    link: Link,
    chroot: String,
    acl: Vec<ZkAcl>,
    fork: ForkCheck,
}

impl ZkKeeper {
    /// Starts the link, which begins to dial, and connects a handle of the crate to it.
    pub(crate) fn connect(
        config: LinkConfig,
        chroot: Option<String>,
        acl: &Acl,
        observer: Arc<dyn LinkObserver>,
        session: Weak<Session>,
    ) -> Result<Self> {
        let failed = |what: &str| Error::connect_failed(what.to_owned());
        let (link, gate) = Link::start(config, observer)
            .map_err(|error| failed("the loopback port of the client").source(error))?;
        let chroot = chroot.unwrap_or_default();
        let events = Events {
            session,
            chroot: chroot.clone(),
        };
        let address = gate
            .address()
            .map_err(|error| failed("the loopback port of the client").source(error))?
            .to_string();
        let timeout = gate.secret_timeout();
        // The crate panics when the process has no descriptor left.
        let handle = catch_unwind(AssertUnwindSafe(|| {
            ZooKeeper::connect(&address, timeout, events)
        }))
        .map_err(|_| failed("the zookeeper crate could not open a socket; out of descriptors?"))?
        .map_err(|error| failed("the zookeeper crate").source(error))?;
        gate.admit(Instant::now() + ADMISSION)
            .map_err(|error| failed("the loopback port of the client").source(error))?;
        Ok(Self {
            handle: Mutex::new(Some(Arc::new(handle))),
            link,
            chroot,
            acl: acl.0.iter().map(to_zk_acl).collect(),
            fork: ForkCheck::new(),
        })
    }

    fn handle(&self) -> Answer<Arc<ZooKeeper>> {
        let handle = self.handle.lock();
        handle.clone().ok_or(KeeperError::ConnectionLoss)
    }

    fn full(&self, path: &str) -> String {
        match path {
            "/" if !self.chroot.is_empty() => self.chroot.clone(),
            path => format!("{}{path}", self.chroot),
        }
    }
}

impl Keeper for ZkKeeper {
    fn create(&self, path: &str, data: &[u8], mode: NodeMode) -> Answer<String> {
        let mode = match mode {
            NodeMode::Persistent => CreateMode::Persistent,
            NodeMode::Ephemeral => CreateMode::Ephemeral,
            NodeMode::EphemeralSequential => CreateMode::EphemeralSequential,
        };
        let path =
            self.handle()?
                .create(&self.full(path), data.to_vec(), self.acl.clone(), mode)?;
        Ok(path[self.chroot.len()..].to_owned())
    }

    fn delete(&self, path: &str, version: Option<i32>) -> Answer<()> {
        Ok(self.handle()?.delete(&self.full(path), version)?)
    }

    fn children(&self, path: &str, watch: bool) -> Answer<Vec<String>> {
        Ok(self.handle()?.get_children(&self.full(path), watch)?)
    }

    fn data(&self, path: &str, watch: bool) -> Answer<(Vec<u8>, NodeStat)> {
        let (data, stat) = self.handle()?.get_data(&self.full(path), watch)?;
        Ok((data, NodeStat::from(&stat)))
    }

    fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Answer<NodeStat> {
        let stat = self
            .handle()?
            .set_data(&self.full(path), data.to_vec(), version)?;
        Ok(NodeStat::from(&stat))
    }

    fn stat(&self, path: &str, watch: bool) -> Answer<Option<NodeStat>> {
        let stat = self.handle()?.exists(&self.full(path), watch)?;
        Ok(stat.as_ref().map(NodeStat::from))
    }

    fn unwatch(&self, path: &str, kind: WatchKind) -> Answer<()> {
        let kind = match kind {
            WatchKind::Data => WatcherType::Data,
            WatchKind::Children => WatcherType::Children,
        };
        Ok(self.handle()?.remove_watches(&self.full(path), kind)?)
    }

    fn make_root(&self) -> Answer<()> {
        let ends = self.chroot.match_indices('/').map(|(at, _)| at).skip(1);
        for end in ends.chain([self.chroot.len()]).filter(|end| *end > 0) {
            let path = &self.chroot[..end];
            let mode = CreateMode::Persistent;
            match self
                .handle()?
                .create(path, Vec::new(), self.acl.clone(), mode)
            {
                Ok(_) | Err(ZkError::NodeExists) => {}
                // A folder above may be closed to us and exist all the same.
                Err(ZkError::NoAuth) if end < self.chroot.len() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn open(&self, epoch: &Epoch) {
        self.link.open_newest(epoch);
    }

    fn abandon(&self, epoch: &Epoch) {
        self.link.abandon(epoch);
    }

    fn close(&self, bound: Duration) {
        let deadline = Instant::now() + bound;
        // Half of the time for a server that does not answer, the rest for the threads.
        self.link.close(bound / 2);
        // The link answers the good-bye of the handle itself; it ends the crate's threads.
        drop(self.handle.lock().take());
        if !self.link.wait_ended(deadline) {
            log::warn!("a thread of the link is still dialling; it ends when its attempt does");
        }
    }
}

impl Drop for ZkKeeper {
    fn drop(&mut self) {
        if self.fork.forked() {
            // The crate's own Drop would wait for an answer by threads that the parent has.
            std::mem::forget(self.handle.lock().take());
        }
    }
}

/// The crate's default watcher: passes events up, and does nothing else on the crate's thread.
struct Events {
    session: Weak<Session>,
    chroot: String,
}

impl Watcher for Events {
    fn handle(&self, event: WatchedEvent) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        let Some(path) = event.path.as_deref() else {
            return;
        };
        let event = match event.event_type {
            WatchedEventType::NodeCreated => WatchEvent::Created,
            WatchedEventType::NodeDeleted => WatchEvent::Deleted,
            WatchedEventType::NodeDataChanged => WatchEvent::DataChanged,
            WatchedEventType::NodeChildrenChanged => WatchEvent::ChildrenChanged,
            _ => return,
        };
        if let Some(path) = path.strip_prefix(self.chroot.as_str()) {
            session.watch_event(if path.is_empty() { "/" } else { path }, event);
        }
    }
}

/// Passes the link's events on to a session.
pub(crate) struct ToSession(pub(crate) Weak<Session>);

impl LinkObserver for ToSession {
    fn on_link(&self, event: LinkEvent) {
        let Some(session) = self.0.upgrade() else {
            return;
        };
        match event {
            LinkEvent::Connected { epoch, resumed, .. } => session.connected(epoch, resumed),
            LinkEvent::Suspended { epoch, .. } => session.suspended(epoch.number()),
            LinkEvent::Expired { epoch, .. } => session.lost(epoch.number(), LossReason::Session),
            LinkEvent::DialFailed(failure) => {
                session.dial_failed(failure.to_string(), failure.why);
            }
            LinkEvent::AuthFailed { scheme } => session.auth_failed(scheme),
            LinkEvent::Closed => session.broken(),
        }
    }
}

impl From<&Stat> for NodeStat {
    fn from(stat: &Stat) -> Self {
        Self {
            czxid: stat.czxid,
            ephemeral_owner: stat.ephemeral_owner,
            version: stat.version,
            child_changes: stat.cversion,
            children: stat.num_children,
            data_bytes: stat.data_length,
        }
    }
}

impl From<ZkError> for KeeperError {
    fn from(error: ZkError) -> Self {
        match error {
            // An expired or moved session answers nothing any more; the link sees to a new
            // connection, and what this call did is as unknown as after a break.
            ZkError::ConnectionLoss
            | ZkError::OperationTimeout
            | ZkError::SessionExpired
            | ZkError::SessionMoved => Self::ConnectionLoss,
            ZkError::NoNode => Self::NoNode,
            ZkError::NodeExists => Self::NodeExists,
            ZkError::NotEmpty => Self::NotEmpty,
            ZkError::NoChildrenForEphemerals => Self::EphemeralParent,
            ZkError::NoAuth => Self::NoAuth,
            ZkError::AuthFailed => Self::AuthFailed,
            ZkError::InvalidACL => Self::InvalidAcl,
            ZkError::BadArguments => Self::BadArguments,
            ZkError::BadVersion => Self::BadVersion,
            ZkError::NoWatcher => Self::NoWatch,
            error => Self::Other(error.to_string()),
        }
    }
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
