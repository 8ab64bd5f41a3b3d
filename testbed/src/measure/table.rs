//! Ratios of things that were measured in turns, as a table.

use std::time::Duration;

/// One stretch of the reference and one of the candidate right after it; nanoseconds a cycle.
#[derive(Clone, Copy)]
pub struct Sample {
    pub reference_ns: f64,
    pub candidate_ns: f64,
}

/// What a row has to reach.
#[derive(Clone, Copy)]
pub enum Target {
    /// Nothing was promised.
    Reported,
    /// At most so many times the time of the reference.
    TimeAtMost(f64),
    /// At least so many times the rate of the reference.
    RateAtLeast(f64),
    /// An absolute time.
    NanosAtMost(f64),
}

pub struct Row {
    pub(crate) name: String,
    against: &'static str,
    target: Target,
    pub(crate) reference_ns: f64,
    pub(crate) candidate_ns: f64,
    /// How many times the reference's rate: the median of the samples' own ratios.
    pub(crate) rate: f64,
}

impl Row {
    /// `None` without samples.
    pub fn new(
        name: &str,
        against: &'static str,
        target: Target,
        samples: &[Sample],
    ) -> Option<Row> {
        let rates = samples.iter().map(|s| s.reference_ns / s.candidate_ns);
        Some(Row {
            name: name.to_owned(),
            against,
            target,
            reference_ns: median(samples.iter().map(|s| s.reference_ns))?,
            candidate_ns: median(samples.iter().map(|s| s.candidate_ns))?,
            rate: median(rates)?,
        })
    }

    fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::Reported => None,
            Target::TimeAtMost(times) => Some(1.0 / self.rate <= times),
            Target::RateAtLeast(times) => Some(self.rate >= times),
            Target::NanosAtMost(most) => Some(self.candidate_ns <= most),
        }
    }
}

/// Prints the rows as a Markdown table.
pub fn print(rows: &[Row]) {
    println!("\n| what | median | against | its median | time | rate | target | met |");
    println!("|---|--:|---|--:|--:|--:|---|---|");
    for row in rows {
        let target = match row.target {
            Target::Reported => String::new(),
            Target::TimeAtMost(times) => format!("time ≤ {times} x"),
            Target::RateAtLeast(times) => format!("rate ≥ {times} x"),
            Target::NanosAtMost(most) => format!("≤ {most} ns"),
        };
        let met = match row.is_met() {
            None => "",
            Some(true) => "yes",
            Some(false) => "**no**",
        };
        println!(
            "| {} | {} | {} | {} | {} x | {} x | {target} | {met} |",
            row.name,
            duration(row.candidate_ns),
            row.against,
            duration(row.reference_ns),
            digits(1.0 / row.rate),
            digits(row.rate),
        );
    }
}

/// Nanoseconds a cycle.
pub fn per_cycle(total: Duration, cycles: u64) -> f64 {
    total.as_nanos() as f64 / cycles as f64
}

pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// A time in the unit that suits it.
pub fn duration(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{} ns", digits(ns)),
        _ if ns < 1e6 => format!("{} us", digits(ns / 1e3)),
        _ if ns < 1e9 => format!("{} ms", digits(ns / 1e6)),
        _ => format!("{} s", digits(ns / 1e9)),
    }
}

/// A number with about three digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => thousands(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        size if size > 0.0 => format!("{value:.1e}"),
        _ => "0".to_owned(),
    }
}

fn thousands(value: f64) -> String {
    let plain = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
