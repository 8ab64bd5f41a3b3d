//! What a client and its locks show by their `Debug` to somebody who debugs.

use testbed::wait_until;
use zklock::{
    Barrier, Client, DoubleBarrier, LockRegistry, MultiLock, Mutex, RwLock, Semaphore,
    SemaphoreMutex, SimpleMutex,
};

use crate::fixtures::{SOON, client, mutex, server};
use crate::puppet;

#[track_caller]
fn assert_says(shown: &str, what: &[&str]) {
    for what in what {
        assert!(shown.contains(what), "{what} in {shown}");
    }
}

#[test]
fn a_mutex_shows_who_holds_it_and_who_waits() {
    let client = client();
    let lock = Mutex::builder(&client, "/debug/mutex").label("orders");
    let lock = lock.build().expect("a good path");
    let session = format!("id: 0x{:x}", client.session_id().expect("connected"));
    let known = [
        r#"path: "/debug/mutex""#,
        r#"label: Some("orders")"#,
        "state: Connected",
        &session,
    ];
    assert_says(&format!("{lock:?}"), &known);
    assert_says(&format!("{lock:?}"), &["turn: Free, waiting: 0"]);
    let outer = lock.lock().expect("free");
    let inner = lock.lock().expect("re-entry");
    std::thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock().expect("its turn")));
        wait_until("the second thread waits", SOON, || {
            client.stats().waiting == 1 && format!("{lock:?}").contains("waiting: 1")
        });
        let this = std::thread::current();
        let name = this.name().expect("tests have names");
        let by = format!("Held {{ by: {name:?} {:?}, depth: 2", this.id());
        let shown = format!("{lock:?}");
        assert_says(&shown, &known);
        assert_says(&shown, &[&by, inner.path(), "state: Held"]);
        drop(inner);
        drop(outer);
    });
}

#[test]
fn a_lock_that_is_asked_for_or_kept_says_so() {
    let client = client();
    let lock = Mutex::builder(&client, "/debug/kept").linger(SOON);
    let lock = lock.build().expect("a good path");
    let other = crate::fixtures::client();
    let held = mutex(&other, "/debug/kept").lock().expect("free");
    std::thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock().expect("its turn")));
        wait_until("a thread asks", SOON, || {
            format!("{lock:?}").contains("turn: Asking, waiting: 1")
        });
        drop(held);
    });
    assert_says(&format!("{lock:?}"), &["turn: Idle { node:", "waiting: 0"]);
}

#[test]
fn each_recipe_shows_what_it_has_here() {
    let client = client();
    let rw = RwLock::new(&client, "/debug/rw").expect("a good path");
    let _reading = rw.read().expect("free");
    let none = "writers_here: DebugState { turn: Free, waiting: 0 }";
    let me = std::thread::current().id();
    let me = format!("{me:?}, depth: 1");
    assert_says(&format!("{rw:?}"), &[none, &me, "/debug/rw/_c_"]);

    let semaphore = Semaphore::new(&client, "/debug/semaphore", 2).expect("a good path");
    let permit = semaphore.acquire().expect("free");
    assert_says(&format!("{semaphore:?}"), &[permit.path(), "waiting: 0"]);
    let one = SemaphoreMutex::new(&client, "/debug/one").expect("a good path");
    assert_says(&format!("{one:?}"), &["permits_here: []"]);

    let simple = SimpleMutex::new(&client, "/debug/simple").expect("a good path");
    let both = MultiLock::builder().with(&simple).with(rw.write_side());
    let both = both.label("both").build().expect("two paths");
    let parts = [r#"Some("both")"#, "/debug/simple", "/debug/rw"];
    assert_says(&format!("{both:?}"), &parts);

    let registry = LockRegistry::builder(&client, "/debug/keys").label("keys");
    let registry = registry.build().expect("a good path");
    let _lock = registry.get("a").expect("a good key");
    assert_says(&format!("{registry:?}"), &[r#"Some("keys")"#, "len: 1"]);
    let gate = Barrier::new(&client, "/debug/gate").expect("a good path");
    assert_says(&format!("{gate:?}"), &["/debug/gate", "state: Connected"]);
    let step = DoubleBarrier::new(&client, "/debug/step", 2).expect("a good path");
    assert_says(&format!("{step:?}"), &["/debug/step", "members: 2"]);

    client.close();
    assert_says(&format!("{semaphore:?} {client:?}"), &["state: Closed"]);
}

#[test]
fn a_client_shows_no_secret() {
    let builder = Client::builder(&server().connect_string()).auth("digest", "ann:sesame");
    assert!(!format!("{builder:?}").contains("sesame"));
    let client = builder.connect().expect("a server that works");
    let shown = format!("{client:?} {:?}", mutex(&client, "/debug/secret"));
    assert!(
        !shown.contains("sesame") && !shown.contains("ann"),
        "{shown}"
    );
    let servers = server().connect_string();
    assert_says(&shown, &[&servers, "stats: Stats { sessions: 1"]);
}

/// A fork copies locks as they are; a thread that has one locked is not there to unlock it.
#[test]
fn nothing_is_stuck_that_is_shown_in_a_forked_child() {
    let mut puppet = puppet::start(&server().connect_string(), "/debug/fork");
    assert_eq!(puppet.say("lock"), "ok");
    let shown = puppet.say("show-in-children 50");
    assert_eq!(shown, "0 of 50 stuck or wrong");
    assert_eq!(puppet.say("unlock"), "ok");
}
