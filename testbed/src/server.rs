//! One ZooKeeper server on a free loopback port: Apache's, or the one that runs in this process.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::Access;

use super::embedded::{self, Embedded};
use super::guardian::Guardian;
use super::installation::Installation;
use super::ports::Port;
use super::{four_letter, process, wait_for_some};

/// A start takes 0.4 s on an idle machine; test machines are seldom idle.
const START: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(10);
const PORT_ATTEMPTS: u32 = 5;

/// A RAM disk keeps fsync out of the measurements and the tests quick.
const RAM_DISK: &str = "/dev/shm";
const RAM_DISK_ROOM: u64 = 512 * 1024 * 1024;

/// A running server. Dropping it kills the process and removes its files.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    engine: Engine,
}

#[derive(Debug)]
enum Engine {
    Apache(Apache),
    Embedded(Embedded),
}

/// A server process and what belongs to it.
#[derive(Debug)]
struct Apache {
    /// Stays claimed while the server is down.
    _port: Port,
    /// For TLS.
    secure_port: Option<Port>,
    home: PathBuf,
    guardian: Mutex<Guardian>,
}

/// What a server says about itself (`mntr` and `wchs`).
///
/// Administration words are counted too: each reading adds two connections'
/// worth of packets to `received` and `sent`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerStats {
    pub received: u64,
    pub sent: u64,
    /// Open client connections, that of the reading itself included.
    pub connections: u64,
    pub sessions: u64,
    pub znode_count: u64,
    pub ephemeral_count: u64,
    pub watch_count: u64,
    pub watched_paths: u64,
    pub outstanding_requests: u64,
    pub descriptors: u64,
}

/// How a server is to be set up. Begin with [`Server::builder`].
#[derive(Debug, Clone)]
pub struct ServerBuilder {
    tick_ms: u32,
    min_session_timeout_ms: Option<u32>,
    max_session_timeout_ms: Option<u32>,
    force_sync: bool,
    quick_start: bool,
    settings: Vec<(String, String)>,
    properties: Vec<(String, String)>,
    secure: bool,
    embeddable: bool,
}

/// A server's number in its ensemble.
#[derive(Debug, Clone, Copy)]
pub struct Membership(pub usize);

/// Why a server did not come up.
#[derive(Debug, PartialEq, Eq)]
pub enum StartFailure {
    /// Somebody else listens on its port: worth a try with another one.
    PortTaken,
    /// Anything else, with the end of its log.
    Died(String),
    TimedOut(String),
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartFailure::PortTaken => f.write_str("its port is taken"),
            StartFailure::Died(log) => write!(f, "it ended; its log does too:\n{log}"),
            StartFailure::TimedOut(log) => write!(f, "it does not answer; its log ends:\n{log}"),
        }
    }
}

