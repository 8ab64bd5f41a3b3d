//! The one plain node that all want.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testbed::raw::Flags;
use testbed::{Action, Matcher, Proxy, opcode, wait_until};
use zklock::{AcquireOptions, CancelToken, LockState, LossReason, SimpleMutex};

use crate::fixtures::{SOON, client, client_at, raw, server};

fn simple(client: &zklock::Client, path: &str) -> SimpleMutex {
    SimpleMutex::new(client, path).expect("a good path")
}

fn wait_until_gone(path: &str) {
    wait_until(&format!("{path} is gone"), SOON, || {
        !raw(server()).exists(path).expect("answers")
    });
}

#[test]
fn one_at_a_time_over_threads_and_clients() {
    let path = "/exclusive_lock/lock";
    let clients = [client(), client(), client()];
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in &clients {
            for _ in 0..2 {
                let lock = simple(client, path);
                let inside = &inside;
                scope.spawn(move || {
                    for _ in 0..15 {
                        let guard = lock.lock().expect("its turn");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        assert!(guard.is_held());
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        }
    });
    wait_until_gone(path);
}

/// With a script that does just that: creates the node, and deletes it.
#[test]
fn excludes_others_who_create_the_node() {
    let path = "/simple/peer";
    let client = client();
    let lock = simple(&client, path);
    drop(lock.lock().expect("free"));
    let mut peer = raw(server());
    peer.create(path, b"a script", Flags::Ephemeral)
        .expect("free");
    assert!(lock.try_lock().expect("answers").is_none());
    let short = Duration::from_millis(100);
    assert!(lock.try_lock_for(short).expect("answers").is_none());
    let who = lock.participants().expect("answers");
    assert_eq!((who.len(), who[0].data()), (1, &b"a script"[..]));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.lock().expect("its turn");
            assert!(guard.path() == path && guard.is_held());
            // Not even our own session's other users get in.
            raw(server()).create(path, b"", Flags::Ephemeral).is_err()
        });
        peer.delete(path).expect("its own");
        assert!(waiter.join().expect("no panic"));
    });
    wait_until_gone(path);
}

#[test]
fn reentrant_for_its_thread() {
    let client = client();
    let lock = simple(&client, "/simple/again");
    let outer = lock.lock().expect("free");
    let inner = lock.lock().expect("ours");
    assert_eq!(lock.hold_count(), 2);
    drop(outer);
    assert!(inner.is_held());
    drop(inner);
    wait_until_gone("/simple/again");
}

/// The name does not tell whose node it is. When the reply to our create is lost, the node that
/// stands may be ours, or that of another lock object of this very session.
#[test]
fn a_lost_create_reply_is_found_again() {
    for (action, path) in [
        (Action::Reset, "/simple/lost-reset"),
        (Action::BlackHole, "/simple/lost-hole"),
    ] {
        let proxy = Proxy::start(server().addr());
        let client = client_at(&proxy.connect_string());
        let (lock, beside) = (simple(&client, path), simple(&client, path));
        drop(lock.lock().expect("free"));
        let create = Matcher::next(opcode::CREATE).with_path_containing(path);
        let trap = proxy.on_reply(create, action);
        let guard = lock.lock().expect("found again");
        trap.wait_until_sprung(SOON);
        assert!(guard.is_held());
        assert!(beside.try_lock().expect("answers").is_none());
        drop(guard);
        wait_until_gone(path);
    }
}

/// A release whose reply is lost is tried again: by then the node may be somebody else's, and must
/// stand. Home-grown locks of this kind delete it.
#[test]
fn a_release_that_is_tried_again_spares_the_next_holder() {
    let path = "/simple/spared";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = simple(&client, path);
    let guard = lock.lock().expect("free");
    proxy.on_reply(opcode::DELETE, Action::Reset);
    proxy.refuse();
    let error = guard.unlock().expect_err("not confirmed");
    assert!(error.is_connection_loss(), "{error}");
    wait_until_gone(path);
    let other = crate::fixtures::client();
    let next = simple(&other, path);
    let held = next.try_lock().expect("answers").expect("free");
    proxy.accept();
    // The reaper has looked again when this has been answered on the new connection.
    wait_until("connected again", SOON, || {
        lock.participants().is_ok_and(|who| who.len() == 1)
    });
    assert!(lock.try_lock().expect("answers").is_none());
    assert_eq!(held.state(), LockState::Held);
    assert!(raw(server()).exists(path).expect("answers"));
    held.unlock().expect("still ours");
}

