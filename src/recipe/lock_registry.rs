//! [`LockRegistry`]: locks by key.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::client::folders;
use crate::error::{Error, Result};
use crate::recipe::key;
use crate::recipe::mutex::{Mutex, MutexBuilder};
use crate::recipe::shown::show;
use crate::session::observe::observer::Label;
use crate::sync;
use crate::znode::path::LockPath;

/// How many locks are kept, unless more are in use at once.
const DEFAULT_CAPACITY: usize = 100_000;

/// How many of the kept locks are looked at when one is added beyond the capacity.
const LOOKS: usize = 16;

/// Locks by key: one [`Mutex`] for each key, in its own folder below one root.
///
/// # Semantics
/// - **Any string is a key.** It is escaped to one segment of a path: two keys never share a lock,
///   and a key that contains `/` makes no folders of its own. Escapes are those of URLs, so plain
///   keys stay readable: `orders/17` is `orders%2F17`.
/// - **One lock for each key**: everybody who asks this registry for a key gets the same `Mutex`,
///   so the threads of the process queue locally, and the lock is re-entrant.
/// - **Bounded**: when the registry keeps more locks than its
///   [capacity](LockRegistryBuilder::capacity), the least recently used locks that nobody
///   references are dropped. A lock that somebody references is never dropped, so the registry can
///   keep more than its capacity.
/// - **Folders**: a lock's folder stays on the server when the lock is released, because the next
///   acquire needs it. [`expire_unused_older_than`](Self::expire_unused_older_than) removes the
///   folders of the locks that it drops, [`remove_empty_folders`](Self::remove_empty_folders) those
///   of all keys. Both are safe while others use the locks.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let accounts = zklock::LockRegistry::new(&client, "/locks/accounts")?;
/// let account = accounts.get("DE02/1203 0000")?;
/// let _guard = account.lock()?;
/// # Ok(())
/// # }
/// ```
pub struct LockRegistry {
    client: Client,
    root: LockPath,
    capacity: usize,
    label: Label,
    configure: Box<Configure>,
    kept: sync::Mutex<Kept>,
}

type Configure = dyn for<'a> Fn(MutexBuilder<'a>) -> MutexBuilder<'a> + Send + Sync;

/// The locks that there are. An entry is given out, and looked at for whether anybody has it, under
/// the same lock, so one that nobody has stays so until it is dropped.
#[derive(Default)]
struct Kept {
    locks: HashMap<String, KeptLock>,
    /// Keys by when they were last asked for.
    order: BTreeMap<u64, String>,
    next: u64,
}

struct KeptLock {
    lock: Arc<Mutex>,
    asked_at: Instant,
    /// In `order`.
    place: u64,
}

impl KeptLock {
    fn is_in_use(&self) -> bool {
        // A guard refers to the lock's inside, not to the lock itself.
        Arc::strong_count(&self.lock) > 1 || self.lock.is_shared()
    }
}

impl LockRegistry {
    /// A registry of locks with the default settings, in folders below `root`.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible.
    pub fn new(client: &Client, root: &str) -> Result<Self> {
        Self::builder(client, root).build()
    }

    /// Begins to build a registry of locks below `root`.
    pub fn builder<'a>(client: &'a Client, root: &'a str) -> LockRegistryBuilder<'a> {
        LockRegistryBuilder {
            client,
            root,
            capacity: DEFAULT_CAPACITY,
            label: None,
            configure: Box::new(|lock| lock),
        }
    }

