//! A process that does as it is told, for tests that want several, or one to stop, to kill or to fork.
//!
//! It is this program again, with one of its tests alone: so Cargo has built it whenever it has built the tests.

mod process;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};

use testbed::process::test_alone;

#[cfg(feature = "tls")]
use crate::fixtures::cover;
use crate::fixtures::server;

/// What a puppet is told in its environment.
const SERVERS: &str = "ZKLOCK_TEST_PUPPET_SERVERS";
const PATH: &str = "ZKLOCK_TEST_PUPPET_PATH";
const CA: &str = "ZKLOCK_TEST_PUPPET_CA";

/// A process that takes locks when told to; [`process`] has the commands.
pub(crate) struct Puppet {
    child: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Puppet {
    pub(crate) fn start(servers: &str, path: &str) -> Self {
        Self::started(Self::program(servers, path))
    }

    /// For [`Puppet::started`], with an environment and a standard error that the caller likes.
    pub(crate) fn program(servers: &str, path: &str) -> Command {
        let mut command = test_alone(module_path!(), "a_puppet_does_as_it_is_told");
        command.env(SERVERS, servers).env(PATH, path);
        #[cfg(feature = "tls")]
        if let Some(cover) = cover::get() {
            command.env(SERVERS, cover.before(servers));
            command.env(CA, cover.ca());
        }
        command
    }

    pub(crate) fn started(mut command: Command) -> Self {
        // Both ways by its input: its output is the test runner's.
        let (ours, its) = UnixStream::pair().expect("two sockets");
        let child = command
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .spawn()
            .expect("the test's program can be started");
        // Who answers is told by the end of what it holds alone.
        drop(command);
        let mut puppet = Self {
            from: BufReader::new(ours.try_clone().expect("a descriptor")),
            to: ours,
            child,
        };
        assert_eq!(puppet.answer(), "ready");
        puppet
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it writes there, if that is piped.
    pub(crate) fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().expect("piped, and taken once")
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

    /// Lets it end by itself, as there are no more commands.
    pub(crate) fn end(mut self) {
        self.to.shutdown(Shutdown::Write).expect("it lives");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the process of a puppet is to do.
struct Orders {
    servers: String,
    path: String,
    /// Whom to trust, if the servers are to be reached over TLS.
    ca: Option<OsString>,
}

impl Orders {
    fn of_this_process() -> Option<Self> {
        Some(Self {
            servers: std::env::var(SERVERS).ok()?,
            path: std::env::var(PATH).expect("told with the servers"),
            ca: std::env::var_os(CA),
        })
    }
}

/// Also where the process of a puppet begins.
#[test]
fn a_puppet_does_as_it_is_told() {
    if let Some(orders) = Orders::of_this_process() {
        process::obey(&orders);
        return;
    }
    let mut puppet = Puppet::start(&server().connect_string(), "/puppet");
    assert_eq!(puppet.say("lock"), "ok");
    assert_eq!(puppet.say("state"), "Held");
    assert_eq!(puppet.say("unlock"), "ok");
    puppet.end();
}
