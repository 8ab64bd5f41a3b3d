//! A seam whose answers a test writes: one session on one connection, and no server.

use std::sync::Arc;
use std::time::Duration;

use zklock_protocol::{ErrorCode, Reply, Request};

use super::Session;
use super::backend::{Answer, Backend, Batching, Completion, NoReply, NotSent};
use super::phase::Connection;
use super::retry_policy::RetryPolicy;
use super::site::Site;
use crate::link::Epoch;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Answers each request by what the test says.
pub(super) struct Scripted<F> {
    script: F,
    closed: Arc<AtomicBool>,
    flights: Arc<AtomicUsize>,
}

/// What a test has of it.
pub(crate) struct Stage {
    pub(crate) session: Arc<Session>,
    pub(crate) epoch: Arc<Epoch>,
    /// What lies below the seam was told to end.
    pub(crate) closed: Arc<AtomicBool>,
    flights: Arc<AtomicUsize>,
}

impl Stage {
    /// How often something was sent, however many requests it was.
    pub(crate) fn flights(&self) -> usize {
        self.flights.load(Ordering::Acquire)
    }

    /// The connection breaks, and the next one is of the same session.
    pub(crate) fn reconnect(&self) {
        let number = self.session.connection();
        self.session.suspended(number);
        let connection = Connection {
            epoch: Arc::clone(&self.epoch),
            number: number + 1,
        };
        self.session.connected(connection, true);
    }
}

/// A session that stands on connection 1.
pub(crate) fn stage<F>(retry: RetryPolicy, script: F) -> Stage
where
    F: Fn(&Request) -> Result<Reply, ErrorCode> + Send + Sync + 'static,
{
    let session = Session::new("scripted".into(), retry, Vec::new(), Site::open());
    let closed = Arc::new(AtomicBool::new(false));
    let flights = Arc::new(AtomicUsize::new(0));
    session.attach(Arc::new(Scripted {
        script,
        closed: Arc::clone(&closed),
        flights: Arc::clone(&flights),
    }));
    let epoch = Arc::new(Epoch::new(1, 100, Duration::from_secs(3600)));
    let connection = Connection {
        epoch: Arc::clone(&epoch),
        number: 1,
    };
    session.connected(connection, false);
    Stage {
        session,
        epoch,
        closed,
        flights,
    }
}

impl<F> Backend for Scripted<F>
where
    F: Fn(&Request) -> Result<Reply, ErrorCode> + Send + Sync,
{
    fn submit(
        &self,
        _connection: u64,
        requests: &[Request],
        _batching: Batching,
        completion: Arc<dyn Completion>,
    ) -> Result<(), NotSent> {
        self.flights.fetch_add(1, Ordering::AcqRel);
        let answer = |request: &Request| Answer {
            result: (self.script)(request).map_err(|error| NoReply::Refused {
                asked: request.opcode(),
                error,
            }),
            events_before: 0,
        };
        completion.completed(requests.iter().map(answer).collect());
        Ok(())
    }

    fn is_harmless(&self, _connection: u64) -> bool {
        true
    }

    fn abandon(&self, _epoch: &Epoch) {}

    fn close(&self, _bound: Duration) {
        self.closed.store(true, Ordering::Release);
    }
}
