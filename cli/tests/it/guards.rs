//! Supervisor and watchdog: each guards the job when the other is killed, stopped or late.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{Direction, Proxy, process, wait_until};

use crate::fixtures::{Running, SOON, client, queue_length, said, send, server, zklock};
use crate::traces::{Traces, WAYS_OUT, both_ways, watchdog_of};

/// SIGKILL of zklock: the command died, its children went on beside the next one.
#[test]
fn the_whole_job_dies_with_us() {
    for (way, script) in WAYS_OUT {
        for how in both_ways() {
            let path = format!("/guards/kill-{way}-{}", how.len());
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
        let path = format!("/guards/stop-{way}");
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
    let path = "/guards/tstp";
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

#[test]
fn a_job_without_a_watchdog_is_killed() {
    for (way, script) in [("plain", "exec sh -c \"$W\""), WAYS_OUT[2], WAYS_OUT[3]] {
        for how in both_ways() {
            let path = format!("/guards/watchdog-{way}-{}", how.len());
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

/// Who is stopped buries nobody, and says nothing of an end.
#[test]
fn a_watchdog_that_is_stopped_is_continued() {
    for signal in [Signal::STOP, Signal::TSTP] {
        let path = "/guards/stopped-watchdog";
        let script = "echo ready; read line; exit 3";
        let mut first = zklock(["run", path, "--", "sh", "-c", script]);
        let first = Running::start(&mut first).expect("ready");
        send(watchdog_of(first.pid()), signal);
        assert_eq!(first.finish().status, 3, "{signal:?}");
    }
}

/// When zklock dies after that, the job dies.
#[test]
fn a_watchdog_that_was_stopped_guards_on() {
    for (signal, name) in [(Signal::STOP, "stop"), (Signal::TSTP, "tstp")] {
        let path = format!("/guards/watchdog-{name}");
        let traces = Traces::new();
        let mut first = zklock(["run", "--session-timeout=3s", &path, "--"]);
        first.args(["sh", "-c", WAYS_OUT[2].1]);
        let first = Running::start(traces.told(&mut first));
        let worker = traces.worker();
        let watchdog = watchdog_of(first.pid());
        send(watchdog, signal);
        // Killed before it has heard of the stop, zklock could let nobody go on: that is both at once.
        process::wait_until_continued(watchdog, signal);
        process::kill(first.pid());
        traces.assert_over_before_the_next(&path, name);
        assert!(!process::is_alive(worker), "{name}: the worker lives");
        assert_eq!(first.status(), 137);
    }
}

/// Every core spins, and the job is over before the next one begins all the same: who supervises it,
/// and who does so in its place.
#[test]
fn a_busy_machine_kills_in_time() {
    let _busy = Busy::start();
    for is_stopped in [false, true] {
        let path = format!("/guards/busy-{is_stopped}");
        let traces = Traces::new();
        let proxy = Proxy::start(server().addr());
        let servers = proxy.connect_string();
        let mut first = zklock(["run", "--session-timeout=3s", "--servers", &servers]);
        first.args([&path, "--", "sh", "-c", WAYS_OUT[2].1]);
        let first = Running::start(traces.told(&mut first));
        let worker = traces.worker();
        if is_stopped {
            process::stop(first.pid());
        }
        proxy.black_hole(Direction::Both);
        traces.assert_over_before_the_next(&path, "busy");
        assert!(!process::is_alive(worker), "the worker lives");
        if is_stopped {
            process::cont(first.pid());
        }
        assert_eq!(first.end().status, 79);
    }
}

/// Twice as many processes that spin as there are cores. They end with it; if this process is killed,
/// when they have used a minute each.
struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| {
            let script = "ulimit -t 60; while :; do :; done";
            let spinner = Command::new("sh").args(["-c", script]).spawn();
            spinner.expect("it can be started")
        };
        Self((0..2 * cores).map(spin).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

/// Not covered, as the pages say: the command dies with its parent, what it has
/// started lives on. The lock is not free before the session has ended.
#[test]
fn with_both_killed_the_command_dies_and_the_lock_stays_for_the_session() {
    let path = "/guards/both-killed";
    let traces = Traces::new();
    let timeout = Duration::from_secs(3);
    let mut first = zklock(["run", "--session-timeout=3s", path, "--"]);
    first.args(["sh", "-c", "echo $$; setsid -w sh -c \"$W\"; true"]);
    let mut first = Running::start(traces.told(&mut first));
    let command: u32 = first.line().parse().expect("a process id");
    let worker = Doomed(traces.worker());
    let (supervisor, watchdog) = (first.pid(), watchdog_of(first.pid()));
    // One after the other would be noticed.
    process::stop(supervisor);
    process::stop(watchdog);
    let began = Instant::now();
    process::kill(supervisor);
    process::kill(watchdog);
    assert_eq!(first.status(), 137);
    let busy = said(&mut zklock(["run", "--try", path, "--", "true"]));
    assert_eq!(busy.status, 75, "{}", busy.err);
    wait_until("the command dies", SOON, || !process::is_alive(command));
    let next = said(&mut zklock(["run", path, "--", "true"]));
    assert_eq!(next.status, 0, "{}", next.err);
    // The server has heard of the session until a part of its timeout before.
    assert!(began.elapsed() > timeout / 2, "{:?}", began.elapsed());
    assert!(
        process::is_alive(worker.0),
        "what the pages call not covered is"
    );
}

/// Not covered either: the job runs beside the next one, until one of the two goes on.
#[test]
fn with_both_stopped_the_job_runs_until_one_goes_on() {
    for continues in ["supervisor", "watchdog"] {
        let path = format!("/guards/both-stopped-{continues}");
        let traces = Traces::new();
        let mut first = zklock(["run", "--session-timeout=2s", &path, "--"]);
        first.args(["sh", "-c", WAYS_OUT[2].1]);
        let first = Running::start(traces.told(&mut first));
        let worker = Doomed(traces.worker());
        let (supervisor, watchdog) = (first.pid(), watchdog_of(first.pid()));
        process::stop(supervisor);
        process::stop(watchdog);
        let next = said(&mut zklock(["run", &path, "--", "true"]));
        assert_eq!(next.status, 0, "{}", next.err);
        assert!(
            process::is_alive(worker.0),
            "what the pages call not covered is"
        );
        process::cont(if continues == "watchdog" {
            watchdog
        } else {
            supervisor
        });
        wait_until("the job dies", SOON, || !process::is_alive(worker.0));
        process::cont(supervisor);
        assert_eq!(first.end().status, 79, "{continues}");
    }
}

/// A process that nobody guards any more.
struct Doomed(u32);

impl Drop for Doomed {
    fn drop(&mut self) {
        if process::is_alive(self.0) {
            process::kill(self.0);
        }
    }
}

/// A watchdog has the name of a program of its own, so that `killall` leaves it.
#[test]
fn a_watchdog_has_another_name() {
    let first = [
        "run",
        "/guards/name",
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

/// A run as the first process of a PID namespace of its own, with a worker in a session of its own; `None`
/// where no namespace can be made.
fn in_a_container(traces: &Traces, flags: &[&str], path: &str) -> Option<Running> {
    let possible = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .stderr(Stdio::null())
        .status();
    if !possible.is_ok_and(|ended| ended.success()) {
        eprintln!("left out: no PID namespace can be made here");
        return None;
    }
    let mut first = Command::new("unshare");
    first.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    first
        .args([env!("CARGO_BIN_EXE_zklock"), "run"])
        .args(flags);
    first.env("ZK_CONNECT", server().connect_string());
    first.args([path, "--", "sh", "-c", WAYS_OUT[2].1]);
    let first = Running::start(traces.told(&mut first));
    wait_until("it works", SOON, || traces.ticks() > 0);
    Some(first)
}

/// What it does not catch, it does not hear.
#[test]
fn the_first_process_of_a_container_stops_its_command() {
    let path = "/guards/container";
    let traces = Traces::new();
    let Some(first) = in_a_container(&traces, &["--kill-after=200ms"], path) else {
        return;
    };
    send(watchdog_of(first.pid()), Signal::TERM);
    // As the first process it cannot die by a signal.
    assert_eq!(first.end().status, 143);
    assert_eq!(queue_length(&client(), path), 0);
}

/// From outside the first process can be stopped like any other.
#[test]
fn the_first_process_of_a_container_is_guarded_when_it_is_stopped() {
    for how in both_ways() {
        let path = format!("/guards/container-stop-{}", how.len());
        let traces = Traces::new();
        let flags = [&["--session-timeout=2s"], how].concat();
        let Some(first) = in_a_container(&traces, &flags, &path) else {
            return;
        };
        let inner = watchdog_of(first.pid());
        process::stop(inner);
        traces.assert_over_before_the_next(&path, "stopped");
        process::cont(inner);
        assert_eq!(first.end().status, 79);
    }
}

/// The first process inherits the job as it inherits everybody.
#[test]
fn the_first_process_of_a_container_kills_a_job_without_a_watchdog() {
    let path = "/guards/container-watchdog";
    let traces = Traces::new();
    let Some(first) = in_a_container(&traces, &[], path) else {
        return;
    };
    process::kill(watchdog_of(watchdog_of(first.pid())));
    traces.assert_over_before_the_next(path, "killed");
    let first = first.end();
    assert_eq!(first.status, 70, "{}", first.err);
}

/// A container that is killed as a whole.
#[test]
fn a_container_dies_with_its_first_process() {
    let path = "/guards/container-kill";
    let traces = Traces::new();
    let Some(first) = in_a_container(&traces, &["--session-timeout=2s"], path) else {
        return;
    };
    process::kill(watchdog_of(first.pid()));
    traces.assert_over_before_the_next(path, "killed");
    // How it ended is unshare's to say.
    first.end();
}
