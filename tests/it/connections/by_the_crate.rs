//! Handles of the `zookeeper` crate on a client's session: what goes on over trouble, what ends, and
//! what harms no lock.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use zklock::zookeeper::{
    Acl, AddWatchMode, CreateMode, KeeperState, WatchedEvent, WatchedEventType, ZkError, ZkResult,
    ZooKeeper,
};
use zklock::{Client, ConnectionState, LossReason};

use crate::fixtures::{SOON, builder, client, client_at, mutex, raw, server};
use testbed::proxy::Matcher;
use testbed::{Action, Direction, Ensemble, Proxy, wait_for_some, wait_until};

const T: Duration = Duration::from_secs(4);
/// So long that an election does not cost the session.
const LONG: Duration = Duration::from_secs(10);
/// Leaves watches again.
const SET_WATCHES: i32 = 101;

fn open() -> Vec<Acl> {
    Acl::open_unsafe().clone()
}

fn make(zookeeper: &ZooKeeper, path: &str, mode: CreateMode) -> String {
    let made = zookeeper.create(path, b"mine".to_vec(), open(), mode);
    made.expect("nobody else makes it")
}

/// A watcher, and what it hears.
fn hearing() -> (impl Fn(WatchedEvent) + Send, Receiver<WatchedEvent>) {
    let (sender, events): (Sender<WatchedEvent>, _) = unbounded();
    let hears = move |event| {
        let _ = sender.send(event);
    };
    (hears, events)
}

fn next(events: &Receiver<WatchedEvent>) -> (WatchedEventType, Option<String>) {
    let event = events.recv_timeout(SOON).expect("an event");
    (event.event_type, event.path)
}

fn connected(client: &Client) {
    wait_until("there is contact", SOON, || {
        client.state() == ConnectionState::Connected
    });
}

/// By the crate's own connection it would be gone, or in another session.
#[test]
fn its_nodes_stay_over_broken_connections() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let guard = mutex(&client, "/by-the-crate/stay/lock")
        .lock()
        .expect("free");
    let zookeeper = client.zookeeper().expect("connected");
    make(&zookeeper, "/by-the-crate/stay/mine", CreateMode::Ephemeral);
    for _ in 0..5 {
        proxy.reset_all();
        wait_until("it goes on", SOON, || {
            match zookeeper.exists("/by-the-crate/stay/mine", false) {
                Ok(seen) => {
                    let owner = seen.expect("the node stands").ephemeral_owner;
                    assert_eq!(Some(owner), client.session_id());
                    true
                }
                Err(ZkError::ConnectionLoss) => false,
                Err(error) => panic!("{error}"),
            }
        });
    }
    assert_eq!(client.session_id(), Some(zookeeper.session_id()));
    guard.unlock().expect("held all the time");
}

/// Its calls go to no other session by themselves.
#[test]
fn it_ends_with_its_session_and_the_next_has_another() {
    let proxy = Proxy::start(server().addr());
    let client = builder(&proxy.connect_string()).session_timeout(T);
    let client = client.connect().expect("a server that works");
    let zookeeper = client.zookeeper().expect("connected");
    make(&zookeeper, "/by-the-crate-ends", CreateMode::Ephemeral);
    let (hears, events) = hearing();
    zookeeper
        .get_data_w("/by-the-crate-ends", hears)
        .expect("it stands");
    let before = client.session_id();
    proxy.black_hole(Direction::Both);
    // Its watch ends, and not in silence.
    let told = events.recv_timeout(SOON).expect("told");
    assert!(
        matches!(told.keeper_state, KeeperState::Expired),
        "{told:?}"
    );
    proxy.heal();
    wait_until("another session", SOON, || {
        client.session_id().is_some_and(|id| Some(id) != before)
    });
    let seen = zookeeper.exists("/by-the-crate-ends", false);
    assert_eq!(seen.err(), Some(ZkError::SessionExpired));
    assert!(zookeeper.is_over());
    let next = client.zookeeper().expect("connected");
    assert_eq!(Some(next.session_id()), client.session_id());
    next.exists("/", false).expect("it works");
}

#[test]
fn its_close_and_drop_end_the_handle_alone() {
    let client = client();
    let guard = mutex(&client, "/by-the-crate/close/lock")
        .lock()
        .expect("free");
    let zookeeper = client.zookeeper().expect("connected");
    assert!(Arc::ptr_eq(
        &zookeeper,
        &client.zookeeper().expect("the same")
    ));
    make(
        &zookeeper,
        "/by-the-crate/close/mine",
        CreateMode::Ephemeral,
    );
    zookeeper.close().expect("answered");
    assert!(zookeeper.exists("/", false).is_err());
    wait_until("its door is shut", SOON, || zookeeper.is_over());
    let second = client.zookeeper().expect("another");
    let seen = second.exists("/by-the-crate/close/mine", false);
    assert!(
        seen.expect("an answer").is_some(),
        "of the session, not the handle"
    );
    drop((zookeeper, second));
    assert!(guard.is_held());
    let third = client.zookeeper().expect("another");
    drop(client);
    // It keeps the session open, as a lock does.
    assert!(
        third
            .exists("/by-the-crate/close/mine", false)
            .expect("an answer")
            .is_some()
    );
    guard.unlock().expect("held all the time");
}

