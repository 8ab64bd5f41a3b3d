//! Signals to the command and to what it runs.

use crate::fixtures::{
    Running, SOON, WITH_DEFAULT_SIGNALS, client, queue_length, said, send, wait_for_queue, zklock,
};

use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use testbed::{process, wait_until};

#[test]
fn signals_reach_the_command() {
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::TERM, "TERM"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let script = format!("trap 'echo got {name}; exit 5' {name}; echo ready; read line");
        let path = format!("/signals/{name}");
        let running = Running::start(&mut zklock(["run", &path, "--", "sh", "-c", &script]));
        let running = running.expect("ready");
        send(running.pid(), signal);
        let said = running.end();
        assert_eq!((said.status, said.out.trim()), (5, &*format!("got {name}")));
    }
}

#[test]
fn a_signal_ends_a_wait_and_nothing_is_started_after_it() {
    let path = "/signals/waiting";
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
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::USR1, 138)] {
        let waiting = Running::start(&mut zklock(["run", path, "--", "echo", "ran"]));
        wait_for_queue(&client, path, 2);
        send(waiting.pid(), signal);
        let said = waiting.end();
        assert_eq!((said.status, &*said.out), (status, ""), "{}", said.err);
        assert_eq!(queue_length(&client, path), 1);
    }
    assert_eq!(holder.finish().status, 0);
}

#[test]
fn a_command_dies_with_us() {
    let path = "/signals/kill-us";
    let script = [
        "run",
        "--session-timeout=1s",
        path,
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 1000",
    ];
    let mut running = Running::start(&mut zklock(script));
    let command: u32 = running.line().parse().expect("a process id");
    assert!(process::is_alive(command));
    process::kill(running.pid());
    wait_until("the command has died", SOON, || !process::is_alive(command));
    // The lock is free when the session is over.
    let next = said(&mut zklock(["run", "--timeout=20s", path, "--", "true"]));
    assert_eq!(next.status, 0, "{}", next.err);
}

#[test]
fn the_death_of_a_command_is_told() {
    let path = "/signals/kill-it";
    let mut running = Running::start(&mut zklock([
        "run",
        path,
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 1000",
    ]));
    let command: u32 = running.line().parse().expect("a process id");
    process::kill(command);
    assert_eq!(running.end().status, 137);
    assert_eq!(queue_length(&client(), path), 0);
}

/// Of these PIPE was ignored in us, and the caller saw status 141 of one who had ended by itself.
#[test]
fn we_end_by_the_signal_that_ended_the_command() {
    for (signal, name) in [
        (Signal::PIPE, "PIPE"),
        (Signal::ALARM, "ALRM"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
    ] {
        let script = format!("kill -{name} $$");
        let mut command = zklock(["run", "/signals/ended-by", "--", "sh", "-c", &script]);
        let ended = command.status().expect("it can be started");
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{name}: {ended}");
    }
}

/// What `nohup` does.
#[test]
fn what_was_ignored_stays_ignored() {
    let [become_it, with] = WITH_DEFAULT_SIGNALS;
    let mut command = Command::new(become_it);
    command
        .args([
            with,
            "--ignore-signal=HUP,USR1",
            env!("CARGO_BIN_EXE_zklock"),
        ])
        .args(["run", "/signals/ignored", "--"])
        .args(["grep", "SigIgn", "/proc/self/status"])
        .env("ZK_CONNECT", crate::fixtures::server().connect_string());
    let said = said(&mut command);
    let mask = said.out.trim().rsplit('\t').next().expect("a mask");
    let mask = u64::from_str_radix(mask, 16).expect("hexadecimal");
    let bit = |signal: Signal| 1_u64 << (signal.as_raw() - 1);
    let ours = [
        Signal::INT,
        Signal::TERM,
        Signal::USR2,
        Signal::CHILD,
        Signal::PIPE,
    ];
    let ours = ours.into_iter().map(bit).fold(0, |all, one| all | one);
    let ignored = bit(Signal::HUP) | bit(Signal::USR1);
    // The rest is as the tests were started with.
    assert_eq!(mask & (ignored | ours), ignored, "{}", said.out);
}

/// An operator's `kill -STOP`, with no shell that could continue us: the lock stays guarded.
#[test]
fn a_command_that_is_stopped_without_a_terminal_is_waited_for() {
    let path = "/signals/stopped";
    let mut running = Running::start(&mut zklock([
        "run",
        path,
        "--",
        "sh",
        "-c",
        "echo $$; read line; echo went on",
    ]));
    let command: u32 = running.line().parse().expect("a process id");
    process::stop(command);
    // For a stopped process to hear it, it has to be continued as well.
    send(running.pid(), Signal::TERM);
    assert_eq!(running.end().status, 143);
}
