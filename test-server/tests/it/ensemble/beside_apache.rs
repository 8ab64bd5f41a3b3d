//! The same script on three servers of Apache ZooKeeper and on ours: what clients see is the same,
//! line by line. Only what no race can change is asked.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use zklock_protocol::{Acl, Create, CreateForm, CreateMode, Part, Reply, Request};
use zklock_test::{Ensemble, Server};

use crate::wire::{Answer, Wire};

const T: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(500);

/// Three servers: a leader and two followers.
enum Stage {
    Apache(testbed::Ensemble),
    Ours(Ensemble),
}

impl Stage {
    fn apache() -> Self {
        let builder = testbed::Server::builder().apache().tick_ms(500);
        Self::Apache(testbed::Ensemble::start_with(3, &builder))
    }

    fn ours() -> Self {
        let servers = Server::builder().tick(TICK);
        let ensemble = Ensemble::builder(3).servers(servers).start();
        Self::Ours(ensemble.expect("loopback has free ports"))
    }

    fn leader(&self) -> usize {
        match self {
            Self::Apache(ensemble) => ensemble.leader(),
            Self::Ours(ensemble) => ensemble.leader(),
        }
    }

    fn address(&self, index: usize) -> SocketAddr {
        match self {
            Self::Apache(ensemble) => ensemble.server(index).addr(),
            Self::Ours(ensemble) => ensemble.server(index).address(),
        }
    }

    fn kill(&self, index: usize) {
        match self {
            Self::Apache(ensemble) => ensemble.kill(index),
            Self::Ours(ensemble) => ensemble.kill(index),
        }
    }

    /// Those that do not lead.
    fn followers(&self) -> [usize; 2] {
        let leader = self.leader();
        let others: Vec<_> = (0..3).filter(|index| *index != leader).collect();
        [others[0], others[1]]
    }
}

/// What a client sees, as lines of text.
struct Script {
    stage: Stage,
    lines: Vec<String>,
}

impl Script {
    fn open(&self, at: usize) -> Wire {
        Wire::open(self.stage.address(at), T).expect("it serves")
    }

    fn resume(&self, wire: &Wire, at: usize) -> Wire {
        let session = &wire.session;
        let address = self.stage.address(at);
        Wire::resume(address, T, session.session_id, &session.password).expect("it serves")
    }

    fn note(&mut self, what: &str, seen: impl std::fmt::Debug) {
        self.lines.push(format!("{what}: {seen:?}"));
    }

    /// Asks, and notes the answer without numbers and times.
    fn ask(&mut self, who: &str, wire: &mut Wire, request: &Request) {
        let answer = wire.ask(request).expect("an answer, or an end");
        let seen = match answer {
            Answer::End => "the connection ends".to_owned(),
            Answer::Reply { error, reply, .. } => format!("{error} {}", shown(reply, wire)),
        };
        self.note(&format!("{who} asks {request:?}"), seen);
    }

    /// What it was told of until a sync is answered.
    fn drain(&mut self, who: &str, wire: &mut Wire) {
        wire.ask(&sync()).expect("it is open");
        let told: Vec<_> = wire.events.drain(..).map(|(_, event)| event).collect();
        self.note(&format!("{who} was told"), told);
    }
}

