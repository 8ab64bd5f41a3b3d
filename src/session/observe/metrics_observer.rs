//! [`MetricsObserver`]: what an observer hears, as metrics.

use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use super::super::connection::ConnectionEvent;
use super::super::loss::LossReason;
use super::counts::Stats;
use super::observer::{
    Acquired, Label, Lost, Miss, Missed, Observer, OrphanCleaned, Released, Retrying, TenureEnded,
    Way,
};

const WAIT: &str = "zklock_wait_seconds";
const HOLD: &str = "zklock_hold_seconds";
const TENURE: &str = "zklock_tenure_seconds";
const ACQUIRES: &str = "zklock_acquires_total";
const UNCONFIRMED: &str = "zklock_unconfirmed_releases_total";
const LOSSES: &str = "zklock_losses_total";
const SESSIONS: &str = "zklock_sessions_total";
const SESSIONS_LOST: &str = "zklock_sessions_lost_total";
const BREAKS: &str = "zklock_breaks_total";
const RECONNECTS: &str = "zklock_reconnects_total";
const ORPHANS: &str = "zklock_orphans_cleaned_total";
const RETRIES: &str = "zklock_retries_total";
const LEFT_OUT: &str = "zklock_events_left_out_total";
const PUT_OFF: &str = "zklock_put_off_total";
const WAITING: &str = "zklock_waiting_threads";
const HELD: &str = "zklock_held_locks";
const REMAINING: &str = "zklock_remaining_lease_seconds";

/// An [`Observer`] that records what it hears by the [`metrics`] facade, for whatever exporter the
/// program has installed.
///
/// | metric | kind | labels | what it is |
/// |---|---|---|---|
/// | `zklock_wait_seconds` | histogram | `lock`, `outcome` | from the call to the hold, or to its end without one |
/// | `zklock_hold_seconds` | histogram | `lock` | from the acquire to the release, by a thread |
/// | `zklock_tenure_seconds` | histogram | `lock` | for how long this process had a lock, over all threads that took turns |
/// | `zklock_acquires_total` | counter | `lock`, `outcome` | attempts to acquire |
/// | `zklock_unconfirmed_releases_total` | counter | `lock` | releases of what was lost, or that go on in the background |
/// | `zklock_losses_total` | counter | `lock`, `reason` | locks that were lost while held or kept |
/// | `zklock_sessions_total` | counter | | sessions that were begun |
/// | `zklock_sessions_lost_total` | counter | | sessions that were lost |
/// | `zklock_breaks_total` | counter | | breaks of a connection |
/// | `zklock_reconnects_total` | counter | | connections that took an earlier session up again |
/// | `zklock_orphans_cleaned_total` | counter | | nodes that were removed in the background |
/// | `zklock_retries_total` | counter | | steps that failed with their connection and were taken again |
/// | `zklock_put_off_total` | counter | | requests that an overloaded server refused for now, or did not take bytes fast enough for; they are made again; by [`record`](Self::record) |
/// | `zklock_events_left_out_total` | counter | | events and log lines that an observer or a logger was too slow for, so all of the above may be short of so many; by [`record`](Self::record) |
/// | `zklock_waiting_threads` | gauge | | threads that wait for a lock, or for ZooKeeper's answer to an acquire; by [`record`](Self::record) |
/// | `zklock_held_locks` | gauge | | see [`Stats::held`]; by [`record`](Self::record) |
/// | `zklock_remaining_lease_seconds` | gauge | | how long the session certainly lives if no server is heard from any more, 0 while none stands; by [`record`](Self::record) |
///
/// - `lock` is what the lock was called by its builder
///   ([`MutexBuilder::label`](crate::MutexBuilder::label)); a lock without a label has none. A path
///   is never one by itself.
/// - `outcome` is `asked`, `handed_over`, `shared`, `lingering` or `parts` (how it was acquired, see
///   [`Way`](crate::event::Way)), or `busy`, `timed_out`, `cancelled` or `failed` (why not, see
///   [`Miss`](crate::event::Miss)).
/// - `reason` is `session`, `removed` or `closed`, see [`LossReason`].
/// - All have `client` as well if the observer is a [named](Self::named) one. Of several clients in
///   one process each needs a name, or the gauges of one overwrite the other's.
///
/// Install the exporter before the client is built: the facade drops what comes before. Another
/// observer can hear the same client, see [`ClientBuilder::observer`](crate::ClientBuilder::observer).
///
/// ```
/// use zklock::{Client, MetricsObserver};
///
/// # fn main() -> zklock::Result<()> {
/// # let server = zklock_test::Server::start().expect("a port");
/// # let servers = server.connect_string();
/// let metrics = MetricsObserver::new();
/// let client = Client::builder(&servers).observer(metrics.clone()).connect()?;
/// let lock = zklock::Mutex::builder(&client, "/locks/nightly").label("nightly").build()?;
/// // Each time the exporter is about to be asked:
/// metrics.record(&client.stats());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MetricsObserver {
    client: Option<Arc<str>>,
}

