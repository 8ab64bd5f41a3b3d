//! The job is every descendant of the command, and none of them outlives the lock.
//!
//! Each test has a process write into a file again and again, from a place that a group, a session or
//! a parent's death does not reach, and sees that the file stands still once the lock is free.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::fixtures::{
    Running, SOON, WITH_DEFAULT_SIGNALS, client, queue_length, said, server, wait_for_queue, zklock,
};
use crate::support::{Direction, Proxy, process, wait_for_some, wait_until};

/// Ways out of the command's process group; `$W` is what then works.
const WAYS_OUT: [(&str, &str); 7] = [
    ("timeout", "timeout 1000 sh -c \"$W\" & wait"),
    ("set-m", "set -m; sh -c \"$W\" & wait"),
    ("setsid", "setsid -w sh -c \"$W\""),
    ("double-fork", "(setsid sh -c \"$W\" & ) ; sleep 1000"),
    (
        "script",
        "script -qec \"$W\" /dev/null </dev/null >/dev/null",
    ),
    ("nested", "$ZKLOCK run /job/nested-$$ -- sh -c \"$W\""),
    (
        "nested-out",
        "$ZKLOCK run /job/nested-$$ -- setsid -w timeout 1000 sh -c \"$W\"",
    ),
];

/// Writes its process id and then ticks, and does not listen to TERM or HUP.
const WORK: &str =
    r#"trap '' TERM HUP; echo $$ >$PIDS; while sleep 0.01; do echo tick >>$TICKS; done"#;

/// A job whose worker leaves traces in a folder.
struct Traces {
    folder: tempfile::TempDir,
}

impl Traces {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a place for the traces");
        open_to_all(folder.path());
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Tells a command where to leave them.
    fn told<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("W", WORK)
            .env("ZKLOCK", env!("CARGO_BIN_EXE_zklock"))
            .env("PIDS", self.file("pid"))
            .env("TICKS", self.file("ticks"))
    }

    /// Waits until the worker works; returns its process id.
    #[track_caller]
    fn worker(&self) -> u32 {
        wait_until("it works", SOON, || self.ticks() > 0);
        let pid = fs::read_to_string(self.file("pid")).expect("written before");
        pid.trim().parse().expect("a process id")
    }

    fn ticks(&self) -> usize {
        fs::read_to_string(self.file("ticks")).map_or(0, |ticks| ticks.lines().count())
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("it is ours");
}