fn shown(reply: Reply, wire: &Wire) -> String {
    match reply {
        Reply::Data { data, stat } => {
            let is_own = stat.ephemeral_owner == wire.session.session_id;
            let (version, children) = (stat.version, stat.num_children);
            format!("{data:?}, version {version}, {children} children, own: {is_own}")
        }
        Reply::Children(children) => {
            let mut names = children.to_vec();
            names.sort_unstable();
            format!("{names:?}")
        }
        Reply::Stat(stat) => format!("version {}", stat.version),
        Reply::Parts(parts) => {
            let parts = parts.into_iter().map(|part| match part {
                Part::Done(opcode, reply) => format!("{opcode}: {}", shown(reply, wire)),
                Part::Failed(error) => error.to_string(),
            });
            parts.collect::<Vec<_>>().join(", ")
        }
        reply => format!("{reply:?}"),
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

fn get(path: &str, watch: bool) -> Request {
    Request::GetData {
        path: path.to_owned(),
        watch,
    }
}

fn children(path: &str) -> Request {
    Request::GetChildren {
        path: path.to_owned(),
        watch: false,
    }
}

fn set(path: &str, version: i32) -> Request {
    Request::SetData {
        path: path.to_owned(),
        data: Some(b"other".to_vec()),
        version,
    }
}

fn sync() -> Request {
    Request::Sync {
        path: "/".to_owned(),
    }
}

/// Plays it on both.
#[track_caller]
fn assert_alike(play: impl Fn(&mut Script)) {
    let [apache, ours] = [Stage::apache(), Stage::ours()].map(|stage| {
        let lines = Vec::new();
        let mut script = Script { stage, lines };
        play(&mut script);
        script.lines
    });
    assert!(!apache.is_empty());
    assert_eq!(ours, apache, "\nours is left, Apache's is right");
}

#[test]
fn what_one_writes_another_reads_after_a_sync() {
    assert_alike(|script| {
        let [one, other] = script.stage.followers();
        let leader = script.stage.leader();
        let mut writer = script.open(one);
        let mut reader = script.open(other);
        let mut third = script.open(leader);
        script.ask("writer", &mut writer, &create("/a", 0));
        for wire in [&mut reader, &mut third] {
            script.ask("reader", wire, &sync());
            script.ask("reader", wire, &get("/a", true));
        }
        script.ask("writer", &mut writer, &set("/a", 7));
        script.ask("writer", &mut writer, &set("/a", 0));
        for wire in [&mut reader, &mut third] {
            script.drain("reader", wire);
            script.ask("reader", wire, &get("/a", false));
        }
        for number in 0..3 {
            let wire = [&mut writer, &mut reader, &mut third][number % 3].ask(&create("/a/s-", 3));
            script.note(
                "a sequential node",
                wire.map(|answer| match answer {
                    Answer::Reply { reply, .. } => Some(reply),
                    Answer::End => None,
                })
                .ok(),
            );
        }
        script.ask("third", &mut third, &sync());
        script.ask("third", &mut third, &children("/a"));
        let multi = Request::Multi(vec![create("/b", 0), set("/none", 0), create("/c", 0)]);
        script.ask("writer", &mut writer, &multi);
        let multi = Request::Multi(vec![create("/b", 0), set("/a", 1)]);
        script.ask("writer", &mut writer, &multi);
        script.ask("writer", &mut writer, &Request::CloseSession);
        script.ask("third", &mut third, &sync());
        script.ask("third", &mut third, &children("/a"));
    });
}

#[test]
fn a_session_moves_between_servers() {
    assert_alike(|script| {
        let [one, other] = script.stage.followers();
        let leader = script.stage.leader();
        let mut first = script.open(one);
        script.ask("first", &mut first, &create("/e", 1));
        let mut second = script.resume(&first, other);
        script.note(
            "the same session",
            second.session.session_id == first.session.session_id,
        );
        // Reads go on at the follower that it left; what it writes there ends that connection.
        script.ask("first", &mut first, &get("/e", false));
        script.ask("second", &mut second, &set("/e", 0));
        script.ask("first", &mut first, &set("/e", 1));
        script.ask("second", &mut second, &get("/e", false));
        let mut third = script.resume(&second, leader);
        script.ask("third", &mut third, &get("/e", false));
        script.ask("second", &mut second, &set("/e", 1));
        // The leader looks at whose session it is even for reads of its own clients.
        let mut fourth = script.resume(&third, one);
        script.ask("fourth", &mut fourth, &get("/e", false));
        script.ask("third", &mut third, &get("/e", false));
        let mut wrong = fourth.session.clone();
        wrong.password[3] ^= 1;
        let address = script.stage.address(other);
        let refused = Wire::resume(address, T, wrong.session_id, &wrong.password);
        script.note(
            "with a wrong password",
            refused.map(|wire| wire.session.session_id).ok(),
        );
        script.ask("fourth", &mut fourth, &Request::CloseSession);
        let after = script.resume(&fourth, other).session.session_id;
        script.note("after its end", after);
    });
}

#[test]
fn a_session_outlives_its_leader_by_its_timeout() {
    assert_alike(|script| {
        let [one, other] = script.stage.followers();
        let mut holder = script.open(one);
        script.ask("holder", &mut holder, &create("/e", 1));
        let watcher = script.open(other);
        let old = script.stage.leader();
        drop(holder.into_stream());
        let killed_at = Instant::now();
        script.stage.kill(old);
        // Whoever served has hung up; the session goes on when there is a leader again.
        let new = script.stage.leader();
        script.note("another leads", new != old);
        let mut watcher = again(script, &watcher, other);
        script.ask("watcher", &mut watcher, &get("/e", true));
        while watcher.events.is_empty() {
            assert!(killed_at.elapsed() < T * 10, "it does not expire");
            watcher.ask(&Request::Ping).expect("it is open");
        }
        script.note("not too soon", killed_at.elapsed() >= T);
        script.drain("watcher", &mut watcher);
        script.ask("watcher", &mut watcher, &get("/e", false));
    });
}

/// Takes the session up as soon as the server serves.
fn again(script: &Script, wire: &Wire, at: usize) -> Wire {
    let deadline = Instant::now() + T;
    loop {
        let session = &wire.session;
        let address = script.stage.address(at);
        match Wire::resume(address, T, session.session_id, &session.password) {
            Ok(wire) => return wire,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}
