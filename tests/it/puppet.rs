//! A process that takes locks when told to, for tests that want several, or one to stop, to kill or to fork.

mod process;

use std::ffi::OsString;
use std::process::Command;

use testbed::Puppet;
use testbed::process::test_alone;

#[cfg(feature = "tls")]
use crate::fixtures::cover;
use crate::fixtures::server;

/// What a puppet is told in its environment.
const SERVERS: &str = "ZKLOCK_TEST_PUPPET_SERVERS";
const PATH: &str = "ZKLOCK_TEST_PUPPET_PATH";
const CA: &str = "ZKLOCK_TEST_PUPPET_CA";

/// Starts a process that takes locks; [`process`] has the commands.
pub(crate) fn start(servers: &str, path: &str) -> Puppet {
    Puppet::started(program(servers, path))
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
    let mut puppet = start(&server().connect_string(), "/puppet");
    assert_eq!(puppet.say("lock"), "ok");
    assert_eq!(puppet.say("state"), "Held");
    assert_eq!(puppet.say("unlock"), "ok");
    puppet.end();
}
