//! [`Transaction`]: writes that the servers execute only while the lock is ours.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result, StepRefusal};
use crate::session::backend::{Change, Changed, Refusal};
use crate::session::{CallError, Changes, LossReason, Step};
use crate::tenure::Tenure;
use crate::znode::node::NodeMode;
use crate::znode::path;

/// Writes to ZooKeeper that the servers execute together, and only if a lock is ours at that
/// moment; from [`MutexGuard::transaction`](crate::MutexGuard::transaction) and its like.
///
/// # Semantics
/// - **The lock is the condition.** ZooKeeper first checks that the guard's own node is still
///   there, then executes the steps in their order: all of them at one moment, or none. A node that
///   is gone never comes back. So a holder that was stopped for an hour, and does not know that it
///   has lost its lock, changes nothing. (A [`FencingToken`](crate::FencingToken) does the same for
///   another store, if that store checks it.)
/// - **Only through the guard's own session.** It is sent once, on the connection that is open, and
///   not repeated. It borrows its guard, so the lock cannot be given back before the answer.
/// - **A thread that takes over** from another one of this process may hold by the same node. The
///   first thread's transaction was answered before that, or lost with its connection. One that was
///   lost is executed before anything that is sent on the next connection, or never.
/// - **Without steps** it changes nothing, and proves that the lock was ours at that moment.
/// - Not on a [`SimpleMutex`](crate::SimpleMutex): the next holder's node has the same name, and a
///   check cannot tell the two apart.
///
/// Paths are as for locks: below the chroot of the connect string. Each step takes the transaction
/// and returns it; [`commit`](Self::commit) says what is wrong with a step.
///
/// # A ledger with its fence inside ZooKeeper
/// Read, decide, write. The version says that nobody else wrote in between, not even a lost attempt
/// of our own; the transaction says that the lock is ours.
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// let client = zklock::Client::connect("localhost:2181")?;
/// let lock = zklock::Mutex::new(&client, "/locks/ledger")?;
/// let guard = lock.lock()?;
/// let (data, version) = client.read("/ledger/balance")?.unwrap_or_default();
/// let balance: i64 = String::from_utf8_lossy(&data).parse().unwrap_or(0);
/// let entry = format!("/ledger/entries/{}-{version}", guard.fencing_token()?);
/// let done = guard
///     .transaction()
///     .set("/ledger/balance", (balance + 10).to_string(), Some(version))
///     .create(&entry, "10")
///     .commit();
/// match done {
///     Ok(_) => println!("booked"),
///     // Nothing was written; somebody else may hold the lock.
///     Err(error) if error.is_lock_lost() => println!("not booked"),
///     // The answer was lost. The entry has a name of its own, so it can be looked for.
///     Err(error) if error.is_connection_loss() => {
///         let booked = client.read(&entry)?.is_some();
///         if booked || guard.state() != zklock::LockState::Lost {
///             println!("booked: {booked}");
///         } else {
///             println!("lock again, and then look again");
///         }
///     }
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # When a token in another store is the way
/// ZooKeeper takes about 1 MB in one request, keeps all data in memory, and has a majority of the
/// servers commit every write. So a transaction here is for small data that changes seldom. Fence
/// data of a database in that database: keep the highest [`FencingToken`](crate::FencingToken)
/// beside the data, and refuse smaller ones in the same database transaction. The two cannot be
/// combined: nothing executes a write here and a write there at one moment.
#[must_use = "nothing is written until `commit`"]
pub struct Transaction<'g> {
    /// Of the locks that must be ours. Never empty.
    fence: Vec<&'g Tenure>,
    changes: Vec<Change>,
    /// The first thing that is wrong with a step.
    wrong: Option<Error>,
}

/// The effect of one step of a [`Transaction`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The node at this path was created; its data has version 0.
    Created {
        /// Without the chroot.
        path: String,
    },
    /// The data was replaced.
    Set {
        /// The version that it has now.
        version: i32,
    },
    /// The node was deleted.
    Deleted,
    /// The node was there, in the version that was asked for.
    Checked,
}

impl<'g> Transaction<'g> {
    pub(crate) fn fenced_by(fence: Vec<&'g Tenure>) -> Self {
        Self {
            fence,
            changes: Vec::new(),
            wrong: None,
        }
    }

    /// Creates a persistent node with the client's ACL. The node above it must exist, or be created
    /// by an earlier step.
    pub fn create(self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        let change = Change::Create {
            path: path.to_owned(),
            data: Arc::from(data.into()),
            mode: NodeMode::Persistent,
        };
        self.with(change, None)
    }

