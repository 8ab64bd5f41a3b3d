//! [`Contender`]: how far an acquire has come in the global queue.

use zklock_protocol::Children;

use crate::session::observe::say;
use std::collections::HashSet;
use std::sync::Arc;

use super::acquire::AcquireRequest;
use super::folder::Folder;
use crate::error::Error;
use crate::link::Epoch;
use crate::session::{CallError, Contact, Created, Orphan, Proof, Refusal, Step, Watch, found};
use crate::znode::names::Class;
use crate::znode::path::split;

/// How far an acquire has come in the global queue. It outlives the thread that began it: when that
/// thread gives up, the next local one goes on from here. Dropping it leaves the queue: our nodes
/// are removed, now or as soon as ZooKeeper can be reached.
pub(crate) struct Contender {
    folder: Arc<Folder>,
    state: ContenderState,
}

#[derive(Default)]
enum ContenderState {
    #[default]
    NotCreated,
    /// Creates were sent and not answered.
    Unknown {
        creates: Vec<Create>,
        /// Those that were created before.
        nodes: Vec<Created>,
        epoch: Arc<Epoch>,
    },
    /// Our nodes were created in this epoch.
    Created {
        nodes: Vec<Created>,
        epoch: Arc<Epoch>,
    },
}

/// By what we recognise what a lost create has made.
pub(super) enum Create {
    /// The child's name begins with it; it holds a fresh GUID.
    Name(String),
    /// A node whose name others use, too.
    Plain(Proof),
}

impl ContenderState {
    fn epoch(&self) -> Option<&Arc<Epoch>> {
        match self {
            Self::NotCreated => None,
            Self::Unknown { epoch, .. } | Self::Created { epoch, .. } => Some(epoch),
        }
    }
}

impl Contender {
    pub(super) fn new(folder: &Arc<Folder>) -> Self {
        Self {
            folder: Arc::clone(folder),
            state: ContenderState::NotCreated,
        }
    }

    pub(crate) fn is_not_created(&self) -> bool {
        matches!(self.state, ContenderState::NotCreated)
    }

    /// Whether our nodes were created in the session of `contact`.
    pub(super) fn is_entered(&self, contact: &Contact<'_>) -> bool {
        match &self.state {
            // A lost create may turn out to have made nothing.
            ContenderState::Created { nodes, epoch } => {
                !nodes.is_empty() && epoch.number() == contact.epoch().number()
            }
            _ => false,
        }
    }

    /// Leaves the queue.
    pub(super) fn withdraw(&mut self) {
        let (nodes, epoch) = match std::mem::take(&mut self.state) {
            ContenderState::NotCreated => return,
            ContenderState::Unknown {
                creates,
                nodes,
                epoch,
            } => {
                for create in creates {
                    let path = self.folder.path().as_str().to_owned();
                    let orphan = match create {
                        Create::Name(prefix) => Orphan::Created {
                            folder: path,
                            prefix,
                        },
                        Create::Plain(proof) => Orphan::Plain { path, proof },
                    };
                    self.folder.session().reap(orphan, &epoch);
                }
                (nodes, epoch)
            }
            ContenderState::Created { nodes, epoch } => (nodes, epoch),
        };
        for Created { path, .. } in nodes {
            self.folder.session().reap(Orphan::Node { path }, &epoch);
        }
    }

    /// There is nothing to withdraw: our nodes are a tenure's now, or gone for good.
    pub(super) fn disown(&mut self) {
        self.state = ContenderState::NotCreated;
    }

    /// Gives the nodes that were created to whoever takes them back. What is unknown stays as it
    /// is.
    pub(super) fn take_nodes(&mut self) -> Vec<Created> {
        match std::mem::take(&mut self.state) {
            ContenderState::Created { nodes, .. } => nodes,
            other => {
                self.state = other;
                Vec::new()
            }
        }
    }

    /// Goes on in the session of `contact`. Nothing survives an epoch: the server removes our nodes
    /// with the session.
    pub(super) fn move_to_session(&mut self, contact: &Contact<'_>) {
        let epoch = self.state.epoch();
        if epoch.is_some_and(|epoch| epoch.number() != contact.epoch().number()) {
            say!(
                self.folder.session(),
                Debug,
                "{}: queueing again in a new session",
                self.folder.path()
            );
            self.disown();
        }
    }

    /// The nodes, as far as they were created.
    fn created(&self) -> &[Created] {
        match &self.state {
            ContenderState::Created { nodes, .. } => nodes,
            _ => &[],
        }
    }

    /// The nodes, once they were created. Never empty.
    pub(super) fn nodes(&self) -> &[Created] {
        let nodes = self.created();
        assert!(!nodes.is_empty(), "created before");
        nodes
    }

