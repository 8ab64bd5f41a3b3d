//! Locks by key, and folders that nobody uses.

use std::sync::Arc;
use std::time::Duration;

use testbed::raw::Flags;
use zklock::{Barrier, Dialect, LockRegistry, Mutex, Semaphore, SharedCount};

use crate::fixtures::{SOON, children, client, raw, server};

fn registry(client: &zklock::Client, root: &str) -> LockRegistry {
    LockRegistry::new(client, root).expect("a good path")
}

#[test]
fn any_key_has_one_lock() {
    let client = client();
    let root = "/registry/keys";
    let locks = registry(&client, root);
    let keys = [
        "plain",
        "a/b",
        "a%2Fb",
        "",
        ".",
        "..",
        "100 %",
        "Zoë 😀",
        "zookeeper",
        "\n",
    ];
    let guards: Vec<_> = keys
        .iter()
        .map(|key| locks.get(key).expect("any key"))
        .collect();
    let held: Vec<_> = guards
        .iter()
        .map(|lock| lock.lock().expect("each its own"))
        .collect();
    assert_eq!(children(server(), root).len(), keys.len());
    for (key, lock) in keys.iter().zip(&guards) {
        assert!(Arc::ptr_eq(lock, &locks.get(key).expect("the same")));
    }
    assert_eq!(locks.len(), keys.len());
    // Another process' registry means the same locks.
    let other = crate::fixtures::client();
    let others = registry(&other, root);
    for key in keys {
        let lock = others.get(key).expect("any key");
        assert!(lock.try_lock().expect("answers").is_none(), "{key:?}");
    }
    drop(held);
    let long = "x".repeat(5_000);
    assert!(locks.get(&long).expect_err("too long").is_invalid());
}

#[test]
fn the_cache_is_bounded_and_drops_nothing_in_use() {
    let client = client();
    let builder = LockRegistry::builder(&client, "/registry/bounded").capacity(3);
    let locks = builder.build().expect("good");
    let used = locks.get("used").expect("any key");
    for number in 0..20 {
        drop(locks.get(&number.to_string()).expect("any key"));
        assert!(locks.len() <= 4, "the new one is in use while it is made");
    }
    assert!(Arc::ptr_eq(&used, &locks.get("used").expect("kept")));
    let all: Vec<_> = (0..6)
        .map(|n| locks.get(&format!("in use {n}")).expect("any"))
        .collect();
    assert_eq!(locks.len(), 7, "more are in use than fit");
    drop(all);
    drop(locks.get("one more").expect("any"));
    assert!(locks.len() <= 4);
}

#[test]
fn unused_locks_expire_with_their_folders() {
    let (client, other) = (client(), client());
    let root = "/registry/expire";
    let locks = registry(&client, root);
    for key in ["gone", "busy elsewhere"] {
        let lock = locks.get(key).expect("any key");
        drop(lock.lock().expect("free"));
    }
    let kept = locks.get("kept").expect("any key");
    drop(kept.lock().expect("free"));
    let others = registry(&other, root);
    let elsewhere = others.get("busy elsewhere").expect("any key");
    let _guard = elsewhere.lock().expect("free");
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!(locks.expire_unused_older_than(day).expect("answers"), 0);
    assert_eq!(
        locks
            .expire_unused_older_than(Duration::ZERO)
            .expect("answers"),
        2
    );
    let mut left = children(server(), root);
    left.sort();
    assert_eq!(left, ["busy elsewhere", "kept"]);
    assert_eq!(locks.len(), 1);
    // A key that expired is as good as new.
    drop(locks.get("gone").expect("any key").lock().expect("free"));
}

/// A lock that lingered went in the background, and its folder was not empty yet.
#[test]
fn locks_that_linger_expire_with_their_folders() {
    let client = client();
    let root = "/registry/expire-idle";
    let builder = LockRegistry::builder(&client, root);
    let locks = builder.configure(|lock| lock.linger(SOON)).build();
    let locks = locks.expect("good");
    for key in 0..10 {
        let lock = locks.get(&key.to_string()).expect("any key");
        drop(lock.lock().expect("free"));
    }
    let expired = locks.expire_unused_older_than(Duration::ZERO);
    assert_eq!(expired.expect("answers"), 10);
    assert!(children(server(), root).is_empty());
}