impl MetricsObserver {
    /// For the only client of a process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For a client that all of its metrics name, in the label `client`.
    #[must_use]
    pub fn named(client: impl Into<Arc<str>>) -> Self {
        Self {
            client: Some(client.into()),
        }
    }

    /// Records what no event tells: the gauges, and how many events were left out.
    ///
    /// To be called whenever the metrics are about to be read, with
    /// [`Client::stats`](crate::Client::stats) of the client that this observes.
    pub fn record(&self, stats: &Stats) {
        let labels = || self.labels(&None, None);
        counter!(LEFT_OUT, labels()).absolute(stats.left_out);
        counter!(PUT_OFF, labels()).absolute(stats.put_off);
        gauge!(WAITING, labels()).set(approximate(stats.waiting));
        gauge!(HELD, labels()).set(approximate(stats.held));
        let remaining = stats.remaining_lease.unwrap_or_default();
        gauge!(REMAINING, labels()).set(remaining.as_secs_f64());
    }

    /// A call that was to acquire has ended.
    fn ended(&self, label: &Label, waited: Duration, outcome: &'static str) {
        let labels = || self.labels(label, Some(("outcome", outcome)));
        counter!(ACQUIRES, labels()).increment(1);
        histogram!(WAIT, labels()).record(waited);
    }

    fn count(&self, what: &'static str, times: u64) {
        counter!(what, self.labels(&None, None)).increment(times);
    }

    fn labels(
        &self,
        lock: &Label,
        more: Option<(&'static str, &'static str)>,
    ) -> Vec<metrics::Label> {
        let named = [("client", &self.client), ("lock", lock)];
        let named = named.into_iter().filter_map(|(key, value)| {
            let value = value.clone()?;
            Some(metrics::Label::new(key, value))
        });
        let more = more.map(|(key, value)| metrics::Label::from_static_parts(key, value));
        named.chain(more).collect()
    }
}

impl Observer for MetricsObserver {
    fn connection(&self, event: &ConnectionEvent) {
        match event {
            ConnectionEvent::Connected { .. } => {
                describe();
                self.count(SESSIONS, 1);
                // So that the first of them is seen as a rise.
                for rare in [SESSIONS_LOST, BREAKS, RECONNECTS, ORPHANS, RETRIES] {
                    self.count(rare, 0);
                }
            }
            ConnectionEvent::Suspended => self.count(BREAKS, 1),
            ConnectionEvent::Reconnected => self.count(RECONNECTS, 1),
            ConnectionEvent::Lost => self.count(SESSIONS_LOST, 1),
            ConnectionEvent::Closed => {}
        }
    }

    fn acquired(&self, acquired: &Acquired) {
        let by = match acquired.by {
            Way::Asked => "asked",
            Way::HandedOver => "handed_over",
            Way::Shared => "shared",
            Way::Lingering => "lingering",
            Way::Parts => "parts",
        };
        self.ended(&acquired.label, acquired.waited, by);
    }

    fn missed(&self, missed: &Missed) {
        let why = match missed.why {
            Miss::Busy => "busy",
            Miss::TimedOut => "timed_out",
            Miss::Cancelled => "cancelled",
            Miss::Failed => "failed",
        };
        self.ended(&missed.label, missed.waited, why);
    }

