//! What a command gets, what its caller gets, and that nobody else runs meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testbed::ports::Port;
use zklock::{Acl, Client, Mutex};

use crate::fixtures::{Running, bare, client, queue_length, said, server, wait_for_queue, zklock};

/// Says `ready`, and runs until its input ends.
const HOLD: &str = "echo ready; read line; exit 0";

fn hold(arguments: &[&str]) -> Running {
    let all = ["run"].iter().chain(arguments).copied();
    let all = all.chain(["--", "sh", "-c", HOLD]);
    Running::start(&mut zklock(all)).expect("ready")
}

/// The value of a variable in what `env` printed.
fn variable<'a>(out: &'a str, name: &str) -> Option<&'a str> {
    out.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// The message was that `true` was not expected.
#[test]
fn a_command_without_its_mark_is_told_where_it_goes() {
    for (arguments, is_told) in [
        (&["run", "/l", "true"][..], true),
        (&["run", "/l", "--nosuch", "--", "true"], false),
        (&["who", "/l", "true"], false),
    ] {
        let wrong = said(&mut zklock(arguments.iter().copied()));
        assert_eq!(wrong.status, 64, "{}", wrong.err);
        let told = wrong.err.contains("a command stands after `--`");
        assert_eq!(told, is_told, "{}", wrong.err);
    }
}

#[test]
fn a_command_gets_to_know_its_lock_and_its_caller_gets_its_status() {
    let script = ["run", "/run/env", "--", "sh", "-c", "env; exit 3"];
    let said = said(zklock(script).env("ZKLOCK_FENCING_TOKEN", "inherited"));
    assert_eq!(said.status, 3, "{}", said.err);
    assert_eq!(said.err, "");
    assert_eq!(variable(&said.out, "ZKLOCK_PATH"), Some("/run/env"));
    let node = variable(&said.out, "ZKLOCK_NODE").expect("it is set");
    assert!(node.starts_with("/run/env/_c_"), "{node}");
    let session = variable(&said.out, "ZKLOCK_SESSION").expect("it is set");
    assert!(session.starts_with("0x"), "{session}");
    let token = variable(&said.out, "ZKLOCK_FENCING_TOKEN").expect("it is set");
    assert!(token.parse::<u64>().expect("a number") > 0);
}

#[test]
fn who_shares_has_no_fencing_token() {
    for kind in [["--shared", "--"], ["--semaphore=3", "--"]] {
        let path = format!("/run/token{}", kind[0].replace('=', "-"));
        let all = ["run", &path].into_iter().chain(kind).chain(["env"]);
        let said = said(zklock(all).env("ZKLOCK_FENCING_TOKEN", "inherited"));
        assert_eq!(said.status, 0, "{}", said.err);
        assert_eq!(variable(&said.out, "ZKLOCK_FENCING_TOKEN"), None);
        assert!(variable(&said.out, "ZKLOCK_NODE").is_some());
    }
}

/// Descriptors that the test's own process leaves open are in both lists.
#[test]
fn a_command_gets_no_descriptor_of_ours() {
    let folder = tempfile::tempdir().expect("a place for the report");
    let report = folder.path().join("report");
    let script = r#"ls /proc/self/fd; exec 9>"$0"; "$@" --status-fd 9 /run/fd -- ls /proc/self/fd"#;
    let said = said(
        Command::new("sh")
            .args(["-c", script])
            .arg(&report)
            .args([env!("CARGO_BIN_EXE_zklock"), "run"])
            .env("ZK_CONNECT", server().connect_string()),
    );
    let half = said.out.lines().count() / 2;
    let (before, within): (Vec<_>, Vec<_>) =
        said.out.lines().enumerate().partition(|(at, _)| *at < half);
    let lines = |list: Vec<(usize, &str)>| {
        list.into_iter()
            .map(|(_, line)| line.to_owned())
            .collect::<Vec<_>>()
    };
    assert!(half > 0, "{}", said.err);
    assert_eq!(lines(before), lines(within));
    let report = fs::read_to_string(report).expect("written");
    assert_eq!(
        report,
        "{\"from\":\"command\",\"status\":0,\"reason\":\"exit\",\"command_exit\":0}\n"
    );
}

