//! The server by frames and times alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use zklock_protocol::{
    Acl, ConnectRequest, ConnectResponse, Create, CreateForm, CreateMode, ErrorCode, Event,
    EventKind, Frames, Part, Reader, Reply, ReplyHeader, Request, RequestHeader, Stat, Writer,
    opcode, xid,
};

use super::{ConnectionId, Core, Line, Output, Settings};

const MS: Duration = Duration::from_millis(1);
const TICK: Duration = Duration::from_millis(100);
const T: Duration = Duration::from_secs(1);
const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);
const EPOCH_MS: i64 = 1_000_000;

struct Bench {
    core: Core,
    now: Duration,
    /// What was said and not yet looked at.
    said: Vec<(ConnectionId, Said)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Frame(Vec<u8>),
    End,
}

impl Bench {
    fn new() -> Self {
        Self::of(Line::V3_8)
    }

    fn of(line: Line) -> Self {
        let settings = Settings {
            line,
            server_id: 1,
            tick: TICK,
            min_session_timeout: TICK * 2,
            max_session_timeout: Duration::from_secs(60),
            max_frame: 1000,
            container_check: Duration::from_secs(60),
            epoch_ms: EPOCH_MS,
            secret: 0,
        };
        Self {
            core: Core::new(settings),
            now: Duration::ZERO,
            said: Vec::new(),
        }
    }

    fn with_sessions() -> (Self, i64, i64) {
        Self::with_sessions_of(Line::V3_8)
    }

    fn with_sessions_of(line: Line) -> (Self, i64, i64) {
        let mut bench = Self::of(line);
        let a = bench.connect(A, 0, &[0; 16]).session_id;
        let b = bench.connect(B, 0, &[0; 16]).session_id;
        (bench, a, b)
    }

    fn collect(&mut self) {
        for output in self.core.take_outputs() {
            self.said.push(match output {
                Output::Send { to, bytes, .. } => {
                    let mut frames = Frames::new(usize::MAX);
                    frames.push(&bytes);
                    let frame = frames.next_frame().expect("well-formed").expect("whole");
                    (to, Said::Frame(frame))
                }
                Output::Close { to } => (to, Said::End),
            });
        }
    }

    fn connect(&mut self, id: ConnectionId, session_id: i64, password: &[u8]) -> ConnectResponse {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        self.core.open(id, peer);
        let hello = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 1000,
            session_id,
            password: password.to_vec(),
            read_only: Some(false),
        };
        let mut writer = Writer::new();
        hello.write(&mut writer);
        self.core.frame(id, &writer.into_bytes(), self.now);
        self.collect();
        let at = self
            .said
            .iter()
            .position(|(to, said)| *to == id && *said != Said::End);
        let (_, Said::Frame(frame)) = self.said.remove(at.expect("an answer")) else {
            unreachable!("looked for");
        };
        ConnectResponse::read(&mut Reader::new(&frame)).expect("well-formed")
    }

    fn send(&mut self, from: ConnectionId, request: &Request) {
        let header = RequestHeader {
            xid: 7,
            opcode: request.opcode(),
        };
        let mut writer = Writer::new();
        header.write(&mut writer);
        request.write(&mut writer);
        self.core.frame(from, &writer.into_bytes(), self.now);
        self.collect();
    }

    /// Asks, and returns what was said to whom, and the answer, which came last.
    fn ask(&mut self, from: ConnectionId, request: &Request) -> Result<Reply, ErrorCode> {
        self.send(from, request);
        let at = self.said.iter().rposition(|(to, said)| {
            *to == from
                && matches!(said, Said::Frame(frame) if frame[..4] != (-1_i32).to_be_bytes())
        });
        let (_, Said::Frame(frame)) = self.said.remove(at.expect("an answer")) else {
            unreachable!("looked for");
        };
        let mut reader = Reader::new(&frame);
        let header = ReplyHeader::read(&mut reader).expect("well-formed");
        assert_eq!(header.zxid, self.core.zxid);
        match header.error {
            ErrorCode::OK => Ok(Reply::read(request.opcode(), &mut reader).expect("well-formed")),
            code => Err(code),
        }
    }

    /// The events that were not looked at, in order.
    fn events(&mut self) -> Vec<(ConnectionId, EventKind, String)> {
        let frames = std::mem::take(&mut self.said).into_iter();
        let events = frames.map(|(to, said)| {
            let Said::Frame(frame) = said else {
                panic!("{to:?} was ended");
            };
            let mut reader = Reader::new(&frame);
            let header = ReplyHeader::read(&mut reader).expect("well-formed");
            assert_eq!(header.xid, xid::EVENT);
            let event = Event::read(&mut reader).expect("well-formed");
            (to, event.kind, event.path)
        });
        events.collect()
    }

    fn stat(&self, path: &str) -> Stat {
        self.core.tree.get(path).expect("it is there").stat()
    }
}