/// A server keeps one watch for each connection, path and kind.
#[test]
fn a_watch_on_the_node_of_a_waiter_is_told_to_both() {
    let (client, other) = (client(), client());
    let path = "/by-the-crate/both";
    let holds = mutex(&other, path).lock().expect("free");
    let node = holds.path().to_owned();
    let zookeeper = client.zookeeper().expect("connected");
    let (hears, events) = hearing();
    let seen = zookeeper.exists_w(&node, hears).expect("an answer");
    assert!(seen.is_some());
    let lock = mutex(&client, path);
    // The waiter gives up: its watch goes, and not that of the handle.
    for _ in 0..3 {
        let gone = lock
            .try_lock_for(Duration::from_millis(50))
            .expect("an answer");
        assert!(gone.is_none());
    }
    // Behind whatever the waiter has sent when it gave up.
    zookeeper.exists("/", false).expect("an answer");
    let set = raw(server()).set_data(&node, b"by hand");
    set.expect("it stands");
    let changed = (WatchedEventType::NodeDataChanged, Some(node.clone()));
    assert_eq!(next(&events), changed);
    let (hears, events) = hearing();
    let seen = zookeeper.exists_w(&node, hears).expect("an answer");
    assert!(seen.is_some());
    std::thread::scope(|scope| {
        // With an end, so that a waiter that hears of nothing is a failure.
        let waits = scope.spawn(|| lock.try_lock_for(SOON).map(|guard| guard.is_some()));
        wait_until("it waits", SOON, || {
            lock.participants().expect("an answer").len() == 2
        });
        // Nor the other way round.
        let (unheard, silence) = hearing();
        let own = zookeeper.get_data_w(&node, unheard);
        own.expect("it stands");
        holds.unlock().expect("held");
        assert_eq!(
            next(&events),
            (WatchedEventType::NodeDeleted, Some(node.clone()))
        );
        assert_eq!(next(&silence).0, WatchedEventType::NodeDeleted);
        let got = waits.join().expect("no panic");
        assert!(got.expect("an answer"), "its turn");
    });
}

/// What changed while there was no connection is told after.
#[test]
fn watches_live_through_a_break() {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let zookeeper = client.zookeeper().expect("connected");
    let other = client_at(&server().connect_string());
    let at_server = other.zookeeper().expect("connected");
    make(&at_server, "/by-the-crate-breaks", CreateMode::Persistent);
    for name in ["data", "gone", "quiet"] {
        let path = format!("/by-the-crate-breaks/{name}");
        make(&at_server, &path, CreateMode::Persistent);
    }
    let watch = |path: &str| {
        let (hears, events) = hearing();
        zookeeper.exists_w(path, hears).expect("an answer");
        events
    };
    let data = watch("/by-the-crate-breaks/data");
    let gone = watch("/by-the-crate-breaks/gone");
    let quiet = watch("/by-the-crate-breaks/quiet");
    let born = watch("/by-the-crate-breaks/born");
    let (hears, children) = hearing();
    zookeeper
        .get_children_w("/by-the-crate-breaks", hears)
        .expect("it stands");
    proxy.refuse();
    proxy.reset_all();
    wait_until("contact is lost", SOON, || {
        client.state() != ConnectionState::Connected
    });
    let set = at_server.set_data("/by-the-crate-breaks/data", Vec::new(), None);
    set.expect("it stands");
    let deleted = at_server.delete("/by-the-crate-breaks/gone", None);
    deleted.expect("it stands");
    make(
        &at_server,
        "/by-the-crate-breaks/born",
        CreateMode::Persistent,
    );
    proxy.accept();
    connected(&client);
    assert_eq!(next(&data).0, WatchedEventType::NodeDataChanged);
    assert_eq!(next(&gone).0, WatchedEventType::NodeDeleted);
    assert_eq!(next(&born).0, WatchedEventType::NodeCreated);
    assert_eq!(next(&children).0, WatchedEventType::NodeChildrenChanged);
    assert!(quiet.is_empty());
    // That one is on the server again.
    let set = at_server.set_data("/by-the-crate-breaks/quiet", Vec::new(), None);
    set.expect("it stands");
    assert_eq!(next(&quiet).0, WatchedEventType::NodeDataChanged);
}

