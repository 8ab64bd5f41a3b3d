//! An acquire: what it asks for, how far it has come, and what it wins.

use zklock_protocol::Children;

use crate::session::observe::say;
use std::collections::HashSet;
use std::sync::Arc;

use super::folder::Folder;
use crate::error::Error;
use crate::link::Epoch;
use crate::session::backend::{Created, Refusal};
use crate::session::{CallError, Contact, Orphan, Proof, Step, Watch, found};
use crate::tenure::Tenure;
use crate::wait::position::Reporter;
use crate::znode::names::Class;
use crate::znode::path::split;

/// What one acquire asks for.
pub(crate) struct Claim<'a> {
    /// What our nodes hold for others to read.
    pub(crate) data: Arc<[u8]>,
    /// How many nodes; more than one for permits only.
    pub(crate) count: usize,
    /// A win comes with news of others, if that costs nothing extra.
    pub(crate) wants_news: bool,
    /// Reports how many are ahead, if the caller asked for that.
    pub(crate) reporter: Option<&'a Reporter>,
    /// Is told the name of our node once it is in the queue.
    pub(crate) entered: &'a dyn Fn(&str),
    /// Is called whenever others are seen to be ahead.
    pub(crate) behind: &'a dyn Fn(),
}

impl Claim<'_> {
    /// For one node, and nothing else.
    pub(crate) fn plain(data: Arc<[u8]>) -> Self {
        Self {
            data,
            count: 1,
            wants_news: false,
            reporter: None,
            entered: &|_| {},
            behind: &|| {},
        }
    }

    pub(super) fn report(&self, contenders: usize) {
        (self.behind)();
        if let Some(reporter) = self.reporter {
            reporter.report(0, contenders);
        }
    }
}

/// How far an acquire has come in the global queue. It outlives the thread that began it: when that
/// thread gives up, the next local one goes on from here. Dropping it leaves the queue: our nodes
/// are removed, now or as soon as ZooKeeper can be reached.
pub(crate) struct Place {
    folder: Arc<Folder>,
    standing: Standing,
}

