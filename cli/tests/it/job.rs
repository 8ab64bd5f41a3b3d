//! The job is every descendant of the command, and none of them outlives the lock.
//!
//! Each test has a process write into a file again and again, from a place that a group, a session or
//! a parent's death does not reach, and sees that the file stands still once the lock is free.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, geteuid};
use testbed::{Direction, Proxy, process, wait_for_some, wait_until};

use crate::edges::{BESIDE, COUNT};
use crate::fixtures::{
    Running, SOON, WITH_DEFAULT_SIGNALS, client, queue_length, said, send, server, zklock,
};
use crate::traces::{Traces, WAYS_OUT, WORK, both_ways, watchdog_of};

/// `timeout(1)` in the script, a shell with job control, a session of its own, a daemon, another
/// terminal, another zklock: each took its work out of the group that was killed.
#[test]
fn whoever_leaves_the_group_is_stopped_before_anybody_else_has_the_lock() {
    for (way, script) in WAYS_OUT {
        for how in both_ways() {
            let path = format!("/job/loss-{way}-{}", how.len());
            let traces = Traces::new();
            let proxy = Proxy::start(server().addr());
            let servers = proxy.connect_string();
            let mut first = zklock(["run", "--session-timeout=3s", "--servers", &servers]);
            first.args(how).args([&path, "--", "sh", "-c", script]);
            // The nested one has a way of its own, and a session that lasts.
            let first = Running::start(traces.told(&mut first));
            let worker = traces.worker();
            proxy.black_hole(Direction::Both);
            traces.assert_over_before_the_next(&path, way);
            assert!(!process::is_alive(worker), "{way}: the worker lives");
            assert_eq!(first.end().status, 79, "{way}");
        }
    }
}

/// An ordinary TERM: the lock was given back at once, with status 143, and the work went on.
#[test]
fn whoever_leaves_the_group_keeps_the_lock_after_a_term() {
    for (way, script) in WAYS_OUT {
        let path = format!("/job/term-{way}");
        let traces = Traces::new();
        let mut first = zklock(["run", "--kill-after=200ms", &path, "--", "sh", "-c", script]);
        let first = Running::start(traces.told(&mut first));
        let worker = traces.worker();
        send(first.pid(), Signal::TERM);
        let next = said(&mut zklock(["run", &path, "--", "true"]));
        assert_eq!(next.status, 0, "{way}: {}", next.err);
        assert!(!process::is_alive(worker), "{way}: the worker lives");
        assert_eq!(first.end().status, 143, "{way}");
    }
}

#[test]
fn what_a_command_leaves_behind_in_another_session_keeps_the_lock() {
    let path = "/job/left";
    let traces = Traces::new();
    let script = "(setsid sh -c \"$W\" & ) ; while ! [ -s $TICKS ]; do sleep 0.01; done; exit 6";
    let mut first = zklock(["run", "--kill-after=200ms", path, "--", "sh", "-c", script]);
    let first = said(traces.told(&mut first));
    assert_eq!(first.status, 6, "{}", first.err);
    assert!(
        first.err.contains("left processes running"),
        "{}",
        first.err
    );
    assert!(!process::is_alive(traces.worker()));
}

#[test]
fn a_command_may_leave_a_daemon_if_its_user_says_so() {
    let path = "/job/daemon";
    let traces = Traces::new();
    let script = "(setsid sh -c \"$W\" >/dev/null 2>&1 & ) ; \
        while ! [ -s $TICKS ]; do sleep 0.01; done; exit 6";
    let mut first = zklock(["run", "--leave-children", path, "--", "sh", "-c", script]);
    let first = said(traces.told(&mut first));
    assert_eq!(first.status, 6, "{}", first.err);
    let worker = traces.worker();
    assert!(process::is_alive(worker));
    process::kill(worker);
    assert_eq!(queue_length(&client(), path), 0);
}

