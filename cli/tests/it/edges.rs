//! What a job meets at its edges: an end that it has heard of already, a machine out of descriptors, a
//! lock that has gone before anything began.

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{process, wait_for_some};

use crate::fixtures::{Running, SOON, client, queue_length, said, send, wait_for_queue, zklock};
use crate::traces::{Traces, WAYS_OUT, watchdog_of};

/// How long to look for what must not happen.
pub(crate) const BESIDE: Duration = Duration::from_secs(2);

/// Writes a line for each TERM, however soon one comes after the other, and for USR1.
pub(crate) const COUNT: &str = r#"
import signal
all = [signal.SIGTERM, signal.SIGUSR1]
signal.pthread_sigmask(signal.SIG_BLOCK, all)
print("ready", flush=True)
while True:
    print(signal.Signals(signal.sigwait(all)).name, flush=True)
"#;

/// The group had heard it from us, and each of it heard it once or twice more when the shell had ended.
#[test]
fn a_worker_under_a_shell_hears_a_term_once() {
    let mut first = zklock(["run", "/job/once", "--", "sh", "-c"]);
    first
        .args([r#"python3 -c "$COUNT"; true"#])
        .env("COUNT", COUNT);
    let first = Running::start(&mut first).expect("ready");
    send(first.pid(), Signal::TERM);
    let first = first.end();
    assert_eq!(
        (first.status, &*first.out),
        (143, "SIGTERM\n"),
        "{}",
        first.err
    );
}

/// The command of a run in a run heard it from both.
#[test]
fn the_command_of_a_nested_run_is_asked_once() {
    let path = "/job/nested-ask";
    let script = r#"echo $$; exec "$ZKLOCK" run /job/nested-asked -- python3 -c "$COUNT""#;
    let mut first = zklock(["run", path, "--", "sh", "-c", script]);
    first
        .env("COUNT", COUNT)
        .env("ZKLOCK", env!("CARGO_BIN_EXE_zklock"));
    let mut first = Running::start(&mut first);
    let inner: u32 = first.line().parse().expect("a process id");
    assert_eq!(first.line(), "ready");
    let asked = said(&mut zklock(["revoke", path]));
    assert_eq!(asked.status, 0, "{}", asked.err);
    assert_eq!(first.line(), "SIGTERM");
    assert_eq!(first.line_within(BESIDE), None, "it heard it again");
    // It listens still.
    send(inner, Signal::USR1);
    assert_eq!(first.line(), "SIGUSR1");
    process::kill(first.pid());
    assert_eq!(first.status(), 137);
}

/// Without a descriptor to read `/proc` by, nobody was seen, and nobody counted as nobody left.
#[test]
fn who_cannot_look_does_not_take_the_job_for_ended() {
    let path = "/job/blind";
    let traces = Traces::new();
    let mut first = zklock(["run", "--no-cgroup", path, "--", "sh", "-c", WAYS_OUT[2].1]);
    let mut first = Running::start(traces.told(&mut first));
    let worker = traces.worker();
    let fds = fs::read_dir(format!("/proc/{}/fd", first.pid())).expect("it runs");
    let fds = fds.filter_map(|fd| fd.ok()?.file_name().to_str()?.parse().ok());
    let fds: HashSet<u32> = fds.collect();
    let free = (0..).find(|fd| !fds.contains(fd));
    // Not less: `poll` takes no more descriptors than may be open.
    may_open(first.pid(), free.expect("there are more numbers"));
    process::kill(watchdog_of(first.pid()));
    first.wait_for_error("the watchdog process has died");
    let client = client();
    let given_back = wait_for_some(BESIDE, || {
        (queue_length(&client, path) == 0).then_some(process::is_alive(worker))
    });
    may_open(first.pid(), 1024);
    assert_eq!(given_back, None, "the lock was given back over the living");
    assert_eq!(first.end().status, 70);
    assert!(!process::is_alive(worker), "the worker lives");
}

/// Lets a process have descriptors below this number.
fn may_open(pid: u32, number: u32) {
    let mut prlimit = Command::new("prlimit");
    let limit = format!("--nofile={number}:1024");
    // It may have ended, which the test finds out.
    let _ = prlimit.args(["--pid", &pid.to_string(), &limit]).status();
}

/// A run whose lock had gone before its command began left two processes, which a run that goes on by
/// `--again` had for ever.
#[test]
fn a_command_that_does_not_begin_leaves_nobody() {
    let path = "/job/not-begun";
    let client = client();
    let lock = zklock::Mutex::new(&client, path).expect("a good path");
    let (mut first, watchdog) = loop {
        let guard = lock.lock().expect("the server serves");
        let script = "echo ready; read line";
        let command = ["run", "-v", "--again=100ms", path, "--", "sh", "-c", script];
        let first = Running::start(&mut zklock(command));
        wait_for_queue(&client, path, 2);
        drop(guard);
        let watchdog = first_child_of(first.pid());
        process::stop(watchdog);
        // Before it has started anybody: the lock is there, and nothing is begun. Else we came too
        // late to make what is to be seen.
        if children_of(watchdog).is_empty() {
            break (first, watchdog);
        }
        process::cont(watchdog);
        let first = first.expect("ready");
        send(first.pid(), Signal::TERM);
        assert_eq!(first.end().status, 143);
    };
    for one in &lock.participants().expect("the server serves") {
        lock.break_lock(one).expect("the server serves");
    }
    first.wait_for_error("somebody removed our node");
    process::cont(watchdog);
    first.wait_for_error("the command was not started");
    assert_eq!(first.line(), "ready");
    let children = children_of(first.pid());
    process::kill(first.pid());
    assert_eq!(first.status(), 137);
    assert_eq!(children.len(), 1, "{children:?}");
}

/// Waits for it without a pause.
fn first_child_of(pid: u32) -> u32 {
    let begun = Instant::now();
    loop {
        if let Some(child) = children_of(pid).first() {
            return *child;
        }
        assert!(begun.elapsed() < SOON, "no child");
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let pids = children.split_whitespace().map(str::parse);
    pids.collect::<Result<_, _>>().expect("process ids")
}
