//! What the link keeps of a session from one connection to the next.

use std::sync::Arc;

use super::clock::Moment;
use super::frame::{ConnectRequest, ConnectResponse};
use super::lease::Epoch;
use super::wire::Wire;

/// What it takes to go on with a session on another connection.
pub(super) struct Ticket {
    pub(super) epoch: Arc<Epoch>,
    pub(super) password: Vec<u8>,
    /// The session above has heard of it.
    pub(super) announced: bool,
}

impl Ticket {
    pub(super) fn new(wire: &Wire, number: u64, granted: ConnectResponse, sent_at: Moment) -> Self {
        let (timeout, clock) = (granted.timeout(), wire.config.clock.clone());
        let epoch = Epoch::on_clock(number, granted.session_id, timeout, sent_at, clock);
        Self {
            epoch: Arc::new(epoch.probed_by_sync(wire.config.probe_by_sync)),
            password: granted.password,
            announced: false,
        }
    }

    /// The handshake that goes on with the session.
    pub(super) fn request(&self, last_zxid_seen: i64) -> ConnectRequest {
        let timeout = self.epoch.lease().timeout();
        ConnectRequest {
            last_zxid_seen,
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            session_id: self.epoch.session_id(),
            password: self.password.clone(),
        }
    }
}
