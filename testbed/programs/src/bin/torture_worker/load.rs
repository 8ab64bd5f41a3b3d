//! More than servers take in a moment: nodes full of data, of locks that nobody else wants.

use std::thread::Scope;
use std::time::Duration;

use zklock::{AcquireOptions, Client, Mutex};

/// Together more than is kept for a server that takes nothing, and its sockets' buffers.
const NODES: usize = 24;
/// Just below what servers take.
const BYTES: usize = 900_000;

/// Asks for all at once, from threads of their own, for two session timeouts. Who gets one gives it
/// back.
pub(crate) fn put<'scope>(
    scope: &'scope Scope<'scope, '_>,
    client: &Client,
    path: &str,
    name: &str,
    session: Duration,
) {
    for number in 0..NODES {
        let folder = format!("{path}-load/{name}-{number}");
        let lock = Mutex::new(client, &folder).expect("a good path");
        scope.spawn(move || {
            let options = AcquireOptions::new().timeout(session * 2);
            // Whether it gets it is of no interest, but that nothing is left.
            drop(lock.lock_with(options.data(vec![b'x'; BYTES])));
        });
    }
}
