//! A writer that becomes a reader in its old place.

use std::sync::Arc;

use zklock_protocol::{Children, CreateMode};

use super::acquire::Acquisition;
use super::queue::GlobalQueue;
use crate::error::{Error, Result};
use crate::session::{Batching, CallError, Contact, Orphan, Refusal, Step, Waiter, found};
use crate::tenure::{NewTenure, Tenure};
use crate::znode::path::split;
use crate::znode::sequence::Sequence;
use crate::znode::verdict::{Rule, TieOrder, Verdict, verdict_by};

/// From here to the end of the range no place can be kept: a writer behind us could be past the
/// end, where only the order of creation tells, and our reader's node is younger than it.
const LAST_PLACE: Sequence = Sequence(2_000_000_000);

impl GlobalQueue {
    /// Makes a reader's node in the place of the writer's, which this thread holds: a plain node
    /// that ends in the writer's number, as Curator makes it. Whoever waits for the writer then
    /// finds the reader when it looks again; so no writer gets in when the writer's node goes.
    pub(crate) fn stand_in_for(
        &self,
        writer: &Tenure,
        waiter: &Waiter<'_>,
        data: &Arc<[u8]>,
    ) -> Result<Acquisition> {
        let number = self.place_to_keep(writer)?;
        self.folder.retry(waiter, |contact| {
            self.stand_in_once(writer, contact, data, number)
        })
    }

    /// As [`GlobalQueue::stand_in_for`], on the connection that is open now and on no other.
    pub(crate) fn try_to_stand_in_for(
        &self,
        writer: &Tenure,
        waiter: &Waiter<'_>,
        data: &Arc<[u8]>,
    ) -> Result<Acquisition> {
        let number = self.place_to_keep(writer)?;
        let stood = waiter.contact_now().and_then(|contact| {
            // Once more for a server that did not know the words of the first.
            for _ in 0..2 {
                let acquired = self.stand_in_once(writer, &contact, data, number)?;
                if let Some(acquired) = acquired {
                    return Ok(acquired);
                }
            }
            // The connection is gone, or proves nothing.
            Err(CallError::Unknown)
        });
        stood.map_err(|error| self.folder.failure(error))
    }

    /// The writer's number, if a reader can have it.
    fn place_to_keep(&self, writer: &Tenure) -> Result<Sequence> {
        let folder = self.folder.path();
        let (_, written) = split(writer.node());
        let contender = self.folder.grammar().parse(written);
        let number = contender.expect("a writer of this folder").sequence;
        if number.is_past_the_end() || number.0 >= LAST_PLACE.0 {
            return Err(Error::refused(format!(
                "{folder}: number {number} is too near the end of the range for a downgrade; \
                 give the write lock back and read, and have the folder deleted when it is idle"
            )));
        }
        Ok(number)
    }

    fn stand_in_once(
        &self,
        writer: &Tenure,
        contact: &Contact<'_>,
        data: &Arc<[u8]>,
        number: Sequence,
    ) -> Step<Option<Acquisition>> {
        if writer.is_lost() {
            return Err(CallError::Left(writer.loss()));
        }
        writer.stands_on(contact)?;
        self.read_in_place_of(writer, contact, data, number)
    }

    fn read_in_place_of(
        &self,
        writer: &Tenure,
        contact: &Contact<'_>,
        data: &Arc<[u8]>,
        number: Sequence,
    ) -> Step<Option<Acquisition>> {
        // The reader's own transaction is younger than those of writers who wait, so its token
        // would be larger than theirs.
        let token = writer.token_by(contact)?;
        let prefix = self.folder.fresh_name(self.class);
        let path = self.folder.child(&format!("{prefix}{number}"));
        let orphan = || {
            let path = path.clone();
            let orphan = Orphan::Node { path };
            contact.session().reap(orphan, contact.epoch());
        };
        let name = split(&path).1.to_owned();
        let folder = self.folder.path().as_str();
        let entered = contact.create_and_list(
            folder,
            &[name],
            data,
            CreateMode::EPHEMERAL,
            Batching::Never,
            None,
        )?;
        match entered
            .created
            .into_iter()
            .next()
            .expect("one for each name")
        {
            Ok(_) => {}
            // Asks again in the words that the backend now uses.
            Err(CallError::Refused(Refusal::Unknown)) => return Ok(None),
            Err(error) => {
                if error.may_be_done() {
                    orphan();
                }
                return Err(error);
            }
        }
        let listed = found(entered.listed);
        let seen = listed.and_then(|children| self.see_both(&path, writer, children));
        let new = NewTenure {
            nodes: vec![path.clone()],
            token: Some(token),
            made: None,
        };
        let tenure = seen.and_then(|()| Tenure::begin(contact, new));
        if let Ok(Some(_)) = &tenure {
            // Before this thread can release the writer: another thread of this process must
            // not get it handed over beside the reader.
            writer.end_with_this_turn();
        } else {
            orphan();
        }
        Ok(tenure?.map(Acquisition::without_news))
    }

    /// Sees that the writer still holds, and that the reader's node is there.
    fn see_both(&self, path: &str, writer: &Tenure, children: Option<Children>) -> Step<()> {
        let (_, written) = split(writer.node());
        let grammar = self.folder.grammar();
        let children = children.unwrap_or_default();
        let reads = children.iter().any(|child| child == split(path).1);
        // Those who stand in for the writer have its number, which would be a tie: this one, and
        // any that an attempt before the last break of the connection has made.
        let number = |name: &str| grammar.parse(name).map(|other| other.sequence);
        let others = |child: &&str| *child == written || number(child) != number(written);
        let children: Children = children.iter().filter(others).collect();
        let ties = TieOrder::default();
        let verdict = verdict_by(Rule::Exclusive, grammar, written, &children, &ties);
        if reads && matches!(verdict, Verdict::Held { .. }) {
            return Ok(());
        }
        Err(CallError::Left(Error::removed(writer.node())))
    }
}