    /// The lock for `key`. Asks nothing of ZooKeeper.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the key is too long: more than 4,096 bytes, escaped and
    /// with the root; [`is_forked`](Error::is_forked).
    pub fn get(&self, key: &str) -> Result<Arc<Mutex>> {
        self.client.session().refuse_child()?;
        let now = sync::now();
        if let Some(lock) = self.kept.lock().ask(key, now) {
            return Ok(lock);
        }
        // Built and dropped while nothing is locked: `configure` is the caller's code, and a lock
        // that lingers gives its tenure up.
        let path = self.root.child(&key::escape(key));
        let mut builder = Mutex::builder(&self.client, &path);
        if let Some(label) = &self.label {
            builder = builder.label(Arc::clone(label));
        }
        let built = Arc::new((self.configure)(builder).build()?);
        let mut kept = self.kept.lock();
        if let Some(faster) = kept.ask(key, now) {
            return Ok(faster);
        }
        kept.keep(key, &built, now);
        let dropped = kept.shrink(self.capacity, now);
        drop(kept);
        drop(dropped);
        Ok(built)
    }

    /// How many locks are kept now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.lock().locks.len()
    }

    /// Whether no locks are kept now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the locks that nobody references and that were last asked for at least `age` ago, and
    /// removes their folders from the server if no other process uses them. Returns how many locks
    /// were dropped.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let accounts = zklock::LockRegistry::new(&client, "/locks/accounts")?;
    /// // Every minute, in a thread of the program's own:
    /// match accounts.expire_unused_older_than(std::time::Duration::from_secs(600)) {
    ///     Ok(dropped) => println!("{dropped} dropped, {} kept", accounts.len()),
    ///     Err(error) => println!("dropped, but their folders stay for now: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::try_lock`]; the locks are dropped all the same.
    pub fn expire_unused_older_than(&self, age: Duration) -> Result<usize> {
        self.client.session().refuse_child()?;
        let now = sync::now();
        let expired = {
            let mut kept = self.kept.lock();
            kept.expire(|entry| now.saturating_duration_since(entry.asked_at) >= age)
        };
        let count = expired.len();
        let mut removed = Ok(());
        for lock in expired {
            // If a lingering lock were given up in the background, its folder would not be empty
            // yet.
            let given_up = lock.release_idle();
            let path = lock.path().to_owned();
            drop(lock);
            removed = removed
                .and(given_up)
                .and_then(|()| folders::remove_if_unused(self.client.session(), &path).map(drop));
        }
        removed?;
        Ok(count)
    }

    /// Removes the folders, of any key, in which nobody holds or waits now. Returns how many were
    /// removed. It removes only folders that this library made, in whatever process, and none of
    /// locks in kazoo's dialect, because kazoo does not make a folder again.
    ///
    /// ZooKeeper does not say who made a node. A folder counts as this library's if it holds no
    /// data and its data was written since it was made (so this library marks its folders), if it
    /// has had children and has none now, and if it belongs to no session. Another program's node
    /// of which all of that is true would be removed, too: keep such nodes out of the root.
    ///
    /// Safe while others use the locks: a folder is removed only if it is empty at that moment, and
    /// the next acquire makes it again. Costs one request, and up to two for each key.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let accounts = zklock::LockRegistry::new(&client, "/locks/accounts")?;
    /// // Once a day, in one process: also for keys that others asked for.
    /// println!("{} folders removed", accounts.remove_empty_folders()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::try_lock`].
    pub fn remove_empty_folders(&self) -> Result<usize> {
        folders::remove_unused_in(self.client.session(), self.root.as_str())
    }

    /// The folder of all locks, without the chroot.
    #[must_use]
    pub fn root(&self) -> &str {
        self.root.as_str()
    }
}

impl Kept {
    fn ask(&mut self, key: &str, now: Instant) -> Option<Arc<Mutex>> {
        let entry = self.locks.get_mut(key)?;
        entry.asked_at = now;
        let key = self.order.remove(&entry.place);
        entry.place = self.next;
        self.order
            .insert(self.next, key.expect("each entry has a place"));
        self.next += 1;
        Some(Arc::clone(&entry.lock))
    }

    fn keep(&mut self, key: &str, lock: &Arc<Mutex>, now: Instant) {
        let entry = KeptLock {
            lock: Arc::clone(lock),
            asked_at: now,
            place: self.next,
        };
        self.locks.insert(key.to_owned(), entry);
        self.order.insert(self.next, key.to_owned());
        self.next += 1;
    }