/// With a control group where one can be made, and in any case without.
fn both_ways() -> [&'static [&'static str]; 2] {
    [&[], &["--no-cgroup"]]
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), signal).expect("it runs");
}

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
            let next = ["run", &path, "--", "sh", "-c", r#"wc -l <"$0""#];
            let mut next = zklock(next);
            let next = said(next.arg(traces.file("ticks")));
            assert_eq!(next.status, 0, "{way}: {}", next.err);
            let seen: usize = next.out.trim().parse().expect("a number of lines");
            assert!(!process::is_alive(worker), "{way}: the worker lives");
            assert_eq!(traces.ticks(), seen, "{way}: it worked beside the next");
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
        let mut first = traces
            .told(&mut first)
            .stderr(writer)
            .spawn()
            .expect("it starts");
        let worker = traces.worker();
        proxy.black_hole(Direction::Both);
        let next = said(&mut zklock(["run", &path, "--", "true"]));
        assert_eq!(next.status, 0, "{}", next.err);
        assert!(
            !process::is_alive(worker),
            "the worker lives beside the next"
        );
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

/// SIGKILL of zklock: the command died, its children went on beside the next one.
#[test]
fn the_whole_job_dies_with_us() {
    for (way, script) in WAYS_OUT {
        for how in both_ways() {
            let path = format!("/job/kill-{way}-{}", how.len());
            let traces = Traces::new();
            let mut first = zklock(["run", "--session-timeout=3s"]);
            first.args(how).args([&path, "--", "sh", "-c", script]);
            let first = Running::start(traces.told(&mut first));
            let worker = traces.worker();
            process::kill(first.pid());
            let next = said(&mut zklock(["run", &path, "--", "true"]));
            assert_eq!(next.status, 0, "{way}: {}", next.err);
            assert!(!process::is_alive(worker), "{way}: the worker lives");
            assert_eq!(first.status(), 137);
        }
    }
}

/// SIGSTOP of zklock alone: nobody guarded the command.
#[test]
fn a_supervisor_that_is_stopped_is_guarded_by_its_watchdog() {
    for (way, script) in [("plain", "exec sh -c \"$W\""), WAYS_OUT[2], WAYS_OUT[3]] {
        let path = format!("/job/stop-{way}");
        let traces = Traces::new();
        let mut first = zklock([
            "run",
            "--session-timeout=2s",
            &path,
            "--",
            "sh",
            "-c",
            script,
        ]);
        let first = Running::start(traces.told(&mut first));
        let worker = traces.worker();
        process::stop(first.pid());
        let next = said(&mut zklock(["run", &path, "--", "true"]));
        assert_eq!(next.status, 0, "{way}: {}", next.err);
        assert!(!process::is_alive(worker), "{way}: the worker lives");
        process::cont(first.pid());
        assert_eq!(first.end().status, 79, "{way}");
    }
}

/// SIGTSTP is what Ctrl-Z sends; without a shell that could continue us it does nothing.
#[test]
fn a_stop_key_without_a_shell_leaves_the_command_guarded() {
    let path = "/job/tstp";
    let script = "echo ready; read line; echo went on";
    let first = [
        "run",
        "--session-timeout=2s",
        path,
        "--",
        "sh",
        "-c",
        script,
    ];
    let first = Running::start(&mut zklock(first)).expect("ready");
    send(first.pid(), Signal::TSTP);
    let first = first.finish();
    assert_eq!(
        (first.status, &*first.out),
        (0, "went on\n"),
        "{}",
        first.err
    );
}

/// The watchdog of a run.
fn watchdog_of(pid: u32) -> u32 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let found = wait_for_some(SOON, || {
        let children = fs::read_to_string(&children).ok()?;
        children.split_whitespace().next()?.parse().ok()
    });
    found.expect("a watchdog")
}

#[test]
fn a_job_without_a_watchdog_is_killed() {
    for (way, script) in [("plain", "exec sh -c \"$W\""), WAYS_OUT[2], WAYS_OUT[3]] {
        for how in both_ways() {
            let path = format!("/job/watchdog-{way}-{}", how.len());
            let traces = Traces::new();
            let mut first = zklock(["run"]);
            first.args(how).args([&path, "--", "sh", "-c", script]);
            let first = Running::start(traces.told(&mut first));
            let worker = traces.worker();
            process::kill(watchdog_of(first.pid()));
            let next = said(&mut zklock(["run", &path, "--", "true"]));
            assert_eq!(next.status, 0, "{way}: {}", next.err);
            assert!(!process::is_alive(worker), "{way}: the worker lives");
            let first = first.end();
            assert_eq!(first.status, 70, "{way}");
            assert!(first.err.contains("watchdog"), "{}", first.err);
        }
    }
}

#[test]
fn a_watchdog_that_is_stopped_is_continued() {
    let path = "/job/stopped-watchdog";
    let first = [
        "run",
        path,
        "--",
        "sh",
        "-c",
        "echo ready; read line; exit 3",
    ];
    let first = Running::start(&mut zklock(first)).expect("ready");
    let watchdog = watchdog_of(first.pid());
    send(watchdog, Signal::STOP);
    wait_until("it goes on", SOON, || !process::is_stopped(watchdog));
    assert_eq!(first.finish().status, 3);
}

