//! What the tests share: a server that nobody harms, clients, and checks of what was left behind.

#[cfg(feature = "tls")]
pub(crate) mod cover;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use testbed::{RawSession, Server, wait_for_some};
use zklock::{Client, ClientBuilder, Mutex};

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

/// Cargo builds examples before it runs tests, and puts them beside the tests' folder.
pub(crate) fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("we run");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.join("examples").join(name)
}
