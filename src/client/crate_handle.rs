//! [`ZooKeeperHandle`]: the `zookeeper` crate on a client's session.

use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use parking_lot::Mutex;
use zookeeper::{WatchedEvent, Watcher, ZooKeeper};

use super::Client;
use crate::error::{Error, Result};
use crate::fork::ForkCheck;
use crate::link::{Admitted, Epoch, Link};

/// How long the crate may take to come to the loopback port that was opened for it.
const ADMISSION: Duration = Duration::from_secs(5);
/// Events kept for a receiver that does not read them.
const EVENT_BACKLOG: usize = 1024;

/// A handle of the `zookeeper` crate on the session of a [`Client`], for nodes of your own; made by
/// [`Client::zookeeper`].
///
/// It is used like an `Arc<zookeeper::ZooKeeper>`, and can be cloned out as one for what takes that
/// (`Arc::clone(&handle)`). Ephemeral nodes that it creates live as long as the locks of the client
/// do, through broken connections, restarts and elections.
///
/// # What is different from a client of the crate alone
/// - **A broken connection** is [`ZkError::ConnectionLoss`] to the calls that were in flight, and to
///   those that come until there is another. What became of them is not known. The handle then goes
///   on, on the same session.
/// - **A lost session** is the end of the handle: every call returns
///   [`ZkError::SessionExpired`]. It never goes on in another session by itself;
///   [`Client::zookeeper`] gives a handle on the next one.
/// - **Watches** live through broken connections, and what was missed meanwhile is told after.
///   Where that is not possible, and at the end of the session (`KeeperState::Expired`), each watcher
///   is told once that its node's data or children changed, whether that is so or not, so that it
///   looks again: the crate has no other event that reaches it. Locks on the same nodes neither take
///   them off nor lose their own to them.
/// - **`close`** and the drop of the last handle end the handle, and neither the session nor its
///   nodes.
/// - **Credentials and the chroot** are the client's. `add_auth` returns
///   [`ZkError::Unimplemented`]. So does `add_watch`: servers before 3.9 keep one watch of all kinds
///   for each path. `CreateMode::Container` is refused ([`ZkError::BadArguments`]), because servers
///   make a plain node of what the crate sends for it. `remove_watches` of crate 0.8 forgets the wrong
///   closures.
/// - **Sizes**: what no server takes is refused, and what a slow network could not carry in a third
///   of the session timeout ([`ZkError::BadArguments`]). While a server takes bytes too slowly, a
///   call that would queue more than 4 MiB is not sent ([`ZkError::OperationTimeout`]). A request at
///   which three connections in a row broke returns [`ZkError::MarshallingError`].
///
/// Calls have no deadline, but none waits longer than the connection lives: the client ends one that
/// is silent for a sixth of the session timeout. The crate logs on your threads and on its own (three
/// for a handle, beside one of ours, `zklock-door`). A logger or a watcher that blocks or panics there
/// stops this handle, and no lock.
///
/// # Panics
/// In a forked child every use of the handle panics: the call would wait for ever for threads that the
/// parent has. An `Arc<zookeeper::ZooKeeper>` that was cloned out of it cannot do even that, and hangs.
///
/// [`ZkError::ConnectionLoss`]: zookeeper::ZkError::ConnectionLoss
/// [`ZkError::SessionExpired`]: zookeeper::ZkError::SessionExpired
/// [`ZkError::Unimplemented`]: zookeeper::ZkError::Unimplemented
/// [`ZkError::BadArguments`]: zookeeper::ZkError::BadArguments
/// [`ZkError::OperationTimeout`]: zookeeper::ZkError::OperationTimeout
/// [`ZkError::MarshallingError`]: zookeeper::ZkError::MarshallingError
#[derive(Clone)]
pub struct ZooKeeperHandle {
    inner: Arc<Inner>,
}

struct Inner {
    /// There until it is dropped.
    handle: Option<Arc<ZooKeeper>>,
    admitted: Admitted,
    epoch: Arc<Epoch>,
    listeners: Listeners,
    fork: ForkCheck,
    /// Keeps the session open, as a lock does.
    _client: Client,
}

impl ZooKeeperHandle {
    /// The number of the session that it is on.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.inner.epoch.session_id()
    }

    /// Whether it has ended: its session was lost, it was closed, or a thread of the crate has
    /// panicked. [`Client::zookeeper`] then gives another.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.inner.is_over()
    }

    /// A receiver of what watches tell that have no watcher of their own (`exists(path, true)` and
    /// the like), from now on.
    ///
    /// Each call makes a receiver of its own. It keeps up to 1,024 unread events and leaves out
    /// those that come after.
    #[must_use]
    pub fn events(&self) -> Receiver<WatchedEvent> {
        let (sender, receiver) = crossbeam_channel::bounded(EVENT_BACKLOG);
        self.inner.listeners.0.lock().push(sender);
        receiver
    }
}

