//! Requests of our own in the link's words, and the answers to them in the engine's.

use std::sync::Arc;
use std::time::Instant;

use super::acl::Acl;
use super::backend::{
    self, Answer, Change, Changed, Created, NoReply, NotNow, NotOpen, Refusal, Reply, Request,
    WatchKind,
};
use super::refusal::Asked;
use crate::link::known::Known;
use crate::link::voice::{self, Company, NotSent};
use crate::link::{Link, codec};
use crate::sync::Mutex;
use crate::znode::node::{NodeMode, NodeStat};

/// After so many breaks in a row that met the same request, that request is taken for their cause.
const MOST_BREAKS: u32 = 3;

/// Knows the chroot, the ACL, and which words the servers do not know.
pub(super) struct Speaker {
    chroot: Arc<str>,
    acl: Arc<[codec::Access]>,
    /// Of `create2`, which came with 3.5. Where it is not known, a plain create is used, and the
    /// transaction of a node asked for when it is wanted.
    create2: Arc<Mutex<Known>>,
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
            create2: Arc::default(),
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

    fn new_node(&self, path: &str, data: &[u8], mode: NodeMode) -> codec::NewNode {
        codec::NewNode {
            path: self.full(path),
            data: data.to_vec(),
            acl: Arc::clone(&self.acl),
            mode: match mode {
                NodeMode::Persistent => codec::CreateMode::Persistent,
                NodeMode::Ephemeral => codec::CreateMode::Ephemeral,
                NodeMode::EphemeralSequential => codec::CreateMode::EphemeralSequential,
            },
        }
    }

    fn create(
        &self,
        path: &str,
        data: &[u8],
        mode: NodeMode,
        is_harmless: impl FnOnce() -> bool,
    ) -> codec::Request {
        let node = self.new_node(path, data, mode);
        // Nobody needs the transaction that created a folder.
        let wants_stat = mode != NodeMode::Persistent;
        if wants_stat && self.create2.lock().may_ask(Instant::now(), is_harmless) {
            codec::Request::Create2(node)
        } else {
            codec::Request::Create(node)
        }
    }

    /// `is_harmless`: a server that hangs up on it would cost nobody a lock.
    pub(super) fn say(
        &self,
        request: &Request,
        is_harmless: impl FnOnce() -> bool,
    ) -> codec::Request {
        match request {
            Request::Create { path, data, mode } => self.create(path, data, *mode, is_harmless),
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
            Request::Multi(changes) => {
                codec::Request::Multi(changes.iter().map(|one| self.say_change(one)).collect())
            }
            Request::Sync { path } => codec::Request::Sync {
                path: self.full(path),
            },
            Request::MakeRoot => unreachable!("made by the crate"),
        }
    }

    fn say_change(&self, change: &Change) -> codec::Step {
        match change {
            // A create2 would not always be answered with the stat.
            Change::Create { path, data, mode } => {
                codec::Step::Create(self.new_node(path, data, *mode))
            }
            Change::Delete { path, version } => codec::Step::Delete {
                path: self.full(path),
                version: *version,
            },
            Change::Set {
                path,
                data,
                version,
            } => codec::Step::SetData {
                path: self.full(path),
                data: data.to_vec(),
                version: *version,
            },
            Change::Check { path, version } => codec::Step::Check {
                path: self.full(path),
                version: *version,
            },
        }
    }
}

fn strip(chroot: &str, path: &str) -> String {
    path.strip_prefix(chroot).unwrap_or(path).to_owned()
}

/// Brings the link's answers to the caller's slot.
pub(super) struct Answers {
    slot: Arc<dyn backend::Slot>,
    chroot: Arc<str>,
    create2: Arc<Mutex<Known>>,
    connection: u64,
    kinds: Vec<Kind>,
}

/// What must be known of a request to read its answer.
#[derive(Clone, Copy)]
struct Kind {
    asked: Asked,
    said: Said,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    /// A missing node is an answer to it.
    Stat,
    Create2,
    Other,
}

impl Answers {
    pub(super) fn new(
        slot: Arc<dyn backend::Slot>,
        requests: &[Request],
        said: &[codec::Request],
        connection: u64,
        speaker: &Speaker,
    ) -> Arc<Self> {
        let kinds = requests.iter().zip(said).map(|(request, said)| Kind {
            asked: request.asked(),
            said: match said {
                codec::Request::Exists { .. } => Said::Stat,
                codec::Request::Create2(_) => Said::Create2,
                _ => Said::Other,
            },
        });
        Arc::new(Self {
            slot,
            chroot: Arc::clone(&speaker.chroot),
            create2: Arc::clone(&speaker.create2),
            connection,
            kinds: kinds.collect(),
        })
    }

