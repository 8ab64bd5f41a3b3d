//! [`Transaction`]: writes that the servers execute only while the lock is ours.

mod plan;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use zklock_protocol::{ANY_VERSION, CreateMode, Reply, Request};

use self::plan::{Planned, in_question, plan};

use crate::error::{Error, Result, StepRefusal};
use crate::session::{CallError, Changes, Contact, LossReason, Refusal, Step, new_node};
use crate::tenure::Tenure;
use crate::znode::path;

/// How often a transaction is sent whose steps depend on what exists, if that changes all the time.
const MOST_LOOKS: usize = 10;

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
///   not repeated (but for [`ensure`](Self::ensure) and [`put`](Self::put), after the servers have
///   refused it). It borrows its guard, so the lock cannot be given back before the answer.
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
/// This is `examples/ledger.rs`; it works on an ensemble that has never seen a ledger.
///
/// ```no_run
#[doc = include_str!("../../examples/ledger.rs")]
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
    steps: Vec<Planned>,
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
    /// The node is there.
    Ensured {
        /// Whether it was created by this step. The nodes above it may have been there before.
        created: bool,
    },
}

impl<'g> Transaction<'g> {
    pub(super) fn fenced_by(fence: Vec<&'g Tenure>) -> Self {
        Self {
            fence,
            steps: Vec::new(),
            wrong: None,
        }
    }

    /// Creates a persistent node with the client's ACL. The node above it must exist, or be created
    /// by an earlier step, such as [`ensure`](Self::ensure).
    pub fn create(self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        let change = new_node(path.to_owned(), &data.into(), CreateMode::PERSISTENT);
        self.with(Planned::Change(change), None)
    }

