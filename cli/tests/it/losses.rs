//! Locks that are lost while a command runs.

use std::fs;

use crate::fixtures::{Running, SOON, bare, client, said, server, wait_for_queue, zklock};
use testbed::{Direction, Proxy, Server, process, wait_until};

#[test]
fn a_command_is_asked_to_end_when_its_server_goes_away() {
    let server = Server::start();
    let servers = server.connect_string();
    let script = "trap 'echo asked; exit 0' TERM; echo ready; read line";
    let all = [
        "run",
        "--session-timeout=3s",
        "--servers",
        &servers,
        "/l",
        "--",
        "sh",
        "-c",
        script,
    ];
    let running = Running::start(bare().args(all)).expect("ready");
    server.kill();
    let said = running.end();
    assert_eq!(said.status, 79, "{}", said.err);
    assert_eq!(said.out.trim(), "asked");
    assert!(said.err.contains("/l: "), "{}", said.err);
}

/// The promise: whatever the command and its children do about TERM, they are gone before the next
/// holder acts.
#[test]
fn a_lost_lock_stops_the_group_before_anybody_else_has_it() {
    let path = "/losses/silent";
    let proxy = Proxy::start(server().addr());
    let folder = tempfile::tempdir().expect("a place for the history");
    let file = folder.path().join("history");
    let script = r#"trap "" TERM
        sh -c 'while sleep 0.01; do echo old >>"$0"; done' "$0" &
        echo ready; while sleep 0.01; do echo old >>"$0"; done"#;
    let mut first = bare();
    first
        .args([
            "run",
            "--session-timeout=3s",
            "--servers",
            &proxy.connect_string(),
            path,
        ])
        .args(["--", "sh", "-c", script])
        .arg(&file);
    let first = Running::start(&mut first).expect("ready");
    let mut second = zklock([
        "run",
        path,
        "--",
        "sh",
        "-c",
        r#"echo new >>"$0"; sleep 0.2"#,
    ]);
    let second = Running::start(second.arg(&file));
    wait_for_queue(&client(), path, 2);
    proxy.black_hole(Direction::Both);
    let first = first.end();
    assert_eq!(first.status, 79, "{}", first.err);
    let second = second.finish();
    assert_eq!(second.status, 0, "{}", second.err);
    let history = fs::read_to_string(&file).expect("written");
    let after = history.split_once("new\n").expect("it ran").1;
    assert_eq!(after, "", "the old one acted after the new one");
}

#[test]
fn a_lock_that_is_broken_kills_the_command() {
    let path = "/losses/broken";
    let mut running = Running::start(&mut zklock([
        "run",
        path,
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo $$; echo $ZKLOCK_NODE; read line",
    ]));
    let command: u32 = running.line().parse().expect("a process id");
    let node = running.line();
    let (_, name) = node.rsplit_once('/').expect("a path");
    let broken = said(&mut zklock(["break", path, "--node", name]));
    assert_eq!(broken.status, 0, "{}", broken.err);
    let ended = running.end();
    assert_eq!(ended.status, 79);
    assert!(
        ended.err.contains("removed by somebody else"),
        "{}",
        ended.err
    );
    wait_until("the command has died", SOON, || !process::is_alive(command));
}

#[test]
fn a_lock_that_is_asked_for_is_given_back_by_the_command() {
    let path = "/losses/revoked";
    let script = "trap 'echo asked; exit 8' TERM; echo ready; read line";
    let running = Running::start(&mut zklock(["run", path, "--", "sh", "-c", script]));
    let running = running.expect("ready");
    let asked = said(&mut zklock(["revoke", path]));
    assert_eq!(asked.status, 0, "{}", asked.err);
    assert!(asked.out.contains("asked"), "{}", asked.out);
    let ended = running.end();
    assert_eq!(
        (ended.status, ended.out.trim()),
        (8, "asked"),
        "{}",
        ended.err
    );
    assert!(
        ended.err.contains("somebody asks for the lock"),
        "{}",
        ended.err
    );
}

/// A server that is back before anything is at stake changes nothing. (Not through a proxy: what is
/// restarted is the server.)
#[test]
fn a_wait_bears_a_restart() {
    let server = Server::start();
    let servers = server.connect_string();
    let run = |script: &'static str| {
        let mut command = bare();
        command.args([
            "run",
            "--session-timeout=10s",
            "--servers",
            &servers,
            "/l",
            "--",
            "sh",
            "-c",
            script,
        ]);
        command
    };
    let looking = zklock::Client::connect(&servers).expect("the server serves");
    let holder = zklock::Mutex::new(&looking, "/l").expect("a good path");
    let guard = holder.lock().expect("the server serves");
    let waiting = Running::start(&mut run("echo ran"));
    wait_for_queue(&looking, "/l", 2);
    server.kill();
    server.restart();
    drop(guard);
    let said = waiting.finish();
    assert_eq!((said.status, &*said.out), (0, "ran\n"), "{}", said.err);
}
