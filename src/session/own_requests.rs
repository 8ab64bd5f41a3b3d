//! Requests of our own in the link's words, and the answers to them in the engine's.

use std::sync::Arc;

use super::acl::Acl;
use super::backend::{self, Answer, NoReply, NotOpen, Refusal, Reply, Request, WatchKind};
use crate::link::voice::{self, NotSent};
use crate::link::{Link, codec};
use crate::znode::node::{NodeMode, NodeStat};

/// From so many breaks on, each of which met the same request, it is the request that breaks the
/// connection.
const MOST_BREAKS: u32 = 3;

/// Knows the chroot and the ACL.
pub(super) struct Speaker {
    chroot: Arc<str>,
    acl: Arc<[codec::Access]>,
}

impl Speaker {
    pub(super) fn new(chroot: String, acl: &Acl) -> Self {
        let entries = acl.0.iter().map(|entry| codec::Access {
            permissions: i32::try_from(entry.permissions.0).expect("five bits"),
            scheme: entry.scheme.clone(),
            id: entry.id.clone(),
        });
        Self {
            chroot: chroot.into(),
            acl: entries.collect(),
        }
    }

    pub(super) fn chroot(&self) -> &str {
        &self.chroot
    }

    /// From the root of the ensemble.
    pub(super) fn full(&self, path: &str) -> String {
        match path {
            "/" if !self.chroot.is_empty() => self.chroot.to_string(),
            path => format!("{}{path}", self.chroot),
        }
    }

    /// Without the chroot.
    pub(super) fn stripped(&self, path: &str) -> String {
        strip(&self.chroot, path)
    }

    pub(super) fn say(&self, request: &Request) -> codec::Request {
        match request {
            Request::Create { path, data, mode } => codec::Request::Create(codec::NewNode {
                path: self.full(path),
                data: data.to_vec(),
                acl: Arc::clone(&self.acl),
                mode: match mode {
                    NodeMode::Persistent => codec::CreateMode::Persistent,
                    NodeMode::Ephemeral => codec::CreateMode::Ephemeral,
                    NodeMode::EphemeralSequential => codec::CreateMode::EphemeralSequential,
                },
            }),
            Request::Delete { path, version } => codec::Request::Delete {
                path: self.full(path),
                version: *version,
            },
            Request::Children { path, watch } => codec::Request::GetChildren {
                path: self.full(path),
                watch: *watch,
            },
            Request::Data { path, watch } => codec::Request::GetData {
                path: self.full(path),
                watch: *watch,
            },
            Request::Set {
                path,
                data,
                version,
            } => codec::Request::SetData {
                path: self.full(path),
                data: data.to_vec(),
                version: *version,
            },
            Request::Stat { path, watch } => codec::Request::Exists {
                path: self.full(path),
                watch: *watch,
            },
            Request::Unwatch { path, kind } => codec::Request::RemoveWatches {
                path: self.full(path),
                kind: match kind {
                    WatchKind::Data => codec::WatchKind::Data,
                    WatchKind::Children => codec::WatchKind::Children,
                },
            },
            Request::MakeRoot => unreachable!("made by the crate"),
        }
    }
}

fn strip(chroot: &str, path: &str) -> String {
    path.strip_prefix(chroot).unwrap_or(path).to_owned()
}

/// Brings the link's answers to the slot of the one who asked.
pub(super) struct Answers {
    slot: Arc<dyn backend::Slot>,
    chroot: Arc<str>,
    /// For each request, whether a missing node is an answer to it.
    may_be_missing: Vec<bool>,
}

impl Answers {
    pub(super) fn new(
        slot: Arc<dyn backend::Slot>,
        requests: &[Request],
        speaker: &Speaker,
    ) -> Arc<Self> {
        let missing = requests
            .iter()
            .map(|one| matches!(one, Request::Stat { .. }));
        Arc::new(Self {
            slot,
            chroot: Arc::clone(&speaker.chroot),
            may_be_missing: missing.collect(),
        })
    }