    /// Makes sure that a node is there: it and those above it are created, persistent, empty and with
    /// the client's ACL, as far as they are missing. If it is there, this needs the permission to
    /// read it.
    ///
    /// What is missing is looked at first, and the whole is refused by the servers, looked at again
    /// and sent again if that has changed meanwhile.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// let guard = lock.lock()?;
    /// guard
    ///     .transaction()
    ///     .ensure("/jobs/nightly/done")
    ///     .create("/jobs/nightly/done/2026-11-21", "")
    ///     .commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ensure(self, path: &str) -> Self {
        let path = path.to_owned();
        self.with(Planned::Ensure { path }, None)
    }

    /// Sets the data of a node, whatever its version, or creates it with that data, and those above
    /// it as [`ensure`](Self::ensure) does. Its [`Outcome`] says which.
    pub fn put(self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        let (path, data) = (path.to_owned(), data.into());
        self.with(Planned::Put { path, data }, None)
    }

    /// Replaces the data of a node; with a version, only if the data still has that version.
    pub fn set(self, path: &str, data: impl Into<Vec<u8>>, version: Option<i32>) -> Self {
        let change = Request::SetData {
            path: path.to_owned(),
            data: Some(data.into()),
            version: version.unwrap_or(ANY_VERSION),
        };
        self.with(Planned::Change(change), version)
    }

    /// Deletes a node without children; with a version, only if its data still has that version.
    pub fn delete(self, path: &str, version: Option<i32>) -> Self {
        let change = Request::Delete {
            path: path.to_owned(),
            version: version.unwrap_or(ANY_VERSION),
        };
        self.with(Planned::Change(change), version)
    }

    /// Makes the other steps depend on a node: they are executed only if it exists, and with a
    /// version, only if its data has that version. Needs the permission to read the node.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
    /// # let lock = zklock::Mutex::new(&client, "/locks/nightly")?;
    /// let guard = lock.lock()?;
    /// # let inbox = guard.transaction().put("/inbox/rules", "all");
    /// # inbox.put("/inbox/17", "").put("/inbox/18", "").commit()?;
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
        let change = Request::Check {
            path: path.to_owned(),
            version: version.unwrap_or(ANY_VERSION),
        };
        self.with(Planned::Change(change), version)
    }

    fn with(mut self, step: Planned, version: Option<i32>) -> Self {
        let path = step.path();
        let deletes = matches!(step, Planned::Change(Request::Delete { .. }));
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
        self.steps.push(step);
        self
    }

    fn nodes(&self) -> impl Iterator<Item = &str> {
        self.fence
            .iter()
            .flat_map(|tenure| tenure.nodes())
            .map(String::as_str)
    }

    /// Sends the transaction and waits for the answer, for as long as the connection is open; that
    /// of a silent server is closed within a sixth of the session timeout. Returns the effect of each
    /// step.
    ///
    /// ```
    /// # fn main() -> zklock::Result<()> {
    /// # let server = zklock_test::Server::start().expect("a port");
    /// # let client = zklock::Client::connect(&server.connect_string())?;
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
    ///   name of its own, tells. (If what exists had to be looked at, and that failed, the text says
    ///   that nothing was written.) What you read before the guard is [`Lost`](crate::LockState::Lost)
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
        let mut changes = self.plan().map_err(|error| self.look_failed(error))?;
        for _ in 0..MOST_LOOKS {
            match self.send(&changes) {
                Ok(Changes::Made(changed)) => return Ok(self.outcomes(&changes, changed)),
                Ok(Changes::Refused { index, refusal }) => {
                    let refused = self.refused(index, refusal, &changes);
                    // Nothing was done. Is it another world than the one that was looked at?
                    let was_planned = refused.failed_step().is_some_and(|step| {
                        matches!(step.why, StepRefusal::NoNode | StepRefusal::NodeExists)
                    });
                    let again = match was_planned {
                        true => self.plan().map_err(|error| self.look_failed(error))?,
                        false => return Err(refused),
                    };
                    if is_same(&again, &changes) {
                        return Err(refused);
                    }
                    changes = again;
                }
                Err(error) => return Err(self.failure(error)),
            }
        }
        Err(Error::refused(format!(
            "{}: the nodes that the transaction is to make come and go: it was refused {MOST_LOOKS} \
             times, and nothing was written",
            self.fence[0].node()
        )))
    }

    /// The steps as changes. The answer to a refused multi is as new as what it was refused for, so a
    /// look after it sees that.
    fn plan(&self) -> Step<Vec<(usize, Request)>> {
        let in_question = in_question(&self.steps);
        let mut exists = HashSet::new();
        if !in_question.is_empty() {
            let stats = self.contact()?.stats(&in_question)?;
            let looked_at = in_question.into_iter().zip(stats);
            exists.extend(looked_at.filter_map(|(path, stat)| stat.map(|_| path)));
        }
        Ok(plan(&self.steps, exists))
    }

    /// One for each step: that of its last change.
    fn outcomes(&self, changes: &[(usize, Request)], changed: Vec<Reply>) -> Vec<Outcome> {
        let fences = changed.len() - changes.len();
        let made = changes.iter().zip(changed.into_iter().skip(fences));
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(self.steps.len());
        for ((number, change), changed) in made {
            outcomes.truncate(*number);
            outcomes.push(match &self.steps[*number] {
                Planned::Ensure { .. } => Outcome::Ensured {
                    created: matches!(change, Request::Create(_)),
                },
                Planned::Change(_) | Planned::Put { .. } => outcome(change, changed),
            });
        }
        outcomes
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

    /// The open connection, if all locks stand on it.
    fn contact(&self) -> Step<Contact<'_>> {
        let contact = self.fence[0].session().contact()?;
        for tenure in &self.fence {
            tenure.stands_on(&contact)?;
        }
        Ok(contact)
    }

    fn send(&self, changes: &[(usize, Request)]) -> Step<Changes> {
        let contact = self.contact()?;
        let checks = self.nodes().map(|node| Request::Check {
            path: node.to_owned(),
            version: ANY_VERSION,
        });
        let changes = changes.iter().map(|(_, change)| change.clone());
        contact.change_all(checks.chain(changes).collect())
    }

    fn refused(&self, index: usize, refusal: Refusal, changes: &[(usize, Request)]) -> Error {
        let fences = self.nodes().count();
        if let Some(at) = index.checked_sub(fences) {
            let (step, path) = match changes.get(at) {
                Some((step, change)) => (*step, change.path().unwrap_or_default()),
                None => (at, ""),
            };
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

    /// What exists could not be looked at. Nothing is under way that writes.
    fn look_failed(&self, error: CallError) -> Error {
        let node = self.fence[0].node();
        match error {
            CallError::Unknown => self.lost_part().unwrap_or_else(|| {
                Error::connection_loss(format!(
                    "{node}: while the transaction looked at what exists; nothing was written"
                ))
            }),
            CallError::NotNow(why) => Error::not_now(format!("{node}: {why}; nothing was written")),
            error => self.failure(error),
        }
    }

    /// That a lock is not ours any more, if so.
    fn lost_part(&self) -> Option<Error> {
        let lost = self.fence.iter().find(|tenure| tenure.is_lost());
        lost.map(|tenure| tenure.loss())
    }

    fn failure(&self, error: CallError) -> Error {
        let node = self.fence[0].node();
        match error {
            CallError::Left(error) => error,
            CallError::NotSent(why) => self.lost_part().unwrap_or_else(|| why.into_error(node)),
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

/// Whether two plans of the same steps come to the same: what differs is what is made.
fn is_same(one: &[(usize, Request)], other: &[(usize, Request)]) -> bool {
    let key = |(number, change): &(usize, Request)| {
        let path = change.path().map(str::to_owned);
        (*number, std::mem::discriminant(change), path)
    };
    one.iter().map(key).eq(other.iter().map(key))
}

fn outcome(change: &Request, reply: Reply) -> Outcome {
    match (change, reply) {
        (_, Reply::Path(path) | Reply::Created { path, .. }) => Outcome::Created { path },
        (_, Reply::Stat(stat)) => Outcome::Set {
            version: stat.version,
        },
        (Request::Delete { .. }, _) => Outcome::Deleted,
        _ => Outcome::Checked,
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("fence", &self.nodes().collect::<Vec<_>>())
            .field(
                "paths",
                &self.steps.iter().map(Planned::path).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}