    /// Takes out locks that nobody references, the least recently used first.
    ///
    /// Looks at a few only: all may be in use, and everybody waits meanwhile. One that is in use
    /// counts as asked for now, so that the next call looks at others.
    fn shrink(&mut self, capacity: usize, now: Instant) -> Vec<Arc<Mutex>> {
        let mut dropped = Vec::new();
        for _ in 0..LOOKS {
            if self.locks.len() <= capacity {
                break;
            }
            let Some((_, key)) = self.order.pop_first() else {
                break;
            };
            let entry = self.locks.get_mut(&key).expect("each place is an entry's");
            if entry.is_in_use() {
                entry.asked_at = now;
                entry.place = self.next;
                self.order.insert(self.next, key);
                self.next += 1;
            } else {
                let entry = self.locks.remove(&key);
                dropped.extend(entry.map(|entry| entry.lock));
            }
        }
        dropped
    }

    /// Takes out the locks that nobody references and that are due, in the order in which they were
    /// last asked for, up to the first that is not due.
    fn expire(&mut self, mut is_due: impl FnMut(&KeptLock) -> bool) -> Vec<Arc<Mutex>> {
        let mut places = Vec::new();
        for (place, key) in &self.order {
            let entry = &self.locks[key];
            if entry.is_in_use() {
                continue;
            }
            if !is_due(entry) {
                break;
            }
            places.push(*place);
        }
        let keys = places.iter().filter_map(|place| self.order.remove(place));
        let keys: Vec<_> = keys.collect();
        let entries = keys.iter().filter_map(|key| self.locks.remove(key));
        entries.map(|entry| entry.lock).collect()
    }
}

impl fmt::Debug for LockRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = self.client.session();
        show(f, "LockRegistry", self.root(), session, |shown| {
            shown
                .field("label", &self.label)
                .field("len", &self.len())
                .field("capacity", &self.capacity);
        })
    }
}

/// Settings of a [`LockRegistry`]; made by [`LockRegistry::builder`].
#[must_use]
pub struct LockRegistryBuilder<'a> {
    client: &'a Client,
    root: &'a str,
    capacity: usize,
    label: Label,
    configure: Box<Configure>,
}

impl LockRegistryBuilder<'_> {
    /// How many locks are kept; more only while more are referenced. Defaults to 100,000, of about
    /// 600 bytes each.
    pub fn capacity(mut self, locks: usize) -> Self {
        self.capacity = locks;
        self
    }

    /// What a client's [`Observer`](crate::Observer) is told that each of the locks is called; see
    /// [`MutexBuilder::label`](crate::MutexBuilder::label). Defaults to nothing.
    ///
    /// A key is never a label by itself: there may be very many.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// How each lock is built. Defaults to the defaults of [`Mutex::builder`].
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let locks = zklock::LockRegistry::builder(&client, "/locks")
    ///     .configure(|lock| lock.max_handoffs(16).revocable(true))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn configure(
        mut self,
        configure: impl for<'b> Fn(MutexBuilder<'b>) -> MutexBuilder<'b> + Send + Sync + 'static,
    ) -> Self {
        self.configure = Box::new(configure);
        self
    }

    /// Builds the registry. Nothing is asked of ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the root is not possible;
    /// [`is_forked`](Error::is_forked).
    pub fn build(self) -> Result<LockRegistry> {
        self.client.session().refuse_child()?;
        Ok(LockRegistry {
            client: self.client.clone(),
            root: LockPath::parse(self.root).map_err(Error::invalid)?,
            capacity: self.capacity,
            label: self.label,
            configure: self.configure,
            kept: sync::Mutex::new(Kept::default()),
        })
    }
}

impl fmt::Debug for LockRegistryBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRegistryBuilder")
            .field("root", &self.root)
            .field("capacity", &self.capacity)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
