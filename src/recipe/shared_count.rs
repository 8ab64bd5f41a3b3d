//! [`SharedCount`]: a number that all processes share.

use std::fmt;
use std::sync::Arc;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::count;
use crate::recipe::count_changes::CountChanges;
use crate::recipe::shown::show;
use crate::session::{CallError, Contact, Refusal, Step, Waiter};
use crate::wait::limits::WaitLimits;
use crate::znode::path::LockPath;

/// A number in a node that all processes read and change, such as the maximum of a
/// [`Semaphore`](crate::Semaphore) that an operator changes while it is in use.
///
/// The node holds four bytes, the number in big-endian order, as Curator's `SharedCount` does. It
/// is persistent; whoever asks first creates it with the initial number.
///
/// ```
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let client = zklock::Client::connect(&servers)?; // such as "zk1:2181,zk2:2181"
/// let max = zklock::SharedCount::new(&client, "/limits/api", 10)?;
/// let pool = zklock::Semaphore::builder(&client, "/pools/api").shared_max(&max).build()?;
/// max.set(20)?; // from now on, for all processes
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedCount {
    pub(crate) client: Client,
    pub(crate) path: LockPath,
    pub(crate) initial: i32,
}

impl SharedCount {
    /// A count at `path`, which is `initial` if nobody has set it yet. Nothing is asked of
    /// ZooKeeper yet.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the path is not possible.
    pub fn new(client: &Client, path: &str, initial: i32) -> Result<Self> {
        Ok(Self {
            client: client.clone(),
            path: LockPath::parse(path).map_err(Error::invalid)?,
            initial,
        })
    }

    /// The number now. Queries ZooKeeper.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the node holds anything but four bytes;
    /// otherwise as [`Mutex::lock`](crate::Mutex::lock).
    pub fn get(&self) -> Result<i32> {
        self.retry(|contact| {
            let value = count::read(contact, &self.path, self.initial, None)?;
            Ok(Some(value.number))
        })
    }

    /// Sets the number, whatever it was, even if the node held something else than a number.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn set(&self, number: i32) -> Result<()> {
        let data = Arc::from(number.to_be_bytes());
        self.retry(|contact| {
            count::put(contact, &self.path, &data)?;
            Ok(Some(()))
        })
    }

    /// Adds `summand`, which may be negative, and returns the sum. A change that somebody else
    /// makes at the same time is not overwritten.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// let max = zklock::SharedCount::new(&client, "/limits/api", 10)?;
    /// let now = max.add(5)?; // two who add at once both count
    /// println!("{now} permits from now on");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`compare_and_set`](Self::compare_and_set); also [`is_invalid`](Error::is_invalid) if the
    /// sum does not fit in four bytes.
    pub fn add(&self, summand: i32) -> Result<i32> {
        self.once(|contact| {
            loop {
                let value = count::read(contact, &self.path, self.initial, None)?;
                let number = value.number;
                let Some(sum) = number.checked_add(summand) else {
                    let path = &self.path;
                    return Err(CallError::Left(Error::invalid(format!(
                        "{path}: {number} plus {summand} does not fit in a shared count"
                    ))));
                };
                if self.replace(contact, value.version, sum)? {
                    return Ok(sum);
                }
            }
        })
    }

    /// A channel that delivers each number that the count changes to from now on.
    ///
    /// Of changes in quick succession some may be left out, never the last; when 1,024 are unread,
    /// the oldest are left out. It goes on over broken connections and lost sessions. It costs one
    /// thread, `zklock-count`, until the [`CountChanges`] is dropped or the client is closed.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// let max = zklock::SharedCount::new(&client, "/limits/api", 10)?;
    /// for number in max.changes()?.iter() {
    ///     println!("from now on {number}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn changes(&self) -> Result<CountChanges> {
        CountChanges::begin(&self.client, &self.path, self.initial)
    }

    /// Sets the number if it is `expected`, and returns whether it was.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let max = zklock::SharedCount::new(&client, "/limits/api", 10)?;
    /// // Doubles it, but not above 100.
    /// loop {
    ///     let now = max.get()?;
    ///     if max.compare_and_set(now, now.saturating_mul(2).min(100))? {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get), but it is tried once and does not wait for a connection. After
    /// [`is_connection_loss`](Error::is_connection_loss) the number may have been set or not: read
    /// it.
    pub fn compare_and_set(&self, expected: i32, number: i32) -> Result<bool> {
        self.once(|contact| {
            let value = count::read(contact, &self.path, self.initial, None)?;
            Ok(value.number == expected && self.replace(contact, value.version, number)?)
        })
    }

    /// The path of the node, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_str()
    }

    /// Whether the node was still in this version.
    fn replace(&self, contact: &Contact<'_>, version: i32, number: i32) -> Step<bool> {
        let data = Arc::from(number.to_be_bytes());
        match contact.set(self.path(), &data, Some(version)) {
            Ok(_) => Ok(true),
            Err(CallError::Refused(Refusal::BadVersion | Refusal::NoNode)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tried once: a request that was not answered may have been executed.
    fn once<T>(&self, step: impl FnOnce(&Contact<'_>) -> Step<T>) -> Result<T> {
        let session = self.client.session();
        let done = session.contact().and_then(|contact| step(&contact));
        done.map_err(|error| error.into_error(session.target(), self.path.as_str()))
    }

    fn retry<T>(&self, step: impl FnMut(&Contact<'_>) -> Step<Option<T>>) -> Result<T> {
        let limits = WaitLimits::none();
        let waiter = Waiter::new(self.client.session(), &limits);
        waiter.retry(self.path.as_str(), step)
    }
}

impl fmt::Debug for SharedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = self.client.session();
        show(f, "SharedCount", self.path(), session, |shown| {
            shown.field("initial", &self.initial);
        })
    }
}
