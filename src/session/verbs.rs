//! The verbs of a [`Contact`]: all that can be asked of ZooKeeper.

use zklock_protocol::{ANY_VERSION, Children, CreateMode, ErrorCode, Part, Reply, Request, Stat};

use super::backend::{Answer, Batching, Created, Refusal};
use super::call_error::{CallError, Step};
use super::contact::Contact;
use super::observe::say;
use super::refusal::Meaning;
use super::site::new_node;
use super::watches::Watch;
use crate::error::Error;
use crate::link::{NoReply, RelyOnLease, WantProof};

/// Of many reads that one caller makes.
const READS_AT_ONCE: usize = 256;

/// A node's data and stat.
pub(crate) type Seen = (Vec<u8>, Stat);

/// The outcome of [`Contact::create_and_list`].
pub(crate) struct CreatedAndListed {
    /// For each name, in their order.
    pub(crate) created: Vec<Step<Created>>,
    pub(crate) listed: Step<Children>,
}

/// The outcome of [`Contact::change_all`].
#[derive(Debug)]
pub(crate) enum Changes {
    /// The reply to each.
    Made(Vec<Reply>),
    /// Nothing was changed, as this change was refused.
    Refused { index: usize, refusal: Refusal },
}

impl Changes {
    /// The answer to a multi, as it was judged.
    pub(super) fn told(reply: Reply) -> Self {
        let Reply::Parts(parts) = reply else {
            unreachable!("a multi is answered with the results of its steps, or with their errors");
        };
        if let Some((index, error)) = Part::refused(&parts)
            && let Meaning::Refused(refusal) = Meaning::of_step(error)
        {
            return Self::Refused { index, refusal };
        }
        let done = parts.into_iter().filter_map(|part| match part {
            Part::Done(_, reply) => Some(reply),
            Part::Failed(_) => None,
        });
        Self::Made(done.collect())
    }
}

