//! `zklock test-server`: for scripts.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::fixtures::{Running, bare, said};

#[test]
fn a_server_for_scripts_says_where_it_is_and_serves() {
    let mut server = Running::start(bare().args(["test-server", "--port", "0"]));
    let servers = server.line();
    assert!(servers.starts_with("127.0.0.1:"), "{servers}");
    server.wait_for_error("on loopback alone, nothing is kept on disk");
    let run = [
        "--servers",
        &servers,
        "run",
        "/locks/a",
        "--",
        "echo",
        "ran",
    ];
    let ran = said(bare().args(run));
    assert_eq!((ran.status, &*ran.out), (0, "ran\n"), "{}", ran.err);

    // The port is taken now.
    let port = servers.rsplit(':').next().expect("it has a port");
    let second = said(bare().args(["test-server", "--port", port]));
    assert_eq!(second.status, 70, "{}", second.err);
    testbed::process::kill(server.pid());
}

#[test]
fn several_servers_for_scripts_are_an_ensemble() {
    let mut servers = Running::start(bare().args(["test-server", "--port", "0", "--members", "3"]));
    let addresses = servers.line();
    let addresses: Vec<_> = addresses.split(',').collect();
    assert_eq!(addresses.len(), 3, "{addresses:?}");
    for address in &addresses {
        let run = ["--servers", address, "run", "/locks/a", "--", "echo", "ran"];
        let ran = said(bare().args(run));
        assert_eq!((ran.status, &*ran.out), (0, "ran\n"), "{}", ran.err);
    }
    testbed::process::kill(servers.pid());
}

#[test]
fn as_the_first_process_of_a_container_it_ends_at_term() {
    let test = ["--pid", "--fork", "--mount-proc", "true"];
    let can = Command::new("unshare").args(test).status();
    if !can.is_ok_and(|ended| ended.success()) {
        eprintln!("left out: no PID namespace can be made here");
        return;
    }
    let mut server = Command::new("unshare");
    server.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    server.args([env!("CARGO_BIN_EXE_zklock"), "test-server", "--port", "0"]);
    let mut server = Running::start(&mut server);
    assert!(server.line().starts_with("127.0.0.1:"));
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let inner = std::fs::read_to_string(children).expect("it runs");
    let inner = inner.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(inner.expect("a process id"), Signal::TERM).expect("it runs");
    assert_eq!(server.end().status, 143);
}