fn create(path: &str, flags: i32) -> Request {
    Request::Create(Create {
        form: CreateForm::Create,
        path: path.to_owned(),
        data: Some(b"data".to_vec()),
        acl: [Acl::open()].into(),
        mode: CreateMode(flags),
        ttl_ms: -1,
    })
}

fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.to_owned(),
        version: -1,
    }
}

fn exists(path: &str, watch: bool) -> Request {
    Request::Exists {
        path: path.to_owned(),
        watch,
    }
}

fn list(path: &str) -> Request {
    Request::GetChildren {
        path: path.to_owned(),
        watch: true,
    }
}

fn set(path: &str, version: i32) -> Request {
    Request::SetData {
        path: path.to_owned(),
        data: Some(b"other".to_vec()),
        version,
    }
}

fn path(path: &str) -> Result<Reply, ErrorCode> {
    Ok(Reply::Path(path.to_owned()))
}

#[test]
fn a_node_is_created_changed_and_deleted() {
    let (mut bench, _, _) = Bench::with_sessions();
    bench.now = MS * 5;
    assert_eq!(bench.ask(A, &create("/a", 0)), path("/a"));
    assert_eq!(bench.ask(A, &create("/a", 0)), Err(ErrorCode::NODE_EXISTS));
    assert_eq!(bench.ask(A, &create("/b/c", 0)), Err(ErrorCode::NO_NODE));
    assert_eq!(bench.ask(A, &set("/a", 3)), Err(ErrorCode::BAD_VERSION));
    bench.now = MS * 9;
    let changed = bench.ask(B, &set("/a", 0));
    let stat = bench.stat("/a");
    assert_eq!(changed, Ok(Reply::Stat(stat)));
    // Two sessions came before, and three writes were refused in between.
    assert_eq!((stat.czxid, stat.mzxid, stat.version), (3, 7, 1));
    assert_eq!((stat.ctime, stat.mtime), (EPOCH_MS + 5, EPOCH_MS + 9));
    assert_eq!((stat.data_length, stat.num_children), (5, 0));
    assert_eq!(bench.ask(A, &create("/a/b", 0)), path("/a/b"));
    assert_eq!(bench.ask(A, &delete("/a")), Err(ErrorCode::NOT_EMPTY));
    assert_eq!(bench.ask(A, &delete("/a/b")), Ok(Reply::Nothing));
    assert_eq!(bench.ask(A, &delete("/a")), Ok(Reply::Nothing));
    assert_eq!(bench.ask(A, &delete("/a")), Err(ErrorCode::NO_NODE));
}

#[test]
fn numbers_of_sequential_nodes_are_those_of_the_parent() {
    let (mut bench, _, _) = Bench::with_sessions();
    bench.ask(A, &create("/f", 0)).expect("it is created");
    assert_eq!(bench.ask(A, &create("/f/a-", 2)), path("/f/a-0000000000"));
    // Any child counts, and deletes do not.
    bench.ask(A, &create("/f/plain", 0)).expect("it is created");
    bench.ask(A, &delete("/f/plain")).expect("it is deleted");
    assert_eq!(bench.ask(B, &create("/f/b-", 3)), path("/f/b-0000000002"));
    // Clients are told of three creates and a delete.
    assert_eq!(bench.stat("/f").cversion, 4);
}

#[test]
fn a_session_takes_its_nodes_with_it() {
    let (mut bench, a, _) = Bench::with_sessions();
    bench.ask(A, &create("/e", 1)).expect("it is created");
    assert_eq!(bench.stat("/e").ephemeral_owner, a);
    let refused = bench.ask(A, &create("/e/f", 0));
    assert_eq!(refused, Err(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS));
    bench.ask(B, &exists("/e", true)).expect("it is there");
    assert_eq!(bench.ask(A, &Request::CloseSession), Ok(Reply::Nothing));
    assert_eq!(bench.said.pop(), Some((A, Said::End)));
    assert_eq!(
        bench.events(),
        [(B, EventKind::NodeDeleted, "/e".to_owned())]
    );
}