impl Contact<'_> {
    pub(crate) fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Step<Created> {
        loop {
            let request = new_node(path.to_owned(), data, mode);
            match self.call(request) {
                Ok(reply) => return Ok(created(reply)),
                Err(CallError::Refused(Refusal::Unknown)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates the node at this path of the ensemble, outside of the chroot.
    pub(crate) fn create_above(&self, path: &str) -> Step<()> {
        let request = self.session().site().above(path);
        let mut answers = self.send_settled(Batching::Never, vec![request])?;
        self.judge(answers.pop().expect("one for each request"))
            .map(drop)
    }

    /// Creates nodes of these names and lists their folder, in one write: the list is answered
    /// after the creates and sees them. The list leaves `watch`, if there is one.
    pub(crate) fn create_and_list(
        &self,
        folder: &str,
        names: &[String],
        data: &[u8],
        mode: CreateMode,
        batching: Batching,
        watch: Option<&Watch>,
    ) -> Step<CreatedAndListed> {
        let creates = creates(folder, names, data, mode);
        let list = Request::GetChildren {
            path: folder.to_owned(),
            watch: watch.is_some(),
        };
        let mut answers = self.send_in(batching, creates.chain([list]).collect())?;
        let listed = answers.pop().expect("one for each request");
        let created = self.judge_created(answers);
        let after = listed.events_before;
        let listed = self.judge(listed).map(names_in);
        if let (Ok(_), Some(watch)) = (&listed, watch) {
            watch.armed(after);
        }
        Ok(CreatedAndListed { created, listed })
    }

    /// Creates nodes of these names in one write.
    pub(crate) fn create_all(
        &self,
        folder: &str,
        names: &[String],
        data: &[u8],
        mode: CreateMode,
        batching: Batching,
    ) -> Step<Vec<Step<Created>>> {
        let requests = creates(folder, names, data, mode).collect();
        let answers = self.send_in(batching, requests)?;
        Ok(self.judge_created(answers))
    }

    fn judge_created(&self, answers: Vec<Answer>) -> Vec<Step<Created>> {
        let each = answers.into_iter();
        each.map(|answer| self.judge(answer).map(created)).collect()
    }

    /// With a version, only if the data still has that version.
    pub(crate) fn delete(&self, path: &str, version: Option<i32>) -> Step<()> {
        let path = path.to_owned();
        let version = version.unwrap_or(ANY_VERSION);
        self.call(Request::Delete { path, version }).map(drop)
    }

    /// Makes all of these changes or none.
    pub(crate) fn change_all(&self, changes: Vec<Request>) -> Step<Changes> {
        let answer = self.answer_to(Request::Multi(changes))?;
        if let Err(NoReply::Lost(lost)) = answer.result
            && lost.is_poison()
        {
            // Unlike what we make for ourselves, nobody cleans this up: the last one may have been
            // done like any other whose answer was lost.
            let why = self.poison(lost);
            return Err(CallError::Left(Error::connection_loss(why)));
        }
        self.judge(answer).map(Changes::told)
    }

    pub(crate) fn children(&self, path: &str) -> Step<Children> {
        self.list(list(path, false), None)
    }

    /// As [`Contact::children`] of the path that `watch` is on, which is left there.
    pub(crate) fn watch_children(&self, watch: &Watch) -> Step<Children> {
        self.list(list(watch.path(), true), Some(watch))
    }

    fn list(&self, request: Request, watch: Option<&Watch>) -> Step<Children> {
        self.call_and_arm(request, watch).map(names_in)
    }

    pub(crate) fn data(&self, path: &str) -> Step<(Vec<u8>, Stat)> {
        let path = path.to_owned();
        self.read(Request::GetData { path, watch: false }, None)
    }

    /// As [`Contact::data`], at least as new as all that was committed before this was asked: the
    /// server catches up with its leader first, in the same write.
    pub(crate) fn newest_data(&self, path: &str) -> Step<(Vec<u8>, Stat)> {
        let path = path.to_owned();
        let sync = Request::Sync { path: path.clone() };
        let read = Request::GetData { path, watch: false };
        let mut answers = self.send(vec![sync, read])?;
        let read = answers.pop().expect("one for each request");
        self.judge(answers.pop().expect("one for each request"))?;
        self.judge(read).map(seen)
    }

    /// As [`Contact::data`] of the path that `watch` is on, which is left there.
    pub(crate) fn watch_data(&self, watch: &Watch) -> Step<(Vec<u8>, Stat)> {
        let path = watch.path().to_owned();
        self.read(Request::GetData { path, watch: true }, Some(watch))
    }

    fn read(&self, request: Request, watch: Option<&Watch>) -> Step<(Vec<u8>, Stat)> {
        self.call_and_arm(request, watch).map(seen)
    }

    pub(crate) fn stat(&self, path: &str) -> Step<Option<Stat>> {
        let answer = self.answer_to(exists(path, false))?;
        self.judge_stat(answer, None)
    }

    /// As [`Contact::stat`] of the path that `watch` is on, which is left there also if there is
    /// no node.
    pub(crate) fn watch_stat(&self, watch: &Watch) -> Step<Option<Stat>> {
        let answer = self.answer_to(exists(watch.path(), true))?;
        self.judge_stat(answer, Some(watch))
    }

    /// As [`Contact::stat`] of each, so many in one write as leave room for others.
    pub(crate) fn stats(&self, paths: &[String]) -> Step<Vec<Option<Stat>>> {
        let mut stats = Vec::with_capacity(paths.len());
        for some in paths.chunks(READS_AT_ONCE) {
            let requests = some.iter().map(|path| exists(path, false)).collect();
            for answer in self.send(requests)? {
                stats.push(self.judge_stat(answer, None)?);
            }
        }
        Ok(stats)
    }

    /// As [`Contact::watch_data`] of each, so many in one write as leave room for others.
    pub(super) fn watch_data_of(&self, watches: &[Watch]) -> Step<Vec<Step<Seen>>> {
        let mut data = Vec::with_capacity(watches.len());
        for some in watches.chunks(READS_AT_ONCE) {
            let requests = some.iter().map(|watch| Request::GetData {
                path: watch.path().to_owned(),
                watch: true,
            });
            let answers = self.send(requests.collect())?;
            for (watch, answer) in some.iter().zip(answers) {
                let judged = self.judge_and_arm(answer, Some(watch));
                data.push(judged.map(seen));
            }
        }
        Ok(data)
    }

    /// The stat of the node that `node` is on, which is left there also if there is none, and then
    /// as [`Contact::watch_children`] of `folder`; in one write.
    pub(crate) fn watch_stat_and_children(
        &self,
        node: &Watch,
        folder: &Watch,
    ) -> Step<(Option<Stat>, Step<Children>)> {
        let requests = vec![exists(node.path(), true), list(folder.path(), true)];
        let mut answers = self.send(requests)?;
        let listed = answers.pop().expect("one for each request");
        let seen = answers.pop().expect("one for each request");
        let listed = self.judge_and_arm(listed, Some(folder)).map(names_in);
        Ok((self.judge_stat(seen, Some(node))?, listed))
    }

    /// Replaces the data; with a version, only if it has it still.
    pub(crate) fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Step<Stat> {
        let request = Request::SetData {
            path: path.to_owned(),
            data: Some(data.to_vec()),
            version: version.unwrap_or(ANY_VERSION),
        };
        match self.call(request)? {
            Reply::Stat(stat) => Ok(stat),
            _ => unreachable!("a stat is answered with a stat"),
        }
    }

    /// Our node at `path` *stands*, and the session lives by what is proven, until what is
    /// returned is dropped. `None`: the node is gone, or the proof came too late; look again.
    ///
    /// The proof is there, if the last write was not long ago. What is only assumed, as while
    /// nothing of ours stood, is proved by one write more. A server that refuses that write has not
    /// said that the node is gone, and to look again would only show the node again.
    pub(crate) fn stands(&self, path: &str) -> Step<Option<RelyOnLease>> {
        let stands = self.epoch().node_stands(path, self.epoch().now());
        match stands {
            Some(stands) => Ok(Some(stands)),
            None => self.prove(path),
        }
    }

    fn prove(&self, path: &str) -> Step<Option<RelyOnLease>> {
        // A write that changes and wakes nothing.
        let check = Request::Check {
            path: path.to_owned(),
            version: ANY_VERSION,
        };
        let proof = match self.change_all(vec![check]) {
            // We may not read our own node. An empty one is committed like any other.
            Ok(Changes::Refused {
                refusal: Refusal::NoAuth,
                ..
            })
            | Err(CallError::Refused(Refusal::NoAuth)) => self.change_all(Vec::new()),
            proof => proof,
        };
        match proof? {
            Changes::Made(_) => {
                let epoch = self.epoch();
                Ok(epoch.node_stands(path, epoch.now()))
            }
            Changes::Refused {
                refusal: Refusal::NoNode,
                ..
            } => Ok(None),
            Changes::Refused { refusal, .. } => {
                say!(
                    self.session(),
                    Debug,
                    "{path}: its session is not proved to be alive: {refusal}"
                );
                Err(CallError::Refused(refusal))
            }
        }
    }

    /// Keeps it proven that the session stands, for a node at `path` that somebody may come to
    /// hold by without another request.
    pub(crate) fn want_proof(&self, path: &str) -> WantProof {
        self.epoch().want_proof(path)
    }

    /// As [`judge_and_arm`](Self::judge_and_arm) of a look for a stat, which leaves its watch also
    /// where there is no node.
    fn judge_stat(&self, answer: Answer, watch: Option<&Watch>) -> Step<Option<Stat>> {
        let after = answer.events_before;
        let is_missing = matches!(
            answer.result,
            Err(NoReply::Refused {
                error: ErrorCode::NO_NODE,
                ..
            })
        );
        let stat = match is_missing {
            true if self.epoch().is_alive() => None,
            true => return Err(CallError::Unknown),
            false => match self.judge(answer)? {
                Reply::Stat(stat) => Some(stat),
                _ => unreachable!("a stat is answered with a stat"),
            },
        };
        if let Some(watch) = watch {
            watch.armed(after);
        }
        Ok(stat)
    }
}

fn creates<'a>(
    folder: &'a str,
    names: &'a [String],
    data: &'a [u8],
    mode: CreateMode,
) -> impl Iterator<Item = Request> + 'a {
    let path = move |name| format!("{folder}/{name}");
    names
        .iter()
        .map(move |name| new_node(path(name), data, mode))
}

pub(super) fn exists(path: &str, watch: bool) -> Request {
    let path = path.to_owned();
    Request::Exists { path, watch }
}

pub(super) fn list(path: &str, watch: bool) -> Request {
    let path = path.to_owned();
    Request::GetChildren { path, watch }
}

fn created(reply: Reply) -> Created {
    Created::of(reply).unwrap_or_else(|| unreachable!("a create is answered with a path"))
}

pub(super) fn names_in(reply: Reply) -> Children {
    match reply {
        Reply::Children(children) => children,
        _ => unreachable!("a list is answered with names"),
    }
}

pub(super) fn seen(reply: Reply) -> Seen {
    match reply {
        Reply::Data { data, stat } => (data.unwrap_or_default(), stat),
        _ => unreachable!("data is answered with data"),
    }
}

/// The answer to a call that may find nothing.
pub(crate) fn found<T>(step: Step<T>) -> Step<Option<T>> {
    match step {
        Ok(found) => Ok(Some(found)),
        Err(CallError::Refused(Refusal::NoNode)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The answer to a deletion of what may be gone already: whether it was there.
pub(crate) fn gone(step: Step<()>) -> Step<bool> {
    Ok(found(step)?.is_some())
}
