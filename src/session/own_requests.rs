//! Requests of our own in the link's words, and the answers to them in the engine's.

use std::sync::Arc;
use std::time::Instant;

use zklock_protocol::{
    ANY_VERSION, Acl as WireAcl, Create, CreateForm, CreateMode, ErrorCode, Part,
    Reply as WireReply, Request as WireRequest,
};

use super::acl::Acl;
use super::backend::{
    self, Answer, Change, Changed, Created, NoReply, NotNow, NotOpen, Refusal, Reply, Request,
};
use super::refusal::Asked;
use crate::link::Link;
use crate::link::known::Known;
use crate::link::voice::{self, Company, MOST_BREAKS, NotSent};
use crate::sync::Mutex;

/// Knows the chroot, the ACL, and which words the servers do not know.
pub(super) struct Speaker {
    chroot: Arc<str>,
    acl: Arc<[WireAcl]>,
    /// Of `create2`, which came with 3.5. Where it is not known, a plain create is used, and the
    /// transaction of a node asked for when it is wanted.
    create2: Arc<Mutex<Known>>,
}

impl Speaker {
    pub(super) fn new(chroot: String, acl: &Acl) -> Self {
        let entries = acl.0.iter().map(|entry| WireAcl {
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

    /// From the root of the ensemble.
    fn full(&self, path: &str) -> String {
        match path {
            "/" if !self.chroot.is_empty() => self.chroot.to_string(),
            path => format!("{}{path}", self.chroot),
        }
    }

    fn new_node(&self, form: CreateForm, path: &str, data: &[u8], mode: CreateMode) -> WireRequest {
        WireRequest::Create(Create {
            form,
            path: self.full(path),
            data: Some(data.to_vec()),
            acl: Arc::clone(&self.acl),
            mode,
            ttl_ms: -1,
        })
    }

    fn create(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        is_harmless: impl FnOnce() -> bool,
    ) -> WireRequest {
        // Nobody needs the transaction that created a folder.
        let wants_stat = mode != CreateMode::PERSISTENT;
        if wants_stat && self.create2.lock().may_ask(Instant::now(), is_harmless) {
            self.new_node(CreateForm::Create2, path, data, mode)
        } else {
            self.new_node(CreateForm::Create, path, data, mode)
        }
    }

    /// `is_harmless`: a server that hangs up on it would cost nobody a lock.
    pub(super) fn say(&self, request: &Request, is_harmless: impl FnOnce() -> bool) -> WireRequest {
        match request {
            Request::Create { path, data, mode } => self.create(path, data, *mode, is_harmless),
            Request::Delete { path, version } => WireRequest::Delete {
                path: self.full(path),
                version: version.unwrap_or(ANY_VERSION),
            },
            Request::Children { path, watch } => WireRequest::GetChildren {
                path: self.full(path),
                watch: *watch,
            },
            Request::Data { path, watch } => WireRequest::GetData {
                path: self.full(path),
                watch: *watch,
            },
            Request::Set {
                path,
                data,
                version,
            } => WireRequest::SetData {
                path: self.full(path),
                data: Some(data.to_vec()),
                version: version.unwrap_or(ANY_VERSION),
            },
            Request::Stat { path, watch } => WireRequest::Exists {
                path: self.full(path),
                watch: *watch,
            },
            Request::Unwatch { path, kind } => WireRequest::RemoveWatches {
                path: self.full(path),
                kind: *kind,
            },
            Request::Multi(changes) => {
                WireRequest::Multi(changes.iter().map(|one| self.say_change(one)).collect())
            }
            Request::Sync { path } => WireRequest::Sync {
                path: self.full(path),
            },
            Request::MakeRoot { path } => WireRequest::Create(Create {
                form: CreateForm::Create,
                path: path.clone(),
                data: Some(Vec::new()),
                acl: Arc::clone(&self.acl),
                mode: CreateMode::PERSISTENT,
                ttl_ms: -1,
            }),
        }
    }

    fn say_change(&self, change: &Change) -> WireRequest {
        match change {
            // A create2 would not always be answered with the stat.
            Change::Create { path, data, mode } => {
                self.new_node(CreateForm::Create, path, data, *mode)
            }
            Change::Delete { path, version } => WireRequest::Delete {
                path: self.full(path),
                version: version.unwrap_or(ANY_VERSION),
            },
            Change::Set {
                path,
                data,
                version,
            } => WireRequest::SetData {
                path: self.full(path),
                data: Some(data.to_vec()),
                version: version.unwrap_or(ANY_VERSION),
            },
            Change::Check { path, version } => WireRequest::Check {
                path: self.full(path),
                version: version.unwrap_or(ANY_VERSION),
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
        said: &[WireRequest],
        connection: u64,
        speaker: &Speaker,
    ) -> Arc<Self> {
        let kinds = requests.iter().zip(said).map(|(request, said)| Kind {
            asked: request.asked(),
            said: match said {
                WireRequest::Exists { .. } => Said::Stat,
                WireRequest::Create(create) if create.form == CreateForm::Create2 => Said::Create2,
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
        requests: &[WireRequest],
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
            voice::Answer::Done(reply) => {
                // In company it is said as a plain create.
                if let WireReply::Created { .. } = reply {
                    self.create2.lock().answered(self.connection);
                }
                self.reply(reply, kind.asked)
            }
            voice::Answer::Refused(ErrorCode::NO_NODE) if kind.said == Said::Stat => {
                Ok(Reply::Stat(None))
            }
            voice::Answer::Refused(error) => {
                if error == ErrorCode::UNIMPLEMENTED && kind.said == Said::Create2 {
                    self.create2.lock().refused(Instant::now());
                    return Err(NoReply::Refused(Refusal::Unknown));
                }
                Err(NoReply::of(kind.asked, error))
            }
            voice::Answer::Lost(lost) => {
                // An old server hangs up on what it does not know. Should it have been something
                // else, a plain create does as well.
                let is_unknown = kind.said == Said::Create2
                    && lost.by_server
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

    fn reply(&self, reply: WireReply, asked: Asked) -> Result<Reply, NoReply> {
        Ok(match reply {
            WireReply::Parts(parts) => return self.changes(parts, asked),
            // Nobody asks where a sync has got to.
            WireReply::Path(_) if asked == Asked::Sync => Reply::Done,
            WireReply::Path(path) => Reply::Created(self.created(&path, None)),
            WireReply::Created { path, stat } => {
                Reply::Created(self.created(&path, Some(stat.czxid)))
            }
            WireReply::Stat(stat) => Reply::Stat(Some(stat)),
            WireReply::Data { data, stat } => Reply::Data(data.unwrap_or_default(), stat),
            WireReply::Children(names) => Reply::Children(names),
            _ => Reply::Done,
        })
    }

    fn changes(&self, parts: Vec<Part>, asked: Asked) -> Result<Reply, NoReply> {
        if let Some((index, error)) = Part::refused(&parts) {
            return match NoReply::of(asked, error) {
                NoReply::Refused(refusal) => Ok(Reply::Aborted { index, refusal }),
                not_now => Err(not_now),
            };
        }
        let changed = parts.into_iter().map(|part| match part {
            Part::Done(_, WireReply::Path(path)) => Changed::Created(self.created(&path, None)),
            Part::Done(_, WireReply::Created { path, stat }) => {
                Changed::Created(self.created(&path, Some(stat.czxid)))
            }
            Part::Done(_, WireReply::Stat(stat)) => Changed::Set(stat),
            Part::Done(..) | Part::Failed(_) => Changed::Done,
        });
        Ok(Reply::Multi(changed.collect()))
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    struct Nobody;

    impl backend::Slot for Nobody {
        fn answered(&self, _answers: Vec<Answer>) {}
    }

    /// Over a network too slow for the data of a node, two connections that we had cut were taken for
    /// two hang-ups on create2. The plain create that was sent from then on began its count of
    /// breaks anew, so that five connections broke and not three.
    #[test]
    fn a_connection_that_we_cut_says_nothing_of_what_a_server_knows() {
        let speaker = Speaker::new(String::new(), &Acl::open());
        let create = Request::Create {
            path: "/locks/a/lock-".to_owned(),
            data: Arc::from(*b"large"),
            mode: CreateMode::EPHEMERAL_SEQUENTIAL,
        };
        let said = || speaker.say(&create, || true);
        let mut connections = 1..;
        for (by_server, expected) in [(false, CreateForm::Create2), (true, CreateForm::Create)] {
            for breaks in 1..=2 {
                let connection = connections.next().expect("endless");
                let (requests, slot) = (std::slice::from_ref(&create), Arc::new(Nobody));
                let answers = Answers::new(slot, requests, &[said()], connection, &speaker);
                let lost = voice::Lost {
                    bytes: 900_000,
                    breaks,
                    by_server,
                };
                voice::Slot::answered(&*answers, vec![voice::Answer::Lost(lost)], vec![0]);
            }
            let WireRequest::Create(said) = said() else {
                unreachable!("it is a create");
            };
            assert_eq!(said.form, expected, "by the server: {by_server}");
        }
    }
}
