//! An ensemble by bytes and times alone.

mod lease;
mod roles;
mod times;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use zklock_protocol::{
    Acl, ConnectRequest, ConnectResponse, Create, CreateForm, CreateMode, ErrorCode, Frames,
    Reader, ReplyHeader, Request, RequestHeader, Writer, xid,
};

use super::*;
use crate::core::Line;

const MS: Duration = Duration::from_millis(1);
const TICK: Duration = Duration::from_millis(100);
const T: Duration = Duration::from_millis(400);
const SYNC: u32 = 5;
/// After so long of silence a follower has given its leader up, a leader has noticed that it has no
/// followers, and whoever can has elected another.
const NOTICED: Duration = Duration::from_millis(800);

struct Bench {
    cluster: Cluster,
    now: Duration,
    said: BTreeMap<(usize, ConnectionId), Vec<Said>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Frame(Vec<u8>),
    End,
}

/// A client's connection.
#[derive(Clone, Copy, Debug)]
struct Client {
    at: (usize, ConnectionId),
    session: i64,
    password: [u8; 16],
}

impl Bench {
    fn new(size: usize) -> Self {
        Self::of(size, TICK, SYNC, Duration::ZERO)
    }

    /// At a moment of their clock.
    fn of(size: usize, tick: Duration, sync: u32, now: Duration) -> Self {
        let settings = |id| Settings {
            line: Line::V3_8,
            server_id: id,
            tick,
            min_session_timeout: Duration::ZERO,
            max_session_timeout: Duration::from_secs(60),
            max_frame: 1000,
            container_check: Duration::from_secs(60),
            epoch_ms: 0,
            secret: 7,
        };
        let limits = Limits {
            size,
            tick,
            init: 10,
            sync,
        };
        let terms = Terms {
            limits,
            election: tick / 2,
        };
        let ids = 1..=u8::try_from(size).expect("small");
        let cluster = Cluster::of(ids.map(settings).collect(), terms, now);
        Self {
            cluster,
            now,
            said: BTreeMap::new(),
        }
    }

    fn leader(&self) -> usize {
        self.cluster.leader().expect("somebody leads")
    }

    fn followers(&self) -> [usize; 2] {
        let leader = self.leader();
        let others: Vec<_> = (0..3).filter(|member| *member != leader).collect();
        [others[0], others[1]]
    }

    fn isolate(&mut self, member: usize, is_cut: bool) {
        for other in (0..self.cluster.size()).filter(|other| *other != member) {
            self.cluster.cut(member, other, is_cut, self.now);
            self.cluster.cut(other, member, is_cut, self.now);
        }
    }