    /// Replaces the data of a node; with a version, only if the data still has that version.
    pub fn set(self, path: &str, data: impl Into<Vec<u8>>, version: Option<i32>) -> Self {
        let change = Change::Set {
            path: path.to_owned(),
            data: Arc::from(data.into()),
            version,
        };
        self.with(change, version)
    }

    /// Deletes a node without children; with a version, only if its data still has that version.
    pub fn delete(self, path: &str, version: Option<i32>) -> Self {
        let path = path.to_owned();
        self.with(Change::Delete { path, version }, version)
    }

    /// Makes the other steps depend on a node: they are executed only if it exists, and with a
    /// version, only if its data has that version. Needs the permission to read the node.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// let guard = lock.lock()?;
    /// // Empties the inbox if nobody has changed what it is emptied by.
    /// let (_rules, version) = client.read("/inbox/rules")?.unwrap_or_default();
    /// guard
    ///     .transaction()
    ///     .check("/inbox/rules", Some(version))
    ///     .delete("/inbox/17", None)
    ///     .delete("/inbox/18", None)
    ///     .commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(self, path: &str, version: Option<i32>) -> Self {
        let path = path.to_owned();
        self.with(Change::Check { path, version }, version)
    }

    fn with(mut self, change: Change, version: Option<i32>) -> Self {
        let path = change.path();
        let deletes = matches!(change, Change::Delete { .. });
        let wrong = if let Err(why) = path::check_any(path) {
            Some(why)
        } else if version.is_some_and(|version| version < 0) {
            Some(format!("{path}: a version is never negative"))
        } else if deletes && self.nodes().any(|node| node == path) {
            Some(format!("{path}: the lock's own node; give the lock back"))
        } else {
            None
        };
        if let (None, Some(wrong)) = (&self.wrong, wrong) {
            self.wrong = Some(Error::invalid(wrong));
        }
        self.changes.push(change);
        self
    }

    fn nodes(&self) -> impl Iterator<Item = &str> {
        self.fence
            .iter()
            .flat_map(|tenure| tenure.nodes())
            .map(String::as_str)
    }

    /// Sends the transaction and waits for the answer, for as long as the connection is open; that
    /// of a silent server is closed within 2/3 of the session timeout. Returns the effect of each
    /// step.
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # let client = zklock::Client::connect("localhost:2181")?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// let guard = lock.lock()?;
    /// match guard.transaction().set("/config", "new", Some(7)).commit() {
    ///     Ok(outcomes) => println!("{outcomes:?}"),
    ///     Err(error) if error.is_lock_lost() => println!("nothing written: not ours"),
    ///     Err(error) if error.failed_step().is_some() => println!("nothing written: {error}"),
    ///     Err(error) if error.is_connection_loss() => println!("done or not: read /config"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`is_lock_lost`](Error::is_lock_lost): the lock was not ours any more. Nothing was
    ///   written.
    /// - [`failed_step`](Error::failed_step): ZooKeeper refused this step. Nothing was written.
    /// - [`is_connection_loss`](Error::is_connection_loss): there was no connection, or it broke
    ///   before the answer came. The steps may have been executed or not. To find out, read what
    ///   they write with [`Client::read`](crate::Client::read): a version, or a created node with a
    ///   name of its own, tells. What you read before the guard is [`Lost`](crate::LockState::Lost)
    ///   is final. After that, take the lock again first: nobody gets it before our old node is
    ///   gone, and with it everything that was under way. A second attempt is safe if a version or
    ///   a created node makes it fail after the first one was executed.
    /// - [`is_invalid`](Error::is_invalid): a path, a version or the size is not possible; or the
    ///   locks were taken through several clients; or a lock cannot be checked, because it is a
    ///   [`SimpleMutex`](crate::SimpleMutex), or because the client's ACL lets nobody read its
    ///   nodes. Nothing was sent.
    /// - [`is_no_auth`](Error::is_no_auth): the ACL does not let *this client* read its nodes.
    /// - [`is_closed`](Error::is_closed), [`is_forked`](Error::is_forked).
    pub fn commit(mut self) -> Result<Vec<Outcome>> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        self.check_fence()?;
        match self.send() {
            Ok(Changes::Made(changed)) => {
                let fences = changed.len() - self.changes.len();
                let made = self.changes.iter().zip(changed.into_iter().skip(fences));
                Ok(made
                    .map(|(change, changed)| outcome(change, changed))
                    .collect())
            }
            Ok(Changes::Refused { index, refusal }) => Err(self.refused(index, refusal)),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Checks what can be known without asking.
    fn check_fence(&self) -> Result<()> {
        let first = self.fence[0];
        let session = first.session();
        if session.is_forked() {
            return Err(Error::forked());
        }
        if !session.makes_readable_nodes() {
            return Err(Error::invalid(format!(
                "{}: nobody may read the nodes that this client makes, so the lock cannot be \
                 checked; add Permissions::READ to its ACL",
                first.node()
            )));
        }
        for tenure in &self.fence {
            let node = tenure.node();
            if !Arc::ptr_eq(tenure.session(), session) {
                return Err(Error::invalid(format!(
                    "{node}: this lock was taken through another client than the first one"
                )));
            }
            if tenure.made().is_some() {
                let why = "a SimpleMutex, whose node cannot be told from the next holder's";
                return Err(Error::invalid(format!("{node}: {why}")));
            }
            if tenure.is_lost() {
                return Err(tenure.loss());
            }
        }
        Ok(())
    }

    fn send(&self) -> Step<Changes> {
        let contact = self.fence[0].session().contact()?;
        for tenure in &self.fence {
            tenure.stands_on(&contact)?;
        }
        let checks = self.nodes().map(|node| Change::Check {
            path: node.to_owned(),
            version: None,
        });
        contact.change_all(checks.chain(self.changes.iter().cloned()).collect())
    }

    fn refused(&self, index: usize, refusal: Refusal) -> Error {
        let fences = self.nodes().count();
        if let Some(step) = index.checked_sub(fences) {
            let path = self.changes.get(step).map_or("", Change::path);
            let failed = |why| Error::failed_at(step, why, path);
            return match refusal {
                Refusal::NoNode => failed(StepRefusal::NoNode),
                Refusal::NodeExists => failed(StepRefusal::NodeExists),
                Refusal::BadVersion => failed(StepRefusal::BadVersion),
                Refusal::NotEmpty => failed(StepRefusal::NotEmpty),
                Refusal::EphemeralParent => failed(StepRefusal::EphemeralParent),
                Refusal::NoAuth => failed(StepRefusal::NoAuth),
                refusal => failed(StepRefusal::Other).source(refusal),
            };
        }
        let holder = |tenure: &&&Tenure| {
            let mut nodes = tenure.nodes().iter().map(String::as_str);
            nodes.any(|node| self.nodes().nth(index) == Some(node))
        };
        let tenure = self
            .fence
            .iter()
            .find(holder)
            .expect("each check is of a tenure's node");
        match refusal {
            Refusal::NoNode => {
                tenure.lose(LossReason::Removed);
                tenure.loss()
            }
            Refusal::NoAuth => Error::no_auth().context(format!(
                "{}: the client's ACL must let it read its own node",
                tenure.node()
            )),
            refusal => Error::refused(tenure.node()).source(refusal),
        }
    }

    fn failure(&self, error: CallError) -> Error {
        let node = self.fence[0].node();
        match error {
            CallError::Left(error) => error,
            CallError::NotSent(why) => {
                let lost = self.fence.iter().find(|tenure| tenure.is_lost());
                lost.map_or_else(|| why.into_error(node), |lost| lost.loss())
            }
            // Also when the lock is lost by now: that would say that nothing was written.
            CallError::Unknown => Error::connection_loss(format!(
                "{node}: the transaction may have been executed or not; read what it writes"
            )),
            CallError::NotNow(why) if why.may_be_done() => Error::connection_loss(format!(
                "{node}: {why}; the transaction may have been executed or not; read what it writes"
            )),
            CallError::NotNow(why) => Error::not_now(format!("{node}: {why}; nothing was written")),
            CallError::Refused(Refusal::TooLarge(why)) => Error::invalid(format!("{node}: {why}")),
            CallError::Refused(refusal) => Error::refused(node).source(refusal),
        }
    }
}

fn outcome(change: &Change, changed: Changed) -> Outcome {
    match (change, changed) {
        (_, Changed::Created(created)) => Outcome::Created { path: created.path },
        (_, Changed::Set(stat)) => Outcome::Set {
            version: stat.version,
        },
        (Change::Delete { .. }, Changed::Done) => Outcome::Deleted,
        (_, Changed::Done) => Outcome::Checked,
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("fence", &self.nodes().collect::<Vec<_>>())
            .field(
                "paths",
                &self.changes.iter().map(Change::path).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}
