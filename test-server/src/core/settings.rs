//! How a server is set up, and which releases it behaves as.

use std::time::Duration;

/// How the server is set up.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) line: Line,
    /// The highest byte of the ids of its sessions.
    pub(crate) server_id: u8,
    pub(crate) tick: Duration,
    pub(crate) min_session_timeout: Duration,
    pub(crate) max_session_timeout: Duration,
    /// ZooKeeper's `jute.maxbuffer`.
    pub(crate) max_frame: usize,
    pub(crate) container_check: Duration,
    /// Since 1970, when the server's own clock was zero.
    pub(crate) epoch_ms: i64,
    /// What the passwords of sessions are made from.
    pub(crate) secret: u64,
}

impl Settings {
    /// In ms since 1970.
    pub(crate) fn time_ms(&self, now: Duration) -> i64 {
        let since = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        self.epoch_ms.saturating_add(since)
    }
}

/// A line of ZooKeeper's releases, as which a server behaves.
///
/// Most of what clients do looks the same on both. Where they differ, as a comparison with the
/// release named here has shown:
///
/// | | 3.8 | 3.9 |
/// |---|---|---|
/// | a connection asks for two kinds of watch on one path | the second takes the place of the first | it has both |
/// | `removeWatches` of data or children | removes whatever is there | removes one-shot watches alone; persistent ones have kinds of their own |
/// | `checkWatches` | finds anybody's watch | finds its own |
/// | the number in an event's header | -1 | the transaction's |
/// | `create2` as a step of a `multi` | answered as `create` is | answered with the stat too |
/// | an unknown flag of a create in a `multi` | the step fails | the request cannot be read |
/// | `exists` without the right to read | answered | refused |
/// | addresses of IPv6 in access lists | refused | taken |
/// | a write whose record cannot be read | takes a transaction's number | does not, unless it is a `multi` |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// As 3.8.0.
    #[default]
    V3_8,
    /// As 3.9.5.
    V3_9,
}

impl Line {
    /// What the server calls itself.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::V3_8 => "3.8.0-zklock-test",
            Self::V3_9 => "3.9.5-zklock-test",
        }
    }
}
