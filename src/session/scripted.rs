//! A seam whose answers a test writes: one session on one connection, and no server.

use std::sync::Arc;
use std::time::Duration;

use super::Session;
use super::backend::{Answer, Backend, Company, NoReply, NotOpen, Reply, Request, Slot};
use super::phase::Connection;
use super::retry::RetryPolicy;
use crate::link::Epoch;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Answers each request by what the test says.
pub(crate) struct Scripted<F> {
    script: F,
    closed: Arc<AtomicBool>,
}

/// What a test has of it.
pub(crate) struct Stage {
    pub(crate) session: Arc<Session>,
    pub(crate) epoch: Arc<Epoch>,
    /// What lies below the seam was told to end.
    pub(crate) closed: Arc<AtomicBool>,
}

/// A session that stands on connection 1.
pub(crate) fn stage<F>(retry: RetryPolicy, script: F) -> Stage
where
    F: Fn(&Request) -> Result<Reply, NoReply> + Send + Sync + 'static,
{
    let session = Session::new("scripted".into(), retry, Vec::new());
    let closed = Arc::new(AtomicBool::new(false));
    session.attach(Box::new(Scripted {
        script,
        closed: Arc::clone(&closed),
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
    }
}

impl<F> Backend for Scripted<F>
where
    F: Fn(&Request) -> Result<Reply, NoReply> + Send + Sync,
{
    fn submit(
        &self,
        _connection: u64,
        requests: &[Request],
        _company: Company,
        slot: Arc<dyn Slot>,
    ) -> Result<(), NotOpen> {
        let answer = |request: &Request| Answer {
            result: (self.script)(request),
            events_before: 0,
        };
        slot.answered(requests.iter().map(answer).collect());
        Ok(())
    }

    fn makes_readable_nodes(&self) -> bool {
        true
    }

    fn abandon(&self, _epoch: &Epoch) {}

    fn close(&self, _bound: Duration) {
        self.closed.store(true, Ordering::Release);
    }
}
