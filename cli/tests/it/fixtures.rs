//! What all tests of the command stand on.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testbed::{Server, wait_for_some, wait_until};
use zklock::{Client, Mutex};

/// For what must happen, and takes no time by itself.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// For the threads of this process to pass on what is in a pipe already.
const SETTLED: Duration = Duration::from_secs(2);

/// One server for all tests that do it no harm; it ends with this process.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

/// Becomes the program that follows, with no signal ignored: a shell without job control has
/// interrupts ignored for what it starts in the background, such as a whole run of these tests.
pub(crate) const WITH_DEFAULT_SIGNALS: [&str; 2] = ["env", "--default-signal"];

/// The program, with nothing about ZooKeeper in its environment.
pub(crate) fn bare() -> Command {
    let [become_it, with] = WITH_DEFAULT_SIGNALS;
    let mut command = Command::new(become_it);
    command.args([with, env!("CARGO_BIN_EXE_zklock")]);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("ZK")) {
            command.env_remove(name);
        }
    }
    command
}

/// The program, told of the server, with these arguments.
pub(crate) fn zklock<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = bare();
    command
        .env("ZK_CONNECT", server().connect_string())
        .args(arguments);
    command
}

/// What it says and ends with.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs it with nothing to read, to its end.
#[track_caller]
pub(crate) fn said(command: &mut Command) -> Said {
    Running::start(command).finish()
}

/// A program that runs, and talks to the test through its input and output.
///
/// Its output is read aside, so that a test does not wait for ever for what does not come, or for
/// the end of what somebody else holds open.
pub(crate) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        Self {
            input: child.stdin.take(),
            lines: lines(child.stdout.take().expect("piped")),
            errors: lines(child.stderr.take().expect("piped")),
            child,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output, without the end of line; empty at the end.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        match self.lines.recv_timeout(SOON) {
            Err(RecvTimeoutError::Timeout) => panic!("not within {SOON:?}: a line of output"),
            line => line.unwrap_or_default(),
        }
    }

    /// The next line of its output, if one comes within this time.
    pub(crate) fn line_within(&mut self, time: Duration) -> Option<String> {
        self.lines.recv_timeout(time).ok()
    }

    /// Waits for this line, which must be the next.
    #[track_caller]
    pub(crate) fn expect(mut self, line: &str) -> Self {
        assert_eq!(self.line(), line);
        self
    }

    /// Waits until its errors have this in a line.
    #[track_caller]
    pub(crate) fn wait_for_error(&mut self, text: &str) {
        loop {
            match self.errors.recv_timeout(SOON) {
                Ok(line) if line.contains(text) => return,
                Ok(_) => {}
                Err(error) => panic!("{text:?} was not said: {error}"),
            }
        }
    }

    /// Waits for its end, though others may hold its output open; returns what it ended with.
    #[track_caller]
    pub(crate) fn status(mut self) -> i32 {
        let ended = wait_for_some(SOON, || self.child.try_wait().expect("it is our child"));
        status_of(ended.expect("it ends"))
    }

    /// The same, with what it has said until then.
    #[track_caller]
    pub(crate) fn end_with_open_output(mut self) -> Said {
        let ended = wait_for_some(SOON, || self.child.try_wait().expect("it is our child"));
        // Said before it ended.
        let errors = std::iter::from_fn(|| self.errors.recv_timeout(SETTLED).ok());
        Said {
            status: status_of(ended.expect("it ends")),
            out: String::new(),
            err: errors.collect::<Vec<_>>().join("\n"),
        }
    }

    /// Ends its input, and waits for its end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Said {
        drop(self.input.take());
        self.end()
    }

    /// Waits for its end, with its input open.
    #[track_caller]
    pub(crate) fn end(mut self) -> Said {
        let ended = wait_for_some(SOON, || self.child.try_wait().expect("it is our child"));
        let Some(ended) = ended else {
            // What it runs goes with it.
            self.child.kill().expect("it is our child");
            panic!(
                "not within {SOON:?}: its end; it said {:?} and {:?}",
                all(&self.lines),
                all(&self.errors)
            );
        };
        Said {
            status: status_of(ended),
            out: all(&self.lines),
            err: all(&self.errors),
        }
    }
}

/// As shells have it: 128 and the signal that ended it.
pub(crate) fn status_of(ended: ExitStatus) -> i32 {
    let killed = || 128 + ended.signal().expect("it ended");
    ended.code().unwrap_or_else(killed)
}

fn lines(of: impl Read + Send + 'static) -> Receiver<String> {
    let (to, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(of).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// All that is left of it, each line with its end.
#[track_caller]
fn all(lines: &Receiver<String>) -> String {
    let mut text = String::new();
    loop {
        match lines.recv_timeout(SOON) {
            Ok(line) => text.extend([&*line, "\n"]),
            Err(RecvTimeoutError::Disconnected) => return text,
            Err(RecvTimeoutError::Timeout) => panic!("somebody holds its output open"),
        }
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), signal).expect("it runs");
}

/// A client to look with.
pub(crate) fn client() -> Client {
    Client::connect(&server().connect_string()).expect("the server serves")
}

pub(crate) fn queue_length(client: &Client, path: &str) -> usize {
    let lock = Mutex::new(client, path).expect("a good path");
    lock.participants().expect("the server serves").len()
}

#[track_caller]
pub(crate) fn wait_for_queue(client: &Client, path: &str, length: usize) {
    wait_until("the queue is so long", SOON, || {
        queue_length(client, path) == length
    });
}
