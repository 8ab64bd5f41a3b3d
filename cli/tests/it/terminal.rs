//! On a terminal: Ctrl-C, Ctrl-Z, and who may read the keys.

use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use pty_process::blocking::{Command, Pty, open};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixtures::{
    Running, SOON, WITH_DEFAULT_SIGNALS, client, queue_length, server, status_of, wait_for_queue,
    zklock,
};
use testbed::{wait_for_some, wait_until};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// A program on a terminal of its own.
struct OnTerminal {
    child: Child,
    pty: Arc<Pty>,
    shown: Arc<Mutex<String>>,
    /// How much of it was looked for already.
    seen: usize,
}

impl OnTerminal {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let (pty, pts) = open().expect("a terminal can be had");
        let [become_it, with] = WITH_DEFAULT_SIGNALS;
        let command = Command::new(become_it)
            .args([with, program])
            .args(arguments)
            .env("ZK_CONNECT", server().connect_string())
            .env("PS1", "$ ");
        let child = command.spawn(pts).expect("it can be started");
        let pty = Arc::new(pty);
        let shown = Arc::new(Mutex::new(String::new()));
        let (from, to) = (Arc::clone(&pty), Arc::clone(&shown));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when nobody has the other side any more.
            while let Ok(length @ 1..) = (&*from).read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]);
                to.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&text);
            }
        });
        Self {
            child,
            pty,
            shown,
            seen: 0,
        }
    }

    fn zklock(arguments: &[&str]) -> Self {
        Self::start(env!("CARGO_BIN_EXE_zklock"), arguments)
    }

    /// A shell with job control, as a user has it.
    fn shell() -> Self {
        let mut shell = Self::start("bash", &["--norc", "--noprofile", "-i"]);
        shell.expect("$ ");
        shell
    }

    fn type_in(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).expect("it is open");
    }

    /// Waits until this is shown, after what was waited for before.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let (shown, seen) = (Arc::clone(&self.shown), self.seen);
        let find = || {
            let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            shown[seen..].find(text).map(|at| seen + at + text.len())
        };
        let found = wait_for_some(SOON, find);
        self.seen = found.unwrap_or_else(|| {
            let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            panic!("{text:?} was not shown after {:?}", &shown[seen..])
        });
    }

    #[track_caller]
    fn end(mut self) -> Option<i32> {
        let ended = wait_for_some(SOON, || self.child.try_wait().expect("it is our child"));
        let ended = ended.unwrap_or_else(|| {
            self.child.kill().expect("it is our child");
            panic!("not within {SOON:?}: its end");
        });
        Some(status_of(ended))
    }
}