    /// Lets time pass, each thing at its moment.
    fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        let mut steps = 0;
        while let Some(next) = self.cluster.deadline().filter(|next| *next <= end) {
            steps += 1;
            assert!(steps < 10_000, "something is always due: {:?}", self.now);
            self.now = next.max(self.now);
            self.cluster.advance(self.now);
        }
        self.now = end;
        self.cluster.advance(end);
    }

    fn hello(&mut self, member: usize, session: i64, password: Vec<u8>) -> (usize, ConnectionId) {
        self.hello_for(member, session, password, T)
    }

    fn hello_for(
        &mut self,
        member: usize,
        session: i64,
        password: Vec<u8>,
        timeout: Duration,
    ) -> (usize, ConnectionId) {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let id = self.cluster.machine_mut(member).accept(peer);
        let hello = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: i32::try_from(timeout.as_millis()).expect("small"),
            session_id: session,
            password,
            read_only: None,
        };
        let bytes = Writer::frame(|writer| hello.write(writer));
        self.bytes((member, id), &bytes);
        (member, id)
    }

    fn greeted(&mut self, at: (usize, ConnectionId)) -> Option<Client> {
        let Some(Said::Frame(frame)) = self.next(at) else {
            return None;
        };
        let response = ConnectResponse::read(&mut Reader::new(&frame)).expect("well-formed");
        Some(Client {
            at,
            session: response.session_id,
            password: response.password.try_into().expect("16 bytes"),
        })
    }

    #[track_caller]
    fn connect(&mut self, member: usize) -> Client {
        let at = self.hello(member, 0, Vec::new());
        self.greeted(at).expect("it is served at once")
    }

    fn resume(&mut self, client: Client, member: usize) -> Option<Client> {
        let at = self.hello(member, client.session, client.password.to_vec());
        self.greeted(at)
    }

    fn bytes(&mut self, (member, id): (usize, ConnectionId), bytes: &[u8]) {
        let now = self.now;
        self.cluster
            .order(member, now, |machine| machine.receive(id, bytes, now));
    }

    fn send(&mut self, client: Client, number: i32, request: &Request) {
        let header = RequestHeader {
            xid: number,
            opcode: request.opcode(),
        };
        let bytes = Writer::frame(|writer| {
            header.write(writer);
            request.write(writer);
        });
        self.bytes(client.at, &bytes);
    }

    fn next(&mut self, at: (usize, ConnectionId)) -> Option<Said> {
        for (member, id, act) in self.cluster.take_acts() {
            let said = self.said.entry((member, id)).or_default();
            match act {
                Act::Write(bytes) => {
                    let mut frames = Frames::new(10_000);
                    frames.push(&bytes);
                    while let Some(frame) = frames.next_frame().expect("well-formed") {
                        said.push(Said::Frame(frame));
                    }
                }
                Act::Finish | Act::Reset => said.push(Said::End),
            }
        }
        let said = self.said.get_mut(&at)?;
        (!said.is_empty()).then(|| said.remove(0))
    }

    /// The number and error of what was answered next, without waiting.
    fn answer(&mut self, client: Client) -> Option<(i32, ErrorCode)> {
        match self.next(client.at)? {
            Said::Frame(frame) => {
                let header = ReplyHeader::read(&mut Reader::new(&frame)).expect("well-formed");
                Some((header.xid, header.error))
            }
            Said::End => None,
        }
    }

    #[track_caller]
    fn ask(&mut self, client: Client, request: &Request) -> ErrorCode {
        self.send(client, 1, request);
        self.answer(client).expect("an answer at once").1
    }

    fn has(&self, member: usize, path: &str) -> bool {
        self.cluster.machine(member).core.tree.get(path).is_some()
    }

    fn is_over(&mut self, client: Client) -> bool {
        while let Some(said) = self.next(client.at) {
            if said == Said::End {
                return true;
            }
        }
        false
    }
}

fn create(path: &str, flags: i32) -> Request {
    Request::Create(Create {
        form: CreateForm::Create,
        path: path.to_owned(),
        data: Some(Vec::new()),
        acl: [Acl::open()].into(),
        mode: CreateMode(flags),
        ttl_ms: -1,
    })
}

fn get(path: &str) -> Request {
    Request::GetData {
        path: path.to_owned(),
        watch: false,
    }
}

fn sync() -> Request {
    Request::Sync {
        path: "/".to_owned(),
    }
}

const OK: ErrorCode = ErrorCode::OK;

#[test]
fn what_is_written_at_one_is_read_at_all() {
    let mut bench = Bench::new(3);
    let [one, other] = bench.followers();
    let writer = bench.connect(one);
    assert_eq!(bench.ask(writer, &create("/a", 0)), OK);
    for member in [bench.leader(), one, other] {
        let reader = bench.connect(member);
        assert_eq!(bench.ask(reader, &get("/a")), OK);
    }
    let core = &bench.cluster.machine(one).core;
    assert_eq!(core.zxid >> 32, 1, "the epoch");
}

#[test]
fn a_follower_lags_until_a_sync() {
    let mut bench = Bench::new(3);
    let [one, other] = bench.followers();
    let (writer, reader) = (bench.connect(one), bench.connect(other));
    bench.cluster.lag(other, MS * 20, bench.now);
    assert_eq!(bench.ask(writer, &create("/a", 0)), OK);
    assert_eq!(bench.ask(reader, &get("/a")), ErrorCode::NO_NODE);
    bench.send(reader, 2, &sync());
    bench.send(reader, 3, &get("/a"));
    assert_eq!(bench.answer(reader), None);
    bench.pass(MS * 40);
    assert_eq!(bench.answer(reader), Some((2, OK)));
    assert_eq!(bench.answer(reader), Some((3, OK)));
}