/// Runs with a report; returns it and the status.
fn reported(arguments: &[&str]) -> (String, i32) {
    let folder = tempfile::tempdir().expect("a place for the report");
    let report = folder.path().join("report");
    let said = said(
        Command::new("sh")
            .args(["-c", r#"exec 3>"$0"; exec "$@""#])
            .arg(&report)
            .args([env!("CARGO_BIN_EXE_zklock"), "run", "--status-fd=3"])
            .args(arguments)
            .env("ZK_CONNECT", server().connect_string()),
    );
    let report = fs::read_to_string(report).expect("written");
    (report, said.status)
}

#[test]
fn the_report_tells_our_status_from_the_commands() {
    for (command, status, from, more) in [
        (
            &["sh", "-c", "exit 75"][..],
            75,
            "command",
            "\"command_exit\":75",
        ),
        (
            &["sh", "-c", "exit 127"],
            127,
            "command",
            "\"command_exit\":127",
        ),
        (&["no-such-command"], 127, "zklock", "not-found"),
        (&["/etc/passwd"], 126, "zklock", "cannot-run"),
        (
            &["sh", "-c", "kill -9 $$"],
            137,
            "command",
            "\"command_signal\":9",
        ),
    ] {
        let all = ["/run/report", "--"].iter().chain(command).copied();
        let (report, code) = reported(&all.collect::<Vec<_>>());
        assert_eq!(code, status, "{report}");
        assert!(report.contains(&format!("\"from\":\"{from}\"")), "{report}");
        assert!(report.contains(more), "{report}");
        assert_eq!(report.lines().count(), 1);
    }
}

#[test]
fn who_comes_too_late_is_told_so_and_leaves_nothing() {
    let path = "/run/busy";
    let holder = hold(&[path]);
    let client = client();
    for patience in ["--try", "--timeout=0s", "--timeout=300ms"] {
        let said = said(&mut zklock(["run", patience, path, "--", "echo", "ran"]));
        assert_eq!((said.status, &*said.out), (75, ""));
        assert!(said.err.contains(path), "{}", said.err);
        assert_eq!(queue_length(&client, path), 1);
    }
    let (report, status) = reported(&["--try", path, "--", "true"]);
    assert!(report.contains("\"reason\":\"busy\""), "{report}");
    assert_eq!(status, 75);
    assert_eq!(holder.finish().status, 0);
    assert_eq!(
        said(&mut zklock(["run", "--try", path, "--", "true"])).status,
        0
    );
}

/// It was said each time.
#[test]
fn who_is_quiet_is_quiet_again_and_again() {
    let path = "/run/quiet";
    let holder = hold(&[path]);
    let client = client();
    let flags = [
        "run",
        "--again=100ms",
        "--timeout=300ms",
        "--quiet",
        path,
        "--",
        "echo",
        "ran",
    ];
    let mut waiting = Running::start(&mut zklock(flags));
    for length in [2, 1, 2] {
        wait_for_queue(&client, path, length);
    }
    assert_eq!(holder.finish().status, 0);
    assert_eq!(waiting.line(), "ran");
    testbed::process::kill(waiting.pid());
    let said = waiting.end();
    assert_eq!(said.err, "");
}

#[test]
fn what_cannot_be_is_a_matter_of_usage() {
    let here = server().connect_string();
    for (line, tells) in [
        ("", "Usage"),
        ("run /l", "<COMMAND>"),
        ("run /l -- true", "ZK_CONNECT"),
        ("run --servers HERE --timeout 4 /l -- true", "500ms"),
        (
            "run --servers HERE --try --timeout 4s /l -- true",
            "cannot be used with",
        ),
        ("run --servers HERE --semaphore 0 /l -- true", "0"),
        (
            "run --servers HERE --signal NOSUCH /l -- true",
            "no such signal",
        ),
        (
            "run --servers HERE --kill-after 3s /l -- true",
            "--session-timeout 12s",
        ),
        (
            "run --servers HERE --status-fd 77 /l -- true",
            "--status-fd 77",
        ),
        ("run --servers HERE relative -- true", "begin with"),
        (
            "run --servers HERE --auth secret /l -- true",
            "SCHEME:CREDENTIALS",
        ),
        ("run --servers a:b:c /l -- true", "a:b:c"),
        ("break --servers HERE /l", "--node"),
    ] {
        let line = line.replace("HERE", &here);
        let said = said(bare().args(line.split_whitespace()));

        assert_eq!((said.status, &*said.out), (64, ""), "{line}: {}", said.err);
        assert!(said.err.contains(tells), "{line}: {}", said.err);
        assert!(!said.err.contains("secret"), "{}", said.err);
    }
}

#[test]
fn a_flag_wins_over_the_variable() {
    let mut command = zklock(["run", "/run/flag", "--servers"]);
    command.arg(server().connect_string()).args(["--", "true"]);
    let said = said(command.env("ZK_CONNECT", "a:b:c"));
    assert_eq!(said.status, 0, "{}", said.err);
}

#[test]
fn a_server_that_is_not_there_is_given_up_in_time() {
    // Claimed, and nobody listens.
    let port = Port::claim();
    let servers = port.addr().to_string();
    let begun = Instant::now();
    let all = [
        "run",
        "--servers",
        &servers,
        "--timeout",
        "500ms",
        "/l",
        "--",
        "echo",
        "ran",
    ];
    let said = said(bare().args(all));
    assert_eq!((said.status, &*said.out), (69, ""));
    assert!(said.err.contains(&servers), "{}", said.err);
    // Far from 15 s, which is the bound without a timeout.
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn refused_access_has_a_status_of_its_own() {
    let path = "/run/secret";
    let owner = Client::builder(&server().connect_string())
        .auth("digest", "owner:secret")
        .acl(Acl::creator_all())
        .connect()
        .expect("the server serves");
    let lock = Mutex::new(&owner, path).expect("a good path");
    let guard = lock.lock().expect("the server serves");
    let stranger = said(&mut zklock(["run", path, "--", "true"]));
    assert_eq!(stranger.status, 77, "{}", stranger.err);
    drop(guard);
    let friend = said(zklock(["run", path, "--", "true"]).env("ZK_AUTH", "digest:owner:secret"));
    assert_eq!(friend.status, 0, "{}", friend.err);
}

#[test]
fn a_short_job_holds_its_lock_for_as_long_as_it_is_told() {
    const AT_LEAST: Duration = Duration::from_secs(1);
    let begun = Instant::now();
    let said = said(&mut zklock([
        "run",
        "--at-least=1s",
        "/run/least",
        "--",
        "sh",
        "-c",
        "exit 4",
    ]));
    assert!(begun.elapsed() >= AT_LEAST);
    assert_eq!(said.status, 4, "{}", said.err);
}

/// It would be held for nothing.
#[test]
fn a_command_that_cannot_be_run_holds_nothing() {
    let path = "/run/nothing";
    let all = ["run", "--at-least=1m", path, "--", "no-such-command"];
    let begun = Instant::now();
    assert_eq!(said(&mut zklock(all)).status, 127);
    assert!(begun.elapsed() < Duration::from_secs(50));
}

#[test]
fn so_many_run_at_once_and_no_more() {
    let path = "/run/semaphore";
    let limit = "--semaphore=2";
    let two = [hold(&[limit, path]), hold(&[limit, path])];
    let third = ["run", "--try", limit, path, "--", "true"];
    assert_eq!(said(&mut zklock(third)).status, 75);
    for one in two {
        assert_eq!(one.finish().status, 0);
    }
    assert_eq!(said(&mut zklock(third)).status, 0);
}

#[test]
fn sharers_run_together_and_exclude_who_writes() {
    let path = "/run/shared";
    let two = [hold(&["--shared", path]), hold(&["--shared", path])];
    let writer = ["run", "--try", "--write", path, "--", "true"];
    assert_eq!(said(&mut zklock(writer)).status, 75);
    // A mutex would not see them, nor they it.
    let plain = said(&mut zklock(["run", "--try", path, "--", "true"]));
    assert_eq!(plain.status, 64);
    assert!(plain.err.contains("--write"), "{}", plain.err);
    for one in two {
        assert_eq!(one.finish().status, 0);
    }
    assert_eq!(said(&mut zklock(writer)).status, 0);
}

/// Whose node names are those of a mutex.
#[test]
fn writers_in_kazoos_names_exclude_each_other() {
    let path = "/run/kazoo";
    let holder = hold(&["--dialect=kazoo", "--write", path]);
    let try_it = |kind: &[&'static str]| {
        let all = ["run", "--dialect=kazoo", "--try", path];
        let all = all.iter().chain(kind).chain(&["--", "true"]).copied();
        said(&mut zklock(all)).status
    };
    assert_eq!(try_it(&["--write"]), 75);
    assert_eq!(try_it(&["--shared"]), 75);
    assert_eq!(try_it(&[]), 75);
    assert_eq!(holder.finish().status, 0);
    assert_eq!(try_it(&["--write"]), 0);
}

/// The lines of a file that several commands append to.
fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("written");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn commands_run_one_after_the_other() {
    let folder = tempfile::tempdir().expect("a place for the history");
    let file = folder.path().join("history");
    let script = r#"echo begin $$ >>"$0"; echo middle $$ >>"$0"; echo end $$ >>"$0""#;
    let many: Vec<_> = (0..6)
        .map(|_| {
            let mut command = zklock(["run", "/run/turns", "--", "sh", "-c", script]);
            Running::start(command.arg(&file))
        })
        .collect();
    for one in many {
        let said = one.finish();
        assert_eq!(said.status, 0, "{}", said.err);
    }
    let lines = lines(&file);
    assert_eq!(lines.len(), 6 * 3);
    for section in lines.chunks(3) {
        let pid = section[0].strip_prefix("begin ").expect("it begins");
        assert_eq!(
            section[1..],
            [format!("middle {pid}"), format!("end {pid}")]
        );
    }
}

/// What a command leaves running in its group keeps the lock until it has been ended, so that the
/// next one never meets it, even if it does not listen to TERM.
#[test]
fn the_next_one_does_not_meet_what_the_last_one_left_running() {
    let folder = tempfile::tempdir().expect("a place for the history");
    let file = folder.path().join("history");
    let script = r#"sh -c 'trap "" TERM; while sleep 0.01; do echo old >>"$0"; done' "$0" &
        while ! [ -s "$0" ]; do sleep 0.01; done; echo ready; read line; exit 6"#;
    let path = "/run/left";
    let mut first = zklock(["run", "--kill-after=300ms", path, "--", "sh", "-c", script]);
    let first = Running::start(first.arg(&file)).expect("ready");
    let mut second = zklock(["run", path, "--", "sh", "-c", r#"echo new >>"$0""#]);
    let second = Running::start(second.arg(&file));
    wait_for_queue(&client(), path, 2);
    let first = first.finish();
    assert_eq!(first.status, 6);
    assert!(
        first.err.contains("left processes running"),
        "{}",
        first.err
    );
    assert_eq!(second.finish().status, 0);
    let lines = lines(&file);
    let new = lines.iter().position(|line| line == "new").expect("it ran");
    assert_eq!(new, lines.len() - 1, "the old one was met after line {new}");
}