    pub(super) fn submit(
        self: Arc<Self>,
        link: &Link,
        connection: u64,
        requests: &[codec::Request],
    ) -> Result<(), NotOpen> {
        let slot: Arc<dyn voice::Slot> = self.clone();
        match link.submit(connection, requests, slot) {
            Ok(()) => Ok(()),
            Err(NotSent::NotOpen) => Err(NotOpen),
            // It is an answer: no connection would take it.
            Err(why) => {
                let refuse = || Answer {
                    result: Err(NoReply::Refused(Refusal::NotSent(why.to_string()))),
                    events_before: 0,
                };
                self.slot
                    .answered(requests.iter().map(|_| refuse()).collect());
                Ok(())
            }
        }
    }

    fn translate(&self, answer: voice::Answer, may_be_missing: bool) -> Result<Reply, NoReply> {
        match answer {
            voice::Answer::Done(reply) => Ok(self.reply(reply)),
            voice::Answer::Refused(codec::ServerError::NoNode) if may_be_missing => {
                Ok(Reply::Stat(None))
            }
            voice::Answer::Refused(error) => Err(refusal(error)),
            voice::Answer::Lost(lost) if lost.breaks >= MOST_BREAKS => Err(NoReply::Poison {
                bytes: lost.bytes,
                breaks: lost.breaks,
            }),
            voice::Answer::Lost(_) => Err(NoReply::Lost),
        }
    }

    fn reply(&self, reply: codec::Reply) -> Reply {
        match reply {
            codec::Reply::Created(path) | codec::Reply::CreatedWithStat(path, _) => {
                Reply::Path(strip(&self.chroot, &path))
            }
            codec::Reply::Stat(stat) => Reply::Stat(Some(stat.into())),
            codec::Reply::Data(data, stat) => Reply::Data(data, stat.into()),
            codec::Reply::Children(names) | codec::Reply::ChildrenWithStat(names, _) => {
                Reply::Children(names)
            }
            codec::Reply::Done
            | codec::Reply::Synced
            | codec::Reply::Multi(_)
            | codec::Reply::Aborted { .. } => Reply::Done,
        }
    }
}

impl voice::Slot for Answers {
    fn answered(&self, answers: Vec<voice::Answer>, events_before: Vec<u64>) {
        let each = answers
            .into_iter()
            .zip(events_before)
            .zip(&self.may_be_missing);
        let answers = each.map(|((answer, events_before), may_be_missing)| Answer {
            result: self.translate(answer, *may_be_missing),
            events_before,
        });
        self.slot.answered(answers.collect());
    }
}

fn refusal(error: codec::ServerError) -> NoReply {
    use codec::ServerError as E;
    NoReply::Refused(match error {
        // An expired or moved session answers nothing any more; the link sees to a new connection,
        // and what this call did is as unknown as after a break.
        E::ConnectionLoss | E::SessionExpired | E::SessionMoved => return NoReply::Lost,
        E::NoNode => Refusal::NoNode,
        E::NodeExists => Refusal::NodeExists,
        E::NotEmpty => Refusal::NotEmpty,
        E::NoChildrenForEphemerals => Refusal::EphemeralParent,
        E::NoAuth => Refusal::NoAuth,
        E::AuthFailed => Refusal::AuthFailed,
        E::InvalidAcl => Refusal::InvalidAcl,
        E::BadArguments => Refusal::BadArguments,
        E::BadVersion => Refusal::BadVersion,
        E::NoWatch => Refusal::NoWatch,
        error => Refusal::Other(error.to_string()),
    })
}

impl From<codec::Stat> for NodeStat {
    fn from(stat: codec::Stat) -> Self {
        Self {
            czxid: stat.czxid,
            ephemeral_owner: stat.ephemeral_owner,
            version: stat.version,
            child_changes: stat.cversion,
            children: stat.num_children,
            data_bytes: stat.data_length,
        }
    }
}
