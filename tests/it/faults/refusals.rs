//! Servers that say no and may do it the next time: too busy for now, at a loss what became of it, or
//! with an error that nobody knows. None of that is an answer: what must be removed is removed, and
//! what is waited for is waited for.

mod quota;
mod ready;

use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::{Duration, Instant};

use testbed::proxy::Trap;
use testbed::raw::Flags;
use testbed::{Action, Matcher, Proxy, RawSession, opcode, wait_until};
use zklock::{
    Acl, AcquireOptions, Client, ConnectionEvent, LockState, Permissions, RwLock, Semaphore,
    SimpleMutex,
};

use crate::fixtures::{
    SOON, T, builder, children, client_at, mutex, raw, server, wait_for_children,
};

/// The server has too much to do, and has not begun with it.
const THROTTLED: i32 = -127;
/// The server cannot say what became of it.
const CONNECTION_LOSS: i32 = -4;
const OPERATION_TIMEOUT: i32 = -7;
const SYSTEM_ERROR: i32 = -1;
/// No server has it.
const UNHEARD_OF: i32 = -12_345;

const SHORT: Duration = Duration::from_millis(300);

fn proxied() -> (Proxy, Client) {
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    (proxy, client)
}

/// The node stayed as long as the client lived, and its own next acquire queued behind it.
#[test]
fn a_release_that_is_refused_for_now_is_made_again() {
    for code in [
        THROTTLED,
        CONNECTION_LOSS,
        OPERATION_TIMEOUT,
        SYSTEM_ERROR,
        UNHEARD_OF,
    ] {
        let path = &format!("/refusals/release{code}");
        let (proxy, client) = proxied();
        let session = client.session_id();
        let lock = mutex(&client, path);
        let guard = lock.lock().expect("free");
        let refused = proxy.on_request(opcode::DELETE, Action::Refuse(code));
        let error = guard.unlock().expect_err("not confirmed");
        assert!(error.is_connection_loss(), "{code}: {error}");
        refused.wait_until_sprung(SOON);
        wait_for_children(server(), path, 0);
        let again = lock.try_lock_for(SOON).expect("answers");
        assert!(again.is_some(), "{code}");
        assert_eq!(client.session_id(), session);
    }
}

/// For as long as the server is overloaded, and with a pause.
#[test]
fn a_release_that_is_refused_again_and_again_is_made_in_the_end() {
    let path = "/refusals/long";
    let (proxy, client) = proxied();
    let lock = mutex(&client, path);
    let guard = lock.lock().expect("free");
    let refused = proxy.on_request(Matcher::every(opcode::DELETE), Action::Refuse(THROTTLED));
    drop(guard);
    wait_until("it is refused five times", SOON, || {
        refused.times_sprung() >= 5
    });
    assert_eq!(children(server(), path).len(), 1);
    refused.disarm();
    wait_for_children(server(), path, 0);
}

/// All of several permits, which go in one write.
#[test]
fn permits_that_are_refused_for_now_go_in_the_end() {
    let (proxy, client) = proxied();
    let semaphore = Semaphore::new(&client, "/refusals/permits", 3).expect("a good path");
    let permits = semaphore.acquire_many(3).expect("free");
    let refused = [opcode::DELETE, opcode::MULTI]
        .map(|op| proxy.on_request(Matcher::every(op), Action::Refuse(THROTTLED)));
    drop(permits);
    wait_until("it is refused", SOON, || {
        refused.iter().any(|refused| refused.times_sprung() > 0)
    });
    refused.iter().for_each(Trap::disarm);
    wait_for_children(server(), "/refusals/permits/leases", 0);
}

/// Nobody waits for what a time-out leaves behind.
#[test]
fn a_withdrawal_that_is_refused_for_now_is_made_again() {
    let path = "/refusals/withdrawal";
    let holder = crate::fixtures::client();
    let held = mutex(&holder, path).lock().expect("free");
    for code in [THROTTLED, CONNECTION_LOSS, SYSTEM_ERROR] {
        let (proxy, client) = proxied();
        let refused = proxy.on_request(opcode::DELETE, Action::Refuse(code));
        let busy = mutex(&client, path).try_lock_for(SHORT);
        assert!(busy.expect("no error").is_none());
        refused.wait_until_sprung(SOON);
        wait_for_children(server(), path, 1);
    }
    held.unlock().expect("ours");
}

