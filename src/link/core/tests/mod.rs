//! The core, played with bytes and times alone: a test is the callers, the server and the clock.
//!
//! Nothing here waits: what a step comes to is there when it returns. What the driver adds to it, with
//! sockets and threads, `src/link/tests` plays.

mod hostile;
mod packets;
mod probes;
mod sharing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use zklock_protocol::{
    ANY_VERSION, Create, CreateForm, CreateMode, ErrorCode, EventKind, Reply, Request,
};

use super::answer::{Answer, Batching, Completion, Lost, NoReply, NotSent};
use super::chain::{Opening, ProbeIntervals};
use super::frame::{self, FrameBuffer};
use super::lease::Lease;
use super::moment::Moment;
use super::probes::{Tick, TooSlow};
use super::*;

/// A session timeout that plays no role.
pub(in crate::link) const LONG: Duration = Duration::from_secs(60);
pub(in crate::link) const CREATE: i32 = 1;
pub(in crate::link) const DELETE: i32 = 2;
pub(in crate::link) const CHILDREN: i32 = 8;
pub(in crate::link) const SYNC: i32 = 9;
pub(in crate::link) const MULTI: i32 = 14;
pub(in crate::link) const MULTI_READ: i32 = 22;
/// So many packets are in flight before others wait.
pub(in crate::link) const BUSY: usize = 3;
pub(in crate::link) const DONE: Told = Ok(Reply::Nothing);

/// What one request came to.
pub(in crate::link) type Told = Result<Reply, NoReply>;
/// What requests came to, and how many events there were before each answer.
pub(in crate::link) type Answers = Receiver<(Vec<Told>, Vec<u64>)>;

pub(in crate::link) struct Inbox(pub(in crate::link) Sender<(Vec<Told>, Vec<u64>)>);

impl Completion for Inbox {
    fn completed(&self, answers: Vec<Answer>) {
        let each = answers.into_iter();
        let each = each.map(|answer| (answer.result, answer.events_before));
        // Nobody may wait for them.
        let _ = self.0.send(each.unzip());
    }
}

/// A core with a connection.
struct Stage {
    core: Core,
    lease: Arc<Lease>,
    connection: u64,
    timeout: Duration,
    buffer: FrameBuffer,
    now: Moment,
    /// What the server was sent and has not looked at.
    sent: VecDeque<Vec<u8>>,
    taken: u64,
    /// What watches told, and the number of each event.
    events: Vec<(EventKind, String, u64)>,
    /// The numbers of nodes of ours that turned out to be gone.
    gone: Vec<u64>,
    /// Why the connection was to be cut.
    cut: Option<String>,
}

impl Stage {
    /// Who waits goes when there is room, and not by the clock.
    fn new() -> Self {
        Self::with(LONG, LONG)
    }

    fn with(timeout: Duration, longest_wait: Duration) -> Self {
        let now = Moment::from_nanos(1_000_000_000_000);
        let mut stage = Self {
            core: Core::new(String::new(), longest_wait),
            lease: Arc::new(Lease::new(timeout, now, false)),
            connection: 0,
            timeout,
            buffer: FrameBuffer::new(frame::REPLY_HEADER_BYTES, frame::MAX_REPLY_BYTES),
            now,
            sent: VecDeque::new(),
            taken: 0,
            events: Vec::new(),
            gone: Vec::new(),
            cut: None,
        };
        stage.open(Opening::Created);
        stage
    }

    fn open(&mut self, opening: Opening) {
        self.connection += 1;
        self.taken = 0;
        self.cut = None;
        self.sent.clear();
        self.buffer = FrameBuffer::new(frame::REPLY_HEADER_BYTES, frame::MAX_REPLY_BYTES);
        self.core.opened(Opened {
            number: self.connection,
            lease: Arc::clone(&self.lease),
            intervals: ProbeIntervals::of(self.timeout, None),
            opening,
            sent_at: self.now,
        });
    }

    /// Another connection of the same session.
    fn reopen(&mut self) {
        self.core.session_survived();
        self.open(Opening::Resumed);
    }

    fn submit(
        &mut self,
        batching: Batching,
        requests: &[Request],
    ) -> Result<(Answers, Submitted), NotSent> {
        let (sender, answers) = unbounded();
        let group = Group::encode(requests, Arc::new(Inbox(sender)))?;
        let submitted = self
            .core
            .submit(self.connection, Box::new(group), batching, self.now);
        match submitted {
            Ok(submitted) => {
                self.flush();
                Ok((answers, submitted))
            }
            Err((why, group)) => {
                group.forget();
                Err(why)
            }
        }
    }

    fn say(&mut self, batching: Batching, requests: &[Request]) -> Answers {
        self.submit(batching, requests).expect("open").0
    }

    fn share(&mut self, requests: &[Request]) -> Answers {
        self.say(Batching::Allowed, requests)
    }

    /// The kernel takes all that there is.
    fn flush(&mut self) {
        let mut bytes = ToSend::default();
        while self.core.take(self.connection, &mut bytes, self.now) {
            let mut rest = &bytes.frames[..];
            self.taken += rest.len() as u64;
            while !rest.is_empty() {
                let length = usize::try_from(int(rest, 0)).expect("a length");
                let (frame, behind) = rest.split_at(4 + length);
                self.sent.push_back(frame[4..].to_vec());
                rest = behind;
            }
            bytes.clear();
        }
        let took = Took {
            frames: self.taken,
            at: self.now,
        };
        self.core.took(self.connection, took);
    }

    /// Time goes on. `node`: of ours, to be asked for.
    fn pass(&mut self, by: Duration, node: Option<(u64, &str)>) -> Tick {
        self.now = self.now.plus(by);
        let node = node.map(|(number, path)| (number, path.into()));
        let tick = self.core.tick(node, self.now);
        self.flush();
        tick
    }

