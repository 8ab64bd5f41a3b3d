//! A small shell process between the test and its server.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Starts and ends the server on request. When its input closes, because the
/// test process was killed and could run no destructor, it ends the server and
/// removes the server's folder all the same.
///
/// It has a process group of its own. An interrupt from the terminal, or the
/// SIGKILL of a time limit, goes to the whole group of the test: the guardian
/// would die beside it, with the clearing up undone.
const SCRIPT: &str = r#"
home=$1
signal=$2
shift 2
server=
while read -r order; do
    case $order in
    start)
        "$@" </dev/null >>"$home/server.log" 2>&1 &
        server=$!
        echo "$server"
        ;;
    kill)
        kill -s "$signal" "$server"
        wait "$server"
        server=
        echo killed
        ;;
    quit) break ;;
    esac
done 2>/dev/null
if [ -n "$server" ]; then
    kill -s "$signal" "$server"
    wait "$server"
fi 2>/dev/null
rm -rf "$home"
"#;

/// The test's end of a guardian. It owns the server's process and folder.
#[derive(Debug)]
pub struct Guardian {
    shell: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    server: Option<u32>,
}

impl Guardian {
    /// Puts `home`, and a server that `command` starts, under guard. The server ends by SIGKILL.
    pub fn over(home: &Path, command: &[OsString]) -> Guardian {
        Guardian::with_signal(home, "KILL", command)
    }

    /// As [`Guardian::over`], for a server of several processes, which has to clear up at its end. `signal` has to
    /// end it whatever it does.
    pub fn with_signal(home: &Path, signal: &str, command: &[OsString]) -> Guardian {
        // The pipes are close-on-exec, so no other child of this process can
        // keep the guardian waiting for the end of its input.
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "zklock-guardian"])
            .arg(home)
            .arg(signal)
            .args(command)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh can be started");
        let orders = shell.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(shell.stdout.take().expect("stdout is piped"));
        Guardian {
            shell,
            orders,
            answers,
            server: None,
        }
    }

    /// Starts the server and returns its process id.
    pub fn start(&mut self) -> u32 {
        assert!(self.server.is_none(), "the server has been started already");
        let answer = self.order("start");
        let pid = answer
            .parse()
            .unwrap_or_else(|_| panic!("the guardian answered {answer:?} to start"));
        self.server = Some(pid);
        pid
    }

    /// Ends the server by its signal, and returns when it has been reaped. Does
    /// nothing when it was killed before.
    pub fn kill(&mut self) {
        if self.server.take().is_some() {
            let answer = self.order("kill");
            assert_eq!(answer, "killed", "the guardian's answer to kill");
        }
    }

    /// The process id of the server; none between a kill and the next start.
    pub fn server(&self) -> Option<u32> {
        self.server
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").expect("the guardian lives as long as its input");
        let mut answer = String::new();
        self.answers
            .read_line(&mut answer)
            .expect("the guardian answers in text");
        answer.trim_end().to_owned()
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // An order, because the end of input alone may never be seen: a process
        // that a test forked holds a copy of our end of the pipe.
        let told = writeln!(self.orders, "quit");
        let ended = told.and_then(|()| self.shell.wait());
        if let Err(error) = ended {
            eprintln!("a guardian could not be ended: {error}");
        }
    }
}
