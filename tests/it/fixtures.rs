//! What the tests share: a server that nobody harms, clients, and checks of what was left behind.

#[cfg(feature = "tls")]
mod cover;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use zklock::{Client, ClientBuilder, Mutex};

use crate::support::{RawSession, Server, wait_for_some};

/// Long enough for anything that happens at all.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// The session timeout of tests in which it plays a part. The test servers grant 1 s to 10 s.
pub(crate) const T: Duration = Duration::from_secs(3);

/// A server for all tests that do it no harm. Each uses paths of its own.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        // With RUST_LOG set and --nocapture, a test shows what the library says.
        let _ = env_logger::builder().format_timestamp_millis().try_init();
        Server::start()
    })
}

/// As [`server`], and Apache's whatever `ZKLOCK_TEST_SERVER` says.
pub(crate) fn apache() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::builder().apache().start())
}

/// A client of these servers; over TLS if `ZKLOCK_TEST_TLS` is set, with what ends TLS before each of
/// them, so that every fault there is hits a connection that is sealed.
pub(crate) fn builder(servers: &str) -> ClientBuilder {
    #[cfg(feature = "tls")]
    if let Some(cover) = cover::get() {
        let tls = zklock::Tls::pem(cover.ca()).expect("a good file");
        return Client::builder(&cover.before(servers)).tls(tls);
    }
    Client::builder(servers)
}

pub(crate) fn client() -> Client {
    builder(&server().connect_string())
        .connect()
        .expect("a server that works")
}

pub(crate) fn client_at(servers: &str) -> Client {
    builder(servers)
        .session_timeout(T)
        .connect()
        .expect("a server that works")
}

pub(crate) fn mutex(client: &Client, path: &str) -> Mutex {
    Mutex::new(client, path).expect("a good path")
}

/// A session without a lock in it, to look and to interfere with.
pub(crate) fn raw(server: &Server) -> RawSession {
    RawSession::open(server.addr(), Duration::from_secs(10)).expect("a server that works")
}

pub(crate) fn children(server: &Server, path: &str) -> Vec<String> {
    raw(server).children(path).unwrap_or_default()
}

#[track_caller]
pub(crate) fn wait_for_children(server: &Server, path: &str, count: usize) {
    let mut raw = raw(server);
    let mut left = Vec::new();
    let found = wait_for_some(SOON, || {
        left = raw.children(path).unwrap_or_default();
        (left.len() == count).then_some(())
    });
    assert!(
        found.is_some(),
        "not within {SOON:?}: {count} children in {path}: there are {left:?}"
    );
}

/// A process that does as it is told; see `tests/puppet`.
pub(crate) struct Puppet {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Puppet {
    pub(crate) fn start(servers: &str, path: &str) -> Self {
        let mut command = Command::new(example("puppet"));
        #[cfg(feature = "tls")]
        if let Some(cover) = cover::get() {
            command.env("ZK_TLS_CA", cover.ca());
            command.args([&cover.before(servers), path]);
        } else {
            command.args([servers, path]);
        }
        #[cfg(not(feature = "tls"))]
        command.args([servers, path]);
        let mut child = command
            .arg(T.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example `puppet`; build it by `cargo build --examples`");
        let mut puppet = Self {
            to: child.stdin.take().expect("piped"),
            from: BufReader::new(child.stdout.take().expect("piped")),
            child,
        };
        assert_eq!(puppet.answer(), "ready");
        puppet
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn command(&mut self, command: &str) {
        writeln!(self.to, "{command}").expect("it lives");
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    pub(crate) fn say(&mut self, command: &str) -> String {
        self.command(command);
        self.answer()
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Cargo builds examples before it runs tests, and puts them beside the tests' folder.
pub(crate) fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("we run");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.join("examples").join(name)
}