#[test]
fn a_command_can_read_the_terminal() {
    let script = r#"echo "ready:"; read line; echo "<$line>""#;
    let mut terminal = OnTerminal::zklock(&["run", "/terminal/read", "--", "sh", "-c", script]);
    terminal.expect("ready:");
    terminal.type_in("words\n");
    terminal.expect("<words>");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn control_c_reaches_the_command() {
    let script = r#"trap 'echo "caught"; exit 7' INT; echo "ready:"; read line"#;
    let mut terminal = OnTerminal::zklock(&["run", "/terminal/int", "--", "sh", "-c", script]);
    terminal.expect("ready:");
    terminal.type_in(CTRL_C);
    terminal.expect("caught");
    assert_eq!(terminal.end(), Some(7));
    let mut terminal = OnTerminal::zklock(&[
        "run",
        "/terminal/int",
        "--",
        "sh",
        "-c",
        "echo ready:; exec sleep 1000",
    ]);
    terminal.expect("ready:");
    terminal.type_in(CTRL_C);
    assert_eq!(terminal.end(), Some(130));
}

#[test]
fn control_c_ends_a_wait() {
    let path = "/terminal/wait";
    let hold = [
        "run",
        path,
        "--",
        "sh",
        "-c",
        "echo ready; read line; exit 0",
    ];
    let holder = Running::start(&mut zklock(hold)).expect("ready");
    let client = client();
    let terminal = OnTerminal::zklock(&["run", path, "--", "echo", "ran"]);
    wait_for_queue(&client, path, 2);
    terminal.type_in(CTRL_C);
    assert_eq!(terminal.end(), Some(130));
    assert_eq!(queue_length(&client, path), 1);
    assert_eq!(holder.finish().status, 0);
}

#[test]
fn control_z_stops_both_and_fg_goes_on_with_both() {
    let mut shell = OnTerminal::shell();
    let program = env!("CARGO_BIN_EXE_zklock");
    shell.type_in(&format!(
        "{program} run /terminal/stop -- sh -c 'echo ready\":\"; read line; echo \"<$line>\"'\n"
    ));
    shell.expect("ready:");
    shell.type_in(CTRL_Z);
    shell.expect("Stopped");
    // The shell has the terminal again.
    shell.type_in("echo and\" \"now\n");
    shell.expect("and now");
    shell.type_in("fg\n");
    shell.expect("run /terminal/stop");
    shell.type_in("words\n");
    shell.expect("<words>");
    shell.type_in("echo status\" \"$?; exit\n");
    shell.expect("status 0");
    assert_eq!(shell.end(), Some(0));
}

/// While both are stopped the session ends, and somebody else has the lock.
#[test]
fn a_command_does_not_go_on_when_the_lock_went_while_it_was_stopped() {
    let path = "/terminal/lost";
    let mut shell = OnTerminal::shell();
    let program = env!("CARGO_BIN_EXE_zklock");
    shell.type_in(&format!(
        "{program} run --session-timeout=1s {path} -- sh -c 'echo ready\":\"; read line; echo went\" \"on'\n"
    ));
    shell.expect("ready:");
    shell.type_in(CTRL_Z);
    shell.expect("Stopped");
    let client = client();
    wait_until("the session is over", SOON, || {
        queue_length(&client, path) == 0
    });
    shell.type_in("fg\n");
    shell.expect("the lock is lost");
    shell.type_in("echo status\" \"$?; exit\n");
    shell.expect("status 79");
    let shown = shell
        .shown
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    assert!(!shown.contains("went on"), "{shown}");
    assert_eq!(shell.end(), Some(0));
}

/// `fg` of a job that runs in the background gives its group the terminal, and tells nobody.
#[test]
fn a_command_in_the_background_stops_for_the_terminal_and_gets_it_with_fg() {
    let mut shell = OnTerminal::shell();
    let program = env!("CARGO_BIN_EXE_zklock");
    shell.type_in(&format!(
        "{program} run /terminal/back -- sh -c 'read line; echo \"<$line>\"' &\n"
    ));
    wait_for_queue(&client(), "/terminal/back", 1);
    shell.type_in("wait %1; jobs\n");
    shell.expect("Stopped");
    shell.type_in("fg\n");
    shell.expect("run /terminal/back");
    shell.type_in("words\n");
    shell.expect("<words>");
    shell.type_in("exit\n");
    assert_eq!(shell.end(), Some(0));
}

/// As `ssh -t` or a container runs it: no shell could bring it back.
#[test]
fn control_z_does_nothing_without_a_shell() {
    let script = r#"echo "ready:"; read line; echo "<$line>""#;
    let path = "/terminal/alone";
    let mut terminal = OnTerminal::zklock(&["run", path, "--", "sh", "-c", script]);
    terminal.expect("ready:");
    terminal.type_in(CTRL_Z);
    terminal.expect("^Z");
    terminal.type_in("words\n");
    terminal.expect("<words>");
    assert_eq!(terminal.end(), Some(0));
}

/// The reader asks for its keys on the terminal that the command had got: it was stopped for that, and
/// zklock with it; the session ended, and another ran beside the command.
#[test]
fn others_in_a_pipeline_keep_the_terminal_and_stop_nobody() {
    let path = "/terminal/pipeline";
    let mut shell = OnTerminal::shell();
    let program = env!("CARGO_BIN_EXE_zklock");
    shell.type_in(&format!(
        "{program} run --session-timeout=2s {path} -- sh -c 'echo working; sleep 1000' | \
         (read first; read line </dev/tty; echo \"<$line>\"; read line </dev/tty)\n"
    ));
    wait_for_queue(&client(), path, 1);
    // Past the end of a session that nobody keeps up.
    shell.type_in("words\n");
    shell.expect("<words>");
    let next = ["run", "--timeout=4s", path, "--", "true"];
    assert_eq!(crate::fixtures::said(&mut zklock(next)).status, 75);
    shell.type_in(CTRL_C);
    wait_for_queue(&client(), path, 0);
    // What is typed before the shell is back may be thrown away.
    shell.expect("$ ");
    shell.type_in("exit\n");
    shell.end();
}

/// It was silent for the 15 s in which it looks for a server, and for as long as it waited for a lock.
#[test]
fn a_person_is_told_what_a_long_wait_is_for() {
    let port = testbed::ports::Port::claim();
    let servers = format!("--servers={}", port.addr());
    let mut nobody = OnTerminal::zklock(&["who", &servers, "--connect-timeout=4s", "/l"]);
    nobody.expect(&format!("no answer so far from {}", port.addr()));
    nobody.expect("`zklock doctor` asks");
    assert_eq!(nobody.end(), Some(69));
    let path = "/terminal/patience";
    let holder = ["run", path, "--", "sh", "-c", "echo ready; read line"];
    let holder = Running::start(&mut zklock(holder)).expect("ready");
    let mut waiting = OnTerminal::zklock(&["run", path, "--", "echo", "ran"]);
    waiting.expect("waiting for the lock; `zklock who /terminal/patience`");
    holder.finish();
    waiting.expect("ran");
    assert_eq!(waiting.end(), Some(0));
}

/// A whole pipeline in the background, whose reader asks for keys: the terminal stops all of its group
/// for that, and zklock is of the group.
#[test]
fn a_reader_in_the_background_stops_itself_alone() {
    let path = "/terminal/background-reader";
    let shell = OnTerminal::shell();
    let program = env!("CARGO_BIN_EXE_zklock");
    // It asks when there is a command: what the shell has not made a zklock yet would be stopped.
    shell.type_in(&format!(
        "{program} run --session-timeout=3s {path} -- sh -c 'echo working; sleep 1000' | \
         (read first; read line </dev/tty; echo \"<$line>\") &\n"
    ));
    wait_for_queue(&client(), path, 1);
    // Past the end of a session that nobody keeps up.
    let next = ["run", "--timeout=7s", path, "--", "true"];
    assert_eq!(crate::fixtures::said(&mut zklock(next)).status, 75);
    shell.type_in("kill %1; kill -CONT %1; wait; exit\n");
    shell.end();
    wait_for_queue(&client(), path, 0);
}

/// Ctrl-C went to the command alone, and the script went on with its next step.
#[test]
fn control_c_ends_the_script_that_runs_us() {
    for shell in ["bash", "sh"] {
        let path = format!("/terminal/script-{shell}");
        let program = env!("CARGO_BIN_EXE_zklock");
        let script = format!(
            "{program} run {path} -- sh -c 'echo ready\":\"; exec sleep 1000'; echo next\" \"step"
        );
        let mut terminal = OnTerminal::start(shell, &["-c", &script]);
        terminal.expect("ready:");
        terminal.type_in(CTRL_C);
        let shown = Arc::clone(&terminal.shown);
        assert_eq!(terminal.end(), Some(130), "{shell}");
        let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!shown.contains("next step"), "{shell}: {shown}");
    }
}

