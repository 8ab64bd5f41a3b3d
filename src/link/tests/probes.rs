//! What the link asks by itself, over a socket: `src/link/core/tests/probes.rs` has the rest.

use super::*;
use crate::link::epoch::RelyOnLease;

/// So long that a probe comes soon, and that no delay of a thread looks like a silent server.
const T: Duration = Duration::from_secs(6);
const NO_NODE: i32 = -101;

fn setup() -> Setup {
    Setup {
        timeout: T,
        ..Setup::default()
    }
}

pub(super) fn epoch_of(bench: &Bench) -> Arc<Epoch> {
    let state = bench.link.wire.state.lock();
    Arc::clone(&state.server.as_ref().expect("connected").epoch)
}

pub(super) fn stands(epoch: &Arc<Epoch>, path: &str) -> RelyOnLease {
    let now = epoch.now();
    epoch.node_stands(path, now).expect("proven")
}

/// The answer to a multi of one check.
pub(super) fn checked(err: i32) -> Vec<u8> {
    let (kind, error) = match err {
        0 => (13_i32, None),
        err => (-1, Some(err)),
    };
    let mut record = [&kind.to_be_bytes()[..], &[0], &err.to_be_bytes()].concat();
    record.extend(error.into_iter().flat_map(i32::to_be_bytes));
    record.extend((-1_i32).to_be_bytes());
    record.push(1);
    record.extend((-1_i32).to_be_bytes());
    record
}

/// The number of the next request, which is a multi, and the path of its one check.
pub(super) fn next_check(served: &mut Served) -> (i32, Option<String>) {
    loop {
        let body = served.0.receive().expect("a request");
        let (xid, opcode) = (int(&body, 0), int(&body, 4));
        if opcode == SYNC {
            // One that was on its way before the node stood.
            served.reply_with(xid, 1, &synced());
            continue;
        }
        assert_eq!(opcode, MULTI);
        let kind = int(&body, 8);
        if kind == -1 {
            return (xid, None);
        }
        assert_eq!(kind, 13);
        let length = usize::try_from(int(&body, 17)).expect("a length");
        let path = body[21..21 + length].to_vec();
        return (xid, Some(String::from_utf8(path).expect("a path")));
    }
}

/// One committed check of one node, whatever else is held; a `sync` once nothing is.
#[test]
fn probes_are_writes_while_a_node_stands() {
    let server = FakeServer::start();
    let (bench, _caller, mut served) = setup().connected(&server);
    let epoch = epoch_of(&bench);
    let nodes = ["/a", "/b"].map(|path| stands(&epoch, path));
    for _ in 0..2 {
        let (xid, path) = next_check(&mut served);
        assert!(path.is_some());
        served.reply_with(xid, 1, &checked(0));
    }
    drop(nodes);
    assert_eq!(served.request().1, SYNC);
}

/// It renews nothing, is told, and the next node is asked for at once.
#[test]
fn a_node_that_is_gone_is_told_and_the_next_one_asked_for() {
    let server = FakeServer::start();
    let (bench, _caller, mut served) = setup().connected(&server);
    let epoch = epoch_of(&bench);
    let _nodes = ["/a", "/b"].map(|path| stands(&epoch, path));
    let before = epoch.lease().ends();
    let (xid, first) = next_check(&mut served);
    served.reply_with(xid, 1, &checked(NO_NODE));
    let (_, second) = next_check(&mut served);
    assert_ne!(first, second);
    assert_eq!(epoch.lease().ends(), before);
    match bench.event() {
        LinkEvent::NodeGone { path, .. } => assert_eq!(Some(path), first),
        other => panic!("{other:?}"),
    }
}

/// A resume may have been granted by a leader that has been deposed.
#[test]
fn a_probe_goes_first_on_a_connection_that_resumes_what_is_held() {
    let server = FakeServer::start();
    let (bench, mut caller, served) = setup().connected(&server);
    let epoch = epoch_of(&bench);
    let _node = stands(&epoch, "/a");
    drop(served);
    bench.suspended();
    let (mut served, _) = server.grant(7, T);
    bench.opened();
    caller.request(1, DELETE);
    let (xid, path) = next_check(&mut served);
    assert_eq!(path.as_deref(), Some("/a"));
    let before = epoch.lease().ends();
    assert_eq!(served.request().1, DELETE);
    served.reply_with(xid, 1, &checked(0));
    let deadline = Instant::now() + SOON;
    while epoch.lease().ends() <= before {
        assert!(Instant::now() < deadline, "the answer proves the resume");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Where the user has said so, holders do with what idle clients do with.
#[test]
fn probes_write_nothing_if_they_are_not_to() {
    let server = FakeServer::start();
    let setup = Setup {
        by_sync: true,
        ..setup()
    };
    let (bench, _caller, mut served) = setup.connected(&server);
    let epoch = epoch_of(&bench);
    let _node = stands(&epoch, "/a");
    let before = epoch.lease().ends();
    let deadline = Instant::now() + SOON;
    while epoch.lease().ends() <= before {
        assert!(Instant::now() < deadline, "syncs prove it");
        let (xid, opcode) = served.request();
        assert_eq!(opcode, SYNC);
        served.reply_with(xid, 1, &synced());
    }
}
