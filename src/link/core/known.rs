//! Whether servers know a kind of request that not all of them do.
//!
//! A server says that it does not in one of two ways. It answers "unimplemented", which is certain.
//! Or it hangs up, which servers also do because they are restarted, or lose their leader. So a
//! hang-up is held against a request only on a connection on which none of its kind was answered,
//! once on each, and only some in a row are believed.
//!
//! What was learnt outlives the connection on which it was: a hang-up ends that, and if it were
//! forgotten with it, the same request would end the next one.
//!
//! Neither is believed for ever: servers are replaced by others, and even several hang-ups may have
//! been ordinary ones. The request is tried again after a while, and if that was in vain, after twice
//! as long. A try may cost the connection; where sessions do not survive that, it is made only while
//! nothing is held.

use std::time::Duration;

use super::moment::Moment;

/// After so many hang-ups in a row, a kind that nobody has ever answered is taken for unknown ...
const HANG_UPS: u32 = 2;
/// ... and one that was answered before.
const HANG_UPS_IF_KNOWN: u32 = 4;
/// For so long, the first time, ...
const FIRST_PAUSE: Duration = Duration::from_secs(600);
/// ... and at the most.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// What servers have said to one kind of request.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Until when it is not asked, if it is believed to be unknown.
    off_until: Option<Moment>,
    /// How often in a row that was so.
    pauses: u32,
    hang_ups: u32,
    was_answered: bool,
    /// The last connection that said something about it, and whether more of it can count.
    connection: u64,
    is_settled: bool,
}

impl Known {
    /// Whether to ask. `is_harmless`: a hang-up would cost nobody a lock.
    pub(crate) fn may_ask(&self, now: Moment, is_harmless: impl FnOnce() -> bool) -> bool {
        self.off_until
            .is_none_or(|until| until <= now && is_harmless())
    }

    /// One was answered on this connection.
    pub(crate) fn answered(&mut self, connection: u64) {
        *self = Self {
            was_answered: true,
            connection,
            is_settled: true,
            ..Self::default()
        };
    }

    /// A server said that it does not know it.
    pub(crate) fn refused(&mut self, now: Moment) {
        let most = LONGEST_PAUSE.as_secs() / FIRST_PAUSE.as_secs();
        let times = 1_u64.checked_shl(self.pauses).unwrap_or(most).min(most);
        let pause = FIRST_PAUSE.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX));
        self.off_until = Some(now.plus(pause));
        self.pauses = self.pauses.saturating_add(1);
    }

    /// A server hung up on this connection while one was in flight. Returns whether that is taken for
    /// a sign that it does not know it.
    pub(crate) fn hung_up(&mut self, connection: u64, now: Moment) -> bool {
        if self.connection != connection {
            self.connection = connection;
            self.is_settled = false;
        }
        if !std::mem::replace(&mut self.is_settled, true) {
            self.hang_ups += 1;
            // Who is only tried again has been believed before.
            let most = match (self.pauses, self.was_answered) {
                (1.., _) => 1,
                (0, false) => HANG_UPS,
                (0, true) => HANG_UPS_IF_KNOWN,
            };
            if self.hang_ups >= most {
                self.hang_ups = 0;
                self.refused(now);
            }
        }
        self.off_until.is_some_and(|until| until > now)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn now() -> Moment {
        Moment::from_nanos(1_000_000_000)
    }

    fn asks(known: &Known, now: Moment) -> bool {
        known.may_ask(now, || true)
    }

    #[test]
    fn two_hang_ups_are_believed_of_what_nobody_has_answered() {
        let (mut known, now) = (Known::default(), now());
        assert!(!known.hung_up(1, now));
        // Several may be in flight.
        assert!(!known.hung_up(1, now) && asks(&known, now));
        assert!(known.hung_up(2, now) && !asks(&known, now));
    }

    #[test]
    fn a_hang_up_says_nothing_where_one_was_answered() {
        let (mut known, now) = (Known::default(), now());
        for connection in 1..100 {
            known.answered(connection);
            assert!(!known.hung_up(connection, now) && asks(&known, now));
        }
        // Nor do some on connections that broke before they said anything.
        for connection in 100..103 {
            assert!(!known.hung_up(connection, now) && asks(&known, now));
        }
        known.answered(103);
        for connection in 104..107 {
            assert!(!known.hung_up(connection, now));
        }
        assert!(known.hung_up(107, now));
    }

    #[test]
    fn what_is_believed_is_tried_again_later_and_less_and_less() {
        let (mut known, mut now) = (Known::default(), now());
        known.refused(now);
        for minutes in [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440] {
            assert!(!asks(
                &known,
                now.plus(minutes * MINUTE - Duration::from_secs(1))
            ));
            now = now.plus(minutes * MINUTE);
            assert!(asks(&known, now), "{minutes}");
            assert!(!known.may_ask(now, || false), "locks are held");
            let connection = u64::from(minutes);
            // One is enough for who was believed before.
            if minutes < 1440 {
                assert!(known.hung_up(connection, now), "{minutes}");
            } else {
                known.refused(now);
            }
        }
        known.answered(9_999);
        assert!(asks(&known, now));
        known.refused(now);
        assert!(asks(&known, now.plus(10 * MINUTE)), "as at first");
    }
}
