//! What an acquire asks for, where it stands, and what it wins.

use std::sync::Arc;

use crate::link::Epoch;
use crate::session::WatchGuard;
use crate::tenure::Tenure;
use crate::wait::position::Reporter;

/// What one acquire asks for.
pub(crate) struct Claim<'a> {
    /// What our nodes hold for others to read.
    pub(crate) data: Arc<[u8]>,
    /// How many nodes; more than one for leases only.
    pub(crate) count: usize,
    /// A win comes with news of others, if that costs nothing extra.
    pub(crate) curious: bool,
    /// Who wants to know how many are ahead.
    pub(crate) reporter: Option<&'a Reporter>,
    /// Is told the name of our node once it stands in the queue.
    pub(crate) entered: &'a dyn Fn(&str),
    /// Is told when the folder was missing.
    pub(crate) new_folder: &'a dyn Fn(),
}

impl Claim<'_> {
    /// For one node, and nothing else.
    pub(crate) fn plain(data: Arc<[u8]>) -> Self {
        Self {
            data,
            count: 1,
            curious: false,
            reporter: None,
            entered: &|_| {},
            new_folder: &|| {},
        }
    }
}

/// Where an acquire stands in the global queue. It outlives the thread that took it: when that
/// thread gives up, the next local one goes on from here.
#[derive(Default)]
pub(crate) enum Place {
    #[default]
    Nowhere,
    /// A create was sent and not answered.
    Unsure {
        create: Create,
        /// Those that were created before.
        nodes: Vec<String>,
        epoch: Arc<Epoch>,
    },
    /// Our nodes, by path, were created in this epoch.
    Queued {
        nodes: Vec<String>,
        epoch: Arc<Epoch>,
    },
}

/// By what we recognise what a lost create has made.
pub(crate) enum Create {
    /// The child's name begins with it; it holds a fresh GUID.
    Prefix(String),
    /// The node's data; it holds a fresh GUID.
    Data(Arc<[u8]>),
}

impl Place {
    pub(super) fn epoch(&self) -> Option<&Arc<Epoch>> {
        match self {
            Self::Nowhere => None,
            Self::Unsure { epoch, .. } | Self::Queued { epoch, .. } => Some(epoch),
        }
    }

    /// The nodes of a place that was entered.
    pub(super) fn queued(&self) -> (&[String], &Arc<Epoch>) {
        match self {
            Self::Queued { nodes, epoch } => (nodes, epoch),
            _ => unreachable!("entered before"),
        }
    }
}

/// The watches that an acquire has left. They outlive the step that left them: see
/// [`WatchGuard::instead_of`].
#[derive(Default)]
pub(super) struct Watching {
    /// On the folder, for its children.
    pub(super) folder: Option<WatchGuard>,
    /// On the node that is waited for.
    pub(super) node: Option<WatchGuard>,
}

/// What is known about others who wait for what we hold.
pub(crate) enum News {
    /// Nothing: nobody has looked, or something changed since. The watch has no further use, and
    /// goes when our node does.
    Unknown(Option<WatchGuard>),
    /// When we looked nobody did, and the watch that was left with that look tells of any change.
    Alone(WatchGuard),
    /// Somebody waits.
    Company(Option<WatchGuard>),
}

impl News {
    /// Our node was deleted: that has fired the watch on the folder.
    pub(super) fn forget(self) {
        if let Self::Alone(watch) | Self::Unknown(Some(watch)) | Self::Company(Some(watch)) = self {
            watch.forget();
        }
    }
}

/// What was acquired.
pub(crate) struct Won {
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) news: News,
}