/// Somebody removes the node, and another takes its place: the first holder's release must not
/// delete that.
#[test]
fn a_release_after_a_removal_spares_the_next_holder() {
    let path = "/simple/removed";
    let client = client();
    let lock = simple(&client, path);
    let guard = lock.lock().expect("free");
    let mut other = raw(server());
    other.delete(path).expect("open to all");
    other.create(path, b"next", Flags::Ephemeral).expect("free");
    assert_eq!(guard.lost().recv_timeout(SOON), Ok(LossReason::Removed));
    assert!(guard.unlock().expect_err("lost").is_lock_lost());
    assert_eq!(other.data(path).expect("stands"), b"next");
}

#[test]
fn a_cancelled_wait_leaves_nothing() {
    let path = "/simple/cancel";
    let clients = [client(), client()];
    let (held, lock) = (simple(&clients[0], path), simple(&clients[1], path));
    let guard = held.lock().expect("free");
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let options = AcquireOptions::new().cancel(&token);
                scope.spawn(|| lock.lock_with(options).map(drop))
            })
            .collect();
        token.cancel();
        for waiter in waiters {
            let error = waiter.join().expect("no panic").expect_err("cancelled");
            assert!(error.is_cancelled(), "{error}");
        }
    });
    drop(guard);
    // What a waiter was about to create when it was cancelled goes in the background.
    wait_until("free", SOON, || lock.try_lock().expect("answers").is_some());
    wait_until_gone(path);
}

#[test]
fn a_lost_session_is_told_and_waiters_go_on() {
    let path = "/simple/session";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = simple(&client, path);
    let guard = lock.lock().expect("free");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().expect("in a new session").is_held());
        proxy.refuse();
        proxy.reset_all();
        assert!(guard.lost().recv_timeout(SOON).is_ok());
        proxy.accept();
        drop(guard);
        assert!(waiter.join().expect("no panic"));
    });
    wait_until_gone(path);
}

#[test]
fn its_data_is_the_callers_and_an_id() {
    let client = client();
    let lock = simple(&client, "/simple/data");
    let options = AcquireOptions::new().data("night shift");
    let _guard = lock.lock_with(options).expect("free");
    let data = raw(server()).data("/simple/data").expect("there");
    let text = String::from_utf8(data).expect("text");
    let (said, id) = text.split_once(" id=").expect("an id");
    assert_eq!((said, id.len()), ("night shift", 32));
}

/// A stranger writes into the node between its creation and our first look at it. We once took it
/// for somebody else's, and waited for our own node for ever.
#[test]
fn what_a_stranger_writes_at_once_keeps_nobody_out() {
    let path = "/simple/stranger";
    let proxy = Proxy::start(server().addr());
    let client = client_at(&proxy.connect_string());
    let lock = simple(&client, path);
    drop(lock.lock().expect("free"));
    let look = Matcher::next(opcode::GET_DATA).with_path_containing(path);
    let hold = proxy.hold_request(look);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let guard = lock
                .try_lock_for(SOON)
                .expect("answers")
                .expect("it is ours");
            assert!(guard.is_held());
            guard.unlock()
        });
        hold.wait_until_held(SOON);
        raw(server()).set_data(path, b"mine").expect("there");
        hold.release();
        waits.join().expect("no panic").expect("still ours");
    });
    wait_until_gone(path);
    // Also where the connection breaks before the look is answered, so that it is looked for anew.
    let look = Matcher::next(opcode::GET_DATA).with_path_containing(path);
    let hold = proxy.hold_request(look);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let guard = lock
                .try_lock_for(SOON)
                .expect("answers")
                .expect("it is ours");
            guard.unlock()
        });
        hold.wait_until_held(SOON);
        raw(server()).set_data(path, b"mine").expect("there");
        proxy.reset_all();
        waits.join().expect("no panic").expect("still ours");
    });
    wait_until_gone(path);
}
