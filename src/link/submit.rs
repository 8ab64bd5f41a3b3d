//! Requests of our own, on their way into the core.

use std::sync::Arc;

use zklock_protocol::Request;

use super::Link;
use super::core::answer::{Batching, Completion, NotSent};
use super::core::{Group, Rest, Submitted};
use super::wire::Wire;

impl Link {
    /// Submits `requests` on exactly this connection, and returns before they are answered: never
    /// blocks, but for the lock of the link. If they are not sent, nothing is ever completed; if they
    /// are, it is called once, perhaps before this returns.
    pub(crate) fn submit(
        &self,
        connection: u64,
        requests: &[Request],
        batching: Batching,
        completion: Arc<dyn Completion>,
    ) -> Result<(), NotSent> {
        if requests.is_empty() {
            completion.completed(Vec::new());
            return Ok(());
        }
        let group = Box::new(Group::encode(requests, completion)?);
        // Read before the lock is taken: see `Chain::latest`.
        let now = self.wire.config.clock.now();
        let mut state = self.wire.state.lock();
        let submitted = state.core.submit(connection, group, batching, now);
        let server = state.server.clone();
        drop(state);
        match submitted {
            Err((why, group)) => {
                group.forget();
                return Err(why);
            }
            Ok(submitted) => {
                if let Some(server) = server {
                    match submitted {
                        Submitted::Send => self.wire.flush(&server),
                        Submitted::Wait => {}
                        Submitted::WaitAndTick => server.stream.wake(),
                    }
                }
            }
        }
        Ok(())
    }
}

impl Wire {
    /// Takes note of how sharing packets has gone, and asks again, each by itself, what came to
    /// nothing because of others. To be called without locks.
    pub(super) fn ask_again(&self, connection: u64, rest: Rest) {
        if rest.is_nothing() {
            return;
        }
        let asks = !rest.again.is_empty();
        let now = self.config.clock.now();
        let mut state = self.state.lock();
        let lost = state.core.ask_again(connection, rest, now);
        let server = state.server.clone();
        drop(state);
        lost.into_iter().for_each(Group::tell_lost);
        if let Some(server) = server.filter(|_| asks) {
            self.flush(&server);
        }
    }
}
