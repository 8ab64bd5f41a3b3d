//! A connection before it carries requests, and between two: what a handshake asks, what its answer
//! means for the session, how long a server is given, and how long the next one is waited for.

use std::time::Duration;

use super::frame::{ConnectRequest, ConnectResponse};
use super::lease::Lease;
use super::moment::Moment;

/// A dial is given this long at the least, and at first no longer than [`FIRST_DIAL_AT_MOST`].
const FIRST_DIAL_AT_LEAST: Duration = Duration::from_millis(250);
pub(in crate::link) const FIRST_DIAL_AT_MOST: Duration = Duration::from_secs(2);
/// A connection that broke earlier than this counts as a failure, so that a server which greets
/// and then hangs up is not dialled thousands of times a second.
const SETTLED: Duration = Duration::from_secs(1);
/// Whatever is asked for: no longer than this, or times overflow.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);
/// After how many doublings the pauses stay the same.
const MOST_DOUBLINGS: u32 = 16;

fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

/// The handshake that asks for a session. It has seen nothing: after the data was restored from a
/// backup, no server would take what the last one has seen.
pub(in crate::link) fn new_session(timeout: Duration) -> ConnectRequest {
    ConnectRequest {
        last_zxid_seen: 0,
        timeout_ms: millis(timeout),
        session_id: 0,
        password: vec![0; 16],
    }
}

/// The handshake that goes on with a session. A server that lags behind what it has seen refuses.
pub(in crate::link) fn go_on(
    session_id: i64,
    password: Vec<u8>,
    timeout: Duration,
    last_zxid_seen: i64,
) -> ConnectRequest {
    ConnectRequest {
        last_zxid_seen,
        timeout_ms: millis(timeout),
        session_id,
        password,
    }
}

/// Whether the answer to [`new_session`] grants one.
pub(in crate::link) fn granted(response: &ConnectResponse) -> Result<(), &'static str> {
    if response.timeout_ms <= 0 {
        return Err("it refused a new session");
    }
    // The owner of a node that has none.
    if response.session_id == 0 {
        return Err("it granted a session without a number");
    }
    Ok(())
}

/// What the answer to [`go_on`] means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Resumption {
    GoesOn,
    /// The session is over, and the server knows.
    Expired,
    /// It is over, and what this connection has is to be closed: another session, which is nobody's,
    /// or ours, which would live on for all of its timeout.
    ToClose(&'static str),
}

/// Judges the answer to a [`go_on`] that was sent at `sent_at`.
pub(in crate::link) fn resumed(
    session_id: i64,
    lease: &Lease,
    response: &ConnectResponse,
    sent_at: Moment,
    now: Moment,
) -> Resumption {
    if response.timeout_ms <= 0 {
        return Resumption::Expired;
    }
    // Our session is over, whatever that server means by it.
    if response.session_id != session_id {
        return Resumption::ToClose("a server has answered with another session");
    }
    // The server now expires it after what it has granted this time: that may be less.
    if lease.resumed(response.timeout(), sent_at, now) {
        return Resumption::GoesOn;
    }
    Resumption::ToClose("its lease ran out before a server was reached")
}

/// How long servers are given, and how long we wait between them.
#[derive(Debug, Default)]
pub(in crate::link) struct Redials {
    /// In a row.
    failed_rounds: u32,
    /// Connections in a row that did not live long.
    broke_early: u32,
}

impl Redials {
    /// At first enough to ask every server within a third of the timeout, and with a session to
    /// go on with, no more than a 12th for each: the lease of what is held may have little more
    /// than two of them left when a silent connection has been given up. Doubled after each round,
    /// for servers that are slow.
    pub(in crate::link) fn dial_limit(
        &self,
        timeout: Duration,
        goes_on: bool,
        servers: usize,
    ) -> Duration {
        let most = if goes_on {
            timeout / 12
        } else {
            FIRST_DIAL_AT_MOST
        };
        let servers = u32::try_from(servers).unwrap_or(u32::MAX);
        let first = (timeout / 3 / servers.max(1)).min(most);
        let first = first.clamp(FIRST_DIAL_AT_LEAST, FIRST_DIAL_AT_MOST);
        let most = (timeout * 2 / 3).max(FIRST_DIAL_AT_LEAST);
        let doublings = self.failed_rounds.min(MOST_DOUBLINGS);
        first.saturating_mul(1 << doublings).min(most)
    }