impl Deref for ZooKeeperHandle {
    type Target = Arc<ZooKeeper>;
    fn deref(&self) -> &Self::Target {
        let inner = &self.inner;
        assert!(
            !inner.fork.forked(),
            "a handle of the zookeeper crate was used in a forked child, where no thread would answer"
        );
        inner.handle.as_ref().expect("taken by the drop alone")
    }
}

impl fmt::Debug for ZooKeeperHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperHandle")
            .field("session_id", &format_args!("0x{:x}", self.session_id()))
            .field("is_over", &self.is_over())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn is_over(&self) -> bool {
        self.fork.forked() || self.admitted.is_over()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let handle = self.handle.take();
        if self.fork.forked() {
            // The crate's own Drop would wait for an answer by threads that the parent has.
            std::mem::forget(handle);
        } else if let Some(handle) = handle {
            let_go(handle);
        }
    }
}

/// The handle of a client that was given out last.
#[derive(Default)]
pub(super) struct LastHandle {
    last: Mutex<Weak<Inner>>,
    /// Held while one is made, by callers who want one.
    making: Mutex<()>,
}

impl LastHandle {
    fn get(&self, epoch: &Epoch) -> Option<ZooKeeperHandle> {
        let inner = self.last.lock().upgrade()?;
        let is_good = !inner.is_over() && inner.epoch.number() == epoch.number();
        is_good.then_some(ZooKeeperHandle { inner })
    }

    /// One on this session: the last one, or else another.
    pub(super) fn on(
        &self,
        link: &Link,
        epoch: &Arc<Epoch>,
        client: &Client,
    ) -> Result<ZooKeeperHandle> {
        let _making = self.making.lock();
        if let Some(handle) = self.get(epoch) {
            return Ok(handle);
        }
        let failed = |what: &str| Error::connect_failed(what.to_owned());
        let port = "the loopback port of a handle";
        let loopback = link.listen(Arc::clone(epoch));
        let loopback = loopback.map_err(|error| failed(port).source(error))?;
        let address = loopback.address();
        let address = address.map_err(|error| failed(port).source(error))?;
        let chroot = link.chroot();
        let listeners = Listeners::default();
        let watcher = listeners.clone();
        let handle = make(
            format!("{address}{chroot}"),
            loopback.secret_timeout(),
            watcher,
        );
        let handle = match handle {
            Ok(handle) => Arc::new(handle),
            Err(error) => {
                // It may come all the same, and must find somebody who answers its good-bye.
                let _ = loopback.admit(Instant::now());
                return Err(error);
            }
        };
        let admitted = match loopback.admit(Instant::now() + ADMISSION) {
            Ok(admitted) => admitted,
            Err(error) => {
                let_go(handle);
                return Err(failed(port).source(error));
            }
        };
        let inner = Arc::new(Inner {
            handle: Some(handle),
            admitted,
            epoch: Arc::clone(epoch),
            listeners,
            fork: ForkCheck::new(),
            _client: client.clone(),
        });
        *self.last.lock() = Arc::downgrade(&inner);
        Ok(ZooKeeperHandle { inner })
    }
}

/// Makes a handle of the crate, on a thread of its own: the crate logs while it does, and may so wait
/// for a logger, or panic with it.
fn make(address: String, timeout: Duration, watcher: Listeners) -> Result<ZooKeeper> {
    let failed = |what: &str| Error::connect_failed(what.to_owned());
    let (sender, made) = crossbeam_channel::bounded(1);
    let make = move || {
        // It also panics when the process has no descriptor left.
        let handle = catch_unwind(AssertUnwindSafe(|| {
            ZooKeeper::connect(&address, timeout, watcher)
        }));
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

/// Drops a handle on a thread of its own: its Drop waits until its good-bye is answered, and logs, so
/// that it may wait for a logger.
fn let_go(handle: Arc<ZooKeeper>) {
    let handle = Arc::new(Mutex::new(Some(handle)));
    let dropped = Arc::clone(&handle);
    let spawned = std::thread::Builder::new()
        .name("zklock-let-go".to_owned())
        .spawn(move || {
            let handle = dropped.lock().take();
            drop(handle);
        });
    if spawned.is_err() {
        // Nor must this thread wait.
        std::mem::forget(handle.lock().take());
    }
}

/// The crate's default watcher.
#[derive(Clone, Default)]
struct Listeners(Arc<Mutex<Vec<Sender<WatchedEvent>>>>);

impl Watcher for Listeners {
    fn handle(&self, event: WatchedEvent) {
        let mut listeners = self.0.lock();
        listeners.retain(|listener| match listener.try_send(event.clone()) {
            Ok(()) | Err(TrySendError::Full(_)) => true,
            Err(TrySendError::Disconnected(_)) => false,
        });
    }
}
