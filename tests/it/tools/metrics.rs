//! Metrics, as an exporter shows them.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use zklock::{Client, ConnectionEvent, MetricsObserver, Mutex, Observer};

use crate::fixtures::{SOON, T, mutex, server};

/// The exporter of this process. Each test reads only what its own client has recorded.
fn exporter() -> &'static PrometheusHandle {
    static EXPORTER: OnceLock<PrometheusHandle> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let exporter = PrometheusBuilder::new().install_recorder();
        exporter.expect("the only one")
    })
}

/// The value of a metric; `None` if it was not recorded.
fn value(metric: &str) -> Option<f64> {
    let text = exporter().render();
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(metric)?.trim().parse().ok())
}

/// An observer of the user's own beside the library's: it hears that the client was closed.
struct Closes(Sender<()>);

impl Observer for Closes {
    fn connection(&self, event: &ConnectionEvent) {
        if *event == ConnectionEvent::Closed {
            let _ = self.0.send(());
        }
    }
}

fn observed(metrics: &MetricsObserver) -> (Client, Receiver<()>) {
    exporter();
    let (tell, told) = unbounded();
    let client = Client::builder(&server().connect_string())
        .session_timeout(T)
        .observer(metrics.clone())
        .observer(Closes(tell))
        .connect()
        .expect("a server that works");
    (client, told)
}

#[test]
fn locks_are_recorded_by_label_and_never_by_path() {
    let metrics = MetricsObserver::named("by-label");
    let (client, closed) = observed(&metrics);
    let builder = Mutex::builder(&client, "/metrics/secret").label("orders");
    let lock = builder.build().expect("a good path");
    for _ in 0..3 {
        lock.lock().expect("free").unlock().expect("held");
    }
    let other = crate::fixtures::client();
    let held = mutex(&other, "/metrics/secret").lock().expect("free");
    assert!(lock.try_lock().expect("an answer").is_none());
    let short = Duration::from_millis(50);
    let began = Instant::now();
    assert!(lock.try_lock_for(short).expect("an answer").is_none());
    let waited = began.elapsed();
    drop(held);
    drop(mutex(&client, "/metrics/unlabelled").lock().expect("free"));
    client.close();
    // The metrics hear of an event before the one that was added later.
    closed.recv_timeout(SOON).expect("told");
    let calls = |outcome: &str| {
        let labels = format!("{{client=\"by-label\",lock=\"orders\",outcome=\"{outcome}\"}}");
        let count = value(&format!("zklock_wait_seconds_count{labels}"));
        assert_eq!(value(&format!("zklock_acquires_total{labels}")), count);
        count
    };
    let calls = ["asked", "busy", "timed_out", "handed_over"].map(calls);
    assert_eq!(calls, [Some(3.0), Some(1.0), Some(1.0), None]);
    let timed_out = "{client=\"by-label\",lock=\"orders\",outcome=\"timed_out\"}";
    let recorded = value(&format!("zklock_wait_seconds_sum{timed_out}")).expect("recorded");
    assert!((short.as_secs_f64()..=waited.as_secs_f64()).contains(&recorded));
    let unlabelled = "zklock_acquires_total{client=\"by-label\",outcome=\"asked\"}";
    assert_eq!(value(unlabelled), Some(1.0));
    assert!(!exporter().render().contains("secret"));
}

#[test]
fn gauges_are_recorded_when_asked_for() {
    let metrics = MetricsObserver::named("gauges");
    let (client, _closed) = observed(&metrics);
    let gauges = || {
        metrics.record(&client.stats());
        let names = ["held_locks", "waiting_threads", "remaining_lease_seconds"];
        names.map(|name| value(&format!("zklock_{name}{{client=\"gauges\"}}")).expect("recorded"))
    };
    let _guard = mutex(&client, "/metrics/gauges").lock().expect("free");
    let [held, waiting, remaining] = gauges();
    assert_eq!([held, waiting].map(|it| it.to_string()), ["1", "0"]);
    assert!(remaining > 0.0 && remaining <= T.as_secs_f64());
    client.close();
    assert_eq!(gauges().map(|it| it.to_string()), ["0", "0", "0"]);
}