    /// The server says this.
    fn hear(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.cut.is_none() {
            self.buffer.fill(&mut bytes).expect("memory");
            let received = self.core.receive(&mut self.buffer, self.now);
            self.cut = received.cut;
            self.gone.extend(received.gone);
            for news in received.news {
                self.tell(news);
            }
        }
        self.flush();
    }

    fn tell(&mut self, news: News) {
        match news {
            News::Completed(completed) => {
                let rest = completed.tell();
                if let Some(why) = &rest.malformed {
                    self.cut = Some(why.to_string());
                }
                let lost = self.core.ask_again(self.connection, rest, self.now);
                lost.into_iter().for_each(Group::tell_lost);
            }
            News::Event {
                event,
                path,
                number,
                ..
            } => self.events.push((event, path, number)),
            News::Watched { .. } => {}
        }
    }

    /// The connection is gone.
    fn break_by(&mut self, ended: Ended) {
        let broken = self.core.broke(ended, self.now);
        for completed in broken.completed {
            self.tell(News::Completed(completed));
        }
        broken.unsent.into_iter().for_each(Group::tell_lost);
    }

    // ---- the server ----

    /// The body of the next request.
    fn receive(&mut self) -> Option<Vec<u8>> {
        self.sent.pop_front()
    }

    /// The number and the kind of the next request.
    fn request(&mut self) -> (i32, i32) {
        let body = self.receive().expect("a request");
        (int(&body, 0), int(&body, 4))
    }

    /// The next request must be of this kind: its number, and what is asked.
    fn asked(&mut self, opcode: i32) -> (i32, Vec<u8>) {
        let body = self.receive().expect("a request");
        assert_eq!(int(&body, 4), opcode);
        (int(&body, 0), body[8..].to_vec())
    }

    fn reply(&mut self, xid: i32, err: i32) {
        self.hear(&frame::reply(xid, err));
    }

    fn reply_with(&mut self, xid: i32, zxid: i64, record: &[u8]) {
        self.hear(&reply_frame(xid, zxid, record));
    }

    /// The server has this to do, and its number is returned; who comes now waits.
    fn busy(&mut self) -> Vec<i32> {
        let mut numbers = Vec::new();
        for _ in 0..BUSY {
            let _answers = self.share(&[delete("/busy")]);
            numbers.push(self.asked(DELETE).0);
        }
        numbers
    }

    /// Answers what made it busy, at once.
    fn idle(&mut self, busy: &[i32]) {
        let replies = busy.iter().flat_map(|number| frame::reply(*number, 0));
        self.hear(&replies.collect::<Vec<_>>());
    }
}

/// What has come for a caller, who is told before the step that brings it is over.
pub(in crate::link) fn told(answers: &Answers) -> Vec<Told> {
    answers.try_recv().expect("told").0
}

pub(in crate::link) fn int(body: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(body[at..at + 4].try_into().expect("four bytes"))
}

pub(in crate::link) fn reply_frame(xid: i32, zxid: i64, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(frame::REPLY_HEADER_BYTES + body.len()).expect("fits the wire");
    let mut frame = Vec::with_capacity(body.len() + 20);
    frame.extend(length.to_be_bytes());
    frame.extend(xid.to_be_bytes());
    frame.extend(zxid.to_be_bytes());
    frame.extend(frame::OK.to_be_bytes());
    frame.extend(body);
    frame
}

/// Creates a node.
pub(in crate::link) fn new_node(path: &str, data: Vec<u8>, mode: CreateMode) -> Request {
    Request::Create(Create {
        form: CreateForm::Create,
        path: path.to_owned(),
        data: Some(data),
        acl: [].into(),
        mode,
        ttl_ms: -1,
    })
}

pub(in crate::link) fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.into(),
        version: ANY_VERSION,
    }
}

pub(in crate::link) fn create(path: &str) -> Request {
    new_node(path, Vec::new(), CreateMode::EPHEMERAL_SEQUENTIAL)
}

pub(in crate::link) fn list(path: &str, watch: bool) -> Request {
    Request::GetChildren {
        path: path.into(),
        watch,
    }
}

pub(in crate::link) fn refused(asked: i32, error: ErrorCode) -> Told {
    Err(NoReply::Refused { asked, error })
}

pub(in crate::link) fn created(path: &str) -> Told {
    Ok(Reply::Path(path.into()))
}

pub(in crate::link) fn listed(names: &[&str]) -> Told {
    let names = names.iter().map(|name| (*name).to_owned());
    Ok(Reply::Children(names.collect()))
}

pub(in crate::link) fn text(text: &str) -> Vec<u8> {
    let length = i32::try_from(text.len()).expect("short");
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

pub(in crate::link) fn names(names: &[&str]) -> Vec<u8> {
    let count = i32::try_from(names.len()).expect("few");
    let names = names.iter().flat_map(|name| text(name));
    count.to_be_bytes().into_iter().chain(names).collect()
}

pub(in crate::link) fn result(kind: i32, record: &[u8]) -> Vec<u8> {
    let header = [&kind.to_be_bytes()[..], &[0], &0_i32.to_be_bytes()].concat();
    [&header[..], record].concat()
}

pub(in crate::link) fn error(err: i32) -> Vec<u8> {
    result(-1, &err.to_be_bytes())
}

pub(in crate::link) fn results(each: &[Vec<u8>]) -> Vec<u8> {
    let end = [255, 255, 255, 255, 1, 255, 255, 255, 255];
    [&each.concat()[..], &end].concat()
}
