//! Waiting for the one ahead, and taking over from it.

use zklock_protocol::WatchKind;

use crate::session::observe::say;
use std::sync::Arc;

use super::acquire::Acquisition;
use super::queue::Attempt;
use crate::session::{CallError, Contact, Step, Wake, Watch, found};
use crate::tenure::{NewTenure, Tenure};
use crate::znode::identity::Identity;

impl Attempt<'_> {
    /// Waits for a change of the node just ahead.
    pub(super) fn wait_for(
        &mut self,
        contact: &Contact<'_>,
        on: &str,
        is_only_one: bool,
    ) -> Step<Option<Acquisition>> {
        let path = self.queue.folder.child(on);
        let wake = Wake::Signal(Arc::clone(contact.signal()));
        let ahead = Watch::new(contact, &path, WatchKind::DATA, Some(wake));
        let ahead = self.node_watch.insert(ahead);
        let Some((data, _)) = found(contact.watch_data(ahead))? else {
            // It went since the list.
            return Ok(None);
        };
        (self.request.behind)();
        // A waiter that may take over sends nothing before it holds. Those further back, and those
        // who list again first, make one write if they must when it is their turn: thousands who
        // wait are not to write all the time.
        let _proof = is_only_one.then(|| contact.want_proof(&self.contender.nodes()[0].path));
        let until = self.queue.look_again_behind(on, is_only_one);
        let slept = contact.sleep_on(ahead, until);
        slept.map_err(|error| self.naming(error, on, &data))?;
        if is_only_one {
            self.take_over(contact)
        } else {
            Ok(None)
        }
    }

    /// A wait for the node `on` that has lasted too long: its error says who has made that node.
    fn naming(&self, error: CallError, on: &str, data: &[u8]) -> CallError {
        match error {
            CallError::Left(error) if error.is_timeout() => {
                // Data of any other kind is its owner's affair.
                let who = Identity::parse(data).map_or_else(|| on.to_owned(), |who| who.in_words());
                let path = self.queue.folder.path();
                CallError::Left(error.context(format!("{path}, behind {who}")))
            }
            other => other,
        }
    }

    /// Takes over from the node ahead without another list, if that is proven.
    ///
    /// The proof. When we listed, on this connection, our node was there and exactly one contender
    /// kept us waiting. That list left a watch on the folder, which fires at the first child that
    /// comes or goes. The server sends events in the order of its changes, and for a deletion
    /// first to the watch on the node, then to the one on its folder. So if the deletion of the
    /// node ahead is the first that we hear, no child of the folder had come or gone before it,
    /// ours included: at that moment nobody kept us waiting. Later contenders get larger numbers;
    /// the one exception, a writer that becomes a reader in its old place, makes its reader's node
    /// before the writer's goes.
    ///
    /// The silence of the folder's watch proves something only if the watch is there: not if a
    /// removal was on its way when we left ours, on behalf of a waiter that had given up, which
    /// may have taken it off ([`Watch::is_sure`]).
    ///
    /// Since then we hold, and what can take it away is what can from any holder: the session's
    /// end (the lease is looked at, here and at every later look at the lock), and a removal by
    /// hand during a break of the connection, which each reconnect looks for. Hence the
    /// connection must still be the same; a tenure begins on no other.
    fn take_over(&mut self, contact: &Contact<'_>) -> Step<Option<Acquisition>> {
        let (Some(node), Some(folder)) = (&self.node_watch, &self.folder_watch) else {
            return Ok(None);
        };
        let Some(deleted) = node.state().deleted_at() else {
            return Ok(None);
        };
        let proven = folder.is_sure(contact)
            && folder.state().is_silent_before(deleted)
            && contact.epoch().is_alive();
        if !proven {
            return Ok(None);
        }
        let Some(tenure) = Tenure::begin(contact, NewTenure::of(self.contender.nodes()))? else {
            return Ok(None);
        };
        self.contender.disown();
        say!(
            tenure.session(),
            Debug,
            "{}: acquired from the one ahead",
            tenure.node()
        );
        // The deletion has fired the watch on the folder; its event is on the way.
        if let Some(folder) = self.folder_watch.take() {
            folder.forget();
        }
        Ok(Some(Acquisition::without_news(tenure)))
    }
}