/// kazoo makes a folder once and never again, and who made an empty folder may want it.
#[test]
fn folders_of_kazoos_and_of_strangers_stay() {
    let client = client();
    let root = "/registry/strangers";
    let builder = Mutex::builder(&client, "/registry/strangers/kazoo");
    let kazoo = builder.dialect(Dialect::Kazoo).build().expect("good");
    drop(kazoo.lock().expect("free"));
    let builder = Semaphore::builder(&client, "/registry/strangers/pool").max(2);
    let pool = builder.dialect(Dialect::Kazoo).build().expect("good");
    drop(pool.acquire().expect("free"));
    let mut raw = raw(server());
    let inbox = "/registry/strangers/inbox";
    raw.create(inbox, b"", Flags::Persistent).expect("open");
    let mail = format!("{inbox}/mail");
    raw.create(&mail, b"", Flags::Persistent).expect("open");
    raw.delete(&mail).expect("there");
    assert_eq!(client.remove_empty_lock_folders(root).expect("answers"), 0);
    let registry = registry(&client, root);
    assert_eq!(registry.remove_empty_folders().expect("answers"), 0);
    drop(kazoo.lock().expect("its folder stands"));
}

/// Folders are removed all the time while others lock: a lock that finds its folder gone makes it
/// anew, at every step.
#[test]
fn empty_folders_can_be_removed_while_others_use_them() {
    let root = "/registry/sweep";
    let inside: Vec<_> = (0..3)
        .map(|_| std::sync::atomic::AtomicUsize::new(0))
        .collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let removed = std::thread::scope(|scope| {
        let users: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let client = client();
                    let locks = registry(&client, root);
                    for round in 0..60 {
                        let key = round % 3;
                        let lock = locks.get(&key.to_string()).expect("any key");
                        let guard = lock.lock().expect("its turn");
                        let before = inside[key].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(before, 0, "two hold at once");
                        assert!(guard.is_held());
                        inside[key].fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let sweeper = scope.spawn(|| {
            let client = client();
            let locks = registry(&client, root);
            let mut removed = 0;
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                removed += locks.remove_empty_folders().expect("answers");
            }
            removed + locks.remove_empty_folders().expect("answers")
        });
        for user in users {
            user.join().expect("no panic");
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        sweeper.join().expect("no panic")
    });
    assert!(removed >= 3, "{removed}");
    assert!(children(server(), root).is_empty());
}

/// A closed barrier looks like an empty folder, and a count like a leaf; neither may go.
#[test]
fn a_whole_tree_is_cleared_of_lock_folders_only() {
    let client = client();
    let root = "/registry/tree";
    let deep = registry(&client, &format!("{root}/a/b"));
    drop(deep.get("lock").expect("any key").lock().expect("free"));
    let busy = deep.get("busy").expect("any key");
    let guard = busy.lock().expect("free");
    let pool = Semaphore::new(&client, &format!("{root}/pool"), 2).expect("good");
    drop(pool.acquire().expect("free"));
    let gate = Barrier::new(&client, &format!("{root}/gate")).expect("good");
    gate.set().expect("answers");
    let count = SharedCount::new(&client, &format!("{root}/count"), 7).expect("good");
    assert_eq!(count.get().expect("answers"), 7);
    raw(server())
        .create(&format!("{root}/empty"), b"", Flags::Persistent)
        .expect("open to all");
    // Its `locks` and `leases` go; it keeps its maximum, by which others agree.
    assert_eq!(client.remove_empty_lock_folders(root).expect("answers"), 3);
    let mut left = children(server(), root);
    left.sort();
    assert_eq!(left, ["a", "count", "empty", "gate", "pool"]);
    assert!(gate.is_set().expect("answers"));
    assert!(guard.is_held());
    drop(guard);
    // `busy`, then `b`, then `a`.
    assert_eq!(client.remove_empty_lock_folders(root).expect("answers"), 3);
    drop(pool.acquire().expect("in new folders"));
    assert_eq!(
        client
            .remove_empty_lock_folders("/registry/none")
            .expect("answers"),
        0
    );
}
