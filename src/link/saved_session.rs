//! What the link keeps of a session from one connection to the next.

use std::sync::Arc;

use super::clock::Moment;
use super::core::frame::{ConnectRequest, ConnectResponse};
use super::core::opening;
use super::epoch::{Epoch, Granted};
use super::wire::Wire;

/// What it takes to go on with a session on another connection.
pub(super) struct SavedSession {
    pub(super) epoch: Arc<Epoch>,
    pub(super) password: Vec<u8>,
    /// The session above has heard of it.
    pub(super) announced: bool,
}

impl SavedSession {
    pub(super) fn new(wire: &Wire, number: u64, granted: ConnectResponse, sent_at: Moment) -> Self {
        let granted_now = Granted {
            session_id: granted.session_id,
            timeout: granted.timeout(),
            sent_at,
        };
        let (clock, by_sync) = (wire.config.clock.clone(), wire.config.probe_by_sync);
        Self {
            epoch: Arc::new(Epoch::begun(number, granted_now, clock, by_sync)),
            password: granted.password,
            announced: false,
        }
    }

    /// The handshake that goes on with the session.
    pub(super) fn request(&self, last_zxid_seen: i64) -> ConnectRequest {
        let timeout = self.epoch.lease().timeout();
        opening::go_on(
            self.epoch.session_id(),
            self.password.clone(),
            timeout,
            last_zxid_seen,
        )
    }
}
