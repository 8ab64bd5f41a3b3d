//! [`RetryPolicy`]: how hard to try while ZooKeeper cannot be reached.

use std::time::Duration;

/// How a client behaves while it has no connection, or the servers are overloaded.
///
/// The client dials every server of its list in turn, again and again, until it is closed. After
/// each round in which no server answered it pauses for a random time between zero and a limit. The
/// limit starts at [`initial`](Self::initial) and doubles up to [`max`](Self::max) ("full jitter",
/// so that a thousand clients do not come back at the same moment).
///
/// With the same pauses it repeats what a server refuses for now: because it is overloaded, or with
/// an error that says nothing about what is there. What must be removed is asked for until it is
/// gone or the session has ended.
///
/// Each call that waits for a connection gives up after
/// [`give_up_after`](Self::give_up_after), with an error whose
/// [`is_connection_loss`](crate::Error::is_connection_loss) is true, or at its own deadline if that
/// is earlier.
///
/// Set it with [`ClientBuilder::retry`](crate::ClientBuilder::retry).
///
/// Every acquire of this client waits for a connection for as long as it takes, and dials slowly:
///
/// ```
/// use std::time::Duration;
/// use zklock::{Client, RetryPolicy};
///
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let patient = RetryPolicy::new()
///     .initial(Duration::from_millis(500)) // 50 ms by default
///     .max(Duration::from_secs(30)) // 2 s by default
///     .give_up_after(None); // 60 s by default
/// let client = Client::builder(&servers).retry(patient).connect()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct RetryPolicy {
    pub(crate) initial: Duration,
    pub(crate) max: Duration,
    pub(crate) give_up_after: Option<Duration>,
}

impl RetryPolicy {
    /// The defaults: 50 ms doubling up to 2 s; a call gives up after 60 s without a connection.
    pub fn new() -> Self {
        Self {
            initial: Duration::from_millis(50),
            max: Duration::from_secs(2),
            give_up_after: Some(Duration::from_secs(60)),
        }
    }

    /// The limit of the first pause. Defaults to 50 ms; at least 1 ms.
    pub fn initial(mut self, initial: Duration) -> Self {
        self.initial = initial.max(Duration::from_millis(1));
        self
    }

    /// The limit of the longest pause. Defaults to 2 s; a day at the most.
    pub fn max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    /// How long each call waits while there is no connection, counted from the loss of contact, or
    /// from the call's own beginning if that is later. Its own deadline counts if it is earlier.
    /// Defaults to 60 s; with `None` a call waits without end, or until its own deadline.
    ///
    /// For as long a call repeats what a server refuses for now, again and again.
    ///
    /// So a loop that calls again after each failure makes one call in this time, however long the
    /// outage lasts. With zero it must make its own pauses.
    pub fn give_up_after(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.give_up_after = limit.into();
        self
    }
}

/// A longer one may be beyond the clock's range, and would count as no pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

impl RetryPolicy {
    /// How long to wait before what was refused for now is asked again, when that has happened so
    /// many times in a row before: from half of the limit up to the limit.
    pub(crate) fn pause(&self, times: u32) -> Duration {
        const MOST_DOUBLINGS: u32 = 16;
        let doubled = self.initial.saturating_mul(1 << times.min(MOST_DOUBLINGS));
        let limit = doubled.min(self.max.max(self.initial)).min(LONGEST_PAUSE);
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        // Some of its bits say the version; the upper 32 do not.
        let fraction = f64::from(u32::try_from(random >> 32).expect("32 bits"));
        limit.mul_f64(0.5 + 0.5 * fraction / f64::from(u32::MAX))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_limit_and_are_never_none() {
        let policy = RetryPolicy::new();
        let limits = [50, 100, 200, 400, 800, 1600, 2000, 2000];
        for (times, limit) in (0..).zip(limits) {
            let limit = Duration::from_millis(limit);
            let pause = policy.pause(times);
            assert!(limit / 2 <= pause && pause <= limit, "{times}: {pause:?}");
        }
        assert!(policy.pause(u32::MAX) <= Duration::from_secs(2));
        let rare = RetryPolicy::new().initial(Duration::MAX).max(Duration::MAX);
        for times in [0, 1, u32::MAX] {
            let pause = rare.pause(times);
            assert!(
                LONGEST_PAUSE / 2 <= pause && pause <= LONGEST_PAUSE,
                "{pause:?}"
            );
        }
        let least = RetryPolicy::new()
            .initial(Duration::ZERO)
            .max(Duration::ZERO);
        assert!(least.pause(9) > Duration::ZERO);
    }
}