#[test]
fn requests_of_one_connection_are_answered_in_order() {
    let mut bench = Bench::new(3);
    let [one, _] = bench.followers();
    let client = bench.connect(one);
    bench.isolate(one, true);
    bench.send(client, xid::PING, &Request::Ping);
    assert_eq!(bench.answer(client), Some((xid::PING, OK)));
    assert_eq!(bench.ask(client, &get("/")), OK);
    // Without its leader it can answer neither the sync nor what comes after that.
    bench.send(client, 2, &sync());
    bench.send(client, xid::PING, &Request::Ping);
    bench.send(client, 3, &get("/"));
    assert_eq!(bench.answer(client), None);
    bench.isolate(one, false);
    let answers = [2, xid::PING, 3].map(|number| Some((number, OK)));
    assert_eq!([(); 3].map(|()| bench.answer(client)), answers);
}

#[test]
fn a_follower_without_its_leader_reads_on_and_then_hangs_up() {
    let mut bench = Bench::new(3);
    let [one, _] = bench.followers();
    let client = bench.connect(one);
    bench.pass(MS * 10);
    bench.isolate(one, true);
    bench.pass(TICK * (SYNC - 1));
    assert_eq!(bench.ask(client, &get("/")), OK);
    bench.pass(TICK);
    assert!(bench.is_over(client));
    assert!(!bench.cluster.serves(one));
    let late = bench.hello(one, 0, Vec::new());
    assert_eq!(bench.next(late), Some(Said::End));
    bench.isolate(one, false);
    bench.pass(TICK);
    assert!(bench.cluster.serves(one));
    let resumed = bench.resume(client, one).map(|client| client.session);
    assert_eq!(
        resumed,
        Some(0),
        "the leader had not heard of it for too long"
    );
}

/// The mark of a request travels with the answer to the next PING, and what comes after that does not.
#[test]
fn a_session_at_a_follower_lives_from_the_last_ping() {
    let mut bench = Bench::new(3);
    let [one, other] = bench.followers();
    let client = bench.connect(one);
    assert_eq!(bench.ask(client, &create("/e", 1)), OK);
    for _ in 0..20 {
        bench.pass(T / 4);
        assert_eq!(bench.ask(client, &get("/e")), OK);
    }
    bench.isolate(one, true);
    for _ in 0..3 {
        bench.pass(T / 4);
        assert!(bench.has(other, "/e"));
        assert_eq!(bench.ask(client, &get("/e")), OK);
    }
    bench.pass(TICK * 2);
    assert!(
        !bench.has(other, "/e"),
        "it was not heard of for T and a tick"
    );
    assert!(bench.has(one, "/e"), "the follower does not know");
}

#[test]
fn a_new_leader_gives_every_session_its_whole_time() {
    let mut bench = Bench::new(3);
    let (old, [one, _]) = (bench.leader(), bench.followers());
    let client = bench.connect(one);
    assert_eq!(bench.ask(client, &create("/e", 1)), OK);
    bench.pass(T / 2);
    bench.cluster.stop(old, bench.now);
    assert!(bench.is_over(client), "its server has no leader");
    bench.pass(TICK);
    let new = bench.leader();
    assert_ne!(new, old);
    assert_eq!(bench.cluster.machine(new).core.zxid >> 32, 2);
    bench.pass(T - TICK);
    assert!(bench.has(new, "/e"));
    bench.pass(TICK * 2);
    assert!(!bench.has(new, "/e"));
}

#[test]
fn a_deposed_leader_answers_what_takes_nobody_else() {
    let mut bench = Bench::new(3);
    let (old, [one, _]) = (bench.leader(), bench.followers());
    let client = bench.connect(old);
    let elsewhere = bench.connect(one);
    bench.isolate(old, true);
    bench.pass(TICK * 4);
    assert_eq!(bench.ask(client, &get("/")), OK);
    assert_eq!(bench.ask(client, &sync()), OK);
    let resumed = bench
        .resume(elsewhere, old)
        .expect("a deposed leader resumes");
    assert_eq!(resumed.session, elsewhere.session);
    bench.send(resumed, 2, &create("/never", 0));
    bench.send(resumed, 3, &get("/"));
    assert_eq!(bench.answer(resumed), None);
    bench.pass(NOTICED);
    assert!(bench.is_over(resumed));
    assert!(!bench.cluster.serves(old));
    let new = bench.leader();
    assert_ne!(new, old);
    bench.isolate(old, false);
    bench.pass(TICK);
    assert!(bench.cluster.serves(old));
    assert!(!bench.has(old, "/never"), "nobody else had accepted it");
}

