//! How a server is set up.

use std::time::Duration;

/// How the server is set up.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) tick: Duration,
    pub(crate) min_session_timeout: Duration,
    pub(crate) max_session_timeout: Duration,
    /// ZooKeeper's `jute.maxbuffer`.
    pub(crate) max_frame: usize,
    pub(crate) container_check: Duration,
    /// Since 1970, when the server's own clock was zero.
    pub(crate) epoch_ms: i64,
}
