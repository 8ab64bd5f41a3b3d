//! The bytes in ZooKeeper: names, kinds and data of all nodes that the library writes, and the nodes
//! of others that it reads. Whoever else queues in the same folders goes by these.
//!
//! Method: a lock is held or waited for, and what stands in its folders is compared as text, with
//! GUIDs replaced by their form. What others would write is written by hand.

use std::sync::mpsc::channel;
use std::thread;

use testbed::raw::Flags;
use testbed::{RawSession, wait_until};
use uuid::Uuid;
use zklock::{
    AcquireOptions, Barrier, Client, Dialect, DoubleBarrier, Election, Identity, Mutex, RwLock,
    Semaphore, SemaphoreMutex, SharedCount, SimpleMutex,
};

use crate::fixtures::{SOON, client, mutex, raw, server, wait_for_children};

const DASHED: &str = "01234567-89ab-4cde-8123-456789abcdef";
const PLAIN: &str = "0123456789ab4cde8123456789abcdef";

/// The node at `path`: `ephemeral _c_<uuid>-lock-0000000000 "data"`. Ephemeral is what ends with
/// this client's session.
#[track_caller]
fn node(client: &Client, path: &str) -> String {
    let mut raw = raw(server());
    let stat = raw.stat(path).expect("answers").expect("it exists");
    let data = raw.data(path).expect("it exists");
    let owner = client.session_id().expect("it stands");
    let kind = match stat.ephemeral_owner {
        0 => "persistent",
        session if session == owner => "ephemeral",
        _ => "another's",
    };
    let (_, name) = path.rsplit_once('/').expect("a path");
    format!("{kind} {} \"{}\"", shape(name), data.escape_ascii())
}

/// All that stands in a folder, by name without GUIDs.
#[track_caller]
fn nodes(client: &Client, folder: &str) -> Vec<String> {
    let names = raw(server()).children(folder).expect("it exists");
    let mut nodes: Vec<_> = names
        .iter()
        .map(|name| node(client, &format!("{folder}/{name}")))
        .collect();
    nodes.sort_unstable();
    nodes
}

/// A name with its GUID replaced by the GUID's form.
fn shape(name: &str) -> String {
    for (length, form) in [(36, "<uuid>"), (32, "<32 hex>")] {
        let mut texts = (0..name.len()).filter_map(|at| name.get(at..at + length));
        if let Some(guid) = texts.find(|text| is_guid(text)) {
            return name.replacen(guid, form, 1);
        }
    }
    name.to_owned()
}

/// In small letters, as Curator and kazoo write it.
fn is_guid(text: &str) -> bool {
    Uuid::try_parse(text).is_ok_and(|guid| {
        let (dashed, plain) = (guid.hyphenated().to_string(), guid.simple().to_string());
        text == dashed || text == plain
    })
}

/// What another program's contender is: an ephemeral sequential node.
#[track_caller]
fn queue(raw: &mut RawSession, prefix: &str) -> String {
    raw.create(prefix, b"", Flags::EphemeralSequential)
        .expect("the folder exists")
}

#[track_caller]
fn make(raw: &mut RawSession, path: &str) {
    let at = path.match_indices('/').map(|(at, _)| at).skip(1);
    for end in at.chain([path.len()]) {
        // It may exist already.
        let _ = raw.create(&path[..end], b"", Flags::Persistent);
    }
    assert!(raw.exists(path).expect("answers"));
}

#[test]
fn a_shape_is_exact() {
    assert_eq!(shape(&format!("_c_{DASHED}-lock-7")), "_c_<uuid>-lock-7");
    assert_eq!(shape(&format!("{PLAIN}__lock__7")), "<32 hex>__lock__7");
    assert_eq!(shape("lock-0000000007"), "lock-0000000007");
    let upper = DASHED.to_uppercase();
    assert_eq!(shape(&upper), upper);
}