/// Whatever request of it the server refuses.
#[test]
fn an_acquire_that_is_refused_for_now_waits_and_asks_again() {
    let requests = [opcode::CREATE, opcode::GET_CHILDREN];
    for code in [
        THROTTLED,
        CONNECTION_LOSS,
        OPERATION_TIMEOUT,
        SYSTEM_ERROR,
        UNHEARD_OF,
    ] {
        for op in requests {
            let path = &format!("/refusals/acquire{code}-{op}");
            let (proxy, client) = proxied();
            let lock = mutex(&client, path);
            drop(lock.lock().expect("free"));
            let of_lock = Matcher::next(op).with_path_containing(path);
            let refused = proxy.on_request(of_lock, Action::Refuse(code));
            let guard = lock.try_lock_for(SOON).expect("in the end");
            let guard = guard.expect("nobody else is there");
            assert_eq!(refused.times_sprung(), 1);
            assert_eq!(children(server(), path).len(), 1, "{code} {op}");
            guard.unlock().expect("ours");
        }
    }
}

/// The node stands, and nobody says so.
#[test]
fn a_create_that_was_done_and_is_refused_is_found_again() {
    for code in [CONNECTION_LOSS, OPERATION_TIMEOUT, SYSTEM_ERROR, UNHEARD_OF] {
        let path = &format!("/refusals/done{code}");
        let (proxy, client) = proxied();
        let lock = mutex(&client, path);
        drop(lock.lock().expect("free"));
        let create = Matcher::next(opcode::CREATE).with_path_containing(path);
        let refused = proxy.on_reply(create, Action::Refuse(code));
        let guard = lock.try_lock_for(SOON).expect("in the end");
        let guard = guard.expect("nobody else is there");
        assert_eq!(refused.times_sprung(), 1);
        assert_eq!(children(server(), path).len(), 1, "{code}");
        guard.unlock().expect("ours");
    }
}

/// And no longer than it may.
#[test]
fn an_acquire_that_is_refused_for_now_keeps_its_deadline() {
    let path = "/refusals/deadline";
    let (proxy, client) = proxied();
    let lock = mutex(&client, path);
    drop(lock.lock().expect("free"));
    let of_lock = Matcher::every(opcode::CREATE).with_path_containing(path);
    let refused = proxy.on_request(of_lock, Action::Refuse(THROTTLED));
    assert!(lock.try_lock_for(SHORT).expect("no error").is_none());
    let error = lock.try_lock().expect_err("it was not tried");
    assert!(error.is_connection_loss(), "{error}");
    assert!(error.to_string().contains("overloaded"), "{error}");
    let options = AcquireOptions::new().timeout(SHORT);
    let error = lock.lock_with(options).expect_err("nobody lets it in");
    assert!(error.is_timeout(), "{error}");
    refused.disarm();
    assert!(lock.try_lock().expect("it serves").is_some());
}

/// Where a call waits for contact only so long, it waits no longer for a server that refuses all.
#[test]
fn an_acquire_that_is_refused_without_end_gives_up() {
    let path = "/refusals/gives-up";
    let proxy = Proxy::start(server().addr());
    let retry = zklock::RetryPolicy::new().give_up_after(SHORT);
    let client = builder(&proxy.connect_string()).retry(retry).connect();
    let client = client.expect("a server that works");
    let lock = mutex(&client, path);
    drop(lock.lock().expect("free"));
    let of_lock = Matcher::every(opcode::CREATE).with_path_containing(path);
    let refused = proxy.on_request(of_lock, Action::Refuse(UNHEARD_OF));
    let error = lock.lock().map(drop).expect_err("refused");
    assert!(error.is_connection_loss(), "{error}");
    let text = error.to_string();
    assert!(text.contains(path) && text.contains("-12345"), "{text}");
    refused.disarm();
    wait_for_children(server(), path, 0);
}

/// A holder was suspect until the next reconnect.
#[test]
fn a_holder_that_could_not_look_at_its_node_looks_again() {
    for code in [THROTTLED, UNHEARD_OF] {
        let path = &format!("/refusals/look{code}");
        let (proxy, client) = proxied();
        let before = proxy.counters().replied(opcode::GET_DATA);
        let guard = mutex(&client, path).lock().expect("free");
        // The patrol has been here, and does not come again.
        proxy.wait_for(|seen| seen.replied(opcode::GET_DATA) > before, SOON);
        let look = Matcher::every(opcode::GET_DATA).with_path_containing(path);
        let events = client.events();
        let refused = proxy.on_request(look, Action::Refuse(code));
        proxy.reset_all();
        while events.recv_timeout(SOON).expect("it lives") != ConnectionEvent::Reconnected {}
        refused.wait_until_sprung(SOON);
        assert_eq!(guard.state(), LockState::Suspect);
        refused.disarm();
        wait_until("it is held again", SOON, || guard.is_held());
        guard.unlock().expect("ours");
    }
}

