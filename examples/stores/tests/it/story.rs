//! What happens to every store.

use std::sync::OnceLock;

use testbed::{Puppet, Server, process};

use crate::holder::{self, Held, SOON};
use crate::stores::{Place, Store};

/// The servers of the locks. Each story has a lock of its own.
pub(crate) fn servers() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start).connect_string()
}

/// A holder is stopped for longer than its session lives; the next one takes the lock and the store over; the first one
/// goes on. What is read and said on the way is checked.
fn until_the_first_goes_on(lock: &str, place: &Place) -> (Puppet, Held, Box<dyn Store>) {
    let (first, first_token) = holder::start(lock, place);
    process::stop(first.pid());
    // Until then the servers have not ended the session of the first.
    let next = Held::lock(&servers(), lock, SOON);
    assert!(next.token > first_token, "tokens rise");
    let mut store = place.open();
    assert_eq!(store.take_over(&next).as_deref(), Ok("first"));
    process::cont(first.pid());
    (first, next, store)
}

/// The late writes of a stopped holder are refused, from the moment on at which the next one has read.
pub(crate) fn late_writes_are_refused(lock: &str, place: &Place) {
    let (mut first, next, mut store) = until_the_first_goes_on(lock, place);
    assert_eq!(first.say("write late"), "late");
    assert_eq!(store.read(), "first");
    assert_eq!(store.write(&next, "second"), Ok(()));
    assert_eq!(first.say("write late again"), "late");
    assert_eq!(store.read(), "second");
    assert_eq!(first.say("lost"), "Ok(Session)");
    assert_eq!(store.write(&next, "third"), Ok(()));
    assert_eq!(store.read(), "third");
    next.guard.unlock().expect("held all the time");
}

/// The same story, and the first holder writes as programs do that know nothing of tokens.
pub(crate) fn without_the_guard_a_late_write_wins(lock: &str, place: &Place) {
    let (mut first, next, mut store) = until_the_first_goes_on(lock, place);
    assert_eq!(store.write(&next, "second"), Ok(()));
    assert_eq!(first.say("write-unguarded late"), "written");
    assert_eq!(store.read(), "late");
    next.guard.unlock().expect("held all the time");
}

/// A holder is stopped in the middle of its write for longer than its session lives, and the next one has the lock.
pub(crate) fn stopped_in_the_middle(lock: &str, place: &Place) -> (Puppet, Held, Box<dyn Store>) {
    let (mut first, first_token) = holder::start(lock, place);
    assert_eq!(first.say("write-slowly halfway"), "in the middle");
    process::stop(first.pid());
    let next = Held::lock(&servers(), lock, SOON);
    assert!(next.token > first_token, "tokens rise");
    (first, next, place.open())
}
