//! Another process for a test to stop, kill or fork: it does as it is told, one line at a time.
//!
//! It is the test's own program again ([`test_alone`](super::process::test_alone)), so Cargo has built it whenever it
//! has built the tests.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, StdinLock, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};

const READY: &str = "ready";

/// The test's end of a process that answers each line with one line. Dropping it kills the process.
#[derive(Debug)]
pub struct Puppet {
    child: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Puppet {
    /// Starts a process that obeys [`orders`], and returns when it does.
    pub fn started(mut command: Command) -> Puppet {
        // Both ways by its input: its output is the test runner's.
        let (ours, its) = UnixStream::pair().expect("two sockets");
        let child = command
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .spawn()
            .expect("the test's program can be started");
        // Who answers is told by the end of what it holds alone.
        drop(command);
        let mut puppet = Puppet {
            from: BufReader::new(ours.try_clone().expect("a descriptor")),
            to: ours,
            child,
        };
        assert_eq!(puppet.answer(), READY);
        puppet
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it writes there, if that is piped.
    pub fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().expect("piped, and taken once")
    }

    pub fn command(&mut self, command: &str) {
        writeln!(self.to, "{command}").expect("it lives");
    }

    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    pub fn say(&mut self, command: &str) -> String {
        self.command(command);
        self.answer()
    }

    /// Lets it end by itself, as there are no more commands.
    pub fn end(mut self) {
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

/// In the process of a puppet: says that it is ready, and then what it is told.
pub fn orders() -> Lines<StdinLock<'static>> {
    answer(READY);
    std::io::stdin().lock().lines()
}

/// In the process of a puppet: answers where the commands come from.
pub fn answer(text: &str) {
    let channel = std::io::stdin().as_fd().try_clone_to_owned();
    File::from(channel.expect("a descriptor"))
        .write_all(format!("{text}\n").as_bytes())
        .expect("read by the test");
}
