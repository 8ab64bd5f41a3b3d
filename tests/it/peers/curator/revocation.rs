//! Asking for a lock back: Curator's `Revoker` and `makeRevocable`.

use zklock::Mutex;

use super::curator;
use crate::fixtures::{SOON, client, mutex, server, wait_for_children};

#[test]
fn curator_hears_that_we_ask() {
    let path = "/curator/revoke/us";
    let (mut curator, client) = (curator(), client());
    let lock = mutex(&client, path);
    curator.tell(&format!("mutex m {path}"));
    curator.tell("revocable m");
    curator.tell("acquire m");
    let holder = lock.participants().expect("answers").remove(0);
    assert!(holder.is_holder() && holder.data().is_empty());
    assert!(lock.revoke(&holder).expect("answers"));
    curator.tell("asked m");
    // It decides, and nobody takes it away.
    assert!(lock.try_lock().expect("answers").is_none());
    curator.tell("release m");
    assert!(lock.try_lock().expect("answers").is_some());
    assert!(!lock.revoke(&holder).expect("answers"), "it has gone");
    wait_for_children(server(), path, 0);
}

#[test]
fn we_hear_that_curator_asks() {
    let path = "/curator/revoke/curator";
    let (mut curator, client) = (curator(), client());
    let lock = Mutex::builder(&client, path).revocable(true).build();
    let lock = lock.expect("a good path");
    let guard = lock.lock().expect("free");
    assert!(guard.revocation().try_recv().is_err());
    curator.tell(&format!("mutex m {path}"));
    // As it would find whom to ask.
    let holder = curator.say("participants m");
    assert_eq!(holder, guard.path());
    curator.tell(&format!("ask {holder}"));
    guard.revocation().recv_timeout(SOON).expect("asked");
    assert!(guard.is_held());
    curator.command("acquire m");
    wait_for_children(server(), path, 2);
    assert!(!curator.has_answered());
    drop(guard);
    curator.done();
    curator.tell("release m");
    wait_for_children(server(), path, 0);
}