/// The ephemeral node of a handle, and a node beside it that it watches.
fn mine_and_watched(zookeeper: &ZooKeeper, folder: &str) -> (String, Receiver<WatchedEvent>) {
    make(zookeeper, folder, CreateMode::Persistent);
    let (mine, watched) = (format!("{folder}/mine"), format!("{folder}/watched"));
    make(zookeeper, &mine, CreateMode::Ephemeral);
    make(zookeeper, &watched, CreateMode::Persistent);
    let (hears, events) = hearing();
    let seen = zookeeper.get_data_w(&watched, hears);
    seen.expect("it stands");
    (mine, events)
}

/// Asks until there is a connection.
fn again<T>(ask: impl Fn() -> ZkResult<T>) -> T {
    let answer = wait_for_some(SOON, || match ask() {
        Ok(answer) => Some(answer),
        Err(ZkError::ConnectionLoss) => None,
        Err(error) => panic!("{error}"),
    });
    answer.expect("there is contact again")
}

/// The handle of the crate alone would not find another server in time, or be in another session there.
#[test]
fn it_goes_on_over_an_election() {
    let ensemble = Ensemble::start(3);
    let client = builder(&ensemble.connect_string()).session_timeout(LONG);
    let client = client.connect().expect("a quorum");
    let session = client.session_id();
    let guard = mutex(&client, "/by-the-crate-election-lock")
        .lock()
        .expect("free");
    let zookeeper = client.zookeeper().expect("connected");
    let folder = "/by-the-crate-election";
    let (mine, events) = mine_and_watched(&zookeeper, folder);
    ensemble.kill(ensemble.leader());
    // A write, so somebody leads.
    again(|| zookeeper.set_data(&mine, b"still".to_vec(), None));
    let seen = again(|| zookeeper.exists(&mine, false)).expect("it stands");
    assert_eq!(Some(seen.ephemeral_owner), session);
    assert_eq!(client.session_id(), session);
    // Its watch has come along.
    assert!(events.is_empty());
    let leads = ensemble.server(ensemble.leader());
    let set = raw(leads).set_data(&format!("{folder}/watched"), b"new");
    set.expect("it stands");
    assert_eq!(next(&events).0, WatchedEventType::NodeDataChanged);
    guard.unlock().expect("held all the time");
}

/// What was under way to the old server is not done behind its back: the leader knows where the session
/// is now.
#[test]
fn it_goes_on_where_its_session_has_moved_to() {
    let ensemble = Ensemble::start(3);
    let leader = ensemble.leader();
    let followers: Vec<_> = (0..3).filter(|index| *index != leader).collect();
    let proxies = followers
        .iter()
        .map(|index| Proxy::start(ensemble.server(*index).addr()));
    let proxies: Vec<_> = proxies.collect();
    let servers: Vec<_> = proxies.iter().map(Proxy::connect_string).collect();
    let client = builder(&servers.join(",")).session_timeout(LONG);
    let client = client.connect().expect("a quorum");
    let session = client.session_id();
    let guard = mutex(&client, "/by-the-crate-moved-lock")
        .lock()
        .expect("free");
    let zookeeper = client.zookeeper().expect("connected");
    let folder = "/by-the-crate-moved";
    let (mine, events) = mine_and_watched(&zookeeper, folder);
    let at = proxies.iter().position(|proxy| proxy.counters().open > 0);
    let old = followers[at.expect("it is connected")];
    ensemble.stop(old);
    let late = format!("{folder}/late-");
    let mode = CreateMode::EphemeralSequential;
    let made = zookeeper.create(&late, Vec::new(), open(), mode);
    assert_eq!(made.err(), Some(ZkError::ConnectionLoss));
    let seen = again(|| zookeeper.exists(&mine, false)).expect("it stands");
    assert_eq!(Some(seen.ephemeral_owner), session);
    // The old server reads what had come to it, and after that what comes now.
    ensemble.cont(old);
    ensemble.wait_until_awake_serve();
    assert!(events.is_empty());
    let set = raw(ensemble.server(old)).set_data(&format!("{folder}/watched"), b"new");
    set.expect("it stands");
    assert_eq!(next(&events).0, WatchedEventType::NodeDataChanged);
    let mut names = again(|| zookeeper.get_children(folder, false));
    names.sort();
    assert_eq!(names, ["mine", "watched"]);
    assert_eq!(client.session_id(), session);
    guard.unlock().expect("held all the time");
}

/// Once they were left again on every connection, until the session was over.
#[test]
fn a_server_that_hangs_up_on_its_watches_costs_no_lock() {
    let proxy = Proxy::start(server().addr());
    let unknown = proxy.on_request(Matcher::every(SET_WATCHES), Action::Reset);
    let client = client_at(&proxy.connect_string());
    let session = client.session_id();
    let guard = mutex(&client, "/by-the-crate/hung-up/lock")
        .lock()
        .expect("free");
    let zookeeper = client.zookeeper().expect("connected");
    let (hears, events) = hearing();
    zookeeper
        .exists_w("/by-the-crate/hung-up/mine", hears)
        .expect("an answer");
    proxy.reset_all();
    assert_eq!(next(&events).0, WatchedEventType::NodeDataChanged);
    connected(&client);
    assert_eq!(client.session_id(), session);
    guard.unlock().expect("held all the time");
    assert_eq!(unknown.times_sprung(), 1);
}