    pub(super) fn submit(
        self: Arc<Self>,
        link: &Link,
        requests: &[codec::Request],
        company: Company,
    ) -> Result<(), NotOpen> {
        let slot: Arc<dyn voice::Slot> = self.clone();
        match link.submit(self.connection, requests, company, slot) {
            Ok(()) => Ok(()),
            Err(NotSent::NotOpen) => Err(NotOpen),
            Err(why) => {
                let why = match why {
                    // It is an answer: no connection would take it.
                    // Nor, at this rate, would the network.
                    NotSent::TooLarge { .. } | NotSent::TooSlow { .. } => {
                        NoReply::Refused(Refusal::TooLarge(why.to_string()))
                    }
                    _ => NoReply::NotNow(NotNow::Backlogged(why.to_string())),
                };
                let answer = || Answer {
                    result: Err(why.clone()),
                    events_before: 0,
                };
                self.slot
                    .answered(requests.iter().map(|_| answer()).collect());
                Ok(())
            }
        }
    }

    fn translate(&self, answer: voice::Answer, kind: Kind) -> Result<Reply, NoReply> {
        match answer {
            voice::Answer::Done(codec::Reply::Aborted { step, error }) => {
                match NoReply::of(kind.asked, error) {
                    NoReply::Refused(refusal) => Ok(Reply::Aborted {
                        index: step,
                        refusal,
                    }),
                    not_now => Err(not_now),
                }
            }
            voice::Answer::Done(reply) => {
                // In company it is said as a plain create.
                if let codec::Reply::CreatedWithStat(..) = reply {
                    self.create2.lock().answered(self.connection);
                }
                Ok(self.reply(reply))
            }
            voice::Answer::Refused(codec::ServerError::NoNode) if kind.said == Said::Stat => {
                Ok(Reply::Stat(None))
            }
            voice::Answer::Refused(error) => {
                if error == codec::ServerError::Unimplemented && kind.said == Said::Create2 {
                    self.create2.lock().refused(Instant::now());
                    return Err(NoReply::Refused(Refusal::Unknown));
                }
                Err(NoReply::of(kind.asked, error))
            }
            voice::Answer::Lost(lost) => {
                // An old server hangs up on what it does not know. Should it have been something
                // else, a plain create does as well.
                let is_unknown = kind.said == Said::Create2
                    && lost.breaks > 0
                    && self.create2.lock().hung_up(self.connection, Instant::now());
                if lost.breaks < MOST_BREAKS || is_unknown {
                    return Err(NoReply::Lost);
                }
                Err(NoReply::Poison {
                    bytes: lost.bytes,
                    breaks: lost.breaks,
                })
            }
        }
    }

    fn reply(&self, reply: codec::Reply) -> Reply {
        match reply {
            codec::Reply::Created(path) => Reply::Created(self.created(&path, None)),
            codec::Reply::CreatedWithStat(path, stat) => {
                Reply::Created(self.created(&path, Some(stat.czxid)))
            }
            codec::Reply::Stat(stat) => Reply::Stat(Some(stat.into())),
            codec::Reply::Data(data, stat) => Reply::Data(data, stat.into()),
            codec::Reply::Children(names) => Reply::Children(names),
            codec::Reply::Multi(steps) => {
                Reply::Multi(steps.into_iter().map(|step| self.changed(step)).collect())
            }
            codec::Reply::Aborted { .. } => unreachable!("translated before"),
            codec::Reply::Lists(_) => unreachable!("shared out before"),
            codec::Reply::Done | codec::Reply::Synced => Reply::Done,
        }
    }

    fn changed(&self, step: codec::StepReply) -> Changed {
        match step {
            codec::StepReply::Created(path) => Changed::Created(self.created(&path, None)),
            codec::StepReply::CreatedWithStat(path, stat) => {
                Changed::Created(self.created(&path, Some(stat.czxid)))
            }
            codec::StepReply::Done => Changed::Done,
            codec::StepReply::Stat(stat) => Changed::Set(stat.into()),
        }
    }

    fn created(&self, path: &str, czxid: Option<i64>) -> Created {
        Created {
            path: strip(&self.chroot, path),
            czxid,
        }
    }
}

impl voice::Slot for Answers {
    fn answered(&self, answers: Vec<voice::Answer>, events_before: Vec<u64>) {
        let each = answers.into_iter().zip(events_before).zip(&self.kinds);
        let answers = each.map(|((answer, events_before), kind)| Answer {
            result: self.translate(answer, *kind),
            events_before,
        });
        self.slot.answered(answers.collect());
    }
}

impl From<codec::Stat> for NodeStat {
    fn from(stat: codec::Stat) -> Self {
        Self {
            czxid: stat.czxid,
            ctime: stat.ctime,
            ephemeral_owner: stat.ephemeral_owner,
            version: stat.version,
            child_changes: stat.cversion,
            children: stat.num_children,
            data_bytes: stat.data_length,
        }
    }
}