impl Server {
    /// Starts a server with a tick of 500 ms (so the shortest session timeout
    /// is 1 s) and returns when it serves.
    pub fn start() -> Server {
        Server::builder().start()
    }

    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            tick_ms: 500,
            min_session_timeout_ms: None,
            max_session_timeout_ms: None,
            force_sync: false,
            quick_start: true,
            settings: Vec::new(),
            properties: Vec::new(),
            secure: false,
            embeddable: true,
        }
    }

    /// `127.0.0.1:port` of its `secureClientPort`.
    #[track_caller]
    pub fn secure_connect_string(&self) -> String {
        let port = self.apache().secure_port.as_ref();
        port.expect("built with secure()").addr().to_string()
    }

    /// `127.0.0.1:port`, without a chroot.
    pub fn connect_string(&self) -> String {
        self.addr().to_string()
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The server's process id.
    ///
    /// # Panics
    /// If it has been killed.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.guardian()
            .server()
            .expect("the server runs: it was not killed, or was restarted")
    }

    /// Whether the process runs or is frozen.
    pub fn is_alive(&self) -> bool {
        if let Engine::Embedded(server) = &self.engine {
            return server.is_alive();
        }
        self.guardian().server().is_some_and(process::is_alive)
    }

    /// Whether the process runs and is not frozen.
    pub fn is_awake(&self) -> bool {
        if let Engine::Embedded(server) = &self.engine {
            return server.is_awake();
        }
        let pid = self.guardian().server();
        pid.is_some_and(|pid| process::is_alive(pid) && !process::is_stopped(pid))
    }

    /// Kills the server (SIGKILL) and returns when the process is gone.
    pub fn kill(&self) {
        match &self.engine {
            Engine::Embedded(server) => server.kill(),
            Engine::Apache(_) => self.guardian().kill(),
        }
    }

    /// Freezes the server (SIGSTOP): its connections stay, nothing answers.
    pub fn stop(&self) {
        match &self.engine {
            Engine::Embedded(server) => server.freeze(),
            Engine::Apache(_) => process::stop(self.pid()),
        }
    }

    /// Lets a frozen server go on.
    pub fn cont(&self) {
        match &self.engine {
            Engine::Embedded(server) => server.thaw(),
            Engine::Apache(_) => process::cont(self.pid()),
        }
    }

    /// Starts the server again, on the same port with the same data, and
    /// returns when it serves. Kills it first where that was not done.
    pub fn restart(&self) {
        let deadline = Instant::now() + START;
        loop {
            self.relaunch();
            match self.wait_until_serving(deadline) {
                Ok(()) => return,
                // A passing connection of another program: it will end.
                Err(StartFailure::PortTaken) if Instant::now() < deadline => {}
                Err(failure) => panic!("the server did not restart: {failure}"),
            }
        }
    }

    /// The answer to a four-letter word.
    ///
    /// # Panics
    /// If the server does not answer within 10 s.
    #[track_caller]
    pub fn admin(&self, word: &str) -> String {
        four_letter::ask(self.addr(), word, ANSWER)
            .unwrap_or_else(|error| panic!("no answer to {word} from {}: {error}", self.addr()))
    }

    #[track_caller]
    pub fn stats(&self) -> ServerStats {
        ServerStats::parse(&self.admin("mntr"), &self.admin("wchs"))
    }

    /// `standalone`, `leader` or `follower`; none while it does not serve.
    pub fn mode(&self, within: Duration) -> Option<String> {
        let answer = four_letter::ask(self.addr(), "srvr", within).ok()?;
        four_letter::mode(&answer).map(str::to_owned)
    }

    /// What the server has logged so far, all its starts included.
    pub fn log(&self) -> String {
        match &self.engine {
            Engine::Embedded(_) => String::new(),
            Engine::Apache(server) => {
                fs::read_to_string(server.home.join("server.log")).unwrap_or_default()
            }
        }
    }

    /// Kills the process, if there is one, and starts another, not waiting
    /// for it to serve.
    pub fn relaunch(&self) {
        if let Engine::Embedded(server) = &self.engine {
            return server.restart().expect("its port is kept for it");
        }
        let mut guardian = self.guardian();
        guardian.kill();
        guardian.start();
    }

    /// Waits until this very server (and not another one that happens to
    /// listen on the port) serves clients.
    pub fn wait_until_serving(&self, deadline: Instant) -> Result<(), StartFailure> {
        // The first connection to a server that is just starting can be left
        // without an answer for ever, so ask again on a new one, a little more
        // patiently each time.
        let mut patience = Duration::from_millis(100);
        let within = deadline.saturating_duration_since(Instant::now());
        let outcome = wait_for_some(within, || {
            if !self.is_alive() {
                return Some(Err(self.cause_of_death()));
            }
            patience = (patience * 3 / 2).min(Duration::from_secs(5));
            (self.mode(patience).is_some() && self.is_the_one(patience)).then_some(Ok(()))
        });
        outcome.unwrap_or_else(|| Err(StartFailure::TimedOut(self.end_of_log())))
    }

    fn is_the_one(&self, patience: Duration) -> bool {
        let Engine::Apache(server) = &self.engine else {
            return true;
        };
        // `conf` names the data folder, which no other server shares.
        four_letter::ask(self.addr(), "conf", patience)
            .is_ok_and(|conf| conf.contains(&*server.home.to_string_lossy()))
    }

    fn cause_of_death(&self) -> StartFailure {
        let log = self.end_of_log();
        if log.contains("BindException") || log.contains("Address already in use") {
            StartFailure::PortTaken
        } else {
            StartFailure::Died(log)
        }
    }

    fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn guardian(&self) -> MutexGuard<'_, Guardian> {
        // A test that failed inside must still be able to end its servers.
        let guardian = &self.apache().guardian;
        guardian.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn apache(&self) -> &Apache {
        match &self.engine {
            Engine::Apache(server) => server,
            Engine::Embedded(_) => panic!("needs a process: build it with apache()"),
        }
    }
}

impl ServerBuilder {
    /// The server's unit of time, in ms. Sessions last 2 to 20 ticks.
    /// Defaults to 500.
    pub fn tick_ms(mut self, tick_ms: u32) -> ServerBuilder {
        self.tick_ms = tick_ms;
        self
    }

    /// Defaults to 2 ticks.
    pub fn min_session_timeout_ms(mut self, timeout_ms: u32) -> ServerBuilder {
        self.min_session_timeout_ms = Some(timeout_ms);
        self
    }