/// It kills the crate's threads.
#[test]
fn a_watcher_that_panics_ends_its_handle_and_no_lock() {
    let client = client();
    let guard = mutex(&client, "/by-the-crate/panic/lock")
        .lock()
        .expect("free");
    let zookeeper = client.zookeeper().expect("connected");
    make(
        &zookeeper,
        "/by-the-crate/panic/mine",
        CreateMode::Ephemeral,
    );
    let panics = |_| std::panic::resume_unwind(Box::new("a fault of the watcher"));
    zookeeper
        .get_data_w("/by-the-crate/panic/mine", panics)
        .expect("it stands");
    for _ in 0..2 {
        // The first kills the thread of events, and the next message to it that of the socket.
        let (hears, _) = hearing();
        let _ = zookeeper.set_data("/by-the-crate/panic/mine", Vec::new(), None);
        let _ = zookeeper.get_data_w("/by-the-crate/panic/mine", hears);
    }
    wait_until("the handle has died", SOON, || {
        let (hears, _) = hearing();
        let _ = zookeeper.get_data_w("/by-the-crate/panic/mine", hears);
        zookeeper.is_over()
    });
    let next = client.zookeeper().expect("another");
    let seen = next.exists("/by-the-crate/panic/mine", false);
    assert!(seen.expect("an answer").is_some());
    assert_eq!(guard.lost().try_recv().ok(), None::<LossReason>);
    guard.unlock().expect("held all the time");
}

/// Somebody's debugger, or a logger that hangs: the crate's thread takes nothing any more.
#[test]
fn a_handle_that_hangs_keeps_nobody_waiting() {
    let client = client();
    let zookeeper = client.zookeeper().expect("connected");
    make(&zookeeper, "/by-the-crate-hangs", CreateMode::Ephemeral);
    let (entered, stuck) = unbounded();
    let (release, released) = unbounded::<()>();
    let hangs = move |_| {
        let _ = entered.send(());
        let _ = released.recv();
    };
    zookeeper
        .get_data_w("/by-the-crate-hangs", hangs)
        .expect("it stands");
    let set = zookeeper.set_data("/by-the-crate-hangs", Vec::new(), None);
    set.expect("it stands");
    stuck.recv_timeout(SOON).expect("told");
    let lock = mutex(&client, "/by-the-crate/hangs/lock");
    for _ in 0..20 {
        lock.lock().expect("free").unlock().expect("confirmed");
    }
    drop(release);
}

#[test]
fn what_would_harm_the_session_is_refused() {
    let client = client();
    let zookeeper = client.zookeeper().expect("connected");
    let auth = zookeeper.add_auth("digest", b"a:b".to_vec());
    assert_eq!(auth.err(), Some(ZkError::Unimplemented));
    let watch = zookeeper.add_watch("/", AddWatchMode::Persistent, |_| {});
    assert_eq!(watch.err(), Some(ZkError::Unimplemented));
    let container = zookeeper.create("/c", Vec::new(), open(), CreateMode::Container);
    assert_eq!(container.err(), Some(ZkError::BadArguments));
    let large = zookeeper.create("/l", vec![0; 2 << 20], open(), CreateMode::Persistent);
    assert_eq!(large.err(), Some(ZkError::BadArguments));
    assert_eq!(client.state(), ConnectionState::Connected);
}

#[test]
fn its_paths_are_below_the_chroot() {
    let servers = format!("{}/by-the-crate-root", server().connect_string());
    let client = Client::builder(&servers).create_chroot(true);
    let client = client.connect().expect("made");
    let zookeeper = client.zookeeper().expect("connected");
    let (hears, events) = hearing();
    zookeeper.get_children_w("/", hears).expect("it stands");
    assert_eq!(make(&zookeeper, "/a", CreateMode::Persistent), "/a");
    let told = (WatchedEventType::NodeChildrenChanged, Some("/".to_owned()));
    assert_eq!(next(&events), told);
    let names = raw(server()).children("/by-the-crate-root");
    assert_eq!(names.expect("it stands"), ["a"]);
    // What has no watcher of its own.
    let events = zookeeper.events();
    zookeeper.get_data("/a", true).expect("it stands");
    zookeeper.delete("/a", None).expect("it stands");
    assert_eq!(
        next(&events),
        (WatchedEventType::NodeDeleted, Some("/a".to_owned()))
    );
}
