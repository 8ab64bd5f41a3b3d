//! [`SharedCount`]: a number that all processes share.

use std::fmt;
use std::sync::Arc;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::global_queue::count;
use crate::session::backend::Refusal;
use crate::session::{CallError, Contact, Step, Waiter};
use crate::wait::bound::Bound;
use crate::znode::path::LockPath;

/// A number in a node, for all processes to read and change: the maximum of a
/// [`Semaphore`](crate::Semaphore) that can be changed while it is in use.
///
/// The node holds four bytes, the number in big-endian order, as that of Curator's `SharedCount`.
/// It is persistent, and made with the initial number by whoever first asks for it.
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// let client = zklock::Client::connect("localhost:2181")?;
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
    /// A count at `path`, `initial` if nobody has set it yet. Nothing is asked of ZooKeeper yet.
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

    /// The number now.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the node holds something else than four bytes;
    /// otherwise as [`Mutex::lock`](crate::Mutex::lock).
    pub fn get(&self) -> Result<i32> {
        self.persist(|contact| {
            let value = count::read(contact, &self.path, self.initial, None)?;
            Ok(Some(value.number))
        })
    }

    /// Sets the number, whatever it was.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn set(&self, number: i32) -> Result<()> {
        self.persist(|contact| {
            count::read(contact, &self.path, self.initial, None)?;
            self.write(contact, number, None)?;
            Ok(Some(()))
        })
    }

    /// Sets the number if it is `expected`, and says whether it was.
    ///
    /// # Errors
    /// As [`get`](Self::get). After [`is_connection_loss`](Error::is_connection_loss) it may have
    /// been set or not: read it.
    pub fn compare_and_set(&self, expected: i32, number: i32) -> Result<bool> {
        let session = self.client.session();
        let set = session.side_contact().and_then(|contact| {
            let value = count::read(&contact, &self.path, self.initial, None)?;
            if value.number != expected {
                return Ok(false);
            }
            match self.write(&contact, number, Some(value.version)) {
                Ok(()) => Ok(true),
                Err(CallError::Refused(Refusal::BadVersion)) => Ok(false),
                Err(error) => Err(error),
            }
        });
        set.map_err(|error| error.into_error(session.target(), self.path.as_str()))
    }

    /// The path of the node, without the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_str()
    }

    fn write(&self, contact: &Contact<'_>, number: i32, version: Option<i32>) -> Step<()> {
        let data = Arc::from(number.to_be_bytes());
        contact.set(self.path(), &data, version).map(drop)
    }

    fn persist<T>(&self, step: impl FnMut(&Contact<'_>) -> Step<Option<T>>) -> Result<T> {
        let bound = Bound::none();
        let waiter = Waiter::new(self.client.session(), &bound);
        waiter.persist(self.path.as_str(), step)
    }
}

impl fmt::Debug for SharedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCount")
            .field("path", &self.path())
            .field("initial", &self.initial)
            .finish_non_exhaustive()
    }
}
