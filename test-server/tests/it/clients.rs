//! Other people's clients. (Curator's and kazoo's locks, barriers and semaphores, together with ours,
//! run on it in the integration tests of the library, with `ZKLOCK_TEST_SERVER=embedded`.)

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use zklock_test::Server;
use zookeeper::{Acl, CreateMode, WatchedEvent, WatchedEventType, ZkError, ZooKeeper};

use testbed::kazoo;

const T: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(30);

/// Lock, barriers, election, counter, party, transactions, watches and access lists.
#[test]
fn kazoo_works_on_it() {
    let server = Server::start().expect("a port");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/recipes.py");
    let mut python = Command::new(kazoo::python());
    python.arg(script).arg(server.connect_string());
    let output = python.output().expect("a Python that ran a moment ago");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let done = String::from_utf8_lossy(&output.stdout);
    let done: Vec<_> = done.lines().collect();
    let all = "lock barrier election counter party transaction watches access";
    assert_eq!(done.join(" "), all, "{errors}");
}

#[test]
fn the_zookeeper_crate_works_on_it() {
    let server = Server::start().expect("a port");
    let zk = ZooKeeper::connect(&server.connect_string(), T, |_| {}).expect("it serves");
    let open = || Acl::open_unsafe().clone();
    let create = |path: &str, mode| zk.create(path, b"data".to_vec(), open(), mode);
    assert_eq!(create("/a", CreateMode::Persistent).as_deref(), Ok("/a"));
    assert_eq!(
        create("/a", CreateMode::Persistent),
        Err(ZkError::NodeExists)
    );
    let number = create("/a/n-", CreateMode::EphemeralSequential);
    assert_eq!(number.as_deref(), Ok("/a/n-0000000000"));
    let (told, events) = mpsc::channel();
    let children = zk.get_children_w("/a", move |event: WatchedEvent| {
        let _ = told.send((event.event_type, event.path));
    });
    assert_eq!(children.expect("it is there"), ["n-0000000000"]);
    let (data, stat) = zk.get_data("/a", false).expect("it is there");
    assert_eq!(
        (&*data, stat.version, stat.num_children),
        (&b"data"[..], 0, 1)
    );
    let refused = zk.set_data("/a", vec![1], Some(3));
    assert_eq!(refused.err(), Some(ZkError::BadVersion));
    zk.delete("/a/n-0000000000", None).expect("it is there");
    let event = events.recv_timeout(SOON).expect("it was watched");
    assert_eq!(
        event,
        (WatchedEventType::NodeChildrenChanged, Some("/a".to_owned()))
    );
    zk.close().expect("it is open");
    assert_eq!(server.sessions(), []);
}