/// What a script puts in the background shares its group: it took the script's terminal.
#[test]
fn a_run_in_the_background_of_a_script_leaves_it_the_terminal() {
    let folder = tempfile::tempdir().expect("a place for a file");
    let begun = folder.path().join("begun");
    let (begun, program) = (begun.display(), env!("CARGO_BIN_EXE_zklock"));
    // Nobody else is in its group.
    let script = format!(
        "mkfifo {begun}
        {program} run /terminal/script-back -- sh -c 'echo >{begun}; exec sleep 1000' &
        read line <{begun}; echo ready\":\"
        read line; echo \"<$line>\"; kill $!; wait $!; echo status\" \"$?"
    );
    let mut terminal = OnTerminal::start("bash", &["-c", &script]);
    terminal.expect("ready:");
    terminal.type_in("words\n");
    terminal.expect("<words>");
    terminal.expect("status 143");
    assert_eq!(terminal.end(), Some(0));
}

/// It ended the script as well, as Ctrl-C would have.
#[test]
fn an_interrupt_for_us_alone_leaves_the_script() {
    let program = env!("CARGO_BIN_EXE_zklock");
    let script = format!(
        "{program} run /terminal/int-alone -- sh -c 'echo ready\":\"; exec sleep 1000'; \
         echo status\" \"$?"
    );
    let mut terminal = OnTerminal::start("bash", &["-c", &script]);
    terminal.expect("ready:");
    let shell = terminal.child.id();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
    let ours = children.expect("it runs").trim().parse().ok();
    let ours = ours.and_then(Pid::from_raw).expect("a process id");
    kill_process(ours, Signal::INT).expect("it runs");
    terminal.expect("status 130");
    assert_eq!(terminal.end(), Some(0));
}

/// With `tostop` whoever writes from the background is stopped, and so was who supervised.
#[test]
fn writing_to_a_terminal_that_stops_writers_stops_nobody() {
    let path = "/terminal/tostop";
    let shell = OnTerminal::shell();
    let program = env!("CARGO_BIN_EXE_zklock");
    shell.type_in(&format!(
        "stty tostop; {program} run -vv --session-timeout=3s {path} -- sleep 1000 </dev/null &\n"
    ));
    wait_for_queue(&client(), path, 1);
    // Longer than the session of one who is stopped. (One of 1 s is lost on a busy machine as well.)
    let next = ["run", "--timeout=7s", path, "--", "true"];
    assert_eq!(crate::fixtures::said(&mut zklock(next)).status, 75);
    shell.type_in("kill %1; wait; exit\n");
    shell.end();
    wait_for_queue(&client(), path, 0);
}

/// It began with SIGTTOU blocked.
#[test]
fn a_command_has_the_signals_of_its_caller() {
    let mut terminal = OnTerminal::zklock(&[
        "run",
        "/terminal/mask",
        "--",
        "grep",
        "-E",
        "SigBlk|SigIgn",
        "/proc/self/status",
    ]);
    terminal.expect("SigBlk:\t0000000000000000");
    assert_eq!(terminal.end(), Some(0));
}