/// Readers, and a writer that becomes one.
#[test]
fn readers_and_downgrades_that_are_refused_for_now_go_on() {
    let path = "/refusals/readers";
    let (proxy, client) = proxied();
    let lock = RwLock::new(&client, path).expect("a good path");
    drop(lock.read().expect("free"));
    let writer = lock.write().expect("free");
    let refused = proxy.on_request(opcode::CREATE, Action::Refuse(THROTTLED));
    let reader = writer.downgrade().expect("in the end");
    assert_eq!(refused.times_sprung(), 1);
    assert!(reader.is_held());
    drop(reader);
    wait_for_children(server(), path, 0);
}

/// Each kind of request of a single node, once.
#[test]
fn a_single_node_that_is_refused_for_now_is_taken_and_given_back() {
    let path = "/refusals/single";
    for code in [THROTTLED, OPERATION_TIMEOUT, UNHEARD_OF] {
        for op in [opcode::CREATE, opcode::GET_DATA, opcode::DELETE] {
            let (proxy, client) = proxied();
            let lock = SimpleMutex::new(&client, path).expect("a good path");
            let of_lock = Matcher::next(op).with_path_containing(path);
            let refused = proxy.on_request(of_lock, Action::Refuse(code));
            let guard = lock.try_lock_for(SOON).expect("in the end");
            drop(guard.expect("nobody else is there"));
            refused.wait_until_sprung(SOON);
            wait_until("the node is gone", SOON, || {
                let mut raw = raw(server());
                !raw.exists(path).expect("answers")
            });
        }
    }
}

/// What was not sent was taken for refused: of many releases none was made after the reconnect.
#[test]
fn releases_that_a_stalled_server_has_no_room_for_are_made_on_the_next_connection() {
    const HOLDS: usize = 8;
    /// Together more than is kept for a server that takes nothing, and its sockets' buffers.
    const BALLAST: usize = 24;
    let folder = |number: usize| format!("/refusals/stalled/{number}");
    let proxy = Proxy::start(server().addr());
    // So that it is not given up before all have spoken.
    let client = builder(&proxy.connect_string()).session_timeout(T * 3);
    let client = client.connect().expect("a server that works");
    let ballast = |number: usize| {
        let data = vec![b'x'; 900_000];
        let options = AcquireOptions::new().timeout(SOON).data(data);
        mutex(&client, &folder(HOLDS + number)).lock_with(options)
    };
    drop(ballast(0).expect("free"));
    let guards: Vec<_> = (0..HOLDS)
        .map(|number| mutex(&client, &folder(number)).lock().expect("free"))
        .collect();
    proxy.black_hole(testbed::Direction::ToServer);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..BALLAST)
            .map(|number| scope.spawn(move || ballast(number).map(drop)))
            .collect();
        wait_until("nothing more is taken", SOON, || {
            client.stats().put_off > 0 || all.iter().any(ScopedJoinHandle::is_finished)
        });
        for guard in guards {
            let error = guard.unlock().expect_err("not confirmed");
            assert!(error.is_connection_loss(), "{error}");
        }
        proxy.heal();
        for taken in all {
            taken.join().expect("no panic").expect("in the end");
        }
    });
    for number in 0..HOLDS + BALLAST {
        wait_for_children(server(), &folder(number), 0);
    }
}

/// That an ACL forbids the write is an answer: the server has caught up all the same.
#[test]
fn a_single_node_of_other_credentials_is_waited_for_after_a_break() {
    let path = "/refusals/mixed";
    let readable = Acl::creator_all().and(Acl::entry("world", "anyone", Permissions::READ));
    let holder = builder(&server().connect_string())
        .auth("digest", "ann:sesame")
        .acl(readable)
        .connect()
        .expect("a server that works");
    // In a folder that is everybody's.
    let (proxy, client) = proxied();
    let lock = SimpleMutex::new(&client, path).expect("a good path");
    drop(lock.lock().expect("free"));
    let held = SimpleMutex::new(&holder, path).expect("a good path");
    let held = held.lock().expect("free");
    let broken = proxy.on_request(opcode::CREATE, Action::Reset);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        broken.wait_until_sprung(SOON);
        wait_until("it waits", SOON, || {
            server().stats().watch_count > 0 || waiter.is_finished()
        });
        held.unlock().expect("ours");
        waiter.join().expect("no panic").expect("its turn");
    });
}