#[test]
fn a_session_expires_after_its_time_and_any_request_renews_it() {
    let (mut bench, _, _) = Bench::with_sessions();
    bench.ask(A, &create("/e", 1)).expect("it is created");
    bench.now = MS * 900;
    bench.ask(A, &Request::Ping).expect("it lives");
    bench.core.advance(T + TICK);
    bench.collect();
    assert_eq!(std::mem::take(&mut bench.said), [(B, Said::End)]);
    assert_eq!(bench.core.deadline(), Some(MS * 2000));
    bench.core.advance(MS * 2000);
    bench.collect();
    assert_eq!(bench.said, [(A, Said::End)]);
    assert!(bench.core.tree.get("/e").is_none());
    assert_eq!(bench.core.deadline(), None);
}

#[test]
fn a_session_is_resumed_with_its_password_only() {
    let mut bench = Bench::new();
    let first = bench.connect(A, 0, &[0; 16]);
    assert_eq!((first.timeout_ms, first.read_only), (1000, Some(false)));
    let again = bench.connect(B, first.session_id, &first.password);
    assert_eq!(again, first);
    // The first connection is cut off.
    assert_eq!(std::mem::take(&mut bench.said), [(A, Said::End)]);
    let wrong = bench.connect(ConnectionId(3), first.session_id, &[1; 16]);
    assert_eq!((wrong.session_id, wrong.timeout_ms), (0, 0));
    assert_eq!(bench.said, [(B, Said::End), (ConnectionId(3), Said::End)]);
}

#[test]
fn who_has_seen_more_than_this_server_is_turned_away() {
    let mut bench = Bench::new();
    bench
        .core
        .open(A, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    let hello = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 1,
        timeout_ms: 1000,
        session_id: 0,
        password: Vec::new(),
        read_only: None,
    };
    let mut writer = Writer::new();
    hello.write(&mut writer);
    bench.core.frame(A, &writer.into_bytes(), bench.now);
    bench.collect();
    assert_eq!(bench.said, [(A, Said::End)]);
}

/// An event that a session's own write causes comes before the answer to it.
#[test]
fn events_come_before_the_answer_and_in_the_order_of_the_tables() {
    let (mut bench, _, _) = Bench::with_sessions();
    bench.ask(A, &create("/a", 0)).expect("it is created");
    assert_eq!(bench.ask(A, &exists("/a/b", true)), Err(ErrorCode::NO_NODE));
    bench.ask(A, &list("/a")).expect("it is there");
    bench.send(A, &create("/a/b", 0));
    let answer = bench.said.pop().expect("the answer came last");
    assert!(matches!(answer, (A, Said::Frame(frame)) if frame[..4] == 7_i32.to_be_bytes()));
    let expected = [
        (A, EventKind::NodeCreated, "/a/b".to_owned()),
        (A, EventKind::NodeChildrenChanged, "/a".to_owned()),
    ];
    assert_eq!(bench.events(), expected);
    // Both were spent.
    bench.ask(A, &delete("/a/b")).expect("it is deleted");
    assert_eq!(bench.events(), []);
}

#[test]
fn a_deleted_node_is_told_of_once_to_who_watches_it_in_both_ways() {
    let (mut bench, _, _) = Bench::with_sessions();
    bench.ask(B, &create("/a", 0)).expect("it is created");
    bench.ask(A, &exists("/a", true)).expect("it is there");
    bench.ask(A, &list("/a")).expect("it is there");
    bench.ask(B, &delete("/a")).expect("it is deleted");
    assert_eq!(
        bench.events(),
        [(A, EventKind::NodeDeleted, "/a".to_owned())]
    );
}