    /// No server could be reached. Returns the longest pause before the next round.
    pub(in crate::link) fn round_failed(&mut self, initial: Duration, max: Duration) -> Duration {
        let pause = pause(initial, max, self.failed_rounds);
        self.failed_rounds += 1;
        pause
    }

    pub(in crate::link) fn connected(&mut self) {
        self.failed_rounds = 0;
    }

    /// A connection has ended after so long. The next dial follows at once, unless connections break
    /// again and again as soon as they are made: then there is a pause, no longer than this.
    pub(in crate::link) fn broke(
        &mut self,
        after: Duration,
        initial: Duration,
        max: Duration,
    ) -> Option<Duration> {
        if after >= SETTLED {
            self.broke_early = 0;
            return None;
        }
        let doublings = self.broke_early.checked_sub(1);
        self.broke_early += 1;
        doublings.map(|doublings| pause(initial, max, doublings))
    }
}

/// Doubled each time, up to a limit.
fn pause(initial: Duration, max: Duration, doublings: u32) -> Duration {
    let doubled = initial.saturating_mul(1 << doublings.min(MOST_DOUBLINGS));
    doubled.min(max.max(initial)).min(LONGEST_PAUSE)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(12);

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(1).plus(Duration::from_secs(1_000 + seconds))
    }

    fn response(session_id: i64, timeout: Duration) -> ConnectResponse {
        ConnectResponse {
            protocol: 0,
            timeout_ms: millis(timeout),
            session_id,
            password: Vec::new(),
        }
    }

    #[test]
    fn a_session_goes_on_only_where_it_is_known_and_in_time() {
        let lease = Lease::new(T, at(0), false);
        let judge = |response: &ConnectResponse, now| resumed(7, &lease, response, at(1), at(now));
        assert_eq!(judge(&response(0, Duration::ZERO), 2), Resumption::Expired);
        let strange = judge(&response(8, T), 2);
        assert!(matches!(strange, Resumption::ToClose(_)), "{strange:?}");
        assert!(lease.alive(at(11)), "that is nothing to the lease");
        assert_eq!(judge(&response(7, T), 2), Resumption::GoesOn);
        // It counts from the sending of what was answered.
        assert!(lease.alive(at(12)));
        let late = judge(&response(7, T), 13);
        assert!(matches!(late, Resumption::ToClose(_)), "{late:?}");
    }

    #[test]
    fn no_session_is_begun_without_a_number_or_time() {
        assert_eq!(granted(&response(7, T)), Ok(()));
        assert!(granted(&response(0, T)).is_err());
        assert!(granted(&response(7, Duration::ZERO)).is_err());
    }

    /// Every server is asked within a third of the timeout, and none for longer than a 12th while
    /// something is held; after each round in vain, for twice as long.
    #[test]
    fn servers_are_given_more_time_after_each_round() {
        let mut redials = Redials::default();
        assert_eq!(redials.dial_limit(T, false, 1), FIRST_DIAL_AT_MOST);
        assert_eq!(redials.dial_limit(T, false, 4), T / 12);
        assert_eq!(redials.dial_limit(T, true, 1), T / 12);
        assert_eq!(redials.dial_limit(T, true, 100), FIRST_DIAL_AT_LEAST);
        let (initial, max) = (Duration::from_millis(10), Duration::from_millis(35));
        let pauses = [(); 4].map(|()| redials.round_failed(initial, max).as_millis());
        assert_eq!(pauses, [10, 20, 35, 35]);
        assert_eq!(redials.dial_limit(T, true, 1), T * 2 / 3, "and no more");
        redials.connected();
        assert_eq!(redials.dial_limit(T, true, 1), T / 12);
    }

    /// One break is followed by a dial at once; a server that greets and hangs up is not dialled
    /// without a pause.
    #[test]
    fn only_breaks_in_a_row_are_paced() {
        let mut redials = Redials::default();
        let (initial, max) = (Duration::from_millis(10), Duration::from_secs(1));
        let mut broke = |after| redials.broke(after, initial, max);
        assert_eq!(broke(Duration::ZERO), None);
        assert_eq!(broke(Duration::ZERO), Some(initial));
        assert_eq!(broke(Duration::ZERO), Some(2 * initial));
        assert_eq!(broke(SETTLED), None);
        assert_eq!(broke(Duration::ZERO), None);
    }
}