    /// Defaults to 20 ticks.
    pub fn max_session_timeout_ms(mut self, timeout_ms: u32) -> ServerBuilder {
        self.max_session_timeout_ms = Some(timeout_ms);
        self
    }

    /// Whether a write is on the disk before it is acknowledged. Defaults to
    /// no: these servers are killed, but the machine under them is not.
    pub fn force_sync(mut self, force_sync: bool) -> ServerBuilder {
        self.force_sync = force_sync;
        self
    }

    /// Apache's own, whatever `ZKLOCK_TEST_SERVER` says: for tests that need a process, or one of its
    /// peculiarities. Settings of its own imply it.
    pub fn apache(mut self) -> ServerBuilder {
        self.embeddable = false;
        self
    }

    /// Lets Java optimise fully, for benchmarks. By default only its quick
    /// compiler runs, which leaves more of the processor to the tests.
    pub fn optimised(mut self) -> ServerBuilder {
        self.quick_start = false;
        self.apache()
    }

    /// Adds a line to `zoo.cfg`.
    pub fn setting(mut self, key: &str, value: &str) -> ServerBuilder {
        self.settings.push((key.to_owned(), value.to_owned()));
        self.apache()
    }

    /// Adds a line to `zoo.cfg` unless one of this name has been added.
    pub fn default_setting(self, key: &str, value: &str) -> ServerBuilder {
        if self.settings.iter().any(|(present, _)| present == key) {
            self
        } else {
            self.setting(key, value)
        }
    }

    /// Adds a Java system property.
    pub fn property(mut self, key: &str, value: &str) -> ServerBuilder {
        self.properties.push((key.to_owned(), value.to_owned()));
        self.apache()
    }

    /// Opens a second port, for TLS, with a certificate of `store` and trust in the authority of
    /// `trust`, both in PEM. `client_auth` is `none`, `want` or `need`; `protocol` is `TLSv1.2` or
    /// `TLSv1.3`.
    pub fn secure(
        mut self,
        store: &Path,
        trust: &Path,
        client_auth: &str,
        protocol: &str,
    ) -> ServerBuilder {
        self.secure = true;
        self.setting(
            "serverCnxnFactory",
            "org.apache.zookeeper.server.NettyServerCnxnFactory",
        )
        .setting("ssl.keyStore.location", &store.to_string_lossy())
        .setting("ssl.trustStore.location", &trust.to_string_lossy())
        .setting("ssl.clientAuth", client_auth)
        .setting("ssl.protocol", protocol)
        .setting("ssl.enabledProtocols", protocol)
        // Those of 1.3 are not among the ones that ZooKeeper 3.8 offers by itself.
        .setting(
            "ssl.ciphersuites",
            if protocol == "TLSv1.3" {
                "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384"
            } else {
                "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
            },
        )
        // Whom the server serves is not the host that the client calls itself.
        .setting("ssl.clientHostnameVerification", "false")
    }

    /// Starts the server and returns when it serves.
    ///
    /// # Panics
    /// If no server is installed, or it does not come up within 60 s.
    pub fn start(self) -> Server {
        if self.embeddable && embedded::is_wanted() {
            return self.embed();
        }
        for _ in 0..PORT_ATTEMPTS {
            let server = self.prepare(Port::claim(), None);
            server.relaunch();
            match server.wait_until_serving(Instant::now() + START) {
                Ok(()) => return server,
                Err(StartFailure::PortTaken) => {}
                Err(failure) => panic!("the server did not start: {failure}"),
            }
        }
        panic!("each of {PORT_ATTEMPTS} free ports was taken before the server could bind it");
    }

    fn embed(&self) -> Server {
        let ms = |ms: u32| Duration::from_millis(u64::from(ms));
        let embedded = Embedded::start(
            ms(self.tick_ms),
            ms(self.min_session_timeout_ms.unwrap_or(2 * self.tick_ms)),
            ms(self.max_session_timeout_ms.unwrap_or(20 * self.tick_ms)),
        );
        Server {
            addr: embedded.server.address(),
            engine: Engine::Embedded(embedded),
        }
    }

    /// Lays out a server's files and its guardian, but starts nothing.
    pub fn prepare(&self, port: Port, membership: Option<Membership>) -> Server {
        let home = tempfile::Builder::new()
            .prefix("zklock-server-")
            .tempdir_in(roomiest_folder())
            .expect("a temporary folder can be made")
            // From here on the guardian removes it.
            .keep();
        let data = home.join("data");
        fs::create_dir(&data).expect("the server's folder is ours");
        if let Some(Membership(id)) = membership {
            fs::write(data.join("myid"), id.to_string()).expect("the server's folder is ours");
        }
        let configuration = home.join("zoo.cfg");
        let secure_port = self.secure.then(Port::claim);
        let zoo_cfg = self.zoo_cfg(&data, &port, secure_port.as_ref());
        fs::write(&configuration, zoo_cfg).expect("the server's folder is ours");
        fs::write(home.join("logback.xml"), LOGBACK).expect("the server's folder is ours");
        let guardian = Guardian::over(&home, &self.command(&home, &configuration));
        Server {
            addr: port.addr(),
            engine: Engine::Apache(Apache {
                _port: port,
                secure_port,
                home,
                guardian: Mutex::new(guardian),
            }),
        }
    }

