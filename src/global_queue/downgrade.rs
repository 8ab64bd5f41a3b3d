//! A writer that becomes a reader in its old place.

use std::sync::Arc;

use super::Contest;
use super::look::children_of;
use super::place::{News, Won};
use crate::error::{Error, Result};
use crate::session::keeper::{NodeMode, Reply, Request};
use crate::session::{CallError, Contact, Orphan, Step, Waiter};
use crate::tenure::{Founding, Tenure};
use crate::znode::fencing::FencingToken;
use crate::znode::path::split;
use crate::znode::sequence::Sequence;
use crate::znode::verdict::{Rule, TieOrder, Verdict, verdict_by};

/// From here to the end of the range a place cannot be kept: a writer behind us could be past the
/// end, where only the order of creation tells, and our reader's node is younger than it.
const LAST_PLACE: Sequence = Sequence(2_000_000_000);

impl Contest {
    /// Makes a reader's node in the place of the writer's, which this thread holds: a plain node
    /// that ends in the writer's number, as Curator makes it. Whoever waits for the writer then
    /// finds the reader when it looks again; so no writer gets in when the writer's node goes.
    pub(crate) fn stand_in_for(
        &self,
        writer: &Tenure,
        waiter: &Waiter<'_>,
        data: &Arc<[u8]>,
    ) -> Result<Won> {
        // The reader's own transaction is younger than those of writers who wait, so its token
        // would be larger than theirs.
        let token = self.token_of(writer, waiter)?;
        let (folder, written) = split(writer.node());
        let contender = self
            .grammar
            .parse(written)
            .expect("a writer of this folder");
        let number = contender.sequence;
        if number.is_past_the_end() || number.0 >= LAST_PLACE.0 {
            return Err(Error::refused(format!(
                "{folder}: number {number} is too near to the end of the range for a downgrade; \
                 give the write lock back and read, and have the folder deleted when it is idle"
            )));
        }
        waiter.persist(self.folder.as_str(), |contact| {
            if contact.epoch.number() != writer.epoch().number() {
                return Err(CallError::Left(writer.loss()));
            }
            let prefix = self.grammar.prefix(uuid::Uuid::new_v4(), self.class);
            let path = self.folder.child(&format!("{prefix}{number}"));
            let orphan = |contact: &Contact| {
                let path = path.clone();
                self.session.reap(Orphan::Node { path }, &contact.epoch);
            };
            let request = Request::Create {
                path: path.clone(),
                data: Arc::clone(data),
                mode: NodeMode::Ephemeral,
            };
            let created = match waiter.call(request) {
                Ok((_, created)) => created,
                Err(CallError::Unknown(contact)) => {
                    orphan(&contact);
                    return Err(CallError::Unknown(contact));
                }
                Err(error) => return Err(error),
            };
            let won = self.see_both(&path, written, writer, token, waiter);
            if matches!(won, Ok(Some(_))) {
                // Before this thread can release the writer: another thread of this process must
                // not get it handed over beside the reader.
                writer.end_with_this_turn();
            } else {
                orphan(&created);
            }
            won
        })
    }

    fn token_of(&self, writer: &Tenure, waiter: &Waiter<'_>) -> Result<FencingToken> {
        if let Some(token) = writer.known_token() {
            return Ok(token);
        }
        waiter.persist(self.folder.as_str(), |_| {
            match waiter.call(Request::stat(writer.node()))? {
                (Reply::Stat(Some(stat)), _) if writer.is_own(&stat) => {
                    FencingToken::of(&stat).map(Some).map_err(CallError::Left)
                }
                _ => Err(CallError::Left(writer.loss())),
            }
        })
    }

    /// Sees that the writer still holds, and that the reader stands.
    fn see_both(
        &self,
        path: &str,
        written: &str,
        writer: &Tenure,
        token: FencingToken,
        waiter: &Waiter<'_>,
    ) -> Step<Option<Won>> {
        let request = Request::Children {
            path: self.folder.as_str().to_owned(),
            watch: false,
        };
        let (reply, contact) = waiter.call(request)?;
        if contact.epoch.number() != writer.epoch().number() {
            // What is listed may be the nodes of a session that has just been given up.
            return Err(CallError::Left(writer.loss()));
        }
        let mut children = children_of(reply);
        let reads = children.iter().any(|child| child == split(path).1);
        // Those who stand in for the writer have its number, which would be a tie: this one, and
        // any that an attempt before the last break of the connection has made.
        let number = |name: &str| self.grammar.parse(name).map(|other| other.sequence);
        children.retain(|child| child == written || number(child) != number(written));
        let ties = TieOrder::default();
        let verdict = verdict_by(Rule::Exclusive, &self.grammar, written, &children, &ties);
        if !reads || !matches!(verdict, Verdict::Held { .. }) {
            return Err(CallError::Left(Error::removed(writer.node())));
        }
        let founding = Founding {
            epoch: Arc::clone(writer.epoch()),
            nodes: vec![path.to_owned()],
            proven_on: contact.connection,
            token: Some(token),
            is_sole: false,
        };
        let tenure = Tenure::begin(&self.session, founding);
        Ok(tenure.map(|tenure| Won {
            tenure,
            news: News::Unknown(None),
        }))
    }
}
