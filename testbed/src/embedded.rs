//! The server that runs in this process, as the tests know servers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::server::StartFailure;

/// Which server tests get that need nothing of Apache's own: `embedded` or `zookeeper`, as the
/// variable `ZKLOCK_TEST_SERVER` says. Apache ZooKeeper if it says nothing.
pub(crate) fn is_wanted() -> bool {
    match std::env::var("ZKLOCK_TEST_SERVER").as_deref() {
        Ok("embedded") => true,
        Ok("zookeeper") | Err(_) => false,
        Ok(other) => panic!("ZKLOCK_TEST_SERVER is {other}, not embedded or zookeeper"),
    }
}

/// A server in this process, with verbs named after what is done to processes.
#[derive(Debug)]
pub(crate) struct Embedded {
    pub(crate) server: zklock_test::Server,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Awake,
    Frozen,
    Dead,
}

impl Embedded {
    /// Sessions expire at multiples of `tick`.
    pub(crate) fn start(tick: Duration, shortest: Duration, longest: Duration) -> Self {
        let server = zklock_test::Server::builder()
            .tick(tick)
            .session_timeouts(shortest, longest)
            .start();
        Self {
            server: server.expect("loopback has a free port"),
            state: Mutex::new(State::Awake),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        *self.state() != State::Dead
    }

    pub(crate) fn is_awake(&self) -> bool {
        *self.state() == State::Awake
    }

    pub(crate) fn kill(&self) {
        self.server.stop();
        *self.state() = State::Dead;
    }

    pub(crate) fn freeze(&self) {
        self.server.pause();
        *self.state() = State::Frozen;
    }

    pub(crate) fn thaw(&self) {
        self.server.resume();
        *self.state() = State::Awake;
    }

    pub(crate) fn restart(&self) -> Result<(), StartFailure> {
        let restarted = self.server.restart();
        restarted.map_err(|error| StartFailure::Died(error.to_string()))?;
        *self.state() = State::Awake;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