/// Whoever is left alive for a moment can start others in the place of those who were killed: so all
/// are stopped before the first is killed. Here a hundred wait for the death of one; the command's
/// group, which may be killed before, is none of theirs.
#[test]
fn who_waits_for_the_death_of_another_does_nothing_after_it() {
    let path = "/job/avengers";
    let traces = Traces::new();
    let script = r#"mkfifo $FIFO
        for i in $(seq 100); do
            sh -c 'exec 4<$FIFO; echo up >>$UP; read line <&4; echo late >>$LATE' &
        done
        exec 3>$FIFO 4>&-; exec sleep 1000"#;
    let (up, late) = (traces.file("up"), traces.file("late"));
    let mut first = zklock(["run", "--no-cgroup", path, "--"]);
    first.args(["sh", "-c", r#"setsid sh -c "$W" & echo $ZKLOCK_NODE; wait"#]);
    first.env("W", script).env("FIFO", traces.file("fifo"));
    let mut first = Running::start(first.env("UP", &up).env("LATE", &late));
    let node = first.line();
    let (_, name) = node.rsplit_once('/').expect("a path");
    let all_wait = || fs::read_to_string(&up).is_ok_and(|up| up.lines().count() == 100);
    wait_until("all wait", SOON, all_wait);
    assert_eq!(said(&mut zklock(["break", path, "--node", name])).status, 0);
    assert_eq!(first.end().status, 79);
    let late = fs::read_to_string(&late).unwrap_or_default();
    assert_eq!(late.lines().count(), 0, "somebody saw the death and lived");
}

/// A full pipe, or Ctrl-S: the notice came before the kill, on the one thread that supervises.
#[test]
fn a_reader_who_does_not_read_keeps_nobody_alive() {
    for verbose in [&[][..], &["-vv"]] {
        let path = format!("/job/blocked-{}", verbose.len());
        let traces = Traces::new();
        let proxy = Proxy::start(server().addr());
        let servers = proxy.connect_string();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        fill(&writer);
        let mut first = zklock(["run", "--session-timeout=3s", "--servers", &servers]);
        first.args(verbose).args([&path, "--", "sh", "-c", WORK]);
        let first = traces.told(&mut first).stderr(writer).spawn();
        let mut first = first.expect("it starts");
        let worker = traces.worker();
        proxy.black_hole(Direction::Both);
        traces.assert_over_before_the_next(&path, "unread");
        assert!(!process::is_alive(worker), "the worker lives");
        let ended = wait_for_some(SOON, || first.try_wait().expect("it is our child"));
        drop(reader);
        if ended.is_none() {
            first.kill().expect("it is our child");
        }
        assert_eq!(ended.and_then(|ended| ended.code()), Some(79));
    }
}

/// Fills a pipe, so that the next who writes into it waits.
fn fill(pipe: &std::io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(pipe).expect("open");
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).expect("open");
    while rustix::io::write(pipe, b"x").is_ok() {}
    fcntl_setfl(pipe, flags).expect("open");
}

/// Who has become another user cannot be killed by one who is not root; that was taken for done.
#[test]
fn who_cannot_be_killed_keeps_the_lock_and_is_named() {
    if !geteuid().is_root() {
        eprintln!("left out: only root can make another user's process");
        return;
    }
    let path = "/job/other-user";
    let traces = Traces::new();
    let proxy = Proxy::start(server().addr());
    let script =
        "echo ready; exec setpriv --reuid=54322 --ambient-caps=-all --inh-caps=-all sh -c \"$W\"";
    let mut first = as_one_who_may_not_kill(&copy_for_all(&traces));
    first.args(["run", "--session-timeout=3s", "--kill-after=200ms"]);
    first.env("ZK_CONNECT", proxy.connect_string());
    first.args([path, "--", "sh", "-c", script]);
    let first = Running::start(traces.told(&mut first)).expect("ready");
    let worker = traces.worker();
    send(first.pid(), Signal::USR2);
    proxy.black_hole(Direction::Both);
    let first = first.end_with_open_output();
    assert!(process::is_alive(worker), "it was not to be killed");
    process::kill(worker);
    assert_eq!(first.status, 79);
    let named = format!("process {worker} (sh) of user 54322");
    assert!(first.err.contains(&named), "{}", first.err);
}

/// A command that had outlived its lock had the next one of `--again` beside it.
#[test]
fn nothing_is_run_again_beside_who_has_outlived_the_lock() {
    if !geteuid().is_root() {
        eprintln!("left out: only root can make another user's process");
        return;
    }
    let path = "/job/again-beside";
    let traces = Traces::new();
    let proxy = Proxy::start(server().addr());
    let script =
        "echo ready; exec setpriv --reuid=54322 --ambient-caps=-all --inh-caps=-all sh -c \"$W\"";
    let mut first = as_one_who_may_not_kill(&copy_for_all(&traces));
    first.args(["run", "--session-timeout=3s", "--kill-after=200ms"]);
    first.env("ZK_CONNECT", proxy.connect_string());
    first.args(["--again=10ms", path, "--", "sh", "-c", script]);
    let mut first = Running::start(traces.told(&mut first)).expect("ready");
    let worker = traces.worker();
    proxy.black_hole(Direction::Both);
    first.wait_for_error("lives though the lock is over");
    proxy.heal();
    assert_eq!(first.line_within(BESIDE), None, "it runs beside the last");
    assert!(process::is_alive(worker), "it was not to be killed");
    process::kill(worker);
    assert_eq!(first.line(), "ready");
    // What cannot be killed keeps nobody who is told to end, either.
    wait_until("the next works", SOON, || traces.worker() != worker);
    proxy.black_hole(Direction::Both);
    first.wait_for_error("lives though the lock is over");
    let worker = traces.worker();
    send(first.pid(), Signal::TERM);
    let first = first.end_with_open_output();
    process::kill(worker);
    assert_eq!(first.status, 79, "{}", first.err);
}

/// A TERM for a command of another user went nowhere, and nobody said so.
#[test]
fn a_signal_that_may_not_be_sent_is_told_of() {
    if !geteuid().is_root() {
        eprintln!("left out: only root can make another user's process");
        return;
    }
    let traces = Traces::new();
    let script = "exec setpriv --reuid=54322 --ambient-caps=-all --inh-caps=-all sh -c \"$W\"";
    let mut first = as_one_who_may_not_kill(&copy_for_all(&traces));
    first.env("ZK_CONNECT", server().connect_string());
    first.args(["run", "/job/refused", "--", "sh", "-c", script]);
    let mut first = Running::start(traces.told(&mut first));
    let worker = traces.worker();
    send(first.pid(), Signal::TERM);
    first.wait_for_error("TERM may not be sent to the command");
    process::kill(worker);
    assert_eq!(first.end().status, 137);
}

/// The same at an ordinary end: the lock was given back over the living, with status 0.
#[test]
fn the_lock_is_kept_over_those_who_cannot_be_killed() {
    if !geteuid().is_root() {
        eprintln!("left out: only root can make another user's process");
        return;
    }
    let path = "/job/other-user-left";
    let traces = Traces::new();
    let script =
        "setpriv --reuid=54322 --ambient-caps=-all --inh-caps=-all sh -c \"$W\" >/dev/null 2>&1 &
        while ! [ -s $TICKS ]; do sleep 0.01; done; exit 0";
    let mut first = as_one_who_may_not_kill(&copy_for_all(&traces));
    first.args(["run", "--kill-after=100ms"]);
    first.env("ZK_CONNECT", server().connect_string());
    first.args([path, "--", "sh", "-c", script]);
    let mut first = Running::start(traces.told(&mut first));
    let worker = traces.worker();
    // Said once, when it was killed in vain.
    first.wait_for_error(&format!("process {worker} (sh) of user 54322"));
    assert_eq!(queue_length(&client(), path), 1);
    process::kill(worker);
    assert_eq!(first.end().status, 0);
    assert_eq!(queue_length(&client(), path), 0);
}

/// A program of another user who may become anybody, and may not kill anybody.
fn as_one_who_may_not_kill(program: &Path) -> Command {
    let [become_it, with] = WITH_DEFAULT_SIGNALS;
    let mut command = Command::new(become_it);
    command.args([
        with,
        "setpriv",
        "--reuid=54321",
        "--regid=54321",
        "--clear-groups",
    ]);
    command.args(["--inh-caps=-all,+setuid", "--ambient-caps=-all,+setuid"]);
    command.args(["--bounding-set=-all,+setuid"]).arg(program);
    command
}

/// Where another user may run it.
fn copy_for_all(traces: &Traces) -> PathBuf {
    let copy = traces.file("zklock");
    fs::copy(env!("CARGO_BIN_EXE_zklock"), &copy).expect("it can be copied");
    copy
}

/// Its file descriptors, and those whom a shell had in the background when it became us, are not
/// the job.
#[test]
fn children_from_before_are_nobodys_business() {
    let script = r#"sleep 1000 & echo $!
        exec "$0" run --no-cgroup /job/before -- sh -c 'echo $PPID; read line'"#;
    let mut command = Command::new("sh");
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_zklock")])
        .env("ZK_CONNECT", server().connect_string())
        .stderr(Stdio::inherit());
    let mut running = Running::start(&mut command);
    let stranger: u32 = running.line().parse().expect("a process id");
    let watchdog: u32 = running.line().parse().expect("a process id");
    // Then whoever is below us is looked for.
    process::kill(watchdog);
    let status = running.status();
    assert!(process::is_alive(stranger));
    process::kill(stranger);
    assert_eq!(status, 70);
}

/// A service manager sends TERM to all processes of a service; the command heard it twice.
#[test]
fn a_service_managers_term_is_heard_once() {
    let path = "/job/service";
    let folder = tempfile::tempdir().expect("a place for it");
    let manager = folder.path().join("systemd");
    fs::copy("/bin/bash", &manager).expect("bash is there");
    let script = r#"echo $$; exec python3 -c "$COUNT""#;
    let mut first = zklock(["run", path, "--", "sh", "-c", script]);
    let mut first = Running::start(first.env("COUNT", COUNT));
    let command: u32 = first.line().parse().expect("a process id");
    assert_eq!(first.line(), "ready");
    let (ours, watchdog) = (first.pid(), watchdog_of(first.pid()));
    let all = format!("kill -TERM {ours} {watchdog} {command}; read line");
    let mut manager = Command::new(&manager)
        .args(["-c", &all])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it runs");
    assert_eq!(first.line(), "SIGTERM");
    // Longer than a manager's other signals are waited for.
    assert_eq!(first.line_within(BESIDE), None, "it was passed on");
    process::kill(ours);
    assert_eq!(first.status(), 137);
    manager.kill().expect("it is our child");
    manager.wait().expect("it is our child");
}
