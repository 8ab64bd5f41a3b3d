//! `zklock test-server`: for scripts.

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