#[derive(Default)]
enum Standing {
    #[default]
    Nowhere,
    /// Creates were sent and not answered.
    Unsure {
        creates: Vec<Create>,
        /// Those that were created before.
        nodes: Vec<Created>,
        epoch: Arc<Epoch>,
    },
    /// Our nodes were created in this epoch.
    Queued {
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

impl Standing {
    fn epoch(&self) -> Option<&Arc<Epoch>> {
        match self {
            Self::Nowhere => None,
            Self::Unsure { epoch, .. } | Self::Queued { epoch, .. } => Some(epoch),
        }
    }
}

impl Place {
    pub(super) fn nowhere(folder: &Arc<Folder>) -> Self {
        Self {
            folder: Arc::clone(folder),
            standing: Standing::Nowhere,
        }
    }

    pub(crate) fn is_nowhere(&self) -> bool {
        matches!(self.standing, Standing::Nowhere)
    }

    /// Whether our nodes were created in the session of `contact`.
    pub(super) fn is_entered(&self, contact: &Contact<'_>) -> bool {
        match &self.standing {
            // A lost create may turn out to have made nothing.
            Standing::Queued { nodes, epoch } => {
                !nodes.is_empty() && epoch.number() == contact.epoch().number()
            }
            _ => false,
        }
    }

    /// Leaves the queue.
    pub(crate) fn withdraw(&mut self) {
        let (nodes, epoch) = match std::mem::take(&mut self.standing) {
            Standing::Nowhere => return,
            Standing::Unsure {
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
            Standing::Queued { nodes, epoch } => (nodes, epoch),
        };
        for Created { path, .. } in nodes {
            self.folder.session().reap(Orphan::Node { path }, &epoch);
        }
    }

    /// There is nothing to withdraw: our nodes are a tenure's now, or gone for good.
    pub(super) fn give_up(&mut self) {
        self.standing = Standing::Nowhere;
    }

    /// Gives the nodes of a place that was entered to whoever takes them back. A place that is
    /// unsure stays as it is.
    pub(super) fn hand_over(&mut self) -> Vec<String> {
        match std::mem::take(&mut self.standing) {
            Standing::Queued { nodes, .. } => nodes.into_iter().map(|node| node.path).collect(),
            other => {
                self.standing = other;
                Vec::new()
            }
        }
    }

    /// Goes on in the session of `contact`. Nothing survives an epoch: the server removes our nodes
    /// with the session.
    pub(super) fn come_to(&mut self, contact: &Contact<'_>) {
        let epoch = self.standing.epoch();
        if epoch.is_some_and(|epoch| epoch.number() != contact.epoch().number()) {
            say!(
                self.folder.session(),
                Debug,
                "{}: queueing again in a new session",
                self.folder.path()
            );
            self.give_up();
        }
    }

    /// The nodes of a place that was entered.
    pub(super) fn nodes(&self) -> &[Created] {
        match &self.standing {
            Standing::Queued { nodes, .. } => nodes,
            _ => unreachable!("entered before"),
        }
    }

    /// The names of our nodes, as far as they are known.
    pub(super) fn names(&self) -> HashSet<&str> {
        match &self.standing {
            Standing::Queued { nodes, .. } => {
                nodes.iter().map(|node| split(&node.path).1).collect()
            }
            _ => HashSet::new(),
        }
    }

    /// Somebody removed a node of ours that waits: all that is left of this place goes.
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
        self.give_up();
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
        claim: &Claim<'_>,
        watch: Option<&Watch>,
    ) -> Step<Listed> {
        self.come_to(contact);
        self.make_sure(contact)?;
        let mut made_folder = false;
        loop {
            let standing = match &self.standing {
                Standing::Queued { nodes, .. } => nodes.len(),
                _ => 0,
            };
            if standing >= claim.count {
                let children = match watch {
                    Some(watch) => self.folder.list_and_watch(contact, watch),
                    None => self.folder.list(contact),
                }?;
                return Ok(self.listed(children, made_folder));
            }
            let missing = claim.count - standing;
            let at_once = missing.min(self.folder.creates_at_once(claim.data.len()));
            let names: Vec<_> = (0..at_once)
                .map(|_| self.folder.fresh_name(class))
                .collect();
            if at_once < missing {
                match self.create_some(contact, class, claim, names) {
                    Err(CallError::Refused(Refusal::NoNode)) => {}
                    done => {
                        done?;
                        continue;
                    }
                }
                self.make_folder(contact)?;
                made_folder = true;
                continue;
            }
            let entered = contact.create_and_list(
                self.folder.path().as_str(),
                &names,
                &claim.data,
                self.folder.grammar().mode(class),
                self.folder.batching(),
                watch,
            )?;
            match self.note_created(contact, names, entered.created) {
                Ok(()) => {
                    self.folder.seen(true);
                    self.refuse_unreadable()?;
                    (claim.entered)(split(&self.nodes()[0].path).1);
                    let children = found(entered.listed)?;
                    return Ok(self.listed(children, made_folder));
                }
                Err(CallError::Refused(Refusal::NoNode)) => {
                    self.make_folder(contact)?;
                    made_folder = true;
                }
                // Asks again in the words that the backend now uses.
                Err(CallError::Refused(Refusal::Unknown)) => {}
                Err(error) => return Err(self.folder.failed(error)),
            }
        }
    }

    /// Creates some of the nodes that were asked for. The rest, and the list, come after them.
    fn create_some(
        &mut self,
        contact: &Contact<'_>,
        class: Class,
        claim: &Claim<'_>,
        names: Vec<String>,
    ) -> Step<()> {
        let created = contact.create_all(
            self.folder.path().as_str(),
            &names,
            &claim.data,
            self.folder.grammar().mode(class),
            self.folder.batching(),
        )?;
        match self.note_created(contact, names, created) {
            Ok(()) => {
                self.folder.seen(true);
                self.refuse_unreadable()
            }
            // Asks again in the words that the backend now uses.
            Err(CallError::Refused(Refusal::Unknown)) => Ok(()),
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
        claim: &Claim<'_>,
    ) -> Step<bool> {
        let name = self.folder.fresh_name(class);
        let path = self.folder.child(&name);
        let created = contact.create(&path, &claim.data, self.folder.grammar().mode(class));
        match self.note_created(contact, vec![name], vec![created]) {
            Ok(()) => {
                self.folder.seen(true);
                self.refuse_unreadable()?;
                (claim.entered)(split(&self.nodes()[0].path).1);
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
        let paths = self.nodes().iter().map(|node| &node.path);
        let mut unreadable = paths.filter(|path| grammar.parse(split(path).1).is_none());
        let Some(path) = unreadable.next() else {
            return Ok(());
        };
        let error = Error::refused(format!(
            "{path}: the server gave it a number beyond 2147483647, where ZooKeeper's numbers end; \
             remove the folder while nobody uses it, and numbers begin again"
        ));
        self.withdraw();
        Err(CallError::Left(error))
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
        let mut nodes = match std::mem::take(&mut self.standing) {
            Standing::Queued { nodes, .. } => nodes,
            _ => Vec::new(),
        };
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
            self.unsure(unsure, nodes, contact);
        } else if !nodes.is_empty() {
            self.queued(nodes, contact);
        }
        result
    }

    fn queued(&mut self, nodes: Vec<Created>, contact: &Contact<'_>) {
        let epoch = Arc::clone(contact.epoch());
        self.standing = Standing::Queued { nodes, epoch };
    }

    pub(super) fn unsure(
        &mut self,
        creates: Vec<Create>,
        nodes: Vec<Created>,
        contact: &Contact<'_>,
    ) {
        self.standing = Standing::Unsure {
            creates,
            nodes,
            epoch: Arc::clone(contact.epoch()),
        };
    }

    /// By what a plain node of ours is known whose create was not answered, or not yet confirmed.
    pub(super) fn unsure_proof(&self) -> Option<&Proof> {
        match &self.standing {
            Standing::Unsure { creates, .. } => creates.iter().find_map(|create| match create {
                Create::Plain(proof) => Some(proof),
                Create::Name(_) => None,
            }),
            _ => None,
        }
    }

    /// Finds out what became of creates that were not answered.
    fn make_sure(&mut self, contact: &Contact<'_>) -> Step<()> {
        let Standing::Unsure { creates, nodes, .. } = &self.standing else {
            return Ok(());
        };
        let mut nodes = nodes.clone();
        let names = creates.iter().filter_map(|create| match create {
            Create::Name(name) => Some(name.as_str()),
            Create::Plain(_) => None,
        });
        let names: Vec<_> = names.collect();
        nodes.extend(self.folder.find_all(contact, &names)?);
        self.queued(nodes, contact);
        Ok(())
    }
}

/// What [`Place::enter_and_list`] came to.
pub(super) struct Listed {
    /// `None` if the folder is gone, and with it our place.
    pub(super) children: Option<Children>,
    /// The folder had to be made.
    pub(super) made_folder: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// What is known about others who wait for what we hold.
pub(crate) enum OthersWaiting {
    /// Nothing: nobody has looked, or something changed since. The watch has no further use, and
    /// goes when our node does.
    Unknown(Option<Watch>),
    /// When we looked nobody did, and the watch that was left with that look tells of any change.
    No(Watch),
    /// Somebody waits.
    Yes(Option<Watch>),
}

impl OthersWaiting {
    /// Our node was deleted: that has fired the watch on the folder.
    pub(super) fn forget(self) {
        if let Self::No(watch) | Self::Unknown(Some(watch)) | Self::Yes(Some(watch)) = self {
            watch.forget();
        }
    }
}

/// What was acquired.
pub(crate) struct Won {
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) news: OthersWaiting,
}

impl Won {
    /// Nobody has looked for others.
    pub(super) fn without_news(tenure: Arc<Tenure>) -> Self {
        Self {
            tenure,
            news: OthersWaiting::Unknown(None),
        }
    }
}