    fn released(&self, released: &Released) {
        let labels = || self.labels(&released.label, None);
        histogram!(HOLD, labels()).record(released.held_for);
        counter!(UNCONFIRMED, labels()).increment(u64::from(!released.confirmed));
    }

    fn tenure_ended(&self, ended: &TenureEnded) {
        histogram!(TENURE, self.labels(&ended.label, None)).record(ended.lasted);
    }

    fn lost(&self, lost: &Lost) {
        let reason = match lost.reason {
            LossReason::Session => "session",
            LossReason::Removed => "removed",
            LossReason::Closed => "closed",
            // No loss, and only views are told.
            LossReason::Released => return,
        };
        counter!(LOSSES, self.labels(&lost.label, Some(("reason", reason)))).increment(1);
    }

    fn orphan_cleaned(&self, _: &OrphanCleaned) {
        self.count(ORPHANS, 1);
    }

    fn retrying(&self, _: &Retrying) {
        self.count(RETRIES, 1);
    }
}

/// Says what the metrics are, to exporters that have a place for it.
fn describe() {
    describe_histogram!(WAIT, Unit::Seconds, "From the call to the hold or its end.");
    describe_histogram!(HOLD, Unit::Seconds, "From the acquire to the release.");
    describe_histogram!(
        TENURE,
        Unit::Seconds,
        "How long the process had the lock at a time."
    );
    describe_counter!(ACQUIRES, "Attempts to acquire.");
    describe_counter!(UNCONFIRMED, "Releases that ZooKeeper has not confirmed.");
    describe_counter!(LOSSES, "Locks that were lost while held or kept.");
    describe_counter!(SESSIONS, "Sessions that were begun.");
    describe_counter!(SESSIONS_LOST, "Sessions that were lost.");
    describe_counter!(BREAKS, "Breaks of a connection.");
    describe_counter!(RECONNECTS, "Connections that took a session up again.");
    describe_counter!(ORPHANS, "Nodes that were removed in the background.");
    describe_counter!(RETRIES, "Steps that were taken again after a break.");
    describe_counter!(LEFT_OUT, "Events that an observer was too slow for.");
    describe_counter!(
        PUT_OFF,
        "Requests that servers had no room or no time for, made again."
    );
    describe_gauge!(WAITING, "Threads that wait for a lock.");
    describe_gauge!(HELD, "Locks and permits that are held or kept.");
    describe_gauge!(
        REMAINING,
        Unit::Seconds,
        "How long the session certainly lives."
    );
}

