//! A real kazoo, Python's client, to share locks with.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::repository;

/// Longer than any command takes that is right to wait for.
const ANSWER: Duration = Duration::from_secs(60);

/// A Python process that does as it is told; `testbed/kazoo/puppet.py` lists the commands. Dropping
/// it kills it, so what it held is free only when its session expires.
#[derive(Debug)]
pub struct Kazoo {
    child: Child,
    to: ChildStdin,
    from: Receiver<String>,
    last_command: String,
}

impl Kazoo {
    /// Starts one and returns when its session stands.
    ///
    /// # Panics
    /// If kazoo is missing and cannot be installed: a skipped test proves nothing.
    pub fn start(servers: &str) -> Kazoo {
        let mut child = Command::new(python())
            .arg(program("puppet.py"))
            .arg(servers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a Python that ran a moment ago");
        let mut answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (to_test, from) = channel();
        // Ends with the process. Read aside, so that a wait for an answer has a bound.
        thread::spawn(move || {
            let mut line = String::new();
            while answers.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let answer = line.trim_end().to_owned();
                line.clear();
                if to_test.send(answer).is_err() {
                    break;
                }
            }
        });
        let mut kazoo = Kazoo {
            to: child.stdin.take().expect("stdin is piped"),
            from,
            child,
            last_command: "(start)".to_owned(),
        };
        assert_eq!(kazoo.answer(), "ready");
        kazoo
    }

    /// Sends a command, not waiting for its answer.
    #[track_caller]
    pub fn command(&mut self, command: &str) {
        command.clone_into(&mut self.last_command);
        writeln!(self.to, "{command}").expect("it lives as long as its input");
    }

    /// The next answer.
    ///
    /// # Panics
    /// If none comes within 60 s, or the process has ended.
    #[track_caller]
    pub fn answer(&mut self) -> String {
        self.from
            .recv_timeout(ANSWER)
            .unwrap_or_else(|error| panic!("kazoo, told {:?}: {error}", self.last_command))
    }

    /// Sends a command and returns its answer.
    #[track_caller]
    pub fn say(&mut self, command: &str) -> String {
        self.command(command);
        self.answer()
    }
}

impl Drop for Kazoo {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Python that has kazoo, installed if it is missing. Asked once in a test process, also when
/// that fails: it takes its time.
pub fn python() -> &'static Path {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(install);
    found.as_deref().unwrap_or_else(|why| {
        panic!(
            "the tests need kazoo (Python's ZooKeeper client) and could not install it:\n{why}\n\
             Run: scripts/install-kazoo"
        )
    })
}

/// A program of `testbed/kazoo`, for [`python`] to run.
pub fn program(name: &str) -> PathBuf {
    repository().join("testbed/kazoo").join(name)
}

/// The script decides where it is, and has little to do when it is there.
fn install() -> Result<PathBuf, String> {
    let output = Command::new(repository().join("scripts/install-kazoo"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let path = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    Ok(PathBuf::from(path.trim_end()))
}
