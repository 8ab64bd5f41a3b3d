//! Moments on the clock under the lease, which whoever drives the core brings along.

use std::time::Duration;

/// A moment on the clock under the lease: nanoseconds since some fixed moment in the past.
///
/// Not an [`Instant`](std::time::Instant): on Linux that stops while the machine sleeps, and the server does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(u64);

impl Moment {
    /// A moment from its nanoseconds. Moments begin at 1: 0 is free for "none" in an atomic.
    #[inline]
    pub(in crate::link) fn from_nanos(nanos: u64) -> Self {
        Self(nanos.max(1))
    }

    #[inline]
    pub(in crate::link) fn nanos(self) -> u64 {
        self.0
    }

    /// As far ahead as the clock goes, if it is longer: 584 years.
    #[inline]
    pub(crate) fn plus(self, ahead: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(ahead)))
    }

    /// How long it is since `earlier`; zero if that is later.
    #[inline]
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[inline]
pub(in crate::link) fn nanos_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
