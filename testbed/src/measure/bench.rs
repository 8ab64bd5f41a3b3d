//! Samples of one thing right beside another.

use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode};

use super::table::{Row, Sample, Target, per_cycle};

const SAMPLES: usize = 30;

/// Rows of a table, each measured against something in the same breath.
pub struct Bench<'c> {
    group: BenchmarkGroup<'c, WallTime>,
    rows: Vec<Row>,
}

impl<'c> Bench<'c> {
    pub fn new(criterion: &'c mut Criterion, name: &str) -> Bench<'c> {
        let mut group = criterion.benchmark_group(name);
        group
            .sampling_mode(SamplingMode::Flat)
            .sample_size(SAMPLES)
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(3));
        Bench {
            group,
            rows: Vec::new(),
        }
    }

    /// Adds a row of two things that both take long enough to be timed one by one, so that they
    /// take turns cycle by cycle and share every mood of the machine.
    pub fn row_in_turns(
        &mut self,
        name: &str,
        target: Target,
        (against, reference): (&'static str, &dyn Fn()),
        candidate: impl Fn(),
    ) {
        let mut samples = Vec::new();
        self.group.bench_function(name, |bencher| {
            bencher.iter_custom(|cycles| {
                let (mut one, mut other) = (Duration::ZERO, Duration::ZERO);
                for _ in 0..cycles {
                    one += repeat(1, reference);
                    other += repeat(1, &candidate);
                }
                samples.push(Sample {
                    reference_ns: per_cycle(one, cycles),
                    candidate_ns: per_cycle(other, cycles),
                });
                other
            });
        });
        let measured = &samples[samples.len().saturating_sub(SAMPLES)..];
        self.rows.extend(Row::new(name, against, target, measured));
    }

    /// Adds a row: samples of `candidate` (which does so many cycles and says how long that took),
    /// each right after a stretch of `reference` (which says how many nanoseconds a cycle took).
    pub fn row(
        &mut self,
        name: &str,
        target: Target,
        (against, reference): (&'static str, &dyn Fn() -> f64),
        candidate: impl Fn(u64) -> Duration,
    ) {
        let mut samples = Vec::new();
        self.group.bench_function(name, |bencher| {
            bencher.iter_custom(|cycles| {
                let reference_ns = reference();
                let total = candidate(cycles);
                samples.push(Sample {
                    reference_ns,
                    candidate_ns: per_cycle(total, cycles),
                });
                total
            });
        });
        // What came before are criterion's warm-ups.
        let measured = &samples[samples.len().saturating_sub(SAMPLES)..];
        self.rows.extend(Row::new(name, against, target, measured));
    }

    pub fn finish(self) -> Vec<Row> {
        self.group.finish();
        self.rows
    }
}

pub fn repeat(cycles: u64, mut cycle: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..cycles {
        cycle();
    }
    start.elapsed()
}

/// Nanoseconds a cycle.
pub fn nanos(cycles: u64, cycle: impl FnMut()) -> f64 {
    per_cycle(repeat(cycles, cycle), cycles)
}