#[test]
fn a_multi_is_done_whole_or_not_at_all() {
    let (mut bench, _, _) = Bench::with_sessions();
    let whole = Request::Multi(vec![
        create("/a", 0),
        create("/a/b-", 2),
        set("/a", 0),
        delete("/none"),
    ]);
    let failed = bench.ask(A, &whole);
    let codes = [
        ErrorCode::OK,
        ErrorCode::OK,
        ErrorCode::OK,
        ErrorCode::NO_NODE,
    ]
    .map(Part::Failed);
    assert_eq!(failed, Ok(Reply::Parts(codes.to_vec())));
    assert!(bench.core.tree.get("/a").is_none());
    let whole = Request::Multi(vec![
        create("/a", 0),
        create("/a/b-", 2),
        create("/a/b-", 2),
    ]);
    let Ok(Reply::Parts(parts)) = bench.ask(A, &whole) else {
        panic!("it can be done");
    };
    let made = |path: &str| Part::Done(opcode::CREATE, Reply::Path(path.to_owned()));
    assert_eq!(
        parts,
        [made("/a"), made("/a/b-0000000000"), made("/a/b-0000000001")]
    );
    // One transaction.
    assert_eq!(bench.stat("/a").czxid, bench.stat("/a").pzxid);
    let failed = bench.ask(A, &Request::Multi(vec![delete("/none"), create("/c", 0)]));
    let codes = [ErrorCode::NO_NODE, ErrorCode::RUNTIME_INCONSISTENCY].map(Part::Failed);
    assert_eq!(failed, Ok(Reply::Parts(codes.to_vec())));
}

#[test]
fn refuses_in_zookeepers_words_what_it_does_not_have() {
    let (mut bench, _, _) = Bench::with_sessions();
    let ttl = Request::Create(Create {
        form: CreateForm::Ttl,
        path: "/t".to_owned(),
        data: None,
        acl: [Acl::open()].into(),
        mode: CreateMode(5),
        ttl_ms: 1000,
    });
    assert_eq!(bench.ask(A, &ttl), Err(ErrorCode::UNIMPLEMENTED));
    let reconfig = Request::Reconfig {
        joining: None,
        leaving: Some("1".to_owned()),
        members: None,
        config_id: -1,
    };
    assert_eq!(bench.ask(A, &reconfig), Err(ErrorCode::RECONFIG_DISABLED));
    let check = Request::Check {
        path: "/".to_owned(),
        version: -1,
    };
    assert_eq!(bench.ask(A, &check), Err(ErrorCode::UNIMPLEMENTED));
    assert!(bench.said.is_empty(), "the connection goes on");
}

#[test]
fn watches_of_an_earlier_connection_are_told_of_what_they_missed() {
    let (mut bench, _, _) = Bench::with_sessions();
    bench.ask(A, &create("/a", 0)).expect("it is created");
    let seen = bench.core.zxid;
    bench.ask(A, &create("/a/b", 0)).expect("it is created");
    let path = |path: &str| vec![path.to_owned()];
    let watches = Request::SetWatches(zklock_protocol::SetWatches {
        relative_zxid: seen,
        data: vec!["/a".to_owned(), "/gone".to_owned()],
        exist: path("/a/b"),
        children: path("/a"),
        persistent: None,
    });
    bench.ask(B, &watches).expect("it is taken");
    let expected = [
        (B, EventKind::NodeDeleted, "/gone".to_owned()),
        (B, EventKind::NodeCreated, "/a/b".to_owned()),
        (B, EventKind::NodeChildrenChanged, "/a".to_owned()),
    ];
    assert_eq!(bench.events(), expected);
    bench.ask(A, &set("/a", -1)).expect("it is changed");
    assert_eq!(
        bench.events(),
        [(B, EventKind::NodeDataChanged, "/a".to_owned())]
    );
}

#[test]
fn a_server_that_starts_again_gives_sessions_their_whole_time() {
    let (mut bench, a, _) = Bench::with_sessions();
    bench.ask(A, &create("/e", 1)).expect("it is created");
    bench.now = T * 5;
    bench.core.restart(bench.now);
    bench.core.advance(bench.now + T);
    assert!(bench.core.tree.get("/e").is_some());
    let password = bench.core.sessions.password(a);
    assert_eq!(bench.connect(A, a, &password).session_id, a);
}

#[test]
fn says_how_it_is() {
    let (mut bench, a, _) = Bench::with_sessions();
    bench.ask(A, &exists("/", true)).expect("it is there");
    let say = |word: &[u8; 4]| bench.core.say(*word).expect("known");
    assert_eq!(say(b"ruok"), "imok");
    assert!(say(b"srvr").contains("\nMode: standalone\nNode count: 5\n"));
    assert!(say(b"mntr").contains("zk_global_sessions\t2\n"));
    assert_eq!(
        say(b"wchs"),
        "1 connections watching 1 paths\nTotal watches:1\n"
    );
    assert_eq!(say(b"wchp"), format!("/\n\t0x{a:x}\n\n"));
    assert!(say(b"cons").contains(&format!("sid=0x{a:x}")));
    assert_eq!(bench.core.say(*b"what"), None);
}