    fn zoo_cfg(&self, data: &Path, port: &Port, secure_port: Option<&Port>) -> String {
        let mut settings = vec![
            ("tickTime".to_owned(), self.tick_ms.to_string()),
            ("dataDir".to_owned(), data.display().to_string()),
            ("clientPort".to_owned(), port.number().to_string()),
            ("clientPortAddress".to_owned(), "127.0.0.1".to_owned()),
            ("admin.enableServer".to_owned(), "false".to_owned()),
            ("4lw.commands.whitelist".to_owned(), "*".to_owned()),
            ("maxClientCnxns".to_owned(), "0".to_owned()),
            (
                "forceSync".to_owned(),
                if self.force_sync { "yes" } else { "no" }.to_owned(),
            ),
        ];
        let timeouts = [
            ("minSessionTimeout", self.min_session_timeout_ms),
            ("maxSessionTimeout", self.max_session_timeout_ms),
        ];
        for (key, timeout_ms) in timeouts {
            settings.extend(timeout_ms.map(|ms| (key.to_owned(), ms.to_string())));
        }
        if let Some(port) = secure_port {
            settings.push(("secureClientPort".to_owned(), port.number().to_string()));
            let address = "secureClientPortAddress".to_owned();
            settings.push((address, "127.0.0.1".to_owned()));
        }
        settings.extend(self.settings.iter().cloned());
        settings
            .iter()
            .fold(String::new(), |mut text, (key, value)| {
                writeln!(text, "{key}={value}").expect("writing to a String cannot fail");
                text
            })
    }

    fn command(&self, home: &Path, configuration: &Path) -> Vec<OsString> {
        let installation = Installation::find();
        let mut command: Vec<OsString> = vec![
            installation.java.clone().into(),
            "-Xmx256m".into(),
            "-XX:+UseSerialGC".into(),
            "-XX:-UsePerfData".into(),
        ];
        if self.quick_start {
            command.push("-XX:TieredStopAtLevel=1".into());
        }
        let mut property = |key: &str, value: &str| command.push(format!("-D{key}={value}").into());
        property("java.net.preferIPv4Stack", "true");
        property("java.io.tmpdir", &home.to_string_lossy());
        property("org.slf4j.simpleLogger.showDateTime", "true");
        property("org.slf4j.simpleLogger.dateTimeFormat", "HH:mm:ss.SSS");
        property(
            "logback.configurationFile",
            &home.join("logback.xml").to_string_lossy(),
        );
        for (key, value) in &self.properties {
            property(key, value);
        }
        let mut class_path = installation.class_path.clone();
        if self.secure {
            class_path.push(":");
            class_path.push(&installation.netty);
        }
        command.extend([
            "-cp".into(),
            class_path,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain".into(),
            configuration.into(),
        ]);
        command
    }
}

/// The Apache tarball logs through logback, which says everything when it is
/// not configured.
const LOGBACK: &str = r#"<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} [%thread] %level %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"#;

impl ServerStats {
    fn parse(mntr: &str, wchs: &str) -> ServerStats {
        let numbers = four_letter::numbers(mntr);
        let number = |name: &str| numbers.get(name).copied().unwrap_or_default();
        // "2 connections watching 3 paths"
        let watched_paths = wchs
            .split_once("watching ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        ServerStats {
            received: number("zk_packets_received"),
            sent: number("zk_packets_sent"),
            connections: number("zk_num_alive_connections"),
            sessions: number("zk_global_sessions"),
            znode_count: number("zk_znode_count"),
            ephemeral_count: number("zk_ephemerals_count"),
            watch_count: number("zk_watch_count"),
            watched_paths: watched_paths.unwrap_or_default(),
            outstanding_requests: number("zk_outstanding_requests"),
            descriptors: number("zk_open_file_descriptor_count"),
        }
    }
}

fn roomiest_folder() -> PathBuf {
    let has_room = rustix::fs::statvfs(RAM_DISK)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= RAM_DISK_ROOM);
    // Making files in a folder takes the right to enter it too.
    let writable = rustix::fs::access(RAM_DISK, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    if has_room && writable {
        RAM_DISK.into()
    } else {
        std::env::temp_dir()
    }
}