    /// The names of our nodes, as far as they are known.
    pub(super) fn names(&self) -> HashSet<&str> {
        let each = self.created().iter();
        each.map(|node| split(&node.path).1).collect()
    }

    /// Somebody removed a node of ours that waits: the rest goes, too.
    pub(super) fn removed(&mut self) {
        self.withdraw();
        let folder = self.folder.path();
        say!(
            self.folder.session(),
            Warn,
            "{folder}: somebody removed our node; queueing again"
        );
    }

    /// The folder was deleted, and our nodes before it.
    pub(super) fn folder_gone(&mut self) {
        self.disown();
        let folder = self.folder.path();
        say!(
            self.folder.session(),
            Debug,
            "{folder}: the folder was deleted; queueing again"
        );
    }

    /// Makes sure that as many nodes of ours as were asked for are in the folder, and lists it; in
    /// one write, as far as that is possible. The list leaves `watch`, if there is one.
    pub(super) fn enter_and_list(
        &mut self,
        contact: &Contact<'_>,
        class: Class,
        request: &AcquireRequest<'_>,
        watch: Option<&Watch>,
    ) -> Step<Listed> {
        if !self.is_not_created() {
            self.move_to_session(contact);
            self.resolve_unknown(contact)?;
        }
        let mut made_folder = false;
        loop {
            let missing = request.count.saturating_sub(self.created().len());
            let at_once = missing.min(self.folder.creates_at_once(request.data.len()));
            let fresh = (0..at_once).map(|_| self.folder.fresh_name(class));
            let names: Vec<_> = fresh.collect();
            let listed = if missing == 0 {
                self.list(contact, watch).map(Some)
            } else if at_once < missing {
                self.create_some(contact, class, request, names)
            } else {
                self.create_rest_and_list(contact, class, request, names, watch)
            };
            match listed {
                Ok(Some(children)) => return Ok(self.listed(children, made_folder)),
                Ok(None) => {}
                Err(CallError::Refused(Refusal::NoNode)) => {
                    self.make_folder(contact)?;
                    made_folder = true;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates what is missing of the nodes that were asked for, and lists the folder.
    fn create_rest_and_list(
        &mut self,
        contact: &Contact<'_>,
        class: Class,
        request: &AcquireRequest<'_>,
        names: Vec<String>,
        watch: Option<&Watch>,
    ) -> Step<Option<Option<Children>>> {
        let made = contact.create_and_list(
            self.folder.path().as_str(),
            &names,
            &request.data,
            self.folder.grammar().mode(class),
            self.folder.batching(),
            watch,
        )?;
        if !self.note_in_folder(contact, names, made.created)? {
            return Ok(None);
        }
        (request.entered)(split(&self.nodes()[0].path).1);
        found(made.listed).map(Some)
    }

    /// Creates some of the nodes that were asked for. The rest, and the list, come after them.
    fn create_some(
        &mut self,
        contact: &Contact<'_>,
        class: Class,
        request: &AcquireRequest<'_>,
        names: Vec<String>,
    ) -> Step<Option<Option<Children>>> {
        let created = contact.create_all(
            self.folder.path().as_str(),
            &names,
            &request.data,
            self.folder.grammar().mode(class),
            self.folder.batching(),
        )?;
        self.note_in_folder(contact, names, created)?;
        Ok(None)
    }

    fn list(&self, contact: &Contact<'_>, watch: Option<&Watch>) -> Step<Option<Children>> {
        match watch {
            Some(watch) => self.folder.list_and_watch(contact, watch),
            None => self.folder.list(contact),
        }
    }

    /// Takes note of what creates have come to, for the folder too. `false`: they are to be asked
    /// for again, in the words that the backend now uses.
    fn note_in_folder(
        &mut self,
        contact: &Contact<'_>,
        names: Vec<String>,
        created: Vec<Step<Created>>,
    ) -> Step<bool> {
        match self.note_created(contact, names, created) {
            Ok(()) => {
                self.folder.seen(true);
                self.refuse_unreadable().map(|()| true)
            }
            Err(CallError::Refused(Refusal::Unknown)) => Ok(false),
            Err(error @ CallError::Refused(Refusal::NoNode)) => Err(error),
            Err(error) => Err(self.folder.failed(error)),
        }
    }

    /// The folder was missing for one of our creates.
    fn make_folder(&mut self, contact: &Contact<'_>) -> Step<()> {
        // Nodes that were in it went before the folder could; but somebody may have made it again
        // between two of our creates, so one of ours may be in it.
        self.withdraw();
        self.folder.seen(false);
        self.folder.make(contact)
    }

    /// Makes one node of ours, and does not list. Returns `false` if there is no folder to make it
    /// in.
    pub(super) fn enter(
        &mut self,
        contact: &Contact<'_>,
        class: Class,
        request: &AcquireRequest<'_>,
    ) -> Step<bool> {
        let name = self.folder.fresh_name(class);
        let path = self.folder.child(&name);
        let created = contact.create(&path, &request.data, self.folder.grammar().mode(class));
        match self.note_created(contact, vec![name], vec![created]) {
            Ok(()) => {
                self.folder.seen(true);
                self.refuse_unreadable()?;
                (request.entered)(split(&self.nodes()[0].path).1);
                Ok(true)
            }
            Err(CallError::Refused(Refusal::NoNode)) => {
                self.folder.seen(false);
                Ok(false)
            }
            Err(error) => Err(self.folder.failed(error)),
        }
    }

    /// Some servers go on counting where ZooKeeper's numbers end. A node with such a number cannot
    /// be put in order with the others: it would be taken for gone, and made again, for ever.
    pub(super) fn refuse_unreadable(&mut self) -> Step<()> {
        let grammar = self.folder.grammar();
        let is_unreadable = |node: &&Created| grammar.parse(split(&node.path).1).is_none();
        match self.nodes().iter().find(is_unreadable) {
            None => Ok(()),
            Some(node) => {
                let path = node.path.clone();
                Err(self.unreadable(&path))
            }
        }
    }

    fn unreadable(&mut self, path: &str) -> CallError {
        self.withdraw();
        CallError::Left(Error::refused(format!(
            "{path}: the server gave it a number beyond 2147483647, where ZooKeeper's numbers end; \
             remove the folder while nobody uses it, and numbers begin again"
        )))
    }

    fn listed(&mut self, children: Option<Children>, made_folder: bool) -> Listed {
        if children.is_none() {
            self.folder_gone();
        }
        Listed {
            children,
            made_folder,
        }
    }

    /// Takes note of what creates have come to. An error is that of the first that went wrong.
    pub(super) fn note_created(
        &mut self,
        contact: &Contact<'_>,
        names: Vec<String>,
        created: Vec<Step<Created>>,
    ) -> Step<()> {
        let mut nodes = self.take_nodes();
        let (mut unsure, mut result) = (Vec::new(), Ok(()));
        for (name, created) in names.into_iter().zip(created) {
            match created {
                Ok(created) => {
                    say!(self.folder.session(), Debug, "{}: queued", created.path);
                    nodes.push(created);
                }
                Err(error) => {
                    if error.may_be_done() {
                        unsure.push(Create::Name(name));
                    }
                    result = result.and(Err(error));
                }
            }
        }
        if !unsure.is_empty() {
            self.set_unknown(unsure, nodes, contact);
        } else if !nodes.is_empty() {
            self.set_created(nodes, contact);
        }
        result
    }

    fn set_created(&mut self, nodes: Vec<Created>, contact: &Contact<'_>) {
        let epoch = Arc::clone(contact.epoch());
        self.state = ContenderState::Created { nodes, epoch };
    }

    pub(super) fn set_unknown(
        &mut self,
        creates: Vec<Create>,
        nodes: Vec<Created>,
        contact: &Contact<'_>,
    ) {
        self.state = ContenderState::Unknown {
            creates,
            nodes,
            epoch: Arc::clone(contact.epoch()),
        };
    }

    /// By what a plain node of ours is known whose create was not answered, or not yet confirmed.
    pub(super) fn unknown_proof(&self) -> Option<&Proof> {
        match &self.state {
            ContenderState::Unknown { creates, .. } => {
                creates.iter().find_map(|create| match create {
                    Create::Plain(proof) => Some(proof),
                    Create::Name(_) => None,
                })
            }
            _ => None,
        }
    }

    /// Finds out what became of creates that were not answered.
    fn resolve_unknown(&mut self, contact: &Contact<'_>) -> Step<()> {
        let ContenderState::Unknown { creates, nodes, .. } = &self.state else {
            return Ok(());
        };
        let mut nodes = nodes.clone();
        let names = creates.iter().filter_map(|create| match create {
            Create::Name(name) => Some(name.as_str()),
            Create::Plain(_) => None,
        });
        let names: Vec<_> = names.collect();
        nodes.extend(self.folder.find_all(contact, &names)?);
        self.set_created(nodes, contact);
        Ok(())
    }
}

/// The outcome of [`Contender::enter_and_list`].
pub(super) struct Listed {
    /// `None` if the folder is gone, and our nodes with it.
    pub(super) children: Option<Children>,
    /// The folder had to be made.
    pub(super) made_folder: bool,
}

impl Drop for Contender {
    fn drop(&mut self) {
        if !self.is_not_created() {
            self.withdraw();
        }
    }
}