/// A waiter that comes to the head of the queue without a write of its own, long after the last one.
struct AtTheHead {
    proxy: Proxy,
    ahead: RawSession,
    nodes: [String; 2],
    waiter: JoinHandle<zklock::Result<()>>,
}

impl AtTheHead {
    /// With two ahead of it: who is next keeps its proof.
    fn after_a_long_wait(path: &str, permissions: Permissions) -> Self {
        const SYNC: i32 = 9;
        let mut ahead = raw(server());
        drop(
            mutex(&crate::fixtures::client(), path)
                .lock()
                .expect("free"),
        );
        let mut contender = |number: u32| {
            let name = format!("{path}/_c_{number:032x}-lock-");
            ahead
                .create(&name, b"", Flags::EphemeralSequential)
                .expect("a folder")
        };
        let nodes = [contender(1), contender(2)];
        let proxy = Proxy::start(server().addr());
        let acl = Acl::entry("world", "anyone", permissions);
        let client = builder(&proxy.connect_string()).session_timeout(T).acl(acl);
        let client = client.connect().expect("a server that works");
        let lock = mutex(&client, path);
        let waiter = std::thread::spawn(move || lock.lock()?.unlock());
        wait_for_children(server(), path, 3);
        // Eleven of them are sent in one session timeout.
        let before = proxy.counters().replied(SYNC);
        proxy.wait_for(|seen| seen.replied(SYNC) >= before + 14, SOON);
        Self {
            proxy,
            ahead,
            nodes,
            waiter,
        }
    }

    /// Those ahead go, the first one first.
    fn go(&mut self) {
        for node in &self.nodes {
            self.ahead.delete(node).expect("its own");
        }
    }

    #[track_caller]
    fn gets_in(self) {
        let in_and_out = self.waiter.join().expect("no panic");
        in_and_out.expect("nobody is ahead");
    }
}

/// It listed again at once, and asked again, thousands of times a second.
#[test]
fn a_check_that_is_refused_is_no_reason_to_list_again_at_once() {
    let mut waits = AtTheHead::after_a_long_wait("/refusals/check", Permissions::ALL);
    let checks = Matcher::every(opcode::MULTI);
    let refused = waits.proxy.on_request(checks, Action::Refuse(THROTTLED));
    let begun = Instant::now();
    waits.go();
    wait_until("it is refused five times", SOON, || {
        refused.times_sprung() >= 5
    });
    // Half of each of the four pauses in between, at the least.
    let least = Duration::from_millis((50 + 100 + 200 + 400) / 2);
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    refused.disarm();
    waits.gets_in();
}

/// The same for ever, where a client may not read what it makes.
#[test]
fn who_may_not_read_its_own_node_gets_in_after_a_long_wait() {
    let most = Permissions::WRITE | Permissions::CREATE | Permissions::DELETE | Permissions::ADMIN;
    let mut waits = AtTheHead::after_a_long_wait("/refusals/unreadable", most);
    waits.go();
    waits.gets_in();
}

/// All that was left behind was one job, and the news that a lock is lost came after it.
#[test]
fn a_removal_is_told_though_many_nodes_are_left_behind() {
    const PERMITS: u32 = 1_000;
    let path = "/refusals/many";
    let (proxy, client) = proxied();
    let guard = mutex(&client, path).lock().expect("free");
    let semaphore = Semaphore::new(&client, "/refusals/left", PERMITS).expect("a good path");
    let permits = semaphore.acquire_many(PERMITS).expect("free");
    let events = client.events();
    proxy.refuse();
    proxy.reset_all();
    wait_until("nobody answers", SOON, || !guard.is_held());
    drop(permits);
    // One round trip for each, one after the other, would take minutes; all at once, seconds.
    proxy.delay(Duration::from_millis(100));
    proxy.accept();
    while events.recv_timeout(SOON).expect("it lives") != ConnectionEvent::Reconnected {}
    wait_until("it is held again", SOON, || guard.is_held());
    raw(server()).delete(guard.path()).expect("it stands");
    let lost = guard.lost().recv_timeout(SOON);
    assert_eq!(lost, Ok(zklock::LossReason::Removed));
    let left = children(server(), "/refusals/left/leases").len();
    assert!(left > 0, "all were removed first");
    proxy.pass();
    wait_for_children(server(), "/refusals/left/leases", 0);
}
