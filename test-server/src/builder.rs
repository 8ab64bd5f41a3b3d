//! [`ServerBuilder`]: how a server is to be set up.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::core::{Line, Settings};
use crate::server::Server;

/// How a server is to be set up. Begin with [`Server::builder`].
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// let server = zklock_test::Server::builder()
///     .session_timeouts(Duration::from_millis(500), Duration::from_secs(10))
///     .start()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "starts nothing by itself"]
pub struct ServerBuilder {
    line: Line,
    port: u16,
    tick: Duration,
    session_timeouts: Option<(Duration, Duration)>,
    max_frame: usize,
    container_check: Duration,
}

impl ServerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            line: Line::default(),
            port: 0,
            tick: Duration::from_millis(100),
            session_timeouts: None,
            max_frame: 0xf_ffff,
            container_check: Duration::from_secs(60),
        }
    }

    /// Which releases it behaves as. Defaults to [`Line::V3_8`].
    pub fn line(mut self, line: Line) -> Self {
        self.line = line;
        self
    }

    /// The port of the loopback interface to listen on. Defaults to 0: a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The server's unit of time: sessions expire at multiples of it, so up to one later than
    /// their timeout says. Defaults to 100 ms, where ZooKeeper has 2 s.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick.max(Duration::from_millis(1));
        self
    }

    /// The shortest and the longest session timeout that is granted. Defaults to 2 ticks and to
    /// 60 s, where ZooKeeper has 2 and 20 ticks.
    pub fn session_timeouts(mut self, shortest: Duration, longest: Duration) -> Self {
        self.session_timeouts = Some((shortest, longest.max(shortest)));
        self
    }

    /// The longest request that is taken, in bytes; a longer one ends its connection. Defaults to
    /// ZooKeeper's own `jute.maxbuffer`, 1 MiB less 1.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// How often containers are looked at that were used and are empty, at most once in a
    /// millisecond. Defaults to 60 s, as in ZooKeeper.
    pub fn container_check(mut self, every: Duration) -> Self {
        self.container_check = every.max(Duration::from_millis(1));
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// If the port is taken, or the system gives no thread.
    pub fn start(self) -> io::Result<Server> {
        Server::launch(self.settings(1, RandomState::new().hash_one(1)), self.port)
    }

    pub(crate) fn first_port(&self) -> u16 {
        self.port
    }

    pub(crate) fn tick_time(&self) -> Duration {
        self.tick
    }

    pub(crate) fn settings(&self, server_id: u8, secret: u64) -> Settings {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let defaults = (self.tick * 2, Duration::from_secs(60).max(self.tick * 20));
        let (shortest, longest) = self.session_timeouts.unwrap_or(defaults);
        Settings {
            line: self.line,
            server_id,
            tick: self.tick,
            min_session_timeout: shortest,
            max_session_timeout: longest,
            max_frame: self.max_frame,
            container_check: self.container_check,
            epoch_ms: i64::try_from(since_1970.as_millis()).unwrap_or_default(),
            secret,
        }
    }
}