#[test]
fn curators_mutex() {
    let path = "/names/mutex";
    let client = client();
    let lock = mutex(&client, path);
    let options = AcquireOptions::new().data("who");
    let guard = lock.lock_with(options).expect("free");
    let held = r#"ephemeral _c_<uuid>-lock-0000000000 "who""#;
    assert_eq!(node(&client, guard.path()), held);
    assert_eq!(nodes(&client, path), [held]);
    assert_eq!(node(&client, path), r#"persistent mutex """#);
    assert_eq!(node(&client, "/names"), r#"persistent names """#);
    drop(guard);

    // The numbers go on, and by default the data says who we are.
    let guard = lock.lock().expect("free");
    let data = raw(server()).data(guard.path()).expect("held");
    let identity = Identity::parse(&data).expect("the default data");
    assert_eq!(identity.process_id(), std::process::id());
    let text = data.escape_ascii();
    let held = format!(r#"ephemeral _c_<uuid>-lock-0000000001 "{text}""#);
    assert_eq!(nodes(&client, path), [held]);
}

#[test]
fn curators_and_kazoos_elections() {
    let client = client();
    for (dialect, name) in [
        (Dialect::Curator, "_c_<uuid>-latch-0000000000"),
        (Dialect::Kazoo, "<32 hex>__lock__0000000000"),
    ] {
        let path = format!("/names/election-{dialect:?}");
        let builder = Election::builder(&client, &path).dialect(dialect).id("who");
        let election = builder.build().expect("a good path");
        let _leadership = election.campaign().expect("nobody else");
        let expected = format!(r#"ephemeral {name} "who""#);
        assert_eq!(nodes(&client, &path), [expected]);
    }
}

#[test]
fn curators_readers_and_writers() {
    let path = "/names/rw";
    let client = client();
    let lock = RwLock::builder(&client, path).data("who").build();
    let lock = lock.expect("a good path");
    drop(lock.read().expect("free"));
    let writing = lock.write().expect("free");
    let written = r#"ephemeral _c_<uuid>-__WRIT__0000000001 "who""#;
    assert_eq!(nodes(&client, path), [written]);
    drop(writing);
    let reading = lock.read().expect("free");
    let read = r#"ephemeral _c_<uuid>-__READ__0000000002 "who""#;
    assert_eq!(node(&client, reading.path()), read);
    assert_eq!(nodes(&client, path), [read]);
}

/// A sequential node would have the next number: this one is plain, and its name is made to end in
/// the writer's.
fn downgrade(dialect: Dialect, path: &str, reader: &str, writer: &str) {
    let client = client();
    let lock = RwLock::builder(&client, path)
        .dialect(dialect)
        .data("who")
        .build()
        .expect("a good path");
    drop(lock.write().expect("free"));
    let writing = lock.write().expect("free");
    let reading = lock.read().expect("it writes");
    let (read, written) = (
        format!(r#"ephemeral {reader}0000000001 "who""#),
        format!(r#"ephemeral {writer}0000000001 "who""#),
    );
    assert_eq!(node(&client, writing.path()), written);
    assert_eq!(node(&client, reading.path()), read);
    assert_eq!(nodes(&client, path).len(), 2);
    drop(writing);
    assert_eq!(nodes(&client, path), [read]);
    drop(reading);
    // The plain one counted, as all children do.
    let next = lock.read().expect("free");
    assert!(next.path().ends_with("0000000003"), "{}", next.path());
}

#[test]
fn curators_writer_that_became_a_reader() {
    let (read, written) = ("_c_<uuid>-__READ__", "_c_<uuid>-__WRIT__");
    downgrade(Dialect::Curator, "/names/downgrade", read, written);
}

#[test]
fn kazoos_writer_that_became_a_reader() {
    let (read, written) = ("<32 hex>__rlock__", "<32 hex>__lock__");
    downgrade(Dialect::Kazoo, "/names/kazoo-downgrade", read, written);
}

#[test]
fn curators_semaphore() {
    let path = "/names/semaphore";
    let client = client();
    let semaphore = Semaphore::builder(&client, path).max(2).data("who").build();
    let semaphore = semaphore.expect("a good path");
    let (locks, leases) = (format!("{path}/locks"), format!("{path}/leases"));
    let both = semaphore.acquire_many(2).expect("free");
    let lease = |number: u8| format!(r#"ephemeral _c_<uuid>-lease-000000000{number} "who""#);
    assert_eq!(nodes(&client, &leases), [lease(0), lease(1)]);
    assert!(nodes(&client, &locks).is_empty());
    // Curator leaves the semaphore's own node empty and does not read it.
    assert_eq!(node(&client, path), r#"persistent semaphore "+2""#);
    assert_eq!(node(&client, &locks), r#"persistent locks """#);
    assert_eq!(node(&client, &leases), r#"persistent leases """#);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.try_acquire_for(SOON).expect("answers"));
        // It waits for the others with a lease of its own, in front of all who come later.
        wait_for_children(server(), &leases, 3);
        let lock = r#"ephemeral _c_<uuid>-lock-0000000001 "who""#;
        assert_eq!(nodes(&client, &locks), [lock]);
        assert_eq!(nodes(&client, &leases), [lease(0), lease(1), lease(2)]);
        assert!(!waiter.is_finished());
        drop(both);
        assert!(waiter.join().expect("no panic").is_some());
    });
}

#[test]
fn curators_semaphore_mutex() {
    let path = "/names/semaphore-mutex";
    let client = client();
    let lock = SemaphoreMutex::builder(&client, path).data("who").build();
    let guard = lock.expect("a good path").lock().expect("free");
    let lease = r#"ephemeral _c_<uuid>-lease-0000000000 "who""#;
    assert_eq!(node(&client, guard.path()), lease);
    assert_eq!(nodes(&client, &format!("{path}/leases")), [lease]);
    assert!(nodes(&client, &format!("{path}/locks")).is_empty());
    assert_eq!(raw(server()).children(path).expect("made").len(), 2);
}

#[test]
fn curators_shared_count() {
    let path = "/names/count";
    let (client, mut raw) = (client(), raw(server()));
    let count = SharedCount::new(&client, path, 10).expect("a good path");
    assert_eq!(count.get().expect("answers"), 10);
    let made = r#"persistent count "\x00\x00\x00\n""#;
    assert_eq!(node(&client, path), made);
    count.set(-2).expect("answers");
    assert_eq!(raw.data(path).expect("made"), [0xff, 0xff, 0xff, 0xfe]);
    raw.set_data(path, &[0, 0, 1, 2]).expect("made");
    assert_eq!(count.get().expect("answers"), 0x102);
    assert!(count.compare_and_set(0x102, 3).expect("answers"));
    assert_eq!(raw.data(path).expect("made"), [0, 0, 0, 3]);
    raw.set_data(path, b"3").expect("made");
    assert!(count.get().expect_err("one byte").is_invalid());
}

#[test]
fn a_semaphore_goes_by_the_bytes_of_its_shared_count() {
    let path = "/names/shared-max";
    let (client, mut raw) = (client(), raw(server()));
    let count = SharedCount::new(&client, "/names/shared-max-count", 1).expect("good");
    let semaphore = Semaphore::builder(&client, path).shared_max(&count).build();
    let semaphore = semaphore.expect("a good path");
    let _one = semaphore.acquire().expect("free");
    assert!(semaphore.try_acquire().expect("answers").is_none());
    // The maximum is in the count alone.
    assert_eq!(node(&client, path), r#"persistent shared-max """#);
    raw.set_data(count.path(), &[0, 0, 0, 2]).expect("made");
    let second = semaphore.try_acquire_for(SOON).expect("answers");
    assert!(second.is_some());
}

#[test]
fn the_barrier_is_its_node() {
    let path = "/names/barrier/gate";
    let (client, mut raw) = (client(), raw(server()));
    let barrier = Barrier::new(&client, path).expect("a good path");
    barrier.wait().expect("open, as there is no node");
    barrier.set().expect("answers");
    let data = raw.data(path).expect("made");
    assert!(Identity::parse(&data).is_some());
    let closed = format!(r#"persistent gate "{}""#, data.escape_ascii());
    assert_eq!(node(&client, path), closed);
    assert!(raw.children(path).expect("made").is_empty());
    barrier.remove().expect("answers");
    assert!(!raw.exists(path).expect("answers"));

    // Anybody's node closes it.
    make(&mut raw, path);
    assert!(barrier.is_set().expect("answers"));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| barrier.wait_for(SOON).expect("answers"));
        assert!(!waiter.is_finished());
        raw.delete(path).expect("made");
        assert!(waiter.join().expect("no panic"), "open");
    });
}

/// One of ours and one made by hand, in the names of that dialect.
fn double_barrier(dialect: Dialect, path: &str, other: &str, ours: &str) {
    let (client, mut raw) = (client(), raw(server()));
    make(&mut raw, path);
    let other = format!("{path}/{other}");
    raw.create(&other, b"", Flags::Ephemeral).expect("new");
    let barrier = DoubleBarrier::builder(&client, path, 2)
        .dialect(dialect)
        .data("who")
        .build()
        .expect("a good path");
    let member = barrier.enter_for(SOON).expect("answers").expect("two");
    assert_eq!(node(&client, member.path()), ours);
    let ready = node(&client, &format!("{path}/ready"));
    assert_eq!(ready, r#"persistent ready "who""#);
    assert_eq!(raw.children(path).expect("made").len(), 3);
    thread::scope(|scope| {
        let leaving = scope.spawn(|| member.leave_for(SOON).expect("answers"));
        raw.delete(&other).expect("it stands");
        assert!(leaving.join().expect("no panic"), "both have left");
    });
    wait_for_children(server(), path, 0);
}

#[test]
fn curators_double_barrier() {
    let ours = r#"ephemeral <uuid> "who""#;
    double_barrier(Dialect::Curator, "/names/double", DASHED, ours);
}

#[test]
fn kazoos_double_barrier() {
    let ours = r#"ephemeral <32 hex> "who""#;
    double_barrier(Dialect::Kazoo, "/names/kazoo-double", PLAIN, ours);
}

#[test]
fn anybodys_ready_lets_the_members_of_a_double_barrier_in() {
    let path = "/names/ready";
    let (client, mut raw) = (client(), raw(server()));
    let barrier = DoubleBarrier::new(&client, path, 3).expect("a good path");
    thread::scope(|scope| {
        let entering = scope.spawn(|| barrier.enter_for(SOON).expect("answers"));
        wait_for_children(server(), path, 1);
        assert!(!entering.is_finished());
        raw.create(&format!("{path}/ready"), b"", Flags::Persistent)
            .expect("new");
        let member = entering.join().expect("no panic").expect("ready");
        assert!(member.leave_for(SOON).expect("answers"));
    });
}

/// Who made `ready` may have died inside, so who leaves last removes it, whosever it is: kazoo would
/// count it among the members of the next round, and go in with one too few.
#[test]
fn anybodys_ready_is_removed_by_the_last_member_of_a_double_barrier() {
    let path = "/names/ready-removed";
    let (client, mut raw) = (client(), raw(server()));
    let barrier = DoubleBarrier::new(&client, path, 3).expect("a good path");
    thread::scope(|scope| {
        let entering = scope.spawn(|| barrier.enter_for(SOON).expect("answers"));
        let ready = format!("{path}/ready");
        wait_until("it watches for it", SOON, || {
            server().admin("wchp").lines().any(|line| line == ready)
        });
        raw.create(&ready, b"", Flags::Persistent).expect("new");
        let member = entering.join().expect("no panic").expect("ready");
        assert!(member.leave_for(SOON).expect("answers"));
    });
    assert!(raw.children(path).expect("made").is_empty());
}

#[test]
fn curators_message_asks_for_a_lock_back() {
    let path = "/names/revoke";
    let (client, mut raw) = (client(), raw(server()));
    let lock = Mutex::builder(&client, path).revocable(true).build();
    let lock = lock.expect("a good path");
    let guard = lock.lock().expect("free");
    let holder = guard.path();
    raw.set_data(holder, b"__REVOKE__").expect("it stands");
    assert_eq!(guard.revocation().recv_timeout(SOON), Ok(()));
    drop(guard);

    // The other way: what is asked of another program's holder.
    let holder = queue(&mut raw, &format!("{path}/_c_{DASHED}-lock-"));
    let participants = lock.participants().expect("answers");
    assert!(lock.revoke(&participants[0]).expect("answers"));
    assert_eq!(raw.data(&holder).expect("it stands"), b"__REVOKE__");
    let stat = raw.stat(&holder).expect("answers").expect("it stands");
    assert_eq!((stat.version, stat.ephemeral_owner), (1, raw.session_id));
}

#[test]
fn kazoos_lock() {
    let path = "/names/kazoo-lock";
    let client = client();
    let lock = Mutex::builder(&client, path)
        .dialect(Dialect::Kazoo)
        .data("who")
        .build()
        .expect("a good path");
    let guard = lock.lock().expect("free");
    let held = r#"ephemeral <32 hex>__lock__0000000000 "who""#;
    assert_eq!(node(&client, guard.path()), held);
    assert_eq!(nodes(&client, path), [held]);
    assert_eq!(node(&client, path), r#"persistent kazoo-lock """#);
}

#[test]
fn kazoos_readers_and_writers() {
    let path = "/names/kazoo-rw";
    let client = client();
    let lock = RwLock::builder(&client, path)
        .dialect(Dialect::Kazoo)
        .data("who")
        .build()
        .expect("a good path");
    let reading = lock.read().expect("free");
    let read = r#"ephemeral <32 hex>__rlock__0000000000 "who""#;
    assert_eq!(nodes(&client, path), [read]);
    drop(reading);
    let _writing = lock.write().expect("free");
    let written = r#"ephemeral <32 hex>__lock__0000000001 "who""#;
    assert_eq!(nodes(&client, path), [written]);
}

#[test]
fn kazoos_semaphore() {
    let path = "/names/kazoo-semaphore";
    let queue = format!("{path}-__lock__");
    let client = client();
    let semaphore = Semaphore::builder(&client, path)
        .max(12)
        .dialect(Dialect::Kazoo)
        .data("who")
        .build()
        .expect("a good path");
    let all = semaphore.acquire_many(12).expect("free");
    let lease = r#"ephemeral <32 hex> "who""#;
    assert_eq!(nodes(&client, path), [lease; 12]);
    assert_eq!(node(&client, path), r#"persistent kazoo-semaphore "12""#);
    let beside = node(&client, &queue);
    assert_eq!(beside, r#"persistent kazoo-semaphore-__lock__ """#);
    assert!(nodes(&client, &queue).is_empty());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.try_acquire_for(SOON).expect("answers"));
        wait_for_children(server(), path, 13);
        let lock = r#"ephemeral <32 hex>__lock__0000000001 "who""#;
        assert_eq!(nodes(&client, &queue), [lock]);
        drop(all);
        assert!(waiter.join().expect("no panic").is_some());
    });
}

#[test]
fn the_simple_mutex_is_its_node() {
    let path = "/names/simple/lock";
    let (client, mut raw) = (client(), raw(server()));
    let lock = SimpleMutex::builder(&client, path).data("who").build();
    let lock = lock.expect("a good path");
    let guard = lock.lock().expect("free");
    assert_eq!(guard.path(), path);
    let data = String::from_utf8(raw.data(path).expect("it stands")).expect("text");
    assert_eq!(shape(&data), "who id=<32 hex>");
    assert_eq!(node(&client, path), format!(r#"ephemeral lock "{data}""#));
    assert_eq!(node(&client, "/names/simple"), r#"persistent simple """#);
    drop(guard);
    assert!(!raw.exists(path).expect("answers"));

    // Anybody's node at that path holds it, whatever is in it.
    raw.create(path, b"", Flags::Ephemeral).expect("free");
    assert!(lock.try_lock().expect("answers").is_none());
    raw.delete(path).expect("it stands");
    assert!(lock.try_lock().expect("answers").is_some());
}

/// Another program holds by a node of this name. We wait for it, and no longer than it stands.
fn our_mutex_waits_for(path: &str, prefix: &str) {
    let (client, mut raw) = (client(), raw(server()));
    let lock = mutex(&client, path);
    make(&mut raw, path);
    let other = queue(&mut raw, &format!("{path}/{prefix}"));
    assert!(lock.try_lock().expect("answers").is_none());
    let participants = lock.participants().expect("answers");
    assert_eq!(participants.len(), 1);
    assert!(participants[0].is_holder());
    assert_eq!(participants[0].path(), other);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(SOON).expect("answers").is_some());
        wait_for_children(server(), path, 2);
        assert!(!waiter.is_finished());
        raw.delete(&other).expect("it stands");
        assert!(waiter.join().expect("no panic"), "its turn");
    });
    // Behind us, it does not keep us out.
    let guard = lock.lock().expect("free");
    queue(&mut raw, &format!("{path}/{prefix}"));
    assert!(guard.is_held());
    drop(guard);
    assert!(lock.try_lock().expect("answers").is_none());
}

#[test]
fn curators_contenders_are_waited_for() {
    our_mutex_waits_for("/names/curators", &format!("_c_{DASHED}-lock-"));
}

#[test]
fn go_zookeepers_contenders_are_waited_for() {
    our_mutex_waits_for("/names/go", &format!("_c_{PLAIN}-lock-"));
}

/// As kazoo names them when its label is set to `-lock-` or `lock-`. They were ignored, and two
/// held.
#[test]
fn contenders_with_a_bare_guid_are_waited_for() {
    our_mutex_waits_for("/names/bare", &format!("{PLAIN}-lock-"));
    our_mutex_waits_for("/names/bare-joined", &format!("{PLAIN}lock-"));
}

#[test]
fn contenders_without_protection_are_waited_for() {
    our_mutex_waits_for("/names/unprotected", "lock-");
}

/// The recipe of ZooKeeper's own Java client has its nodes named after the session.
#[test]
fn nodes_of_zookeepers_own_java_recipe_are_ignored() {
    let path = "/names/java";
    let (client, mut raw) = (client(), raw(server()));
    let lock = mutex(&client, path);
    make(&mut raw, path);
    let session = raw.session_id;
    queue(&mut raw, &format!("{path}/x-{session}-"));
    let guard = lock.try_lock().expect("answers").expect("nobody is ahead");
    assert!(guard.path().ends_with("-lock-0000000001"));
    assert_eq!(lock.participants().expect("answers").len(), 1);
}

#[test]
fn curators_writer_is_waited_for_by_readers_and_its_reader_by_writers() {
    let path = "/names/curators-rw";
    let (client, mut raw) = (client(), raw(server()));
    let lock = RwLock::new(&client, path).expect("a good path");
    make(&mut raw, path);
    let reader = queue(&mut raw, &format!("{path}/_c_{DASHED}-__READ__"));
    assert!(lock.try_write().expect("answers").is_none());
    assert!(lock.try_read().expect("answers").is_some());
    let writer = queue(&mut raw, &format!("{path}/_c_{DASHED}-__WRIT__"));
    assert!(lock.try_read().expect("answers").is_none());
    raw.delete(&reader).expect("it stands");
    assert!(lock.try_read().expect("answers").is_none());
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let reading = lock.try_read_for(SOON).expect("answers");
            tell.send(reading.is_some()).expect("waited for");
        });
        wait_for_children(server(), path, 2);
        assert!(told.try_recv().is_err(), "it waits");
        raw.delete(&writer).expect("it stands");
        assert_eq!(told.recv_timeout(SOON), Ok(true));
    });
    assert!(lock.try_write().expect("answers").is_some());
}

#[test]
fn curators_leases_are_counted_and_its_queue_is_waited_for() {
    let path = "/names/curators-semaphore";
    let (client, mut raw) = (client(), raw(server()));
    let semaphore = Semaphore::new(&client, path, 2).expect("a good path");
    for folder in ["locks", "leases"] {
        make(&mut raw, &format!("{path}/{folder}"));
    }
    let lease = format!("{path}/leases/_c_{DASHED}-lease-");
    let first = queue(&mut raw, &lease);
    assert!(semaphore.try_acquire().expect("answers").is_some());
    wait_until("ours is gone", SOON, || {
        raw.children(&format!("{path}/leases")).expect("made").len() == 1
    });
    let second = queue(&mut raw, &lease);
    assert!(semaphore.try_acquire().expect("answers").is_none());
    raw.delete(&first).expect("it stands");
    // Now one is free, but somebody stands in front.
    let ahead = queue(&mut raw, &format!("{path}/locks/_c_{DASHED}-lock-"));
    assert!(semaphore.try_acquire().expect("answers").is_none());
    raw.delete(&ahead).expect("it stands");
    assert!(semaphore.try_acquire().expect("answers").is_some());
    raw.delete(&second).expect("it stands");
}