/// A watchdog has the name of a program of its own, so that `killall` leaves it.
#[test]
fn a_watchdog_has_another_name() {
    let first = [
        "run",
        "/job/name",
        "--",
        "sh",
        "-c",
        "echo ready; read line",
    ];
    let first = Running::start(&mut zklock(first)).expect("ready");
    let name = fs::read_to_string(format!("/proc/{}/comm", watchdog_of(first.pid())));
    assert_eq!(name.expect("it runs").trim_end(), "watchdog");
    first.finish();
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
    let [become_it, with] = WITH_DEFAULT_SIGNALS;
    let script =
        "echo ready; exec setpriv --reuid=54322 --ambient-caps=-all --inh-caps=-all sh -c \"$W\"";
    let program = copy_for_all(&traces);
    let mut first = Command::new(become_it);
    // May become anybody, and may not kill anybody.
    first.args([
        with,
        "setpriv",
        "--reuid=54321",
        "--regid=54321",
        "--clear-groups",
    ]);
    first.args(["--inh-caps=-all,+setuid", "--ambient-caps=-all,+setuid"]);
    first.args(["--bounding-set=-all,+setuid"]).arg(program);
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

/// The same at an ordinary end: the lock was given back over the living, with status 0.
#[test]
fn the_lock_is_kept_over_those_who_cannot_be_killed() {
    if !geteuid().is_root() {
        eprintln!("left out: only root can make another user's process");
        return;
    }
    let path = "/job/other-user-left";
    let traces = Traces::new();
    let [become_it, with] = WITH_DEFAULT_SIGNALS;
    let script =
        "setpriv --reuid=54322 --ambient-caps=-all --inh-caps=-all sh -c \"$W\" >/dev/null 2>&1 &
        while ! [ -s $TICKS ]; do sleep 0.01; done; exit 0";
    let program = copy_for_all(&traces);
    let mut first = Command::new(become_it);
    first.args([
        with,
        "setpriv",
        "--reuid=54321",
        "--regid=54321",
        "--clear-groups",
    ]);
    first.args(["--inh-caps=-all,+setuid", "--ambient-caps=-all,+setuid"]);
    first.args(["--bounding-set=-all,+setuid"]).arg(program);
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
    let script = r#"sleep 1000 & echo $!; exec "$0" run --no-cgroup /job/before -- true"#;
    let mut command = Command::new("sh");
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_zklock")])
        .env("ZK_CONNECT", server().connect_string())
        .stderr(Stdio::inherit());
    let mut running = Running::start(&mut command);
    let stranger: u32 = running.line().parse().expect("a process id");
    let status = running.status();
    assert!(process::is_alive(stranger));
    process::kill(stranger);
    assert_eq!(status, 0);
}

/// The first process of a container: what it does not catch, it does not hear.
#[test]
fn the_first_process_of_a_container_stops_its_command() {
    let test = ["unshare", "--pid", "--fork", "--mount-proc", "true"];
    if !Command::new(test[0])
        .args(&test[1..])
        .status()
        .is_ok_and(|ended| ended.success())
    {
        eprintln!("left out: no PID namespace can be made here");
        return;
    }
    let path = "/job/container";
    let traces = Traces::new();
    let mut first = Command::new("unshare");
    first.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    first.args([env!("CARGO_BIN_EXE_zklock"), "run", "--kill-after=200ms"]);
    first.env("ZK_CONNECT", server().connect_string());
    first.args([path, "--", "sh", "-c", WAYS_OUT[2].1]);
    let first = Running::start(traces.told(&mut first));
    wait_until("it works", SOON, || traces.ticks() > 0);
    let inner = watchdog_of(first.pid());
    send(inner, Signal::TERM);
    // As the first process it cannot die by a signal.
    assert_eq!(first.end().status, 143);
    assert_eq!(queue_length(&client(), path), 0);
}

/// A service manager sends TERM to all processes of a service; the command heard it twice.
#[test]
fn a_service_managers_term_is_heard_once() {
    let path = "/job/service";
    let folder = tempfile::tempdir().expect("a place for it");
    let manager = folder.path().join("systemd");
    fs::copy("/bin/bash", &manager).expect("bash is there");
    let script = r#"trap 'echo term' TERM; echo $$; for i in 1 2; do read line; done; exit 0"#;
    let mut first = Running::start(&mut zklock(["run", path, "--", "bash", "-c", script]));
    let command: u32 = first.line().parse().expect("a process id");
    let (ours, watchdog) = (first.pid(), watchdog_of(first.pid()));
    let all = format!("kill -TERM {ours} {watchdog} {command}; read line");
    let mut manager = Command::new(&manager)
        .args(["-c", &all])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it runs");
    assert_eq!(first.line(), "term");
    // It was not passed on: what is passed on comes in order, and TERM before USR1.
    send(ours, Signal::WINCH);
    wait_for_queue(&client(), path, 1);
    let ended = first.finish();
    manager.kill().expect("it is our child");
    manager.wait().expect("it is our child");
    assert_eq!((ended.status, &*ended.out), (0, ""), "{}", ended.err);
}