#[test]
fn a_leader_that_was_stopped_leads_for_a_moment_more() {
    let mut bench = Bench::new(3);
    let old = bench.leader();
    let client = bench.connect(old);
    bench.cluster.machine_mut(old).pause();
    bench.pass(NOTICED);
    assert_ne!(bench.leader(), old);
    bench.cluster.resume(old, bench.now);
    assert!(bench.cluster.serves(old));
    // Its clock says that the session is over; nobody confirms it.
    assert_eq!(bench.ask(client, &get("/")), ErrorCode::SESSION_EXPIRED);
    bench.pass(TICK * 2);
    assert!(bench.is_over(client));
    assert_eq!(bench.cluster.machine(old).core.mode(), "follower");
}

#[test]
fn a_session_has_one_member_for_what_it_writes() {
    let mut bench = Bench::new(3);
    let [one, other] = bench.followers();
    let before = bench.connect(one);
    let after = bench.resume(before, other).expect("it lives");
    assert_eq!(after.session, before.session);
    assert_eq!(bench.ask(before, &get("/")), OK);
    assert_eq!(bench.ask(after, &create("/a", 0)), OK);
    bench.send(before, 2, &create("/b", 0));
    assert!(bench.is_over(before));
    assert!(!bench.has(one, "/b"));
}

#[test]
fn what_most_have_accepted_survives_the_leader() {
    let mut bench = Bench::new(3);
    let (old, [one, other]) = (bench.leader(), bench.followers());
    let client = bench.connect(old);
    // One of them has not heard of it when the leader dies.
    bench.isolate(other, true);
    assert_eq!(bench.ask(client, &create("/kept", 0)), OK);
    bench.cluster.stop(old, bench.now);
    bench.cluster.cut(one, other, false, bench.now);
    bench.cluster.cut(other, one, false, bench.now);
    bench.pass(NOTICED);
    assert_eq!(bench.leader(), one, "it knows more");
    assert!(bench.has(other, "/kept"));
    bench.isolate(other, false);
    let now = bench.now;
    bench.cluster.order(old, now, |machine| machine.start(now));
    bench.pass(NOTICED);
    assert!(bench.cluster.serves(old) && bench.has(old, "/kept"));
}

#[test]
fn nobody_leads_without_most() {
    let mut bench = Bench::new(3);
    let (leader, [one, other]) = (bench.leader(), bench.followers());
    bench.cluster.stop(one, bench.now);
    bench.cluster.stop(other, bench.now);
    bench.pass(NOTICED);
    assert_eq!(bench.cluster.leader(), None);
    assert!(!bench.cluster.serves(leader));
    let now = bench.now;
    bench.cluster.order(one, now, |machine| machine.start(now));
    bench.pass(TICK);
    assert!(bench.cluster.leader().is_some());
}

#[test]
fn leaders_are_made_of_those_that_know_enough() {
    let mut bench = Bench::new(3);
    let (old, [one, other]) = (bench.leader(), bench.followers());
    bench.isolate(other, true);
    let client = bench.connect(old);
    assert_eq!(bench.ask(client, &create("/a", 0)), OK);
    let now = bench.now;
    assert!(!bench.cluster.make_leader(other, now), "it hears nobody");
    assert_eq!(bench.leader(), old);
    assert!(bench.cluster.make_leader(one, now));
    assert_eq!(bench.leader(), one);
    assert!(bench.is_over(client));
    bench.isolate(other, false);
    bench.pass(NOTICED);
    assert!(bench.cluster.serves(other) && bench.has(other, "/a"));
    assert!(bench.cluster.make_leader(other, bench.now));
}
