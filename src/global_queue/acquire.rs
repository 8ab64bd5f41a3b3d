//! The request of an acquire, and its outcome.

use std::sync::Arc;

use crate::session::Watch;
use crate::tenure::Tenure;
use crate::wait::position::Reporter;

/// The request of one acquire.
pub(crate) struct AcquireRequest<'a> {
    /// The data of our nodes, for others to read.
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

impl AcquireRequest<'_> {
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

/// News of others who wait for what we hold.
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

/// The outcome of an acquire: we hold.
pub(crate) struct Acquisition {
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) news: OthersWaiting,
}

impl Acquisition {
    /// Nobody has looked for others.
    pub(super) fn without_news(tenure: Arc<Tenure>) -> Self {
        Self {
            tenure,
            news: OthersWaiting::Unknown(None),
        }
    }
}
