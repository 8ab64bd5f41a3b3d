//! What a tool can read of ZooKeeper besides locks.

use testbed::raw::Flags;
use zklock::Barrier;

use crate::fixtures::{client, mutex, raw, server};

#[test]
fn a_client_shows_nodes_and_whom_they_belong_to() {
    let client = client();
    let lock = mutex(&client, "/looking/around");
    assert_eq!(client.children("/looking/around").expect("it serves"), None);
    let guard = lock.lock().expect("it serves");
    let (folder, name) = guard.path().rsplit_once('/').expect("a path");
    let children = client.children(folder).expect("it serves");
    assert_eq!(children, Some(vec![name.to_owned()]));
    let all = client.children("/").expect("it serves");
    assert!(all.is_some_and(|all| all.contains(&"looking".to_owned())));

    let ours = client.node(guard.path()).expect("it serves");
    let ours = ours.expect("it stands");
    assert_eq!(ours.session_id(), client.session_id());
    assert_eq!(
        ours.data(),
        lock.participants().expect("it serves")[0].data()
    );
    let folder = client.node(folder).expect("it serves").expect("it stands");
    assert_eq!(folder.session_id(), None);
    assert_eq!(client.node("/looking/nowhere").expect("it serves"), None);
    for bad in ["", "looking", "/looking/", "/looking/../x"] {
        assert!(client.children(bad).expect_err(bad).is_invalid());
        assert!(client.node(bad).expect_err(bad).is_invalid());
    }
}

/// In a tree with all that must stay: a lock in use, a closed barrier, a folder with data.
#[test]
fn what_would_be_removed_is_what_is_removed() {
    let client = client();
    for path in [
        "/unused/a/b/c",
        "/unused/a/b/d",
        "/unused/e",
        "/unused/used/below",
    ] {
        drop(mutex(&client, path).lock().expect("it serves"));
    }
    let used = mutex(&client, "/unused/used");
    let guard = used.lock().expect("it serves");
    let barrier = Barrier::new(&client, "/unused/barrier").expect("a good path");
    barrier.set().expect("it serves");
    let mut raw = raw(server());
    raw.create("/unused/data", b"data", Flags::Persistent)
        .expect("it serves");
    drop(
        mutex(&client, "/unused/data/below")
            .lock()
            .expect("it serves"),
    );

    let mut would = client.empty_lock_folders("/unused").expect("it serves");
    assert_eq!(
        client
            .empty_lock_folders("/unused")
            .expect("it serves")
            .len(),
        would.len()
    );
    let removed = client.remove_empty_lock_folders("/unused");
    assert_eq!(removed.expect("it serves"), would.len());
    for path in &would {
        assert_eq!(client.children(path).expect("it serves"), None, "{path}");
    }
    // Each before what it is in.
    let at = |path: &str| would.iter().position(|one| one == path);
    assert!(at("/unused/a/b/c") < at("/unused/a/b") && at("/unused/a/b") < at("/unused/a"));
    would.sort_unstable();
    assert_eq!(
        would,
        [
            "/unused/a",
            "/unused/a/b",
            "/unused/a/b/c",
            "/unused/a/b/d",
            "/unused/data/below",
            "/unused/e",
            "/unused/used/below"
        ]
    );
    drop(guard);
}
