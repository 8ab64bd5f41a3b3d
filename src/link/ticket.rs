//! What the link keeps of a session from one connection to the next.

use std::sync::Arc;
use std::time::Instant;

use super::frame::{ConnectRequest, ConnectResponse};
use super::lease::Epoch;

/// What it takes to go on with a session on another connection.
pub(super) struct Ticket {
    pub(super) epoch: Arc<Epoch>,
    pub(super) password: Vec<u8>,
    /// The session above has heard of it.
    pub(super) announced: bool,
}

impl Ticket {
    pub(super) fn new(number: u64, granted: ConnectResponse, sent_at: Instant) -> Self {
        let timeout = granted.timeout();
        Self {
            epoch: Arc::new(Epoch::begun(number, granted.session_id, timeout, sent_at)),
            password: granted.password,
            announced: false,
        }
    }

    /// The handshake that goes on with the session.
    pub(super) fn request(&self, last_zxid_seen: i64) -> ConnectRequest {
        ConnectRequest {
            last_zxid_seen,
            timeout_ms: i32::try_from(self.epoch.timeout().as_millis()).unwrap_or(i32::MAX),
            session_id: self.epoch.session_id(),
            password: self.password.clone(),
        }
    }
}