/// As the facade wants it.
#[expect(
    clippy::cast_precision_loss,
    reason = "nobody has 2^53 threads or locks"
)]
fn approximate(count: u64) -> f64 {
    count as f64
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::collections::BTreeMap;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    /// What an exporter says after `observe`, less the quantiles of histograms.
    fn exported(observe: impl FnOnce()) -> BTreeMap<String, f64> {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, observe);
        let text = recorder.handle().render();
        let lines = text.lines().filter(|line| {
            !line.is_empty() && !line.starts_with('#') && !line.contains("quantile")
        });
        let split = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        lines.map(split).collect()
    }

    fn table<const N: usize>(rows: [(&str, f64); N]) -> BTreeMap<String, f64> {
        rows.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn a() -> Label {
        Some("a".into())
    }

    #[test]
    fn each_way_of_a_call_to_end_is_an_outcome() {
        use Miss::{Busy, Cancelled, Failed, TimedOut};
        use Way::{Asked, HandedOver, Lingering, Parts, Shared};
        let observer = MetricsObserver::new();
        let waited = Duration::from_millis(500);
        let exported = exported(|| {
            for by in [Asked, Asked, HandedOver, Shared, Lingering, Parts] {
                let label = a();
                observer.acquired(&Acquired { label, waited, by });
            }
            for why in [Busy, TimedOut, Cancelled, Failed] {
                let label = a();
                observer.missed(&Missed { label, waited, why });
            }
        });
        let outcomes = [
            ("asked", 2.0),
            ("handed_over", 1.0),
            ("shared", 1.0),
            ("lingering", 1.0),
            ("parts", 1.0),
            ("busy", 1.0),
            ("timed_out", 1.0),
            ("cancelled", 1.0),
            ("failed", 1.0),
        ];
        let expected = outcomes.into_iter().flat_map(|(outcome, calls)| {
            let labels = format!("{{lock=\"a\",outcome=\"{outcome}\"}}");
            [
                (format!("zklock_acquires_total{labels}"), calls),
                (format!("zklock_wait_seconds_count{labels}"), calls),
                (format!("zklock_wait_seconds_sum{labels}"), calls / 2.0),
            ]
        });
        assert_eq!(exported, expected.collect());
    }

    #[test]
    fn holds_tenures_and_losses_are_by_lock() {
        let observer = MetricsObserver::named("x");
        let exported = exported(|| {
            for (held_for, confirmed) in [(1, true), (2, false)] {
                let held_for = Duration::from_secs(held_for);
                let label = a();
                observer.released(&Released {
                    label,
                    held_for,
                    confirmed,
                });
            }
            let (label, lasted) = (None, Duration::from_secs(4));
            observer.tenure_ended(&TenureEnded { label, lasted });
            for reason in [LossReason::Session, LossReason::Removed, LossReason::Closed] {
                observer.lost(&Lost { label: a(), reason });
            }
        });
        let expected = table([
            (r#"zklock_hold_seconds_count{client="x",lock="a"}"#, 2.0),
            (r#"zklock_hold_seconds_sum{client="x",lock="a"}"#, 3.0),
            (
                r#"zklock_unconfirmed_releases_total{client="x",lock="a"}"#,
                1.0,
            ),
            (r#"zklock_tenure_seconds_count{client="x"}"#, 1.0),
            (r#"zklock_tenure_seconds_sum{client="x"}"#, 4.0),
            (
                r#"zklock_losses_total{client="x",lock="a",reason="session"}"#,
                1.0,
            ),
            (
                r#"zklock_losses_total{client="x",lock="a",reason="removed"}"#,
                1.0,
            ),
            (
                r#"zklock_losses_total{client="x",lock="a",reason="closed"}"#,
                1.0,
            ),
        ]);
        assert_eq!(exported, expected);
    }

    #[test]
    fn what_is_rare_is_there_from_the_first_session_on() {
        let observer = MetricsObserver::new();
        let begun = ConnectionEvent::Connected { session_id: 1 };
        let events = [
            &begun,
            &ConnectionEvent::Suspended,
            &ConnectionEvent::Reconnected,
            &ConnectionEvent::Suspended,
            &ConnectionEvent::Lost,
            &begun,
        ];
        let exported = exported(|| {
            for event in events {
                observer.connection(event);
            }
            observer.retrying(&Retrying { times: 3 });
        });
        let expected = table([
            ("zklock_sessions_total", 2.0),
            ("zklock_sessions_lost_total", 1.0),
            ("zklock_breaks_total", 2.0),
            ("zklock_reconnects_total", 1.0),
            ("zklock_orphans_cleaned_total", 0.0),
            ("zklock_retries_total", 1.0),
        ]);
        assert_eq!(exported, expected);
    }

    #[test]
    fn gauges_are_what_the_statistics_say_last() {
        let observer = MetricsObserver::named("x");
        let exported = exported(|| {
            for (waiting, remaining_lease) in [(7, None), (3, Some(Duration::from_millis(1500)))] {
                observer.record(&Stats {
                    waiting,
                    held: 2,
                    left_out: 9,
                    put_off: 8,
                    remaining_lease,
                    ..Stats::default()
                });
            }
        });
        let expected = table([
            (r#"zklock_waiting_threads{client="x"}"#, 3.0),
            (r#"zklock_held_locks{client="x"}"#, 2.0),
            (r#"zklock_remaining_lease_seconds{client="x"}"#, 1.5),
            (r#"zklock_events_left_out_total{client="x"}"#, 9.0),
            (r#"zklock_put_off_total{client="x"}"#, 8.0),
        ]);
        assert_eq!(exported, expected);
    }
}
