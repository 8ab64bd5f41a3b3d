//! What all tests of the command stand on.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use zklock::{Client, Mutex};

use crate::support::{Server, wait_until};

/// For what must happen, and takes no time by itself.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// One server for all tests that do it no harm; it ends with this process.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

/// The program, with nothing about ZooKeeper in its environment.
pub(crate) fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zklock"));
    command.env_remove("ZK_CONNECT").env_remove("ZK_AUTH");
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

pub(crate) fn said(command: &mut Command) -> Said {
    let output = command.stdin(Stdio::null()).output();
    told(output.expect("it can be started"))
}

fn told(output: Output) -> Said {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Said {
        status: output.status.code().expect("it was not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// A program that runs, and talks to the test through its input and output.
pub(crate) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
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
            output: BufReader::new(child.stdout.take().expect("piped")),
            child,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output, without the end of line; empty at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Waits for this line, which must be the next.
    #[track_caller]
    pub(crate) fn expect(mut self, line: &str) -> Self {
        assert_eq!(self.line(), line);
        self
    }

    /// Ends its input, and waits for its end.
    pub(crate) fn finish(mut self) -> Said {
        drop(self.input.take());
        self.end()
    }

    /// Waits for its end, with its input open.
    pub(crate) fn end(mut self) -> Said {
        let mut out = String::new();
        self.output.read_to_string(&mut out).expect("text");
        let input = self.input.take();
        let mut said = told(self.child.wait_with_output().expect("it is our child"));
        drop(input);
        said.out = out;
        said
    }
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
